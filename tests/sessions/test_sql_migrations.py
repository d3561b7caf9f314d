"""The schema's versions."""

from __future__ import annotations

import asyncio
import json
import sqlite3
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa

from halter.errors import SessionsUnavailable
from halter.sessions.port import RunQuery
from halter.sessions.records import Fact, FactScope, Session
from halter.sessions.sql import open_sql, schema
from halter.sessions.sql.columns import escaped
from halter.sessions.sql.dialects import Sqlite
from halter.sessions.sql.migrations import NEWEST, POSTGRESQL, SQLITE, STEPS, Types, migrate
from halter.sessions.sql.postgresql import _Pool
from halter.sessions.sql.runs import _live
from halter.sessions.sql.sqlite import _engine

from .contract import ANN, HI, Open, said

TABLES = {table.name: {column.name for column in table.columns} for table in schema.TABLES}


def tables_of(connection: sa.Connection) -> dict[str, set[str]]:
    found = sa.inspect(connection)
    names = [name for name in found.get_table_names() if name.startswith("halter_") and name in TABLES]
    return {name: {column["name"] for column in found.get_columns(name)} for name in names}


def test_a_turn_looks_at_no_run_of_its_session_that_is_over(tmp_path: Path) -> None:
    engine = _engine(tmp_path / "a.db", "BEGIN IMMEDIATE")
    with engine.begin() as connection:
        migrate(connection, SQLITE)
        asked = _live(Sqlite(), True).compile(engine)  # pyright: ignore[reportAttributeAccessIssue]
        plan = connection.exec_driver_sql(f"EXPLAIN QUERY PLAN {asked}", tuple(1 for _ in asked.positiontup)).all()
    assert "halter_runs_live_session" in plan[0][3]


def test_after_all_steps_a_sqlite_file_has_the_tables_that_the_queries_know(tmp_path: Path) -> None:
    engine = _engine(tmp_path / "a.db", "BEGIN IMMEDIATE")
    with engine.begin() as connection:
        migrate(connection, SQLITE)
    with engine.begin() as connection:
        assert tables_of(connection) == TABLES


def test_after_all_steps_a_postgresql_has_the_tables_that_the_queries_know(postgres_url: str) -> None:
    async def scenario() -> dict[str, set[str]]:
        return await _in(postgres_url, lambda connection: (migrate(connection, POSTGRESQL), tables_of(connection))[1])

    assert asyncio.run(scenario()) == TABLES


async def _in(url: str, fn: Callable[[sa.Connection], Any]) -> Any:
    pool = _Pool(url, 5.0)
    try:
        async with pool.engine.begin() as connection:
            return await connection.run_sync(fn)
    finally:
        await pool.aclose()


_OLD_ROW = (
    "INSERT INTO halter_sessions (id, title, title_words, tags, messages, generation, created_at, updated_at) "
    "VALUES ('old', 'Rome', ' rome ', '', 0, 3, 1.5, 2.5)"
)


def _as_of_version_1(connection: sa.Connection, types: Types) -> None:
    migrate(connection, types, upto=1)
    connection.execute(sa.text(_OLD_ROW))


def test_a_sqlite_file_of_the_first_version_is_brought_to_ours_and_keeps_what_it_has(tmp_path: Path) -> None:
    path = tmp_path / "old.db"
    with _engine(path, "BEGIN IMMEDIATE").begin() as connection:
        _as_of_version_1(connection, SQLITE)
    asyncio.run(_what_was_there_is_there(str(path)))
    with sqlite3.connect(path) as plain:
        assert plain.execute(f"SELECT version FROM {schema.VERSION}").fetchall() == [(NEWEST,)]
    plain.close()


def test_a_postgresql_of_the_first_version_is_brought_to_ours_and_keeps_what_it_has(postgres_url: str) -> None:
    asyncio.run(_in(postgres_url, lambda connection: _as_of_version_1(connection, POSTGRESQL)))
    asyncio.run(_what_was_there_is_there(postgres_url))


