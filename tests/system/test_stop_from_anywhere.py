"""Who may stop a run: another thread, a callback, a `__del__`, a hundred of them at once."""

from __future__ import annotations

import asyncio
import gc
import threading
import time
from collections.abc import Callable
from typing import Any

import pytest

from halter import Agent, CancelReason, RunCancelled, RunContext, RunStatus, runnable
from halter.events import Cancelled, Cancelling

from ..bounds import T, assert_within

RunOn = Callable[[Any], Any]
Thread = Callable[..., threading.Thread]


@runnable
async def stalls(ctx: RunContext) -> None:
    """Shows a word, then nothing for ever: the loop is idle."""
    ctx.text("word ")
    await asyncio.Event().wait()


class Stopwatch:
    """From the request to stop until the waiter has noticed the end."""

    def __init__(self) -> None:
        self.began = 0.0

    def stop(self, run: Any, **how: Any) -> bool:
        self.began = time.monotonic()
        return run.cancel(**how)

    def assert_quick(self) -> None:
        took = time.monotonic() - self.began
        assert took > 0
        assert_within(T, took)


async def until_it_shows(run: Any) -> None:
    async for _ in run.events():
        if run.text:
            return


# --- B12 ----------------------------------------------------------------------------------------------------


@pytest.mark.scenario("B12")
def test_a_stop_from_another_thread_wakes_an_idle_loop(run_on: RunOn, thread: Thread) -> None:
    """`cancel()` in a plain thread ends a stalled run within 250 ms, though nothing else wakes its loop."""
    watch = Stopwatch()

    async def main() -> None:
        run = stalls.run().start()
        await until_it_shows(run)
        thread(watch.stop, run)
        result = await run.finished()
        watch.assert_quick()
        assert (result.status, result.text, result.receipt.confirmed) == (RunStatus.CANCELLED, "word ", True)

    run_on(main())


@pytest.mark.scenario("B12")
def test_a_stop_from_inside_another_callback_of_the_loop(run_on: RunOn) -> None:
    """`cancel()` in a `call_later` callback, while no task is awake, ends the run within 250 ms."""
    watch = Stopwatch()

    async def main() -> None:
        run = stalls.run().start()
        await until_it_shows(run)
        asyncio.get_running_loop().call_later(0.01, watch.stop, run)
        with pytest.raises(RunCancelled):
            await run
        watch.assert_quick()

    run_on(main())


class StopsInDel:
    def __init__(self, run: Any, watch: Stopwatch) -> None:
        self.me, self.run, self.watch = self, run, watch

    def __del__(self) -> None:
        self.watch.stop(self.run)


@pytest.mark.scenario("B12")
@pytest.mark.parametrize("where", ["loop", "thread"])
def test_a_stop_from_a_del_that_the_garbage_collector_calls(run_on: RunOn, thread: Thread, where: str) -> None:
    """A `__del__` run by a collection, on the loop or in another thread, may stop a run."""
    watch = Stopwatch()

    async def main() -> None:
        run = stalls.run().start()
        await until_it_shows(run)
        StopsInDel(run, watch)
        if where == "loop":
            asyncio.get_running_loop().call_soon(gc.collect)
        else:
            thread(gc.collect)
        result = await run.finished()
        watch.assert_quick()
        assert result.is_cancelled

    run_on(main())


@pytest.mark.scenario("B12")
def test_a_run_on_the_background_loop_is_stopped_from_a_thread(thread: Thread) -> None:
    """The background loop, idle, is woken by a stop as any other."""
    watch = Stopwatch()
    run = stalls.run().start()
    for _ in run.events():
        if run.text:
            break
    thread(watch.stop, run)
    with pytest.raises(RunCancelled) as caught:
        run.result(timeout=5)
    watch.assert_quick()
    assert caught.value.result.receipt.confirmed


