"""Where a session is kept fails in the middle of a turn: it comes back, or it does not, or it is full.

What passes is waited for, within bounds; what does not is said clearly. Nothing that was stored is lost, nothing is
said or done twice, and as soon as the place is there again, the session can be used.
"""

from __future__ import annotations

import asyncio
import os
import random
import sqlite3
import subprocess
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path

import pytest

from halter.outcome import RunStatus
from halter.testing.wire_probe import WireProbe

from ...bounds import assert_within
from ...services.postgres import Postgres
from .children import Child, Mother
from .recordings import WHOLE_TURN, mode
from .scene import Scene, users_in

TURN = tuple(mode(name) for name in WHOLE_TURN)
HALF = (mode("gate"), mode("last"))  # in the middle of it, until its gate is opened
SIZE = 2 * 1024 * 1024  # bytes of a disk that is full soon
BACK = 6.0  # seconds in which a place that is back is used again: between two attempts there are a few
IN_THE_END = 20.0  # seconds; on any machine
RESTARTING = 30.0  # seconds of patience with a server that is started anew


def until_record(scene: Scene, name: str, status: RunStatus) -> None:
    """Waits until the run's record says this."""
    until = time.monotonic() + IN_THE_END
    while (found := scene.record(name)).status is not status:
        assert time.monotonic() < until, f"the record of {name} still says {found.status}"
        time.sleep(0.05)


def check_whole(scene: Scene, child: Child, name: str) -> None:
    """Its turn is stored as it was said; nothing was asked or done twice."""
    ended = child.told[-1]
    assert ended.status == "completed", ended
    assert scene.history() == ended.messages
    assert scene.requests(name) == len(TURN)
    done = [told.call_id for told in child.told if told.what == "done"]
    assert sorted(done) == ["long", "middling", "one", "quick", "slow"]
    assert scene.record(name).status is RunStatus.COMPLETED


# --- a database that is away --------------------------------------------------------------------------------


@pytest.fixture
def server(postgres: Postgres) -> Iterator[Postgres]:
    """The tests' own server; it runs again afterwards."""
    yield postgres
    postgres.stop()
    postgres.start()


@pytest.fixture
def database(server: Postgres) -> str:
    """What is committed there is there also after a crash."""
    url = f"{server.new_place()}&synchronous_commit=on"
    asyncio.run(server.execute("CHECKPOINT"))  # what the tests themselves have made is not to be lost either
    return url


@pytest.fixture
def in_database(database: str, wire: WireProbe, mother: Mother) -> Scene:
    return Scene(database, wire, mother)


def test_a_turn_waits_for_a_database_that_is_away_for_five_seconds(in_database: Scene, server: Postgres) -> None:
    """And then completes, as if nothing had been."""
    scene = in_database
    child = scene.start("first", *TURN, patience=RESTARTING)
    child.until("done")
    server.stop()
    time.sleep(5.0)
    server.start()
    back = time.monotonic()
    ended = child.until("ended")
    assert_within(BACK, ended.at - back, "the rest of the turn")
    check_whole(scene, child, "first")


@pytest.mark.parametrize("seed", range(2))
def test_a_database_that_crashes_at_any_point_of_turns_loses_none_of_them(
    seed: int, database: str, server: Postgres, wire: WireProbe, mother: Mother
) -> None:
    """Four processes are at work on it; a transaction whose answer was lost happens once."""
    dice = random.Random(seed)
    scenes = [Scene(database, WireProbe(wire.wire, f"{wire.tag}-{at}"), mother, f"session-{at}") for at in range(4)]
    children = [scene.start(f"run-{at}", *TURN, patience=RESTARTING) for at, scene in enumerate(scenes)]
    with ThreadPoolExecutor(4) as pool:
        ends = [pool.submit(child.until, "ended") for child in children]
        for _ in range(3):
            time.sleep(dice.uniform(0.05, 0.3))
            server.crash()
            server.start()
        for end in ends:
            assert end.result().status == "completed", end.result()
    for at, (scene, child) in enumerate(zip(scenes, children, strict=True)):
        check_whole(scene, child, f"run-{at}")


def test_a_database_that_is_gone_for_good_fails_the_run_and_says_so(in_database: Scene, server: Postgres) -> None:
    """After its patience. Once it is there again the run's end is stored, and the session is free."""
    scene = in_database
    child = scene.start("first", *HALF, patience=1.0, grace=1.0)
    child.until("began")
    server.stop()
    child.open_gate()
    stopped = time.monotonic()
    ended = child.until("ended")
    assert_within(1.0 + 1.0 + 1.5, ended.at - stopped, "a run whose database is gone")
    assert ended.status == "failed"
    assert ended.error.startswith("SessionsUnavailable")
    assert "PostgreSQL" in ended.error
    server.start()
    second = scene.start("second", mode("last"), on_busy="enqueue")
    assert second.until("ended").status == "completed"
    until_record(scene, "first", RunStatus.FAILED)
    assert users_in(scene.history()) == ["I am first.", "I am second."]
    assert scene.history()[: len(ended.messages)] == ended.messages


