"""A thread that looks at stops under way: a coroutine that never awaits cannot be stopped, but it can be named.

1. It sleeps unless a stop is under way. 2. A home loop that has not answered for a second is named, with the file and
line where its thread is. 3. One that does not answer within the run's grace has its run ended from here, not
confirmed, its sockets shut down.
"""

from __future__ import annotations

import logging
import os
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING, Any

from halter.core import stopping
from halter.core.threads import spawn

if TYPE_CHECKING:
    from halter.core.execution import Execution

NAMED_AFTER = 1.0
STEP_BACK = 0.02  # seconds: the stop that woke this thread is under way, and must not wait for the interpreter
_logger = logging.getLogger("halter")


@dataclass(slots=True)
class _Watched:
    execution: Execution
    since: float
    pinged_at: float = 0.0
    answered: bool = True
    named: bool = False

    def answer(self) -> None:
        self.answered = True

    def ping(self, now: float) -> None:
        self.pinged_at, self.answered = now, False
        home = self.execution.home
        if home is not None and not home.wake(self.answer):
            stopping.lose(self.execution)


class _Watchdog:
    def __init__(self) -> None:
        self._queue: SimpleQueue[Execution] = SimpleQueue()
        self._started: dict[str, Any] = {}

    def start(self) -> None:
        me = object()
        if self._started.setdefault("by", me) is me:
            spawn("watchdog", self._work)

    def watch(self, execution: Execution) -> None:
        self._queue.put(execution)

    def _work(self) -> None:
        watched: list[_Watched] = []
        while True:
            watched.extend(
                _Watched(execution, time.monotonic()) for execution in self._asked(0.25 if watched else None)
            )
            watched = [entry for entry in watched if entry.execution.result is None]
            for entry in watched:
                self._look(entry)
            entry = None  # keep nothing alive while asleep

    def _asked(self, timeout: float | None) -> Iterator[Execution]:
        """Those whose stop was asked for meanwhile; waits for the first, seconds at most."""
        try:
            yield self._queue.get(timeout=timeout)
            time.sleep(STEP_BACK)
            while True:
                yield self._queue.get_nowait()
        except Empty:
            return

    def _look(self, entry: _Watched) -> None:
        now = time.monotonic()
        age = now - entry.since
        if now - max(entry.since, entry.pinged_at) < NAMED_AFTER / 2:
            return  # however often it is looked at, a loop has this long to answer
        if entry.answered:
            entry.ping(now)
            return
        if not entry.named:
            entry.named = True
            _logger.warning("run %s cannot stop: its loop is held up %s", entry.execution.id, _place(entry.execution))
        if age > entry.execution.options.grace:
            stopping.lose(entry.execution)


def _place(execution: Execution) -> str:
    """Where the home loop's thread is: the innermost frame's function, file and line."""
    home = execution.home
    frame = sys._current_frames().get(home.thread_id) if home else None
    if frame is None:
        return "at an unknown place"
    return f"in {frame.f_code.co_name}, {frame.f_code.co_filename}:{frame.f_lineno}"


_watchdog = _Watchdog()


def start() -> None:
    """Starts the thread, once; where a run starts, for a signal handler must not."""
    _watchdog.start()


def watch(execution: Execution) -> None:
    """Has this stop looked at. Lock-free."""
    _watchdog.watch(execution)


def _forget() -> None:
    global _watchdog
    _watchdog = _Watchdog()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget)
