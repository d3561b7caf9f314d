"""A place that is away, slow, or taken over: a clear error or a bounded wait, and no word that is lost silently."""

from __future__ import annotations

import asyncio
import gc
from typing import Any

import pytest

from halter import Agent, CancelMode, CancelReason, Message, Run, RunContext, RunFailed, events, runnable, tool
from halter.errors import SessionsUnavailable, TurnLost
from halter.models.scripted import Scripted, calls
from halter.outcome import RunStatus
from halter.request import ModelRequest
from halter.sessions import Sessions
from halter.sessions.port import Taken

from .talks import answered, asked, check_agrees, speaking, stored, talker
from .troubled import GONE, Times, Troubled, away, delayed, hang, troubled

pytestmark = pytest.mark.virtual_time


class Watched(Scripted):
    """Knows how often it was asked."""

    def __init__(self, *answers: Any, pace: float = 0.01) -> None:
        super().__init__(*answers, pace=pace)
        self.asked = 0

    async def respond(self, request: ModelRequest, ctx: RunContext) -> Message:
        self.asked += 1
        return await super().respond(request, ctx)


async def failed(run: Run[Any]) -> SessionsUnavailable:
    with pytest.raises(RunFailed) as caught:
        await run
    cause = caught.value.__cause__
    assert isinstance(cause, SessionsUnavailable)
    assert GONE in str(cause)
    return cause


@pytest.mark.parametrize("step", ["take", "write", "lost"])
async def test_a_store_that_fails_at_the_beginning_fails_the_run_before_the_model_is_asked(step: str) -> None:
    troubles: dict[str, Any] = {step: Times(away, last=1)}
    chats = troubled(**troubles)
    model = Watched("yes")
    run = Agent(model).run("hello", session=chats.session("s"))
    await failed(run)
    assert model.asked == 0
    result = await Agent(model).run("hello again", session=chats.session("s"))
    assert result.text == "yes"
    assert answered(await stored(chats)) == ["yes"]


async def test_a_store_that_fails_before_a_tool_begins_keeps_it_from_beginning() -> None:
    ran: list[str] = []

    @tool
    async def work() -> str:
        ran.append("work")
        return "worked"

    chats = troubled(write=Times(away, first=2, last=2))
    run = Agent(Scripted(calls("work"), "done", pace=0.01), tools=[work]).run("hello", session=chats.session("s"))
    await failed(run)
    assert ran == []
    said = await stored(chats)
    assert [message.role for message in said] == ["user", "assistant", "tool"]
    assert run.outcome is not None
    assert said == run.outcome.messages


async def test_a_store_that_is_away_for_a_moment_loses_nothing() -> None:
    """What could not be stored goes with the next write."""

    @runnable
    async def body(ctx: RunContext) -> str:
        for n in range(6):
            ctx.say(Message.user(f"number {n}"))
            ctx.keep({"said": n})
            await asyncio.sleep(0.1)
        return "done"

    chats = troubled(write=Times(away, first=2, last=4))
    run = body.run(session=chats.session("s")).start()
    await asyncio.sleep(0.45)
    assert (await chats.get("s")).state == {"said": 4}
    assert (await run).output == "done"
    assert asked(await stored(chats)) == [f"number {n}" for n in range(6)]


async def test_a_state_that_could_not_be_stored_is_stored_with_the_end() -> None:
    @runnable
    async def body(ctx: RunContext) -> None:
        ctx.say(Message.user("hello"))
        ctx.keep({"at": 1})
        await asyncio.sleep(5)

    chats = troubled(write=away)
    run = body.run(session=chats.session("s")).start()
    await asyncio.sleep(0.1)
    run.cancel()
    await run.finished()
    assert (await chats.get("s")).state == {"at": 1}
    assert asked(await stored(chats)) == ["hello"]


