"""A database that fails is named, with what is wrong with it, and what had been stored is whole."""

from __future__ import annotations

import asyncio
import os
import re
import shutil
import sqlite3
import subprocess
import sys
import threading
import time
from collections.abc import Generator
from pathlib import Path
from typing import Any

import asyncpg
import pytest
import sqlalchemy as sa
from asyncpg.prepared_stmt import PreparedStatement

from halter import Agent
from halter.errors import SessionsUnavailable, TurnLost
from halter.messages import Message
from halter.models import Scripted
from halter.sessions import Sessions
from halter.sessions.records import Session
from halter.sessions.sql import open_sql, postgresql

from ..bounds import assert_within
from ..services.postgres import LOCKED, Postgres
from .contract import HELLO, HI, a_run, said, taken, with_a_turn

NOBODY = 65534  # the user `nobody`: root may write to what is read-only


async def refused(where: str | Path, match: str, *, patience: float = 20.0) -> SessionsUnavailable:
    """It is said at once: nothing of this passes by itself."""
    store = open_sql(where, patience=patience)
    began = time.monotonic()
    with pytest.raises(SessionsUnavailable, match=match) as raised:
        await with_a_turn(store, HI)
    took = time.monotonic() - began
    assert not raised.value.retryable
    await store.aclose()
    assert_within(5.0, took)
    return raised.value


# --- SQLite -------------------------------------------------------------------------------------------------


def test_a_directory_that_is_not_there_is_named(tmp_path: Path) -> None:
    path = tmp_path / "nowhere" / "a.db"
    error = asyncio.run(refused(path, "cannot be opened.*directory"))
    assert str(path) in str(error)
    assert not path.parent.exists()


def test_a_directory_in_place_of_the_file_is_refused(tmp_path: Path) -> None:
    asyncio.run(refused(tmp_path, "cannot be opened"))


def test_a_file_that_is_no_database_is_refused_and_left_as_it_is(tmp_path: Path) -> None:
    path = tmp_path / "letter.txt"
    path.write_text("Dear Alice, " * 1000)
    asyncio.run(refused(path, "is no SQLite database"))
    assert path.read_text() == "Dear Alice, " * 1000


def test_a_damaged_file_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "a.db"
    asyncio.run(_fill(path))
    with path.open("r+b") as file:
        file.seek(4096)
        file.write(b"\xff" * (path.stat().st_size - 4096))
    asyncio.run(refused(path, r"damaged|malformed"))


async def _fill(path: Path) -> None:
    store = open_sql(path, patience=5.0)
    await with_a_turn(store, HI, HELLO)
    await store.aclose()


@pytest.mark.skipif(os.geteuid() != 0, reason="takes another user's rights")
@pytest.mark.parametrize("what", ["file", "directory"])
def test_what_is_read_only_can_be_read_and_says_so_on_writing(what: str) -> None:
    directory = Path("/tmp") / f"halter-read-only-{os.getpid()}-{what}"
    directory.mkdir()
    try:
        path = directory / "a.db"
        asyncio.run(_fill(path))
        path.chmod(0o444)
        directory.chmod(0o777 if what == "file" else 0o555)
        program = f"""
            import asyncio, os, tempfile
            from halter.errors import SessionsUnavailable
            from halter.sessions.records import Session
            from halter.sessions.sql import open_sql, postgresql
            async def main():
                with tempfile.TemporaryDirectory() as elsewhere:
                    warm = open_sql(elsewhere + "/a.db")  # what is loaded late may not be readable for that user
                    await warm.create(Session(id="t"))
                    await warm.aclose()
                os.setuid({NOBODY})
                store = open_sql({str(path)!r})
                try:
                    await store.create(Session(id="t"))
                except SessionsUnavailable as error:
                    print(error, error.retryable)
            asyncio.run(main())
        """
        done = _python(program)
        assert "read-only" in done.stdout or "cannot be opened" in done.stdout, done
        assert "False" in done.stdout
        path.chmod(0o644)
        directory.chmod(0o755)
        asyncio.run(_is_whole(path))
    finally:
        shutil.rmtree(directory)


def _python(program: str) -> subprocess.CompletedProcess[str]:
    lines = program.splitlines()
    indent = min(len(line) - len(line.lstrip()) for line in lines if line.strip())
    text = "\n".join(line[indent:] for line in lines)
    return subprocess.run([sys.executable, "-c", text], capture_output=True, text=True, timeout=30, check=False)


async def _is_whole(path: Path) -> None:
    store = open_sql(path, patience=5.0)
    assert await said(store) == [HI, HELLO]
    await store.aclose()


