"""Text files read whole: their text, and the byte order mark and line ends around it.

A byte order mark and line ends are the file's, and stay as they are; the model sees neither.
"""

from __future__ import annotations

import stat
from collections.abc import Callable
from typing import TypeAlias

import msgspec

from halter.errors import ToolError
from halter.tools.root import Place

MARK = b"\xef\xbb\xbf"
LARGEST = 5_000_000  # bytes that are edited or written: one step of a larger text holds up every thread for 0.2 s
PIECE = 256 * 1024  # bytes between two looks at the token

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

    def size_of(self, text: str) -> int:
        """Bytes that the text takes in this file, at most."""
        return len(text.encode()) + (text.count("\n") if self.newline != "\n" else 0)


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


def check_size(size: int, path: str) -> None:
    """Raises `ToolError` if a file would be larger than `LARGEST` bytes."""
    if size > LARGEST:
        raise ToolError(f"{path} would have {size:,} bytes: {LARGEST:,} are the most that can be written")
