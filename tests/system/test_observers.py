"""Observers: slow, failing, blocking; no run notices, and what they see is in order."""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections.abc import Callable
from typing import Any

import pytest

from halter import Agent, RunContext, runnable, runtime
from halter.core import observers
from halter.events import Custom, Event

from ..bounds import assert_within

AGENT = Agent("scripted:" + "word " * 300)


def until(ready: Callable[[], object], seconds: float = 30.0) -> bool:
    end = time.monotonic() + seconds
    while not ready() and time.monotonic() < end:
        time.sleep(0.002)
    return bool(ready())


def seconds_for_ten_runs(run_on: Callable[[Any], Any]) -> float:
    async def main() -> float:
        await AGENT.run("?")
        began = time.perf_counter()
        for _ in range(10):
            await AGENT.run("?")
        return time.perf_counter() - began

    return min(run_on(main()) for _ in range(3))


@pytest.mark.scenario("E56")
def test_no_run_notices_a_slow_a_failing_or_a_blocking_observer(
    run_on: Callable[[Any], Any], caplog: pytest.LogCaptureFixture
) -> None:
    """Ten runs of 300 words take about as long with three bad observers as with none, and end alike."""
    caplog.set_level(logging.CRITICAL)
    release = threading.Event()

    def slow(_: Event) -> None:
        release.wait(0.05)

    def fails(_: Event) -> None:
        if not release.is_set():
            time.sleep(0.001)
        raise LookupError("an observer's own")

    def blocks(_: Event) -> None:
        release.wait(30)

    alone = seconds_for_ten_runs(run_on)
    watching = [runtime().observe(observer) for observer in (slow, fails, blocks)]
    try:
        observed = seconds_for_ten_runs(run_on)
    finally:
        for one in watching:
            one.close()
        release.set()
    assert_within(3 * alone + 0.2, observed)


@pytest.mark.scenario("E56")
def test_an_observer_that_raises_goes_on_with_the_next_event(caplog: pytest.LogCaptureFixture) -> None:
    """Each failure is logged; every event is shown all the same, in the log's order."""
    seen: list[int] = []

    def fails(event: Event) -> None:
        if event.run_id == "mine":
            seen.append(event.seq)
            raise LookupError("an observer's own")

    with runtime().observe(fails):
        events = list(Agent("scripted:one two three").run("?", id="mine"))
        assert until(lambda: len(seen) >= len(events))
    assert seen == [event.seq for event in events]
    assert until(lambda: caplog.text.count("an observer raised") >= len(events))


@pytest.mark.scenario("E56")
def test_an_observer_sees_runs_of_all_loops_each_in_order(thread: Any) -> None:
    """Eight threads with loops of their own: for each run, all events, in order, the terminal one last."""
    seen: dict[str, list[Event]] = {}

    def note(event: Event) -> None:
        seen.setdefault(event.root_id, []).append(event)

    async def main(name: int) -> None:
        await asyncio.gather(*(AGENT.run("?", id=f"observed-{name}-{i}") for i in range(3)))

    ids = [f"observed-{name}-{i}" for name in range(8) for i in range(3)]
    with runtime().observe(note):
        for one in [thread(asyncio.run, main(name)) for name in range(8)]:
            one.join(20)
        assert until(lambda: all(id in seen and seen[id][-1].is_terminal for id in ids))
    for id in ids:
        assert [event.seq for event in seen[id]] == list(range(1, len(seen[id]) + 1))


@pytest.mark.scenario("E56")
def test_an_observer_far_behind_loses_deltas_only_and_they_are_counted() -> None:
    """Blocked while 70,000 deltas come: it holds 65,536 events, lost deltas are counted, nothing else is lost."""
    go_on, blocked = threading.Event(), threading.Event()
    seen: list[Event] = []

    def note(event: Event) -> None:
        if event.root_id != "flood":
            return
        blocked.set()
        go_on.wait(30)
        seen.append(event)

    @runnable
    async def floods(ctx: RunContext) -> None:
        for i in range(70_000):
            ctx.text("w ")
            if i % 10_000 == 9_999:
                ctx.emit("milestone", i)
                await asyncio.sleep(0)

    with runtime().observe(note) as observation:
        run = floods.run(id="flood")
        result = run.result(timeout=30)
        assert blocked.is_set()
        head = next(iter(run.events(after=70_000))).seq
        assert observation.lost > 70_000 - observers.BACKLOG - 10
        assert len(observation._events) <= observers.BACKLOG + 20
        go_on.set()
        assert until(lambda: seen and seen[-1].is_terminal)
        assert len(seen) + observation.lost == seen[-1].seq
        assert head <= seen[-1].seq
    assert [event.data for event in seen if isinstance(event, Custom)] == list(range(9_999, 70_000, 10_000))
    assert [event.seq for event in seen] == sorted(event.seq for event in seen)
    assert len(result.text) == 140_000


@pytest.mark.scenario("E56")
def test_after_close_an_observer_sees_nothing_more_and_its_thread_ends() -> None:
    """What was emitted before `close()` is still shown; what comes later is not; `close()` may be called twice."""
    seen: list[Event] = []
    others = set(threading.enumerate())  # such as those of other tests, which are behind
    observation = runtime().observe(seen.append)
    mine = [one for one in set(threading.enumerate()) - others if one.name == "halter-observer"]
    AGENT.run("?", id="before").result(timeout=5)
    observation.close()
    observation.close()
    AGENT.run("?", id="after").result(timeout=5)
    assert len(mine) == 1
    assert until(lambda: not any(one.is_alive() for one in mine))
    assert any(event.root_id == "before" and event.is_terminal for event in seen)
    assert not any(event.root_id == "after" for event in seen)


@pytest.mark.scenario("E56")
def test_an_observer_may_stop_the_run_it_sees_and_run_others() -> None:
    """It is a thread as any other: `runtime().find(id).cancel()` and blocking runs work in it."""
    answers: list[str] = []

    def stops(event: Event) -> None:
        if event.root_id == "watched" and event.type == "text.delta" and not answers:
            answers.append(Agent("scripted:from an observer").run("?", id="other").result(timeout=5).text)
            found = runtime().find("watched")
            if found is not None:
                found.cancel("seen enough")

    with runtime().observe(stops):
        run = Agent("scripted:" + "word " * 50_000).run("?", id="watched")
        last = list(run)[-1]
    assert answers == ["from an observer"]
    assert (last.type, run.outcome.cancellation.message) == ("run.cancelled", "seen enough")
