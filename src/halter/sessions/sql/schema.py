"""The tables, as data. What makes and changes them is in `migrations.py`; a test compares the two.

1. A message is known by one number: its session's, and its position in the lower 32 bits. So a conversation lies in one
piece, and its words, which SQLite keeps in a table of its own kind, go by the same number. 2. What is looked for has a
column; all else is JSON in `data`. 3. `nonce`: of the call that has written a row, so that a call that is repeated
because its answer was lost knows its own.
"""

from __future__ import annotations

from typing import Any

import sqlalchemy as sa

from halter.sessions.sql.columns import AnyText, Tags

VERSION = "halter_version"
POSITIONS = 32  # bits of a message's number
LAST = (1 << POSITIONS) - 1

_tables = sa.MetaData()
_Number = sa.BigInteger().with_variant(sa.Integer, "sqlite")


def _words_table(name: str) -> sa.TableClause:
    return sa.table(name, sa.column("rowid", _Number), sa.column("words", sa.Text))


def _counted() -> sa.Column[int]:
    return sa.Column("key", _Number, sa.Identity(), primary_key=True)


sessions = sa.Table(
    "halter_sessions",
    _tables,
    _counted(),
    sa.Column("id", AnyText),
    sa.Column("user_id", AnyText),
    sa.Column("title", AnyText),
    sa.Column("title_words", sa.Text),
    sa.Column("tags", Tags),
    sa.Column("metadata", sa.LargeBinary),
    sa.Column("state", sa.LargeBinary),
    sa.Column("messages", _Number),
    sa.Column("holder", AnyText),
    sa.Column("owner", AnyText),
    sa.Column("generation", _Number),
    sa.Column("expires_at", sa.Double),
    sa.Column("created_at", sa.Double),
    sa.Column("updated_at", sa.Double),
    sa.Column("known", sa.LargeBinary),
    sa.Column("nonce", sa.Text),
)

messages = sa.Table(
    "halter_messages",
    _tables,
    sa.Column("key", _Number, primary_key=True, autoincrement=False),
    sa.Column("data", sa.LargeBinary),
)

checkpoints = sa.Table(
    "halter_checkpoints",
    _tables,
    _counted(),
    sa.Column("session_key", _Number),
    sa.Column("upto", _Number),
    sa.Column("run_id", AnyText),
    sa.Column("data", sa.LargeBinary),
)

queue = sa.Table(
    "halter_queue",
    _tables,
    _counted(),
    sa.Column("session_id", AnyText),
    sa.Column("run_id", AnyText),
    sa.Column("owner", AnyText),
    sa.Column("is_first", sa.Integer),
    sa.Column("expires_at", sa.Double),
    sa.Column("nonce", sa.Text),
)

# `live`: 1 until the record is final. `generation`: of the run's lease, if it has had one. `stop`: what was asked of
# it; `stop_nonce`: of the call that has handed that over.
runs = sa.Table(
    "halter_runs",
    _tables,
    sa.Column("run_id", AnyText, primary_key=True),
    sa.Column("session_id", AnyText),
    sa.Column("owner", AnyText),
    sa.Column("status", sa.Text),
    sa.Column("live", sa.Integer),
    sa.Column("tags", Tags),
    sa.Column("user_id", AnyText),
    sa.Column("generation", _Number),
    sa.Column("started_at", sa.Double),
    sa.Column("ended_at", sa.Double),
    sa.Column("data", sa.LargeBinary),
    sa.Column("stop", sa.LargeBinary),
    sa.Column("stop_nonce", sa.Text),
)

mail = sa.Table(
    "halter_mail",
    _tables,
    _counted(),
    sa.Column("run_id", AnyText),
    sa.Column("state", sa.Text),
    sa.Column("data", sa.LargeBinary),
    sa.Column("nonce", sa.Text),
    sa.Column("seen_nonce", sa.Text),
)

facts = sa.Table(
    "halter_facts",
    _tables,
    _counted(),
    sa.Column("kind", sa.Text),
    sa.Column("scope", AnyText),
    sa.Column("id", AnyText),
    sa.Column("session_id", AnyText),
    sa.Column("updated_at", sa.Double),
    sa.Column("recalled_at", sa.Double),
    sa.Column("data", sa.LargeBinary),
)

TABLES: tuple[sa.Table, ...] = (sessions, messages, checkpoints, queue, runs, mail, facts)

# Words by the number of what they are the words of: FTS5 in SQLite, `tsvector` in PostgreSQL.
message_words = _words_table("halter_message_words")
fact_words = _words_table("halter_fact_words")


def number_of(session_key: int, position: int) -> int:
    """The number of a message."""
    return (session_key << POSITIONS) | position


def position_of(number: int) -> int:
    return number & LAST


def session_key_of(number: sa.ColumnElement[int]) -> sa.ColumnElement[int]:
    return number.bitwise_rshift(sa.literal_column(str(POSITIONS)))


def between(number: sa.ColumnElement[Any]) -> sa.ColumnElement[bool]:
    """Those between two numbers, as `from_position` gives them."""
    return number.between(sa.bindparam("begin", type_=_Number), sa.bindparam("end", type_=_Number))


def from_position(session_key: int, position: int) -> dict[str, int]:
    """All of a session's messages from this position on."""
    return {"begin": number_of(session_key, position), "end": number_of(session_key, LAST)}
