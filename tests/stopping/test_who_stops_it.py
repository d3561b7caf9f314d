"""B12, B13, B20, B22 with real sockets: whoever stops it, the provider sees the close."""

from __future__ import annotations

import asyncio
import os
import signal
import threading
import time
from collections.abc import Awaitable, Callable
from typing import Any

import anyio
import pytest

from halter import CancellationToken, CancelReason, Run, cancel_on_signals, events
from halter.testing.wire_probe import WireProbe

from ..bounds import T, assert_within
from .adapters import Adapter
from .descriptors import sockets_to

OnSignal = Callable[[int, Callable[[], object]], None]


class Stopwatch:
    def __init__(self) -> None:
        self.asked = 0.0

    def __call__(self, stop: Callable[[], object]) -> None:
        self.asked = time.monotonic()
        stop()


# --- B12, B13 -----------------------------------------------------------------------------------------------


@pytest.mark.scenario("B12")
@pytest.mark.loops
@pytest.mark.parametrize("target", ["run", "token"])
async def test_a_stop_from_a_thread_wakes_an_idle_loop_and_closes_the_socket(
    wire: WireProbe, adapter: Adapter, target: str
) -> None:
    """Silence on the socket, nothing scheduled on the loop: a plain thread's `cancel()` is at the provider in time."""
    token, watch = CancellationToken(), Stopwatch()
    run = adapter.agent(wire.url("stall(1)")).run("count", cancellation=token).start()
    await wire.awaited("token")
    stop = run.cancel if target == "run" else token.cancel
    thread = threading.Timer(0.05, watch, [stop])
    thread.start()
    result = await run.finished()
    assert result.is_cancelled
    assert result.text == "t0 "
    wire.assert_closed(T, since=watch.asked)
    thread.join()


@pytest.mark.scenario("B13")
@pytest.mark.loops
@pytest.mark.parametrize("how", ["signal.signal", "cancel_on_signals"])
async def test_a_signal_on_an_idle_loop_closes_the_socket(
    wire: WireProbe, adapter: Adapter, on_signal: OnSignal, how: str
) -> None:
    """A plain handler that calls `cancel()`, and `cancel_on_signals`: the provider sees the close within 250 ms."""
    watch = Stopwatch()
    run = adapter.agent(wire.url("stall(1)")).run("count").start()
    await wire.awaited("token")
    if how == "signal.signal":
        on_signal(signal.SIGUSR1, lambda: run.cancel("by hand"))
    thread = threading.Timer(0.05, watch, [lambda: os.kill(os.getpid(), signal.SIGUSR1)])
    thread.start()
    if how == "signal.signal":
        result = await run.finished()
    else:
        with cancel_on_signals(run, signal.SIGUSR1):
            result = await run.finished()
    assert result.cancellation is not None
    assert result.cancellation.reason in (CancelReason.USER_STOP, CancelReason.SIGNAL)
    wire.assert_closed(T, since=watch.asked)
    thread.join()


@pytest.mark.scenario("B13", "B23")
def test_a_signal_in_a_blocking_loop_closes_the_socket(wire: WireProbe, adapter: Adapter, on_signal: OnSignal) -> None:
    """The main thread sits in a blocking `for` over a silent stream; a signal's handler stops it."""
    watch = Stopwatch()
    run = adapter.agent(wire.url("stall(1)")).run("count").start()
    wire.wait("token")
    on_signal(signal.SIGUSR1, lambda: run.cancel("by hand"))
    thread = threading.Timer(0.05, watch, [lambda: os.kill(os.getpid(), signal.SIGUSR1)])
    thread.start()
    log = list(run)
    assert_within(T, time.monotonic() - watch.asked)
    assert log[-1].type == "run.cancelled"
    wire.assert_closed(T, since=watch.asked)
    thread.join()


# --- B20, B22 -----------------------------------------------------------------------------------------------


async def by_wait_for(run: Run[Any], after: float) -> None:
    await asyncio.wait_for(run, after)


async def by_wait_for_over_a_reader(run: Run[Any], after: float) -> None:
    async def read() -> None:
        async for _ in run:
            pass

    await asyncio.wait_for(read(), after)


async def by_asyncio_timeout(run: Run[Any], after: float) -> None:
    async with asyncio.timeout(after), run:
        async for _ in run.text_stream():
            pass


async def by_anyio(run: Run[Any], after: float) -> None:
    with anyio.fail_after(after):
        await run


async def by_anyio_reading(run: Run[Any], after: float) -> None:
    with anyio.fail_after(after):
        async for _ in run:
            pass


