"""How a stop goes through a tree: who is cancelled when, what is closed in which order, what the receipt says."""

from __future__ import annotations

import asyncio
import linecache
import logging
import sys
import time
from contextlib import suppress
from typing import Any

import pytest

from halter import (
    CancelMode,
    CancelReason,
    Run,
    RunCancelled,
    RunContext,
    RunStatus,
    RunTimedOut,
    events,
    runnable,
)
from halter.core.execution import Execution
from halter.core.grace import REPEATS
from halter.core.runnable import Runnable
from halter.sessions import Sessions
from halter.testing import Sweep, SweepOutcome, cancel_sweep, schedule_sweep

virtual = pytest.mark.virtual_time


@pytest.fixture(autouse=True)
def _quiet(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.CRITICAL, "halter")


@runnable
async def patient(ctx: Any) -> None:
    await asyncio.sleep(1_000)


# -- racing the end


@pytest.mark.scenario("B18", "D49")
@pytest.mark.parametrize("mode", CancelMode)
def test_a_stop_at_any_step_gives_one_end_on_which_everything_agrees(mode: CancelMode, check_log: Any) -> None:
    """Status, terminal event, result and the answer of `cancel()` itself, at every step of a run with a child."""

    @runnable
    async def child(ctx: Any) -> str:
        await asyncio.sleep(1)
        ctx.text("child")
        return "c"

    @runnable
    async def body(ctx: Any) -> str:
        ctx.text("a ")
        await child.run(parent=ctx.run)
        ctx.text("b")
        await asyncio.sleep(0)
        return "done"

    async def scenario(sweep: Sweep) -> Any:
        handle = body.run()
        said: list[bool] = []
        sweep.cancel = lambda: said.append(handle.cancel(mode=mode))
        result = await handle.finished()
        return handle, result, said, [event async for event in handle.events()]

    ends = set()

    def check(outcome: SweepOutcome) -> None:
        handle, result, said, log = outcome.result
        if log[0].type == "run.started":
            check_log(log)
        assert [event.is_terminal for event in log if event.run_id == handle.id].count(True) == 1
        assert log[-1].type == f"run.{result.status}" == f"run.{handle.status}"
        assert log[-1].text == result.text
        assert (result.output == "done") == (result.status is RunStatus.COMPLETED)
        assert (result.receipt is None) == (result.cancellation is None) == (not result.is_cancelled)
        if mode.cuts:
            assert said == [result.is_cancelled], "True promises that the outcome will be cancelled"
        elif result.is_cancelled:
            assert said == [True]
        ends.add(result.status)

    assert cancel_sweep(scenario, check=check) > 5
    expected = {RunStatus.CANCELLED, RunStatus.COMPLETED} if mode.cuts else {RunStatus.COMPLETED, RunStatus.CANCELLED}
    assert ends <= expected
    assert RunStatus.COMPLETED in ends


@pytest.mark.scenario("B11")
@virtual
async def test_a_stop_from_another_task_reaches_a_reader_that_waits() -> None:
    """The reader waits in `__anext__`; it gets the rest, the terminal event last, and its loop ends."""
    handle = patient.run()
    seen = []

    async def read() -> None:
        async for event in handle:
            seen.append(event.type)

    reader = asyncio.create_task(read())
    await asyncio.sleep(1)
    assert seen == ["run.started"]
    handle.cancel()
    await reader
    assert seen == ["run.started", "run.cancelling", "run.cancelled"]
    assert asyncio.get_running_loop().time() == 1


@pytest.mark.scenario("B17")
@virtual
async def test_a_hundred_stops_from_a_hundred_tasks_are_one() -> None:
    """One terminal event, the first reason, and every caller is told True."""
    handle = patient.run().start()
    await asyncio.sleep(0)

    async def stop(number: int) -> bool:
        await asyncio.sleep(0)
        return handle.cancel(f"by {number}")

    assert all(await asyncio.gather(*(stop(number) for number in range(100))))
    result = await handle.finished()
    log = [event async for event in handle.events()]
    assert result.cancellation is not None
    assert result.cancellation.message == "by 0"
    assert [event.type for event in log] == ["run.started", "run.cancelling", "run.cancelled"]


