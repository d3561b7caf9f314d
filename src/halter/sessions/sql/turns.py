"""Who has a session's turn, and who waits for it."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Any

import msgspec
import sqlalchemy as sa

from halter.errors import TurnLost
from halter.messages import Message
from halter.sessions.port import Busy, Lease, Snapshot, Taken, Which, check_is_still, check_is_theirs, live_of
from halter.sessions.records import RunRecord
from halter.sessions.sql import facts, runs
from halter.sessions.sql.conversations import conversation, forget_compactions, written
from halter.sessions.sql.dialects import Dialect
from halter.sessions.sql.held import about, change, held, locked, next_generation
from halter.sessions.sql.schema import queue, sessions
from halter.sessions.sql.transaction import Transaction

FREE: dict[str, Any] = {"holder": None, "owner": None, "expires_at": None}
EMPTY: dict[str, Any] = {
    "title": "",
    "title_words": "",
    "tags": (),
    "messages": 0,
    "generation": 0,
}
_WAITING = sa.select(queue).where(queue.c.session_id == sa.bindparam("session"))


def take(tx: Transaction, record: RunRecord, lease_for: float, ticket: int | None, only: Which | None) -> Taken | Busy:
    assert record.session_id is not None
    row = _made(tx, record.session_id, record.user) if only is None else locked(tx, record.session_id)
    if only is None:
        check_is_theirs(record, row.user_id)
    before = runs.get(tx, record.run_id)
    if only is not None:
        check_is_still(only, record, is_there=row is not None, before=before)
    was_taken = tx.again and (row.holder, row.owner) == (record.run_id, record.owner)
    if not was_taken and not (_is_free(tx, row) and _is_next(tx, row, ticket)):
        return Busy(holder=row.holder, ticket=ticket or 0)
    lease = Lease(session_id=row.id, run_id=record.run_id, generation=next_generation(row))
    change(
        tx,
        row.key,
        holder=record.run_id,
        owner=record.owner,
        generation=lease.generation,
        lease_for=lease_for,
    )
    if ticket is not None:
        leave(tx, ticket)
    was_lost = before is not None and not before.status.is_final  # taken once more, so that it can be ended
    base = before.base if before is not None and was_lost else row.messages
    runs.enter(tx, msgspec.structs.replace(record, base=base, user=row.user_id), lease.generation)
    lost = tuple(runs.lost(tx, row.id))
    was = conversation(tx, row)
    now = msgspec.structs.replace(was.session, holder=record.run_id)
    return Taken(lease=lease, conversation=msgspec.structs.replace(was, session=now), lost=lost, before=before)


def snapshot(tx: Transaction, session_id: str) -> Snapshot | None:
    row = about(tx, session_id)
    if row is None:
        return None
    lost = tuple(runs.lost(tx, session_id))
    live = None if row.holder is None else live_of(runs.get(tx, row.holder), lost)
    return Snapshot(
        conversation=conversation(tx, row, full=True), lost=lost, live=live, known=facts.known(tx, session_id)
    )


def _made(tx: Transaction, session_id: str, user: str | None) -> Any:
    """The session's row, locked; made if there is none."""
    row = locked(tx, session_id)
    if row is None:
        tx.execute(_new(tx.dialect), {"id": session_id, "user_id": user, **EMPTY})
        row = locked(tx, session_id)
    return row


@cache
def _new(dialect: Dialect) -> Any:
    stamps = {"created_at": dialect.clock(), "updated_at": dialect.clock()}
    return dialect.insert(sessions).values(**stamps).on_conflict_do_nothing()


def _is_free(tx: Transaction, row: Any) -> bool:
    return row.holder is None or tx.is_over(row.owner, row.expires_at, row.now)


def _is_next(tx: Transaction, row: Any, ticket: int | None) -> bool:
    """True if nobody who waits comes before. Those whose owner is gone wait no longer."""
    waiting = tx.all(_WAITING, session=row.id)
    gone = [each.key for each in waiting if tx.is_over(each.owner, each.expires_at, row.now)]
    if gone:
        tx.execute(sa.delete(queue).where(queue.c.key.in_(gone)))
    left = [each for each in waiting if each.key not in gone]
    return not left or min(left, key=lambda each: (-each.is_first, each.key)).key == ticket


def wait(tx: Transaction, session_id: str, run_id: str, owner: str, lease_for: float, first: bool, nonce: str) -> int:
    """The ticket. `nonce`: of this call."""
    if tx.again and (row := tx.first(sa.select(queue.c.key).where(queue.c.nonce == nonce))) is not None:
        return row.key
    who = {"session_id": session_id, "run_id": run_id, "owner": owner, "is_first": int(first), "nonce": nonce}
    made = tx.execute(
        sa.insert(queue).values(**who, expires_at=tx.dialect.lease_clock() + lease_for)
    ).inserted_primary_key
    assert made is not None
    return made[0]


def leave(tx: Transaction, ticket: int) -> None:
    tx.execute(sa.delete(queue).where(queue.c.key == ticket))


def give_up(tx: Transaction, ticket: int) -> None:
    """The run of this place in a queue has ended without its turn."""
    place = tx.first(sa.select(queue.c.run_id).where(queue.c.key == ticket))
    leave(tx, ticket)
    if place is not None:
        runs.drop_stops(tx, place.run_id)


def renew(tx: Transaction, owner: str, lease_for: float) -> None:
    until = tx.dialect.lease_clock() + lease_for
    for table in (sessions, queue):
        tx.execute(sa.update(table).where(table.c.owner == owner).values(expires_at=until))


def sweep(tx: Transaction) -> None:
    """Removes the places in queues of those who are gone."""
    now = tx.execute(sa.select(tx.dialect.lease_clock())).scalar_one()
    gone = [each.key for each in tx.all(sa.select(queue)) if tx.is_over(each.owner, each.expires_at, now)]
    for key in gone:
        leave(tx, key)


def enter_record(tx: Transaction, record: RunRecord, lease: Lease | None) -> None:
    if lease is not None:
        held(tx, lease)
    runs.enter(tx, record)


def close(
    tx: Transaction,
    lease: Lease,
    record: RunRecord,
    at: int,
    said: Sequence[Message],
    state: Any,
    with_compactions: bool,
) -> None:
    try:
        row = held(tx, lease)
    except TurnLost:
        if tx.again and runs.is_entered(tx, record):
            return
        raise
    values = written(tx, row, at, said, state)
    if not with_compactions:
        forget_compactions(tx, row.key, lease.run_id)
    runs.enter(tx, record)
    change(tx, row.key, **values, **FREE)