@pytest.mark.scenario("B20")
@pytest.mark.loops
@pytest.mark.parametrize(
    "scope", [by_wait_for, by_wait_for_over_a_reader, by_asyncio_timeout, by_anyio, by_anyio_reading]
)
async def test_an_outer_scope_that_gives_up_closes_the_socket(
    wire: WireProbe, adapter: Adapter, scope: Callable[[Run[Any], float], Awaitable[None]]
) -> None:
    """`TimeoutError` of that very scope, in its time; the run is `caller_cancelled`, its socket gone, no busy loop."""
    before = set(sockets_to(wire.wire.port))
    run = adapter.agent(wire.url("stall(1)")).run("count").start()
    await wire.awaited("token")
    began, cpu = time.monotonic(), time.thread_time()
    with pytest.raises(TimeoutError) as caught:
        await scope(run, 0.1)
    returned = time.monotonic()
    assert type(caught.value) is TimeoutError
    assert_within(0.1 + T, returned - began)
    assert_within(0.15, time.thread_time() - cpu, "waiting, in processor time,")
    result = await run.finished()  # an anyio scope does not wait: it would deliver its cancel for ever
    assert_within(0.1 + T, time.monotonic() - began)
    assert result.cancellation is not None
    assert result.cancellation.reason is CancelReason.CALLER_CANCELLED
    assert not set(sockets_to(wire.wire.port)) - before
    wire.assert_closed(0.1 + T, since=began)
    assert len(wire.requests()) == 1


@pytest.mark.scenario("B20")
@pytest.mark.loops
async def test_a_sibling_that_fails_in_a_task_group_closes_the_socket(wire: WireProbe, adapter: Adapter) -> None:
    """The group raises the sibling's error alone, and the run's socket is gone."""
    run = adapter.agent(wire.url("stall(1)")).run("count").start()
    await wire.awaited("token")
    failed_at: list[float] = []

    async def fails() -> None:
        await asyncio.sleep(0.05)
        failed_at.append(time.monotonic())
        raise LookupError("the sibling's own")

    with pytest.raises(ExceptionGroup) as caught:  # noqa: PT012 - the group is what raises
        async with asyncio.TaskGroup() as group:
            group.create_task(run.wait())
            group.create_task(fails())
    assert [type(error) for error in caught.value.exceptions] == [LookupError]
    assert_within(T, time.monotonic() - failed_at[0])
    assert run.is_cancelled
    wire.assert_closed(T, since=failed_at[0])


@pytest.mark.scenario("B22")
@pytest.mark.loops
@pytest.mark.parametrize("where", ["awaiting", "reading", "reading text", "in a scope", "in the loop's own body"])
async def test_a_cancelled_consumer_is_the_same_as_a_stop(wire: WireProbe, adapter: Adapter, where: str) -> None:
    """What a web server does on a disconnect: the socket is closed, and the history holds what came."""
    run = adapter.agent(wire.url("stall(3)")).run("count").start()

    async def consume() -> None:
        if where == "awaiting":
            await run
        elif where == "reading":
            async for _ in run:
                pass
        elif where == "reading text":
            async for _ in run.text_stream():
                pass
        elif where == "in a scope":
            async with run:
                await asyncio.sleep(60)
        else:
            async for _ in run.text_stream():
                await asyncio.sleep(60)

    task = asyncio.create_task(consume())
    await wire.awaited("token")
    while run.text != "t0 t1 t2 ":  # noqa: ASYNC110 - another reader would change what is tested
        await asyncio.sleep(0.005)
    asked = time.monotonic()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    result = await run.finished()
    assert_within(T, time.monotonic() - asked)
    assert result.cancellation is not None
    assert result.cancellation.reason is CancelReason.CALLER_CANCELLED
    assert result.messages[-1].text == "t0 t1 t2 "
    assert result.messages[-1].interrupted
    wire.assert_closed(T, since=asked)


@pytest.mark.scenario("B20")
@pytest.mark.loops
async def test_a_cancelled_observer_stops_nothing(wire: WireProbe, adapter: Adapter) -> None:
    """A second reader, by `events()`, is cancelled; the run completes, every token of it."""
    run = adapter.agent(wire.url("steady(50,2)")).run("count").start()

    async def observe() -> None:
        async for _ in run.events():
            pass

    task = asyncio.create_task(observe())
    await wire.awaited("token")
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert (await run).text == "".join(f"t{index} " for index in range(50))
    (record,) = wire.requests()
    assert record.finished_at is not None


# --- a thread needs no loop ----------------------------------------------------------------------------------


@pytest.mark.scenario("B12")
@pytest.mark.loops
async def test_a_stop_from_a_thread_closes_the_socket_while_the_loop_is_busy(wire: WireProbe, adapter: Adapter) -> None:
    """The loop stands still in somebody's callback: the provider sees the close during that time, not after it."""
    run = adapter.agent(wire.url("stall(1)")).run("count").start()
    await wire.awaited("token")
    seen = threading.Event()

    def stop_and_look() -> None:
        run.cancel()
        wire.wait("closed")
        seen.set()

    thread = threading.Thread(target=stop_and_look)
    thread.start()
    assert seen.wait(10), "the provider saw no close while the loop stood still"
    result = await run.finished()
    thread.join()
    assert result.is_cancelled
    assert result.receipt is not None
    assert result.receipt.confirmed
    assert not [event async for event in run.events() if isinstance(event, events.ModelRetry)]
