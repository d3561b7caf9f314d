"""PostgreSQL behind PgBouncer in transaction mode: each transaction may have another connection to the server."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Generator
from typing import Any

import asyncpg
import pytest

from halter.errors import ConfigurationError, SessionsUnavailable
from halter.messages import Message
from halter.sessions.sql import open_sql

from ..services.pgbouncer import PgBouncer, started
from ..services.postgres import Postgres
from .contract import CONTRACT, HELLO, HI, Check, a_run, ended, said, taken


@pytest.fixture(scope="module")
def bouncer(require: Callable[[str, bool], None], postgres: Postgres) -> Generator[PgBouncer]:
    bouncer = started(require, postgres)
    yield bouncer
    bouncer.close()


@pytest.fixture
def url(bouncer: PgBouncer) -> str:
    return bouncer.new_place()


def test_many_sessions_at_once_work(url: str) -> None:
    """Ten connections of each process share two: none finds a statement that another one has prepared."""

    async def one(store: Any, id: str) -> None:
        for number in range(5):
            turn = await taken(store, a_run(f"{id}-{number}", id))
            at = turn.conversation.session.messages
            await store.write(turn.lease, at, [HI])
            await store.close(turn.lease, ended(a_run(f"{id}-{number}", id)), at + 1, [HELLO])

    async def scenario() -> None:
        stores = [open_sql(url, patience=20.0) for _ in range(2)]
        await asyncio.gather(*(one(stores[number % 2], f"s{number}") for number in range(12)))
        for number in range(12):
            assert await said(stores[0], f"s{number}") == [HI, HELLO] * 5
        assert await prepared() == 0
        for store in stores:
            await store.aclose()

    async def prepared() -> int:
        """Statements that have a name, and so would be left on the server's connections."""
        connection: Any = await asyncpg.connect(url, statement_cache_size=0)
        try:
            return await connection.fetchval("SELECT count(*) FROM pg_prepared_statements WHERE name <> ''")
        finally:
            await connection.close()

    asyncio.run(scenario())


CHECKS = [check for check in CONTRACT if "turn" in check.__name__ or "mail" in check.__name__]


@pytest.mark.soak
@pytest.mark.parametrize("check", CHECKS, ids=[check.__name__ for check in CHECKS])
def test_the_contract_of_stores_holds(check: Check, url: str) -> None:
    asyncio.run(check(lambda: open_sql(url, patience=10.0)))


def test_nothing_is_set_for_others_who_get_the_same_connection(url: str) -> None:
    async def scenario() -> None:
        store = open_sql(url, patience=5.0)
        turn = await taken(store, a_run())
        await store.write(turn.lease, 0, [HI])
        connection: Any = await asyncpg.connect(url, statement_cache_size=0)
        for _ in range(4):
            assert await connection.fetchval("SHOW idle_in_transaction_session_timeout") == "0"
        await connection.close()
        await store.aclose()

    asyncio.run(scenario())


@pytest.mark.parametrize("parameter", ["search_path=halter", "bogus=1"])
def test_a_parameter_that_it_refuses_is_said_at_once(url: str, parameter: str) -> None:
    """PgBouncer knows few of the settings with which a connection may begin."""

    async def scenario() -> None:
        store = open_sql(f"{url}&{parameter}", patience=60.0)
        with pytest.raises(ConfigurationError, match=parameter.partition("=")[0]):
            await asyncio.wait_for(store.load("s"), 20.0)
        await store.aclose()

    asyncio.run(scenario())


@pytest.mark.parametrize("parameter", ["connect_timeout=10", "bogus=1", "sslmode=bogus", "sslmode=verify-full"])
def test_a_parameter_that_the_driver_or_the_server_refuses_is_said_at_once(postgres: Postgres, parameter: str) -> None:
    async def scenario() -> None:
        store = open_sql(f"{postgres.url()}&{parameter}", patience=60.0)
        with pytest.raises(ConfigurationError, match="URL"):
            await asyncio.wait_for(store.load("s"), 20.0)
        await store.aclose()

    asyncio.run(scenario())


@pytest.mark.parametrize("name", ["sslrootcert", "sslcert", "sslkey", "sslcrl"])
def test_a_certificate_that_is_not_there_is_said_before_anything_is_opened(name: str) -> None:
    with pytest.raises(ConfigurationError, match=f"{name}.*/nowhere/a.pem"):
        open_sql(f"postgresql://halter@localhost/db?sslmode=require&{name}=/nowhere/a.pem")


def test_a_port_that_is_no_number_is_said_before_anything_is_opened() -> None:
    with pytest.raises(ConfigurationError, match=r"port.*abc"):
        open_sql("postgresql://halter@/db?port=abc")


def test_a_file_that_holds_no_certificate_is_said_at_once(tmp_path: Any) -> None:
    (tmp_path / "a.pem").write_text("nothing")

    async def scenario() -> None:
        store = open_sql(
            f"postgresql://me@localhost/db?sslmode=verify-full&sslrootcert={tmp_path}/a.pem", patience=60.0
        )
        with pytest.raises(ConfigurationError, match="certificate"):
            await asyncio.wait_for(store.load("s"), 20.0)
        await store.aclose()

    asyncio.run(scenario())


def test_statements_are_prepared_once_where_nothing_stands_between(postgres_url: str) -> None:
    async def scenario() -> None:
        store: Any = open_sql(postgres_url, patience=5.0)
        turn = await taken(store, a_run())
        for at in range(3):
            await store.write(turn.lease, at, [Message.user("hi")])

        def names(connection: Any) -> int:
            return connection.exec_driver_sql(
                "SELECT count(*) FROM pg_prepared_statements WHERE name <> ''"
            ).scalar_one()

        assert await store._database.write(names) > 2
        await store.aclose()

    asyncio.run(scenario())


@pytest.mark.parametrize("place", ["sqlite_store", "postgres_store"])
def test_a_process_that_is_open_writes_nothing_once_others_have_brought_the_tables_to_a_later_version(
    place: str, request: pytest.FixtureRequest
) -> None:
    open_place = request.getfixturevalue(place)

    async def scenario() -> None:
        store: Any = open_place()
        turn = await taken(store, a_run())
        await store.write(turn.lease, 0, [HI])

        def later(connection: Any) -> None:
            connection.exec_driver_sql("UPDATE halter_version SET version = version + 1")

        other = open_place()
        await other.load("s")
        await other._database.write(later)
        with pytest.raises(SessionsUnavailable, match="install a later Halter"):
            await store.write(turn.lease, 1, [HELLO])
        with pytest.raises(SessionsUnavailable, match="install a later Halter"):
            await store.send("run-1", [HI])
        await other.aclose()
        await store.aclose()

    asyncio.run(scenario())