# -- order over the tree


@pytest.mark.scenario("J89")
@virtual
async def test_descendants_are_cancelled_innermost_first_and_resources_closed_afterwards_newest_first() -> None:
    """All in one tick; a resource is closed only when every body has been told, whoever holds it."""
    told: list[str] = []

    def hold(ctx: Any, label: str) -> None:
        ctx.resource("thing", label, lambda: told.append(f"close {label}"))

    @runnable
    async def node(ctx: Any, depth: int) -> None:
        hold(ctx, f"{depth} before")
        if depth < 2:
            ctx.start(node, depth + 1)
            await asyncio.sleep(1)
        hold(ctx, f"{depth} after")
        # A callback of the token is called when the body has been told, and in the same order.
        ctx.token._listen(lambda _: told.append(f"cut {depth}"))
        await asyncio.sleep(100)

    handle = node.run(0).start()
    await asyncio.sleep(5)
    handle.cancel()
    await asyncio.sleep(0)
    cuts, closings = told[:3], told[3:]
    assert cuts == ["cut 2", "cut 1", "cut 0"]
    # 0 and 1 go on at the same instant, 0 first: it had begun to sleep before.
    assert closings == [
        f"close {label}" for label in ("1 after", "0 after", "2 after", "2 before", "1 before", "0 before")
    ]
    result = await handle.finished()
    assert result.receipt is not None
    assert result.receipt.confirmed
    things = [line.label for line in result.receipt.resources if line.kind == "thing"]
    assert things == [label.removeprefix("close ") for label in reversed(closings)]
    assert [line.kind for line in result.receipt.resources].count("task") == 3


@virtual
async def test_a_task_group_in_the_body_ends_with_cancelled_error_and_no_exception_group() -> None:
    """The body is told before its sockets break: the stop is not turned into connection errors."""
    seen: list[BaseException] = []
    broken: list[asyncio.Future[None]] = []

    @runnable
    async def body(ctx: Any) -> None:
        async def read(number: int) -> None:
            future = asyncio.get_running_loop().create_future()
            broken.append(future)

            def close() -> None:
                if not future.done():
                    future.set_exception(ConnectionError("closed under it"))

            ctx.resource("socket", str(number), close)
            await future

        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(read(1))
                group.create_task(read(2))
        except BaseException as error:
            seen.append(error)
            raise

    handle = body.run().start()
    await asyncio.sleep(1)
    handle.cancel()
    result = await handle.finished()
    for future in broken:
        future.cancelled() or future.exception()
    assert [type(error) for error in seen] == [asyncio.CancelledError]
    assert result.error is None


@pytest.mark.scenario("J89", "E54")
@virtual
async def test_events_of_a_stop_come_deepest_first_and_the_root_is_last(check_log: Any) -> None:
    """Also for children that nobody awaits."""

    @runnable
    async def node(ctx: Any, depth: int) -> None:
        ctx.begin_step()
        ctx.text(f"at {depth}")
        if depth < 3:
            ctx.start(node, depth + 1)
        await asyncio.sleep(100)

    handle = node.run(0).start()
    await asyncio.sleep(1)
    handle.cancel()
    await handle.finished()
    log = [event async for event in handle.events()]
    check_log(log)
    order = {event.run_id: place for place, event in enumerate(e for e in log if e.type == "run.started")}
    ends = [order[event.run_id] for event in log if event.is_terminal]
    assert ends == [3, 2, 1, 0]
    for run_id in order:
        own = [event.type for event in log if event.run_id == run_id and event.seq > log[-1].seq - 20][-4:]
        assert own[-3:] == ["usage", "step.finished", "run.cancelled"]


