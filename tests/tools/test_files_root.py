"""Nothing leads out of a root, and nothing under it can make a tool wait."""

from __future__ import annotations

import os
import socket
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from halter.errors import ConfigurationError, ToolError
from halter.tools import walking
from halter.tools.contents import MARK, Contents, load
from halter.tools.reading import numbered
from halter.tools.replacing import Changed, replace
from halter.tools.root import Place, Root
from halter.tools.searching import Query, lines, names
from halter.tools.walking import Walk

from ..bounds import T, assert_within


def unwatched() -> None:
    """Nobody asks the work to end."""


@pytest.fixture
def house(tmp_path: Path) -> Path:
    """A root with a file, a directory with another, and beside it what must not be seen."""
    root = tmp_path / "house"
    (root / "room" / "box").mkdir(parents=True)
    (root / "door.txt").write_text("inside\n")
    (root / "room" / "box" / "deep.txt").write_text("deep\n")
    (tmp_path / "street.txt").write_text("outside\n")
    (tmp_path / "street").mkdir()
    (tmp_path / "street" / "door.txt").write_text("outside\n")
    return root


def read(root: Root, path: str) -> str:
    return numbered(root, path, 1, 100, unwatched)


WAYS_IN = (
    "door.txt",
    "./door.txt",
    "room/../door.txt",
    "room/box/../../door.txt",
    "room//..//door.txt",
    "{root}/door.txt",
)


@pytest.mark.parametrize("way", WAYS_IN)
def test_a_path_that_stays_inside_is_read(house: Path, way: str) -> None:
    assert read(Root(house), way.format(root=house)) == "1\tinside"


WAYS_OUT = (
    "../street.txt",
    "room/../../street.txt",
    "room/box/../../../street.txt",
    "./..",
    "{root}/../street.txt",
    "{root}x/street.txt",
    "/etc/passwd",
    "{root}/room/../../street.txt",
    "..//..//..//..//etc/passwd",
    "door.txt\0../street.txt",
)


@pytest.mark.parametrize("way", WAYS_OUT)
def test_a_path_that_leads_out_is_refused(house: Path, way: str) -> None:
    with pytest.raises(ToolError, match=r"outside of|NUL"):
        read(Root(house), way.format(root=house))


def test_no_way_to_go_up_is_made_of_a_file_name(house: Path) -> None:
    """`..` behind something that is no directory is no way around it."""
    with pytest.raises((ToolError, OSError)):
        read(Root(house), "door.txt/../../street.txt")


LINKS_OUT = ("../street.txt", "/etc/passwd", "room/../../street.txt", "../house/../street.txt", "../street/door.txt")


@pytest.mark.parametrize("target", LINKS_OUT)
def test_a_link_that_leads_out_is_refused(house: Path, target: str) -> None:
    (house / "link").symlink_to(target)
    with pytest.raises(ToolError, match="outside of"):
        read(Root(house), "link")


def test_a_directory_that_is_a_link_out_is_refused(house: Path) -> None:
    (house / "away").symlink_to("../street")
    with pytest.raises(ToolError, match="outside of"):
        read(Root(house), "away/door.txt")


def test_links_that_stay_inside_are_followed(house: Path) -> None:
    (house / "relative").symlink_to("room/box")
    (house / "room" / "up").symlink_to("../door.txt")
    (house / "absolute").symlink_to(house / "room")
    (house / "chain").symlink_to("absolute/up")
    root = Root(house)
    assert read(root, "relative/deep.txt") == "1\tdeep"
    assert read(root, "relative/../up") == "1\tinside", "`..` is that of the directory that the link leads to"
    assert read(root, "chain") == "1\tinside"
    with root.at("chain") as place:
        assert place.path == "door.txt", "a place is named by its real path"


def test_links_in_a_circle_are_refused(house: Path) -> None:
    (house / "one").symlink_to("two")
    (house / "two").symlink_to("one")
    with pytest.raises(ToolError, match="too many links"):
        read(Root(house), "one")


