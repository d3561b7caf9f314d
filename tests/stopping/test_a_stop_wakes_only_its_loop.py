"""K105: a stop wakes only the loop that it concerns, and costs no more than cancelling a loop written by hand."""

from __future__ import annotations

import asyncio
import json
import os
import threading
import time
from collections.abc import Callable, Collection, Generator
from contextlib import contextmanager
from pathlib import Path
from statistics import median

import aiohttp
import pytest

from halter import Agent
from halter.core import watchdog
from halter.models.openai import OpenAIChat
from halter.testing.wire_probe import WireProbe

from ..bounds import assert_within

TASKS = Path("/proc/self/task")


def wake_ups(ignored: Collection[str] = ()) -> dict[str, int]:
    """How often each thread but this one has gone to sleep so far, by its id in the kernel."""
    here = str(threading.get_native_id())
    return {task.name: _sleeps(task) for task in TASKS.iterdir() if task.name not in {here, *ignored}}


def _sleeps(task: Path) -> int:
    lines = (task / "status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("voluntary_ctxt_switches"))


async def stop_one(agent: Agent[str]) -> None:
    run = agent.run("go").start()
    async for _ in run.text_stream():
        break
    run.cancel()
    assert (await run.finished()).is_cancelled


@pytest.mark.scenario("K105")
@pytest.mark.loops
@pytest.mark.skipif(not TASKS.exists(), reason="counts wake-ups in /proc")
async def test_a_hundred_stops_wake_no_other_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    """With a watchdog that looks by itself every ten seconds: no thread wakes up, neither it nor another."""
    others = set(wake_ups())
    monkeypatch.setattr(watchdog, "PERIOD", 10)
    monkeypatch.setattr(watchdog, "_watchdog", watchdog._Watchdog())
    agent = Agent("scripted:one two three")
    await stop_one(agent)
    await asyncio.sleep(0.02)  # the new watchdog is asleep
    before = wake_ups(ignored=others)
    assert before, "the watchdog's thread is among them"
    for _ in range(100):
        await stop_one(agent)
    assert wake_ups(ignored=others) == before


BODY = json.dumps({"model": "m", "stream": True, "messages": [{"role": "user", "content": "go"}]}).encode()


Reader = Callable[[str, list[str]], tuple["asyncio.Task[None]", Callable[[], object]]]


def by_hand(session: aiohttp.ClientSession) -> Reader:
    """The loop that people write: it is stopped by cancelling the task that reads."""

    async def read(url: str, texts: list[str]) -> None:
        async with session.post(f"{url}/chat/completions", data=BODY) as response:
            async for line in response.content:
                if line.startswith(b"data: {"):
                    texts.append(json.loads(line[6:])["choices"][0]["delta"].get("content") or "")

    def start(url: str, texts: list[str]) -> tuple[asyncio.Task[None], Callable[[], object]]:
        task = asyncio.create_task(read(url, texts))
        return task, task.cancel

    return start


def with_halter(url: str, texts: list[str]) -> tuple[asyncio.Task[None], Callable[[], object]]:
    run = Agent(OpenAIChat("m", base_url=url, api_key="")).run("go")

    async def read() -> None:
        async for text in run.text_stream():
            texts.append(text)

    return asyncio.create_task(read()), run.cancel


@contextmanager
def apart(provider: int) -> Generator[None]:
    """The provider on a core of its own: on this one it would see a close only once this process sleeps."""
    cores = os.sched_getaffinity(0)
    mine, *others = sorted(cores)
    if others:
        os.sched_setaffinity(0, {mine})
        os.sched_setaffinity(provider, set(others))
    try:
        yield
    finally:
        os.sched_setaffinity(0, cores)
        os.sched_setaffinity(provider, cores)


async def stopped_after(start: Reader, probe: WireProbe, tag: str) -> float:
    """Milliseconds from just before the cancel to the provider seeing the close."""
    texts: list[str] = []
    reading, cancel = start(probe.wire.url("steady(10000,5)", tag=tag), texts)
    while len(texts) < 2:  # noqa: ASYNC110 - neither of the two could signal it
        await asyncio.sleep(0.002)
    asked = time.monotonic()
    cancel()
    await asyncio.wait([reading])
    reading.cancelled() or reading.exception()
    [record] = await probe.wire.awaited("closed", tag=tag)
    assert record.closed_at is not None
    return (record.closed_at - asked) * 1e3


@pytest.mark.scenario("K105")
@pytest.mark.skipif(not TASKS.exists(), reason="gives each process a core of its own")
def test_on_asyncio_the_median_stop_is_within_one_point_three_of_a_loop_by_hand(wire: WireProbe) -> None:
    """Forty of each in turn, on asyncio's own loop: both are measured in the same minute."""

    async def main() -> tuple[list[float], list[float]]:
        ours, theirs = [], []
        async with aiohttp.ClientSession() as session:
            for number in range(40):
                theirs.append(await stopped_after(by_hand(session), wire, f"hand{number}"))
                ours.append(await stopped_after(with_halter, wire, f"halter{number}"))
        return ours[5:], theirs[5:]

    with apart(wire.wire.pid):
        ours, theirs = asyncio.run(main())
    assert_within(1.3, median(ours) / median(theirs), "a stop, compared with a loop by hand,")


@pytest.mark.scenario("K105")
@pytest.mark.loops
async def test_a_stop_closes_the_socket_before_its_loop_does_anything_else(wire: WireProbe) -> None:
    """`cancel()` in a task that then holds the loop up: the provider sees the close meanwhile."""
    agent = Agent(OpenAIChat("test-model", base_url=wire.url("steady(2000,5)"), api_key=""))
    run = agent.run("go").start()
    async for _ in run.text_stream():
        break
    run.cancel()
    (record,) = wire.wait("closed", timeout=2.0)  # blocks the loop
    assert (await run.finished()).is_cancelled
    assert record.closed_how != "server"