@pytest.mark.scenario("J89")
@virtual
async def test_a_child_that_nobody_awaits_ends_before_its_parents_terminal_event(check_log: Any) -> None:
    """At its parent's end it is stopped with `parent_finished`; the parent completes afterwards."""

    @runnable
    async def body(ctx: Any) -> str:
        ctx.start(patient)
        ctx.start(patient)
        await asyncio.sleep(1)
        return "done"

    handle = body.run()
    assert (await handle).output == "done"
    log = [event async for event in handle.events()]
    check_log(log)
    assert [event.type for event in log[-3:]] == ["run.cancelled", "run.cancelled", "run.completed"]
    assert {event.reason for event in log if isinstance(event, events.Cancelled)} == {CancelReason.PARENT_FINISHED}


@virtual
async def test_a_child_that_fails_or_is_stopped_does_not_stop_its_parent() -> None:
    """The parent sees the exception, and may go on."""

    @runnable
    async def fails(ctx: Any) -> None:
        raise ValueError("child")

    @runnable
    async def body(ctx: Any) -> list[str]:
        seen = []
        for child in (fails.run(), patient.run(timeout=1)):
            try:
                await child
            except Exception as error:
                seen.append(type(error).__name__)
        return seen

    assert (await body.run()).output == ["RunFailed", "RunTimedOut"]


# -- born under a stop


@pytest.mark.scenario("C35")
@virtual
async def test_a_child_started_under_a_cancelled_parent_is_born_cancelled() -> None:
    """Its body never runs; it has one event, and it is in the tree's log while that is written."""
    ran, children = [], []

    @runnable
    async def child(ctx: Any) -> None:
        ran.append(1)

    @runnable
    async def body(ctx: Any) -> None:
        try:
            await asyncio.sleep(100)
        finally:
            children.append(ctx.start(child))
            children.append(child.run().start())

    handle = body.run().start()
    await asyncio.sleep(1)
    handle.cancel()
    await handle.finished()
    assert not ran
    for born in children:
        assert born.outcome.cancellation.reason is CancelReason.PARENT_CANCELLED
        assert [event.type async for event in born.events()] == ["run.cancelled"]
    log = [event async for event in handle.events()]
    assert [event.type for event in log] == ["run.started", "run.cancelling", *["run.cancelled"] * 3]
    assert log[-1].run_id == handle.id


@pytest.mark.scenario("C35")
@virtual
async def test_a_grandchild_started_right_after_the_roots_stop_is_born_cancelled() -> None:
    """Before the loop has carried the stop through the tree: it looks at all its ancestors."""
    ran, kept = [], []

    @runnable
    async def leaf(ctx: Any) -> None:
        ran.append(1)

    @runnable
    async def middle(ctx: Any, root: Any) -> None:
        await asyncio.sleep(1)
        root.cancel()
        kept.append(ctx.start(leaf))
        await asyncio.sleep(100)

    @runnable
    async def top(ctx: Any) -> None:
        await ctx.start(middle, ctx.run)

    await top.run().finished()
    assert not ran
    assert [event.type async for event in kept[0].events()] == ["run.cancelled"]


@pytest.mark.scenario("C35")
@virtual
async def test_an_abandoned_body_cannot_start_anything_new() -> None:
    """Its run is over; a child of it is born cancelled, with an event in a log of its own."""
    ran, kept = [], []

    @runnable
    async def child(ctx: Any) -> None:
        ran.append(1)

    @runnable
    async def body(ctx: Any) -> None:
        while True:
            try:
                await asyncio.sleep(30)
                break
            except asyncio.CancelledError:
                pass
        kept.append(ctx.start(child))

    handle = body.run(grace=1).start()
    await asyncio.sleep(1)
    await handle.aclose()
    before = [event async for event in handle.events()]
    await asyncio.sleep(60)
    assert not ran
    assert kept[0].is_cancelled
    assert [event async for event in handle.events()] == before


@pytest.mark.scenario("C35")
@virtual
async def test_a_child_of_a_completed_run_is_born_cancelled_too() -> None:
    """A context that outlives its run cannot start work that nobody would stop."""
    contexts = []

    @runnable
    async def body(ctx: Any) -> None:
        contexts.append(ctx)

    await body.run()
    child = contexts[0].start(patient)
    assert (await child.finished()).cancellation.reason is CancelReason.PARENT_FINISHED


