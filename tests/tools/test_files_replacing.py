"""Files are replaced as a whole or not at all, keep what belongs to them, and lose nobody's change."""

from __future__ import annotations

import errno
import fcntl
import os
import shutil
import signal
import stat
import struct
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

import pytest

from halter.errors import ToolError
from halter.tools import directory_locks, leftovers
from halter.tools.contents import LARGEST, load
from halter.tools.editing import edited, written
from halter.tools.filesystem import write_file
from halter.tools.replacing import Replacement, commit, replace
from halter.tools.root import Root

from ..bounds import T, assert_within

as_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root may become somebody else")
NOBODY = 65534


def unwatched() -> None:
    pass


@pytest.fixture
def house(tmp_path: Path) -> Path:
    (tmp_path / "door.txt").write_text("inside\n")
    return tmp_path


def put(house: Path, name: str, data: bytes, seen: bytes | None) -> None:
    with Root(house).at(name, make_parents=True) as place:
        replace(place, seen, data, unwatched)


# -- sizes


def test_an_edit_that_would_make_a_huge_file_is_refused_before_it_is_made() -> None:
    since = time.thread_time()
    with pytest.raises(ToolError, match="would have 2,000,000,000 bytes"):
        edited(b"a" * 20_000, "file", "a", "b" * 100_000, all=True)
    with pytest.raises(ToolError, match="2,000,000 times"):
        edited(b"a\n" * 2_000_000, "file", "a", "b", all=True)
    with pytest.raises(ToolError, match="the most that can be written"):
        edited(b"a\r\n", "file", "a", "\n" * (LARGEST // 2))
    with pytest.raises(ToolError, match="the most that can be written"):
        written(None, "file", "ü" * (LARGEST // 2 + 1))
    assert_within(T, time.thread_time() - since, "in processor time, refusing")


# -- what cannot be kept is refused


@contextmanager
def somebody_else(house: Path) -> Generator[Path]:
    """A directory that anybody may write to, used by a process that is not root."""
    place = Path(tempfile.mkdtemp())
    place.chmod(0o777)
    try:
        shutil.copy(house / "door.txt", place / "door.txt")
        os.seteuid(NOBODY)
        try:
            yield place
        finally:
            os.seteuid(0)
    finally:
        shutil.rmtree(place)


@as_root
def test_a_file_that_this_process_may_not_write_is_refused_and_keeps_its_owner(house: Path) -> None:
    with somebody_else(house) as place:
        with pytest.raises(ToolError, match="may not be written by this process: it belongs to user 0"):
            put(place, "door.txt", b"new", b"inside\n")
        status = (place / "door.txt").stat()
        assert (status.st_uid, (place / "door.txt").read_bytes()) == (0, b"inside\n")
        assert os.listdir(place) == ["door.txt"]


@as_root
def test_a_file_whose_owner_cannot_be_kept_is_refused(house: Path) -> None:
    (house / "door.txt").chmod(0o666)
    with somebody_else(house) as place:
        with pytest.raises(ToolError, match="cannot keep that"):
            put(place, "door.txt", b"new", b"inside\n")
        assert (place / "door.txt").stat().st_uid == 0
        assert os.listdir(place) == ["door.txt"]


@as_root
def test_a_directory_that_may_not_be_written_is_found_out_before_anything_else(house: Path) -> None:
    with somebody_else(house) as place:
        os.seteuid(0)
        place.chmod(0o755)
        os.seteuid(NOBODY)
        with pytest.raises(ToolError, match="its directory may not be written"):
            put(place, "new.txt", b"new", None)


@as_root
def test_a_file_keeps_the_owner_and_the_mode_that_writing_takes_away(house: Path) -> None:
    os.chown(house / "door.txt", NOBODY, NOBODY)
    (house / "door.txt").chmod(0o6751)
    put(house, "door.txt", b"new", b"inside\n")
    status = (house / "door.txt").stat()
    assert (status.st_uid, status.st_gid, stat.S_IMODE(status.st_mode)) == (NOBODY, NOBODY, 0o6751)


def access_list(*entries: tuple[int, int, int]) -> bytes:
    """As the kernel has it: a version, and (tag, permissions, id) of each entry."""
    return struct.pack("<I", 2) + b"".join(struct.pack("<HHI", *entry) for entry in entries)


ALL = 0xFFFFFFFF
FOR_NOBODY = access_list((1, 6, ALL), (2, 4, NOBODY), (4, 4, ALL), (16, 4, ALL), (32, 0, ALL))


@pytest.mark.skipif(not hasattr(os, "setxattr"), reason="this system has no extended attributes")
def test_a_file_keeps_its_extended_attributes_and_gets_no_others(house: Path) -> None:
    os.setxattr(house / "door.txt", "user.note", b"blue")
    os.setxattr(house, "system.posix_acl_default", FOR_NOBODY)
    before = {name: os.getxattr(house / "door.txt", name) for name in os.listxattr(house / "door.txt")}
    put(house, "door.txt", b"new", b"inside\n")
    assert {name: os.getxattr(house / "door.txt", name) for name in os.listxattr(house / "door.txt")} == before
    os.setxattr(house / "door.txt", "system.posix_acl_access", FOR_NOBODY)
    put(house, "door.txt", b"newer", b"new")
    assert os.getxattr(house / "door.txt", "system.posix_acl_access") == FOR_NOBODY


@pytest.mark.skipif(not hasattr(os, "setxattr"), reason="this system has no extended attributes")
def test_a_file_whose_attributes_cannot_be_kept_is_refused(house: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    os.setxattr(house / "door.txt", "user.note", b"blue")

    def refuse(*_: object) -> None:
        raise PermissionError(errno.EPERM, "Operation not permitted")

    monkeypatch.setattr(os, "setxattr", refuse)
    with pytest.raises(ToolError, match="extended attributes that cannot be kept"):
        put(house, "door.txt", b"new", b"inside\n")
    assert (house / "door.txt").read_bytes() == b"inside\n"


def test_a_file_with_several_names_is_refused_and_keeps_them(house: Path) -> None:
    os.link(house / "door.txt", house / "gate.txt")
    with pytest.raises(ToolError, match="has 2 names"):
        put(house, "door.txt", b"new", b"inside\n")
    assert (house / "door.txt").samefile(house / "gate.txt")
    assert (house / "door.txt").read_bytes() == b"inside\n"


# -- what a failure leaves


@pytest.mark.parametrize("name", ["made/for/nothing/" + "x" * 300, "made/../made/too/" + "x" * 300])
def test_a_write_that_fails_leaves_no_directories(house: Path, name: str) -> None:
    with pytest.raises(OSError, match="too long"):
        put(house, name, b"new", None)
    assert os.listdir(house) == ["door.txt"]


def test_a_directory_that_others_have_used_meanwhile_stays(house: Path) -> None:
    def fail() -> None:
        (house / "made").mkdir(exist_ok=True)
        (house / "made" / "theirs").touch()
        raise InterruptedError

    with pytest.raises(InterruptedError), Root(house).at("made/deep/file", make_parents=True) as place:
        replace(place, None, b"new", fail)
    assert sorted(str(path.relative_to(house)) for path in house.rglob("*")) == ["door.txt", "made", "made/theirs"]


def test_a_path_through_very_many_directories_is_refused_at_once(house: Path) -> None:
    root, deep = Root(house), "d/" * 1_900 + "file"
    since = time.thread_time()
    with pytest.raises(ToolError, match="more than 128 directories"):
        root.name_of(deep)
    with pytest.raises(ToolError, match="more than 128 directories"):
        put(house, deep, b"new", None)
    with pytest.raises(ToolError, match="longer than 4,096 characters"):
        root.name_of("d/" * 40_000)
    assert root.name_of("d/" * 128 + "file") == "d/" * 128 + "file"
    assert_within(T, time.thread_time() - since, "in processor time, it")
    assert os.listdir(house) == ["door.txt"]


def test_the_name_of_what_is_not_there_has_no_links(house: Path) -> None:
    (house / "link").symlink_to("there/not")
    assert Root(house).name_of("link/file") == "there/not/file"
    with pytest.raises(FileNotFoundError):
        Root(house).name_of("nowhere/../file")


LEFT = """
import os, sys
from halter.tools.leftovers import TemporaryFile
file = TemporaryFile(os.open(sys.argv[1], os.O_RDONLY), "door.txt", is_private=True)
print("ready", flush=True)
sys.stdin.read()
"""


def test_a_temporary_file_is_removed_once_its_process_is_gone(house: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def left() -> list[str]:
        return [name for name in os.listdir(house) if name.endswith(".halter-new")]

    (house / ".mine.halter-new").touch()  # a name that only resembles ours
    command = [sys.executable, "-c", LEFT, str(house)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as child:
        assert child.stdout is not None
        assert child.stdout.readline() == b"ready\n"
        assert len(left()) == 2
        monkeypatch.setattr(leftovers, "OLD", 0.0)
        put(house, "door.txt", b"new", b"inside\n")
        assert len(left()) == 2, "its process lives"
        child.send_signal(signal.SIGKILL)
    monkeypatch.undo()
    put(house, "door.txt", b"newer", b"new")
    assert len(left()) == 2, "it may be too young to have its lock"
    monkeypatch.setattr(leftovers, "OLD", 0.0)
    put(house, "other.txt", b"new", None)
    assert left() == [".mine.halter-new"]


# -- several at once


ADDING = """
import sys
from halter.errors import ToolError
from halter.tools.contents import load
from halter.tools.replacing import Changed, replace
from halter.tools.root import Root
root, word = Root(sys.argv[1]), sys.argv[2]
print("ready", flush=True)
sys.stdin.readline()
for number in range(40):
    while True:
        with root.at("door.txt") as place:
            seen = load(place, lambda: None)
            try:
                replace(place, seen, seen + f"{word}{number}\\n".encode(), lambda: None)
                break
            except Changed:
                pass
"""


def test_two_processes_that_change_one_file_lose_no_change(house: Path) -> None:
    (house / "door.txt").write_bytes(b"")
    started = [
        subprocess.Popen(
            [sys.executable, "-c", ADDING, str(house), word], stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )
        for word in "ab"
    ]
    for child in started:
        assert child.stdout is not None
        assert child.stdout.readline() == b"ready\n"
    for child in started:
        child.communicate(b"\n", timeout=60)
        assert child.returncode == 0
    words = (house / "door.txt").read_text().split()
    assert sorted(words) == sorted(f"{word}{number}" for word in "ab" for number in range(40))


def test_a_change_waits_for_another_process_in_its_directory_and_can_be_stopped_meanwhile(house: Path) -> None:
    looks = 0

    def look() -> None:
        nonlocal looks
        looks += 1
        if looks > 20:
            raise InterruptedError

    directory = os.open(house, os.O_RDONLY)
    fcntl.flock(directory, fcntl.LOCK_EX)
    try:
        with pytest.raises(InterruptedError), Root(house).at("door.txt") as place:
            replace(place, b"inside\n", b"new", look)
        assert (house / "door.txt").read_bytes() == b"inside\n"
        release = threading.Timer(0.05, fcntl.flock, (directory, fcntl.LOCK_UN))
        release.start()
        put(house, "door.txt", b"new", b"inside\n")
        release.join()
    finally:
        os.close(directory)
    assert (house / "door.txt").read_bytes() == b"new"


def test_a_lock_that_is_never_released_is_told(house: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(directory_locks, "PATIENCE", 0.01)
    directory = os.open(house, os.O_RDONLY)
    fcntl.flock(directory, fcntl.LOCK_EX)
    try:
        with pytest.raises(ToolError, match="another program holds the lock"):
            put(house, "door.txt", b"new", b"inside\n")
    finally:
        os.close(directory)


def test_a_change_of_the_mode_while_a_file_is_written_is_not_lost(house: Path) -> None:
    times = 0

    def look() -> None:
        nonlocal times
        times += 1
        if times == 1:
            (house / "door.txt").chmod(0o640)

    with pytest.raises(ToolError, match="has changed"), Root(house).at("door.txt") as place:
        replace(place, b"inside\n", b"new", look)
    assert stat.S_IMODE((house / "door.txt").stat().st_mode) == 0o640


def test_of_several_changes_all_are_made_or_none(house: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (house / "door.txt").chmod(0o640)
    (house / "gone.txt").write_bytes(b"gone\n")
    (house / "last.txt").write_bytes(b"last\n")
    put_in_place = os.replace

    def fails_at_the_last(source: str, target: str, **where: int) -> None:
        if target == "last.txt":
            raise OSError(errno.EIO, "Input/output error")
        put_in_place(source, target, **where)

    root = Root(house)

    def change() -> None:
        with (
            root.at("door.txt") as door,
            root.at("new.txt") as new,
            root.at("gone.txt") as gone,
            root.at("last.txt") as last,
        ):
            changes = (
                Replacement(door, b"inside\n", b"outside\n"),
                Replacement(new, None, b"gone\n", like=gone),
                Replacement(gone, b"gone\n", None),
                Replacement(last, b"last\n", b"first\n"),
            )
            commit(changes, unwatched)

    with monkeypatch.context() as patch:
        patch.setattr(os, "replace", fails_at_the_last)
        with pytest.raises(OSError, match="Input/output"):
            change()
    there = {path.name: path.read_bytes() for path in house.iterdir()}
    assert there == {"door.txt": b"inside\n", "gone.txt": b"gone\n", "last.txt": b"last\n"}
    assert stat.S_IMODE((house / "door.txt").stat().st_mode) == 0o640
    change()
    there = {path.name: path.read_bytes() for path in house.iterdir()}
    assert there == {"door.txt": b"outside\n", "new.txt": b"gone\n", "last.txt": b"first\n"}


def test_one_file_that_has_changed_leaves_all_as_they_are(house: Path) -> None:
    (house / "last.txt").write_bytes(b"last\n")
    root = Root(house)
    with root.at("door.txt") as door, root.at("last.txt") as last:
        changes = (Replacement(door, b"inside\n", b"outside\n"), Replacement(last, b"other\n", b"first\n"))
        with pytest.raises(ToolError, match=r"last\.txt has changed"):
            commit(changes, unwatched)
    assert (house / "door.txt").read_bytes() == b"inside\n"
    assert sorted(os.listdir(house)) == ["door.txt", "last.txt"]


def test_a_tool_that_is_called_as_a_function_makes_a_new_file(house: Path) -> None:
    write_file(house, approval="never")(path="made/new.txt", content="new\n")
    with Root(house).at("made/new.txt") as place:
        assert load(place, unwatched) == b"new\n"