@pytest.mark.scenario("B12")
def test_a_token_cancelled_in_a_thread_stops_its_runs_on_several_loops(thread: Thread) -> None:
    """One token governs runs on three loops; `cancel()` from a fourth thread ends all of them."""
    from halter import CancellationToken

    token, ready = CancellationToken(), threading.Barrier(4)
    took: list[float] = []

    async def main() -> None:
        run = stalls.run(cancellation=token).start()
        await until_it_shows(run)
        await asyncio.to_thread(ready.wait, 5)
        result = await run.finished()
        took.append(time.monotonic() - began)
        assert result.cancellation.reason is CancelReason.USER_STOP

    threads = [thread(asyncio.run, main()) for _ in range(3)]
    began = time.monotonic()
    ready.wait(5)
    began = time.monotonic()
    assert token.cancel("enough")
    for one in threads:
        one.join(5)
    assert len(took) == 3
    assert_within(T, max(took))


# --- B17 ----------------------------------------------------------------------------------------------------


@pytest.mark.scenario("B17")
def test_a_hundred_concurrent_cancels_give_one_end_and_one_reason(run_on: RunOn, thread: Thread) -> None:
    """100 cancels from 10 threads with 10 reasons: one terminal event, one reason, and every caller is answered."""
    reasons = list(CancelReason)[:10]
    gate = threading.Barrier(11)
    answers: list[list[bool]] = []  # of each caller

    def hammer(run: Any, reason: CancelReason) -> None:
        gate.wait(30)
        answers.append([run.cancel(reason=reason) for _ in range(10)])

    async def main() -> None:
        for _ in range(5):
            answers.clear()
            run = stalls.run().start()
            await until_it_shows(run)
            threads = [thread(hammer, run, reason) for reason in reasons]
            await asyncio.to_thread(gate.wait, 30)
            seen = [event async for event in run.events()]
            for one in threads:
                await asyncio.to_thread(one.join)
            assert [event for event in seen if event.is_terminal] == seen[-1:]
            assert sum(isinstance(event, Cancelled) for event in seen) == 1
            asked = [event for event in seen if isinstance(event, Cancelling)]
            assert len(asked) == 1
            assert seen[-1].reason is asked[0].reason is run.outcome.cancellation.reason
            assert len(answers) == 10
            # True while the stop is in force, False once it is over; never True after a False of the same caller.
            assert any(mine[0] for mine in answers)
            assert all(mine == sorted(mine, reverse=True) for mine in answers)

    run_on(main())


@pytest.mark.scenario("B17")
def test_concurrent_cancels_of_a_run_that_has_not_started_give_one_event(thread: Thread) -> None:
    """100 cancels from 10 threads on a pending run: exactly one event, and the body never runs."""
    begun: list[int] = []

    @runnable
    async def body(ctx: RunContext) -> None:
        begun.append(1)

    for _ in range(20):
        run = body.run()
        gate = threading.Barrier(10)

        def hammer(run: Any = run, gate: threading.Barrier = gate) -> None:
            gate.wait(5)
            for _ in range(10):
                run.cancel()

        for one in [thread(hammer) for _ in range(10)]:
            one.join(5)
        assert [event.type for event in run] == ["run.cancelled"]
        assert run.outcome.receipt.resources == ()
    assert not begun


# --- B23 ----------------------------------------------------------------------------------------------------


def read_events(run: Any) -> object:
    return [event.type for event in run][-1]


def read_text(run: Any) -> object:
    return "".join(run.text_stream())


def wait_for_result(run: Any) -> object:
    try:
        return run.result()
    except RunCancelled as error:
        return error.result.status


