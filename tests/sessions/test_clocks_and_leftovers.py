"""Leases by a clock that nobody sets; what was deleted, and what dead processes leave behind, is removed."""

from __future__ import annotations

import asyncio
import logging
import sqlite3
import time
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa

from halter.core import boot_clock
from halter.core.owner import Owner
from halter.messages import Message
from halter.sessions import Sessions
from halter.sessions.records import Fact, FactScope
from halter.sessions.sql import open_sql

from .contract import BESIDE, GONE, HERE, HI, LONG, Open, a_run, ended, refused, taken, with_a_turn

SECRET = "Rumpelstiltskin"


@pytest.mark.parametrize("jump", [3_600.0, -3_600.0, 1e8])
def test_a_wall_clock_that_jumps_takes_no_live_turn(
    jump: float, sqlite_store: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def scenario() -> None:
        store, other = sqlite_store(), sqlite_store()
        turn = await taken(store, a_run())
        ticket = await store.queue("s", "run-3", HERE, lease_for=LONG, first=False)
        wall = time.time
        monkeypatch.setattr(time, "time", lambda: wall() + jump)
        assert (await refused(other, a_run("run-2", owner=BESIDE))).holder == "run-1"
        assert await other.lost() == []
        await store.close(turn.lease, ended(a_run()), 0, [HI])
        assert (await refused(other, a_run("run-2", owner=BESIDE))).holder is None  # somebody waits
        await taken(store, a_run("run-3"), ticket=ticket)
        monkeypatch.undo()
        await store.aclose()
        await other.aclose()

    asyncio.run(scenario())


def test_a_turn_from_before_the_machine_was_started_is_free(sqlite_store: Open) -> None:
    async def scenario() -> None:
        store = sqlite_store()
        here = str(Owner.here())
        await taken(store, a_run(owner="f" * 32 + here[32:] + "/1"), lease_for=1e7)
        [lost] = await store.lost()
        assert lost.run_id == "run-1"
        await taken(store, a_run("run-2"))
        await store.aclose()

    asyncio.run(scenario())


def test_a_lease_that_an_older_version_has_written_by_the_wall_clock_holds_and_runs_out(sqlite_store: Open) -> None:
    async def scenario() -> None:
        store: Any = sqlite_store()
        await taken(store, a_run())
        for seconds, is_free in ((60.0, False), (-60.0, True)):
            until = sa.text(f"UPDATE halter_sessions SET expires_at = {time.time() + seconds}")

            def change(connection: sa.Connection, until: sa.TextClause = until) -> None:
                connection.execute(until)

            await store._database.write(change)
            assert bool(await store.lost()) is is_free
        await store.aclose()

    asyncio.run(scenario())


def test_the_clock_of_leases_goes_on_with_time() -> None:
    before = boot_clock.now()
    time.sleep(0.01)
    assert 0.01 <= boot_clock.now() - before < 5.0


# --- what was deleted ---------------------------------------------------------------------------------------


async def _deleted(chats: Sessions) -> None:
    await chats.delete("s")


async def _rewound(chats: Sessions) -> None:
    await chats.rewind("s", 0)


async def _forgotten(chats: Sessions) -> None:
    await chats.delete("s")
    await chats._store.change_facts(FactScope("user", "u"), forget=["1"])


async def _pruned(chats: Sessions) -> None:
    chats._place._keep_sessions_for = 0.0
    await chats.prune()  # unless the first use of the place has done it
    assert await chats.list() == []


@pytest.mark.parametrize("way", [_deleted, _rewound, _forgotten, _pruned])
def test_what_was_deleted_is_in_no_file(way: Any, tmp_path: Path) -> None:
    async def scenario() -> None:
        store: Any = open_sql(tmp_path / "a.db")
        await with_a_turn(store, Message.user(SECRET), Message.assistant("I know."))
        if way is _forgotten:
            fact = Fact(id="1", scope=FactScope("user", "u"), text=SECRET)
            await store.change_facts(fact.scope, put=[fact])
        assert SECRET in _bytes_in(tmp_path)
        await way(Sessions(store))
        assert SECRET not in _bytes_in(tmp_path)  # while the process goes on
        await store.aclose()

    asyncio.run(scenario())


def _bytes_in(directory: Path) -> str:
    return "".join(path.read_bytes().decode("latin-1") for path in directory.glob("a.db*"))


def test_what_remains_of_what_was_deleted_while_others_read_is_said(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def scenario() -> None:
        store = open_sql(tmp_path / "a.db")
        await with_a_turn(store, Message.user(SECRET))
        reader = sqlite3.connect(tmp_path / "a.db", isolation_level=None)
        reader.execute("BEGIN")
        reader.execute("SELECT count(*) FROM halter_messages").fetchall()
        with caplog.at_level(logging.WARNING, "halter"):
            assert await store.delete("s")
        assert "a.db-wal" in caplog.text
        assert SECRET in _bytes_in(tmp_path)
        reader.close()
        await store.delete("s")
        assert SECRET not in _bytes_in(tmp_path)
        await store.aclose()

    asyncio.run(scenario())


# --- what dead processes leave ------------------------------------------------------------------------------


@pytest.mark.parametrize("place", ["sqlite_store", "postgres_store"])
def test_tickets_and_mail_of_dead_processes_are_removed_at_the_first_use(
    place: str, request: pytest.FixtureRequest
) -> None:
    open_place = request.getfixturevalue(place)

    async def scenario() -> None:
        store: Any = open_place()
        await taken(store, a_run("lives", "t"))
        await taken(store, a_run("killed", "s", owner=GONE))
        await store.queue("t", "waits", GONE, lease_for=LONG, first=False)
        stays = await store.queue("t", "waits-too", HERE, lease_for=LONG, first=False)
        await store.send("killed", [Message.user(SECRET)])
        waiting = await store.send("lives", [HI])
        answered = await store.send("lives", [HI])
        await store.sort_mail(returned=[answered])
        await Sessions(store).list()

        def left(connection: sa.Connection) -> tuple[list[int], list[int]]:
            tickets = connection.execute(sa.text("SELECT key FROM halter_queue")).scalars().all()
            return list(tickets), list(connection.execute(sa.text("SELECT key FROM halter_mail")).scalars().all())

        assert await store._database.read(left) == ([stays], [waiting])
        await store.aclose()

    asyncio.run(scenario())
