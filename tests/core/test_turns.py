"""`after_turn`: the turn ends with all of its text, and nothing new begins; a stop only ever becomes stronger."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from halter import Agent, CancelMode, CancelReason, RunStatus, events, runnable
from halter.models.scripted import Scripted

virtual = pytest.mark.virtual_time


def talker() -> Agent:
    """Three words in each of two turns, a second for each word."""
    return Agent(Scripted("one two three", "four five six", pace=1))


@pytest.mark.scenario("B25")
@virtual
async def test_after_turn_lets_the_turn_end_and_begins_no_other() -> None:
    """The run is cancelled with the turn's full text, though more had been sent; what was sent is kept."""
    handle = talker().run("hi")
    handle.start()
    assert handle.send("go on")
    await asyncio.sleep(1.5)
    assert handle.cancel("after this", mode=CancelMode.AFTER_TURN) is True
    assert handle.is_cancelling
    result = await handle.finished()
    assert asyncio.get_running_loop().time() == 3
    assert (result.status, result.text) == (RunStatus.CANCELLED, "one two three")
    assert result.cancellation is not None
    assert (result.cancellation.mode, result.cancellation.message) == (CancelMode.AFTER_TURN, "after this")
    assert [message.text for message in result.messages] == ["hi", "one two three", "go on", ""]
    assert [message.interrupted for message in result.messages] == [False, False, False, True]
    log = [event async for event in handle.events()]
    assert [event.type for event in log].count("model.requested") == 1
    cancelling = next(place for place, event in enumerate(log) if isinstance(event, events.Cancelling))
    assert [event.type for event in log[cancelling:]] == [
        "run.cancelling", "text.delta", "text.delta", "message.finished", "usage", "step.finished", "run.cancelled",
    ]  # fmt: skip
    assert log[-2].interrupted is False  # pyright: ignore


@pytest.mark.scenario("B25")
@virtual
async def test_after_turn_shows_all_of_the_turn_to_a_reader() -> None:
    """Nothing is skipped: the run has not been cut."""
    handle = talker().run("hi")
    handle.send("go on")
    texts = []
    async for text in handle.text_stream():
        texts.append(text)
        if len(texts) == 1:
            handle.cancel(mode=CancelMode.AFTER_TURN)
    assert "".join(texts) == "one two three"
    assert handle.is_cancelled


@pytest.mark.scenario("B25")
@virtual
async def test_after_turn_in_the_natural_last_turn_is_without_effect() -> None:
    """The run has completed; no cancellation, no receipt; the log has the request all the same."""
    handle = talker().run("hi").start()
    await asyncio.sleep(1.5)
    assert handle.cancel(mode=CancelMode.AFTER_TURN) is True
    result = await handle
    assert (result.status, result.output) == (RunStatus.COMPLETED, "one two three")
    assert (result.cancellation, result.receipt) == (None, None)
    types = [event.type async for event in handle.events()]
    assert "run.cancelling" in types
    assert types[-1] == "run.completed"


@pytest.mark.scenario("B25")
@virtual
async def test_after_turn_in_the_second_turn_lets_the_second_turn_end() -> None:
    """It counts from when it is asked."""
    handle = talker().run("hi").start()
    handle.send("go on")
    await asyncio.sleep(1)
    asyncio.get_running_loop().call_at(4.5, lambda: handle.send("and on"))
    asyncio.get_running_loop().call_at(5.0, lambda: handle.cancel(mode=CancelMode.AFTER_TURN))
    result = await handle.finished()
    assert asyncio.get_running_loop().time() == 6
    assert (result.status, result.text) == (RunStatus.CANCELLED, "four five six")


