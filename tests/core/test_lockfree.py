"""Wakers: no wake-up is lost, none is left behind."""

from __future__ import annotations

import asyncio
import threading
import time

import pytest

from halter.core.lockfree import TaskWaker, ThreadWaker, Wakers, forbid_blocking, snapshot
from halter.errors import BlockingCallError
from halter.testing import run


def test_a_waiter_that_comes_after_the_change_does_not_wait() -> None:
    """It registers, then looks again: the state was changed before the wake-up."""

    async def main() -> None:
        wakers, state = Wakers(), [True]
        await wakers.wait_until(lambda: state[0])
        assert not wakers.waiting

    run(main)


def test_a_wake_up_wakes_every_waiter_once_and_takes_them_off() -> None:
    """A burst of wake-ups is one."""

    async def main() -> None:
        wakers, ready = Wakers(), [False]
        looked = [0]

        def look() -> bool:
            looked[0] += 1
            return ready[0]

        tasks = [asyncio.ensure_future(wakers.wait_until(look)) for _ in range(3)]
        await asyncio.sleep(0)
        assert looked == [6]  # before and after it registered
        ready[0] = True
        for _ in range(5):
            wakers.wake()
        assert not wakers.waiting
        await asyncio.gather(*tasks)
        assert looked == [9]

    run(main)


def test_a_cancelled_wait_leaves_nothing_behind() -> None:
    """Its waker is taken off the list."""

    async def main() -> None:
        wakers = Wakers()
        task = asyncio.ensure_future(wakers.wait_until(lambda: False))
        await asyncio.sleep(0)
        assert wakers.waiting
        task.cancel()
        await asyncio.wait([task])
        assert not wakers.waiting

    run(main)


def test_a_waiter_that_is_woken_too_early_waits_on() -> None:
    """It looks itself; a wake-up is a hint."""

    async def main() -> None:
        wakers, ready = Wakers(), [False]
        task = asyncio.ensure_future(wakers.wait_until(lambda: ready[0]))
        await asyncio.sleep(1)
        wakers.wake()
        await asyncio.sleep(1)
        assert not task.done()
        assert wakers.waiting
        ready[0] = True
        wakers.wake()
        await task

    run(main)


def test_a_thread_waits_no_longer_than_it_was_told() -> None:
    """`block_until` returns False when the time is over first, True at once when it is ready."""
    wakers = Wakers()
    assert wakers.block_until(lambda: True, 0) is True
    assert wakers.block_until(lambda: False, 0.01) is False
    assert not wakers.waiting


def test_threads_and_tasks_never_lose_a_wake_up() -> None:
    """1,000 changes from another thread, each waited for by a thread and by a task."""
    wakers, count = Wakers(), [0]
    turns = 1_000
    seen: list[int] = []

    def waiter() -> None:
        for turn in range(1, turns + 1):
            assert wakers.block_until(lambda turn=turn: count[0] >= turn, 5)
        seen.append(count[0])

    def change() -> None:
        for _ in range(turns):
            count[0] += 1
            wakers.wake(threadsafe=True)

    async def main() -> None:
        thread = threading.Thread(target=change)
        thread.start()
        for turn in range(1, turns + 1):
            async with asyncio.timeout(5):
                await wakers.wait_until(lambda turn=turn: count[0] >= turn)
        thread.join()

    blocked = threading.Thread(target=waiter)
    blocked.start()
    asyncio.run(main())
    blocked.join(5)
    assert seen == [turns]
    assert not wakers.waiting


def test_waking_a_task_whose_loop_is_closed_does_nothing() -> None:
    """Nobody waits there any more."""
    kept: list[TaskWaker] = []

    async def main() -> None:
        kept.append(TaskWaker())

    asyncio.run(main())
    kept[0].wake(threadsafe=True)
    thread = ThreadWaker()
    thread.wake(threadsafe=True)
    thread.wake(threadsafe=True)  # twice is once
    assert thread.wait(0)


def test_a_blocking_form_in_a_running_loop_raises_and_names_the_other() -> None:
    """The message says `await`, and mentions notebooks."""

    async def main() -> None:
        with pytest.raises(BlockingCallError, match=r"notebook.*`await run`"):
            forbid_blocking("await run")

    run(main)
    forbid_blocking("await run")


def test_a_snapshot_of_a_table_that_threads_change_is_whole() -> None:
    """`list(values())` may raise while another thread inserts; the snapshot looks again."""
    table: dict[object, int] = {n: n for n in range(100)}
    until = time.monotonic() + 0.05

    def churn() -> None:
        n = 0
        while time.monotonic() < until:
            n += 1
            table[f"new {n % 50}"] = n
            table.pop(f"new {(n - 25) % 50}", None)

    thread = threading.Thread(target=churn)
    thread.start()
    while thread.is_alive():
        assert set(range(100)) <= set(snapshot(table))
