"""A loop that is held up: the stop still ends for whoever waits elsewhere, and the culprit is named."""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import pytest
import uvloop

from halter import CancelMode, RunCancelled, RunContext, RunStatus, runnable
from halter.core import watchdog
from halter.outcome import Ended

from ..bounds import assert_within

Thread = Callable[..., threading.Thread]


class Spinner:
    """A body that computes and never awaits, until it is released."""

    def __init__(self) -> None:
        self.spins = threading.Event()
        self.release = threading.Event()
        self.ended: list[str] = []

    def body(self) -> Any:
        @runnable
        async def spins(ctx: RunContext) -> None:
            ctx.text("word ")
            ctx.resource("thing", "that it holds", lambda: self.ended.append("thing closed"))
            self.spins.set()
            while not self.release.is_set():
                time.sleep(0)  # this line is named
            try:
                await asyncio.sleep(30)
            finally:
                self.ended.append("finally")

        return spins


def in_a_loop_of_its_own(thread: Thread, run_on: Callable[[Any], Any], run: Any) -> threading.Thread:
    async def main() -> None:
        run.start()
        await run.finished()

    return thread(run_on, main())


@pytest.mark.scenario("J90")
def test_a_coroutine_that_never_awaits_is_named_and_its_run_ends_within_the_grace(
    thread: Thread, run_on: Callable[[Any], Any], caplog: pytest.LogCaptureFixture
) -> None:
    """After 1 s the log has its file and line; within the grace the run is over, not confirmed; then it is ended."""
    spinner = Spinner()
    run = spinner.body().run(grace=1.4)
    with caplog.at_level(logging.WARNING, "halter"):
        carrier = in_a_loop_of_its_own(thread, run_on, run)
        assert spinner.spins.wait(5)
        began = time.monotonic()
        assert run.cancel("enough")
        assert run.is_cancelling
        with pytest.raises(RunCancelled, match="enough") as caught:
            run.result(timeout=5)
        took = time.monotonic() - began
    assert_within(1.4 + 0.5, took)
    assert caught.value.result.status is RunStatus.CANCELLED
    receipt = caught.value.result.receipt
    assert not receipt.confirmed
    assert {line.ended for line in receipt.resources} == {Ended.ABANDONED}
    assert run.text == "word "
    named = [record for record in caplog.records if run.id in record.getMessage()]
    assert f"spins, {__file__}:" in named[0].getMessage()
    assert named[0].created - time.time() < 0
    assert list(run.events())[-1].type == "run.cancelled"
    spinner.release.set()
    carrier.join(5)
    assert not carrier.is_alive()
    assert sorted(spinner.ended) == ["finally", "thing closed"]


