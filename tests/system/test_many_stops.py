"""A thousand stops at random points leave nothing behind: no task, thread, descriptor or child process."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import random
import subprocess
import time
import weakref
from collections.abc import Callable
from typing import Any

import pytest

from halter import Agent, CancellationToken, CancelMode, RunCancelled, RunContext, runnable
from halter.core import home
from halter.testing import leak_check

from ..bounds import assert_within

AGENT = Agent("scripted:" + "word " * 40)
KEPT = ("halter-watchdog", "halter-background")


@runnable
async def busy(ctx: RunContext, seed: int) -> str:
    """A bit of everything that a stop has to end."""
    held = ctx.resource("thing", "held", lambda: None)
    child = ctx.start(AGENT, "go")
    with ctx.token.on_cancel(lambda: None):
        for i in range(20):
            ctx.text(f"{i} ")
            await asyncio.sleep(0)
            if i == 5:
                await ctx.in_thread(lambda: ctx.token.is_cancelled)
            if i == 10 and seed % 50 == 0:
                async with ctx.use(Sleeper(), kind="process"):
                    await asyncio.sleep(0.001)
            if i == 15:
                async with asyncio.timeout(5), asyncio.TaskGroup() as group:
                    group.create_task(asyncio.sleep(0.001))
    await child
    held.end()
    return "done"


class Sleeper:
    """A child process, as somebody else's client."""

    def __init__(self) -> None:
        self.process = subprocess.Popen(["sleep", "60"])

    def close(self) -> None:
        self.process.kill()
        self.process.wait()


def kept_runs() -> int:
    gc.collect()
    return len(home.LIVE)


@pytest.mark.scenario("I80")
def test_five_hundred_stops_at_random_points_leave_nothing(run_on: Callable[[Any], Any]) -> None:
    """Stopped by handle, by token, by time-out, by the task's cancel, at a random tick: all is at the baseline."""
    dice = random.Random(20)
    executions: list[weakref.ref[Any]] = []

    async def one(seed: int) -> None:
        token = CancellationToken()
        run = busy.run(seed, cancellation=token, timeout=0.004 if seed % 10 == 0 else None, grace=2)
        executions.append(weakref.ref(run._execution))
        how, ticks = seed % 5, dice.randrange(60)
        waiting = asyncio.create_task(run.wait())
        for _ in range(ticks):
            await asyncio.sleep(0)
        if how == 0:
            run.cancel(mode=dice.choice(list(CancelMode)))
        elif how == 1:
            token.cancel()
        elif how == 2:
            waiting.cancel()
        elif how == 3:
            await run.aclose()
        with contextlib.suppress(RunCancelled, asyncio.CancelledError):
            await waiting
        await run.finished()
        assert run.is_done

    async def main() -> None:
        before = asyncio.all_tasks()
        for seed in range(0, 500, 20):
            await asyncio.gather(*(one(seed + i) for i in range(20)))
        await asyncio.sleep(0.01)
        assert asyncio.all_tasks() == before

    with leak_check(ignore_threads=KEPT, warmup=lambda: AGENT.run("?").result()):
        run_on(main())
    assert kept_runs() == 0
    until = time.monotonic() + 2  # the watchdog lets go of a stop a little after its end
    while (kept := [reference() for reference in executions if reference() is not None]) and time.monotonic() < until:
        del kept
        gc.collect()
        time.sleep(0.02)
    assert not kept, gc.get_referrers(kept[0])


@pytest.mark.scenario("I80")
def test_two_hundred_stops_of_blocking_runs_leave_nothing(thread: Any) -> None:
    """On the background loop, from 4 threads, each run read by a blocking loop and stopped at a random event."""
    dice = random.Random(21)

    def work(base: int) -> None:
        for seed in range(base, base + 50):
            run = busy.run(seed, grace=2)
            stop_at = dice.randrange(40)
            for i, _ in enumerate(run.events()):
                if i == stop_at:
                    run.cancel(mode=dice.choice(list(CancelMode)[1:]))
            assert run.is_done

    loop = home.home_here().loop
    with leak_check(loop, ignore_threads=KEPT, warmup=lambda: AGENT.run("?").result()):
        threads = [thread(work, base) for base in range(0, 200, 50)]
        for one in threads:
            one.join(20)
    assert kept_runs() == 0


@pytest.mark.scenario("I80")
def test_a_process_exits_at_once_after_many_stops(script: Any, loop_name: str) -> None:
    """180 stops, then the interpreter's exit: within a second, with nothing on stderr."""
    ended = script(
        """
        import asyncio, random, sys, time
        import uvloop
        from halter import Agent, runnable

        agent = Agent("scripted:" + "word " * 40)

        @runnable
        async def body(ctx):
            child = ctx.start(agent, "go")
            await ctx.in_thread(time.sleep, 0.001)
            await child

        async def one():
            run = body.run().start()
            for _ in range(random.randrange(40)):
                await asyncio.sleep(0)
            run.cancel()
            await run.finished()

        async def main():
            for _ in range(8):
                await asyncio.gather(*(one() for _ in range(20)))

        {"asyncio": asyncio.run, "uvloop": uvloop.run}[sys.argv[1]](main())
        for _ in range(20):
            body.run().start().close()
        print("ready", flush=True)
        """,
        loop_name,
        flags=("-X", "dev"),
    )
    ended.quietly()
    assert_within(1, ended.took)
