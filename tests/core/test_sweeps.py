"""The cancel sweep over every async operation: at each step it ends, and leaves no task, reader or waker behind."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from halter import CancellationToken, CancelReason, Run, RunCancelled, RunStatus, events, runnable, runtime
from halter.core.home import LIVE
from halter.testing import Sweep, SweepOutcome, cancel_sweep, leak_check, run

Operation = Callable[[Run[Any]], Coroutine[Any, Any, Any]]


@runnable
async def node(ctx: Any, depth: int) -> str:
    """A little of everything: text, a turn, a child, a wait."""
    ctx.text("a")
    ctx.begin_step()
    await asyncio.sleep(0.1)
    if depth < 1:
        await ctx.start(node, depth + 1)
    await ctx.drain()
    ctx.end_step()
    return "done"


async def _wait(handle: Run[Any]) -> None:
    await handle.wait()


async def _await(handle: Run[Any]) -> None:
    await handle


async def _finished(handle: Run[Any]) -> None:
    await handle.finished()


async def _aclose(handle: Run[Any]) -> None:
    handle.start()
    await asyncio.sleep(0.05)
    await handle.aclose()


async def _for(handle: Run[Any]) -> None:
    async for _ in handle:
        pass


async def _text_stream(handle: Run[Any]) -> None:
    async for _ in handle.text_stream():
        pass


async def _events(handle: Run[Any]) -> None:
    async for _ in handle.events():
        pass


async def _scope(handle: Run[Any]) -> None:
    async with handle:
        async for _ in handle:
            break


async def _closing_reader(handle: Run[Any]) -> None:
    reader = handle.events()
    await anext(reader)
    await reader.aclose()


async def _runtime_cancel(handle: Run[Any]) -> None:
    handle.start()
    await asyncio.sleep(0.05)
    await runtime().cancel(handle.id, wait=True)


async def _cancel_all(handle: Run[Any]) -> None:
    handle.start()
    await asyncio.sleep(0.05)
    await runtime().cancel_all(wait=True)


async def _shutdown(handle: Run[Any]) -> None:
    handle.start()
    await runtime().shutdown()


async def _shutdown_with_grace(handle: Run[Any]) -> None:
    handle.start()
    await runtime().shutdown(grace=0.15)


OPERATIONS: list[Operation] = [
    _wait,
    _await,
    _finished,
    _aclose,
    _for,
    _text_stream,
    _events,
    _scope,
    _closing_reader,
    _runtime_cancel,
    _cancel_all,
    _shutdown,
    _shutdown_with_grace,
]


def _check_end(handle: Run[Any]) -> None:
    execution = handle._execution
    assert handle.is_done
    assert not execution.done.waiting
    assert not execution.log.arrived.waiting
    assert not execution.log.resumed.waiting
    assert not execution.on_done
    assert not execution.log._lifts
    assert not LIVE


@pytest.mark.scenario("I82")
@pytest.mark.parametrize("operation", OPERATIONS)
def test_whoever_uses_a_run_may_be_cancelled_at_any_step(operation: Operation) -> None:
    """One terminal event; no task, no waiter, no lift of back-pressure is left."""
    handles: list[Run[Any]] = []

    async def scenario() -> None:
        handle = node.run(0)
        handles.append(handle)
        try:
            await operation(handle)
        finally:
            handle.cancel()  # what observes leaves it running, or has never started it

    def check(outcome: SweepOutcome) -> None:
        if outcome.steps == 1:
            return  # it was cancelled before it began
        handle = handles.pop()
        _check_end(handle)
        log = handle._execution.log.read(0, 1_000)
        roots = [event for event in log if event.parent_id is None]
        assert [event.is_terminal for event in roots].count(True) == 1
        assert log[-1].is_terminal

    assert cancel_sweep(scenario, check=check) > 2


@pytest.mark.scenario("I82")
@pytest.mark.parametrize("operation", OPERATIONS)
def test_the_run_itself_may_be_stopped_at_any_step_of_any_use(operation: Operation) -> None:
    """By `cancel()`: the use ends, in its own way, and leaves nothing."""
    handles: list[Run[Any]] = []

    async def scenario(sweep: Sweep) -> list[Any]:
        handle = node.run(0)
        handles.append(handle)
        sweep.cancel = handle.cancel
        with contextlib.suppress(RunCancelled):
            await operation(handle)
        await handle.finished()
        return [event async for event in handle.events()]

    def check(outcome: SweepOutcome) -> None:
        handle = handles.pop()
        _check_end(handle)
        assert outcome.result[-1].type == f"run.{handle.status}"
        assert [event.is_terminal for event in outcome.result if event.parent_id is None].count(True) == 1

    assert cancel_sweep(scenario, check=check) > 3


# -- what a body does


@runnable
async def asks(ctx: Any) -> Any:
    return await ctx.ask("well?", timeout=1)


@runnable
async def waits_for_its_token(ctx: Any) -> None:
    try:
        async with asyncio.timeout(1):
            await ctx.token.wait()
    except TimeoutError:
        pass


@runnable
async def drains(ctx: Any) -> None:
    for _ in range(1_500):
        ctx.text("x")
    async with asyncio.timeout(1):
        await ctx.drain()


@runnable
async def gives_up_asking(ctx: Any) -> None:
    try:
        async with asyncio.timeout(0.5):
            await ctx.ask("well?")
    except TimeoutError:
        pass


@pytest.mark.scenario("I82")
@pytest.mark.parametrize("body", [asks, waits_for_its_token, drains, gives_up_asking], ids=lambda body: body.name)
def test_what_a_body_waits_for_may_be_stopped_at_any_step(body: Any) -> None:
    """`ctx.ask`, `ctx.token.wait`, `ctx.drain`: requests resolved, nobody left waiting."""
    handles: list[Run[Any]] = []

    async def scenario(sweep: Sweep) -> list[Any]:
        handle = body.run()
        handles.append(handle)
        sweep.cancel = handle.cancel
        async for event in handle.events():
            if isinstance(event, events.InputRequested) and body is asks:
                asyncio.get_running_loop().call_later(0.5, _answer, handle, event.request_id)
        return [event async for event in handle.events()]

    def check(outcome: SweepOutcome) -> None:
        handle = handles.pop()
        _check_end(handle)
        assert not handle._execution.inputs
        assert not handle._execution.token._listeners
        asked = [event.request_id for event in outcome.result if isinstance(event, events.InputRequested)]
        received = [event.request_id for event in outcome.result if isinstance(event, events.InputReceived)]
        assert asked == received

    assert cancel_sweep(scenario, check=check) > 3


def _answer(handle: Run[Any], request_id: str) -> None:
    if not handle.is_done and request_id in handle._execution.inputs:
        handle.answer(request_id, "yes")


@pytest.mark.scenario("I82")
def test_waiting_for_a_token_may_be_cancelled_at_any_step() -> None:
    """Neither it nor its parents keep a registration."""
    trees: list[tuple[CancellationToken, CancellationToken]] = []

    async def scenario() -> None:
        root = CancellationToken()
        child = CancellationToken.any(root, CancellationToken())
        trees.append((root, child))
        asyncio.get_running_loop().call_later(1, root.cancel)
        await child.wait()

    def check(_: SweepOutcome) -> None:
        for token in trees.pop() if trees else ():
            assert not token._listeners
            assert not token._waiting.waiting

    assert cancel_sweep(scenario, check=check) >= 2


@pytest.mark.scenario("I82")
def test_a_wait_for_a_thread_may_be_cancelled_and_the_run_ends() -> None:
    """`ctx.in_thread`, with real threads: at various moments; the thread is let go of and ends by itself."""
    import time

    @runnable
    async def body(ctx: Any) -> str:
        def work() -> str:
            until = time.monotonic() + 0.04
            while time.monotonic() < until and not ctx.token.is_cancelled:
                time.sleep(0.001)
            return "done"

        return await ctx.in_thread(work)

    async def stop_after(seconds: float) -> RunStatus:
        handle = body.run().start()
        await asyncio.sleep(seconds)
        handle.cancel()
        result = await handle.finished()
        if result.is_cancelled:
            assert result.receipt is not None
            assert result.receipt.confirmed, str(result.receipt)  # it polls its token: gone within its 100 ms
        return result.status

    with leak_check(warmup=lambda: asyncio.run(stop_after(0))):
        seen = {asyncio.run(stop_after(number * 0.003)) for number in range(17)}
    assert RunStatus.CANCELLED in seen


# -- the runtime


@pytest.mark.virtual_time
async def test_the_runtime_finds_lists_and_stops_by_id_tag_and_status() -> None:
    """Live runs only; a stop by tag reaches children too and says whom it stopped."""

    @runnable
    async def sleeper(ctx: Any) -> None:
        await asyncio.sleep(100)

    @runnable
    async def asking(ctx: Any) -> None:
        await ctx.ask("well?")

    here = runtime()
    red, blue, waiting = sleeper.run(tags=["red"]), sleeper.run(tags="blue"), asking.run(id="waiting")
    assert here.find(red.id) is None  # not started
    for handle in (red, blue, waiting):
        handle.start()
    await asyncio.sleep(1)
    assert [handle.id for handle in here.runs()] == [red.id, blue.id, "waiting"]
    assert [handle.id for handle in here.runs(tag="red")] == [red.id]
    assert [handle.id for handle in here.runs(status=RunStatus.WAITING)] == ["waiting"]
    assert await here.cancel("nobody") is False
    assert await here.cancel("waiting", "by id", reason=CancelReason.ADMIN, wait=True) is True
    assert waiting.why().startswith("It was stopped: admin (by id)")
    assert await here.cancel_all(tag="blue", wait=True) == [blue.id]
    assert (red.is_done, blue.is_done) == (False, True)
    assert await here.cancel_all(wait=True) == [red.id]
    assert here.runs() == []
    assert await here.cancel_all() == []


@pytest.mark.virtual_time
async def test_shutdown_gives_the_grace_then_stops_all_at_once() -> None:
    """Who ends in time completes; the others are stopped together, each with its own grace, and the loop works on."""

    @runnable
    async def sleeper(ctx: Any, seconds: float) -> str:
        try:
            await asyncio.sleep(seconds)
        finally:
            await asyncio.sleep(2)
        return "done"

    quick = sleeper.run(1).start()
    slow = [sleeper.run(100).start() for _ in range(5)]
    await runtime().shutdown(grace=5)
    assert quick.is_completed
    for handle in slow:
        assert handle.outcome is not None
        assert handle.outcome.cancellation is not None
        assert handle.outcome.cancellation.reason is CancelReason.SHUTDOWN
    assert asyncio.get_running_loop().time() == 7  # 5 of grace, 2 for all the clean-ups together
    assert (await sleeper.run(1)).output == "done"
    assert len(asyncio.all_tasks()) == 1


@pytest.mark.virtual_time
async def test_shutdown_stops_roots_and_their_children_with_them() -> None:
    """A child is stopped by its parent's stop: reason `parent_cancelled`."""

    @runnable
    async def leaf(ctx: Any) -> None:
        await asyncio.sleep(100)

    @runnable
    async def body(ctx: Any) -> None:
        await ctx.start(leaf)

    handle = body.run().start()
    await asyncio.sleep(1)
    await runtime().shutdown()
    ends = [(e.reason, e.parent_id) async for e in handle.events() if isinstance(e, events.Cancelled)]
    assert ends == [("parent_cancelled", handle.id), ("shutdown", None)]


def test_what_is_kept_for_a_loop_is_closed_once_at_shutdown_or_with_the_loop() -> None:
    """A pool: closed by `shutdown()`; one made afterwards is closed when the loop ends."""
    closed: list[str] = []

    async def close(name: str) -> None:
        closed.append(name)

    async def main() -> None:
        from halter.core.home import home_here

        home_here().at_close(lambda: close("first"), lost=lambda: None)
        await runtime().shutdown()
        assert closed == ["first"]
        home_here().at_close(lambda: close("second"), lost=lambda: None)
        assert closed == ["first"]

    run(main)
    assert closed == ["first", "second"]