def test_a_root_that_is_reached_by_a_link_takes_absolute_paths_of_both_names(house: Path, tmp_path: Path) -> None:
    (tmp_path / "alias").symlink_to("house")
    root = Root(tmp_path / "alias")
    assert read(root, f"{tmp_path}/alias/door.txt") == read(root, f"{house}/door.txt") == "1\tinside"


def test_a_root_that_is_no_directory_is_a_configuration_error(house: Path) -> None:
    for wrong in ("door.txt", "nothing"):
        with pytest.raises(ConfigurationError, match="no directory"):
            Root(house / wrong)


def _swapping(house: Path, swap: tuple[str, str], over: threading.Event) -> threading.Thread:
    """A thread that keeps changing a name from the honest thing to the link out, and back; without a gap, by rename."""
    honest, link = (house / name for name in swap)
    live = house / "live"
    honest.rename(live)

    def run() -> None:
        while not over.is_set():
            live.rename(honest)
            link.rename(live)
            live.rename(link)
            honest.rename(live)

    thread = threading.Thread(target=run)
    thread.start()
    return thread


def _for_a_while(is_enough: Callable[[], object]) -> Iterator[None]:
    """So long as the two race; on a busy machine for longer, until there is something to see."""
    began = time.monotonic()
    while (took := time.monotonic() - began) < 0.7 or (took < 20.0 and not is_enough()):
        yield


@pytest.mark.parametrize(("kind", "path"), [("directory", "live/secret.txt"), ("file", "live")])
def test_a_link_swapped_in_between_look_and_use_leads_nowhere(
    house: Path, tmp_path: Path, kind: str, path: str
) -> None:
    """Thousands of reads race a thread that swaps the name for a link out: never is anything from outside read."""
    (tmp_path / "street" / "secret.txt").write_text("OUTSIDE\n")
    if kind == "directory":
        (house / "honest").mkdir()
        (house / "honest" / "secret.txt").write_text("INSIDE\n")
        (house / "link").symlink_to("../street")
    else:
        (house / "honest").write_text("INSIDE\n")
        (house / "link").symlink_to("../street/secret.txt")
    over = threading.Event()
    thread = _swapping(house, ("honest", "link"), over)
    seen: dict[str, int] = {}
    try:
        root = Root(house)
        for _ in _for_a_while(lambda: min(seen.get("1\tINSIDE", 0), seen.get("ToolError", 0)) > 10):
            try:
                word = read(root, path)
            except (ToolError, OSError) as error:
                word = type(error).__name__
            seen[word] = seen.get(word, 0) + 1
    finally:
        over.set()
        thread.join()
    assert not [word for word in seen if "OUTSIDE" in word], seen
    assert seen.get("1\tINSIDE", 0) > 10, seen
    assert seen.get("ToolError", 0) > 10, f"the race was not run: {seen}"


def test_a_write_through_a_swapped_directory_stays_inside(house: Path, tmp_path: Path) -> None:
    (house / "honest").mkdir()
    (house / "link").symlink_to("../street")
    over = threading.Event()
    thread = _swapping(house, ("honest", "link"), over)
    root, written = Root(house), list[str]()
    try:
        for _ in _for_a_while(lambda: len(written) > 10):
            try:
                with root.at("live/new.txt") as place:
                    replace(place, load(place, unwatched), b"new", unwatched)
                written.append("live/new.txt")
            except (ToolError, OSError):
                pass  # met the link, or the moment in which there was neither
    finally:
        over.set()
        thread.join()
    assert len(written) > 10
    assert sorted(os.listdir(tmp_path / "street")) == ["door.txt"], "nothing was made outside"


