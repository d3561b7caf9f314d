"""Who owns a run: cancelling an owner stops it, observers never do, and the very same exception goes on."""

# ruff: noqa: PT012, PT031  # the whole block is what must raise or warn

from __future__ import annotations

import asyncio
import gc
import time
import warnings
from typing import Any

import anyio
import pytest

from halter import Agent, CancelReason, Run, RunStatus, runnable, runtime
from halter.core.reader import TEARDOWN_PATIENCE
from halter.testing import Sweep, cancel_sweep

from ..bounds import T, assert_within

virtual = pytest.mark.virtual_time


@runnable
async def patient(ctx: Any) -> str:
    for number in range(10):
        ctx.text(f"{number} ")
        await asyncio.sleep(1)
    return "done"


@runnable
async def slow_to_end(ctx: Any) -> None:
    try:
        await asyncio.sleep(100)
    finally:
        await asyncio.sleep(2)


def reason_of(handle: Run[Any]) -> CancelReason | None:
    return handle.outcome.cancellation.reason if handle.outcome and handle.outcome.cancellation else None


async def _await(handle: Run[Any]) -> None:
    await handle


async def _wait(handle: Run[Any]) -> None:
    await handle.wait()


async def _for(handle: Run[Any]) -> None:
    async for _ in handle:
        pass


async def _text(handle: Run[Any]) -> None:
    async for _ in handle.text_stream():
        pass


async def _scope(handle: Run[Any]) -> None:
    async with handle:
        await asyncio.sleep(100)


async def _loop_body(handle: Run[Any]) -> None:
    async for _ in handle:
        await asyncio.sleep(100)


async def _events(handle: Run[Any]) -> None:
    async for _ in handle.events():
        pass


async def _finished(handle: Run[Any]) -> None:
    await handle.finished()


OWNING = [_await, _wait, _for, _text, _scope, _loop_body]
OBSERVING = [_events, _finished]


@pytest.mark.scenario("B20", "B22")
@pytest.mark.parametrize("use", OWNING)
@virtual
async def test_an_owner_that_is_cancelled_stops_its_run(use: Any) -> None:
    """What a web server does when its client is gone is the same as an explicit cancel; the history is sealed."""
    handle = patient.run()
    task = asyncio.create_task(use(handle))
    await asyncio.sleep(2.5)
    task.cancel("the client is gone")
    await asyncio.wait([task])
    assert task.cancelled()
    assert task.cancelling() == 1  # nobody called `uncancel()`
    await handle.finished()
    assert asyncio.get_running_loop().time() == 2.5
    assert reason_of(handle) is CancelReason.CALLER_CANCELLED
    assert handle.outcome is not None
    assert handle.outcome.messages[-1].interrupted
    assert handle.outcome.messages[-1].text == "0 1 2 "


@pytest.mark.scenario("B20", "B22")
@pytest.mark.parametrize("use", OWNING)
@virtual
async def test_the_very_same_exception_goes_on(use: Any) -> None:
    """Not a new one, nothing chained to it: what the outer scope put in comes out."""
    handle = patient.run()
    seen: list[BaseException] = []

    async def catch() -> None:
        try:
            await use(handle)
        except asyncio.CancelledError as error:
            seen.append(error)
            raise

    task = asyncio.create_task(catch())
    await asyncio.sleep(1.5)
    task.cancel("marker")
    with pytest.raises(asyncio.CancelledError):
        await task
    assert seen[0].args == ("marker",)
    await handle.finished()


@pytest.mark.scenario("B20")
@pytest.mark.parametrize("use", OBSERVING)
@virtual
async def test_an_observer_that_is_cancelled_stops_nothing(use: Any) -> None:
    """A secondary reader may come and go."""
    handle = patient.run().start()
    task = asyncio.create_task(use(handle))
    await asyncio.sleep(2.5)
    task.cancel()
    await asyncio.wait([task])
    assert task.cancelled()
    assert handle.status is RunStatus.RUNNING
    assert (await handle).output == "done"


@pytest.mark.scenario("B20")
@pytest.mark.parametrize("use", [_await, _for, _scope])
@virtual
async def test_a_cancelled_owner_waits_for_the_teardown_once_and_briefly(use: Any) -> None:
    """A quarter of a second at most; the run goes on ending without it."""
    handle = slow_to_end.run()
    task = asyncio.create_task(use(handle))
    await asyncio.sleep(1)
    task.cancel()
    await asyncio.wait([task])
    assert asyncio.get_running_loop().time() == 1 + TEARDOWN_PATIENCE
    assert handle.status is RunStatus.CANCELLING
    await handle.finished()
    assert asyncio.get_running_loop().time() == 3


@pytest.mark.scenario("B20")
@virtual
async def test_a_second_cancel_ends_the_owners_wait_at_once() -> None:
    """A scope that is cancelled delivers again and again: no busy loop, no delay."""
    handle = slow_to_end.run()
    seen: list[BaseException] = []

    async def catch() -> None:
        try:
            await handle
        except asyncio.CancelledError as error:
            seen.append(error)
            raise

    task = asyncio.create_task(catch())
    await asyncio.sleep(1)
    task.cancel("first")
    await asyncio.sleep(0.1)
    task.cancel("second")
    await asyncio.wait([task])
    assert asyncio.get_running_loop().time() == 1.1
    assert [error.args for error in seen] == [("first",)]  # the first one goes on, not the second
    await handle.finished()


