"""The floor of sessions: a turn's rows by hand, in plain tables, through the bare drivers.

It stores as often as a session does, one transaction each: the turn is taken, the question is there before anybody is
asked, the answer when it has come, and the end. It knows no other process, no search, no repair: the least that storing
costs. Nobody would ship it.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Sequence
from typing import Any

TABLES = (
    "CREATE TABLE IF NOT EXISTS session (id TEXT PRIMARY KEY, holder TEXT, updated REAL)",
    "CREATE TABLE IF NOT EXISTS message (session TEXT, position INT, data TEXT, PRIMARY KEY (session, position))",
    "CREATE TABLE IF NOT EXISTS run (id TEXT PRIMARY KEY, session TEXT, data TEXT)",
)
_TAKE = "INSERT INTO session VALUES ({}, {}, 0) ON CONFLICT (id) DO UPDATE SET holder = excluded.holder"
SAY = "INSERT INTO message VALUES ({}, {}, {})"
_BEGIN = "INSERT INTO run VALUES ({}, {}, {})"
_END = "UPDATE run SET data = {} WHERE id = {}"
_FREE = "UPDATE session SET holder = NULL, updated = {} WHERE id = {}"
READ = "SELECT data FROM message WHERE session = {} ORDER BY position"
LOOK = "SELECT session, position, data FROM message WHERE data LIKE {} AND data LIKE {} ORDER BY session DESC LIMIT {}"
Step = Sequence[tuple[str, tuple[Any, ...]]]


def turn(session: str, number: int, said: Sequence[str]) -> list[Step]:
    """The transactions of a turn: one to take it, one for each message, one to end it."""
    run = f"{session}/{number}"
    at = number * len(said)
    return [
        [(_TAKE, (session, run)), (_BEGIN, (run, session, "{}"))],
        *([(SAY, (session, at + place, text))] for place, text in enumerate(said)),
        [(_END, ("{}", run)), (_FREE, (0.0, session))],
    ]


def open_sqlite(path: str) -> sqlite3.Connection:
    """As a session's file is opened: a log beside it, no wait for the disk at each commit."""
    connection = sqlite3.connect(path, isolation_level=None, timeout=60)
    connection.execute("PRAGMA journal_mode=WAL")
    connection.execute("PRAGMA synchronous=NORMAL")
    for statement in TABLES:
        connection.execute(statement)
    return connection


def do_in_sqlite(connection: sqlite3.Connection, steps: Sequence[Step]) -> None:
    for step in steps:
        connection.execute("BEGIN IMMEDIATE")
        for statement, values in step:
            connection.execute(statement.format(*("?" for _ in values)), values)
        connection.execute("COMMIT")


async def do_in_postgres(connection: Any, steps: Sequence[Step]) -> None:
    """`connection`: of asyncpg."""
    for step in steps:
        async with connection.transaction():
            for statement, values in step:
                await connection.execute(numbered(statement, len(values)), *values)


def numbered(statement: str, count: int) -> str:
    return statement.format(*(f"${number}" for number in range(1, count + 1)))


def read_sqlite(connection: sqlite3.Connection, session: str) -> list[Any]:
    return [json.loads(data) for (data,) in connection.execute(READ.format("?"), (session,)).fetchall()]


async def read_postgres(connection: Any, session: str) -> list[Any]:
    return [json.loads(row["data"]) for row in await connection.fetch(READ.format("$1"), session)]


def patterns(words: str) -> tuple[str, ...]:
    return tuple(f"%{word}%" for word in words.split())
