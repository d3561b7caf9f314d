"""`runtime().cancel(id)` for a run of another process: through the database, without a run of one's own."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import textwrap
import time
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

import halter
from halter import Agent, CancelReason, RunStatus, runtime
from halter.errors import SessionsUnavailable
from halter.models import Scripted
from halter.sessions import Sessions

from .contract import on_a_loop

_TALKS = """
    import asyncio, sys
    import halter
    from halter import Agent
    from halter.models import Scripted
    halter.configure(sessions=sys.argv[1], record_runs=True)
    agent = Agent(Scripted("word " * 10_000, pace=0.02))

    async def main():
        runs = [agent.run("talk", session="s", id="on a session"), agent.run("talk", id="with a record")]
        async def follow(run):
            async for _ in run.text_stream():
                print(run.id, flush=True)
                break
            result = await run.finished()
            print(result.status.value, result.cancellation and result.cancellation.message, flush=True)
        await asyncio.gather(*map(follow, runs))
    asyncio.run(main())
"""


@contextmanager
def another_process(where: str) -> Generator[subprocess.Popen[str]]:
    """One that has begun both of its runs."""
    command = [sys.executable, "-c", textwrap.dedent(_TALKS), where]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            assert {process.stdout.readline(), process.stdout.readline()} == {"on a session\n", "with a record\n"}
            yield process
        finally:
            process.kill()


@pytest.fixture(params=["sqlite", "postgres"])
def where(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    return f"{tmp_path}/a.db" if request.param == "sqlite" else request.getfixturevalue("postgres_url")


@pytest.fixture
def configured(where: str) -> Generator[Sessions]:
    chats = Sessions(where, patience=5.0)
    halter.configure(sessions=chats)
    yield chats
    halter.configure(sessions="memory")


@on_a_loop
async def test_a_run_of_another_process_is_stopped_by_its_id(where: str, configured: Sessions) -> None:
    with another_process(where) as process:
        for number, id in enumerate(("on a session", "with a record")):
            assert await runtime().cancel(id, f"enough {number}", actor="operator", wait=True)
            record = await configured.run(id)
            assert record is not None
            assert record.status is RunStatus.CANCELLED
            assert record.cancellation is not None
            assert (record.cancellation.reason, record.cancellation.actor) == (CancelReason.USER_STOP, "operator")
            assert not await runtime().cancel(id), "it is over"
        told, _ = await asyncio.to_thread(process.communicate, timeout=20)
        assert told.splitlines() == ["cancelled enough 0", "cancelled enough 1"]
    assert not await runtime().cancel("nobody's")
    assert runtime().runs() == []
    await configured.aclose()


@on_a_loop
async def test_a_run_of_another_process_that_waits_for_its_turn_is_stopped_by_its_id(
    where: str, configured: Sessions
) -> None:
    """It has no record yet. This process has the session's turn, so that it never gets it."""
    waits = """
        import asyncio, sys
        import halter
        from halter import Agent
        halter.configure(sessions=sys.argv[1])

        async def main():
            run = Agent("scripted:Hi.").run("hi", session="s", id="waits", on_busy="enqueue").start()
            result = await run.finished()
            print(result.status.value, result.cancellation.message)
        asyncio.run(main())
    """
    store: Any = configured._store
    talking = Agent(Scripted("word " * 10_000, pace=0.02)).run("talk", session=configured.session("s")).start()
    await anext(talking.text_stream())
    command = [sys.executable, "-c", textwrap.dedent(waits), where]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        async with asyncio.timeout(20):
            while not await store.waits("waits"):  # noqa: ASYNC110
                await asyncio.sleep(0.05)
            assert await runtime().cancel("waits", "no more", wait=True)
        told, _ = await asyncio.to_thread(process.communicate, timeout=20)
    assert told.split()[:3] == ["cancelled", "no", "more"]
    assert not talking.is_done
    assert not await runtime().cancel("waits"), "it is over"
    await talking.aclose()
    await configured.aclose()


@on_a_loop
async def test_a_place_that_is_only_in_use_is_asked_as_well(where: str) -> None:
    chats: Any = Sessions(where, patience=5.0)
    with another_process(where) as process:
        assert not await runtime().cancel("on a session"), "nobody knows of the place yet"
        assert await chats.history("s")
        begun = time.monotonic()
        assert await runtime().cancel("on a session")
        assert await asyncio.to_thread(process.stdout.readline) == "cancelled None\n"  # pyright: ignore
        assert time.monotonic() - begun < 5
    await chats.aclose()
    assert not await runtime().cancel("with a record"), "it is closed"


@on_a_loop
async def test_of_a_process_that_was_killed_no_run_is_live(where: str, configured: Sessions) -> None:
    with another_process(where) as process:
        process.kill()
        process.wait()
        assert not await runtime().cancel("on a session")
        assert not await runtime().cancel("with a record", wait=True)
    await configured.aclose()


@on_a_loop
async def test_a_place_that_does_not_answer_is_said_and_not_taken_for_a_no(tmp_path: Path) -> None:
    chats = Sessions(tmp_path / "no" / "directory.db", patience=0.1)
    halter.configure(sessions=chats)
    try:
        with pytest.raises(SessionsUnavailable):
            await runtime().cancel("somebody's")
    finally:
        halter.configure(sessions="memory")
