"""Sessions as a whole: made, changed, found, searched, deleted."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import sqlalchemy as sa

from halter.messages import Message
from halter.sessions.port import Query
from halter.sessions.records import Checkpoint, FactScope, Hit, Session
from halter.sessions.sql import facts, runs
from halter.sessions.sql.columns import Unreadable, escaped, packed_data, tag_part, unpacked
from halter.sessions.sql.conversations import delete_from, enter, enter_checkpoint
from halter.sessions.sql.damaged import tell
from halter.sessions.sql.dialects import as_asked, as_stored
from halter.sessions.sql.held import ABOUT, about, change, locked, packed_known, session_of
from halter.sessions.sql.schema import (
    checkpoints,
    message_words,
    messages,
    position_of,
    queue,
    session_key_of,
    sessions,
)
from halter.sessions.sql.schema import runs as run_table
from halter.sessions.sql.transaction import Transaction
from halter.sessions.words import shown_text, words


def create(
    tx: Transaction,
    session: Session,
    said: Sequence[Message],
    checkpoint: Checkpoint | None,
    known: Mapping[FactScope, int],
    nonce: str,
) -> bool:
    """`nonce`: of this call."""
    new = {
        "id": session.id,
        "messages": len(said),
        "generation": 0,
        "created_at": session.created_at,
        "updated_at": session.updated_at,
        "known": packed_known(known) if known else None,
        "nonce": nonce,
    }
    given = _columns({name: getattr(session, name) for name in _CHANGEABLE})
    if not tx.execute(tx.insert(sessions).values(**new, **given).on_conflict_do_nothing()).rowcount:
        ours = sa.select(sessions.c.key).where(sessions.c.id == session.id, sessions.c.nonce == nonce)
        return tx.again and tx.first(ours) is not None
    key = tx.execute(sa.select(sessions.c.key).where(sessions.c.id == session.id)).scalar_one()
    enter(tx, key, 0, said)
    if checkpoint is not None:
        enter_checkpoint(tx, key, checkpoint)
    return True


def get(tx: Transaction, session_id: str) -> Session | None:
    row = about(tx, session_id)
    return None if row is None else session_of(row)


def update(tx: Transaction, session_id: str, changes: Mapping[str, Any]) -> Session | None:
    row = locked(tx, session_id)
    if row is None:
        return None
    change(tx, row.key, **_columns(changes), is_used=True)
    return session_of(locked(tx, session_id))


def entitle(tx: Transaction, session_id: str, title: str) -> None:
    row = locked(tx, session_id)
    if row is not None and not row.title:
        change(tx, row.key, **_columns({"title": title}))


_CHANGEABLE = ("user", "title", "tags", "metadata", "state")


def _columns(changes: Mapping[str, Any]) -> dict[str, Any]:
    """Fields of a `Session` as the columns in which they lie."""
    values = {name: value for name, value in changes.items() if name in ("title", "tags")}
    values |= {name: packed_data(value) for name, value in changes.items() if name in ("metadata", "state")}
    if "user" in changes:
        values["user_id"] = changes["user"]
    if "title" in changes:
        values["title_words"] = f" {as_stored(words(changes['title']))} "
    return values


def find(tx: Transaction, query: Query) -> list[Session]:
    asked = sa.select(*ABOUT).order_by(sessions.c.updated_at.desc(), sessions.c.id.desc())
    if query.prefix is not None:
        asked = asked.where(*_is_within(query.prefix))
    if query.user is not None:
        asked = asked.where(sessions.c.user_id == query.user)
    if query.tag is not None:
        asked = asked.where(tx.dialect.holds(sessions.c.tags, tag_part(query.tag)))
    if query.text is not None:
        wanted = as_asked(words(query.text))
        if not wanted:
            return []
        asked = asked.where(_in_title(wanted) | sessions.c.key.in_(_in_messages(tx, wanted)))
    return [session_of(row, is_listed=True) for row in tx.all(asked.limit(query.limit).offset(query.offset))]


def _is_within(prefix: str) -> tuple[sa.ColumnElement[bool], ...]:
    """Not LIKE for the prefix: SQLite's knows no case."""
    begins, of = escaped(prefix), sessions.c.id
    rest = sa.func.substr(of, len(begins) + 1, type_=sa.Text)
    return sa.func.substr(of, 1, len(begins), type_=sa.Text) == begins, rest.not_like("%/%")


def _in_title(wanted: Sequence[str]) -> sa.ColumnElement[bool]:
    """Words have no signs that LIKE would understand."""
    return sa.and_(*(sessions.c.title_words.like(f"% {word} %") for word in wanted))


def _in_messages(tx: Transaction, wanted: Sequence[str]) -> sa.Select[Any]:
    of_session = session_key_of(message_words.c.rowid)
    return sa.select(of_session).where(tx.dialect.has_words(message_words, wanted, all_of_them=True))


def search(
    tx: Transaction, text: str, prefix: str | None, user: str | None, session_id: str | None, limit: int
) -> list[Hit]:
    wanted = as_asked(words(text))
    if not wanted:
        return []
    asked = (
        sa.select(sessions.c.id, messages.c.key, messages.c.data)
        .select_from(message_words)
        .join(messages, messages.c.key == message_words.c.rowid)
        .join(sessions, sessions.c.key == session_key_of(message_words.c.rowid))
        .where(tx.dialect.has_words(message_words, wanted, all_of_them=True))
        .order_by(sessions.c.updated_at.desc(), sessions.c.id.desc(), messages.c.key.desc())
    )
    if prefix is not None:
        asked = asked.where(*_is_within(prefix))
    if user is not None:
        asked = asked.where(sessions.c.user_id == user)
    if session_id is not None:
        asked = asked.where(sessions.c.id == session_id)
    return [hit for row in tx.all(asked.limit(limit)) if (hit := _hit(row)) is not None]


def _hit(row: Any) -> Hit | None:
    try:
        message = unpacked(row.data, Message)
    except Unreadable as why:
        return tell(f"message {position_of(row.key)} of session {row.id!r}", why)
    return Hit(session_id=row.id, position=position_of(row.key), role=message.role, text=shown_text(message))


def delete(tx: Transaction, session_id: str) -> bool:
    row = locked(tx, session_id)
    runs.forget(tx, run_table.c.session_id == session_id)
    facts.forget_session(tx, session_id)
    tx.execute(sa.delete(queue).where(queue.c.session_id == session_id))
    if row is None:
        return False
    delete_from(tx, row.key, 0)
    tx.execute(sa.delete(checkpoints).where(checkpoints.c.session_key == row.key))
    tx.execute(sa.delete(sessions).where(sessions.c.key == row.key))
    return True


def forget_before(tx: Transaction, before: float, limit: int) -> list[str]:
    """Those that are free, and that nobody waits for; their ids."""
    waited_for = sa.select(queue.c.session_id)
    unused = sa.select(sessions.c.id).where(sessions.c.updated_at < before, sessions.c.holder.is_(None))
    found = [row.id for row in tx.all(unused.where(sessions.c.id.not_in(waited_for)).limit(limit))]
    return [id for id in found if _is_unused(locked(tx, id), before) and delete(tx, id)]


def _is_unused(row: Any, before: float) -> bool:
    """Of a locked row: somebody may have come meanwhile."""
    return row is not None and row.holder is None and row.updated_at < before


def forget_user(tx: Transaction, user: str) -> None:
    facts.forget_user(tx, user)
    runs.forget(tx, run_table.c.user_id == user)
