"""All rows that cannot be read, found and repaired: a page of a table after another, so that nobody waits for long."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeVar

import sqlalchemy as sa
from msgspec.structs import replace

from halter.messages import Message, Text, ToolResult
from halter.outcome import Cancellation
from halter.sessions.records import Checkpoint, Damage, RunRecord
from halter.sessions.sql.columns import Unreadable, any_json, packed, read_number, read_text, unpacked
from halter.sessions.sql.conversations import enter
from halter.sessions.sql.facts import StoredFact
from halter.sessions.sql.held import read_count, read_generation, unpacked_known
from halter.sessions.sql.runs import RECORD, made_up
from halter.sessions.sql.schema import (
    LAST,
    checkpoints,
    fact_words,
    facts,
    from_position,
    mail,
    message_words,
    messages,
    number_of,
    position_of,
    runs,
    session_key_of,
    sessions,
)
from halter.sessions.sql.transaction import Step, Transaction
from halter.sessions.sql.turns import FREE

PAGE = 500  # rows that are looked at in one transaction
UNREADABLE = "[This message was damaged where it was stored, and could not be read.]"
NO_RESULT = "The result of this call was damaged where it was stored, and could not be read."

T = TypeVar("T")
Carry = Callable[[Step[Any]], Awaitable[Any]]
Repair = Callable[[Transaction, Any], None]


@dataclass(frozen=True)
class Place:
    """A table, and what of it has to be readable. `rows`: its query, `key`: by which its pages follow one another."""

    kind: str
    rows: Any
    key: sa.ColumnElement[Any]
    read: Callable[[Any], object]
    repair: Repair
    remedy: str
    id_of: Callable[[Any], str] = lambda row: str(row.key)

    def page(self, tx: Transaction, after: Any) -> tuple[list[Damage], list[Any], Any]:
        """What is damaged among the next rows, those rows, and the last key; `None` behind the last page."""
        query = self.rows if after is None else self.rows.where(self.key > after)
        rows = tx.all(query.order_by(self.key).limit(PAGE))
        bad = [(damage, row) for row in rows if (damage := self.damage(row)) is not None]
        return [damage for damage, _ in bad], [row for _, row in bad], rows[-1][0] if len(rows) == PAGE else None

    def damage(self, row: Any) -> Damage | None:
        try:
            self.read(row)
        except Unreadable as why:
            return Damage(
                kind=self.kind, id=self.id_of(row), session_id=row.session_id, why=str(why), remedy=self.remedy
            )
        return None


async def checked(read: Carry, write: Carry, *, repair: bool) -> AsyncIterator[Damage]:
    """All that cannot be read. `read`, `write`: how a step is carried out."""
    for place in PLACES:
        after: Any = None
        while True:
            found, rows, after = await read(partial(place.page, after=after))
            for damage, row in zip(found, rows, strict=True):
                if repair:
                    await write(_step(place.repair, row))
                yield replace(damage, is_repaired=repair)
            if after is None:
                break


def _step(repair: Repair, row: Any) -> Step[None]:
    return lambda tx: repair(tx, row)


# --- what is looked at, in this order -----------------------------------------------------------------------


_SESSION: dict[str, Callable[[Any], object]] = {"metadata": any_json, "state": any_json, "known": unpacked_known}


_TEXTS = (sessions.c.id, sessions.c.user_id, sessions.c.title, sessions.c.holder, sessions.c.owner)


def _or_none(read: Callable[[Any], object]) -> Callable[[Any], object]:
    return lambda stored: None if stored is None else read(stored)


def _as_it_lies(column: sa.Column[Any]) -> sa.ColumnElement[Any]:
    return sa.type_coerce(column, sa.Text()).label(f"stored_{column.name}")


def _read_session(row: Any) -> None:
    for column in _TEXTS:
        read_text(getattr(row, f"stored_{column.name}"))
    if not isinstance(row.stored_tags, str):
        raise Unreadable("its tags are no text of ours")
    for name, read in _SESSION.items():
        read(getattr(row, name))
    read_count(row.messages)
    read_generation(row.generation)
    for time in (row.created_at, row.updated_at):
        read_number(time)
    _or_none(read_number)(row.expires_at)


def _repair_session(tx: Transaction, row: Any) -> None:
    kept: dict[str, Any] = {name: _readable(getattr(row, name), read) for name, read in _SESSION.items()}
    kept |= _mended_texts(tx, row) | _mended_times(tx, row)
    if _readable(row.generation, read_generation) is None:
        theirs = tx.all(sa.select(runs.c.generation).where(runs.c.session_id == row.session_id))
        kept["generation"] = max((each.generation for each in theirs if isinstance(each.generation, int)), default=0)
    if _readable(row.messages, read_count) is None:
        theirs = messages.c.key.between(number_of(row.key, 0), number_of(row.key, LAST))
        last = tx.execute(sa.select(sa.func.max(messages.c.key)).where(theirs)).scalar_one()
        kept["messages"] = 0 if last is None else position_of(last) + 1
    tx.execute(sa.update(sessions).where(sessions.c.key == row.key).values(kept))


def _mended_texts(tx: Transaction, row: Any) -> dict[str, Any]:
    """As they are shown. A turn whose holder cannot be read is free."""
    mended: dict[str, Any] = {}
    for column in _TEXTS:
        if not _is_readable(getattr(row, f"stored_{column.name}"), read_text):
            mended |= FREE if column.name in FREE else {column.name: getattr(row, f"shown_{column.name}")}
    if not isinstance(row.stored_tags, str):
        mended["tags"] = ()
    named_so = sa.select(sessions.c.key).where(sessions.c.id == mended.get("id"), sessions.c.key != row.key)
    if "id" in mended and tx.first(named_so) is not None:
        mended["id"] += f" {row.key}"
    return mended


def _mended_times(tx: Transaction, row: Any) -> dict[str, Any]:
    mended: dict[str, Any] = {}
    if not _is_readable(row.expires_at, _or_none(read_number)):
        mended["expires_at"] = None  # who has the turn renews it
    for name in ("created_at", "updated_at"):
        if not _is_readable(getattr(row, name), read_number):
            mended[name] = tx.clock()
    return mended


def _is_readable(data: Any, read: Callable[[Any], object]) -> bool:
    try:
        read(data)
    except Unreadable:
        return False
    return True


def _readable(data: T, read: Callable[[Any], object]) -> T | None:
    try:
        read(data)
    except Unreadable:
        return None
    return data


def _read_message(row: Any) -> None:
    if row.data is None:
        raise Unreadable("it is missing")
    unpacked(row.data, Message)


def _repair_message(tx: Transaction, row: Any) -> None:
    """In its place, what a model can be told; with results where calls would be left without."""
    before = _near(tx, row, -1)
    if before is not None and before.tool_calls:
        results = (ToolResult(call.id, NO_RESULT, is_error=True) for call in before.tool_calls)
        found = Message("tool", tuple(results), interrupted=True)
    else:
        found = Message(_role(row.data, before, _near(tx, row, 1)), (Text(UNREADABLE),), interrupted=False)
    for table, column in ((messages, messages.c.key), (message_words, message_words.c.rowid)):
        tx.execute(sa.delete(table).where(column == row.key))
    enter(tx, row.key >> 32, position_of(row.key), [found])


def _near(tx: Transaction, row: Any, distance: int) -> Message | None:
    """A neighbour of the same session, if it can be read."""
    there = tx.first(sa.select(messages.c.data).where(messages.c.key == row.key + distance))
    try:
        return None if there is None else unpacked(there.data, Message)
    except Unreadable:
        return None


def _role(data: bytes | None, before: Message | None, after: Message | None) -> Any:
    """Who has said it: it may be readable even now, else it is told by what stands around it."""
    try:
        role = json.loads(data or b"").get("role")
    except (AttributeError, ValueError, RecursionError):
        role = None
    if role in ("user", "assistant", "system"):
        return role
    is_answered = after is not None and after.role == "assistant"
    return "user" if before is None or (is_answered and before.role != "user") else "assistant"


def _delete(table: sa.Table) -> Repair:
    return lambda tx, row: tx.execute(sa.delete(table).where(table.c.key == row.key)) and None


def _read_run(row: Any) -> None:
    unpacked(row.data, RunRecord)
    read_number(row.started_at)
    _or_none(read_number)(row.ended_at)


def _repair_run(tx: Transaction, row: Any) -> None:
    try:
        record = unpacked(row.data, RunRecord)
    except Unreadable as why:
        record = made_up(row, why)
    times = {"started_at": record.started_at, "ended_at": record.ended_at}
    tx.execute(sa.update(runs).where(runs.c.run_id == row.run_id).values(data=packed(record), **times))


def _read_stop(row: Any) -> None:
    if row.stop is not None:
        unpacked(row.stop, Cancellation)


def _repair_stop(tx: Transaction, row: Any) -> None:
    tx.execute(sa.update(runs).where(runs.c.run_id == row.run_id).values(stop=None, stop_nonce=None))


def _repair_fact(tx: Transaction, row: Any) -> None:
    tx.execute(sa.delete(fact_words).where(fact_words.c.rowid == row.key))
    _delete(facts)(tx, row)


_about_sessions = sa.select(sessions.c.key, sessions.c.id.label("session_id"))
_about_messages = sa.select(messages.c.key, sessions.c.id.label("session_id"), messages.c.data).select_from(
    messages.join(sessions, sessions.c.key == session_key_of(messages.c.key))
)
_about_checkpoints = sa.select(checkpoints.c.key, sessions.c.id.label("session_id"), checkpoints.c.data).select_from(
    checkpoints.outerjoin(sessions, sessions.c.key == checkpoints.c.session_key)
)
_about_mail = sa.select(mail.c.key, runs.c.session_id, mail.c.data).select_from(
    mail.outerjoin(runs, runs.c.run_id == mail.c.run_id)
)


@dataclass(frozen=True)
class Missing:
    """A position of a session at which there is no message."""

    key: int
    session_id: str
    data: None = None


class _Gaps(Place):
    """Positions below a session's length at which there is nothing."""

    def page(self, tx: Transaction, after: Any) -> tuple[list[Damage], list[Any], Any]:
        query = self.rows if after is None else self.rows.where(self.key > after)
        rows = tx.all(query.order_by(self.key).limit(PAGE))
        gaps = [gap for row in rows for gap in _gaps(tx, row)]
        return [found for gap in gaps if (found := self.damage(gap))], gaps, rows[-1][0] if len(rows) == PAGE else None


