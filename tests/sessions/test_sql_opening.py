"""Where a database may be, what is loaded for it, and what is left behind: nothing."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import pytest

from halter.errors import ConfigurationError
from halter.sessions.sql import open_sql

from .contract import HI, Open, a_run, said, taken, with_a_turn


def run(program: str, *arguments: str) -> str:
    """What the program prints; it must end well, and without a warning."""
    command = [sys.executable, "-W", "error", "-c", textwrap.dedent(program), *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=40, check=False)
    assert (done.returncode, done.stderr) == (0, ""), done.stderr
    return done.stdout


# --- where --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("where", ["", ":memory:", "sqlite://", "sqlite:///", "sqlite:///:memory:", "a\0b"])
def test_what_is_no_file_is_refused(where: str) -> None:
    with pytest.raises(ConfigurationError, match="memory"):
        open_sql(where)


@pytest.mark.parametrize("where", ["~nobody-of-this-name/chat.db", "\ud800.db"])
def test_what_the_system_takes_for_no_path_is_refused(where: str) -> None:
    with pytest.raises(ConfigurationError, match="no path of a file"):
        open_sql(where)


def test_other_databases_are_refused_without_their_passwords() -> None:
    with pytest.raises(ConfigurationError, match=r"mysql://…$") as raised:
        open_sql("mysql://me:secret@host/db")
    assert "secret" not in str(raised.value)


@pytest.mark.parametrize(
    "url",
    [
        "postgresql://me:se/cret@db.example/chats",
        "postgresql://me:se?cret@db.example/chats",
        "postgresql://me:se#cret@db.example/chats",
        "postgresql://me:se%40cret@db.example/chats",
        "postgresql://me@db.example/chats?password=se@cret&sslmode=require",
        "postgres://me:secret@one.example:5432,two.example:5433/chats",
        "postgresql+asyncpg://me:secret@db.example/chats?channel_binding=require",
    ],
)
def test_no_password_is_shown(url: str) -> None:
    try:
        shown = repr(open_sql(url))
    except ConfigurationError as error:
        shown = f"{error} {error.__cause__}"
    assert "cret" not in shown
    assert "me" not in shown.replace("memory", "").replace("named", "")


def test_a_relative_path_is_that_of_the_directory_where_it_was_given(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    stores = [open_sql("chat.db"), open_sql("sqlite:///chat.db"), open_sql(Path("chat.db"))]
    monkeypatch.chdir("/")
    absolute = open_sql(f"sqlite:///{tmp_path}/chat.db")

    async def scenario() -> None:
        await with_a_turn(stores[0], HI)
        for store in [*stores, absolute]:
            assert await said(store) == [HI]
            await store.aclose()

    asyncio.run(scenario())
    assert (tmp_path / "chat.db").exists()


def test_nothing_is_opened_before_it_is_used(tmp_path: Path) -> None:
    open_sql(tmp_path / "a.db")
    open_sql("postgresql://nobody@nowhere.invalid/db")
    assert list(tmp_path.iterdir()) == []


# --- what is loaded -----------------------------------------------------------------------------------------


def test_sqlalchemy_is_loaded_only_where_a_database_is_named() -> None:
    run(
        """
        import sys
        import halter
        from halter import Agent
        from halter.sessions import Sessions
        Agent("scripted:Hello")
        Sessions("memory")
        assert not {"sqlalchemy", "asyncpg", "greenlet"} & {name.partition(".")[0] for name in sys.modules}
        """
    )


def test_a_missing_extra_is_named() -> None:
    printed = run(
        """
        import sys
        sys.modules["sqlalchemy"] = None
        from halter.errors import ConfigurationError
        try:
            import halter.sessions.sql
        except ConfigurationError as error:
            print(error)
        """
    )
    assert 'pip install "halter[sql]"' in printed


# --- what is left -------------------------------------------------------------------------------------------

_LEAVES = """
    import asyncio, gc, os, sys, threading
    from halter.messages import Message
    from halter.sessions.records import Session
    from halter.sessions.sql import open_sql
    where = sys.argv[1]
    async def main():
        me = os.getpid()
        await asyncio.gather(*(store.create(Session(id=f"{id}-{me}"), [Message.user("hi")]) for id in range(9)))
        assert await store.load(f"3-{me}") is not None
    def descriptors():
        numbers = (f"/proc/self/fd/{number}" for number in os.listdir("/proc/self/fd"))
        return {os.readlink(number) for number in numbers if os.path.lexists(number)}
    store = open_sql(where)
"""


@pytest.fixture(params=["sqlite", "postgres"])
def where(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    return f"{tmp_path}/a.db" if request.param == "sqlite" else request.getfixturevalue("postgres_url")


def test_the_end_of_the_loop_leaves_no_thread_and_no_descriptor(where: str) -> None:
    """Without `aclose`, several times, and under other loops."""
    run(
        _LEAVES
        + """
    import uvloop
    for run in (asyncio.run, uvloop.run):
        run(asyncio.sleep(0))
    before = descriptors()
    for run in (asyncio.run, uvloop.run, asyncio.run):
        run(main())
        gc.collect()
        assert threading.active_count() == 1, threading.enumerate()
        assert descriptors() <= before, descriptors() - before
        """,
        where,
    )


def test_a_forked_child_opens_its_own_and_leaves_the_parents_alone(where: str) -> None:
    run(
        _LEAVES
        + """
    from halter.sessions.port import Query
    def in_a_child():
        async def child():
            await main()
            await store.aclose()
        asyncio.run(child())
    async def forks():
        await main()
        loop = asyncio.get_running_loop()
        pid = os.fork()
        if pid == 0:
            code = 1
            try:
                asyncio._set_running_loop(None)
                in_a_child()
                code = 0
            finally:
                os._exit(code)
        _, status = await asyncio.to_thread(os.waitpid, pid, 0)
        assert status == 0, status
        for number in range(5):
            await store.create(Session(id=f"after-{number}"))
        assert len(await store.find(Query(limit=100))) == 9 + 9 + 5
    asyncio.run(forks())
        """,
        where,
    )


def test_what_was_closed_by_hand_with_its_loop_is_let_go_of(sqlite_store: Open, tmp_path: Path) -> None:
    store = sqlite_store()
    loop = asyncio.new_event_loop()
    loop.run_until_complete(with_a_turn(store, HI))
    loop.close()

    async def scenario() -> None:
        assert await said(store) == [HI]
        await taken(store, a_run("run-2"))
        await store.aclose()

    asyncio.run(scenario())
    gone = time.monotonic() + 5.0  # nobody waits for its thread
    while _open_files(tmp_path) and time.monotonic() < gone:
        time.sleep(0.01)
    assert _open_files(tmp_path) == []


def _open_files(within: Path) -> list[str]:
    numbers = [f"/proc/self/fd/{number}" for number in os.listdir("/proc/self/fd")]
    names = [os.readlink(number) for number in numbers if os.path.lexists(number)]
    return [name for name in names if name.startswith(str(within))]
