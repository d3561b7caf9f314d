"""What was said: written, compacted, cut and read."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import sqlalchemy as sa
from msgspec import UNSET

from halter.errors import UsageError
from halter.messages import Message
from halter.sessions.port import Conversation, Lease
from halter.sessions.records import Checkpoint
from halter.sessions.sql.columns import Unreadable, packed, packed_data, unpacked, unpacked_all
from halter.sessions.sql.damaged import damaged, tell
from halter.sessions.sql.held import about, change, held, known_in, packed_known, session_of
from halter.sessions.sql.schema import between, checkpoints, from_position, message_words, messages, number_of
from halter.sessions.sql.transaction import Transaction
from halter.sessions.words import shown_text, words

_ADDED = sa.insert(messages)
_DELETED = (
    sa.delete(messages).where(between(messages.c.key)),
    sa.delete(message_words).where(between(message_words.c.rowid)),
)
_CHECKPOINTS = (
    sa.select(checkpoints.c.key, checkpoints.c.data)
    .where(checkpoints.c.session_key == sa.bindparam("session"))
    .order_by(checkpoints.c.key.desc())
)
_NEWEST_CHECKPOINT = _CHECKPOINTS.limit(1)
_SAID = sa.select(messages.c.data).where(between(messages.c.key)).order_by(messages.c.key)

MOST_INDEXED = 100_000  # characters of a message whose words can be found


def write(tx: Transaction, lease: Lease, at: int, said: Sequence[Message], state: Any) -> None:
    row = held(tx, lease)
    change(tx, row.key, **written(tx, row, at, said, state))


def written(tx: Transaction, row: Any, at: int, said: Sequence[Message], state: Any) -> dict[str, Any]:
    """Writes the messages; what is to `change` in the session's row. `row`: locked."""
    if at > row.messages:
        raise UsageError(f"session {row.id!r} has {row.messages} messages: nothing can begin at {at}")
    values: dict[str, Any] = {"messages": at + len(said), "is_used": True}
    if state is not UNSET:
        values["state"] = packed_data(state)
    if at < row.messages:
        delete_from(tx, row.key, at)
        values |= _shortened(tx, row, at + len(said))
    enter(tx, row.key, at, said)
    return values


def enter(tx: Transaction, session_key: int, at: int, said: Sequence[Message]) -> None:
    """Adds messages where there are none."""
    if not said:
        return
    numbered = [(number_of(session_key, position), message) for position, message in enumerate(said, at)]
    tx.execute(_ADDED, [{"key": number, "data": packed(message)} for number, message in numbered])
    tx.put_words(message_words, ((number, words(shown_text(message)[:MOST_INDEXED])) for number, message in numbered))


def delete_from(tx: Transaction, session_key: int, position: int) -> None:
    """Deletes the messages of a session from a position on."""
    for statement in _DELETED:
        tx.execute(statement, from_position(session_key, position))


def _shortened(tx: Transaction, row: Any, to: int) -> dict[str, Any]:
    """What went further than the conversation does now cannot stay."""
    if to >= row.messages:
        return {}
    tx.execute(sa.delete(checkpoints).where(checkpoints.c.session_key == row.key, checkpoints.c.upto > to))
    known = known_in(row)
    return {"known": packed_known({scope: min(upto, to) for scope, upto in known.items()})} if known else {}


def cut(tx: Transaction, lease: Lease, to: int, of_run: str | None) -> None:
    row = held(tx, lease)
    if of_run is not None:
        forget_compactions(tx, row.key, of_run)
    if to < row.messages:
        change(tx, row.key, **written(tx, row, to, (), UNSET))


# --- compactions --------------------------------------------------------------------------------------------


def compact(tx: Transaction, lease: Lease, checkpoint: Checkpoint) -> None:
    row = held(tx, lease)
    if not (tx.again and newest_checkpoint(tx, row.key) == checkpoint):
        enter_checkpoint(tx, row.key, checkpoint)


def enter_checkpoint(tx: Transaction, session_key: int, checkpoint: Checkpoint) -> None:
    values = {"session_key": session_key, "upto": checkpoint.upto, "run_id": checkpoint.run_id}
    tx.execute(sa.insert(checkpoints), [{**values, "data": packed(checkpoint)}])


def newest_checkpoint(tx: Transaction, session_key: int) -> Checkpoint | None:
    row = tx.first(_NEWEST_CHECKPOINT, session=session_key)
    if row is None:
        return None
    try:
        return unpacked(row.data, Checkpoint)
    except Unreadable:
        return _newest_readable(tx, session_key)


def _newest_readable(tx: Transaction, session_key: int) -> Checkpoint | None:
    """All that was said is still there: an older compaction does, or none."""
    for row in tx.all(_CHECKPOINTS, session=session_key):
        try:
            return unpacked(row.data, Checkpoint)
        except Unreadable as why:
            tell(f"compaction {row.key}", why)
    return None


def forget_compactions(tx: Transaction, session_key: int, run_id: str) -> None:
    of_this = (checkpoints.c.session_key == session_key, checkpoints.c.run_id == run_id)
    tx.execute(sa.delete(checkpoints).where(*of_this))


# --- reading ------------------------------------------------------------------------------------------------


def load(tx: Transaction, session_id: str, full: bool) -> Conversation | None:
    row = about(tx, session_id)
    return None if row is None else conversation(tx, row, full=full)


def conversation(tx: Transaction, row: Any, *, full: bool = False) -> Conversation:
    """Of the session of this row."""
    checkpoint = newest_checkpoint(tx, row.key)
    since = checkpoint.upto if checkpoint is not None and not full else 0
    return Conversation(session=session_of(row), messages=_messages(tx, row, since), checkpoint=checkpoint)


def _messages(tx: Transaction, row: Any, since: int) -> tuple[Message, ...]:
    data: Sequence[bytes] = tx.execute(_SAID, from_position(row.key, since)).scalars().all()
    try:
        return unpacked_all(data, Message)
    except Unreadable:
        at, why = next(_unreadable(data))
        raise damaged(row.id, f"message {since + at}", why) from why


def _unreadable(data: Sequence[bytes]) -> Iterator[tuple[int, Unreadable]]:
    for at, each in enumerate(data):
        try:
            unpacked(each, Message)
        except Unreadable as why:
            yield at, why
