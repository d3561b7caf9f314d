"""Back-pressure and memory: who is read slows a run down, who is not cannot; and nothing grows without bound."""

from __future__ import annotations

import asyncio
import gc
import tracemalloc
from typing import Any

import pytest

from halter import events, runnable, runtime
from halter.core.log import LAG_LIMIT, PACKED_AT_ONCE, RECENT, Log
from halter.testing import Sweep, cancel_sweep

virtual = pytest.mark.virtual_time


def reader_at(at: int, *, inside: bool = False, active: bool = True) -> Any:
    class Reader:
        pass

    reader: Any = Reader()
    reader.at, reader.inside, reader.is_active = at, inside, active
    return reader


def log_of(head: int) -> Log:
    log = Log()
    stamp: dict[str, Any] = {"run_id": "r", "parent_id": None, "root_id": "r", "at": 0.0, "agent": "a", "task": None}
    for seq in range(1, head + 1):
        log.append(events.TextDelta(seq=seq, first_seq=seq, text="x", message_id="m", **stamp))
    return log


# -- the log itself


def test_without_readers_nothing_is_too_far_ahead() -> None:
    """Whoever only waits for the end never slows a run down."""
    assert not log_of(5 * LAG_LIMIT).is_too_far_ahead()


@pytest.mark.parametrize("inside", [False, True])
def test_a_log_is_too_far_ahead_at_1024_behind_and_held_until_half_of_that(inside: bool) -> None:
    """Counted from the foremost reader."""
    log = log_of(LAG_LIMIT)
    reader, far_behind = reader_at(1, inside=inside), reader_at(0, inside=inside)
    log.add_reader(far_behind)
    log.add_reader(reader)
    assert not log.is_too_far_ahead()
    reader.at = 0
    log.add_reader(reader)
    assert log.is_too_far_ahead()
    assert log.is_held()
    reader.at = LAG_LIMIT // 2 - 1
    assert log.is_held(), "a pause that ended at once would be one for each token"
    reader.at = LAG_LIMIT // 2
    assert not log.is_held()


def test_readers_inside_and_outside_each_slow_the_run_down() -> None:
    """An eager reader outside does not free a run whose parent reads it slowly, nor the other way round."""
    log = log_of(LAG_LIMIT)
    outside, inside = reader_at(LAG_LIMIT), reader_at(0, inside=True)
    log.add_reader(outside)
    log.add_reader(inside)
    assert log.is_too_far_ahead()


def test_a_reader_that_is_not_read_or_dropped_slows_nothing() -> None:
    """The log knows its readers weakly."""
    log = log_of(2 * LAG_LIMIT)
    idle, dropped = reader_at(0, active=False), reader_at(0)
    log.add_reader(idle)
    log.add_reader(dropped)
    assert log.is_too_far_ahead()
    del dropped
    gc.collect()
    assert not log.is_held()
    assert not log.is_too_far_ahead()


def test_whoever_waits_for_the_end_lifts_it_until_he_stops_waiting() -> None:
    """Outside it lifts all; inside the tree only what readers inside hold. Lifts count."""
    log = log_of(2 * LAG_LIMIT)
    outside, inside = reader_at(0), reader_at(0, inside=True)
    log.add_reader(outside)
    log.add_reader(inside)
    hold_all, hold_again = log.lift(), log.lift()
    assert not log.is_held()
    hold_all()
    hold_all()  # twice is once
    assert not log.is_held()
    hold_again()
    assert log.is_held()
    hold_inside = log.lift(inside=True)
    assert log.is_held()
    outside.at = log.head
    assert not log.is_held()
    hold_inside()
    assert log.is_held()
    assert log.is_too_far_ahead()


def test_a_lift_that_has_ended_counts_at_once() -> None:
    """What was found while it lasted, that nothing is behind, is not believed for another 1,024 events."""
    log = log_of(2 * LAG_LIMIT)
    reader = reader_at(0)
    log.add_reader(reader)
    hold = log.lift()
    assert not log.is_too_far_ahead()
    hold()
    assert log.is_too_far_ahead()


@virtual
async def test_a_reader_that_is_dropped_wakes_the_run_that_waits_for_it_and_leaves_nothing() -> None:
    log = log_of(2 * LAG_LIMIT)
    reader = reader_at(0)
    log.add_reader(reader)
    paused = asyncio.ensure_future(log.resumed.wait_until(lambda: not log.is_held()))
    await asyncio.sleep(0)
    del reader
    gc.collect()
    async with asyncio.timeout(5):
        await paused
    assert not log._readers


@pytest.mark.scenario("I81")
def test_the_newest_events_are_kept_as_they_came_and_the_rest_is_packed() -> None:
    """100,000 tokens are about 4,096 events and their text."""
    log = log_of(100_000)
    assert RECENT <= len(log.window.events) < RECENT + PACKED_AT_ONCE
    assert log.window.base + len(log.window.events) == 100_001
    assert len(log._archive) < 100
    assert sum(len(entry._text) for entry in log._archive) + len(log.window.events) == 100_000  # pyright: ignore


# -- with runs


