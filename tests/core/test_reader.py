"""Readers: each gets all, from any point, at any time; a slow one delays nobody; a stop shows at once."""

from __future__ import annotations

import asyncio
import threading
from itertools import pairwise
from typing import Any

import pytest

from halter import events, runnable
from halter.core.log import LAG_LIMIT, PACKED_AT_ONCE, RECENT
from halter.core.reader import YIELD_EVERY

virtual = pytest.mark.virtual_time
MANY = 3 * RECENT


@runnable
async def chatty(ctx: Any, words: int) -> str:
    """So many words, a structural event after each thousand, and a loop that others can use."""
    for number in range(words):
        if number % 1_000 == 0:
            ctx.emit("mark", number)
        ctx.text(f"{number} ")
        if number % 100 == 0:
            await asyncio.sleep(0.01)
    return "done"


def text_of(log: list[Any], message_id: str | None = None) -> str:
    return "".join(e.text for e in log if isinstance(e, events.TextDelta) and message_id in (None, e.message_id))


def structure_of(log: list[Any]) -> list[Any]:
    return [event for event in log if not isinstance(event, events.TextDelta)]


EXPECTED = "".join(f"{number} " for number in range(MANY))


@pytest.mark.scenario("E55")
@virtual
async def test_two_readers_at_once_get_all_and_the_same() -> None:
    """Each has its own cursor; none takes from the other."""
    handle = chatty.run(2_000)
    one, other = handle.events(), handle.events()
    both = await asyncio.gather(_all(one), _all(other))
    assert both[0] == both[1]
    assert [event.seq for event in both[0]] == list(range(1, len(both[0]) + 1))


async def _all(reader: Any) -> list[Any]:
    return [event async for event in reader]


@pytest.mark.scenario("E55")
@virtual
async def test_a_reader_that_comes_late_gets_the_same_text_and_every_structural_event() -> None:
    """Beyond 4,096 deltas neighbours are merged: the cut points fade, nothing else does."""
    handle = chatty.run(MANY)
    live = await _all(handle.events())
    late = await _all(handle.events())
    assert len(late) < len(live)
    assert text_of(live) == text_of(late) == EXPECTED
    assert structure_of(late) == structure_of(live)
    covered = [
        number
        for event in late
        for number in range(event.first_seq if isinstance(event, events.TextDelta) else event.seq, event.seq + 1)
    ]
    assert covered == list(range(1, live[-1].seq + 1))
    # The newest come one by one.
    assert all(event.first_seq == event.seq for event in late[-RECENT:] if isinstance(event, events.TextDelta))


@pytest.mark.scenario("E55")
@virtual
async def test_a_reader_may_start_after_any_event() -> None:
    """It gets exactly what came after that number: nothing twice, nothing left out."""
    handle = chatty.run(MANY)
    live = await _all(handle)
    last = live[-1].seq
    edges = {0, 1, 2, PACKED_AT_ONCE - 1, PACKED_AT_ONCE, PACKED_AT_ONCE + 1, last - RECENT, last - 1, last}
    for after in sorted(edges | set(range(0, last, 997))):
        read = await _all(handle.events(after))
        rest = live[after:]
        assert text_of(read) == text_of(rest), after
        assert structure_of(read) == structure_of(rest), after
        assert all(event.seq > after for event in read)
    assert await _all(handle.events(last)) == []


@pytest.mark.scenario("E55")
@virtual
async def test_a_reader_that_lags_while_the_log_is_folded_gets_all() -> None:
    """It is inside the newest events, then far behind them, then catches up."""
    handle = chatty.run(MANY)
    reader = handle.events()
    first = [await anext(reader) for _ in range(10)]
    await handle.finished()  # lifts back-pressure
    rest = await _all(reader)
    assert text_of(first + rest) == EXPECTED
    assert structure_of(first + rest) == structure_of(await _all(handle.events()))


@pytest.mark.scenario("E55")
@virtual
async def test_a_slow_reader_does_not_delay_another() -> None:
    """The foremost reader sets the pace: the slow one reads on, at its own."""

    @runnable
    async def draining(ctx: Any) -> None:
        for _ in range(3 * LAG_LIMIT):
            ctx.text("x")
            await ctx.drain()

    handle = draining.run()
    slow_seen = [0]

    async def slow() -> None:
        async for _ in handle.events():
            slow_seen[0] += 1
            await asyncio.sleep(1)

    slow_task = asyncio.create_task(slow())
    async for _ in handle.events():
        pass
    assert asyncio.get_running_loop().time() < 1
    assert slow_seen[0] < 3
    await slow_task
    assert slow_seen[0] == 3 * LAG_LIMIT + 3


@virtual
async def test_the_handles_reader_skips_what_was_buffered_at_the_cut_and_events_does_not() -> None:
    """A stop shows at once; who wants every event reads `events()`."""

    @runnable
    async def body(ctx: Any) -> None:
        for _ in range(500):
            ctx.text("x")
        await asyncio.sleep(100)

    handle = body.run()
    texts, others = [], []
    async for text in handle.text_stream():
        texts.append(text)
        if len(texts) == 3:
            handle.cancel()
    assert len(texts) == 3
    others = await _all(handle.events())
    assert len([event for event in others if isinstance(event, events.TextDelta)]) == 500
    again = body.run()
    seen = []
    async for event in again:
        seen.append(event.type)
        if len(seen) == 4:
            again.cancel()
    assert seen == ["run.started", *["text.delta"] * 3, "run.cancelling", "message.finished", "usage", "run.cancelled"]


