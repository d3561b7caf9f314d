"""A conversation, taken back to an earlier point: a turn of its own on the session, in which nothing is said."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from msgspec import UNSET
from msgspec.structs import replace

from halter.core.ids import new_id
from halter.core.owner import Owner
from halter.errors import SessionBusy, SessionNotFound, TurnLost
from halter.outcome import RunStatus
from halter.sessions.cutting import whole_cut
from halter.sessions.leases import LEASE
from halter.sessions.port import Busy, Conversation, Store, Taken
from halter.sessions.records import RunRecord
from halter.sessions.repair import repaired

if TYPE_CHECKING:
    from halter.sessions.place import Place

KIND = "rewind"


async def rewind(place: Place, id: str, to: int) -> None:
    """Leaves the first `to` messages, or fewer, where that would tear an answer apart. Raises `SessionBusy`."""
    # An owner that nobody renews: if the store fails half-way, the turn is free again when its lease has run out.
    owner = f"{Owner.here()}/{KIND}"
    record = RunRecord(
        run_id=new_id(), session_id=id, name=KIND, kind=KIND, owner=owner, input=f"{to}", started_at=time.time()
    )
    taken = await place.store.take(record, lease_for=LEASE, only="there")
    if isinstance(taken, Busy):
        who = f"run {taken.holder} has its turn" if taken.holder else "others wait for it"
        raise SessionBusy(f"session {id!r} is busy: {who}", session_id=id, holder=taken.holder)
    try:
        await _cut(place.store, taken, record, to)
    except TurnLost:
        await _whole(place.store, record)  # says so if it was deleted
        raise
    finally:
        place.freed(id)


async def _cut(store: Store, taken: Taken, record: RunRecord, to: int) -> None:
    if taken.lost:
        await repaired(store, taken)
    said = (await _whole(store, record)).messages
    at = whole_cut(said, min(to, len(said)))
    if at < len(said):
        await store.cut(taken.lease, at)
    final = replace(record, base=len(said), status=RunStatus.COMPLETED, ended_at=time.time())
    await store.close(taken.lease, final, at, (), state=None if at < len(said) else UNSET)


async def _whole(store: Store, record: RunRecord) -> Conversation:
    found = await store.load(record.session_id or "", full=True)
    if found is None:
        raise SessionNotFound(f"session {record.session_id!r} was deleted meanwhile")
    return found