async def _what_was_there_is_there(where: str) -> None:
    store = open_sql(where, patience=5.0)
    conversation = await store.load("old")
    assert conversation is not None
    assert conversation.session == Session(id="old", title="Rome", created_at=1.5, updated_at=2.5)
    fact = Fact(id="1", scope=ANN, text="likes tea")
    assert await store.change_facts(ANN, put=[fact], session_id="old", known_from=0, known_upto=0)
    assert await store.facts(ANN) == [fact]
    await store.aclose()


def test_a_view_of_somebody_elses_that_blocks_a_migration_is_named(postgres_url: str) -> None:
    """It is made of ours, which are made anew."""

    def prepare(connection: sa.Connection) -> None:
        migrate(connection, POSTGRESQL)
        connection.execute(sa.text("CREATE VIEW sales_report AS SELECT id FROM halter_sessions_view"))
        connection.execute(sa.text(f"UPDATE {schema.VERSION} SET version = {NEWEST - 1}"))

    async def scenario() -> None:
        await _in(postgres_url, prepare)
        store = open_sql(postgres_url, patience=5.0)
        with pytest.raises(
            SessionsUnavailable, match=r"view sales_report depends on .*halter sessions migrate"
        ) as raised:
            await store.migrate()
        assert not raised.value.retryable
        await store.aclose()

    asyncio.run(scenario())


def test_a_step_that_fails_leaves_the_version_before_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "a.db"
    with _engine(path, "BEGIN IMMEDIATE").begin() as connection:
        _as_of_version_1(connection, SQLITE)
    broken = "CREATE TABLE halter_half (a INTEGER); CREATE TABLE halter_sessions (a INTEGER)"
    monkeypatch.setattr("halter.sessions.sql.migrations.STEPS", (STEPS[0], broken))
    with pytest.raises(sa.exc.OperationalError), _engine(path, "BEGIN IMMEDIATE").begin() as connection:
        migrate(connection, SQLITE)
    monkeypatch.undo()
    asyncio.run(_what_was_there_is_there(str(path)))
    with sqlite3.connect(path) as plain:
        assert plain.execute("SELECT count(*) FROM sqlite_master WHERE name = 'halter_half'").fetchall() == [(0,)]
    plain.close()


@pytest.mark.parametrize("place", ["sqlite", "postgres"])
def test_a_database_of_a_later_version_is_refused_by_name(place: str, request: pytest.FixtureRequest) -> None:
    open_store: Open = request.getfixturevalue(f"{place}_store")

    async def scenario() -> None:
        store: Any = open_store()
        await store.create(Session(id="s"), [HI])
        await store._database.write(_later)
        later = open_store()
        for _ in range(2):
            with pytest.raises(SessionsUnavailable, match=f"version {NEWEST + 1}.*knows {NEWEST}") as raised:
                await later.load("s")
            assert not raised.value.retryable
        await store.aclose()
        await later.aclose()

    asyncio.run(scenario())


def _later(connection: sa.Connection) -> None:
    connection.execute(sa.text(f"UPDATE {schema.VERSION} SET version = {NEWEST + 1}"))


@pytest.mark.parametrize("place", ["sqlite", "postgres"])
def test_those_who_open_an_empty_database_at_once_all_succeed(place: str, request: pytest.FixtureRequest) -> None:
    open_store: Open = request.getfixturevalue(f"{place}_store")
    together = threading.Barrier(6)
    failed: list[BaseException] = []

    async def scenario(number: int) -> None:
        store = open_store()
        await store.create(Session(id=f"s{number}"), [HI])
        assert await said(store, f"s{number}") == [HI]
        await store.aclose()

    def work(number: int) -> None:
        together.wait()
        try:
            asyncio.run(scenario(number))
        except BaseException as error:
            failed.append(error)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failed == []


# --- version 3: facts lie in separate key spaces ------------------------------------------------------------

