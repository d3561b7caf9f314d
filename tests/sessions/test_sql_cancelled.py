"""Whoever is cancelled in the middle of a step leaves no transaction open, and no step half done."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Awaitable, Callable
from pathlib import Path

import asyncpg
import pytest

from halter.messages import Message
from halter.sessions.port import Store, Taken
from halter.sessions.sql import open_sql

from ..services.postgres import Postgres
from .contract import HELLO, LONG, a_run, ended, said

TICKS = 24


async def cancelled_after(ticks: int, step: Awaitable[object]) -> bool:
    """Cancels the step after so many turns of the loop. True if it was cancelled."""
    task = asyncio.ensure_future(step)
    for tick in range(ticks):
        await asyncio.sleep(0.0005 if tick % 4 == 3 else 0)
    task.cancel()
    try:
        await task
    except asyncio.CancelledError:
        return True
    return False


async def sweep(store: Store, check: Callable[[], Awaitable[None]]) -> None:
    """A turn whose every step is cancelled somewhere, and which is then done all the same."""
    cancelled = 0
    for ticks in range(TICKS):
        session_id = f"s-{ticks}"
        record = a_run(f"run-{ticks}", session_id)
        cancelled += await cancelled_after(ticks, store.take(record, lease_for=LONG))
        await check()
        again = a_run(f"again-{ticks}", session_id)
        got = await store.take(again, lease_for=LONG)
        if not isinstance(got, Taken):
            assert got.holder == record.run_id  # it had happened, and nobody was told
            continue
        messages = [Message.user(f"{number}") for number in range(50)]
        cancelled += await cancelled_after(ticks, store.write(got.lease, 0, messages))
        await check()
        assert await said(store, session_id) in ([], messages)
        await store.write(got.lease, 0, messages)
        cancelled += await cancelled_after(ticks, store.load(session_id))
        await check()
        await store.close(got.lease, ended(again), 50, [HELLO])
        assert await said(store, session_id) == [*messages, HELLO]
    assert cancelled > TICKS / 4


def test_a_cancelled_step_leaves_no_transaction_in_sqlite(tmp_path: Path) -> None:
    path = tmp_path / "a.db"

    async def nobody_has_the_lock() -> None:
        await store.renew("nobody", lease_for=1.0)  # the step that was cancelled is over
        connection = sqlite3.connect(path, timeout=0)
        connection.execute("BEGIN IMMEDIATE").close()
        connection.close()

    store = open_sql(path, patience=5.0)

    async def scenario() -> None:
        await store.load("s")
        await sweep(store, nobody_has_the_lock)
        await store.aclose()

    asyncio.run(scenario())


def test_a_cancelled_step_leaves_no_transaction_in_postgresql(postgres: Postgres, postgres_url: str) -> None:
    async def scenario() -> None:
        watching = await asyncpg.connect(postgres.url())

        async def no_transaction_is_open() -> None:
            found = await watching.fetch(
                "SELECT query FROM pg_stat_activity WHERE state LIKE 'idle in transaction%' AND pid <> pg_backend_pid()"
            )
            assert found == []

        store = open_sql(postgres_url, patience=5.0)
        await store.load("s")
        await sweep(store, no_transaction_is_open)
        await store.aclose()
        await watching.close()

    asyncio.run(scenario())


@pytest.mark.parametrize("place", ["sqlite", "postgres"])
def test_a_hundred_that_are_cancelled_at_once_leave_a_pool_that_works(
    place: str, request: pytest.FixtureRequest
) -> None:
    store: Store = request.getfixturevalue(f"{place}_store")()

    async def scenario() -> None:
        await store.load("s")
        tasks = [
            asyncio.ensure_future(store.take(a_run(f"run-{number}", f"s-{number}"), lease_for=LONG))
            for number in range(100)
        ]
        await asyncio.sleep(0.02)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        async with asyncio.timeout(10):
            await asyncio.gather(*(store.load(f"s-{number}") for number in range(100)))
            await asyncio.gather(*(store.renew(f"nobody-{number}", lease_for=1.0) for number in range(20)))
        await store.aclose()

    asyncio.run(scenario())
