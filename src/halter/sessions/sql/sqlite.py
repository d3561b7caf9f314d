"""A SQLite file: on each event loop one thread that writes and one that reads."""

from __future__ import annotations

import asyncio
import logging
import os
import sqlite3
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import sqlalchemy as sa
from sqlalchemy import event
from sqlalchemy.pool import NullPool

from halter.core.home import home_here
from halter.errors import SessionsUnavailable
from halter.sessions.sql.columns import utf8_or_bytes
from halter.sessions.sql.dialects import Dialect, Sqlite
from halter.sessions.sql.lane import Lane
from halter.sessions.sql.migrations import NEWEST, SQLITE, prepare, refuse, version_found
from halter.sessions.sql.schema import VERSION

T = TypeVar("T")

_logger = logging.getLogger("halter")
LOCKED = 1.0  # seconds that SQLite waits for another process before it says so; then we wait on
_PRAGMAS = ("journal_mode = WAL", "synchronous = NORMAL", "secure_delete = ON")  # the last: what is deleted is gone


class SqliteFile:
    """The file at `path`; it is made with the first use. `where`: as errors name it.

    `may_migrate`: whether a file of an older version is brought to this one when it is opened.
    """

    def __init__(self, path: Path, *, may_migrate: bool = True) -> None:
        self._path = path
        self._may_migrate = may_migrate
        self.where = f"the session file {str(path)!r}"
        self.dialect: Dialect = Sqlite()

    async def read(self, fn: Callable[[sa.Connection], T]) -> T:
        await self._here().prepare()
        return await self._here().reads(fn)  # others, if those were closed meanwhile

    async def write(self, fn: Callable[[sa.Connection], T]) -> T:
        await self._here().prepare()
        return await self._here().writes(partial(_checked, fn))

    async def migrate(self) -> int:
        """Brings the file to our version; the version that it had."""

        def fn(connection: sa.Connection) -> int:
            before = version_found(connection)
            prepare(connection, SQLITE, may_migrate=True)
            return before

        return await self._here().writes(fn)

    async def scrub(self) -> None:
        """What was deleted is still in the log beside the file, until that is written back and cut off."""
        remains = await self._here().writing.outside(_truncate)
        if remains:
            _logger.warning(
                "what was deleted may still be read in %s-wal: others are reading the file; it goes with the next "
                "deletion, or when the last process closes the file",
                self._path,
            )

    async def aclose(self) -> None:
        lanes = home_here().kept.pop(self, None)
        if lanes is not None:
            await lanes.aclose()

    def _here(self) -> _Lanes:
        home = home_here()
        lanes = home.kept.get(self)
        if lanes is None:
            lanes = home.kept[self] = _Lanes(self._path, may_migrate=self._may_migrate)
            lanes.let_go = home.at_close(lanes.aclose, lost=lanes.lose)
        return lanes


class _Lanes:
    """Those of one event loop. Their engines are theirs alone: a forked child must not meet a lock of a lost thread."""

    def __init__(self, path: Path, *, may_migrate: bool) -> None:
        self._prepare = partial(prepare, types=SQLITE, may_migrate=may_migrate)
        self.writing = Lane("sql-writer", _engine(path, "BEGIN IMMEDIATE"))
        self.reading = Lane("sql-reader", _engine(path, "BEGIN"))
        self.let_go: Callable[[], object] = lambda: None  # what the loop knows of them
        self._is_ready = False

    async def prepare(self) -> None:
        if not self._is_ready:
            await self._call(self.writing, self._prepare)
            self._is_ready = True

    async def reads(self, fn: Callable[[sa.Connection], T]) -> T:
        return await self._call(self.reading, fn)

    async def writes(self, fn: Callable[[sa.Connection], T]) -> T:
        return await self._call(self.writing, fn)

    async def _call(self, lane: Lane, fn: Callable[[sa.Connection], T]) -> T:
        try:
            return await lane.call(fn)
        except SessionsUnavailable:  # the next one may find another file in its place
            self._is_ready = False
            self.lose()
            raise

    async def aclose(self) -> None:
        self._is_ready = False
        await asyncio.gather(self.writing.aclose(), self.reading.aclose())
        self.let_go()

    def lose(self) -> None:
        self.writing.lose()
        self.reading.lose()


def _truncate(connection: sa.Connection) -> bool:
    """True if somebody was in the way."""
    driver: Any = connection.connection.driver_connection
    return bool(driver.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()[0])


def _checked(fn: Callable[[sa.Connection], T], connection: sa.Connection) -> T:
    """Past SQLAlchemy: each write asks for it."""
    driver: Any = connection.connection.driver_connection
    (found,) = driver.execute(f"SELECT max(version) FROM {VERSION}").fetchone()
    if found != NEWEST:
        refuse(found)
    return fn(connection)


def _engine(path: Path, begin: str) -> sa.Engine:
    engine = sa.create_engine("sqlite://", creator=partial(_connect, path), poolclass=NullPool, hide_parameters=True)
    event.listen(engine, "connect", partial(_connected, path))
    event.listen(engine, "begin", partial(_begin, path, begin))
    return engine


def _connect(path: Path) -> sqlite3.Connection:
    connection = sqlite3.connect(path, timeout=LOCKED, isolation_level=None)
    connection.text_factory = utf8_or_bytes
    try:
        for pragma in _PRAGMAS:
            connection.execute(f"PRAGMA {pragma}").close()
    except BaseException:
        connection.close()
        raise
    return connection


def _connected(path: Path, connection: Any, record: Any) -> None:
    beside = os.path.realpath(path)
    record.info["files"] = {name: _identity(name) for name in (str(path), f"{beside}-wal", f"{beside}-shm")}


def _begin(path: Path, begin: str, connection: sa.Connection) -> None:
    """SQLAlchemy leaves this to the driver, which would begin with the first change: too late for a lock."""
    _check(path, connection.info["files"])
    connection.exec_driver_sql(begin)


def _check(path: Path, files: dict[str, tuple[int, int] | None]) -> None:
    """What is written to a file that was removed is lost; while we use them, SQLite itself removes none of the three.

    `files`: their names, and which they were; those that were not there yet are noted. Raises `SessionsUnavailable`.
    """
    for name, known in files.items():
        found = _identity(name)
        if known is None:
            files[name] = found
        elif found != known:
            which = "" if name == str(path) else f" (with its {name[-4:]})"
            raise SessionsUnavailable(
                f"the session file {str(path)!r}{which} was removed or replaced while it was in use"
            )


def _identity(path: str) -> tuple[int, int] | None:
    try:
        found = os.stat(path)
    except FileNotFoundError:
        return None
    return found.st_dev, found.st_ino
