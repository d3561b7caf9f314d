"""`halter sessions migrate`, as an operator runs it."""

from __future__ import annotations

import asyncio
import io
import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from unittest.mock import patch

import pytest

from halter.cli.main import run_command
from halter.errors import SessionsUnavailable
from halter.sessions import Sessions
from halter.sessions.sql.migrations import NEWEST, SQLITE, migrate
from halter.sessions.sql.sqlite import _engine

from ..services.postgres import Postgres


def as_a_process(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "halter", "sessions", *arguments],
        capture_output=True,
        text=True,
        timeout=45,
        env={**os.environ, **environment},
        check=False,
    )


def halter(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """The same without a process, in a thread that has no event loop."""
    command, out, err = ["sessions", *arguments], io.StringIO(), io.StringIO()
    with patch.dict(os.environ, environment), redirect_stdout(out), redirect_stderr(err), ThreadPoolExecutor(1) as pool:
        code = pool.submit(run_command, command).result(45)
    return subprocess.CompletedProcess(command, code, out.getvalue(), err.getvalue())


def test_migrate_makes_the_tables_and_says_what_it_did(tmp_path: Path) -> None:
    file = str(tmp_path / "a.db")
    first, again = as_a_process("migrate", file), halter("migrate", HALTER_SESSIONS=file)
    assert (first.returncode, again.returncode) == (0, 0), first.stderr + again.stderr
    assert first.stdout == f"the session file {file!r}: version {NEWEST}, tables made\n"
    assert again.stdout == f"the session file {file!r}: version {NEWEST}, nothing to do\n"


def test_migrate_brings_an_old_database_to_this_version(tmp_path: Path) -> None:
    with _engine(tmp_path / "old.db", "BEGIN IMMEDIATE").begin() as connection:
        migrate(connection, SQLITE, upto=1)
    shown = halter("migrate", str(tmp_path / "old.db"))
    assert shown.stdout.endswith(f"version {NEWEST}, brought from version 1\n"), shown.stderr


@pytest.mark.parametrize("where", ["memory", "redis://here", "postgresql://u:secret@[::1/x", ""])
def test_a_place_that_cannot_be_migrated_is_one_line_and_shows_no_password(where: str) -> None:
    shown = halter("migrate", where, HALTER_SESSIONS="")
    assert shown.returncode == 2
    assert len(shown.stderr.strip().splitlines()) == 1
    assert "secret" not in shown.stderr


def test_without_migration_a_database_of_another_version_is_refused_with_the_command_to_run(tmp_path: Path) -> None:
    with _engine(tmp_path / "old.db", "BEGIN IMMEDIATE").begin() as connection:
        migrate(connection, SQLITE, upto=1)

    async def scenario() -> None:
        async with Sessions(tmp_path / "old.db", migrate=False) as chats:
            with pytest.raises(SessionsUnavailable, match=r"version 1.*halter sessions migrate") as raised:
                await chats.list()
            assert not raised.value.retryable
            assert halter("migrate", str(tmp_path / "old.db")).returncode == 0
            assert await chats.list() == []

    asyncio.run(scenario())


@pytest.mark.parametrize("migrates", [True, False])
def test_a_role_that_may_not_change_tables_is_told_which_command_does(
    postgres: Postgres,
    postgres_url: str,
    migrates: bool,
) -> None:
    schema = postgres_url.rpartition("=")[2]
    role = f"clerk_{schema}_{int(migrates)}"
    theirs = postgres_url.replace("halter@", f"{role}@")

    async def scenario() -> None:
        await postgres.execute(f"CREATE ROLE {role} LOGIN; GRANT USAGE ON SCHEMA {schema} TO {role}")
        async with Sessions(theirs, migrate=migrates) as chats:
            with pytest.raises(SessionsUnavailable, match=r"no tables of Halter.*halter sessions migrate"):
                await chats.list()
            done = await asyncio.to_thread(halter, "migrate", postgres_url)
            assert done.returncode == 0, done.stderr
            rights = "SELECT, INSERT, UPDATE, DELETE ON ALL TABLES"
            await postgres.execute(f"GRANT {rights} IN SCHEMA {schema} TO {role}")
            await chats.create("s", user="ann", messages="hi")
            assert [session.id for session in await chats.list(user="ann")] == ["s"]
            assert await chats.delete("s")

    asyncio.run(scenario())
