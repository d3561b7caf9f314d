"""A transaction that has happened and whose answer was lost is asked for again, and happens once."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, TypeVar

import pytest
import sqlalchemy as sa

from halter import Agent
from halter.errors import SessionsUnavailable
from halter.sessions import Sessions
from halter.sessions.port import RunQuery, Store
from halter.sessions.sql import store as stores
from halter.sessions.sql.store import Database, SqlStore

from .contract import CONTRACT, HI, Check, Open, a_run, said, taken
from .test_store_contract import _with_all_closed
from .troubled import Troubled

T = TypeVar("T")


class Deaf:
    """A database of which every first answer to a change is lost. `lost`: how many were."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._is_lost = False
        self.lost = 0
        self.where = database.where
        self.dialect = database.dialect

    async def read(self, fn: Callable[[sa.Connection], T]) -> T:
        return await self._database.read(fn)

    async def write(self, fn: Callable[[sa.Connection], T]) -> T:
        result = await self._database.write(fn)
        if not fn.args[1]:  # pyright: ignore  # `again`
            self.lost += 1
            raise ConnectionResetError("the answer was lost")
        return result

    async def aclose(self) -> None:
        await self._database.aclose()


def deaf(store: Store) -> SqlStore:
    assert isinstance(store, SqlStore)
    return SqlStore(Deaf(store._database), patience=5.0)


@pytest.fixture(autouse=True)
def no_pause(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stores, "FIRST_PAUSE", 0.0)


# Two threads of one test ask for the same turn at once here, and would have to ask twice each.
@pytest.mark.parametrize("check", CONTRACT, ids=lambda check: check.__name__)
def test_the_contract_is_kept_though_every_answer_is_lost_once(check: Check, sqlite_store: Open) -> None:
    asyncio.run(_with_all_closed(check, lambda: deaf(sqlite_store())))


def test_on_postgresql_a_turn_is_taken_and_closed_once_though_answers_are_lost(postgres_store: Open) -> None:
    async def scenario() -> None:
        store = deaf(postgres_store())
        record = a_run()
        turn = await taken(store, record)
        await store.write(turn.lease, 0, [HI])
        await store.close(turn.lease, record, 1, [HI])
        assert await said(store) == [HI, HI]
        assert (await taken(store, a_run("run-2"))).lease.generation > turn.lease.generation
        await store.aclose()

    asyncio.run(scenario())


def test_a_run_that_finds_its_own_record_is_not_ended_as_lost(sqlite_store: Open) -> None:
    """Its turn was taken and the answer lost: whoever steers it, or asks for its stop, would take it for over."""
    seen: list[str] = []

    async def look() -> None:
        seen.extend(record.status for record in await store.inner.runs(RunQuery()))

    store: Any = Troubled(load=look, record=look, write=look, close=look)
    store.inner = deaf(sqlite_store())

    async def scenario() -> None:
        async with Sessions(store) as chats:
            assert (await Agent("scripted:yes").run("hi", session=chats.session("s"))).text == "yes"

    asyncio.run(scenario())
    assert set(seen) == {"running"}


def test_what_never_answers_is_given_up_after_the_patience(sqlite_store: Open) -> None:
    class Dead(Deaf):
        async def write(self, fn: Callable[[sa.Connection], Any]) -> Any:
            self.lost += 1
            raise ConnectionRefusedError(111, "Connection refused")

    async def scenario() -> None:
        store = sqlite_store()
        assert isinstance(store, SqlStore)
        dead = Dead(store._database)
        clock = asyncio.get_running_loop().time
        began = clock()
        with pytest.raises(SessionsUnavailable, match=r"sessions\.db.*cannot be reached.*refused") as raised:
            await SqlStore(dead, patience=0.5).leave(1)
        assert raised.value.retryable
        assert 0.2 < clock() - began < 0.5 + 0.25
        assert dead.lost > 2

    asyncio.run(scenario())
