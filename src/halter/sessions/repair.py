"""A turn that was lost with its process: brought to the end that a stop would have given it."""

from __future__ import annotations

import logging
import time
from collections.abc import Sequence

from msgspec.structs import replace

from halter.children.orphans import look_again
from halter.core.history import seal_lost
from halter.errors import SessionDamaged, SessionNotFound, SessionsUnavailable, TurnLost
from halter.messages import Message, Usage
from halter.outcome import Cancellation, CancelReason, CancelReceipt, RunStatus
from halter.sessions.port import Busy, Conversation, Lease, Store, Taken
from halter.sessions.reading import last_first
from halter.sessions.records import RunRecord

_logger = logging.getLogger("halter")
LEASE = 30.0  # seconds that a repair may take


async def repaired(store: Store, taken: Taken) -> Conversation:
    """The conversation, with each turn that was lost rolled back or sealed, as it was to be; their records are closed.

    Once more it changes nothing: a repair that is cut short is repeated by the next turn.
    """
    look_again()
    for record in last_first(taken.lost):
        await store.record(await _repair(store, taken.lease, record), lease=taken.lease)
    found = await store.load(taken.lease.session_id)
    if found is None:
        raise SessionsUnavailable(f"session {taken.lease.session_id!r} was deleted while it was repaired")
    return found


async def _repair(store: Store, lease: Lease, record: RunRecord) -> RunRecord:
    """Of the conversation; the record, as it is to be entered."""
    found = await store.load(lease.session_id, full=True)
    said = found.messages if found is not None else ()
    if record.keep == "rollback":
        await store.cut(lease, record.base, of_run=record.run_id)
        return lost(record, ())
    at, sealed = seal_lost(said[record.base :])
    if sealed:
        await store.write(lease, record.base + at, sealed)
    return lost(record, said[record.base :] if record.error is None else ())  # where the record was made up: whose?


async def recover(store: Store, owner: str) -> list[RunRecord]:
    """Ends what lost owners have left, in the name of `owner`; the records, as they are then.

    A run's session is taken for it once more, so that it can be ended. One that others repair already, or delete, is
    left to them.
    """
    found = await store.lost()
    if found:
        look_again()
    ended = [await _recover(store, owner, record) for record in found]
    return [record for record in ended if record is not None]


async def _recover(store: Store, owner: str, record: RunRecord) -> RunRecord | None:
    if record.session_id is None:
        final = lost(record, ())
        await store.record(final)
        return final
    try:
        taken = await store.take(replace(record, owner=owner), lease_for=LEASE, only="lost")
        return None if isinstance(taken, Busy) else await _end(store, taken, record)
    except (SessionNotFound, TurnLost):
        return None
    except SessionDamaged as error:  # the others are not to wait for somebody who repairs it
        _logger.warning("run %s is over, and its turn was not sealed: %s", record.run_id, error)
        final = lost(record, ())
        await store.record(final)
        return final


async def _end(store: Store, taken: Taken, record: RunRecord) -> RunRecord:
    """Of a lost run that has its turn once more: its record and its turn end in one step. Raises `TurnLost`."""
    final = record
    for each in last_first({**{other.run_id: other for other in taken.lost}, record.run_id: record}.values()):
        ended = await _repair(store, taken.lease, each)
        if each is record:
            final = ended
        else:
            await store.record(ended, lease=taken.lease)
    found = await store.session(taken.lease.session_id)
    await store.close(taken.lease, final, found.messages if found is not None else 0, ())
    return final


def lost(record: RunRecord, said: Sequence[Message]) -> RunRecord:
    """The record of a run whose owner is gone, as it ends. `said`: what of it is stored."""
    now = time.time()
    usage = sum((message.usage for message in said if message.usage is not None), start=Usage(estimated=True))
    return replace(
        record,
        status=RunStatus.CANCELLED,
        cancellation=Cancellation(reason=CancelReason.OWNER_LOST, message="its process has ended", at=now),
        receipt=CancelReceipt(requested_at=now, stopped_after_ms=0.0, confirmed=False),
        usage=usage,
        ended_at=now,
    )
