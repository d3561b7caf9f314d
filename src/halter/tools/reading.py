"""Lines of a text file, numbered as editors do, bounded in number and length, and read no further than wanted."""

from __future__ import annotations

from halter.errors import ToolError
from halter.tools.bounds import clipped
from halter.tools.contents import MARK, PIECE, Look, is_binary
from halter.tools.root import Root

MOST_CHARACTERS = 60_000  # of one answer
LONGEST_LINE = 2000  # characters that are shown of a line
_KEPT = 4 * LONGEST_LINE + 4  # bytes of a line, which hold so many characters and a bit


def numbered(root: Root, path: str, offset: int, limit: int, look: Look) -> str:
    """The lines from number `offset` (from 1) on, at most `limit`, each as `12\\ttext`; and how to read on.

    `look`: called between pieces. Blocks for as long as the disk does. Raises `ToolError` for what is no plain text
    file under the root, `OSError`, and what `look` does.
    """
    if offset < 1 or limit < 1:
        raise ToolError("offset and limit count lines from 1 on")
    with root.open(path) as (number, place), open(number, "rb", buffering=0, closefd=False) as file:
        window = _Window(offset, limit)
        piece = file.read(PIECE)
        if is_binary(piece):
            raise ToolError(f"{place.path} is a binary file ({file.seek(0, 2):,} bytes), not a text")
        piece = piece.removeprefix(MARK)
        while piece and not window.is_full:
            look()
            window.feed(piece)
            piece = file.read(PIECE)
        window.end()
        return window.report(place.path)


class _Window:
    """Takes bytes, keeps the lines that are wanted. `is_full`: there are more, which need not be read."""

    def __init__(self, offset: int, limit: int) -> None:
        self._offset = offset
        self._limit = limit
        self._count = 0  # lines so far
        self._rest = b""  # of a line whose end has not come
        self._dropped = 0  # bytes of it that are not kept
        self._shown: list[str] = []
        self._size = 0
        self._is_foreign = False
        self.is_full = False

    def feed(self, piece: bytes) -> None:
        first, *others = piece.split(b"\n")
        self._extend(first)
        for begin in others:
            self._line()
            self._extend(begin)
            if self.is_full:
                return

    def end(self) -> None:
        if not self.is_full and (self._rest or self._dropped):
            self._line()

    def _extend(self, part: bytes) -> None:
        if part and self._is_enough:
            self.is_full = True
            return
        room = max(0, _KEPT - len(self._rest))
        self._rest += part[:room]
        self._dropped += max(0, len(part) - room)

    @property
    def _is_enough(self) -> bool:
        return len(self._shown) == self._limit or self._size >= MOST_CHARACTERS

    def _line(self) -> None:
        if self._is_enough:
            self.is_full = True
        if self.is_full:
            return
        self._count += 1
        if self._count >= self._offset:
            self._show()
        self._rest, self._dropped = b"", 0

    def _show(self) -> None:
        text = self._rest.removesuffix(b"\r").decode("utf-8", "replace")
        if self._dropped:
            line = f"{text[:LONGEST_LINE]} … the rest of this line is left out …"
        else:
            line = clipped(text, LONGEST_LINE)
        self._is_foreign = self._is_foreign or ("\ufffd" in text and b"\xef\xbf\xbd" not in self._rest)
        self._shown.append(f"{self._count}\t{line}")
        self._size += len(line)

    def report(self, path: str) -> str:
        if not self._count:
            return f"({path} is empty.)"
        if not self._shown:
            return f"({path} has {self._count:,} lines: line {self._offset:,} is past its end.)"
        notes: list[str] = []
        if self._is_foreign:
            notes.append("(This is no UTF-8 text: what does not decode is shown as \ufffd.)")
        if self.is_full:
            notes.append(f"(More lines follow: go on with offset={self._count + 1}.)")
        return "\n".join([*self._shown, *notes])