# -- grace


@pytest.mark.scenario("C33")
@pytest.mark.parametrize("cleanup", [0.0, 1.0, 2.4])
@virtual
async def test_clean_up_that_awaits_completes_within_half_of_the_grace(cleanup: float) -> None:
    """One CancelledError, and no second one while the clean-up goes on: confirmed."""
    done = []

    @runnable
    async def body(ctx: Any) -> None:
        try:
            await asyncio.sleep(100)
        finally:
            await asyncio.sleep(cleanup)
            done.append("rolled back")

    handle = body.run(grace=5).start()
    await asyncio.sleep(1)
    await handle.aclose()
    assert done == ["rolled back"]
    assert asyncio.get_running_loop().time() == 1 + cleanup
    assert handle.outcome is not None
    assert handle.outcome.receipt is not None
    assert handle.outcome.receipt.confirmed


@virtual
async def test_cancelled_error_comes_at_once_and_again_and_again_in_the_second_half_of_the_grace() -> None:
    """Ten times there, and with the end of the grace for the last time; not at every await, and not afterwards."""
    times = []
    loop = asyncio.get_running_loop()

    @runnable
    async def body(ctx: Any) -> None:
        for _ in range(20):
            try:
                await asyncio.sleep(50)
            except asyncio.CancelledError:
                times.append(loop.time())

    handle = body.run(grace=4).start()
    await asyncio.sleep(1)
    await handle.aclose()
    assert loop.time() == 5
    await asyncio.sleep(1000)
    assert times == pytest.approx([1, *(3 + 0.2 * number for number in range(10)), 5])


@virtual
async def test_a_stop_that_task_groups_swallow_twice_ends_the_run_within_the_grace() -> None:
    """A group that fails as the stop comes throws it away (3.11, 3.12); the body sees one more failure."""
    swallowed = []

    async def fails() -> None:
        await asyncio.sleep(1)
        raise ValueError("try again")

    async def is_slow_to_end() -> None:
        try:
            await asyncio.sleep(100)
        finally:
            with suppress(asyncio.CancelledError):
                await asyncio.sleep(0.9)

    @runnable
    async def retries(ctx: Any) -> None:
        while True:
            try:
                async with asyncio.TaskGroup() as group:
                    group.create_task(fails())
                    group.create_task(is_slow_to_end())
            except* ValueError:
                if ctx.cancellation:
                    swallowed.append(asyncio.get_running_loop().time())

    handle = retries.run(grace=5).start()
    await asyncio.sleep(1.2)
    await handle.aclose()
    assert asyncio.get_running_loop().time() < 6
    if sys.version_info < (3, 13):
        assert len(swallowed) == 2
    assert handle.outcome is not None
    assert handle.outcome.receipt is not None
    assert handle.outcome.receipt.confirmed


@pytest.mark.scenario("C33")
@virtual
async def test_a_body_that_swallows_its_cancellation_is_abandoned_and_named_with_file_and_line() -> None:
    """`aclose()` returns at the end of the grace; the receipt says where the body is, and is not confirmed."""

    @runnable
    async def stubborn(ctx: Any) -> None:
        for _ in range(30):
            try:
                await asyncio.sleep(50)  # the line that is named
            except asyncio.CancelledError:
                ctx.emit("swallowed")

    handle = stubborn.run(grace=2).start()
    await asyncio.sleep(1)
    asked = asyncio.get_running_loop().time()
    await handle.aclose()
    assert asyncio.get_running_loop().time() - asked == 2
    assert handle.outcome is not None
    receipt = handle.outcome.receipt
    assert receipt is not None
    assert not receipt.confirmed
    assert "NOT confirmed" in str(receipt)
    (line,) = receipt.resources
    assert (line.kind, line.ended, line.ended_after_ms) == ("task", "abandoned", None)
    assert "test_stopping.py:" in line.label
    assert "stubborn" in line.label
    number = int(line.label.rpartition("test_stopping.py:")[2].split()[0].rstrip(")"))
    assert "the line that is named" in linecache.getline(__file__, number)
    last = [event async for event in handle.events()][-1]
    assert (last.type, last.receipt) == ("run.cancelled", receipt)  # pyright: ignore
    await asyncio.sleep(500)  # let it end


