"""Tools of a run on a session that is stopped: what was asked for and never ran, and what came too late."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path
from typing import Any

import pytest

from halter import Agent, CancelMode, Run, RunContext, Usage, events, runnable
from halter.core.history import MAY_HAVE_RUN, NOT_RUN, UNFINISHED
from halter.messages import Message, ToolResult
from halter.models.scripted import Scripted, calls
from halter.outcome import CancelReason
from halter.sessions import RunRecord, Sessions
from halter.tools import tool

pytestmark = pytest.mark.real_loop


PLACES = ["memory", "sqlite"]


@pytest.fixture(params=PLACES)
def chats(request: pytest.FixtureRequest, tmp_path: Path) -> Sessions:
    return Sessions(tmp_path / "chat.db" if request.param == "sqlite" else "memory")


async def stored(chats: Sessions) -> tuple[Message, ...]:
    return await chats.history("s", full=True)


async def record_of(chats: Sessions, run_id: str) -> RunRecord:
    found = await chats.run(run_id)
    assert found is not None
    return found


def results_in(messages: tuple[Message, ...]) -> list[str]:
    return [part.content for message in messages for part in message.parts if isinstance(part, ToolResult)]


async def until_event(run: Run[Any], kind: type[events.Event]) -> Any:
    async with asyncio.timeout(10):
        async for event in run.events():
            if isinstance(event, kind):
                return event
    raise AssertionError(f"there was no {kind.__name__}")


# --- asked for, and never run -------------------------------------------------------------------------------


@pytest.mark.scenario("C36", "D41")
@pytest.mark.parametrize("mode", CancelMode)
async def test_a_question_that_a_stop_takes_back_is_no_run_in_the_stored_history(
    chats: Sessions, mode: CancelMode
) -> None:
    ran: list[str] = []

    @tool(approval="always")
    def delete(path: str) -> str:
        """Deletes a file."""
        ran.append(path)
        return "deleted"

    agent = Agent(Scripted(calls("delete", path="/tmp/x"), "All right."), tools=[delete])
    run = agent.run("Delete it.", session=chats.session("s")).start()
    await until_event(run, events.InputRequested)
    assert results_in(await stored(chats)) == [UNFINISHED]
    run.cancel(mode=mode)
    result = await run.finished()
    assert (result.is_cancelled, ran) == (True, [])
    received = [event.outcome async for event in run.events() if isinstance(event, events.InputReceived)]
    assert received == ["cancelled"]
    assert results_in(await stored(chats)) == [NOT_RUN]
    record = await record_of(chats, run.id)
    assert (record.status, record.cancellation.reason) == ("cancelled", CancelReason.USER_STOP)

    following = await agent.run("And now?", session=chats.session("s")).finished()
    assert (following.text, ran) == ("All right.", [])
    assert results_in(following.messages) == [NOT_RUN]


@pytest.mark.scenario("C36")
async def test_a_question_of_a_turn_that_is_rolled_back_leaves_nothing(chats: Sessions) -> None:
    @tool(approval="always")
    def delete(path: str) -> str:
        """Deletes a file."""
        raise AssertionError(path)

    agent = Agent(Scripted("Hello.", calls("delete", path="/tmp/x")), tools=[delete])
    await agent.run("Hi.", session=chats.session("s"))
    before = await stored(chats)
    run = agent.run("Delete it.", session=chats.session("s"), keep="rollback").start()
    await until_event(run, events.InputRequested)
    run.cancel()
    assert (await run.finished()).is_cancelled
    assert await stored(chats) == before


# --- too late -----------------------------------------------------------------------------------------------


class Slow:
    """A tool that cannot be ended, only given up: it blocks until it is told to return."""

    def __init__(self, end: Any = "the price is 5") -> None:
        self.begun, self.go_on, self.end = threading.Event(), threading.Event(), end

    def look(self) -> str:
        """Looks something up."""
        self.begun.set()
        self.go_on.wait(10)
        if isinstance(self.end, Exception):
            raise self.end
        return self.end

    @property
    def agent(self) -> Agent[str]:
        return Agent(Scripted(calls("look"), "done"), tools=[tool(self.look)])

    async def stopped(self, run: Run[Any]) -> None:
        await asyncio.to_thread(self.begun.wait, 10)
        run.cancel()
        assert (await run.finished()).is_cancelled


async def late_in(chats: Sessions, run_id: str) -> list[tuple[str, str, str]]:
    """What the record says came late, once it does."""
    async with asyncio.timeout(10):
        while not (found := (await record_of(chats, run_id)).late):  # noqa: ASYNC110
            await asyncio.sleep(0.005)
    return [(late.name, late.outcome, late.result) for late in found]


@pytest.mark.scenario("C28")
@pytest.mark.parametrize(
    ("end", "told"),
    [("the price is 5", ("look", "ok", "the price is 5")), (OSError("gone"), ("look", "error", "OSError: gone"))],
    ids=["a result", "an error"],
)
async def test_what_a_call_comes_to_after_its_run_is_on_the_runs_record(
    chats: Sessions, end: Any, told: tuple[str, str, str]
) -> None:
    slow = Slow(end)
    run = slow.agent.run("go", session=chats.session("s")).start()
    await slow.stopped(run)
    before = await record_of(chats, run.id)
    assert (before.status, before.late) == ("cancelled", ())
    said = await stored(chats)
    assert results_in(said) == [MAY_HAVE_RUN]
    slow.go_on.set()
    assert await late_in(chats, run.id) == [told]
    after = await record_of(chats, run.id)
    assert after.late[0].elapsed > 0
    assert after.receipt == before.receipt
    assert await stored(chats) == said, "what was said stays: a next turn may be under way"


async def test_without_content_the_record_says_that_something_came_and_not_what() -> None:
    chats = Sessions("memory", store_content=False)
    slow = Slow()
    run = slow.agent.run("go", session=chats.session("s")).start()
    await slow.stopped(run)
    slow.go_on.set()
    assert await late_in(chats, run.id) == [("look", "ok", "")]


async def test_a_call_of_a_child_that_is_late_is_on_the_record_of_the_run_above(chats: Sessions) -> None:
    """Also if that one goes on: once it is whole."""
    slow = Slow()

    @runnable
    async def parent(ctx: RunContext) -> str:
        child = ctx.start(slow.agent, "go")
        await slow.stopped(child)
        slow.go_on.set()
        await asyncio.sleep(0.1)
        return "without it"

    run = parent.run(session=chats.session("s")).start()
    assert (await run.finished()).output == "without it"
    assert await late_in(chats, run.id) == [("look", "ok", "the price is 5")]
    record = await record_of(chats, run.id)
    assert (record.status, record.text) == ("completed", "without it")


async def test_the_record_has_what_the_run_has_cost(chats: Sessions) -> None:
    run = Agent("scripted:Good morning.").run("Hi.", session=chats.session("s")).start()
    await run.finished()
    record = await record_of(chats, run.id)
    assert (record.cost, record.usage) == (0.0, Usage(input=1, output=2))
