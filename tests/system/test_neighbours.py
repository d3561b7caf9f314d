"""Around a run: eager tasks, debug mode, a user's `TaskGroup`, an anyio scope, a time-out."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Any

import anyio
import pytest

from halter import Agent, CancelReason, RunContext, RunStatus, runnable

from ..bounds import T, assert_within

AGENT = Agent("scripted:" + "word " * 20)


@runnable
async def stalls(ctx: RunContext) -> None:
    ctx.text("word ")
    try:
        await asyncio.Event().wait()
    finally:
        await asyncio.sleep(0.01)


EAGER = """
    import asyncio, sys
    from halter import Agent, runnable

    seen = []
    agent = Agent("scripted:one two three")

    @runnable
    async def stalls(ctx):
        ctx.text("word ")
        try:
            await asyncio.Event().wait()
        finally:
            await asyncio.sleep(0.01)
            seen.append("tidied")

    @runnable
    async def body(ctx):
        child = ctx.start(agent, "?")
        seen.append(await ctx.in_thread(lambda: 1 + 1))
        async with asyncio.TaskGroup() as group:
            group.create_task(asyncio.sleep(0.001))
        return (await child).text

    async def main():
        asyncio.get_running_loop().set_task_factory(asyncio.eager_task_factory)
        run = body.run()
        assert not run.is_done
        print((await run).output)
        events = [event async for event in run.events()]
        assert [event.seq for event in events] == list(range(1, len(events) + 1))
        texts = await asyncio.create_task(read())
        print(texts)
        run = stalls.run()
        waiting = asyncio.create_task(run.wait())
        async for _ in run.events():
            if run.text:
                run.cancel()
        print(run.outcome.status, run.outcome.receipt.confirmed, seen)
        await asyncio.gather(waiting, return_exceptions=True)
        async with agent.run("?") as run:
            async for text in run.text_stream():
                break
        print(run.outcome.status in ("cancelled", "completed"))
        try:
            async with asyncio.timeout(0.05):
                await stalls.run()
        except TimeoutError:
            print("timed out")

    async def read():
        return [text async for text in agent.run("?").text_stream()]

    asyncio.run(main())
"""


@pytest.mark.parametrize("version", ["3.12", "3.13"])
def test_runs_under_an_eager_task_factory(script: Any, newer: Any, version: str) -> None:
    """Tasks that start at once, inside `create_task`: runs, readers, children, threads and stops work the same."""
    ended = script(EAGER, python=newer(version), flags=("-X", "dev"))
    assert ended.quietly().splitlines() == [
        "one two three",
        "['one ', 'two ', 'three']",
        "cancelled True [2, 'tidied']",
        "True",
        "timed out",
    ]


def test_runs_in_debug_mode() -> None:
    """asyncio's debug mode checks threads and slow callbacks: threads, stops, readers and children pass it."""

    @runnable
    async def body(ctx: RunContext) -> str:
        child = ctx.start(AGENT, "go")
        await ctx.in_thread(lambda: [ctx.emit("note", i) for i in range(100)])
        return (await child).text

    async def main() -> None:
        run = body.run(timeout=30)
        events = [event async for event in run]
        assert sum(event.type == "custom" for event in events) == 100
        assert run.outcome.output == "word " * 20
        stopped = stalls.run().start()
        async for _ in stopped.events():
            if stopped.text:
                await asyncio.to_thread(stopped.cancel)
        assert stopped.outcome.is_cancelled
        await asyncio.to_thread(AGENT.run("?").result)

    asyncio.run(main(), debug=True)


async def until_it_shows(run: Any) -> None:
    async for _ in run.events():
        if run.text:
            return


