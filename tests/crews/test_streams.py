"""A crew's stream over real sockets: closed by anyone, at any time, it is the work that ends; nothing runs on."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import halter
from halter import Run, RunResult, events
from halter.crews import Crew, Task
from halter.models import OpenAIChat
from halter.testing.wire_probe import WireProbe

from ..bounds import T, assert_within
from .people import member

STEADY, QUICK = "steady(2000,5)", "steady(3,2)"
WAYS = [(who, how) for who in ("consumer", "another", "thread") for how in ("close", "cancel")]


def crew_of(wire: WireProbe, *modes: str) -> Crew:
    """A task for each of these modes of the provider."""
    models = [OpenAIChat("any", base_url=wire.url(mode), api_key="any") for mode in modes]
    return Crew([
        Task(description="On {topic}.", agent=member(f"member {at}", model), name=f"task {at}")  # pyright: ignore
        for at, model in enumerate(models)
    ])  # fmt: skip


class Closer:
    """Closes a run in one of the ways, twice, and remembers when it was asked to."""

    def __init__(self, run: Run[Any], who: str, how: str) -> None:
        self.run, self.who, self.how = run, who, how
        self.asked = 0.0
        self._beside: list[threading.Thread | asyncio.Task[Any]] = []

    async def on_loop(self) -> None:
        if self.who == "thread":
            self._in_thread()
        elif self.who == "another":
            self._beside.append(asyncio.create_task(self._here()))
        else:
            await self._here()

    async def _here(self) -> None:
        self.asked = time.monotonic()
        for _ in range(2):
            if self.how == "close":
                await self.run.aclose()
            else:
                self.run.cancel()

    def blocking(self) -> None:
        if self.who == "consumer":
            self._now()
        else:
            self._in_thread()

    def _in_thread(self) -> None:
        thread = threading.Thread(target=self._now)
        self._beside.append(thread)
        thread.start()

    def _now(self) -> None:
        self.asked = time.monotonic()
        for _ in range(2):
            self.run.close() if self.how == "close" else self.run.cancel()

    async def done(self) -> None:
        for each in self._beside:
            await (asyncio.to_thread(each.join) if isinstance(each, threading.Thread) else each)

    def joined(self) -> None:
        for each in self._beside:
            assert isinstance(each, threading.Thread)
            each.join()


async def read(run: Run[Any], closer: Closer, when: str) -> tuple[RunResult[Any], float]:
    seen = 0
    if when == "before":
        await closer.on_loop()
        await closer.done()
    async for event in run:
        seen += isinstance(event, events.TextDelta)
        if when == "during" and seen == 4 and not closer.asked and not closer._beside:
            await closer.on_loop()
    returned = time.monotonic()
    if when == "after":
        await closer.on_loop()
    await closer.done()
    return await run.finished(), returned


def read_blocking(run: Run[Any], closer: Closer, when: str) -> tuple[RunResult[Any], float]:
    seen = 0
    if when == "before":
        closer.blocking()
        closer.joined()
    for event in run:
        seen += isinstance(event, events.TextDelta)
        if when == "during" and seen == 4 and not closer.asked and not closer._beside:
            closer.blocking()
    returned = time.monotonic()
    if when == "after":
        closer.blocking()
    closer.joined()
    assert run.outcome is not None
    return run.outcome, returned


@pytest.mark.scenario("A1", "A10", "B11", "B12", "B15", "B16", "B17")
@pytest.mark.parametrize(("who", "how"), WAYS)
@pytest.mark.parametrize("when", ["before", "during", "after"])
@pytest.mark.parametrize("form", ["asyncio", "blocking"])
def test_closed_by_anyone_at_any_time_it_is_the_work_that_ends(
    wire: WireProbe, form: str, when: str, who: str, how: str
) -> None:
    """By the provider's record: no request, or one that was closed at once and no next task's, or all as they were."""
    run = crew_of(wire, *(2 * [QUICK if when == "after" else STEADY])).run("rivers")
    closer = Closer(run, who, how)
    if form == "asyncio":
        result, returned = asyncio.run(read(run, closer, when))
    else:
        result, returned = read_blocking(run, closer, when)
    if when == "before":
        assert (result.is_cancelled, wire.requests()) == (True, [])
    elif when == "after":
        assert (result.is_completed, result.output) == (True, "t0 t1 t2 ")
        assert [record.finished_at is not None for record in wire.requests()] == [True, True]
    else:
        assert result.is_cancelled
        assert_within(T, returned - closer.asked)
        assert result.text.startswith("t0 t1 t2 t3 ")
        [record] = wire.assert_closed(T, since=closer.asked)
        assert record.tokens_sent < 2000
        time.sleep(0.03)
        wire.assert_no_requests_after(closer.asked)


@pytest.mark.scenario("A10", "D40")
@pytest.mark.loops
async def test_stopped_in_its_last_task_the_text_stream_ends_and_the_partial_text_is_there(wire: WireProbe) -> None:
    """The first task's output stays; a next run asks for the second alone."""
    crew = crew_of(wire, QUICK, STEADY)
    run = crew.run("rivers")
    shown = []
    async for text in run.text_stream():
        shown.append(text)
        if len(shown) == 3:
            await run.aclose()
    result = await run.finished()
    assert shown == ["t0 ", "t1 ", "t2 "]
    assert result.text.startswith("t0 t1 t2 ")
    assert result.messages[-1].interrupted
    assert result.state.outputs == {"task 0": "t0 t1 t2 "}
    again = crew.run("rivers", state=result.state).start()
    await wire.awaited("started", 3)
    await again.aclose()
    assert [record.mode for record in wire.requests()] == [QUICK, STEADY, STEADY]


