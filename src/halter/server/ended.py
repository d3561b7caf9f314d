"""Runs whose log is gone: their final state and terminal event, from what is known of them or from their record."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from halter import events
from halter.events import Event, Failure
from halter.outcome import Cancellation, CancelReason, CancelReceipt, RunStatus
from halter.server.names import Names
from halter.server.port import EventFeed, Opening, RunInfo, RunKey, RunPlan
from halter.server.tags import ServerTags, shown_tags
from halter.sessions.records import RunRecord
from halter.snapshot import Fold, MessageState, Snapshot

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


def info_of(record: RunRecord, tenant: str) -> RunInfo:
    """A run that only its record is left of; as an earlier process has left it, for example."""
    names, tags = Names.of(tenant), ServerTags.read(record.tags)
    plan = RunPlan(
        key=RunKey(tenant, record.run_id),
        agent=tags.agent or record.name,
        kind=record.kind,
        actor="",
        fingerprint=tags.asked or "",
        created_at=record.started_at,
        session=names.bare_or_none(record.session_id),
        user=names.bare_or_none(record.user),
        tags=tuple(shown_tags(record.tags)),
    )
    return RunInfo(
        plan=plan,
        epoch=RECORD_EPOCH,
        status=record.status,
        seq=1,
        usage=record.usage,
        cost=record.cost,
        text=record.text,
        error=record.error,
        cancellation=record.cancellation,
        receipt=record.receipt,
        started_at=record.started_at,
        ended_at=record.ended_at,
        has_log=False,
    )


def feed_of(info: RunInfo) -> EventFeed:
    """The feed of a run that is over: all its events but the last are lost."""
    terminal = _terminal(info)
    fold = Fold(terminal.run_id)
    fold.apply([terminal])
    snapshot = fold.snapshot()
    if info.runs:
        snapshot.runs = info.runs
    if info.text:
        snapshot.messages = (_said(info),)
    return EndedFeed(info.epoch, snapshot, terminal)


def _said(info: RunInfo) -> MessageState:
    """All that the run has said, as one message."""
    id = info.plan.key.id
    is_cut_off = info.status is RunStatus.CANCELLED
    return MessageState(
        message_id=id, run_id=id, agent=None, task=None, text=info.text, finished=True, interrupted=is_cut_off
    )


def _terminal(info: RunInfo) -> Event:
    id, stop = info.plan.key.id, info.cancellation
    stamp: dict[str, Any] = {
        "seq": info.seq,
        "run_id": id,
        "parent_id": None,
        "root_id": id,
        "at": info.ended_at or info.plan.created_at,
        "text": info.text,
        "usage": info.usage,
    }
    if info.status is RunStatus.COMPLETED:
        return events.Completed(output=info.output, **stamp)
    if info.status is RunStatus.FAILED:
        return events.Failed(error=info.error or Failure(type="Unknown", message="no reason is on record"), **stamp)
    stop = stop or Cancellation(reason=CancelReason.OWNER_LOST)
    receipt = info.receipt or CancelReceipt(requested_at=stop.at, stopped_after_ms=0.0, confirmed=False)
    return events.Cancelled(reason=stop.reason, mode=stop.mode, receipt=receipt, **stamp)