@runnable
async def flood(ctx: Any, words: int) -> str:
    for number in range(words):
        ctx.text("word ")
        await ctx.drain()
        if number % 1_000 == 0:
            await asyncio.sleep(0)
    return "done"


@pytest.mark.scenario("I81")
@virtual
async def test_a_reader_that_stops_reading_pauses_the_run_about_1024_events_on() -> None:
    """However long that takes; reading on lets it go on; nothing is lost."""
    handle = flood.run(10_000)
    reader = handle.events()
    for _ in range(10):
        await anext(reader)
    await asyncio.sleep(1_000)
    log = handle._execution.log
    assert not handle.is_done
    assert LAG_LIMIT <= log.head - 10 <= LAG_LIMIT + 256  # the reader has been handed a batch of 128
    where = log.head
    await asyncio.sleep(1_000)
    assert log.head == where
    texts = [event.text async for event in reader if isinstance(event, events.TextDelta)]
    assert len(texts) + 9 == 10_000
    assert handle.is_completed


@pytest.mark.scenario("I81")
@pytest.mark.parametrize("lift", ["finished", "wait", "detach", "cancel", "aclose", "drop", "close"])
@virtual
async def test_a_paused_run_goes_on_when_somebody_waits_for_its_end_or_stops_it(lift: str) -> None:
    """Each of the ways that make a stopped reader irrelevant."""
    handle = flood.run(10_000)
    reader: Any = handle.events()
    await anext(reader)
    await asyncio.sleep(10)
    assert not handle.is_done
    match lift:
        case "finished":
            await handle.finished()
        case "wait":
            await handle.wait()
        case "detach":
            handle.detach()
        case "cancel":
            handle.cancel()
        case "aclose":
            await handle.aclose()
        case "drop":
            del reader
            gc.collect()
        case _:
            reader.close()
    await asyncio.sleep(1)
    assert handle.is_done
    assert handle.is_cancelled == (lift in ("cancel", "aclose"))


@pytest.mark.scenario("I81")
@virtual
async def test_a_wait_that_was_cancelled_holds_the_run_back_again() -> None:
    """The lift ends with whoever waited."""
    handle = flood.run(1_000_000)
    reader = handle.events()
    await anext(reader)
    await asyncio.sleep(10)
    task = asyncio.create_task(handle.finished())
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    task.cancel()
    await asyncio.wait([task])
    await asyncio.sleep(1)
    where = handle._execution.log.head
    assert where < 500_000
    await asyncio.sleep(10)
    assert handle._execution.log.head == where
    await handle.aclose()


@pytest.mark.scenario("I81")
@virtual
async def test_100_000_chunks_under_one_token_are_a_bounded_number_of_registrations() -> None:
    """The same number of listeners, readers and wakers at each chunk."""
    from halter import CancellationToken

    token, counts = CancellationToken(), set()

    @runnable
    async def body(ctx: Any) -> None:
        for number in range(100_000):
            ctx.text("x")
            ctx.token.raise_if_cancelled()
            await ctx.drain()
            if number % 500 == 0:
                await asyncio.sleep(0)
                log = ctx._execution.log
                counts.add(
                    (len(token._listeners), len(ctx.token._listeners), len(log._readers), len(log.resumed.waiting))
                )

    async for _ in body.run(cancellation=token):
        pass
    assert counts == {(1, 0, 1, 0)}
    assert not token._listeners


@pytest.mark.scenario("I81")
@pytest.mark.timeout(120)
def test_100_000_tokens_take_little_more_memory_than_their_text_and_the_newest_events() -> None:
    """Below 200 bytes a token in all, and most of that for the newest 4,096."""

    async def main() -> int:
        handle = flood.run(100_000).start()
        before = tracemalloc.get_traced_memory()[0]
        await handle.finished()
        gc.collect()
        return tracemalloc.get_traced_memory()[0] - before

    tracemalloc.start()
    try:
        used = asyncio.run(main())
    finally:
        tracemalloc.stop()
    assert used < 8_000_000, f"{used:,} bytes"


def test_a_stop_wakes_a_paused_run_at_every_step() -> None:
    """`ctx.drain` held back by a reader that does not read, swept."""

    async def scenario(sweep: Sweep) -> None:
        handle = burst.run()
        reader = handle.events()
        sweep.cancel = handle.cancel
        await anext(reader)
        await asyncio.sleep(1)
        await reader.aclose()
        await handle.finished()

    assert cancel_sweep(scenario) > 3


@runnable
async def burst(ctx: Any) -> None:
    for _ in range(LAG_LIMIT + 200):
        ctx.text("x")
    await ctx.drain()
    await asyncio.sleep(0)


@virtual
async def test_a_log_that_has_ended_never_grows() -> None:
    """Whatever still has the context: emitting is dropped, on the loop."""
    contexts = []

    @runnable
    async def body(ctx: Any) -> None:
        contexts.append(ctx)

    handle = body.run()
    await handle
    head = handle._execution.log.head
    contexts[0].emit("late")
    contexts[0].text("late")
    await asyncio.sleep(1)
    assert handle._execution.log.head == head
    assert not runtime().runs()
