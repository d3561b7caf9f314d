"""One thread that brings trees of processes to their end, while there are any; a sweep of /proc serves them all."""

from __future__ import annotations

import logging
import os
import threading
import time
from functools import cache

from halter.children import proc
from halter.children.ending import TICK, Ending
from halter.children.proc import Table
from halter.core.threads import spawn

_logger = logging.getLogger("halter")


class _Sweeper:
    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._endings: list[Ending] = []
        self._is_at_work = False
        self._arrived = threading.Event()
        self._ended: frozenset[tuple[int, int]] = frozenset()  # by the last sweep

    def add(self, ending: Ending) -> None:
        with self._lock:
            self._endings.append(ending)
            self._arrived.set()
            if self._is_at_work:
                return
            self._is_at_work = True
        try:
            spawn("sweeper", self._work)
        except RuntimeError:  # Python 3.12 starts no threads any more when the process ends
            self._work()

    def _work(self) -> None:
        while endings := self._under_way():
            self._arrived.clear()
            self._sweep(endings)
            left = [ending.tick for ending in endings if not ending.is_over]
            if left:
                self._arrived.wait(min(left))

    def _under_way(self) -> list[Ending]:
        """Those that are not over; with none left, the thread ends, and the next one to come starts another."""
        with self._lock:
            self._endings = [ending for ending in self._endings if not ending.is_over]
            self._is_at_work = bool(self._endings)
            return list(self._endings)

    def _sweep(self, endings: list[Ending]) -> None:
        now = time.monotonic()
        due = [ending for ending in endings if ending.is_due(now)]
        if not due:
            return
        everybody = cache(self._look)
        for ending in due:
            try:
                ending.look(everybody, now)
            except Exception:  # the others' processes must end all the same
                _logger.exception("sweeping for %r failed; it is tried again", ending)
                ending.give_up()

    def _look(self) -> Table:
        table = proc.look(self._ended)
        self._ended = table.ended
        return table


_sweeper = _Sweeper()


def bring_to_an_end(ending: Ending) -> None:
    """Has it looked after until it is over; from any thread."""
    _sweeper.add(ending)


def wait_for(endings: list[Ending], until: float) -> None:
    """Blocks until all are over, at the latest `until`, on the monotonic clock. For the end of the process."""
    while time.monotonic() < until and any(not ending.is_over for ending in endings):
        time.sleep(TICK)


def _forget() -> None:
    """In a forked child there is no sweeper, and the trees are the parent's."""
    global _sweeper
    _sweeper = _Sweeper()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget)
