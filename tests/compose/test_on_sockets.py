"""Compositions over real sockets: what the provider has seen of their stops."""

from __future__ import annotations

import asyncio
import os
import signal
import threading
import time
from collections.abc import Callable
from typing import Any

import pytest

from halter import Agent, cancel_on_signals, events
from halter.compose import Parallel, Race, Sequential
from halter.models import OpenAIChat
from halter.outcome import CancelReason
from halter.testing.wire_probe import WireProbe

from ..bounds import T, assert_within
from ..stopping.conftest import port_of
from ..stopping.forms import AsyncForm, BlockingForm, after_tokens, forms
from .kinds import KINDS, SOME_TRIPLES, Kind, Leaf, each

STEADY, SILENT = "steady(1000,5)", "stall(1)"


def asking(wire: WireProbe, mode: str) -> Leaf:
    """Leaves whose provider behaves as `mode` says."""
    return lambda name: Agent(OpenAIChat("any", base_url=wire.url(mode), api_key="any"), name=name)


@pytest.mark.scenario("A1", "A10", "C34")
@each([*KINDS, *SOME_TRIPLES])
@pytest.mark.parametrize("form", forms(), ids=repr)
def test_a_stop_closes_the_innermost_sockets_and_nothing_more_is_asked(
    wire: WireProbe, kind: Kind, form: AsyncForm | BlockingForm
) -> None:
    """After four tokens of each: closed within 250 ms by the provider's record, and no request after."""
    agents = asking(wire, STEADY)

    def when(run: Any) -> None:
        after_tokens(4 * kind.at_once)(run)
        wire.wait("token", kind.at_once)

    stopped = form.stop(lambda: kind.make(agents).run("count"), when, port_of(wire.url()))
    stopped.assert_real()
    records = wire.assert_closed(T, since=stopped.asked)
    assert len(records) == kind.at_once
    time.sleep(0.02)
    wire.assert_no_requests_after(stopped.asked)


@pytest.mark.scenario("B12", "B13", "B20")
@each(KINDS)
@pytest.mark.parametrize("who", ["thread", "signal", "wait_for"])
@pytest.mark.real_loop("asyncio")
async def test_whoever_stops_it_on_an_idle_loop_is_heard_by_the_provider(wire: WireProbe, kind: Kind, who: str) -> None:
    """Silence on every socket: from a thread, by a signal, by an outer scope."""
    run = kind.make(asking(wire, SILENT)).run("count").start()
    await wire.awaited("token", kind.at_once)
    asked: list[float] = []

    def stop(by: Callable[[], object]) -> None:
        asked.append(time.monotonic())
        by()

    if who == "thread":
        threading.Timer(0.02, stop, [run.cancel]).start()
        await run.finished()
    elif who == "signal":
        with cancel_on_signals(run, signal.SIGUSR1):
            threading.Timer(0.02, stop, [lambda: os.kill(os.getpid(), signal.SIGUSR1)]).start()
            await run.finished()
    else:
        asked.append(time.monotonic() + 0.02)
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(run, 0.02)
    assert_within(T, time.monotonic() - asked[0])
    assert run.is_cancelled
    assert len(wire.assert_closed(T, since=asked[0])) == kind.at_once


@pytest.mark.scenario("C34")
@pytest.mark.loops
async def test_the_losers_of_a_race_are_closed_as_soon_as_one_wins(wire: WireProbe) -> None:
    """The loser's reason is `lost_race`; also where it is a composition of its own, all the way down."""
    quick, slow = asking(wire, "steady(3,5)"), asking(wire, STEADY)
    race = Race(slow("slow"), quick("quick"), Sequential(Parallel(slow("deep a"), slow("deep b")), slow("never")))
    run = race.run("count")
    result = await run
    assert result.text == "t0 t1 t2 "
    records = wire.requests()
    assert len(records) == 4
    (won,) = [record for record in records if record.finished_at is not None]
    for record in records:
        if record is not won:
            assert won.finished_at is not None
            assert record.closed_how in ("eof", "reset")
            assert record.closed_at is not None
            assert_within(T, record.closed_at - won.finished_at, "a loser")
    ends = {event.run_id: event.reason async for event in run.events() if isinstance(event, events.Cancelled)}
    names = {event.run_id: event.name async for event in run.events() if isinstance(event, events.Started)}
    assert {names[run_id]: reason for run_id, reason in ends.items()} == {
        "slow": CancelReason.LOST_RACE,
        "sequential": CancelReason.LOST_RACE,
        "parallel": CancelReason.PARENT_CANCELLED,
        "deep a": CancelReason.PARENT_CANCELLED,
        "deep b": CancelReason.PARENT_CANCELLED,
    }


@pytest.mark.scenario("C34")
@pytest.mark.loops
async def test_the_siblings_of_a_part_that_fails_are_closed(wire: WireProbe) -> None:
    """`sibling_failed`, by the provider's record; the composition's error is the provider's."""
    parallel = Parallel(asking(wire, STEADY)("fine"), asking(wire, "status(400)")("bad"))
    run = parallel.run("count")
    result = await run.finished()
    returned = time.monotonic()
    assert result.is_failed
    assert type(result.error).__name__ == "RequestRejected"
    steady = next(record for record in wire.requests() if record.mode == STEADY)
    assert steady.closed_at is not None
    assert steady.closed_at <= returned + T
    ends = [event.reason async for event in run.events() if isinstance(event, events.Cancelled)]
    assert ends == [CancelReason.SIBLING_FAILED]
