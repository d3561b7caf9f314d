"""Markdown that is still being written, cut into blocks that are complete and a tail that is not.

Each block is rendered once, when it is complete, and only the tail again and again: so a token costs the same at the
end of a long answer as at its beginning. A block that grows too long is cut where that shows least.
"""

from __future__ import annotations

import re

LONGEST_LINES = 40  # of one block
LONGEST_LINE = 2_000  # characters of one paragraph's line
_FENCE = re.compile(r"^(\s*)(`{3,}|~{3,})(.*)$")
_HEADING = re.compile(r"^ {0,3}#{1,6}\s")
_ITEM = re.compile(r"^\s{0,3}([-*+]|\d{1,9}[.)])\s")
_TABLE = re.compile(r"^\s*\|")


class Blocks:
    """`feed` returns the blocks that have become complete; `tail` is the rest; `end` returns it."""

    def __init__(self) -> None:
        self._lines: list[str] = []  # complete lines of the block that is not
        self._line: list[str] = []  # pieces of the line that is not
        self._length = 0
        self._fence = ""  # the line that opened the code we are in
        self._saw_blank = False

    @property
    def tail(self) -> str:
        """What is not complete yet, as Markdown that is."""
        text = "\n".join([*self._lines, "".join(self._line)])
        return f"{text}\n{self._closing()}" if self._fence and text.strip() else text

    def feed(self, text: str) -> list[str]:
        """Takes more of the answer in."""
        found: list[str] = []
        *lines, rest = text.split("\n")
        for line in lines:
            self._line.append(line)
            self._take("".join(self._line), found)
            self._line, self._length = [], 0
        if rest:
            self._line.append(rest)
            self._length += len(rest)
            while self._length > LONGEST_LINE and not self._fence:
                self._cut_line(found)
        return found

    def end(self) -> list[str]:
        """The tail, as the last block; nothing is left."""
        tail = self.tail
        self._lines, self._line, self._length, self._fence, self._saw_blank = [], [], 0, "", False
        return [tail] if tail.strip() else []

    def _take(self, line: str, found: list[str]) -> None:
        if self._fence:
            self._take_code(line, found)
        elif not line.strip():
            self._saw_blank = bool(self._lines)
            if self._lines:
                self._lines.append(line)
        else:
            self._take_text(line, found)

    def _take_text(self, line: str, found: list[str]) -> None:
        fence = _FENCE.match(line)
        goes_on = line[0] in " \t" and self._is_list
        if (self._saw_blank and not goes_on) or (fence is not None and not goes_on):
            self._emit(found)
        elif len(self._lines) >= LONGEST_LINES and not goes_on:
            self._cut(line, found)
        self._saw_blank = False
        if _HEADING.match(line):
            self._emit(found)
            found.append(line)
            return
        if fence is not None:
            self._fence = line
        self._lines.append(line)

    def _take_code(self, line: str, found: list[str]) -> None:
        opened, closed = _FENCE.match(self._fence), _FENCE.match(line)
        assert opened is not None
        self._lines.append(line)
        if closed is not None and closed[2].startswith(opened[2]) and not closed[3].strip():
            self._fence = ""
            if not self._is_list:
                self._emit(found)
        elif len(self._lines) > LONGEST_LINES:
            self._lines.append(self._closing())
            self._emit(found)
            self._lines.append(self._fence)

    def _closing(self) -> str:
        opened = _FENCE.match(self._fence)
        return "" if opened is None else opened[1] + opened[2]

    @property
    def _is_list(self) -> bool:
        return bool(self._lines) and _ITEM.match(self._lines[0]) is not None

    def _cut(self, line: str, found: list[str]) -> None:
        """A long block goes on: a list at its next item, a table with its head again, a paragraph where it is."""
        if self._is_list and not _ITEM.match(line):
            return
        head = self._lines[:2] if len(self._lines) > 1 and all(map(_TABLE.match, self._lines[:2])) else []
        self._emit(found)
        self._lines += head

    def _cut_line(self, found: list[str]) -> None:
        """A paragraph in one line: cut behind a sentence, or else a word."""
        line = "".join(self._line)
        at = line.rfind(". ", 1, LONGEST_LINE) + 1 or line.rfind(" ", 1, LONGEST_LINE)
        if at <= 0:
            at = LONGEST_LINE
        self._lines.append(line[:at])
        rest = line[at:].lstrip()
        self._emit(found)
        self._line, self._length = ([rest] if rest else []), len(rest)

    def _emit(self, found: list[str]) -> None:
        text = "\n".join(self._lines).rstrip("\n")
        if text.strip():
            found.append(text)
        self._lines, self._saw_blank = [], False