SESSIONS = {"of ann": "ann", "ann": None, "anonymous": None, "both": "both", "moved": "eve", "Jos\\e": "Jos\\e"}
FACTS = {  # by the name and the session that a fact had: whose it is
    ("ann", "of ann"): FactScope("user", "ann"),
    ("ann", "ann"): FactScope("session", "ann"),
    ("anonymous", "anonymous"): FactScope("session", "anonymous"),
    ("both", "both"): FactScope("user", "both"),
    ("bob", "moved"): FactScope("custom", "bob"),
    ("team", "of ann"): FactScope("custom", "team"),
    ("Jos\\e", "Jos\\e"): FactScope("user", "Jos\\e"),
    ("ann", None): FactScope("user", "ann"),
    ("anonymous", None): FactScope("session", "anonymous"),
    ("team", None): FactScope("custom", "team"),
    ("stranger", None): FactScope("user", "stranger"),
}
_FACT = (
    "INSERT INTO halter_facts (scope, id, session_id, updated_at, recalled_at, data) VALUES (:s, :i, :o, 0, 2.5, :d)"
)
_SESSION = (
    "INSERT INTO halter_sessions (id, user_id, known, title, title_words, tags, messages, generation, created_at, "
    "updated_at) VALUES (:i, :u, :k, '', '', '', 0, 0, 1.5, 2.5)"
)
_RUN = (
    "INSERT INTO halter_runs (run_id, session_id, owner, status, live, tags, started_at, ended_at, data) "
    "VALUES (:r, :s, '', 'completed', 0, '', 0, 0, :d)"
)


def _as_of_version_2(connection: sa.Connection, types: Types) -> None:
    migrate(connection, types, upto=2)
    for id, user in SESSIONS.items():
        names = {name for name, session in FACTS if session == id}
        row = {"i": escaped(id), "u": user and escaped(user), "k": json.dumps(dict.fromkeys(names, 3)).encode()}
        connection.execute(sa.text(_SESSION), row)
        data = json.dumps({"run_id": f"run of {id}", "session_id": id, "status": "completed"}).encode()
        connection.execute(sa.text(_RUN), {"r": escaped(f"run of {id}"), "s": escaped(id), "d": data})
    for id, damage in (("broken", b"{"), ("empty", b"")):
        connection.execute(sa.text(_SESSION), {"i": id, "u": "x", "k": damage})
        connection.execute(sa.text(_RUN), {"r": id, "s": id, "d": damage})
    for number, (name, session) in enumerate(FACTS):
        data = json.dumps({"id": f"{number}", "scope": name, "text": f"tea {number}", "session_id": session}).encode()
        row = {"s": escaped(name), "i": f"{number}", "o": session and escaped(session), "d": data}
        connection.execute(sa.text(_FACT), row)


async def _facts_are_apart(where: str) -> None:
    store = open_sql(where, patience=5.0)
    for number, ((_, session), scope) in enumerate(FACTS.items()):
        fact = Fact(id=f"{number}", scope=scope, text=f"tea {number}", session_id=session, recalled_at=2.5)
        assert fact in await store.facts(scope)
    found = [fact.id for scope in set(FACTS.values()) for fact in await store.facts(scope)]
    assert sorted(found, key=int) == [f"{number}" for number in range(len(FACTS))]
    for id, user in SESSIONS.items():
        assert await store.known(id) == {scope: 3 for (_, session), scope in FACTS.items() if session == id}
        [record] = await store.runs(RunQuery(session_id=id))
        assert record.user == user
        assert record in await store.runs(RunQuery(user=user))
    new = Fact(id="0", scope=FactScope("session", "x"), text="another key space")
    await store.change_facts(new.scope, put=[new])
    assert await store.facts(new.scope) == [new]
    await store.aclose()


@pytest.mark.scenario("K101")
def test_facts_of_an_old_sqlite_file_are_put_into_the_key_spaces_that_they_came_from(tmp_path: Path) -> None:
    with _engine(tmp_path / "old.db", "BEGIN IMMEDIATE").begin() as connection:
        _as_of_version_2(connection, SQLITE)
    asyncio.run(_facts_are_apart(str(tmp_path / "old.db")))


@pytest.mark.scenario("K101")
def test_facts_of_an_old_postgresql_are_put_into_the_key_spaces_that_they_came_from(postgres_url: str) -> None:
    asyncio.run(_in(postgres_url, lambda connection: _as_of_version_2(connection, POSTGRESQL)))
    asyncio.run(_facts_are_apart(postgres_url))