@pytest.mark.scenario("B25")
@virtual
async def test_a_stop_escalates_and_never_de_escalates() -> None:
    """after_turn → immediate → kill; the first reason, actor and message stay; each step is announced once."""
    held = asyncio.get_running_loop().create_future()

    @runnable
    async def body(ctx: Any) -> None:
        ctx.begin_step()
        try:
            await asyncio.sleep(100)
        finally:
            await asyncio.shield(held)

    handle = body.run(grace=60).start()
    await asyncio.sleep(1)
    assert handle.cancel("first", mode=CancelMode.AFTER_TURN, actor="alice", reason=CancelReason.POLICY)
    await asyncio.sleep(1)
    assert handle.status is RunStatus.CANCELLING
    assert handle.cancel("second", mode=CancelMode.IMMEDIATE, actor="bob")
    await asyncio.sleep(1)
    assert handle.cancel("weaker", mode=CancelMode.DRAIN_TOOLS)
    assert handle.cancel("weakest", mode=CancelMode.AFTER_TURN)
    await asyncio.sleep(1)
    assert not handle.is_done
    assert handle.cancel("third", mode=CancelMode.KILL)
    result = await handle.finished()
    assert asyncio.get_running_loop().time() == 4
    held.set_result(None)
    assert result.cancellation is not None
    assert (result.cancellation.message, result.cancellation.actor) == ("first", "alice")
    assert (result.cancellation.reason, result.cancellation.mode) == (CancelReason.POLICY, CancelMode.KILL)
    announced = [event async for event in handle.events() if isinstance(event, events.Cancelling)]
    assert [event.mode for event in announced] == [CancelMode.AFTER_TURN, CancelMode.IMMEDIATE, CancelMode.KILL]
    assert {(event.reason, event.actor, event.message) for event in announced} == {("policy", "alice", "first")}
    assert result.receipt is not None
    assert result.receipt.confirmed  # the kill has ended its clean-up


@pytest.mark.scenario("B25")
@virtual
async def test_after_turn_and_then_immediate_cuts_the_turn() -> None:
    """The text ends at the second request."""
    handle = talker().run("hi").start()
    await asyncio.sleep(1.5)
    handle.cancel("gently", mode=CancelMode.AFTER_TURN)
    await asyncio.sleep(1)
    handle.cancel("now")
    result = await handle.finished()
    assert asyncio.get_running_loop().time() == 2.5
    assert (result.text, result.messages[-1].interrupted) == ("one two ", True)
    assert result.cancellation is not None
    assert (result.cancellation.message, result.cancellation.mode) == ("gently", CancelMode.IMMEDIATE)


@pytest.mark.scenario("B25")
@virtual
async def test_after_turn_reaches_the_children_and_their_turns_end_too() -> None:
    """A child agent in mid-turn finishes it; its next one does not begin."""
    child = talker()

    @runnable
    async def body(ctx: Any) -> str:
        ctx.begin_step()
        inner = ctx.start(child, "hi")
        inner.send("go on")
        result = await inner.finished()
        ctx.end_step()
        ctx.before_next_step()
        return f"not reached after {result.status}"

    handle = body.run().start()
    await asyncio.sleep(1.5)
    handle.cancel(mode=CancelMode.AFTER_TURN)
    result = await handle.finished()
    assert result.is_cancelled
    assert asyncio.get_running_loop().time() == 3
    finished = [event async for event in handle.events() if isinstance(event, events.MessageFinished)]
    assert [(event.message.text, event.message.interrupted) for event in finished] == [("one two three", False)]


@pytest.mark.scenario("B25")
@virtual
async def test_a_child_started_in_the_last_turn_begins_no_second_turn() -> None:
    """It is part of the turn that may finish, and knows of the request above it."""
    child = talker()

    @runnable
    async def body(ctx: Any) -> None:
        ctx.begin_step()
        await asyncio.sleep(1)
        inner = ctx.start(child, "hi")
        inner.send("go on")
        await inner.finished()
        ctx.end_step()
        ctx.before_next_step()

    handle = body.run().start()
    await asyncio.sleep(0.5)
    handle.cancel(mode=CancelMode.AFTER_TURN)
    result = await handle.finished()
    assert result.is_cancelled
    assert asyncio.get_running_loop().time() == 4
