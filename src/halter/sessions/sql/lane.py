"""A thread with one connection to a SQLite file, which does one transaction after another.

1. SQLite has one writer: those of one event loop stand in a line here, and none of them waits for a lock of another.
2. A whole transaction is one trip to the thread: through a driver that makes a trip of each statement it takes six
times as long. 3. Whoever is cancelled stops waiting; the transaction that has begun goes on to its end.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import nullcontext
from queue import SimpleQueue
from typing import Any, TypeAlias, TypeVar

import sqlalchemy as sa

from halter.core.threads import deliver, spawn
from halter.errors import TurnLost, UsageError

T = TypeVar("T")

_Call: TypeAlias = tuple[asyncio.Future[Any], Callable[[sa.Connection], Any], bool]


class Lane:
    """For the event loop that runs here. The thread starts with the first call, and connects in it."""

    def __init__(self, name: str, engine: sa.Engine) -> None:
        self._name = name
        self._engine = engine
        self._loop = asyncio.get_running_loop()
        self._calls: SimpleQueue[_Call | None] | None = None
        self._ended: asyncio.Future[None] | None = None

    async def call(self, fn: Callable[[sa.Connection], T]) -> T:
        """`fn(connection)` in one transaction: committed when it returns, rolled back when it raises."""
        return await self._call(fn, in_transaction=True)

    async def outside(self, fn: Callable[[sa.Connection], T]) -> T:
        """`fn(connection)` between two transactions."""
        return await self._call(fn, in_transaction=False)

    async def _call(self, fn: Callable[[sa.Connection], T], *, in_transaction: bool) -> T:
        calls = self._calls or self._start()
        future: asyncio.Future[T] = self._loop.create_future()
        calls.put((future, fn, in_transaction))
        return await future

    async def aclose(self) -> None:
        """What was called so far is done; then the connection is closed and the thread has ended."""
        ended = self._ended
        self.lose()
        if ended is not None:
            await asyncio.shield(ended)

    def lose(self) -> None:
        """The same, and nobody waits for it."""
        if self._calls is not None:
            self._calls.put(None)
        self._calls = self._ended = None

    def _start(self) -> SimpleQueue[_Call | None]:
        self._calls = SimpleQueue()
        self._ended = self._loop.create_future()
        spawn(self._name, _work, self._engine, self._calls, self._loop, self._ended)
        return self._calls


def _work(
    engine: sa.Engine,
    calls: SimpleQueue[_Call | None],
    loop: asyncio.AbstractEventLoop,
    ended: asyncio.Future[None],
) -> None:
    connection: sa.Connection | None = None
    while (call := calls.get()) is not None:
        future, fn, in_transaction = call
        if future.cancelled():
            continue
        try:
            connection = connection or engine.connect()
            with connection.begin() if in_transaction else nullcontext():
                result = fn(connection)
        except BaseException as error:
            connection = _kept(connection, error)
            deliver(loop, future, None, error)
        else:
            deliver(loop, future, result, None)
        del call, future, fn  # or they would live until the next one comes
    if connection is not None:
        connection.close()
    deliver(loop, ended, None, None)


def _kept(connection: sa.Connection | None, error: BaseException) -> sa.Connection | None:
    """After an error of the file itself a new connection is made: what the old one believes may not be so."""
    if connection is None or isinstance(error, TurnLost | UsageError):
        return connection
    connection.close()
    return None