def test_on_a_full_disk_nothing_is_half_there_and_when_there_is_room_it_goes_on(small_disk: Path) -> None:
    path = small_disk / "a.db"

    async def scenario() -> None:
        store = open_sql(path, patience=20.0)
        turn = await taken(store, a_run())
        await store.write(turn.lease, 0, [HI])
        written = 1
        began = time.monotonic()
        error = None
        while error is None:
            try:
                await store.write(turn.lease, written, [Message.user(f"{written}" * 100_000), HELLO])
                written += 2
            except SessionsUnavailable as raised:
                error = raised
        assert re.search(r"a\.db.*the disk is full", str(error))
        assert not error.retryable
        assert_within(15.0, time.monotonic() - began)
        assert len(await said(store)) == written
        (small_disk / "ballast").unlink()
        await store.write(turn.lease, written, [Message.user("x" * 100_000), HELLO])
        assert len(await said(store)) == written + 2
        await store.aclose()

    asyncio.run(scenario())


@pytest.fixture
def small_disk(tmp_path: Path) -> Generator[Path]:
    """A file system of 3 MB, a third of which can be made free."""
    place = tmp_path / "disk"
    place.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=3m", "tmpfs", place], capture_output=True, check=False
    )
    if mounted.returncode != 0:
        pytest.skip("may not mount a file system")
    try:
        (place / "ballast").write_bytes(b"\0" * 1_000_000)
        yield place
    finally:
        subprocess.run(["umount", place], check=True)


@pytest.mark.parametrize("which", ["", "-wal", "-shm"])
@pytest.mark.parametrize("through", ["a.db", "a link to it"])
def test_a_file_that_is_removed_while_in_use_is_missed(which: str, through: str, tmp_path: Path) -> None:
    """What is written to a file without a name is lost; and beside a log without a name, others write another one."""
    path = tmp_path / through
    if through != "a.db":
        path.symlink_to(tmp_path / "a.db")

    async def scenario() -> None:
        store = open_sql(path, patience=5.0)
        turn = await taken(store, a_run())
        await store.write(turn.lease, 0, [HI])
        (tmp_path / f"a.db{which}").unlink()
        with pytest.raises(SessionsUnavailable, match="removed or replaced"):
            await store.write(turn.lease, 1, [HI])
        if which:
            await store.write(turn.lease, 1, [HI])
            assert await said(store) == [HI, HI]
        await store.aclose()

    asyncio.run(scenario())


@pytest.mark.soak  # each of its runs tries to store its end for as long as it may: 51 s in all
@pytest.mark.timeout(180)
def test_a_session_whose_last_turn_could_not_be_stored_says_that_the_disk_is_full(small_disk: Path) -> None:
    """And not that it is busy: nobody would look at the disk for that."""
    agent = Agent(Scripted("x" * 100_000))

    async def scenario() -> None:
        chats = Sessions(small_disk / "a.db", patience=0.2)
        error = None
        while error is None:
            error = (await agent.run("hi", session=chats.session("s")).finished()).error
        assert "the disk is full" in str(error)
        for on_busy in ("reject", "enqueue"):
            result = await agent.run("hi", session=chats.session("s"), on_busy=on_busy).finished()
            assert isinstance(result.error, SessionsUnavailable), result.error
            assert "the disk is full" in str(result.error)
        (small_disk / "ballast").unlink()
        result = await agent.run("hi", session=chats.session("s")).finished()
        assert result.is_completed
        await chats.aclose()

    asyncio.run(scenario())


def test_a_lock_of_another_process_is_waited_for(tmp_path: Path) -> None:
    path = tmp_path / "a.db"

    async def scenario() -> None:
        store = open_sql(path, patience=10.0)
        turn = await taken(store, a_run())
        other = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
        other.execute("BEGIN IMMEDIATE")
        assert await said(store) == []  # readers need not wait
        threading.Timer(1.5, lambda: other.execute("ROLLBACK")).start()
        await store.write(turn.lease, 0, [HI])
        assert await said(store) == [HI]
        other.close()
        await store.aclose()

    asyncio.run(scenario())


def test_a_lock_that_stays_is_told_after_the_patience(tmp_path: Path) -> None:
    path = tmp_path / "a.db"

    async def scenario() -> None:
        store = open_sql(path, patience=0.3)
        turn = await taken(store, a_run())
        other = sqlite3.connect(path, isolation_level=None)
        other.execute("BEGIN IMMEDIATE")
        with pytest.raises(SessionsUnavailable, match=r"a\.db.*locked by another process") as raised:
            await store.write(turn.lease, 0, [HI])
        assert raised.value.retryable
        other.close()
        await store.write(turn.lease, 0, [HI])
        assert await said(store) == [HI]
        await store.aclose()

    asyncio.run(scenario())


# --- PostgreSQL ---------------------------------------------------------------------------------------------


def test_a_database_that_is_not_there_is_named_at_once(postgres: Postgres) -> None:
    asyncio.run(refused(postgres.url("nowhere"), "nowhere.*no such database"))


def test_a_wrong_password_is_said_at_once_and_not_shown(postgres: Postgres) -> None:
    asyncio.run(postgres.execute(f"DROP ROLE IF EXISTS {LOCKED}; CREATE ROLE {LOCKED} LOGIN PASSWORD 'right'"))
    url = postgres.url().replace("halter@", f"{LOCKED}:se%40cret@")
    store = open_sql(url, patience=20.0)
    assert "cret" not in repr(store)
    error = asyncio.run(refused(url, "wrong user, password"))
    assert "cret" not in str(error)
    assert "cret" not in str(error.__cause__)