def test_a_walk_past_a_swapped_directory_never_goes_through_the_link(house: Path, tmp_path: Path) -> None:
    (tmp_path / "street" / "OUTSIDE").touch()
    (house / "honest").mkdir()
    (house / "honest" / "INSIDE").touch()
    (house / "link").symlink_to("../street")
    over = threading.Event()
    thread = _swapping(house, ("honest", "link"), over)
    root, seen = Root(house), list[str]()
    try:
        for _ in _for_a_while(lambda: "live/INSIDE" in "".join(seen)):
            seen.append(names(root, "**/*SIDE", ".", (), 100, unwatched))
            try:
                seen.append(names(root, "live/*", ".", (), 100, unwatched))
            except (ToolError, OSError):
                pass  # met the link, or the moment in which there was neither
    finally:
        over.set()
        thread.join()
    assert "live/INSIDE" in "".join(seen)
    assert "OUTSIDE" not in "".join(seen)


def test_whatever_is_asked_no_descriptor_is_left_open(house: Path) -> None:
    (house / "away").symlink_to("../street")
    (house / "loop").symlink_to("loop")
    os.mkfifo(house / "pipe")
    root, before = Root(house), len(os.listdir("/proc/self/fd"))
    for path in ("door.txt", "../x", "away/door.txt", "loop", "pipe", "room", "room/none", "none/none", "door.txt/x"):
        for work in (
            lambda path=path: read(root, path),
            lambda path=path: put(house, path, b"new", None),
            lambda path=path: names(root, "**/*", path, (), 1, unwatched),
            lambda path=path: lines(str(house), Query(pattern=".", path=path, limit=1)),
        ):
            try:
                work()
            except (ToolError, OSError):
                pass  # whatever it says
    assert len(os.listdir("/proc/self/fd")) == before


