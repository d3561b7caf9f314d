"""J93: at one millisecond per token, and in a flood, no stop is lost, from wherever it comes."""

from __future__ import annotations

import asyncio
import queue
import re
import threading
import time
from collections.abc import Callable, Generator
from typing import Any

import pytest

from halter import CancellationToken, Run, events
from halter.testing.wire_probe import WireProbe

from ..bounds import T, assert_within
from .adapters import Adapter
from .shared import adapter as adapter

STOPS = 100  # on each of two loops
AT_ONCE = 2  # floods at once: with more, the provider itself is late to look


class Stopper:
    """Calls what it is given in a thread of its own, and notes when."""

    def __init__(self) -> None:
        self._asked: queue.SimpleQueue[Callable[[], object] | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._work)
        self._thread.start()

    def __call__(self, stop: Callable[[], object]) -> None:
        self._asked.put(stop)

    def _work(self) -> None:
        while (stop := self._asked.get()) is not None:
            stop()

    def close(self) -> None:
        self._asked.put(None)
        self._thread.join()


@pytest.fixture
def stopper() -> Generator[Stopper]:
    one = Stopper()
    yield one
    one.close()


class Trial:
    """One run of the many: read until some tokens have come, stopped, and looked at."""

    def __init__(self, number: int, source: str, stopper: Stopper) -> None:
        self.number, self.source, self.stopper = number, source, stopper
        self.token = CancellationToken()
        self.asked = self.ours = 0.0
        self.has_returned = False
        self.after_cancel: list[str] = []

    def stop(self, run: Run[Any]) -> None:
        def from_here() -> None:
            self.asked = time.monotonic()
            (self.token.cancel if self.source == "token" else run.cancel)()
            self.has_returned = True

        self.stopper(from_here) if self.source == "thread" else from_here()

    async def go(self, agent: Any) -> Run[Any]:
        run = agent.run(f"trial <{self.number}>", cancellation=self.token)
        seen = 0
        async for event in run:
            if isinstance(event, events.TextDelta):
                if self.has_returned:
                    self.after_cancel.append(event.text)
                seen += 1
                if seen == 1 + self.number % 7:
                    self.stop(run)
        return run


@pytest.mark.scenario("J93")
@pytest.mark.loops
@pytest.mark.parametrize("mode", ["steady(100000,1)", "steady(5000000,0)"], ids=["1ms", "flood"])
@pytest.mark.parametrize("source", ["task", "thread", "token"])
async def test_no_stop_of_a_fast_model_is_lost(
    wire: WireProbe, adapter: Adapter, mode: str, source: str, stopper: Stopper
) -> None:
    """200 stops on two loops: each run is cancelled, shows nothing after `cancel` returned, is closed within 250 ms."""
    agent = adapter.agent(wire.url(mode))
    trials = [Trial(number, source, stopper) for number in range(STOPS)]

    async def some(mine: list[Trial]) -> None:
        for trial in mine:
            run = await trial.go(agent)
            assert run.outcome is not None
            assert run.outcome.is_cancelled
            assert run.outcome.receipt is not None
            trial.ours = run.outcome.receipt.stopped_after_ms
            log = [event async for event in run.events()]
            assert [event.type for event in log if event.is_terminal] == ["run.cancelled"]
            cut = next(index for index, event in enumerate(log) if isinstance(event, events.Cancelling))
            assert not [event for event in log[cut:] if isinstance(event, events.TextDelta)]

    await asyncio.gather(*(some(trials[first::AT_ONCE]) for first in range(AT_ONCE)))
    in_hand = int(source == "thread")  # read before, and looked at after the other thread's cancel had returned
    assert [trial.number for trial in trials if len(trial.after_cancel) > in_hand] == []
    records = await wire.awaited("closed", STOPS)
    assert len(records) == STOPS
    for record in records:
        found = re.search(r"trial <(\d+)>", record.body)
        assert found is not None
        assert record.closed_at is not None
        took = record.closed_at - trials[int(found[1])].asked
        by_us = trials[int(found[1])].ours
        assert_within(T, took, f"trial {found[1]}, by our receipt {by_us:.1f} ms,")
        assert record.closed_how in ("eof", "reset")