def test_a_stop_while_the_database_is_away_ends_the_run_within_its_grace(in_database: Scene, server: Postgres) -> None:
    """Its provider is let go of at once; what could not be stored is stored when it can be."""
    scene = in_database
    child = scene.start("first", mode("one"), "steady(5000,5)", patience=30.0, grace=1.0)
    child.until("requested", 2)
    scene.wire.wire.wait("token", tag=f"{scene.wire.tag}.first", count=2)
    server.stop()
    stopped = time.monotonic()
    child.cancel()
    ended = child.until("ended")
    assert_within(1.0 + 1.0, ended.at - stopped, "a stop while the database is away")
    assert (ended.status, ended.reason) == ("cancelled", "user_stop")
    asked = scene.wire.wire.wait("closed", tag=f"{scene.wire.tag}.first", count=2)[-1]
    assert asked.closed_at is not None
    assert_within(0.5, asked.closed_at - stopped, "closing the provider's socket")
    server.start()
    until_record(scene, "first", RunStatus.CANCELLED)
    assert scene.history() == ended.messages


# --- a file -------------------------------------------------------------------------------------------------


@pytest.fixture
def small_disk(tmp_path: Path, require: Callable[[str, bool], None]) -> Iterator[Path]:
    """A file system of its own, with little room."""
    disk = tmp_path / "disk"
    disk.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", f"size={SIZE}", "halter-test", disk]
    may_mount = subprocess.run(command, capture_output=True, check=False).returncode == 0
    require("the right to mount a file system", may_mount)
    yield disk
    subprocess.run(["umount", "--lazy", disk], check=True)


@pytest.fixture
def on_disk(small_disk: Path, wire: WireProbe, mother: Mother) -> Scene:
    return Scene(str(small_disk / "chat.db"), wire, mother)


@pytest.fixture
def in_file(tmp_path: Path, wire: WireProbe, mother: Mother) -> Scene:
    return Scene(str(tmp_path / "chat.db"), wire, mother)


def fill(disk: Path) -> Path:
    """Until not a byte more goes in."""
    filler = disk / "filler"
    with filler.open("wb", buffering=0) as file:
        for size in (4096, 1):
            try:
                while True:
                    file.write(b"x" * size)
            except OSError:
                pass
    return filler


def test_a_disk_that_is_full_fails_the_run_and_says_so(on_disk: Scene, small_disk: Path) -> None:
    """What was stored before is there; with room again the session goes on."""
    scene = on_disk
    first = scene.start("first", *HALF, grace=1.0)
    first.until("began")
    filler = fill(small_disk)
    first.open_gate()
    ended = first.until("ended")
    assert ended.status == "failed"
    assert ended.error.startswith("SessionsUnavailable")
    assert "disk is full" in ended.error
    filler.unlink()
    second = scene.start("second", mode("last"), on_busy="enqueue")
    assert second.until("ended").status == "completed"
    assert users_in(scene.history()) == ["I am first.", "I am second."]
    until_record(scene, "first", RunStatus.FAILED)


def test_a_disk_that_is_read_only_fails_the_run_before_anything_is_asked(on_disk: Scene, small_disk: Path) -> None:
    """The error says what is wrong with which file; what was said before is there afterwards."""
    scene = on_disk
    before = scene.start("first", mode("last"))
    assert before.until("ended").status == "completed"
    before.kill()
    subprocess.run(["mount", "-o", "remount,ro", small_disk], check=True)
    ended = scene.start("second", mode("last"), patience=1.0, grace=1.0).until("ended")
    assert ended.status == "failed"
    assert ended.error.startswith("SessionsUnavailable")
    assert "read-only" in ended.error
    assert scene.where in ended.error
    assert scene.requests("second") == 0
    subprocess.run(["mount", "-o", "remount,rw", small_disk], check=True)
    assert scene.start("third", mode("last")).until("ended").status == "completed"
    assert users_in(scene.history()) == ["I am first.", "I am third."]


def test_a_file_that_is_locked_for_a_while_is_waited_for(in_file: Scene) -> None:
    """Another program holds it for two seconds in the middle of the turn."""
    child = in_file.start("first", *TURN)
    child.until("began")
    with closing(sqlite3.connect(in_file.where, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        time.sleep(2.0)
        other.execute("ROLLBACK")
    child.until("ended")
    check_whole(in_file, child, "first")


def test_a_file_that_stays_locked_fails_the_run_and_says_so(in_file: Scene) -> None:
    """After its patience; the run's end is stored when the file is free."""
    child = in_file.start("first", *HALF, patience=1.0, grace=1.0)
    child.until("began")
    with closing(sqlite3.connect(in_file.where, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        child.open_gate()
        locked = time.monotonic()
        ended = child.until("ended")
        assert_within(1.0 + 1.0 + 2.5, ended.at - locked, "a run whose file is locked")
        other.execute("ROLLBACK")
    assert ended.status == "failed"
    assert ended.error.startswith("SessionsUnavailable")
    assert "locked" in ended.error
    until_record(in_file, "first", RunStatus.FAILED)
    assert in_file.history() == ended.messages


def test_a_file_that_is_removed_fails_the_run_and_says_so(in_file: Scene) -> None:
    """What is written to it would be nowhere."""
    child = in_file.start("first", *HALF, patience=1.0, grace=1.0)
    child.until("began")
    os.unlink(in_file.where)
    child.open_gate()
    ended = child.until("ended")
    assert ended.status == "failed"
    assert ended.error.startswith("SessionsUnavailable")
    assert "removed" in ended.error
