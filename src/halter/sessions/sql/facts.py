"""What is known of somebody."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from typing import Any

import msgspec
import sqlalchemy as sa

from halter.sessions.ranking import best
from halter.sessions.records import Fact, FactScope
from halter.sessions.sql.columns import Unreadable, packed, unpacked
from halter.sessions.sql.damaged import tell
from halter.sessions.sql.dialects import as_asked
from halter.sessions.sql.held import change, known_in, locked, packed_known
from halter.sessions.sql.schema import fact_words, sessions
from halter.sessions.sql.schema import facts as table
from halter.sessions.sql.transaction import Transaction
from halter.sessions.words import words

MOST_AT_ONCE = 10_000  # values in one statement; PostgreSQL takes 32,767
_NEWEST = (table.c.updated_at.desc(), table.c.id.desc())
_FACTS = sa.select(table.c.id, table.c.data, table.c.recalled_at).order_by(*_NEWEST)


class StoredFact(msgspec.Struct, frozen=True, kw_only=True):
    """A fact as its row's `data`: without its scope, which has columns."""

    id: str
    text: str
    session_id: str | None = None
    created_at: float = 0.0
    updated_at: float = 0.0
    embedding: tuple[float, ...] | None = None


def _is_of(scope: FactScope) -> sa.ColumnElement[bool]:
    return sa.and_(table.c.kind == scope.kind, table.c.scope == scope.name)


def of(tx: Transaction, scope: FactScope, limit: int | None) -> list[Fact]:
    return list(_facts(tx.all(_FACTS.where(_is_of(scope)).limit(limit)), scope))


def find(tx: Transaction, scope: FactScope, text: str, limit: int) -> list[Fact]:
    """The database finds those that share a word; which of them are best is the same everywhere."""
    wanted = as_asked(words(text))
    if not wanted:
        return []
    among = tx.execute(sa.select(sa.func.count()).select_from(table).where(_is_of(scope))).scalar_one()
    sharing = sa.select(fact_words.c.rowid).where(tx.dialect.has_words(fact_words, wanted, all_of_them=False))
    query = _FACTS.where(_is_of(scope), table.c.key.in_(sharing))
    return best(list(_facts(tx.all(query), scope)), text, limit, among=among)


def _facts(rows: Iterable[Any], scope: FactScope) -> Iterator[Fact]:
    for row in rows:
        try:
            told = msgspec.structs.asdict(unpacked(row.data, StoredFact))
        except Unreadable as why:
            tell(f"fact {row.id!r}", why)
        else:
            yield Fact(**told, scope=scope, recalled_at=row.recalled_at)


def _stored(fact: Fact) -> StoredFact:
    return StoredFact(**{name: getattr(fact, name) for name in StoredFact.__struct_fields__})


def alter(
    tx: Transaction,
    scope: FactScope,
    put: Sequence[Fact],
    forget: Collection[str],
    session_id: str | None,
    known_from: int | None,
    known_upto: int | None,
) -> bool:
    row = locked(tx, session_id) if session_id is not None else None
    known_before = known_in(row) if row is not None else {}
    if known_from is not None:
        if tx.again and row is not None and known_before.get(scope, 0) == known_upto:
            return True
        if row is None or known_before.get(scope, 0) != known_from:
            return False
    ids = [*forget, *(fact.id for fact in put)]
    for begin in range(0, len(ids), MOST_AT_ONCE):
        _delete(tx, _is_of(scope), table.c.id.in_(ids[begin : begin + MOST_AT_ONCE]))
    for fact in put:
        _enter(tx, scope, fact)
    if row is not None and known_upto is not None:
        change(tx, row.key, known=packed_known({**known_before, scope: known_upto}))
    return True


def _enter(tx: Transaction, scope: FactScope, fact: Fact) -> None:
    about = {"kind": scope.kind, "scope": scope.name, "id": fact.id, "session_id": fact.session_id}
    times = {"updated_at": fact.updated_at, "recalled_at": fact.recalled_at}
    made = tx.execute(sa.insert(table).values(**about, **times, data=packed(_stored(fact)))).inserted_primary_key
    assert made is not None
    tx.put_words(fact_words, [(made[0], words(fact.text))])


def _delete(tx: Transaction, *which: sa.ColumnElement[bool]) -> None:
    tx.execute(sa.delete(fact_words).where(fact_words.c.rowid.in_(sa.select(table.c.key).where(*which))))
    tx.execute(sa.delete(table).where(*which))


def forget_user(tx: Transaction, user: str) -> None:
    _delete(tx, _is_of(FactScope("user", user)))


def forget_session(tx: Transaction, session_id: str) -> None:
    _delete(tx, table.c.session_id == session_id)


def known(tx: Transaction, session_id: str) -> dict[FactScope, int]:
    row = tx.first(sa.select(sessions.c.id, sessions.c.known).where(sessions.c.id == session_id))
    return {} if row is None else known_in(row)


def recalled(tx: Transaction, ids: Collection[str], at: float) -> None:
    tx.execute(sa.update(table).where(table.c.id.in_(ids)).values(recalled_at=at))
