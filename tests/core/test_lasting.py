"""What the end of a loop waits for: it ends whole, with the generators that it is in the middle of."""

from __future__ import annotations

import asyncio
import contextvars
from collections.abc import AsyncGenerator, Callable, Coroutine
from contextlib import asynccontextmanager
from typing import Any

import pytest
import uvloop

from halter import RunContext, runnable
from halter.core.home import home_here
from halter.core.lasting import LastingTask

LOOPS = {"asyncio": asyncio.run, "uvloop": uvloop.run}


@pytest.fixture(params=LOOPS)
def run_on(request: pytest.FixtureRequest) -> Callable[[Coroutine[Any, Any, Any]], Any]:
    return LOOPS[request.param]


@asynccontextmanager
async def connection(log: list[str]) -> AsyncGenerator[None]:
    """As a socket or a transaction: an async generator while it is open."""
    await asyncio.sleep(0.01)
    try:
        yield
        log.append("done")
    except BaseException as error:
        log.append(type(error).__name__)
        raise


def in_background(log: list[str], seconds: float, **options: Any) -> Coroutine[Any, Any, None]:
    @runnable
    async def work(ctx: RunContext) -> None:
        async with connection(log):
            await asyncio.sleep(seconds)

    @runnable
    async def starter(ctx: RunContext) -> str:
        return ctx.start_in_background(work, **options)

    async def main() -> None:
        await starter.run()

    return main()


def test_what_runs_in_the_background_ends_whole(run_on: Callable[..., Any]) -> None:
    log: list[str] = []
    run_on(in_background(log, 0.05))
    assert log == ["done"]


def test_what_takes_longer_than_its_grace_is_stopped(run_on: Callable[..., Any]) -> None:
    log: list[str] = []
    run_on(in_background(log, 60.0, grace=0.05))
    assert log == ["CancelledError"]


def test_the_loops_own_work_ends_whole(run_on: Callable[..., Any]) -> None:
    log: list[str] = []

    async def work() -> None:
        async with connection(log):
            await asyncio.sleep(0.05)

    async def main() -> None:
        home_here().work(work(), "test")

    run_on(main())
    assert log == ["done"]


@pytest.mark.virtual_time
async def test_a_cancel_only_asks_until_it_is_meant() -> None:
    asked: list[object] = []
    is_stopped: list[bool] = []
    task = LastingTask(
        asyncio.sleep(60, "slept"),
        asked=asked.append,
        is_stopped=lambda: bool(is_stopped),
        loop=asyncio.get_running_loop(),
        name="lasting",
        context=contextvars.copy_context(),
    )
    await asyncio.sleep(1)
    assert not task.cancel()
    assert asked == [task]
    assert task in asyncio.all_tasks()
    is_stopped.append(True)
    assert task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


@pytest.mark.virtual_time
async def test_a_shutdown_waits_for_work_that_is_under_way_and_ends_what_hangs() -> None:
    log: list[str] = []

    async def work(name: str, seconds: float) -> None:
        async with connection(log):
            await asyncio.sleep(seconds)

    home_here().work(work("quick", 1.0), "quick")
    home_here().work(work("hangs", 60.0), "hangs")
    await home_here().shut_down()
    assert log == ["done", "CancelledError"]