def test_what_a_walk_leaves_out_is_told(house: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A directory that may not be listed, and more names than it looks at."""
    opened = Place.open_directory

    def open_directory(place: Place) -> int:
        if place.name == "box":
            raise PermissionError(13, "Permission denied")
        return opened(place)

    monkeypatch.setattr(Place, "open_directory", open_directory)
    root = Root(house)
    assert names(root, "**/*.txt", ".", (), 9, unwatched) == "door.txt\n(Directories that may not be listed: 1.)"
    assert "(Directories that may not be listed: 1.)" in lines(str(house), Query(pattern="deep"))
    monkeypatch.setattr("halter.tools.walking.MOST_ENTRIES", 1)
    assert names(root, "**/*", ".", (), 9, unwatched).endswith("name a directory further down.)")


def test_a_walk_goes_so_deep_and_no_deeper(house: Path) -> None:
    deep = house / "/".join(["d"] * 70)
    deep.mkdir(parents=True)
    (deep / "lost.txt").touch()
    (house / "/".join(["d"] * 60) / "found.txt").touch()
    shown = names(Root(house), "d/**/*.txt", ".", (), 9, unwatched)
    assert "found.txt" in shown
    assert "lost.txt" not in shown
    assert "more than could be looked at" in shown
    assert "lost.txt" in names(Root(house), "*.txt", "/".join(["d"] * 70), (), 9, unwatched)


# -- special files


def _make(path: Path, kind: str) -> None:
    if kind == "pipe":
        os.mkfifo(path)
    elif kind == "socket":
        with socket.socket(socket.AF_UNIX) as listener:
            listener.bind(str(path))
    else:
        path.mkdir()


@pytest.mark.parametrize("kind", ["pipe", "socket", "directory"])
def test_what_is_no_plain_file_is_refused_at_once(house: Path, kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(house)  # a socket's path must be short
    _make(Path("special"), kind)
    root, since = Root(house), time.monotonic()
    with pytest.raises(ToolError, match=kind):
        read(root, "special")
    with pytest.raises(ToolError, match=f"is a {kind}: it is not replaced"):
        with root.at("special") as place:
            replace(place, None, b"text", unwatched)
    assert_within(T, time.monotonic() - since)


def test_a_device_is_refused() -> None:
    with pytest.raises(ToolError, match="a device"):
        read(Root("/dev"), "zero")


def test_a_pipe_swapped_in_just_before_it_is_opened_makes_nobody_wait(house: Path) -> None:
    """The second look, at the descriptor, is the one that counts."""
    os.mkfifo(house / "pipe")
    root, since = Root(house), time.monotonic()
    with root.at("door.txt") as place:
        before = os.stat(house / "door.txt")
        (house / "pipe").replace(house / "door.txt")
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(os, "stat", lambda *args, **options: before)
            with pytest.raises(ToolError, match="a pipe"):
                place.open()
    assert_within(T, time.monotonic() - since)


def test_the_kernels_own_files_are_not_read(house: Path) -> None:
    """With `/` as the root, another process's environment would hold its keys, and shared memory its data."""
    shared = Path("/dev/shm") / f"halter-test-{os.getpid()}"
    shared.write_text("secret")
    try:
        for path in (
            "/proc/self/environ",
            "/proc/version",
            "/sys/kernel/notes",
            "/dev/null",
            str(shared),
            "/dev/new/x",
        ):
            with pytest.raises(ToolError, match="view into the kernel"):
                read(Root("/"), path)
            with pytest.raises(ToolError, match="view into the kernel"), Root("/").at(path, make_parents=True):
                pass
        (house / "link").symlink_to("/proc/version")
        with pytest.raises(ToolError, match="outside of"):
            read(Root(house), "link")
        with Root("/").at(".") as place:
            seen = {entry.path for entry in Walk(Root("/"), (), unwatched).under(place, 2)}
        assert {"dev", "proc", "sys", "usr/bin"} <= seen
        assert not [path for path in seen if path.startswith(("dev/", "proc/", "sys/"))]
        assert read(Root("/dev/shm"), shared.name) == "1\tsecret", "a root inside of it was meant"
    finally:
        shared.unlink()


def test_the_kernels_file_systems_are_known_wherever_they_are_mounted(
    house: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    device = house.stat().st_dev
    mount = f"36 35 {os.major(device)}:{os.minor(device)} / /mnt/x rw - %s none rw\n"
    for kind, is_refused in (("ext4", False), ("cgroup2", True)):
        monkeypatch.setattr(Path, "read_text", lambda *_, text=mount % kind, **__: text)
        root = Root(house)
        monkeypatch.undo()
        assert (device in root.kernels_devices) is False, "the root itself was meant"
        monkeypatch.setattr(Path, "read_text", lambda *_, text=mount % kind, **__: text)
        elsewhere = Root("/dev/shm")
        monkeypatch.undo()
        assert (device in elsewhere.kernels_devices) is is_refused


# -- reading


def test_lines_are_numbered_and_read_in_part(house: Path) -> None:
    (house / "many").write_text("".join(f"line {number}\n" for number in range(1, 31)))
    root = Root(house)
    assert numbered(root, "many", 29, 5, unwatched) == "29\tline 29\n30\tline 30"
    assert numbered(root, "many", 1, 2, unwatched) == "1\tline 1\n2\tline 2\n(More lines follow: go on with offset=3.)"
    assert numbered(root, "many", 31, 2, unwatched) == "(many has 30 lines: line 31 is past its end.)"
    with pytest.raises(ToolError, match="from 1"):
        numbered(root, "many", 0, 2, unwatched)


@pytest.mark.parametrize(
    ("raw", "shown"),
    [
        (b"", "(file is empty.)"),
        (b"\n", "1\t"),
        (b"a", "1\ta"),
        (b"a\n\nb", "1\ta\n2\t\n3\tb"),
        (MARK + b"a\r\nb\r\n", "1\ta\n2\tb"),
        ("ä€😀\n".encode(), "1\tä€😀"),
        ("\ufffd".encode(), "1\t\ufffd"),
        (b"gr\xfc\xdfe\n", "1\tgr\ufffd\ufffde\n(This is no UTF-8 text: what does not decode is shown as \ufffd.)"),
    ],
    ids=["empty", "a-blank-line", "no-end", "blank-between", "mark-and-crlf", "utf-8", "a-replacement", "latin-1"],
)
def test_texts_are_shown_as_they_are(house: Path, raw: bytes, shown: str) -> None:
    (house / "file").write_bytes(raw)
    assert read(Root(house), "file") == shown


def test_a_binary_file_is_named_as_such(house: Path) -> None:
    (house / "image.png").write_bytes(b"\x89PNG\0\0" + bytes(100_000))
    with pytest.raises(ToolError, match=r"image\.png is a binary file \(100,006 bytes\)"):
        read(Root(house), "image.png")


def test_a_huge_file_is_read_no_further_than_it_is_wanted(house: Path) -> None:
    """8 GB, most of it a hole, behind a line that is wanted."""
    with open(house / "huge", "wb") as file:
        file.write(b"first\n" + b"x" * 300_000)
        file.truncate(8 << 30)
    looks = 0

    def look() -> None:
        nonlocal looks
        looks += 1

    shown = numbered(Root(house), "huge", 1, 1, look)
    assert shown == "1\tfirst\n(More lines follow: go on with offset=2.)"
    assert looks == 1


def test_a_reader_that_is_asked_to_end_ends_between_two_pieces(house: Path) -> None:
    with open(house / "huge", "wb") as file:
        file.write(b"first\n" + b"x" * 300_000)
        file.truncate(8 << 30)
    until = time.monotonic() + 0.2

    def look() -> None:
        if time.monotonic() > until:
            raise InterruptedError

    since = time.monotonic()
    with pytest.raises(InterruptedError):
        numbered(Root(house), "huge", 2, 2, look)
    assert_within(0.2 + T, time.monotonic() - since)


def test_long_lines_and_long_answers_are_bounded(house: Path) -> None:
    (house / "long").write_text("x" * 5_000 + "\n" + "y" * 100_000 + "\nz\n")
    one, other, last = read(Root(house), "long").split("\n")
    assert one == f"1\t{'x' * 2000} … 3,000 characters left out …"
    assert other == f"2\t{'y' * 2000} … the rest of this line is left out …"
    assert last == "3\tz"
    (house / "wide").write_text("".join("w" * 1999 + "\n" for _ in range(1000)))
    shown = numbered(Root(house), "wide", 1, 2000, unwatched)
    assert len(shown) < 65_000
    assert shown.endswith("(More lines follow: go on with offset=32.)")


# -- replacing


@pytest.mark.parametrize(
    ("raw", "text", "again"),
    [
        (b"a\nb\n", "a\nb\n", b"A\nb\n"),
        (b"a\r\nb\r\n", "a\nb\n", b"A\r\nb\r\n"),
        (MARK + b"a\r\nb", "a\nb", MARK + b"A\r\nb"),
        (b"a\r\nb\nc\r", "a\r\nb\nc\r", b"A\r\nb\nc\r"),
    ],
    ids=["lf", "crlf", "mark", "mixed"],
)
def test_a_byte_order_mark_and_line_ends_survive_an_edit(raw: bytes, text: str, again: bytes) -> None:
    contents = Contents.of(raw, "file")
    assert contents.text == text
    assert contents.with_text(contents.text) == raw
    assert contents.with_text(contents.text.replace("a", "A")) == again


def put(house: Path, name: str, data: bytes, seen: bytes | None) -> None:
    with Root(house).at(name, make_parents=True) as place:
        replace(place, seen, data, unwatched)


def test_a_replaced_file_keeps_its_mode_and_a_new_one_has_the_usual_one(house: Path) -> None:
    (house / "door.txt").chmod(0o751)
    put(house, "door.txt", b"new", b"inside\n")
    put(house, "made/of/parts.txt", b"new", None)
    usual = house / "usual"
    usual.touch()
    assert (house / "door.txt").stat().st_mode & 0o7777 == 0o751
    assert (house / "made/of/parts.txt").stat().st_mode == usual.stat().st_mode
    assert (house / "made/of/parts.txt").read_bytes() == b"new"


def test_a_link_is_written_through_and_stays(house: Path) -> None:
    (house / "link").symlink_to("room/box/deep.txt")
    put(house, "link", b"new", b"deep\n")
    assert (house / "link").is_symlink()
    assert (house / "room/box/deep.txt").read_bytes() == b"new"


def test_a_file_that_has_changed_meanwhile_is_not_replaced(house: Path) -> None:
    for seen in (b"something else", None):
        with pytest.raises(Changed, match="has changed"):
            put(house, "door.txt", b"new", seen)
    with pytest.raises(Changed):
        put(house, "gone.txt", b"new", b"it was here")
    assert sorted(os.listdir(house)) == ["door.txt", "room"], "and nothing is left beside it"
    assert (house / "door.txt").read_text() == "inside\n"


def test_a_protected_file_is_not_replaced(house: Path) -> None:
    (house / "door.txt").chmod(0o444)
    with pytest.raises(ToolError, match="protected"):
        put(house, "door.txt", b"new", b"inside\n")


def test_wherever_a_write_is_stopped_the_file_is_old_or_new(house: Path) -> None:
    """Stopped at each place where it looks whether it should go on."""
    data, old = b"n" * 1_000_000, b"o" * 700_000
    for limit in range(100):
        (house / "file").write_bytes(old)
        looks = 0

        def look(limit: int = limit) -> None:
            nonlocal looks
            if looks == limit:
                raise InterruptedError
            looks += 1

        try:
            with Root(house).at("file") as place:
                replace(place, load(place, look), data, look)
        except InterruptedError:
            assert (house / "file").read_bytes() == old
            assert sorted(os.listdir(house)) == ["door.txt", "file", "room"]
            continue
        assert (house / "file").read_bytes() == data
        assert limit > 8, "it was stopped at each step before"
        return
    pytest.fail("it never got through")


def test_many_writers_at_once_lose_no_change(house: Path) -> None:
    """Each adds its line to what is there, and begins anew where somebody was faster."""
    (house / "file").write_text("")

    def add(word: str) -> None:
        while True:
            with Root(house).at("file") as place:
                seen = load(place, unwatched)
                assert seen is not None
                try:
                    return replace(place, seen, seen + word.encode() + b"\n", unwatched)
                except Changed:
                    continue

    threads = [threading.Thread(target=lambda i=i: [add(f"{i}-{j}") for j in range(15)]) for i in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted((house / "file").read_text().split()) == sorted(f"{i}-{j}" for i in range(6) for j in range(15))


# -- very large directories


class _Named:
    """A directory's entry, of which there may be any number."""

    def __init__(self, name: str) -> None:
        self.name = name

    def is_dir(self, *, follow_symlinks: bool) -> bool:
        return False


class _Crowd:
    """A directory of very many files, as `os.scandir` gives it; counts how many were read."""

    def __init__(self, count: int) -> None:
        self.read = 0
        self._count = count

    def __enter__(self) -> _Crowd:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def __iter__(self) -> _Crowd:
        return self

    def __next__(self) -> _Named:
        if self.read == self._count:
            raise StopIteration
        self.read += 1
        return _Named(f"file{self.read * 7919 % self._count:06}")


def test_a_directory_of_very_many_files_is_read_in_pieces_and_left_at_a_stop(
    house: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    crowd = _Crowd(400_000)
    monkeypatch.setattr(os, "scandir", lambda _: crowd)
    looks = 0

    def look() -> None:
        nonlocal looks
        looks += 1
        if looks == 5:
            raise InterruptedError

    with Root(house).at(".") as place, pytest.raises(InterruptedError):
        list(Walk(Root(house), (), look).under(place))
    assert crowd.read <= 5 * walking.PIECE


def test_the_files_of_a_large_directory_come_by_name(house: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(walking, "PIECE", 7)
    monkeypatch.setattr(walking, "MOST_ENTRIES", 90)
    for number in range(120):
        (house / f"file{number * 77 % 120:03}").touch()
    walk = Walk(Root(house), (), unwatched)
    with Root(house).at(".") as place:
        found = [entry.path for entry in walk.under(place)]
    assert found == sorted(found)
    assert len(found) == 90
    assert not walk.is_whole