@pytest.mark.scenario("E51", "E54")
@pytest.mark.parametrize("form", ["tasks", "threads"])
def test_two_crews_at_once_never_see_each_other_s_chunks(wire: WireProbe, form: str) -> None:
    """Stopping one of them leaves the other's stream whole."""
    victim, other = (crew_of(wire, "steady(60,2)", QUICK).run("rivers") for _ in range(2))
    seen: dict[str, list[events.Event]] = {victim.id: [], other.id: []}

    def take(run: Run[Any], event: events.Event) -> None:
        seen[run.id].append(event)
        if run is victim and len(seen[run.id]) == 15:
            run.cancel()

    async def main() -> None:
        async def consume(run: Run[Any]) -> None:
            async for event in run:
                take(run, event)

        await asyncio.gather(consume(victim), consume(other))

    def consume(run: Run[Any]) -> None:
        for event in run:
            take(run, event)

    if form == "tasks":
        asyncio.run(main())
    else:
        threads = [threading.Thread(target=consume, args=(run,)) for run in (victim, other)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    for run in (victim, other):
        assert {event.root_id for event in seen[run.id]} == {run.id}
        chunks = [event for event in seen[run.id] if isinstance(event, events.TextDelta)]
        assert {(chunk.agent, chunk.task) for chunk in chunks} <= {("member 0", "task 0"), ("member 1", "task 1")}
    whole = [event.text for event in seen[other.id] if isinstance(event, events.TextDelta)]
    assert "".join(whole) == "".join(f"t{n} " for n in (*range(60), *range(3)))
    assert (victim.is_cancelled, other.is_completed) == (True, True)


@pytest.mark.scenario("A10", "C34")
@pytest.mark.loops
async def test_a_stop_closes_every_socket_of_many_inputs_and_asks_for_no_other(wire: WireProbe) -> None:
    """Eight at once of twenty, in their first task; nobody gets to the second, or to the ninth input."""
    run = crew_of(wire, STEADY, STEADY).run_each([str(n) for n in range(20)], max_concurrency=8).start()
    await wire.awaited("token", 8)
    asked = time.monotonic()
    await run.aclose()
    assert_within(T, time.monotonic() - asked)
    assert len(wire.assert_closed(T, since=asked)) == 8
    await asyncio.sleep(0.03)
    wire.assert_no_requests_after(asked)


PROGRAM = """
import asyncio, sys
from halter.crews import Crew, Member, Task
from halter.models import OpenAIChat

model = OpenAIChat("any", base_url=sys.argv[1], api_key="any")
crew = Crew([Task(description="Go.", agent=Member(model, role="a", goal="b")) for _ in range(2)])
run = crew.run()

async def main():
    async with run:
        async for event in run:
            if event.type == "text.delta":
                print(event.task, flush=True)

def blocking():
    with run:
        for event in run:
            if event.type == "text.delta":
                print(event.task, flush=True)

try:
    asyncio.run(main()) if sys.argv[2] == "async" else blocking()
except KeyboardInterrupt:
    print("interrupted", run.outcome.status, flush=True)
"""


@pytest.mark.scenario("J91")
@pytest.mark.parametrize("form", ["async", "blocking"])
def test_a_real_ctrl_c_closes_the_socket_and_no_next_task_begins(wire: WireProbe, form: str) -> None:
    """In a real process, before the exception leaves."""
    sources = str(Path(halter.__file__).parents[1])
    with subprocess.Popen(
        [sys.executable, "-W", "error", "-c", PROGRAM, wire.url(STEADY), form],
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": sources},
    ) as process:
        read_line: Callable[[], str] = process.stdout.readline  # pyright: ignore
        assert [read_line() for _ in range(4)] == ["task 1\n"] * 4
        asked = time.monotonic()
        process.send_signal(signal.SIGINT)
        rest, _ = process.communicate(timeout=10)
    assert rest.splitlines()[-1] == "interrupted cancelled"
    assert process.returncode == 0
    wire.assert_closed(T, since=asked)
    assert len(wire.requests()) == 1