@pytest.mark.scenario("B23")
@pytest.mark.parametrize(
    ("wait", "answer"),
    [(read_events, "run.cancelled"), (read_text, "word "), (wait_for_result, RunStatus.CANCELLED)],
)
def test_a_blocking_reader_ends_when_another_thread_stops_the_run(
    thread: Thread, wait: Callable[[Any], object], answer: object
) -> None:
    """`for event in run`, `text_stream()` and `result()` in one thread end within 250 ms of a stop in another."""
    run = stalls.run().start()
    ended: list[tuple[object, float]] = []
    reader = thread(lambda: ended.append((wait(run), time.monotonic())))
    for _ in run.events():
        if run.text:
            break
    time.sleep(0.03)  # the reader is asleep by now
    began = time.monotonic()
    run.cancel()
    reader.join(5)
    assert ended[0][0] == answer
    assert_within(T, ended[0][1] - began)


@pytest.mark.scenario("B23")
def test_a_blocking_reader_costs_nothing_while_it_waits(thread: Thread) -> None:
    """No polling interval: a waiting reader uses no processor time to speak of."""
    run = stalls.run().start()
    reader = thread(read_events, run)
    for _ in run.events():
        if run.text:
            break
    used = time.process_time()
    reader.join(0.5)
    used = time.process_time() - used
    run.cancel()
    assert_within(0.05, used, "waiting, in processor time,")


@pytest.mark.scenario("B23")
def test_a_blocking_reader_of_an_agent_ends_within_the_bound(thread: Thread) -> None:
    """The same for an agent that streams: nothing of it is shown after the stop."""
    agent = Agent("scripted:" + "word " * 2000)
    for _ in range(20):
        run = agent.run("go")
        texts: list[str] = []
        stopped_at = 0.0
        for text in run.text_stream():
            assert not stopped_at, "shown after the stop"
            texts.append(text)
            if len(texts) == 5:
                stopped_at = time.monotonic()
                stopper = thread(run.cancel)
                stopper.join()
        assert_within(T, time.monotonic() - stopped_at)
        assert run.outcome.is_cancelled


# --- B26 ----------------------------------------------------------------------------------------------------


@runnable
async def exits(ctx: RunContext, error: BaseException) -> None:
    ctx.text("word ")
    await asyncio.sleep(0.01)
    raise error


def wait_in_for(run: Any) -> None:
    for _ in run:
        pass


@pytest.mark.scenario("B26")
@pytest.mark.parametrize("wait", [lambda run: run.result(), wait_in_for, lambda run: list(run.text_stream())])
@pytest.mark.parametrize("error", [SystemExit(3), KeyboardInterrupt()])
def test_an_exit_in_a_body_surfaces_in_whoever_waits_and_others_go_on(
    wait: Callable[[Any], object], error: BaseException
) -> None:
    """`SystemExit` and `KeyboardInterrupt` never travel through the background loop: other blocking runs go on."""
    other = stalls.run().start()
    run = exits.run(error)
    with pytest.raises(type(error)) as caught:
        wait(run)
    assert caught.value is error
    assert run.outcome.status is RunStatus.FAILED
    assert run.outcome.error is error
    assert not other.is_done
    assert Agent("scripted:still here").run("?").result(timeout=5).text == "still here"
    other.close(timeout=5)


@pytest.mark.scenario("B26")
def test_an_exit_in_a_body_surfaces_in_the_task_that_awaits(run_on: RunOn) -> None:
    """Awaited on a loop of one's own, it leaves that loop as it would without Halter; the others are sealed."""
    others: list[Any] = []

    async def main() -> None:
        others.append(stalls.run().start())
        await until_it_shows(others[0])
        await exits.run(SystemExit(4))

    with pytest.raises(SystemExit, match="4"):
        run_on(main())
    assert others[0].outcome.cancellation.reason is CancelReason.SHUTDOWN


@pytest.mark.scenario("B26")
def test_an_exit_in_a_thread_of_a_body_surfaces_too() -> None:
    """`sys.exit()` in a function under `ctx.in_thread` ends its run as failed, and surfaces in whoever waits."""

    @runnable
    async def body(ctx: RunContext) -> None:
        await ctx.in_thread(exit_now)

    def exit_now() -> None:
        raise SystemExit(5)

    with pytest.raises(SystemExit, match="5"):
        body.run().result(timeout=5)
