"""What is in a text file, and how it is replaced: as a whole or not at all.

1. A byte order mark and line ends are the file's, and stay as they are; the model sees neither. 2. New contents are
written beside the file and renamed over it: whoever reads, and whatever ends us, the file is the old one or the new
one. 3. Comparing with what was seen, and renaming, are one step among all threads of this process.
"""

from __future__ import annotations

import os
import secrets
import stat
import threading
from collections.abc import Callable
from typing import TypeAlias

import msgspec

from halter.errors import ToolError
from halter.tools.root import Place, kind_of

MARK = b"\xef\xbb\xbf"
LARGEST = 20_000_000  # bytes that are edited or replaced; more is not written by a model
PIECE = 256 * 1024  # bytes between two looks at the token
LONGEST_NAME = 180  # characters of a file's name kept in that of the new one beside it: 255 bytes are the most

Look: TypeAlias = Callable[[], object]  # raises where the work should end


class Contents(msgspec.Struct, frozen=True):
    """A text file. `text`: with `\\n` alone at the ends of its lines, unless it has ends of several kinds."""

    raw: bytes
    text: str
    mark: bytes = b""
    newline: str = "\n"

    @classmethod
    def of(cls, raw: bytes, path: str) -> Contents:
        """Raises `ToolError` for what is no UTF-8 text."""
        if is_binary(raw):
            raise ToolError(f"{path} is a binary file ({len(raw):,} bytes), not a text")
        mark = MARK if raw.startswith(MARK) else b""
        try:
            text = raw[len(mark) :].decode()
        except UnicodeDecodeError as error:
            raise ToolError(f"{path} is no UTF-8 text: byte {error.start + len(mark)} does not decode") from None
        if "\r\n" in text and text.count("\r\n") == text.count("\n") == text.count("\r"):
            return cls(raw, text.replace("\r\n", "\n"), mark, "\r\n")
        return cls(raw, text, mark)

    def with_text(self, text: str) -> bytes:
        """The bytes of a file with this text, and this one's byte order mark and line ends."""
        if self.newline != "\n":
            text = text.replace("\r\n", "\n").replace("\n", self.newline)
        return self.mark + text.encode()


def is_binary(head: bytes) -> bool:
    """Whether it holds a NUL near its begin, as git judges; UTF-16 and UTF-32 count as binary."""
    return b"\0" in head[:8192]


def load(place: Place, look: Look) -> bytes | None:
    """All bytes of the plain file here; `None` if nothing is here.

    `look`: called between pieces. Raises `ToolError`, `OSError`, and what `look` does.
    """
    status = place.status()
    if status is None:
        return None
    if status.st_size > LARGEST and stat.S_ISREG(status.st_mode):
        raise ToolError(f"{place.path} is too large to be changed ({status.st_size:,} bytes, {LARGEST:,} at most)")
    with open(place.open(), "rb", buffering=0) as file:
        return _all_of(file.read, place, look)


def _all_of(read: Callable[[int], bytes | None], place: Place, look: Look) -> bytes:
    pieces: list[bytes] = []
    size = 0
    while piece := read(PIECE):
        look()
        pieces.append(piece)
        size += len(piece)
        if size > LARGEST:  # it has grown since its size was looked at
            raise ToolError(f"{place.path} is too large to be changed (more than {LARGEST:,} bytes)")
    return b"".join(pieces)


def replace(place: Place, seen: bytes | None, data: bytes, look: Look) -> None:
    """Puts `data` in place of what is there, or makes the file; its mode, and its owner if we may, stay.

    `seen`: what must be there still, `None` for nothing. `look`: called between pieces, and a last time before the
    file appears. Raises `Changed` if something else is there now, `ToolError`, `OSError`, and what `look` does; then
    nothing has been changed.
    """
    status = place.status()
    _check(place, status)
    name = f".{place.name[: LONGEST_NAME // 4]}.{secrets.token_hex(6)}.new"
    try:
        _write(place.directory, name, data, status, look)
        with _commit:
            look()
            if load(place, look) != seen:
                raise Changed(f"{place.path} has changed since it was read: read it again, then decide anew")
            os.replace(name, place.name, src_dir_fd=place.directory, dst_dir_fd=place.directory)
    except BaseException:
        _remove(place.directory, name)
        raise


class Changed(ToolError):
    """Somebody else has written it meanwhile."""


def _check(place: Place, status: os.stat_result | None) -> None:
    """Renaming would go over anything but a directory, and over a file that is protected from being written."""
    if status is None:
        return
    if not stat.S_ISREG(status.st_mode):
        raise ToolError(f"{place.path} is {kind_of(status.st_mode)}: it is not replaced by a file")
    if not status.st_mode & 0o222:
        raise ToolError(f"{place.path} is protected from being written (mode {stat.S_IMODE(status.st_mode):o})")


def _write(directory: int, name: str, data: bytes, status: os.stat_result | None, look: Look) -> None:
    mode = 0o666 if status is None else stat.S_IMODE(status.st_mode) & 0o777  # less the umask, as it ever is
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW
    view = memoryview(data)
    with open(os.open(name, flags, mode, dir_fd=directory), "wb", buffering=0) as file:
        if status is not None:
            _keep(file.fileno(), status)
        while view:
            look()
            view = view[file.write(view[:PIECE]) :]


def _keep(number: int, status: os.stat_result) -> None:
    """The owner, as far as we may give a file away, and then the mode, which a new owner would take bits from."""
    new = os.fstat(number)
    if (new.st_uid, new.st_gid) != (status.st_uid, status.st_gid):
        try:
            os.fchown(number, status.st_uid, status.st_gid)
        except PermissionError:
            pass  # then it is ours, as after any editor that renames
    os.fchmod(number, stat.S_IMODE(status.st_mode))


def _remove(directory: int, name: str) -> None:
    try:
        os.unlink(name, dir_fd=directory)
    except FileNotFoundError:
        pass


_commit = threading.Lock()


def _renew_lock() -> None:
    """In a forked child nobody is left who could release it."""
    global _commit
    _commit = threading.Lock()


os.register_at_fork(after_in_child=_renew_lock)