@virtual
async def test_a_parents_grace_holds_for_a_child_with_a_longer_one() -> None:
    """The child is abandoned when its parent's grace is over."""

    @runnable
    async def stubborn(ctx: Any) -> None:
        try:
            await asyncio.sleep(100)
        except asyncio.CancelledError:
            for _ in range(3):
                try:
                    await asyncio.sleep(30)
                except asyncio.CancelledError:
                    pass

    @runnable
    async def body(ctx: Any) -> None:
        child = ctx.start(stubborn, grace=50)
        await asyncio.sleep(1)
        child.cancel()
        await asyncio.sleep(100)

    handle = body.run(grace=2).start()
    await asyncio.sleep(3)
    await handle.aclose()
    assert asyncio.get_running_loop().time() == 5
    assert handle.outcome is not None
    assert handle.outcome.receipt is not None
    assert [line.ended for line in handle.outcome.receipt.resources if line.kind == "task"].count("abandoned") == 1
    await asyncio.sleep(200)


@pytest.mark.parametrize("mode", [CancelMode.IMMEDIATE, CancelMode.KILL])
@virtual
async def test_a_grace_of_zero_still_sees_a_body_end_at_its_first_cancelled_error(mode: CancelMode) -> None:
    """Nobody is called abandoned who has ended at once; and no time passes."""

    @runnable
    async def body(ctx: Any) -> None:
        ctx.resource("thing", "thing", lambda: None)
        await asyncio.sleep(100)

    handle = body.run(grace=0).start()
    await asyncio.sleep(1)
    handle.cancel(mode=mode)
    result = await handle.finished()
    assert asyncio.get_running_loop().time() == 1
    assert result.receipt is not None
    assert result.receipt.confirmed, str(result.receipt)


@virtual
async def test_kill_abandons_after_one_tick_of_the_loop() -> None:
    """No grace: a body that cleans up with an await is named, and no time passes."""

    @runnable
    async def body(ctx: Any) -> None:
        try:
            await asyncio.sleep(100)
        finally:
            await asyncio.sleep(1)

    handle = body.run(grace=5).start()
    await asyncio.sleep(1)
    handle.cancel(mode=CancelMode.KILL)
    result = await handle.finished()
    assert asyncio.get_running_loop().time() == 1
    assert result.receipt is not None
    assert not result.receipt.confirmed
    await asyncio.sleep(10)


@virtual
async def test_an_error_of_the_clean_up_is_kept_and_does_not_change_the_outcome() -> None:
    """After a stop was claimed nothing that the body raises or returns counts; it is `result.error`."""

    @runnable
    async def body(ctx: Any, what: str) -> str:
        try:
            await asyncio.sleep(100)
        except asyncio.CancelledError:
            if what == "raises":
                raise ValueError("in the clean-up") from None
        return "a success that does not count"

    for what in ("raises", "returns"):
        handle = body.run(what).start()
        await asyncio.sleep(1)
        handle.cancel()
        result = await handle.finished()
        assert (result.status, result.output) == (RunStatus.CANCELLED, None)
        assert (type(result.error) is ValueError) == (what == "raises")
        with pytest.raises(RunCancelled) as caught:
            await handle
        assert caught.value.__cause__ is result.error


@virtual
async def test_text_and_events_after_the_cut_are_dropped() -> None:
    """What arrives later is in no log, no result and no history."""

    @runnable
    async def body(ctx: Any) -> None:
        ctx.text("before")
        try:
            await asyncio.sleep(100)
        finally:
            ctx.text(" after")
            ctx.emit("late")

    handle = body.run().start()
    await asyncio.sleep(1)
    handle.cancel()
    result = await handle.finished()
    log = [event async for event in handle.events()]
    assert (result.text, [message.text for message in result.messages]) == ("before", ["before"])
    assert result.messages[0].interrupted
    assert [event.type for event in log] == [
        "run.started", "text.delta", "run.cancelling", "message.finished", "usage", "run.cancelled",
    ]  # fmt: skip