# --- the last word ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("grace", "patience"), [(0.0, 1.0), (3.0, 3.0)])
async def test_a_last_write_that_hangs_is_waited_for_as_long_as_the_grace(grace: float, patience: float) -> None:
    """And for a second however short that is: a run that is to end at once does not lose its last words by it."""
    chats = troubled(close=hang)
    run = await speaking(talker().run("hello", session=chats.session("s"), grace=grace))
    since = asyncio.get_running_loop().time()
    run.cancel()
    result = await run.finished()
    took = asyncio.get_running_loop().time() - since
    assert took == pytest.approx(patience, abs=0.1)
    assert result.is_cancelled
    assert isinstance(result.error, SessionsUnavailable)
    assert result.text == "one two three "
    log = [event async for event in run.events()]
    assert [event.type for event in log].count("run.cancelled") == 1
    assert log[-1].is_terminal


async def test_what_is_stored_before_the_last_write_has_each_result_once() -> None:
    """A write is under way when the run is stopped, and goes on with what was sealed meanwhile: a process that is
    killed before the last write leaves what that would have left."""

    @tool
    async def work(seconds: float) -> float:
        await asyncio.sleep(seconds)
        return seconds

    async def look() -> None:
        seen.extend(await stored(chats))

    seen: list[Message] = []
    chats = troubled(write=Times(delayed(2), first=3), close=look)
    each = tuple(calls("work", seconds=seconds) for seconds in (1, 2, 60))
    run = Agent(Scripted(each), tools=[work]).run("go", session=chats.session("s")).start()
    await asyncio.sleep(2.5)
    run.cancel()
    result = await run.finished()
    assert [message.role for message in seen] == ["user", "assistant", "tool"]
    assert seen == list(result.messages)


async def test_a_last_write_that_fails_is_told_in_the_result() -> None:
    chats = troubled(close=Times(away, last=1))
    run = await speaking(talker().run("hello", session=chats.session("s")))
    run.cancel()
    result = await run.finished()
    assert result.is_cancelled
    assert isinstance(result.error, SessionsUnavailable)


async def test_what_a_last_write_could_not_store_is_stored_when_the_place_is_back() -> None:
    """And the session is free again: nobody else waits for a lease that this process goes on renewing."""
    chats = troubled(close=Times(away, last=2))
    run = await speaking(talker().run("hello", session=chats.session("s")))
    run.cancel()
    await run.finished()
    after = await talker("no", "yes").run("next", session=chats.session("s"), on_busy="enqueue", timeout=20)
    assert [message.text for message in after.messages] == ["hello", "one two three ", "next", "yes"]
    await check_agrees(chats, run)


async def test_a_completed_run_stays_completed_when_its_end_cannot_be_stored() -> None:
    """Its answer is stored before: that is when it completes."""
    chats = troubled(close=Times(away, last=1))
    result = await talker("yes").run("hello", session=chats.session("s"))
    assert result.is_completed
    assert result.error is None
    assert answered(await stored(chats)) == ["yes"]


async def test_a_run_does_not_complete_before_its_answer_is_stored() -> None:
    chats = troubled(write=Times(away, first=2))
    run = talker("yes").run("hello", session=chats.session("s"))
    await failed(run)
    assert run.status is RunStatus.FAILED
    assert answered(await stored(chats)) == ["yes"]


# --- slow ---------------------------------------------------------------------------------------------------


async def test_a_slow_store_does_not_slow_the_words_down() -> None:
    chats = troubled(write=Times(delayed(5), first=2))

    @runnable
    async def body(ctx: RunContext) -> None:
        ctx.say(Message.user("hello"))
        await ctx.committed()
        ctx.say(Message.user("more"))
        for word in ("one ", "two ", "three "):
            ctx.text(word)
            await asyncio.sleep(0.1)
        ctx.close_reply()

    run = body.run(session=chats.session("s"))
    loop = asyncio.get_running_loop()
    since = loop.time()
    came: list[float] = []
    async for event in run.events():
        if isinstance(event, events.TextDelta):
            came.append(loop.time() - since)
    assert came == pytest.approx([0.0, 0.1, 0.2], abs=0.01)
    assert loop.time() - since >= 5
    await run


async def test_a_stop_does_not_wait_for_a_slow_store() -> None:
    """The model's stream is cut at once; only the end waits until it is stored."""
    chats = troubled(pace=0.2)
    run = await speaking(talker(pace=0.05).run("hello", session=chats.session("s")))
    said = run.text
    run.cancel()
    assert run.is_cancelling
    result = await run.finished()
    assert result.text == said
    await check_agrees(chats, run)


