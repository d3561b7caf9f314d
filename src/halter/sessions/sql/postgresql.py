"""A PostgreSQL database: on each event loop a pool of connections."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Generator
from contextlib import contextmanager
from typing import Any, TypeVar

import sqlalchemy as sa
from sqlalchemy import event, exc
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine, create_async_engine

from halter.core.home import home_here
from halter.core.lockfree import Wakers
from halter.sessions.sql.dialects import Dialect, Postgresql
from halter.sessions.sql.failures import layers
from halter.sessions.sql.migrations import (
    NEWEST,
    POSTGRESQL,
    is_current,
    needs_migration,
    prepare,
    refuse,
    version_found,
)
from halter.sessions.sql.schema import VERSION

T = TypeVar("T")
_BEGUN = sa.text(
    f"SELECT (SELECT max(version) FROM {VERSION}), set_config('idle_in_transaction_session_timeout', :abandoned, true)"
)

CONNECTIONS = 10
ABANDONED = 5_000  # milliseconds until the server ends a transaction whose process stands still: others wait for it
CLOSING = 2.0  # seconds that the end of a loop waits for transactions that are under way
NOT_ALLOWED = "42501"  # the code of PostgreSQL for what a role has no right to
MIGRATING = 0x68616C746572  # the key of the advisory lock: "halter"
_lost: list[object] = []  # pools of another process: to close them would be to speak on its sockets


class PostgresqlDatabase:
    """The database at `url`, as libpq writes it. `where`: as errors name it; `patience`: seconds for one answer.

    `may_migrate`: whether a database of an older version is brought to this one when it is opened.
    """

    def __init__(self, url: str, where: str, *, patience: float, may_migrate: bool = True) -> None:
        self._url = url
        self._may_migrate = may_migrate
        self._patience = patience
        self.where = where
        self.dialect: Dialect = Postgresql()

    async def read(self, fn: Callable[[sa.Connection], T]) -> T:
        """In a snapshot: what several queries find fits together."""
        pool = self._here()
        with pool.in_use():
            await pool.prepare()
            async with pool.snapshots.begin() as connection:
                return await connection.run_sync(fn)

    async def write(self, fn: Callable[[sa.Connection], T]) -> T:
        pool = self._here()
        with pool.in_use():
            await pool.prepare()
            async with pool.engine.begin() as connection:
                await pool.begun(connection)
                return await connection.run_sync(fn)

    async def migrate(self) -> int:
        """Brings the database to our version; the version that it had."""

        def fn(connection: sa.Connection) -> int:
            before = version_found(connection)
            _prepare(connection, may_migrate=True)
            return before

        pool = self._here()
        with pool.in_use():
            async with pool.engine.begin() as connection:
                return await connection.run_sync(fn)

    async def scrub(self) -> None:
        """Nothing: what was deleted goes with the server's next VACUUM."""

    async def aclose(self) -> None:
        pool = home_here().kept.pop(self, None)
        if pool is not None:
            await pool.aclose()

    def _here(self) -> _Pool:
        home = home_here()
        pool = home.kept.get(self)
        if pool is None:
            pool = home.kept[self] = _Pool(self._url, self._patience, may_migrate=self._may_migrate)
            pool.let_go = home.at_close(pool.aclose, lost=pool.lose)
        return pool


class _Pool:
    """That of one event loop."""

    def __init__(self, url: str, patience: float, *, may_migrate: bool = True) -> None:
        self._may_migrate = may_migrate
        self.let_go: Callable[[], object] = lambda: None  # what the loop knows of it
        self._is_ready = False
        self._users = 0
        self._unused = Wakers()
        self.engine: AsyncEngine = create_async_engine(
            "postgresql+asyncpg://",
            connect_args={"dsn": url, "timeout": patience, "command_timeout": patience},
            pool_size=CONNECTIONS,
            max_overflow=0,
            pool_timeout=patience,
            hide_parameters=True,
        )
        self._is_direct = False
        event.listen(self.engine.sync_engine, "do_connect", self._connecting)
        event.listen(self.engine.sync_engine, "checkout", self._checked_out)
        event.listen(self.engine.sync_engine, "handle_error", _failed)
        self.snapshots = self.engine.execution_options(isolation_level="REPEATABLE READ")

    async def prepare(self) -> None:
        if self._is_ready:
            return
        async with self.engine.begin() as connection:
            self._is_direct = self._is_direct or await connection.run_sync(_is_direct)
            await connection.run_sync(_prepare, may_migrate=self._may_migrate)
        self._is_ready = True

    async def begun(self, connection: AsyncConnection) -> None:
        """At the begin of a transaction that writes. Raises `SessionsUnavailable` if the tables are not ours any more.

        What stands between us and a server may give each transaction another connection: settings are for one.
        """
        found = (await connection.execute(_BEGUN, {"abandoned": str(ABANDONED)})).scalar_one()
        if found != NEWEST:
            self._is_ready = False
            refuse(found)

    def _connecting(self, dialect: object, record: object, arguments: object, options: dict[str, Any]) -> None:
        """A statement with a name is found on one connection to the server only, and others may have the same name."""
        if not self._is_direct:
            options |= {"statement_cache_size": 0, "prepared_statement_cache_size": 0}
            options["prepared_statement_name_func"] = str

    def _checked_out(self, connection: Any, record: Any, proxy: object) -> None:
        """Connections from before that was known are made anew."""
        if self._is_direct and connection._prepared_statement_cache is None:
            raise exc.DisconnectionError

    @contextmanager
    def in_use(self) -> Generator[None]:
        """For one transaction."""
        self._users += 1
        try:
            yield
        finally:
            self._users -= 1
            if not self._users:
                self._unused.wake()

    async def aclose(self) -> None:
        """Once nobody has a connection any more: one that comes back later would be closed by nobody."""
        self._is_ready = False
        try:
            async with asyncio.timeout(CLOSING):
                await self._unused.wait_until(lambda: not self._users)
        except TimeoutError:
            pass  # its server does not answer: the system closes it with the process
        await self.engine.dispose()
        if not self._users:  # else the loop's end does it once more
            self.let_go()

    def lose(self) -> None:
        _lost.append(self.engine)


def _is_direct(connection: sa.Connection) -> bool:
    """False if a pooler, such as PgBouncer, stands between us and the server: it makes up the process that it names."""
    driver: Any = connection.connection.driver_connection
    return driver.get_server_pid() == connection.execute(sa.select(sa.func.pg_backend_pid())).scalar_one()


def _failed(context: sa.ExceptionContext) -> None:
    """Where asyncpg has lost count of what its server says (it crashed between two words), the connection is no use."""
    if any(type(each).__name__ == "InternalClientError" for each in layers(context.original_exception)):
        context.is_disconnect = True


def _prepare(connection: sa.Connection, *, may_migrate: bool) -> None:
    if is_current(connection):
        return
    found = version_found(connection)
    try:
        if may_migrate:
            connection.execute(sa.select(sa.func.pg_advisory_xact_lock(MIGRATING)))
        prepare(connection, POSTGRESQL, may_migrate=may_migrate)
    except exc.DBAPIError as error:
        if _is_forbidden(error):
            raise needs_migration(found) from error
        raise


def _is_forbidden(error: exc.DBAPIError) -> bool:
    return any(getattr(each, "sqlstate", None) == NOT_ALLOWED for each in layers(error))
