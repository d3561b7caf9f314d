"""K97: callbacks, resources and clean-up of a run see that run's context, whoever stops it."""

from __future__ import annotations

import asyncio
import contextvars
import threading
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from halter import Agent, CancellationToken, RunContext, runnable, tool
from halter.core.current import current_execution
from halter.models.scripted import Scripted, calls
from halter.tools import ToolContext

virtual = pytest.mark.virtual_time
WHO: contextvars.ContextVar[str] = contextvars.ContextVar("who", default="nobody")


class Seen:
    """What clean-up saw: the context variable, and the current run."""

    def __init__(self) -> None:
        self.by: dict[str, tuple[str, str | None]] = {}

    def note(self, name: str) -> None:
        here = current_execution()
        self.by[name] = WHO.get(), here.id if here is not None else None

    async def note_later(self, name: str) -> None:
        await asyncio.sleep(0)
        self.note(name)


class Stream:
    def __init__(self, seen: Seen) -> None:
        self._seen = seen

    async def aclose(self) -> None:
        await self._seen.note_later("aclose")


def holding(seen: Seen) -> Any:
    """A body that holds one of everything which a stop calls."""

    @runnable
    async def holds(ctx: RunContext) -> None:
        WHO.set("the run")
        ctx.on_cancel(lambda: seen.note("plain callback"))
        ctx.on_cancel(lambda: seen.note_later("async callback"))
        ctx.token.on_cancel(lambda: seen.note("the token's callback"))
        ctx.resource("thing", "plain", lambda: seen.note("plain close"), sever=lambda: seen.note("sever"))
        ctx.resource("thing", "async", lambda: seen.note_later("async close"))
        async with ctx.use(Stream(seen)):
            await asyncio.sleep(1000)

    return holds


CLOSINGS = {"plain callback", "async callback", "plain close", "async close", "aclose", "sever"}
EVERYTHING = {*CLOSINGS, "the token's callback"}


async def from_a_task(cancel: Callable[[], object]) -> None:
    WHO.set("the canceller")
    cancel()


async def from_a_run(cancel: Callable[[], object]) -> None:
    @runnable
    async def cancels(ctx: RunContext) -> None:
        await from_a_task(cancel)

    await cancels.run()


async def from_a_thread(cancel: Callable[[], object]) -> None:
    thread = threading.Thread(target=lambda: asyncio.run(from_a_task(cancel)))
    thread.start()
    await asyncio.to_thread(thread.join)


@pytest.mark.scenario("K97")
@pytest.mark.loops
@pytest.mark.parametrize("canceller", [from_a_task, from_a_run, from_a_thread])
@pytest.mark.parametrize("by_token", [False, True], ids=["run", "token"])
async def test_what_a_stop_calls_sees_the_context_of_the_run_that_it_stops(
    canceller: Callable[[Callable[[], object]], Awaitable[None]], by_token: bool
) -> None:
    seen, token = Seen(), CancellationToken()
    run = holding(seen).run(cancellation=token).start()
    await asyncio.sleep(0)
    await canceller(token.cancel if by_token else run.cancel)
    result = await run.finished()
    assert result.is_cancelled
    assert result.receipt is not None
    assert result.receipt.confirmed
    assert seen.by == dict.fromkeys(EVERYTHING, ("the run", run.id))


@pytest.mark.scenario("K97")
@virtual
@pytest.mark.parametrize("how", ["the parent is stopped", "the parent ends"])
async def test_clean_up_of_a_child_sees_the_childs_context_when_its_parent_ends_it(how: str) -> None:
    seen = Seen()
    children: list[str] = []

    @runnable
    async def parent(ctx: RunContext) -> None:
        WHO.set("the parent")
        children.append(ctx.start(holding(seen)).id)
        await asyncio.sleep(1 if how == "the parent ends" else 1000)

    run = parent.run().start()
    await asyncio.sleep(0.5)
    if how == "the parent is stopped":
        run.cancel()
    await run.finished()
    assert seen.by == dict.fromkeys(EVERYTHING, ("the run", children[0]))


@pytest.mark.scenario("K97")
@virtual
async def test_clean_up_after_a_body_that_returned_sees_the_runs_context() -> None:
    """A child that ends later ends its parent; what the parent has left to say is still the parent's."""
    seen = Seen()

    @runnable
    async def child(ctx: RunContext) -> None:
        WHO.set("the child")
        try:
            await asyncio.sleep(1000)
        finally:
            await asyncio.sleep(1)

    @runnable
    async def parent(ctx: RunContext) -> None:
        WHO.set("the parent")
        ctx.start(child)
        await asyncio.sleep(1)
        ctx.resource("thing", "plain", lambda: seen.note("close"))
        ctx.at_end(lambda: seen.note("at end"))

    run = parent.run()
    await run
    assert seen.by == {"close": ("the parent", run.id), "at end": ("the parent", run.id)}


@pytest.mark.scenario("K97")
@virtual
async def test_clean_up_of_a_tool_sees_what_the_tool_saw() -> None:
    seen = Seen()

    @tool
    async def holds(ctx: ToolContext) -> str:
        """Holds something."""
        WHO.set("the tool")
        ctx.on_cancel(lambda: seen.note_later("callback"))
        ctx.resource("thing", "plain", lambda: seen.note("close"))
        await asyncio.sleep(1000)
        return "never"

    agent = Agent(Scripted((calls("holds"),), "done"), tools=[holds])
    run = agent.run("go").start()
    await asyncio.sleep(1)
    contextvars.Context().run(run.cancel)
    await run.finished()
    assert seen.by == {"callback": ("the tool", run.id), "close": ("the tool", run.id)}
