"""Runs whose log is gone: their final state and terminal event, from what was kept of them or from their record."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from halter import events
from halter.events import Event, Failure
from halter.outcome import Cancellation, CancelReason, CancelReceipt, RunStatus
from halter.server.port import EventFeed, Opening
from halter.sessions.records import RunRecord
from halter.snapshot import Fold, Snapshot

RECORD_EPOCH = 0  # of runs that only their record is left of: no log has ever had it


class EndedFeed:
    """The feed of a run whose log is gone: its final state, and its terminal event."""

    def __init__(self, epoch: int, snapshot: Snapshot, terminal: Event) -> None:
        self.epoch = epoch
        self._snapshot = snapshot
        self._terminal: list[Event] = [terminal]
        self._last = terminal.seq

    async def open(self, after: int | None) -> Opening:
        """See `EventFeed.open`: what lies between the cursor and the terminal event is lost, and said to be."""
        if after is not None and after >= self._last:
            return Opening(self._snapshot, None, at_end=True)
        lost = after is not None and after < self._last - 1
        return Opening(
            self._snapshot, (after + 1, self._last - 1) if after is not None and lost else None, at_end=False
        )

    async def next_batch(self) -> Sequence[Event]:
        """See `EventFeed.next_batch`."""
        found, self._terminal = self._terminal, []
        return found

    def close(self) -> None:
        """See `EventFeed.close`."""


def feed_of(record: RunRecord) -> EventFeed:
    """The feed of a run of an earlier process: all its events but the last are lost."""
    terminal = _terminal(record)
    fold = Fold(record.run_id)
    fold.apply([terminal])
    return EndedFeed(RECORD_EPOCH, fold.snapshot(), terminal)


def _terminal(record: RunRecord) -> Event:
    stamp: dict[str, Any] = {
        "seq": 1,
        "run_id": record.run_id,
        "parent_id": None,
        "root_id": record.run_id,
        "at": record.ended_at or record.started_at,
        "text": record.text,
        "usage": record.usage,
    }
    if record.status is RunStatus.COMPLETED:
        return events.Completed(output=None, **stamp)
    if record.status is RunStatus.FAILED:
        return events.Failed(error=record.error or Failure(type="Unknown", message="no reason is on record"), **stamp)
    stop = record.cancellation or Cancellation(reason=CancelReason.OWNER_LOST)
    receipt = record.receipt or CancelReceipt(requested_at=stop.at, stopped_after_ms=0.0, confirmed=False)
    return events.Cancelled(reason=stop.reason, mode=stop.mode, receipt=receipt, **stamp)