# -- a stop from somebody who knows nothing of us


@pytest.mark.parametrize("begun", [False, True])
@virtual
async def test_a_run_whose_task_somebody_else_cancels_ends_with_shutdown(begun: bool) -> None:
    """As `asyncio.run` does at its end: claimed, sealed, with its terminal event; also before its first step."""
    handle = patient.run().start()
    if begun:
        await asyncio.sleep(1)
    (task,) = [task for task in asyncio.all_tasks() if task.get_name().startswith("halter:")]
    task.cancel()
    result = await handle.finished()
    assert result.cancellation is not None
    assert result.cancellation.reason is CancelReason.SHUTDOWN
    assert [event.type async for event in handle.events()] == ["run.started", "run.cancelling", "run.cancelled"]


@virtual
async def test_a_body_that_cancels_its_own_run_ends_as_cancelled() -> None:
    """`ctx.run.cancel()` from inside: True, and the next await raises."""
    said = []

    @runnable
    async def body(ctx: Any) -> None:
        said.append(ctx.run.cancel("myself"))
        assert ctx.token.is_cancelled
        await asyncio.sleep(100)

    result = await body.run().finished()
    assert said == [True]
    assert result.cancellation is not None
    assert result.cancellation.message == "myself"


# -- time-outs


@pytest.mark.scenario("B24")
@virtual
async def test_a_time_out_is_a_stop_with_its_own_reason_and_a_time_out_error() -> None:
    """`RunTimedOut` is a `TimeoutError` and a `RunCancelled`; the record is stamped when it happened."""
    import time

    handle = patient.run(timeout=5)
    before = time.time()
    handle.start()
    await asyncio.sleep(0)
    with pytest.raises(TimeoutError) as caught:
        await handle
    assert isinstance(caught.value, RunTimedOut)
    assert isinstance(caught.value, RunCancelled)
    assert asyncio.get_running_loop().time() == 5
    result = caught.value.result
    assert result is not None
    assert result.is_cancelled
    assert result.cancellation is not None
    assert str(result.cancellation) == "timeout (after 5 s)"
    assert result.receipt is not None
    assert result.receipt.requested_at == result.cancellation.at >= before


@pytest.mark.scenario("B24")
@virtual
async def test_children_inherit_the_earlier_deadline() -> None:
    """A child's longer time-out does not help it; a shorter one is its own."""
    deadlines: dict[str, Any] = {}

    @runnable
    async def child(ctx: Any, name: str) -> None:
        deadlines[name] = ctx.deadline
        await asyncio.sleep(100)

    @runnable
    async def body(ctx: Any) -> None:
        with pytest.raises(RunTimedOut):
            await child.run("shorter", timeout=2)
        ctx.start(child, "longer", timeout=50)
        ctx.start(child, "none")
        await asyncio.sleep(100)

    handle = body.run(timeout=10)
    with pytest.raises(RunTimedOut):
        await handle
    assert asyncio.get_running_loop().time() == 10
    assert deadlines == {"shorter": 2, "longer": 10, "none": 10}
    log = [event async for event in handle.events()]
    reasons = [event.reason for event in log if isinstance(event, events.Cancelled)]
    assert [str(reason) for reason in reasons] == ["timeout", "parent_cancelled", "parent_cancelled", "timeout"]


@pytest.mark.scenario("B24")
@virtual
async def test_the_clock_starts_with_the_run_and_a_run_in_time_leaves_no_timer() -> None:
    """Not when `run()` is called; and nothing of it is left on the loop."""

    @runnable
    async def body(ctx: Any) -> str:
        await asyncio.sleep(4)
        return "in time"

    handle = body.run(timeout=5)
    await asyncio.sleep(100)
    assert (await handle).output == "in time"
    loop: Any = asyncio.get_running_loop()
    assert [timer for timer in loop._scheduled if not timer.cancelled()] == []