def _gaps(tx: Transaction, row: Any) -> Sequence[Missing]:
    if _readable(row.messages, read_count) is None:
        return ()  # told of as the session's own damage
    within = messages.c.key.between(sa.bindparam("begin"), sa.bindparam("end"))
    given = from_position(row.key, 0)
    if tx.first(sa.select(sa.func.count()).select_from(messages).where(within), **given)[0] >= row.messages:
        return ()
    there = {position_of(each.key) for each in tx.all(sa.select(messages.c.key).where(within), **given)}
    numbers = (number_of(row.key, at) for at in range(row.messages) if at not in there)
    return [Missing(number, row.session_id) for number in numbers]


def _name(row: Any) -> str:
    return f"{row.session_id}/{position_of(row.key)}"


PLACES: tuple[Place, ...] = (
    Place(
        "session",
        _about_sessions.add_columns(
            *(sessions.c[name] for name in (*_SESSION, "messages", "generation")),
            *(sessions.c[name] for name in ("created_at", "updated_at", "expires_at")),
            *(_as_it_lies(column) for column in (*_TEXTS, sessions.c.tags)),
            *(column.label(f"shown_{column.name}") for column in _TEXTS),
        ),
        sessions.c.key,
        _read_session,
        _repair_session,
        "its metadata, its state, or how far facts were learned from it are emptied; its messages and turns are "
        "counted anew; texts are written as they are shown, times as of now",
        lambda row: row.session_id,
    ),
    _Gaps(
        "message",
        _about_sessions.add_columns(sessions.c.messages),
        sessions.c.key,
        _read_message,
        _repair_message,
        "a message that says that it was lost takes its place",
        _name,
    ),
    Place(
        "message",
        _about_messages,
        messages.c.key,
        _read_message,
        _repair_message,
        "a message that says that it was lost takes its place",
        _name,
    ),
    Place(
        "compaction",
        _about_checkpoints,
        checkpoints.c.key,
        lambda row: unpacked(row.data, Checkpoint),
        _delete(checkpoints),
        "it is deleted: all that was said is still there",
    ),
    Place(
        "run",
        sa.select(*RECORD),
        runs.c.run_id,
        _read_run,
        _repair_run,
        "a record with what else is known of the run takes its place",
        lambda row: row.run_id,
    ),
    Place(
        "stop",
        sa.select(runs.c.run_id, runs.c.session_id, runs.c.stop),
        runs.c.run_id,
        _read_stop,
        _repair_stop,
        "it is deleted",
        lambda row: row.run_id,
    ),
    Place(
        "mail",
        _about_mail.where(mail.c.state == "waiting"),
        mail.c.key,
        lambda row: unpacked(row.data, tuple[Message, ...]),
        _delete(mail),
        "it is deleted, and its sender has a turn of its own",
    ),
    Place(
        "fact",
        sa.select(facts.c.key, facts.c.session_id, facts.c.id, facts.c.data),
        facts.c.key,
        lambda row: unpacked(row.data, StoredFact),
        _repair_fact,
        "it is deleted",
        lambda row: row.id,
    ),
)
