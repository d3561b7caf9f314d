"""Runs that are started in threads of executors belong to the run that has submitted them, or a warning says so."""

from __future__ import annotations

import asyncio
import warnings
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from halter import current_run, runnable
from halter.core.threads import new_event_loop

LOOPS: list[Callable[[], asyncio.AbstractEventLoop]] = [asyncio.new_event_loop, new_event_loop]


@runnable
async def child(ctx: Any) -> str:
    ctx.text("from the child")
    return ctx.run.parent_id or "nobody"


@runnable
async def endless(ctx: Any) -> None:
    await asyncio.sleep(1_000)


def run_on(make: Callable[[], asyncio.AbstractEventLoop], main: Any) -> Any:
    with asyncio.Runner(loop_factory=make) as runner:
        return runner.run(main)


@pytest.mark.parametrize("make", LOOPS)
@pytest.mark.parametrize("is_own", [False, True])
def test_a_run_started_by_run_in_executor_is_a_child_of_the_run_that_has_called_it(make: Any, is_own: bool) -> None:
    @runnable
    async def parent(ctx: Any) -> str:
        with ThreadPoolExecutor() as own:
            loop = asyncio.get_running_loop()
            return (await loop.run_in_executor(own if is_own else None, lambda: child.run().result())).output

    async def main() -> None:
        run = parent.run()
        assert (await run).output == run.id
        assert "from the child" in [getattr(event, "text", "") async for event in run.events()]

    run_on(make, main())


@pytest.mark.parametrize("make", LOOPS)
def test_it_is_stopped_with_the_run_that_has_called_it(make: Any) -> None:
    started: list[Any] = []

    def work() -> None:
        started.append(endless.run().start())

    @runnable
    async def parent(ctx: Any) -> None:
        await asyncio.get_running_loop().run_in_executor(None, work)
        await asyncio.sleep(1_000)

    async def main() -> None:
        run = parent.run().start()
        while not started:  # noqa: ASYNC110 - a thread fills it
            await asyncio.sleep(0.001)
        await run.aclose()
        assert started[0].is_cancelled

    run_on(make, main())


@pytest.mark.parametrize("make", LOOPS)
def test_the_loop_has_its_own_method_back_when_its_runs_are_over(make: Any) -> None:
    loop = make()
    loop.run_until_complete(child.run().wait())
    loop.run_until_complete(loop.shutdown_asyncgens())
    assert "run_in_executor" not in vars(loop)
    loop.close()


def test_a_run_in_a_bare_executor_thread_beside_a_live_run_warns_with_the_line_that_mends_it() -> None:
    @runnable
    async def parent(ctx: Any) -> list[str]:
        with ThreadPoolExecutor(1) as pool:
            with pytest.warns(RuntimeWarning, match=r"bind\(fn\)"):
                outside = await asyncio.wrap_future(pool.submit(lambda: child.run().result()))
            bound = await asyncio.wrap_future(pool.submit(current_run().bind(lambda: child.run().result())))
            meant = await asyncio.wrap_future(pool.submit(lambda: child.run(parent=None).result()))
        return [outside.output, bound.output, meant.output]

    run = parent.run()
    assert run.result().output == ["nobody", run.id, "nobody"]


def test_runs_in_the_threads_of_one_executor_are_neighbours_and_do_not_warn() -> None:
    with warnings.catch_warnings(), ThreadPoolExecutor(2) as server:
        warnings.simplefilter("error")
        first = server.submit(lambda: endless.run().start()).result()
        assert server.submit(lambda: child.run().result()).result().output == "nobody"
        first.close()
