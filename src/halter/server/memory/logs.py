"""The logs of ended runs: kept for a time, and up to a size."""

from __future__ import annotations

import asyncio
import time

from halter.server.memory.entry import Entry


class KeptLogs:
    """The ended runs that still have their logs. Event loop of the server only.

    Args:
        retain: seconds for which a log is kept.
        largest: bytes of all of them, about; the oldest go first.
    """

    def __init__(self, retain: float, largest: int) -> None:
        self._retain = retain
        self._largest = largest
        self._sizes: dict[Entry, int] = {}  # the one that ended first comes first
        self._size = 0
        self._timer: asyncio.TimerHandle | None = None  # one for all: each would keep a context and a closure

    def add(self, entry: Entry) -> None:
        """Keeps the log of a run that has just ended."""
        self._sizes[entry] = size = entry.size()
        self._size += size
        while self._size > self._largest and self._sizes:
            self._let_go(next(iter(self._sizes)))
        self._set_timer()

    def discard(self, entry: Entry) -> None:
        """The run is forgotten."""
        self._size -= self._sizes.pop(entry, 0)

    def close(self) -> None:
        """Lets go of no more."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _let_go(self, entry: Entry) -> None:
        self.discard(entry)
        entry.let_go()

    def _let_go_of_old(self) -> None:
        self._timer = None
        while self._sizes and self._left(oldest := next(iter(self._sizes))) <= 0:
            self._let_go(oldest)
        self._set_timer()

    def _set_timer(self) -> None:
        if self._timer is None and self._sizes:
            delay = max(0.0, self._left(next(iter(self._sizes))))
            self._timer = asyncio.get_running_loop().call_later(delay, self._let_go_of_old)

    def _left(self, entry: Entry) -> float:
        """Seconds for which its log is still kept."""
        return (entry.ended_at or 0.0) + self._retain - time.time()