# --- lost ---------------------------------------------------------------------------------------------------


async def stolen(chats: Sessions, store: Troubled) -> str:
    """Somebody else takes the turn over, as after a lease that was not renewed."""
    kept = store.inner._sessions["s"]
    assert kept.turn is not None
    kept.turn.until = 0.0
    kept.turn.owner = "nobody"
    from_there = await talker("mine now").run("other", session=chats.session("s")).finished()
    assert from_there.is_completed
    return from_there.run_id


async def test_a_run_that_has_lost_its_turn_is_stopped_and_stores_nothing_more() -> None:
    store = Troubled()
    chats = Sessions(store)  # pyright: ignore[reportArgumentType]
    agent = Agent(Scripted("one two", "three four", pace=0.1), max_turns=5)
    run = await speaking(agent.run("hello", session=chats.session("s")), 1)
    run.send("and more")
    other = await stolen(chats, store)
    result = await run.finished()
    assert result.is_cancelled
    assert result.cancellation is not None
    assert result.cancellation.reason is CancelReason.OWNER_LOST
    assert isinstance(result.error, TurnLost)
    said = await stored(chats)
    assert [message.text for message in said if message.parts] == ["hello", "other", "mine now"]
    record = await chats.run(run.id)
    assert record is not None
    assert record.cancellation is not None
    assert record.cancellation.reason is CancelReason.OWNER_LOST
    assert {each.run_id for each in await chats.runs(session="s")} == {run.id, other}


async def test_a_run_that_has_lost_its_turn_leaves_that_of_the_next_alone() -> None:
    """Whatever way it ends."""
    for mode in CancelMode:
        store = Troubled()
        chats = Sessions(store)  # pyright: ignore[reportArgumentType]
        run = await speaking(talker().run("hello", session=chats.session("s"), keep="rollback"))
        await stolen(chats, store)
        before = await stored(chats)
        run.cancel(mode=mode)
        await run.finished()
        assert await stored(chats) == before
        assert (await chats.get("s")).holder is None


async def test_waiting_for_a_store_that_hangs_can_be_stopped() -> None:
    """Its stop takes no longer than its grace, however long the place hangs."""
    chats = troubled(take=hang)
    run = talker().run("hello", session=chats.session("s"), grace=2).start()
    await asyncio.sleep(0.5)
    since = asyncio.get_running_loop().time()
    run.cancel()
    assert (await run.finished()).is_cancelled
    assert asyncio.get_running_loop().time() - since <= 2.1


async def test_a_place_that_fails_what_nobody_waits_for_any_more_is_no_error_of_asyncios() -> None:
    """The loop would report it as an exception that nobody has looked at, whenever the task is collected."""
    reported: list[Any] = []
    asyncio.get_running_loop().set_exception_handler(lambda loop, context: reported.append(context["message"]))

    async def fail_later() -> None:
        await asyncio.sleep(0.5)
        await away()

    chats = troubled(take=fail_later, delete=fail_later)
    run = talker().run("hello", session=chats.session("s")).start()
    deleting = asyncio.ensure_future(chats.delete("s"))
    await asyncio.sleep(0.1)
    run.cancel()
    deleting.cancel()
    assert (await run.finished()).is_cancelled
    del deleting
    await asyncio.sleep(1)
    gc.collect()
    assert reported == []


async def test_what_is_taken_after_the_run_was_stopped_is_given_back() -> None:
    """History and all: the turn was never begun."""
    store = Troubled(take=Times(delayed(3), last=2))
    chats = Sessions(store)  # pyright: ignore[reportArgumentType]
    before = (Message.user("before"), Message.assistant("Yes."))
    await chats.create("s", messages=before)
    run = talker().run("hello", session=chats.session("s"), grace=1).start()
    await asyncio.sleep(0.5)
    run.cancel()
    await run.finished()
    await asyncio.sleep(5)
    assert await stored(chats) == before
    assert (await chats.get("s")).holder is None
    assert isinstance(await store.inner.take(_record(), lease_for=1), Taken)


def _record() -> Any:
    from halter.sessions.records import RunRecord

    return RunRecord(run_id="next", session_id="s", owner="me/1")