@pytest.mark.scenario("B20")
def test_a_run_in_a_task_group_whose_sibling_fails(run_on: Callable[[Any], Any]) -> None:
    """The group's own exception leaves it, the run is over by then, with reason `caller_cancelled`."""

    async def main() -> None:
        run = stalls.run()

        async def fails() -> None:
            await until_it_shows(run)
            raise LookupError("the sibling's")

        began = time.monotonic()
        with pytest.raises(ExceptionGroup) as caught:  # noqa: PT012
            async with asyncio.TaskGroup() as group:
                group.create_task(run.wait())
                group.create_task(fails())
        assert [str(error) for error in caught.value.exceptions] == ["the sibling's"]
        assert run.outcome.cancellation.reason is CancelReason.CALLER_CANCELLED
        assert run.outcome.receipt.confirmed
        assert_within(T, time.monotonic() - began)

    run_on(main())


@pytest.mark.scenario("B20")
def test_runs_in_a_task_group_that_ends_well(run_on: Callable[[Any], Any]) -> None:
    """Ten runs as tasks of a user's group: each completes, and the group ends by itself."""

    async def main() -> None:
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(AGENT.run("?").wait()) for _ in range(10)]
        assert [task.result().text for task in tasks] == ["word " * 20] * 10

    run_on(main())


@pytest.mark.scenario("B20")
@pytest.mark.parametrize("use", ["await", "async for", "async with"])
def test_a_run_in_an_anyio_scope_that_times_out(run_on: Callable[[Any], Any], use: str) -> None:
    """`anyio.fail_after` and `move_on_after` around each owning use: theirs is the exception; no busy loop.

    Such a scope cancels again and again whoever still awaits, so that the run's clean-up may end a little after it.
    """

    async def use_it(run: Any) -> None:
        if use == "await":
            await run
        elif use == "async for":
            async for _ in run:
                pass
        else:
            async with run:
                await asyncio.sleep(30)

    async def main() -> None:
        used, began = time.process_time(), time.monotonic()
        run = stalls.run()
        with pytest.raises(TimeoutError):
            with anyio.fail_after(0.05):
                await use_it(run)
        assert run.is_cancelling or run.is_cancelled
        result = await run.finished()
        assert result.status is RunStatus.CANCELLED
        assert result.cancellation.reason is CancelReason.CALLER_CANCELLED
        assert result.receipt.confirmed
        other = stalls.run()
        with anyio.move_on_after(0.05) as scope:
            await use_it(other)
        assert scope.cancelled_caught
        assert (await other.finished()).cancellation.reason is CancelReason.CALLER_CANCELLED
        assert_within(0.1 + 2 * T, time.monotonic() - began)
        assert_within(0.2, time.process_time() - used, "waiting, in processor time,")

    run_on(main())


@pytest.mark.scenario("B20")
def test_a_run_inside_an_anyio_task_group_and_one_with_such_a_group_in_its_body(run_on: Callable[[Any], Any]) -> None:
    """Stopped, a body with an anyio group inside ends as cancelled, its tasks with it; around it, the group lives."""
    ended: list[str] = []

    @runnable
    async def with_group(ctx: RunContext) -> None:
        async def sleeps(name: str) -> None:
            try:
                await anyio.sleep(30)
            finally:
                ended.append(name)

        async with anyio.create_task_group() as group:
            group.start_soon(sleeps, "a")
            group.start_soon(sleeps, "b")
            ctx.text("word ")

    async def main() -> None:
        run = with_group.run()

        async def stop() -> None:
            await until_it_shows(run)
            await anyio.sleep(0.01)
            run.cancel()

        async with anyio.create_task_group() as group:
            group.start_soon(stop)
            result = await run.finished()
            group.cancel_scope.cancel()
        assert (result.status, result.error, sorted(ended)) == (RunStatus.CANCELLED, None, ["a", "b"])

    run_on(main())


@pytest.mark.scenario("B20")
def test_wait_for_around_a_run(run_on: Callable[[Any], Any]) -> None:
    """`asyncio.wait_for(agent.run(…), …)`: `TimeoutError` in time, and the run has been stopped."""

    async def main() -> None:
        run, began = stalls.run(), time.monotonic()
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(run, 0.05)
        assert_within(0.05 + T, time.monotonic() - began)
        assert run.outcome.cancellation.reason is CancelReason.CALLER_CANCELLED

    run_on(main())
