"""Records of runs."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from typing import Any, TypeVar

import msgspec
import sqlalchemy as sa

from halter.outcome import RunStatus
from halter.sessions.port import RunQuery
from halter.sessions.records import LateResult, RunRecord
from halter.sessions.sql.columns import Unreadable, packed, read_number, tag_part, unpacked
from halter.sessions.sql.damaged import failure, is_made_up, tell
from halter.sessions.sql.dialects import Dialect
from halter.sessions.sql.schema import mail, runs, sessions
from halter.sessions.sql.transaction import Transaction

T = TypeVar("T")
STOP = "stop"  # the state of mail that asks a run to stop
RECORD = (
    runs.c.run_id,
    runs.c.session_id,
    runs.c.user_id,
    runs.c.owner,
    runs.c.status,
    runs.c.live,
    runs.c.tags,
    runs.c.started_at,
    runs.c.ended_at,
    runs.c.data,
)
_ONE = sa.select(*RECORD).where(runs.c.run_id == sa.bindparam("run"))


def enter(tx: Transaction, record: RunRecord, generation: int | None = None) -> None:
    """Enters or replaces a record. `generation`: of its lease, if it has got one now."""
    values = {
        "run_id": record.run_id,
        "session_id": record.session_id,
        "user_id": record.user,
        "owner": record.owner,
        "status": str(record.status),
        "live": int(not record.status.is_final),
        "tags": record.tags,
        "started_at": record.started_at,
        "ended_at": record.ended_at,
        "data": packed(record),
    }
    if generation is not None:
        values["generation"] = generation
    if record.status.is_final:  # what was asked of it is not asked of the next run of its id
        values |= {"stop": None, "stop_nonce": None}
        drop_stops(tx, record.run_id)
    tx.execute(_entered(tx.dialect, tuple(values)), values)


def drop_stops(tx: Transaction, run_id: str) -> None:
    """Those that were asked of it while it waited for its turn."""
    tx.execute(sa.delete(mail).where(mail.c.run_id == run_id, mail.c.state == STOP))


@cache
def _entered(dialect: Dialect, columns: tuple[str, ...]) -> Any:
    new = dialect.insert(runs)
    given = {name: new.excluded[name] for name in columns if name != "run_id"}
    return new.on_conflict_do_update(index_elements=[runs.c.run_id], set_=given)


def is_entered(tx: Transaction, record: RunRecord) -> bool:
    """True if this is the record that there is."""
    return get(tx, record.run_id) == record


def add_late(tx: Transaction, run_id: str, late: LateResult) -> None:
    row = tx.first(sa.select(*RECORD).where(runs.c.run_id == run_id).with_for_update())
    record = None if row is None else record_of(row)
    if record is None or is_made_up(record) or (tx.again and late in record.late):
        return
    record = msgspec.structs.replace(record, late=(*record.late, late))
    tx.execute(sa.update(runs).where(runs.c.run_id == run_id).values(data=packed(record)))


def get(tx: Transaction, run_id: str) -> RunRecord | None:
    row = tx.first(_ONE, run=run_id)
    return None if row is None else record_of(row)


def record_of(row: Any) -> RunRecord:
    """From a row with the columns of `RECORD`: where `data` cannot be read, what they say, and an error."""
    try:
        return unpacked(row.data, RunRecord)
    except Unreadable as why:
        tell(f"the record of run {row.run_id!r}", why)
        return made_up(row, why)


def made_up(row: Any, why: Unreadable) -> RunRecord:
    """A record with what the columns say of the run, and an error that says why there is no more."""
    status = next((each for each in RunStatus if each == row.status), None)
    if status is None or status.is_final is bool(row.live):
        status = RunStatus.RUNNING if row.live else RunStatus.FAILED
    return RunRecord(
        run_id=row.run_id,
        session_id=row.session_id,
        user=row.user_id,
        tags=row.tags,
        owner=row.owner,
        status=status,
        error=failure(why),
        started_at=_time_or(row.started_at, 0.0),
        ended_at=_time_or(row.ended_at, None),
    )


def _time_or(stored: Any, otherwise: T) -> float | T:
    try:
        return read_number(stored)
    except Unreadable:
        return otherwise


def find(tx: Transaction, query: RunQuery) -> list[RunRecord]:
    asked = sa.select(*RECORD).order_by(runs.c.started_at.desc(), runs.c.run_id.desc())
    if query.session_id is not None:
        asked = asked.where(runs.c.session_id == query.session_id)
    if query.user is not None:
        asked = asked.where(runs.c.user_id == query.user)
    if query.status is not None:
        asked = asked.where(runs.c.status == str(query.status))
    for tag in query.tags:
        asked = asked.where(tx.dialect.holds(runs.c.tags, tag_part(tag)))
    if query.before is not None:
        started_at, run_id = query.before
        is_as_old = (runs.c.started_at == started_at) & (runs.c.run_id < run_id)
        asked = asked.where((runs.c.started_at < started_at) | is_as_old)
    if query.since is not None:
        asked = asked.where(runs.c.started_at >= query.since)
    if query.until is not None:
        asked = asked.where(runs.c.started_at < query.until)
    return [record_of(row) for row in tx.all(asked.limit(query.limit).offset(query.offset))]


@cache
def _live(dialect: Dialect, is_of_one: bool) -> Any:
    of_turn = (sessions.c.holder, sessions.c.generation.label("newest"), sessions.c.expires_at)
    asked: Any = (
        sa.select(*RECORD, runs.c.generation, *of_turn, dialect.lease_clock().label("now"))
        .select_from(runs.outerjoin(sessions, sessions.c.id == runs.c.session_id))
        .where(runs.c.live == 1)
    )
    return asked.where(runs.c.session_id == sa.bindparam("session")) if is_of_one else asked


def lost(tx: Transaction, session_id: str | None = None) -> Iterator[RunRecord]:
    """Those that are not final and that nobody carries any more; of one session, or of all."""
    asked = _live(tx.dialect, session_id is not None)
    for row in tx.all(asked) if session_id is None else tx.all(asked, session=session_id):
        if _is_lost(tx, row):
            yield record_of(row)


def is_carried(tx: Transaction, run_id: str) -> bool:
    """True if the run is live and somebody carries it."""
    row = tx.first(_live(tx.dialect, False).where(runs.c.run_id == run_id))
    return row is not None and not _is_lost(tx, row)


def _is_lost(tx: Transaction, row: Any) -> bool:
    """Of a row of `_live`."""
    has_lease = (row.holder, row.newest) == (row.run_id, row.generation) and not tx.is_over(
        row.owner, row.expires_at, row.now
    )
    return tx.is_dead(row.owner) or (row.generation is not None and not has_lease)


def forget(tx: Transaction, *which: sa.ColumnElement[bool]) -> int:
    """Deletes records, with their mail; how many."""
    theirs = sa.select(runs.c.run_id).where(*which)
    tx.execute(sa.delete(mail).where(mail.c.run_id.in_(theirs)))
    return tx.execute(sa.delete(runs).where(*which)).rowcount


def forget_before(tx: Transaction, before: float) -> int:
    return forget(tx, runs.c.live == 0, runs.c.ended_at < before)
