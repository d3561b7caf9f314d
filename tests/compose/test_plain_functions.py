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
from halter.models import Scripted
from halter.models.scripted import calls
from halter.teams import Selector

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


async def look() -> str:
    """Looks."""
    return "seen"


@pytest.mark.parametrize("form", [crew, loop, selector, instructions, predicate])
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
