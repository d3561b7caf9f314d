"""Virtual time: waiting costs nothing, what would hang raises, a seed is a schedule."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import threading
import time
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest

from halter.testing import (
    DeadlockError,
    LivelockError,
    RealTimeError,
    VirtualTimeLoop,
    VirtualTimeoutError,
    run,
)

from ..bounds import assert_within


def now() -> float:
    return asyncio.get_running_loop().time()


def here(function: Callable[..., Any], line: int) -> str:
    """`file:line` of a line of a function, counted from its `def`."""
    code = function.__code__
    return f"{code.co_filename}:{code.co_firstlineno + line}"


# -- time


def test_an_hour_of_sleep_takes_no_time_and_is_an_hour_on_the_clock() -> None:
    async def main() -> float:
        await asyncio.sleep(3600)
        return now()

    started = time.perf_counter()
    assert run(main) == 3600.0
    assert_within(0.25, time.perf_counter() - started)


def test_time_starts_at_zero_or_where_told() -> None:
    async def main() -> float:
        return now()

    assert run(main) == 0.0
    assert run(main, start=50.5) == 50.5


def test_time_stands_still_while_callbacks_are_ready() -> None:
    async def main() -> float:
        for _ in range(1000):
            await asyncio.sleep(0)
        return now()

    assert run(main) == 0.0


def test_sleepers_wake_in_the_order_of_their_timers_at_exactly_their_time() -> None:
    woken: list[tuple[float, float]] = []

    async def sleeper(delay: float) -> None:
        await asyncio.sleep(delay)
        woken.append((delay, now()))

    async def main() -> None:
        await asyncio.gather(*(sleeper(delay) for delay in (30, 0.1, 86_400 * 400, 2, 1e-12)))

    run(main)
    assert woken == [(delay, delay) for delay in (1e-12, 0.1, 2, 30, 86_400 * 400)]


def test_timers_fire_at_times_as_large_as_the_epoch() -> None:
    async def main() -> float:
        for _ in range(100):
            await asyncio.sleep(1e-9)
        await asyncio.sleep(0.25)
        return now()

    assert run(main, start=1.8e12) == pytest.approx(1.8e12 + 0.25, abs=0.1)


def test_call_later_and_call_at_get_their_time_and_a_cancelled_timer_moves_no_clock() -> None:
    calls: list[tuple[str, float]] = []

    async def main() -> None:
        loop = asyncio.get_running_loop()
        loop.call_later(5, lambda: calls.append(("later", now())))
        loop.call_at(2, lambda: calls.append(("at", now())))
        loop.call_later(7, lambda: calls.append(("never", now()))).cancel()
        await asyncio.sleep(6)

    run(main)
    assert calls == [("at", 2.0), ("later", 5.0)]


# -- asyncio's own


def test_timeouts_of_asyncio_end_at_their_virtual_time() -> None:
    async def main() -> list[float]:
        ends: list[float] = []
        for wait in (lambda: asyncio.timeout(10), lambda: asyncio.timeout_at(25)):
            with pytest.raises(TimeoutError):
                async with wait():
                    await asyncio.Event().wait()
            ends.append(now())
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(asyncio.sleep(1000), 5)
        return [*ends, now()]

    assert run(main) == [10.0, 25.0, 30.0]


def test_a_task_group_cancels_the_siblings_of_a_failed_task() -> None:
    ends: list[str] = []

    async def patient() -> None:
        try:
            await asyncio.sleep(1000)
        finally:
            ends.append(f"cancelled at {now():g}")

    async def failing() -> None:
        await asyncio.sleep(3)
        raise ValueError("no")

    async def main() -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(patient())
            group.create_task(failing())

    with pytest.raises(ExceptionGroup) as caught:
        run(main)
    assert caught.group_contains(ValueError, match="no")
    assert ends == ["cancelled at 3"]


def test_a_bounded_queue_paces_its_producer() -> None:
    async def main() -> list[tuple[int, float]]:
        queue: asyncio.Queue[int] = asyncio.Queue(maxsize=1)
        got: list[tuple[int, float]] = []

        async def consume() -> None:
            for _ in range(3):
                await asyncio.sleep(10)
                got.append((await queue.get(), now()))

        consumer = asyncio.create_task(consume())
        for item in range(3):
            await queue.put(item)
        await consumer
        return got

    assert run(main) == [(0, 10.0), (1, 20.0), (2, 30.0)]


def test_call_soon_threadsafe_from_the_loop_is_one_plain_step() -> None:
    async def main() -> int:
        loop = asyncio.get_running_loop()
        assert isinstance(loop, VirtualTimeLoop)
        done = asyncio.Event()
        before = loop.steps
        loop.call_soon_threadsafe(done.set)
        await done.wait()
        return loop.steps - before

    assert run(main) == 2  # the callback, and this task's wake-up


@pytest.mark.skipif(not hasattr(asyncio, "eager_task_factory"), reason="new in Python 3.12")
def test_an_eager_task_factory_works_as_on_a_real_loop() -> None:
    async def main() -> tuple[bool, float]:
        loop = asyncio.get_running_loop()
        loop.set_task_factory(getattr(asyncio, "eager_task_factory"))  # noqa: B009  # unknown to 3.11's types
        at_once = asyncio.create_task(asyncio.sleep(0, "x")), asyncio.create_task(instant())
        async with asyncio.timeout(5):
            await asyncio.gather(*at_once, asyncio.sleep(3))
        return at_once[1].done(), now()

    async def instant() -> None: ...

    assert run(main, seed=1) == (True, 3.0)


def test_anyio_runs_on_it() -> None:
    anyio = pytest.importorskip("anyio")

    async def main() -> tuple[bool, float]:
        with anyio.move_on_after(7) as scope:
            async with anyio.create_task_group() as group:
                group.start_soon(anyio.sleep, 3)
                group.start_soon(anyio.sleep_forever)
        return scope.cancelled_caught, now()

    assert run(main) == (True, 7.0)


# -- run()


def test_run_takes_a_function_or_a_coroutine_and_returns_its_result() -> None:
    async def main(value: int = 1) -> int:
        return value

    assert run(main) == 1
    assert run(main(2)) == 2
    assert run(lambda: main(3)) == 3


def test_run_raises_what_main_raises() -> None:
    async def main() -> None:
        raise KeyError("x")

    with pytest.raises(KeyError, match="x"):
        run(main)


def test_run_cancels_leftovers_closes_generators_and_the_loop() -> None:
    ends: list[str] = []

    async def background() -> None:
        try:
            await asyncio.sleep(1e9)
        finally:
            await asyncio.sleep(5)
            ends.append("background")

    async def numbers() -> AsyncIterator[int]:
        try:
            yield 1
            yield 2
        finally:
            ends.append("generator")

    kept = numbers()

    async def main() -> asyncio.AbstractEventLoop:
        asyncio.get_running_loop().create_task(background())
        await anext(kept)
        return asyncio.get_running_loop()

    loop = run(main)
    assert ends == ["background", "generator"]
    assert loop.is_closed()


def test_a_deadline_passed_in_virtual_time_raises_and_names_who_waits() -> None:
    async def main() -> None:
        await asyncio.sleep(100)

    with pytest.raises(VirtualTimeoutError) as caught:
        run(main, timeout=99.5)
    assert isinstance(caught.value, TimeoutError)
    assert "past the deadline of 99.5 s: nothing happens before 100 s" in str(caught.value)
    assert here(main, 1) in str(caught.value)
    run(main, timeout=100)


def test_main_cannot_catch_the_deadline() -> None:
    async def main() -> None:
        while True:
            with contextlib.suppress(Exception):
                await asyncio.sleep(1)

    with pytest.raises(VirtualTimeoutError):
        run(main, timeout=10)


def test_run_inside_a_running_loop_says_so() -> None:
    async def inner() -> None: ...

    async def main() -> None:
        with pytest.raises(TypeError, match="await it there"):
            run(inner)

    asyncio.run(main())


def test_debug_mode_reaches_the_loop() -> None:
    async def main() -> bool:
        await asyncio.sleep(100)
        return asyncio.get_running_loop().get_debug()

    assert run(main, debug=True) is True
    assert run(main, debug=False) is False


# -- what would hang


async def wait_for_ever() -> None:
    await asyncio.Event().wait()


def test_a_deadlock_names_each_task_and_the_line_where_it_waits() -> None:
    async def read(queue: asyncio.Queue[int]) -> None:
        await queue.get()

    async def main() -> None:
        reader = asyncio.create_task(read(asyncio.Queue()), name="the reader")
        await asyncio.sleep(3)
        await wait_for_ever()
        await reader

    with pytest.raises(DeadlockError) as caught:
        run(main)
    text = str(caught.value)
    assert text.startswith("deadlock at 3 s: nothing is ready, no timer is set; 2 unfinished tasks")
    assert f"task 'the reader': {here(read, 1)} in" in text
    assert "inside asyncio's Queue.get" in text
    assert f"{here(wait_for_ever, 1)} in wait_for_ever, inside asyncio's Event.wait" in text


def test_a_deadlock_inside_an_async_generator_names_the_generators_line() -> None:
    async def stuck() -> AsyncIterator[int]:
        yield 1
        await wait_for_ever()

    async def main() -> None:
        async for _ in stuck():
            pass

    with pytest.raises(DeadlockError) as caught:
        run(main)
    assert here(wait_for_ever, 1) in str(caught.value)


def test_a_timer_at_infinity_is_no_timer() -> None:
    async def main() -> None:
        await asyncio.sleep(float("inf"))

    with pytest.raises(DeadlockError):
        run(main)


def test_tasks_are_cleaned_up_after_a_deadlock() -> None:
    ends: list[str] = []

    async def main() -> None:
        try:
            await wait_for_ever()
        finally:
            await asyncio.sleep(10)
            ends.append("cleaned up")

    with pytest.raises(DeadlockError):
        run(main)
    assert ends == ["cleaned up"]


def test_a_second_deadlock_while_cleaning_up_is_noted_and_the_first_is_raised() -> None:
    async def stubborn() -> None:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            await asyncio.Event().wait()

    async def main() -> None:
        await stubborn()

    with pytest.raises(DeadlockError) as caught:
        run(main)
    assert here(stubborn, 2) in str(caught.value)
    assert [here(stubborn, 4) in note for note in caught.value.__notes__] == [True]


def test_a_busy_loop_ends_as_a_livelock_that_names_it() -> None:
    async def busy() -> None:
        while True:  # noqa: ASYNC110  # the very thing under test
            await asyncio.sleep(0)

    async def main() -> None:
        busy_one = asyncio.create_task(busy(), name="busy one")
        await busy_one

    with pytest.raises(LivelockError) as caught:
        run(main, max_steps=5_000)
    assert "after 5,000 callbacks, at 0 s" in str(caught.value)
    assert f"1000 × task 'busy one': {here(busy, 2)}" in str(caught.value)


def test_a_livelock_of_plain_callbacks_names_the_function() -> None:
    async def main() -> None:
        loop = asyncio.get_running_loop()

        def again() -> None:
            loop.call_soon(again)

        again()
        await wait_for_ever()

    with pytest.raises(LivelockError, match=r"× callback .*main\.<locals>\.again"):
        run(main, max_steps=100)


# -- sockets and threads


def test_waiting_for_a_socket_raises() -> None:
    async def main() -> None:
        reading, writing = socket.socketpair()
        with reading, writing:
            reading.setblocking(False)
            try:
                await asyncio.wait_for(asyncio.get_running_loop().sock_recv(reading, 1), 60)
            finally:
                assert now() == 0.0

    with pytest.raises(RealTimeError, match="time must be real: 1 descriptor"):
        run(main)


def test_a_socket_with_bytes_to_read_is_read() -> None:
    async def main() -> bytes:
        reading, writing = socket.socketpair()
        with reading, writing:
            reading.setblocking(False)
            asyncio.get_running_loop().call_later(9, writing.send, b"x")
            await asyncio.sleep(10)
            return await asyncio.get_running_loop().sock_recv(reading, 1)

    assert run(main) == b"x"


def test_an_executor_call_raises_without_real_threads() -> None:
    async def main() -> None:
        await asyncio.to_thread(int)

    with pytest.raises(RealTimeError, match="real_threads=True"):
        run(main)


def test_with_real_threads_time_stands_still_while_an_executor_call_runs() -> None:
    async def main() -> float:
        async with asyncio.timeout(0.01):
            await asyncio.to_thread(time.sleep, 0.05)
        await asyncio.sleep(3600)
        return now()

    assert run(main, real_threads=True) == 3600.0
    assert run(main, real_threads=True, seed=1) == 3600.0


def test_a_thread_wakes_a_loop_with_real_threads() -> None:
    async def main() -> float:
        loop = asyncio.get_running_loop()
        done = asyncio.Event()
        threading.Timer(0.03, lambda: loop.call_soon_threadsafe(done.set)).start()
        await done.wait()
        return now()

    assert run(main, real_threads=True) == 0.0


def test_while_the_clock_is_held_a_timer_does_not_fire() -> None:
    async def main() -> float:
        loop = asyncio.get_running_loop()
        assert isinstance(loop, VirtualTimeLoop)
        done = asyncio.Event()
        threading.Timer(0.03, lambda: loop.call_soon_threadsafe(done.set)).start()
        with loop.clock_held():
            await asyncio.wait_for(done.wait(), 0.001)
        return now()

    assert run(main, real_threads=True) == 0.0


def test_with_real_threads_and_none_that_wakes_it_the_loop_gives_up_after_its_patience() -> None:
    loop = VirtualTimeLoop(real_threads=True, patience=0.02)
    task = loop.create_task(wait_for_ever())
    with pytest.raises(DeadlockError, match=r"no thread woke the loop within 0\.02 real seconds"):
        loop.run_until_complete(task)
    task.cancel()
    loop.settle()
    loop.close()


# -- steps


def test_at_step_calls_just_before_that_callback() -> None:
    seen: list[str] = []
    loop = VirtualTimeLoop()
    for index in range(4):
        loop.call_soon(seen.append, f"callback {index}")
    loop.at_step(0, lambda: seen.append(f"step {loop.steps}"))
    loop.at_step(2, lambda: seen.append(f"step {loop.steps}"))
    loop.settle()
    assert seen == ["step 0", "callback 0", "callback 1", "step 2", "callback 2", "callback 3"]
    with pytest.raises(ValueError, match="4 callbacks"):
        loop.at_step(3, lambda: None)
    loop.close()


def test_cancelled_callbacks_are_no_steps() -> None:
    loop = VirtualTimeLoop()
    loop.call_soon(int).cancel()
    loop.call_soon(int)
    loop.settle()
    assert loop.steps == 1
    loop.close()


def test_what_a_step_function_raises_comes_out_of_the_run_and_the_callback_is_kept() -> None:
    seen: list[int] = []
    loop = VirtualTimeLoop()
    loop.call_soon(seen.append, 1)
    loop.at_step(0, lambda: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        loop.settle()
    loop.settle()
    assert seen == [1]
    loop.close()


def test_settle_runs_what_is_due_within_its_seconds_and_no_more() -> None:
    seen: list[int] = []
    loop = VirtualTimeLoop()
    loop.call_soon(seen.append, 0)
    for delay in (1, 2, 3):
        loop.call_later(delay, seen.append, delay)
    loop.settle()
    assert (seen, loop.time()) == ([0], 0.0)
    loop.settle(2)
    assert (seen, loop.time()) == ([0, 1, 2], 2.0)
    loop.close()


def test_lifting_the_limits_drops_the_deadline_and_the_step_functions_and_grants_more_steps() -> None:
    seen: list[str] = []
    loop = VirtualTimeLoop(max_steps=2)
    loop.deadline = 1.0
    loop.call_soon(int)
    loop.call_soon(int)
    loop.settle()
    loop.at_step(2, lambda: seen.append("hook"))
    loop.lift_limits()
    loop.call_later(5, seen.append, "late")
    loop.settle(5)
    assert (seen, loop.deadline, loop.steps) == (["late"], None, 3)
    loop.close()


def test_the_repr_tells_the_truth() -> None:
    loop = VirtualTimeLoop(start=2)
    assert repr(loop) == "<VirtualTimeLoop idle at 2 s, 0 steps>"
    loop.close()
    assert repr(loop) == "<VirtualTimeLoop closed at 2 s, 0 steps>"


# -- seeds


def order(seed: int | None) -> str:
    """The order in which five tasks take three turns each."""
    turns: list[str] = []

    async def worker(name: str) -> None:
        for _ in range(3):
            turns.append(name)
            await asyncio.sleep(0)

    async def main() -> None:
        async with asyncio.TaskGroup() as group:
            for name in "abcde":
                group.create_task(worker(name))

    run(main, seed=seed)
    return "".join(turns)


def test_without_a_seed_the_order_is_asyncios() -> None:
    assert order(None) == "abcde" * 3


def test_a_seed_replays_its_schedule() -> None:
    assert [order(seed) for seed in range(20)] == [order(seed) for seed in range(20)]


def test_seeds_give_really_different_schedules() -> None:
    assert len({order(seed) for seed in range(50)}) >= 45


def test_a_seed_replays_even_when_a_task_group_cancels_its_set_of_tasks() -> None:
    def cancelled(seed: int) -> list[int]:
        ends: list[int] = []

        async def worker(number: int) -> None:
            try:
                await asyncio.sleep(10)
            finally:
                ends.append(number)

        async def main() -> None:
            with contextlib.suppress(ExceptionGroup):
                async with asyncio.TaskGroup() as group:
                    for number in range(20):
                        group.create_task(worker(number))
                    await asyncio.sleep(1)
                    raise ValueError

        junk = [object() for _ in range(seed * 7)]  # moves the tasks in memory, hence in the set
        run(main, seed=3)
        assert junk is not None
        return ends

    assert len({tuple(cancelled(index)) for index in range(10)}) == 1


def test_plain_callbacks_keep_their_order_under_every_seed() -> None:
    for seed in range(30):
        seen: list[int] = []
        loop = VirtualTimeLoop(seed=seed)
        for index in range(10):
            loop.call_soon(seen.append, index)
            loop.create_task(asyncio.sleep(0))
        loop.settle()
        assert seen == list(range(10))
        loop.close()


def test_only_what_is_ready_when_the_iteration_begins_is_shuffled() -> None:
    for seed in range(30):
        seen: list[str] = []

        async def note(name: str, seen: list[str] = seen) -> None:
            seen.append(name)

        loop = VirtualTimeLoop(seed=seed)
        for _ in range(3):
            loop.create_task(note("early"))
            loop.call_soon(loop.create_task, note("late"))
        loop.settle()
        assert seen == ["early"] * 3 + ["late"] * 3
        loop.close()


def test_a_race_shows_under_some_seeds_and_not_under_others() -> None:
    def is_lost(seed: int) -> bool:
        async def write(box: list[int]) -> None:
            box.append(1)

        async def read(box: list[int]) -> bool:
            return not box

        async def main() -> bool:
            box: list[int] = []
            _, lost = await asyncio.gather(write(box), read(box))
            return lost

        return run(main, seed=seed)

    assert {is_lost(seed) for seed in range(20)} == {True, False}