@pytest.mark.scenario("B24")
@virtual
async def test_a_time_out_during_a_question_or_a_childs_work_reaches_everything() -> None:
    """One path: open inputs are resolved, children stopped, all before the terminal event."""

    @runnable
    async def body(ctx: Any) -> None:
        ctx.start(patient)
        await ctx.ask("Hello?")

    handle = body.run(timeout=1)
    with pytest.raises(RunTimedOut):
        await handle
    types = [event.type async for event in handle.events()]
    assert types[-3:] == ["run.cancelled", "input.received", "run.cancelled"]


# -- exits


@pytest.mark.scenario("B26")
@pytest.mark.parametrize("exit", [SystemExit, KeyboardInterrupt])
@pytest.mark.parametrize("use", ["await", "for", "text"])
@virtual
async def test_an_exit_in_a_body_surfaces_in_whoever_waits_and_other_runs_go_on(exit: Any, use: str) -> None:
    """It does not travel through the loop, and is no clean end of an iteration."""

    @runnable
    async def body(ctx: Any) -> None:
        ctx.text("x")
        await asyncio.sleep(1)
        raise exit("bye")

    @runnable
    async def other(ctx: Any) -> str:
        await asyncio.sleep(10)
        return "went on"

    neighbour = other.run().start()
    handle = body.run()
    with pytest.raises(exit, match="bye"):  # noqa: PT012  # each use is what must raise
        match use:
            case "await":
                await handle
            case "for":
                async for _ in handle:
                    pass
            case _:
                async for _ in handle.text_stream():
                    pass
    assert handle.outcome is not None
    assert handle.outcome.is_failed
    assert (await handle.finished()).is_failed  # observing raises nothing
    assert [event.type async for event in handle.events()][-1] == "run.failed"
    assert (await neighbour).output == "went on"


def test_the_order_of_tasks_does_not_matter_to_a_stop(check_log: Any) -> None:
    """100 schedules of the same stop: always one end, always confirmed."""

    @runnable
    async def node(ctx: Any, depth: int) -> None:
        async with ctx.use(Stream()):
            if depth < 3:
                for _ in range(2):
                    ctx.start(node, depth + 1)
            await asyncio.sleep(5)

    class Stream:
        async def aclose(self) -> None:
            await asyncio.sleep(0.1)

    async def scenario() -> None:
        handle = node.run(0).start()
        await asyncio.sleep(1)
        handle.cancel()
        result = await handle.finished()
        assert result.receipt is not None
        assert result.receipt.confirmed
        assert len(result.receipt.resources) == 30  # 15 bodies and their streams
        check_log([event async for event in handle.events()])

    assert schedule_sweep(scenario, seeds=range(100)) == 100


# -- a stop made stronger


@virtual
async def test_a_stop_made_stronger_has_no_more_time_than_the_first() -> None:
    """The grace counts from the first stop that cut the run."""

    @runnable
    async def body(ctx: Any) -> None:
        while asyncio.get_running_loop().time() < 20:
            with suppress(asyncio.CancelledError):
                await asyncio.sleep(20)

    handle = body.run(grace=4).start()
    await asyncio.sleep(1)
    handle.cancel(mode=CancelMode.DRAIN_TOOLS)
    await asyncio.sleep(3)
    handle.cancel(mode=CancelMode.IMMEDIATE)
    await handle.finished()
    assert asyncio.get_running_loop().time() == 5
    await asyncio.sleep(20)


# -- what is told of a stop, and what it leaves


