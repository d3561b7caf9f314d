"""What a program says: decoded as it comes, bounded in memory, and shown as it goes.

A program may write faster than anybody reads, and for ever: it is always read, so that it never waits for us, and what
is kept is its beginning and its end. Nothing here waits, or knows a clock but the one it is given.
"""

from __future__ import annotations

import codecs
from collections import deque
from collections.abc import Callable

from halter.tools.bounds import left_out

SHOWN_EVERY = 0.05  # seconds between two events at least
_PIECE = 4096  # characters of the tail that are let go of together


class Output:
    """Text from bytes (UTF-8; what is not becomes U+FFFD): its first and last `limit / 2` characters, and a count."""

    def __init__(self, limit: int) -> None:
        self.total = 0  # characters
        self._limit = limit
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._room = limit - limit // 2
        self._head: list[str] = []
        self._tail = Tail(limit // 2)

    def feed(self, data: bytes) -> str:
        """Takes more bytes, and returns the text that they complete."""
        return self._keep(self._decoder.decode(data))

    def finish(self) -> str:
        """No more will come: returns what a character that was cut off amounts to."""
        return self._keep(self._decoder.decode(b"", True))

    def _keep(self, text: str) -> str:
        self.total += len(text)
        head = text[: self._room]
        if head:
            self._head.append(head)
            self._room -= len(head)
        self._tail.add(text[len(head) :])
        return text

    def successor(self) -> Output:
        """An empty one for what comes next: a character of which a part has come is not lost."""
        next = Output(self._limit)
        next._decoder.setstate(self._decoder.getstate())
        return next

    @property
    def text(self) -> str:
        """What is kept, around a line that says how much is missing."""
        head, tail = "".join(self._head), self._tail.text
        missing = self.total - len(head) - len(tail)
        return f"{head}{tail}" if missing == 0 else f"{head}\n{left_out(missing)}\n{tail}"

    def __repr__(self) -> str:
        return f"<Output of {self.total} characters>"


class Tail:
    """The last `limit` characters of a text that grows. Memory is bounded; each character is copied a few times."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._pieces: deque[str] = deque()
        self._held = 0

    def add(self, text: str) -> None:
        text = text[len(text) - self._limit :] if len(text) > self._limit else text
        for start in range(0, len(text), _PIECE):
            piece = text[start : start + _PIECE]
            self._pieces.append(piece)
            self._held += len(piece)
        while self._pieces and self._held - len(self._pieces[0]) >= self._limit:
            self._held -= len(self._pieces.popleft())

    @property
    def text(self) -> str:
        joined = "".join(self._pieces)
        self._pieces = deque([joined])  # many small ones cost more than what they hold
        return joined[len(joined) - self._limit :] if len(joined) > self._limit else joined


class Showing:
    """Hands text on in few pieces: at once if it has been quiet, else together, and `limit` characters in all.

    `show(text)`: takes a piece. `later(seconds, callback)`: the loop's `call_later`.
    """

    def __init__(self, show: Callable[[str], object], limit: int, later: Callable[[float, Callable[[], None]], object]):
        self._show = show
        self._room = limit
        self._later = later
        self._waiting: list[str] = []
        self._is_resting = False

    def add(self, text: str) -> None:
        """Shows the text, now or soon; beyond the limit it is told once that there is more, and then nothing."""
        if self._room <= 0 or not text:
            return
        self._waiting.append(text[: self._room])
        self._room -= len(text)
        if self._room <= 0:
            self._waiting.append("\n… the rest is not shown as it comes …\n")
        if not self._is_resting:
            self._is_resting = True
            self.flush()
            self._later(SHOWN_EVERY, self._rested)

    def _rested(self) -> None:
        self._is_resting = bool(self._waiting)
        if self._is_resting:
            self.flush()
            self._later(SHOWN_EVERY, self._rested)

    def flush(self) -> None:
        """Shows what waits."""
        text = "".join(self._waiting)
        self._waiting.clear()
        if text:
            self._show(text)