def test_a_server_that_is_not_there_is_waited_for_and_then_told(tmp_path: Path) -> None:
    async def scenario() -> None:
        store = open_sql(f"postgresql://me:secret@/db?host={tmp_path}", patience=0.4)
        with pytest.raises(SessionsUnavailable, match="cannot be reached") as raised:
            await store.load("s")
        assert raised.value.retryable
        assert "secret" not in f"{raised.value}{raised.value.__cause__}"
        await store.aclose()

    asyncio.run(scenario())


def test_a_user_who_may_not_write_is_told_so(postgres: Postgres, postgres_url: str) -> None:
    async def scenario() -> None:
        store = open_sql(postgres_url, patience=5.0)
        await store.create(Session(id="s"), [HI, HELLO])
        only_reading = open_sql(f"{postgres_url}&default_transaction_read_only=on", patience=5.0)
        assert await said(only_reading) == [HI, HELLO]
        with pytest.raises(SessionsUnavailable, match="read-only") as raised:
            await only_reading.create(Session(id="t"))
        assert not raised.value.retryable
        await store.aclose()
        await only_reading.aclose()

    asyncio.run(scenario())


def test_connections_that_the_server_has_ended_are_made_anew(postgres: Postgres, postgres_url: str) -> None:
    """All of the pool at once, as after a fail-over."""

    async def scenario() -> None:
        store = open_sql(postgres_url, patience=5.0)
        turn = await taken(store, a_run())
        for at in range(3):
            await asyncio.gather(*(store.load("s") for _ in range(5)))
            await _end_all_connections(postgres)
            await store.write(turn.lease, at, [HI])
        assert await said(store) == [HI] * 3
        await store.aclose()

    asyncio.run(scenario())


def test_a_driver_that_has_lost_count_of_what_its_server_says_gets_a_new_connection(
    postgres_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It happens as the server crashes between two words: asyncpg raises what is neither an error of the server's nor
    of the network's, and its connection is no use any more."""

    async def scenario() -> None:
        store = open_sql(postgres_url, patience=5.0)
        turn = await taken(store, a_run())
        monkeypatch.setattr(PreparedStatement, "fetch", lost_count)
        await store.write(turn.lease, 0, [HI])
        assert broken
        assert all(connection.is_closed() for connection in broken)
        assert await said(store) == [HI]
        await store.aclose()

    async def lost_count(statement: Any, *values: object) -> Any:
        broken.append(statement._connection)
        monkeypatch.setattr(PreparedStatement, "fetch", fetch)
        raise asyncpg.InternalClientError("cannot switch to state 15; another operation (2) is in progress")

    fetch, broken = PreparedStatement.fetch, list[Any]()
    asyncio.run(scenario())


def test_a_process_that_stands_still_in_a_transaction_holds_others_up_for_seconds_only(
    postgres_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A machine that sleeps keeps its locks, and the server would wait for it for ever."""
    monkeypatch.setattr(postgresql, "ABANDONED", 500)

    async def scenario() -> None:
        store: Any = open_sql(postgres_url, patience=10.0)
        turn = await taken(store, a_run())
        pool = store._database._here()
        stands_still = await pool.engine.connect()
        await pool.begun(stands_still)
        await stands_still.execute(sa.text("SELECT * FROM halter_sessions FOR UPDATE"))
        began = time.monotonic()
        await store.write(turn.lease, 0, [HI])
        took = time.monotonic() - began
        with pytest.raises(sa.exc.DBAPIError):
            await stands_still.execute(sa.text("SELECT 1"))
        await stands_still.close()
        await store.aclose()
        assert_within(8.0, took)

    asyncio.run(scenario())


def test_a_write_that_waits_for_whoever_takes_its_turn_over_writes_nothing(postgres_url: str) -> None:
    """Had it looked at its turn meanwhile, it would have found it its own, and written over what the next run says."""

    async def scenario() -> None:
        store: Any = open_sql(postgres_url, patience=5.0)
        turn = await taken(store, a_run())
        next_run = await store._database._here().engine.connect()
        await next_run.execute(sa.text("UPDATE halter_sessions SET holder = 'run-2', generation = generation + 1"))
        writing = asyncio.create_task(store.write(turn.lease, 0, [HI]))
        while not await next_run.scalar(sa.text("SELECT count(*) FROM pg_locks WHERE NOT granted")):  # noqa: ASYNC110
            await asyncio.sleep(0.005)
        await next_run.commit()
        await next_run.close()
        with pytest.raises(TurnLost):
            await writing
        assert await said(store) == []
        await store.aclose()

    asyncio.run(scenario())


async def _end_all_connections(postgres: Postgres) -> None:
    connection: Any = await asyncpg.connect(postgres.url())
    try:
        others = "WHERE pid <> pg_backend_pid() AND datname IS NOT NULL"
        await connection.fetch(f"SELECT pg_terminate_backend(pid) FROM pg_stat_activity {others}")
    finally:
        await connection.close()
