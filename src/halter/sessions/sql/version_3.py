"""Version 3 of the tables: facts lie in separate key spaces, and records of runs name their user.

Until now a fact had the name of a user, of a session without a user, or of a function's choice, and nothing said which.
1. A fact that was learned in a session of its namesake is that user's; in the session of its name, the session's; in
any other one, it is of a name that a function gave. 2. One that was added by hand is the user's, unless there is no
such user and there is such a session, or other facts of that name are a function's.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

import msgspec
import sqlalchemy as sa

from halter.sessions.sql.columns import unescaped

AT_ONCE = 1_000  # rows

_STATEMENTS = """
ALTER TABLE halter_runs ADD COLUMN user_id TEXT;
UPDATE halter_runs SET user_id =
    (SELECT user_id FROM halter_sessions WHERE halter_sessions.id = halter_runs.session_id);
CREATE INDEX halter_runs_user ON halter_runs (user_id) WHERE user_id IS NOT NULL;
CREATE INDEX halter_sessions_user ON halter_sessions (user_id) WHERE user_id IS NOT NULL;
ALTER TABLE halter_facts ADD COLUMN kind TEXT NOT NULL DEFAULT 'custom';
UPDATE halter_facts SET kind = CASE
    WHEN EXISTS (
        SELECT 1 FROM halter_sessions WHERE id = halter_facts.session_id AND user_id = halter_facts.scope
    ) THEN 'user'
    WHEN session_id = scope THEN 'session'
    ELSE 'custom' END
    WHERE session_id IS NOT NULL;
UPDATE halter_facts SET kind = CASE
    WHEN EXISTS (SELECT 1 FROM halter_sessions WHERE user_id = halter_facts.scope) THEN 'user'
    WHEN EXISTS (SELECT 1 FROM halter_sessions WHERE id = halter_facts.scope AND user_id IS NULL) THEN 'session'
    WHEN EXISTS (
        SELECT 1 FROM halter_facts AS other
        WHERE other.scope = halter_facts.scope AND other.session_id IS NOT NULL AND other.kind = 'custom'
    ) THEN 'custom'
    ELSE 'user' END
    WHERE session_id IS NULL;
DROP INDEX halter_facts_scope
"""

# A fact's id is its own in its key space. SQLite cannot drop the constraint of a table that is there.
_BY_KIND = {
    "postgresql": "ALTER TABLE halter_facts DROP CONSTRAINT halter_facts_scope_id_key",
    "sqlite": """
DROP INDEX halter_facts_session;
CREATE TABLE halter_facts_by_kind (
    key INTEGER PRIMARY KEY AUTOINCREMENT, kind TEXT NOT NULL, scope TEXT NOT NULL, id TEXT NOT NULL, session_id TEXT,
    updated_at REAL NOT NULL, recalled_at REAL NOT NULL, data BLOB NOT NULL
);
INSERT INTO halter_facts_by_kind (key, kind, scope, id, session_id, updated_at, recalled_at, data)
    SELECT key, kind, scope, id, session_id, updated_at, recalled_at, data FROM halter_facts;
DROP TABLE halter_facts;
ALTER TABLE halter_facts_by_kind RENAME TO halter_facts;
CREATE INDEX halter_facts_session ON halter_facts (session_id)""",
}

_INDICES = """
CREATE UNIQUE INDEX halter_facts_id ON halter_facts (kind, scope, id);
CREATE INDEX halter_facts_scope ON halter_facts (kind, scope, updated_at)
"""


def step(connection: sa.Connection, types: Mapping[str, str]) -> None:
    for statements in (_STATEMENTS, _BY_KIND[connection.dialect.name], _INDICES):
        for statement in statements.split(";"):
            connection.execute(sa.text(statement))
    _name_users_in_records(connection)
    _separate_known(connection)


def _name_users_in_records(connection: sa.Connection) -> None:
    for row in _in_pages(connection, "halter_runs", "run_id", "user_id", "data"):
        if not isinstance(row.data, bytes) or not row.data.startswith(b"{"):
            continue  # damaged
        user = json.dumps({"user": unescaped(row.user_id)}, ensure_ascii=False).encode()
        _set(connection, "halter_runs", "run_id", row.run_id, data=user[:-1] + b"," + row.data[1:])


def _separate_known(connection: sa.Connection) -> None:
    """How far a session was learned from, by the kind of scope and its name; it was by the name alone."""
    for row in _in_pages(connection, "halter_sessions", "id", "known", "user_id"):
        known: dict[str, dict[str, int]] = {}
        for name, upto in _upto(row.known).items():
            is_user = row.user_id is not None and name == unescaped(row.user_id)
            kind = "user" if is_user else "session" if name == unescaped(row.id) else "custom"
            known.setdefault(kind, {})[name] = upto
        _set(connection, "halter_sessions", "id", row.id, known=json.dumps(known).encode())


def _upto(known: Any) -> dict[str, int]:
    """Damaged, it is empty: all is learned from once more."""
    try:
        return msgspec.json.decode(known, type=dict[str, int])
    except (TypeError, ValueError):
        return {}


def _in_pages(connection: sa.Connection, table: str, key: str, filled: str, other: str) -> Iterator[Any]:
    """The rows in which the column `filled` is not empty."""
    columns = f"SELECT {key}, {filled}, {other} FROM {table} WHERE {filled} IS NOT NULL"
    page = sa.text(f"{columns} AND {key} > :after ORDER BY {key} LIMIT {AT_ONCE}")
    after = ""
    while rows := connection.execute(page, {"after": after}).all():
        yield from rows
        after = getattr(rows[-1], key)


def _set(connection: sa.Connection, table: str, key: str, row: str, **value: bytes) -> None:
    [column] = value
    connection.execute(sa.text(f"UPDATE {table} SET {column} = :{column} WHERE {key} = :row"), {"row": row, **value})
