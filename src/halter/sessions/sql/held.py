"""A session's row, and who has its turn: read under a lock that lasts as long as the transaction."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Any

import sqlalchemy as sa

from halter.errors import TurnLost
from halter.sessions.port import Lease
from halter.sessions.records import FactScope, ScopeKind, Session
from halter.sessions.sql.columns import Unreadable, any_json, packed, read_number, unpacked
from halter.sessions.sql.damaged import damaged, tell
from halter.sessions.sql.dialects import Dialect
from halter.sessions.sql.schema import LAST, sessions
from halter.sessions.sql.transaction import Transaction

ABOUT = (
    sessions.c.key,
    sessions.c.id,
    sessions.c.user_id,
    sessions.c.title,
    sessions.c.tags,
    sessions.c.metadata,
    sessions.c.state,
    sessions.c.messages,
    sessions.c.holder,
    sessions.c.created_at,
    sessions.c.updated_at,
)
_TURN = (sessions.c.owner, sessions.c.generation, sessions.c.expires_at, sessions.c.known)
_ABOUT = sa.select(*ABOUT).where(sessions.c.id == sa.bindparam("session"))


def session_of(row: Any, *, is_listed: bool = False) -> Session:
    """From a row with the columns of `ABOUT`. Raises `SessionDamaged` if its data cannot be read.

    `is_listed`: among others, where it is shown without that data.
    """
    try:
        times = read_number(row.created_at), read_number(row.updated_at)
        return _session(row, any_json(row.metadata) or {}, any_json(row.state), read_count(row.messages), times)
    except Unreadable as why:
        error = damaged(row.id, "its metadata, its state, its times or the number of its messages", why)
        if not is_listed:
            raise error from why
        tell(f"the metadata, the state, the times or the number of messages of session {row.id!r}", why)
        return _session(row, {}, None, 0, (0.0, 0.0))


def read_count(messages: Any) -> int:
    """How many messages a session has. Raises `Unreadable`: SQLite's columns may hold anything."""
    if not isinstance(messages, int) or not 0 <= messages <= LAST:
        raise Unreadable("the number of its messages is none")
    return messages


def read_generation(generation: Any) -> int:
    """How many turns the session has had. Raises `Unreadable`."""
    if not isinstance(generation, int) or generation < 0:
        raise Unreadable("the number of its turns is none")
    return generation


def _session(row: Any, metadata: dict[str, Any], state: Any, messages: int, times: tuple[float, float]) -> Session:
    return Session(
        id=row.id,
        user=row.user_id,
        title=row.title,
        tags=row.tags,
        metadata=metadata,
        state=state,
        messages=messages,
        holder=row.holder,
        created_at=times[0],
        updated_at=times[1],
    )


def next_generation(row: Any) -> int:
    """The number of the session's next turn. Raises `SessionDamaged`."""
    try:
        return read_generation(row.generation) + 1
    except Unreadable as why:
        raise damaged(row.id, "the number of its turns", why) from why


def about(tx: Transaction, session_id: str) -> Any:
    """The session's row as it is, for reading; `None` if there is none."""
    return tx.first(_ABOUT, session=session_id)


def known_in(row: Any) -> dict[FactScope, int]:
    """By scope, up to which message the session of a row was learned from."""
    try:
        return unpacked_known(row.known)
    except Unreadable as why:
        raise damaged(row.id, "how far facts were learned from it", why) from why


def unpacked_known(data: bytes | None) -> dict[FactScope, int]:
    if data is None:
        return {}
    by_kind = unpacked(data, dict[ScopeKind, dict[str, int]])
    return {FactScope(kind, name): upto for kind, named in by_kind.items() for name, upto in named.items()}


def packed_known(known: Mapping[FactScope, int]) -> bytes:
    by_kind: dict[str, dict[str, int]] = {}
    for scope, upto in known.items():
        by_kind.setdefault(scope.kind, {})[scope.name] = upto
    return packed(by_kind)


@cache
def _locked(dialect: Dialect) -> sa.Executable:
    query = sa.select(*ABOUT, *_TURN, dialect.lease_clock().label("now"))
    return query.where(sessions.c.id == sa.bindparam("session_id")).with_for_update(of=sessions)


def locked(tx: Transaction, session_id: str) -> Any:
    """The session's row, and `now`, which nobody else changes until the transaction ends; `None` if there is none."""
    return tx.first(_locked(tx.dialect), session_id=session_id)


def held(tx: Transaction, lease: Lease) -> Any:
    """The row of the session that this lease is for. Raises `TurnLost`."""
    row = locked(tx, lease.session_id)
    if row is None or (row.holder, row.generation) != (lease.run_id, lease.generation):
        raise TurnLost(f"run {lease.run_id} has lost its turn on session {lease.session_id!r}")
    return row


@cache
def _changed(dialect: Dialect, is_used: bool, is_leased: bool) -> sa.Update:
    """The columns to set are those of the values that are given when it runs; and what the clock says."""
    stamps: dict[str, Any] = {}
    if is_used:
        stamps["updated_at"] = dialect.clock()
    if is_leased:
        stamps["expires_at"] = dialect.lease_clock() + sa.bindparam("lease_for", type_=sa.Double)
    statement = sa.update(sessions).where(sessions.c.key == sa.bindparam("which"))
    return statement.values(**stamps) if stamps else statement


def change(tx: Transaction, key: int, *, is_used: bool = False, lease_for: float | None = None, **values: Any) -> None:
    """Of a session that is locked. `is_used`: now. `lease_for`: seconds from now that its turn is its holder's."""
    given = {"which": key, **values} if lease_for is None else {"which": key, "lease_for": lease_for, **values}
    tx.execute(_changed(tx.dialect, is_used, lease_for is not None), given)