@pytest.mark.real_loop
async def test_a_childs_receipt_counts_from_the_stop_of_its_parent() -> None:
    """Not from the instant at which the receipt is written: then every child would have stopped in no time."""
    children: list[Any] = []

    @runnable
    async def child(ctx: Any) -> None:
        try:
            await asyncio.sleep(1_000)
        finally:
            time.sleep(0.02)

    @runnable
    async def parent(ctx: Any) -> None:
        children.append(child.run(parent=ctx.run))
        await children[0]

    handle = parent.run().start()
    await asyncio.sleep(0.01)
    handle.cancel()
    whole = (await handle.finished()).receipt
    receipt = children[0].outcome.receipt
    assert 20 <= receipt.stopped_after_ms <= whole.stopped_after_ms
    assert all(line.ended_after_ms >= 20 for line in receipt.resources)


@virtual
@pytest.mark.parametrize("modes", [["immediate"], ["drain_tools", "immediate"]])
async def test_a_stop_that_is_made_stronger_is_delivered_as_often_as_one_that_was_strong_from_the_beginning(
    modes: list[str],
) -> None:
    """Its grace is counted once: two counts would cut a clean-up short twice as often."""
    told, is_over = 0, False

    @runnable
    async def stubborn(ctx: Any) -> None:
        nonlocal told
        while not is_over:
            try:
                await asyncio.sleep(1_000)
            except asyncio.CancelledError:
                told += 1

    handle = stubborn.run(grace=10).start()
    await asyncio.sleep(0.1)
    for mode in modes:
        handle.cancel(mode=CancelMode(mode))
        await asyncio.sleep(1)
    await handle.finished()
    is_over = True
    assert told == 1 + REPEATS + 1, "at the cut, in the second half of the grace, and at its end"


@virtual
async def test_a_run_that_has_ended_leaves_no_timer_on_its_loop() -> None:
    """Each would keep the run, and its conversation, until its grace would have been over."""
    loop: Any = asyncio.get_running_loop()
    before = list(loop._scheduled)
    handle = patient.run(timeout=3_600, grace=60).start()
    await asyncio.sleep(0.1)
    handle.cancel()
    assert (await handle.finished()).is_cancelled
    assert [timer for timer in loop._scheduled if timer not in before and not timer.cancelled()] == []


@virtual
async def test_a_turn_that_is_overtaken_before_it_asks_is_told_as_stopped() -> None:
    """Its input was said all the same: the next turn must not take both inputs for one."""
    run = patient.run("first", session=Sessions().session("s")).start()
    await asyncio.sleep(0.1)
    run.cancel(reason=CancelReason.SUPERSEDED)
    said = (await run.finished()).messages
    assert [(message.role, message.text, message.interrupted) for message in said] == [
        ("user", "first", False),
        ("assistant", "", True),
    ]


@virtual
async def test_a_stopped_run_that_is_rolled_back_gives_back_the_state_that_it_began_with() -> None:
    class Changes(Runnable[None]):
        name = "changes"

        def check_state(self, state: Any) -> Any:
            return state

        async def execute(self, ctx: RunContext) -> None:
            ctx.keep("after")
            await asyncio.sleep(1_000)

    run = Changes().run(keep="rollback", state="before").start()
    await asyncio.sleep(0.1)
    run.cancel()
    assert (await run.finished()).state == "before"


@virtual
async def test_a_stop_holds_though_children_end_while_they_are_looked_through(monkeypatch: pytest.MonkeyPatch) -> None:
    """A garbage collector may let go of a child's handle at any step, and its end leaves the table of children."""

    @runnable
    async def parent(ctx: RunContext) -> None:
        children.extend(ctx.start(patient) for _ in range(2))
        await asyncio.sleep(1_000)

    @runnable
    async def quick(ctx: Any) -> None: ...

    children: list[Run[Any]] = []
    run = parent.run().start()
    ended = quick.run().start()
    await asyncio.sleep(0.1)
    family = run._execution.children
    family[ended.id] = ended._execution  # as if it ended only now
    is_spared = Execution.is_spared

    def one_ends(child: Execution, mode: CancelMode) -> bool:
        family.pop(ended.id, None)
        return is_spared(child, mode)

    monkeypatch.setattr(Execution, "is_spared", one_ends)
    assert run.cancel()
    assert (await run.finished()).is_cancelled
    assert [child.status for child in children] == [RunStatus.CANCELLED] * 2