@virtual
async def test_the_text_stream_raises_at_its_end_if_the_run_failed_and_ends_quietly_if_it_was_stopped() -> None:
    """All of the text comes first."""
    from halter import RunFailed

    @runnable
    async def fails(ctx: Any) -> None:
        ctx.text("some")
        await asyncio.sleep(1)
        ctx.text(" text")
        raise ValueError("a bug")

    handle, texts = fails.run(), []
    with pytest.raises(RunFailed, match="a bug"):  # noqa: PT012  # the whole loop is what must raise
        async for text in handle.text_stream():
            texts.append(text)
    assert texts == ["some", " text"]
    async for event in fails.run():
        last = event
    assert last.type == "run.failed"  # iteration itself raises nothing


@pytest.mark.scenario("E54")
@virtual
async def test_a_childs_reader_sees_the_child_and_what_is_under_it_and_nothing_else() -> None:
    """Siblings do not see each other; the root sees all, once, with parent ids; numbers increase."""

    @runnable
    async def leaf(ctx: Any, name: str) -> None:
        for _ in range(3):
            ctx.emit(name)
            await asyncio.sleep(1)

    @runnable
    async def branch(ctx: Any, name: str) -> None:
        ctx.emit(name)
        await ctx.start(leaf, f"{name} leaf")

    branches: list[Any] = []

    @runnable
    async def tree(ctx: Any) -> None:
        branches.extend(ctx.start(branch, name) for name in ("one", "two"))
        for child in branches:
            await child

    handle = tree.run()
    root_log = await _all(handle)
    assert [event.seq for event in root_log] == list(range(1, len(root_log) + 1))
    for child, name in zip(branches, ("one", "two"), strict=True):
        log = await _all(child.events())
        own = [e for e in root_log if child.id in (e.run_id, e.parent_id)]
        assert log == own
        assert {event.name for event in log if isinstance(event, events.Custom)} == {name, f"{name} leaf"}
        assert {event.agent for event in log if isinstance(event, events.Custom)} == {"branch", "leaf"}
        assert (log[0].type, log[-1].type, log[-1].run_id) == ("run.started", "run.completed", child.id)
        for after in range(root_log[-1].seq + 1):
            assert await _all(child.events(after)) == [event for event in own if event.seq > after]
    assert {event.parent_id for event in root_log if event.run_id == handle.id} == {None}


@pytest.mark.scenario("E55", "B23")
def test_blocking_readers_in_threads_get_the_same_as_tasks() -> None:
    """Each in its own thread, on a run of the background loop."""
    handle = chatty.run(3_000)
    logs: list[list[Any]] = []
    threads = [threading.Thread(target=lambda: logs.append(list(handle.events()))) for _ in range(4)]
    for thread in threads:
        thread.start()
    texts = list(handle.text_stream())
    for thread in threads:
        thread.join(5)
    assert len(logs) == 4
    assert all(log == logs[0] for log in logs)
    assert "".join(texts) == text_of(logs[0]) == "".join(f"{number} " for number in range(3_000))
    assert handle.result(5).output == "done"


@virtual
async def test_closing_a_reader_stops_nothing_and_frees_the_run() -> None:
    """`aclose()` takes it out of back-pressure."""

    @runnable
    async def draining(ctx: Any) -> str:
        for _ in range(5 * LAG_LIMIT):
            ctx.text("x")
            await ctx.drain()
        return "done"

    handle = draining.run().start()
    reader = handle.events()
    await anext(reader)
    await asyncio.sleep(10)
    assert not handle.is_done
    await reader.aclose()
    await asyncio.sleep(0.1)
    assert handle.is_completed


@virtual
async def test_a_long_log_is_read_in_pieces_between_which_others_run() -> None:
    """All of it is there already, so that nothing else in the loop over it ever waits."""
    handle = chatty.run(2_000)
    await handle
    turns: list[int] = []
    read: list[Any] = []

    async def other() -> None:
        while len(turns) < 1_000:
            turns.append(len(read))
            await asyncio.sleep(0)

    beside = asyncio.ensure_future(other())
    async for event in handle.events():
        read.append(event)
    beside.cancel()
    pauses = [second - first for first, second in pairwise(turns)]
    assert len(turns) > 10, "the loop over the events has kept all others waiting"
    assert max(pauses) <= 2 * YIELD_EVERY


@virtual
async def test_readers_that_are_thrown_away_while_they_wait_leave_nothing_behind() -> None:
    """A run that is silent for an hour would else collect one waiter for each."""

    @runnable
    async def silent(ctx: Any) -> None:
        await asyncio.sleep(3_600)

    handle = silent.run().start()
    await asyncio.sleep(0.1)
    for _ in range(3):
        reader = handle.events()
        await anext(reader)
        waits = anext(reader)  # as in a task that its loop throws away
        waits.__await__().send(None)
        waits.close()
    assert not handle._execution.log.arrived.waiting
    await handle.aclose()