@pytest.mark.scenario("B20")
@virtual
async def test_wait_for_stops_the_run_and_raises_its_own_time_out() -> None:
    """A plain `TimeoutError` of asyncio's, at its time."""
    handle = patient.run()
    with pytest.raises(TimeoutError) as caught:
        await asyncio.wait_for(handle, 3)
    assert type(caught.value) is TimeoutError
    assert asyncio.get_running_loop().time() == 3
    assert reason_of(handle) is CancelReason.CALLER_CANCELLED


@pytest.mark.scenario("B20")
@virtual
async def test_asyncio_timeout_around_a_run_stops_it() -> None:
    """`asyncio.timeout` sees its own CancelledError again, and turns it into its TimeoutError."""
    handle = patient.run()
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(3):
            async with handle:
                async for _ in handle:
                    pass
    task = asyncio.current_task()
    assert task is not None
    assert task.cancelling() == 0
    assert reason_of(handle) is CancelReason.CALLER_CANCELLED


@pytest.mark.scenario("B20")
@virtual
async def test_a_task_group_whose_sibling_fails_stops_the_run_and_raises_the_siblings_error() -> None:
    """Nothing of ours is in the group's exceptions."""
    handle = patient.run()

    async def fails() -> None:
        await asyncio.sleep(2)
        raise ValueError("the sibling")

    with pytest.raises(ExceptionGroup) as caught:
        async with asyncio.TaskGroup() as group:
            group.create_task(handle.wait())
            group.create_task(fails())
    assert [str(error) for error in caught.value.exceptions] == ["the sibling"]
    assert asyncio.get_running_loop().time() == 2
    assert reason_of(handle) is CancelReason.CALLER_CANCELLED


@pytest.mark.scenario("B20")
@pytest.mark.parametrize("use", [_await, _for, _scope])
@pytest.mark.loops
async def test_an_anyio_scope_around_a_run_gets_its_time_out_soon_and_without_a_busy_loop(use: Any) -> None:
    """It re-delivers its cancel to whoever still awaits; the very exception of the scope comes out."""
    handle = slow_to_end_really.run()
    began, used = time.monotonic(), time.process_time()
    with pytest.raises(TimeoutError):
        with anyio.fail_after(0.05):
            await use(handle)
    assert_within(0.05 + 2 * T, time.monotonic() - began)
    await handle.finished()
    assert_within(T, time.process_time() - used, "waiting, in processor time,")
    assert reason_of(handle) is CancelReason.CALLER_CANCELLED


@runnable
async def slow_to_end_really(ctx: Any) -> None:
    try:
        await asyncio.sleep(100)
    finally:
        await asyncio.sleep(0.05)


def test_cancelling_an_owner_at_any_step_leaves_nothing_behind() -> None:
    """Each owning use, swept: the run has one end, and it is over soon after its owner."""
    for use in (*OWNING, *OBSERVING):

        async def scenario(use: Any = use) -> RunStatus:
            handle = short.run()
            try:
                await use(handle)
            finally:
                if not handle.is_done:
                    handle.cancel()
                    await handle.finished()
            return handle.status

        assert cancel_sweep(scenario, settle=1) > 3


@runnable
async def short(ctx: Any) -> str:
    ctx.text("a")
    await asyncio.sleep(0.1)
    ctx.text("b")
    return "ab"


# -- leaving


@pytest.mark.scenario("B21")
@virtual
async def test_a_break_inside_async_with_stops_the_run_on_exit() -> None:
    """With `scope_exited`; leaving waits for its end and raises nothing."""
    async with patient.run() as handle:
        async for event in handle:
            if event.type == "text.delta":
                break
        assert not handle.is_cancelling
    assert handle.is_done
    assert reason_of(handle) is CancelReason.SCOPE_EXITED


@virtual
async def test_an_exception_in_the_block_goes_on_and_the_run_is_stopped() -> None:
    """Nothing of ours is raised in its place."""
    handle = patient.run()
    with pytest.raises(ValueError, match="in the block"):
        async with handle:
            await asyncio.sleep(1)
            raise ValueError("in the block")
    assert reason_of(handle) is CancelReason.SCOPE_EXITED


@virtual
async def test_leaving_after_the_end_changes_nothing() -> None:
    """A run that has ended, well or badly, keeps its outcome."""
    async with patient.run() as handle:
        await handle
    assert handle.is_completed


@pytest.mark.scenario("B21")
@virtual
async def test_a_break_without_async_with_stops_the_run_when_its_handle_is_dropped() -> None:
    """`handle_dropped`, and a ResourceWarning that names `detach()`."""
    with pytest.warns(ResourceWarning, match=r"detach\(\)"):
        async for event in patient.run(id="dropped"):
            if event.type == "text.delta":
                break
        observed = runtime().find("dropped")
        assert observed is not None
        gc.collect()
        result = await observed.finished()
    assert result.cancellation is not None
    assert result.cancellation.reason is CancelReason.HANDLE_DROPPED
    assert asyncio.get_running_loop().time() == 0


