"""Plain functions of users are called in threads: one that blocks stops no other run."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from typing import Any

import pytest

from halter import Agent, tool
from halter.compose import Loop
from halter.crews import Crew, Task
from halter.facts import Facts
from halter.hooks import Hooks
from halter.models import Scripted
from halter.models.scripted import calls
from halter.sessions import Sessions
from halter.teams import Edge, Graph, RoundRobin, Selector
from halter.terminations import Function

ANY = Scripted("fine")


def crew(block: Callable[..., Any]) -> Any:
    return Crew([Task(description="do it", agent=Agent(ANY), guardrail=lambda _: block())]).run()


def loop(block: Callable[..., Any]) -> Any:
    return Loop(Agent(ANY), until=lambda *_: block() or True, max_iterations=2).run("go")


def selector(block: Callable[..., Any]) -> Any:
    members = [Agent(ANY, name="a"), Agent(ANY, name="b")]
    return Selector(members, choose=lambda messages, names: block()).run("go")


def instructions(block: Callable[..., Any]) -> Any:
    return Agent(ANY, instructions=lambda _: block() or "be brief").run("go")


def predicate(block: Callable[..., Any]) -> Any:
    return Agent(Scripted(calls("look"), "fine"), tools=[tool(approval=lambda: bool(block()))(look)]).run("go")


def termination(block: Callable[..., Any]) -> Any:
    return RoundRobin([Agent(ANY, name="a")], until=Function(lambda _: block() or True)).run("go")


def edge(block: Callable[..., Any]) -> Any:
    members = [Agent(ANY, name="a"), Agent(ANY, name="b")]
    return Graph(members, [Edge("a", "b", when=lambda _: bool(block()))]).run("go")


def scope(block: Callable[..., Any]) -> Any:
    return Agent(ANY, memory=Facts(scope=lambda _: block())).run("go", session=Sessions().session("s"))


def hook(name: str) -> Callable[..., Any]:
    def form(block: Callable[..., Any]) -> Any:
        blocking: Any = type("Blocking", (Hooks,), {name: lambda *_: block()})
        return Agent(Scripted(calls("look"), "fine"), tools=[look], hooks=blocking()).run("go")

    form.__name__ = name
    return form


async def look() -> str:
    """Looks."""
    return "seen"


HOOKS = [hook(name) for name in vars(Hooks) if name.startswith(("before_", "after_"))]
FORMS = [crew, loop, selector, instructions, predicate, termination, edge, scope, *HOOKS]


@pytest.mark.parametrize("form", FORMS)
def test_a_plain_function_that_blocks_leaves_the_loop_free(form: Callable[..., Any]) -> None:
    entered, free = threading.Event(), threading.Event()
    threads: list[threading.Thread] = []

    def block() -> None:
        threads.append(threading.current_thread())
        entered.set()
        assert free.wait(20), "the loop was held up"

    async def main() -> None:
        run = form(block).start()
        while not entered.is_set():  # noqa: ASYNC110 - a thread sets it
            await asyncio.sleep(0.001)
        free.set()  # only a loop that is free comes here
        assert (await run).is_completed

    asyncio.run(main())
    assert threads
    assert threading.main_thread() not in threads


@pytest.mark.parametrize("form", FORMS)
def test_a_run_is_stopped_while_a_plain_function_blocks(form: Callable[..., Any], caplog: Any) -> None:
    """The function goes on in its thread: Python cannot stop one. The receipt names it, but for an approval's: the call
    that it is asked about has not begun."""
    entered, free = threading.Event(), threading.Event()

    def block() -> None:
        entered.set()
        free.wait(20)

    async def main() -> Any:
        run = form(block).start()
        while not entered.is_set():  # noqa: ASYNC110 - a thread sets it
            await asyncio.sleep(0.001)
        run.cancel()
        async with asyncio.timeout(5):  # it would go on for 20 s
            return await run.finished()

    result = asyncio.run(main())
    free.set()
    assert result.is_cancelled
    assert form is predicate or any(line.ended == "abandoned" for line in result.receipt.resources)


@pytest.mark.parametrize("mode", ["immediate", "drain_tools"])
def test_a_plain_hook_that_is_told_of_a_stop_blocks_neither_the_loop_nor_the_stop(mode: Any, caplog: Any) -> None:
    told, free = threading.Event(), threading.Event()
    ticks: list[bool] = []

    class Slow(Hooks):
        def on_cancel(self, ctx: Any, cancellation: Any) -> None:
            told.set()
            assert free.wait(20)

    async def main() -> Any:
        run = Agent(Scripted("word " * 1_000, pace=0.01), hooks=Slow()).run("go", grace=10).start()
        await anext(run.text_stream())
        run.cancel(mode=mode)
        while not told.is_set():  # noqa: ASYNC110 - a thread sets it
            await asyncio.sleep(0.001)
        ticks.append(run.is_done)
        free.set()
        return await run.finished()

    result = asyncio.run(main())
    assert ticks == [False], "the stop waits for it within the grace"
    assert result.receipt.confirmed
