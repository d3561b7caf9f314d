"""Several processes on one database: one holder at a time, and no message is lost, whoever is killed."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import textwrap
from collections.abc import Generator

import pytest

from halter.messages import Message
from halter.sessions.port import Store
from halter.sessions.sql import open_sql

from .contract import LONG, PATIENCE, a_run, said, taken, taken_in_the_end

PROCESSES, TURNS = 3, 4

_SHARED = """
    import asyncio, sys
    import msgspec
    from halter.core.owner import Owner
    from halter.messages import Message
    from halter.outcome import RunStatus
    from halter.sessions.port import Taken
    from halter.sessions.records import RunRecord
    from halter.sessions.sql import open_sql
    where, me = sys.argv[1:]
    owner = f"{Owner.here()}/1"
    store = open_sql(where, patience=20.0)
    def run(number):
        return RunRecord(run_id=f"{me}-{number}", session_id="s", owner=owner, started_at=1.0)
    async def take(record):
        ticket = None
        while not isinstance(got := await store.take(record, lease_for=60.0, ticket=ticket), Taken):
            ticket = ticket or await store.queue("s", record.run_id, owner, lease_for=60.0, first=False)
            await asyncio.sleep(0.03)
        return got
"""

_TALKS = f"""
    async def main():
        for number in range({TURNS}):
            record = run(number)
            got = await take(record)
            assert got.lost == (), got.lost
            at = got.conversation.session.messages
            assert at == len(got.conversation.messages)
            for part in range(3):
                await store.write(got.lease, at + part, [Message.user(f"{{record.run_id}} {{part}}")])
            last = [Message.assistant(f"{{record.run_id}} 3")]
            await store.close(got.lease, msgspec.structs.replace(record, status=RunStatus.COMPLETED), at + 3, last)
        await store.aclose()
    asyncio.run(main())
"""

_IS_KILLED = """
    async def main():
        got = await take(run(0))
        for at in range(100_000):
            await store.write(got.lease, at, [Message.user(f"{at}"), Message.user("x" * 20_000)][:1 + at % 2])
            await store.write(got.lease, at, [Message.user(f"{at}")])
            print(at, flush=True)
    asyncio.run(main())
"""


def program(body: str, where: str, name: str, stdin: int = subprocess.DEVNULL) -> subprocess.Popen[str]:
    text = textwrap.dedent(_SHARED) + textwrap.dedent(body)
    command = [sys.executable, "-c", text, where, name]
    return subprocess.Popen(command, stdin=stdin, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)


@pytest.fixture(params=["sqlite", "postgres"])
def where(request: pytest.FixtureRequest, tmp_path: object) -> str:
    return f"{tmp_path}/a.db" if request.param == "sqlite" else request.getfixturevalue("postgres_url")


@pytest.fixture
def store(where: str) -> Generator[Store]:
    store = open_sql(where, patience=20.0)
    yield store
    asyncio.run(store.aclose())


@pytest.mark.scenario(47)
def test_turns_of_several_processes_follow_one_another_whole(where: str, store: Store) -> None:
    started = [program(_TALKS, where, f"p{number}") for number in range(PROCESSES)]
    ended = [(process.communicate(timeout=50)[0], process.returncode) for process in started]
    assert ended == [("", 0)] * PROCESSES

    texts = [message.text for message in asyncio.run(said(store, full=True))]
    turns = [texts[at : at + 4] for at in range(0, len(texts), 4)]
    assert all(turn == [f"{turn[0].split()[0]} {part}" for part in range(4)] for turn in turns)
    expected = [f"p{number}-{turn}" for number in range(PROCESSES) for turn in range(TURNS)]
    assert sorted(turn[0].split()[0] for turn in turns) == sorted(expected)


@pytest.mark.scenario(44)
def test_what_a_killed_process_had_written_is_there_and_its_turn_is_free_at_once(where: str, store: Store) -> None:
    for attempt in range(2):
        process = program(_IS_KILLED, where, f"killed-{attempt}")
        assert process.stdout is not None
        seen = -1
        for line in process.stdout:
            seen = int(line)
            if seen >= 5 + attempt * 10:
                break
        os.kill(process.pid, signal.SIGKILL)
        seen = max([seen, *(int(line) for line in process.stdout.read().splitlines() if line.isdecimal())])
        process.stdout.close()
        assert process.wait(PATIENCE) == -signal.SIGKILL
        asyncio.run(_is_whole_after(store, attempt, seen))


async def _is_whole_after(store: Store, attempt: int, seen: int) -> None:
    record = a_run(f"after-{attempt}")
    turn = await taken(store, record)  # although its lease would last for a minute
    assert f"killed-{attempt}-0" in {lost.run_id for lost in turn.lost}
    texts = [message.text for message in turn.conversation.messages]
    assert texts[: seen + 1] == [f"{number}" for number in range(seen + 1)]
    assert len(texts) <= seen + 3
    assert turn.conversation.session.messages == len(texts)
    await store.write(turn.lease, 0, [])
    await store.close(turn.lease, record, 0, [])


def test_a_process_that_is_stopped_for_longer_than_its_lease_has_lost_its_turn(where: str, store: Store) -> None:
    """As on a machine that slept: it goes on where it was, and can do no harm."""
    body = _IS_KILLED.replace("take(run(0))", "store.take(run(0), lease_for=0.5)")
    body = body.replace("flush=True)", "flush=True); sys.stdin.readline()")  # it is stopped between two steps
    process = program(body, where, "stopped", stdin=subprocess.PIPE)
    assert process.stdout is not None
    try:
        assert process.stdout.readline().strip() == "0"
        os.kill(process.pid, signal.SIGSTOP)
        asyncio.run(_takes_over(store))
    finally:
        os.kill(process.pid, signal.SIGCONT)
    output, _ = process.communicate(timeout=PATIENCE)  # it has no more to read
    assert "TurnLost" in output
    assert [message.text for message in asyncio.run(said(store))] == ["mine"]


async def _takes_over(store: Store) -> None:
    turn = await taken_in_the_end(store, a_run("other"))
    await store.write(turn.lease, 0, [Message.user("mine")])
    await store.renew(a_run().owner, lease_for=LONG)