@pytest.mark.scenario("B21")
@virtual
async def test_a_dropped_run_is_stopped_where_warnings_are_errors_too() -> None:
    """A warning that raises must not get in the way of the stop; it is reported to the loop."""
    reported: list[Any] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: reported.append(context["exception"]))
    with warnings.catch_warnings():
        warnings.simplefilter("error", ResourceWarning)
        patient.run(id="dropped").start()
        gc.collect()
        observed = runtime().find("dropped")
        assert observed is not None
        result = await observed.finished()
        await asyncio.sleep(0)
    assert result.cancellation is not None
    assert result.cancellation.reason is CancelReason.HANDLE_DROPPED
    assert [type(error) for error in reported] == [ResourceWarning]
    assert asyncio.get_running_loop().time() == 0


@pytest.mark.scenario("B21")
@virtual
async def test_a_detached_run_completes_without_its_handle() -> None:
    """And can be found by its id."""
    id = patient.run().detach()
    gc.collect()
    await asyncio.sleep(5)
    found = runtime().find(id)
    assert found is not None
    assert (found.id, found.status) == (id, RunStatus.RUNNING)
    assert (await found.finished()).output == "done"
    assert runtime().find(id) is None


@pytest.mark.scenario("B21")
@pytest.mark.parametrize("use", [_for, _text, _loop_body])
@virtual
async def test_a_detached_run_is_not_stopped_by_the_task_that_had_read_it(use: Any) -> None:
    """Read, detach, and be cancelled: nobody owns it any more, and it completes."""
    handle = patient.run()
    task = asyncio.create_task(use(handle))
    await asyncio.sleep(2.5)
    handle.detach()
    task.cancel()
    await asyncio.wait([task])
    await asyncio.sleep(1)
    assert handle.status is RunStatus.RUNNING
    assert (await handle).output == "done"


@pytest.mark.scenario("B21")
@virtual
async def test_a_run_that_is_awaited_after_a_break_completes_however_long_the_rest_is() -> None:
    """The reader that stopped would hold it back; whoever waits for the end lifts that."""

    @runnable
    async def long(ctx: Any) -> int:
        for number in range(5_000):
            ctx.text(f"{number} ")
            await ctx.drain()
            await asyncio.sleep(0)
        return number

    handle = long.run()
    reader = aiter(handle)
    async for _ in reader:
        break
    assert (await handle).output == 4_999
    assert reader is not None


@pytest.mark.scenario("B21")
@virtual
async def test_a_child_that_is_awaited_after_a_break_inside_the_tree_completes_too() -> None:
    """The parent has read a little of its child and then waits for it: a reader inside must not hold it for ever."""

    @runnable
    async def long(ctx: Any) -> int:
        for number in range(5_000):
            ctx.text(f"{number} ")
            await ctx.drain()
        return number

    @runnable
    async def body(ctx: Any) -> int:
        child = ctx.start(long)
        reader = aiter(child)
        await anext(reader)
        other = child.events()
        await anext(other)
        result = await child
        assert reader.__class__ is other.__class__  # both are kept
        return result.output

    events = [event async for event in body.run()]  # a reader outside that keeps up, and waits for no end
    assert events[-1].output == 4_999  # pyright: ignore


@virtual
async def test_handles_of_a_body_and_of_the_runtime_do_not_own() -> None:
    """`ctx.run`, `current_run()`, `find()`: dropping one, or cancelling a use of it, stops nothing."""
    handle = patient.run(id="watched").start()
    found = runtime().find("watched")
    assert found is not None
    task = asyncio.create_task(found.wait())
    await asyncio.sleep(1.5)
    task.cancel()
    await asyncio.wait([task])
    del found, task
    gc.collect()
    assert (await handle).output == "done"


@virtual
async def test_a_child_may_be_dropped_by_its_parent() -> None:
    """`ctx.start` leaves it to the parent's end; no warning."""

    @runnable
    async def body(ctx: Any) -> str:
        ctx.start(patient)
        gc.collect()
        await asyncio.sleep(20)
        return "done"

    handle = body.run()
    await handle
    ended = [event.type async for event in handle.events() if event.is_terminal]
    assert ended == ["run.completed", "run.completed"]


def test_a_stop_while_a_scope_is_left_is_swept() -> None:
    """`async with` and an explicit stop at every step: one end, and the block's own result."""

    async def scenario(sweep: Sweep) -> RunStatus:
        handle = Agent("scripted:one two three").run("hi")
        sweep.cancel = handle.cancel
        async with handle:
            async for _ in handle.text_stream():
                pass
        return handle.status

    seen = set()
    cancel_sweep(scenario, check=lambda outcome: seen.add(outcome.result))
    assert seen == {RunStatus.CANCELLED, RunStatus.COMPLETED}