@pytest.mark.scenario("J90")
def test_when_the_loop_comes_back_a_child_of_a_run_given_up_is_ended_too(
    thread: Thread, run_on: Callable[[Any], Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The whole tree was lost to its waiters; its tasks end as soon as the loop can, innermost ones included."""
    monkeypatch.setattr(watchdog, "NAMED_AFTER", 0.2)
    ended: list[str] = []
    spins, release = threading.Event(), threading.Event()
    before: set[Any] = set()

    @runnable
    async def child(ctx: RunContext) -> None:
        try:
            await asyncio.sleep(30)
        finally:
            ended.append("child")

    @runnable
    async def body(ctx: RunContext) -> None:
        started = ctx.start(child)
        await asyncio.sleep(0.01)
        spins.set()
        while not release.is_set():
            time.sleep(0)
        try:
            await started.finished()
            await asyncio.sleep(30)
        finally:
            ended.append("body")

    run = body.run(grace=0.2)

    async def main() -> None:
        before.update(asyncio.all_tasks())
        run.start()
        await run.finished()
        for _ in range(20):
            await asyncio.sleep(0.005)
        assert asyncio.all_tasks() == before, asyncio.all_tasks()

    failed: list[BaseException] = []

    def carry() -> None:
        try:
            run_on(main())
        except BaseException as error:
            failed.append(error)

    carrier = thread(carry)
    assert spins.wait(5)
    run.cancel()
    with pytest.raises(RunCancelled, match="stopped"):
        run.result(timeout=5)
    release.set()
    carrier.join(5)
    assert not failed
    assert sorted(ended) == ["body", "child"]


@pytest.mark.scenario("J90")
def test_an_on_cancel_that_blocks_the_loop_does_not_keep_a_waiter_elsewhere(
    thread: Thread, run_on: Callable[[Any], Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A callback that never ends, on the loop itself: a waiter in another thread is let go within the grace."""
    monkeypatch.setattr(watchdog, "NAMED_AFTER", 0.2)
    begun, release, ended = threading.Event(), threading.Event(), []

    @runnable
    async def body(ctx: RunContext) -> None:
        ctx.token.on_cancel(lambda: release.wait(20))
        begun.set()
        try:
            await asyncio.sleep(30)
        finally:
            ended.append("finally")

    run = body.run(grace=0.5)
    carrier = in_a_loop_of_its_own(thread, run_on, run)
    assert begun.wait(5)
    began = time.monotonic()
    run.cancel()
    with pytest.raises(RunCancelled, match="stopped"):
        run.result(timeout=5)
    assert_within(0.5 + 0.6, time.monotonic() - began)
    assert not run.outcome.receipt.confirmed
    release.set()
    carrier.join(5)
    assert not carrier.is_alive()
    assert ended == ["finally"]


@pytest.mark.scenario("J90")
def test_a_run_that_waits_for_an_answer_on_a_loop_held_up_can_be_given_up(
    thread: Thread, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With an input open and asyncio's debug mode, which forbids to touch futures from other threads."""
    monkeypatch.setattr(watchdog, "NAMED_AFTER", 0.2)
    release, blocked = threading.Event(), threading.Event()

    @runnable
    async def body(ctx: RunContext) -> None:
        loop = asyncio.get_running_loop()
        loop.call_later(0.01, lambda: (blocked.set(), release.wait(20)))
        loop.slow_callback_duration = 100
        await ctx.ask("yes?")

    run = body.run(grace=0.2, timeout=60)
    carrier = in_a_loop_of_its_own(thread, lambda main: asyncio.run(main, debug=True), run)
    assert blocked.wait(5)
    run.cancel()
    with pytest.raises(RunCancelled, match="stopped"):
        run.result(timeout=3)
    assert list(run.events())[-1].type == "run.cancelled"
    release.set()
    carrier.join(5)
    assert not carrier.is_alive()


@pytest.mark.scenario("J90")
@pytest.mark.parametrize("mode", ["after_turn", "immediate"])
def test_a_stop_that_lets_the_turn_end_does_not_use_up_the_grace_of_a_loop_that_answers(
    run_on: Callable[[Any], Any], mode: CancelMode, caplog: pytest.LogCaptureFixture
) -> None:
    """A turn takes minutes; then its loop is held up for two seconds, which a grace of five allows."""

    @runnable
    async def body(ctx: RunContext) -> None:
        with suppress(asyncio.CancelledError):
            await asyncio.sleep(60)

    async def main() -> None:
        run = body.run(grace=5).start()
        await asyncio.sleep(0)
        began = time.monotonic()
        execution = run._execution
        run.cancel(mode=mode)
        assert execution.home is not None
        look = watchdog._Loop(execution.home, began).look
        look([execution], began + 100)
        if mode == "after_turn":
            await asyncio.sleep(0.01)  # the loop answers
        look([execution], began + 101)
        look([execution], began + 102)
        assert run.is_done == (mode == "immediate")
        run.cancel()
        await run.finished()

    run_on(main())
    assert len([record for record in caplog.records if "its loop is held up" in record.message]) == 1


# --- J92: a loop that is gone -------------------------------------------------------------------------------


def new_loops() -> list[Any]:
    return [asyncio.new_event_loop, uvloop.new_event_loop]


@runnable
async def stalls(ctx: RunContext) -> None:
    ctx.text("word ")
    await asyncio.Event().wait()


@runnable
async def asks(ctx: RunContext) -> None:
    ctx.text("word ")
    await ctx.ask("yes?", timeout=60)


def left_behind(new_loop: Callable[[], Any], definition: Any) -> Any:
    """A run in the middle of its work, whose loop was closed by hand."""
    run = definition.run(timeout=60)
    loop = new_loop()

    async def main() -> None:
        run.start()
        async for _ in run.events():
            if run.text:
                break
        await asyncio.sleep(0.001)

    loop.run_until_complete(main())
    task = run._execution.task
    task._log_destroy_pending = False  # asyncio rightly complains about what this test does to its loop
    loop.close()
    return run


def ends_in_an_error(run: Any) -> None:
    with pytest.raises(RunCancelled):
        run.result(timeout=3)


async def drain(run: Any) -> None:
    async for _ in run:
        pass


@pytest.mark.scenario("J92")
@pytest.mark.parametrize("new_loop", new_loops())
@pytest.mark.parametrize("definition", [stalls, asks])
@pytest.mark.parametrize(
    "touch",
    [
        lambda run: run.cancel(),
        ends_in_an_error,
        list,
        lambda run: list(run.events()),
        lambda run: list(run.text_stream()),
        lambda run: run.close(3),
        lambda run: asyncio.run(asyncio.wait_for(run.finished(), 3)),
        lambda run: asyncio.run(asyncio.wait_for(run.aclose(), 3)),
        lambda run: asyncio.run(asyncio.wait_for(drain(run), 3)),
    ],
    ids=["cancel", "result", "for", "events", "text_stream", "close", "finished", "aclose", "async-for"],
)
def test_a_run_whose_loop_was_closed_by_hand_ends_where_it_is_touched(
    new_loop: Callable[[], Any], definition: Any, touch: Callable[[Any], object]
) -> None:
    """Nothing waits for what cannot come: it is over, cancelled, and not confirmed."""
    run = left_behind(new_loop, definition)
    touch(run)
    assert run.is_done
    assert run.outcome.status is RunStatus.CANCELLED
    assert not run.outcome.receipt.confirmed
    assert not run.cancel()
    events = list(run.events())
    assert [event.is_terminal for event in events] == [False] * (len(events) - 1) + [True]


@pytest.mark.scenario("J92")
def test_new_runs_work_where_the_first_loop_has_closed() -> None:
    """In one process: a loop closed by hand under a live run, then other loops, then blocking forms."""

    @runnable
    async def fine(ctx: RunContext) -> str:
        return "fine"

    async def main() -> str:
        return (await fine.run()).output

    for new_loop in new_loops():
        run = left_behind(new_loop, stalls)
        assert asyncio.run(main()) == uvloop.run(main()) == fine.run().result(timeout=5).output == "fine"
        assert run.is_done, "a new home notices what a closed one has left behind"
        assert not run.outcome.receipt.confirmed
