"""A thread that looks at stops under way: a coroutine that never awaits cannot be stopped, but it can be named.

1. It looks by itself, four times a second while runs are live, and sleeps otherwise. Nothing wakes it for a stop: a
thread that a stop wakes takes the interpreter from the loop in the middle of it, which costs the stop a millisecond.
2. A home loop that has not answered for a second is named, once each time it is held up, with the file and line where
its thread is. 3. A stopped run whose loop does not answer within the run's grace is ended from here, not confirmed, its
sockets shut down.
"""

from __future__ import annotations

import logging
import os
import sys
import time
from collections import defaultdict
from collections.abc import Mapping
from typing import TYPE_CHECKING

from halter.core import stopping
from halter.core.lockfree import ThreadWaker, snapshot
from halter.core.threads import spawn

if TYPE_CHECKING:
    from halter.core.execution import Execution
    from halter.core.home import Home

NAMED_AFTER = 1.0
PERIOD = 0.25  # seconds between two looks
LOOKS_BEFORE_SLEEP = 8  # without a live run; to be woken costs the next run's start more than these looks cost
_logger = logging.getLogger("halter")


class _Loop:
    """One home loop on which stops are under way. `cut_at`: when each run that has to end now was told so."""

    def __init__(self, home: Home, now: float) -> None:
        self._home = home
        self._pinged_at = now
        self._answered_at = now
        self._answered = True
        self._named = False
        self._cut_at: dict[Execution, float] = {}

    def look(self, stopped: list[Execution], now: float) -> None:
        cut = [execution for execution in stopped if execution.is_cut]
        self._cut_at = {execution: self._cut_at.get(execution) or _cut_at(execution, now) for execution in cut}
        if now - self._pinged_at < NAMED_AFTER / 2:
            return  # however often it is looked at, a loop has this long to answer
        if self._answered:
            self._ping(stopped, now)
            return
        if not self._named:
            self._named = True
            self._name(stopped)
        for execution in stopped:
            # A stop that lets the turn end takes its time: only the loop's silence counts.
            if now - self._cut_at.get(execution, self._answered_at) > execution.options.grace:
                stopping.lose(execution)

    def _ping(self, stopped: list[Execution], now: float) -> None:
        self._pinged_at, self._answered = now, False
        if not self._home.wake(self._answer):
            for execution in stopped:
                stopping.lose(execution)

    def _answer(self) -> None:
        self._answered, self._answered_at, self._named = True, self._pinged_at, False

    def _name(self, stopped: list[Execution]) -> None:
        more = f" and {len(stopped) - 1} more" if len(stopped) > 1 else ""
        _logger.warning("run %s%s cannot stop: its loop is held up %s", stopped[0].id, more, _place(self._home))


def _cut_at(execution: Execution, now: float) -> float:
    """The instant of its first request, unless that let the turn end: then it is not known when a stronger one came."""
    instant = execution.claims.get("instant")
    return instant if isinstance(instant, float) and execution.requests[0].mode.cuts else now


def _place(home: Home) -> str:
    """Where the loop's thread is: the innermost frame's function, file and line."""
    frame = sys._current_frames().get(home.thread_id)
    if frame is None:
        return "at an unknown place"
    return f"in {frame.f_code.co_name}, {frame.f_code.co_filename}:{frame.f_lineno}"


class _Watchdog:
    def __init__(self) -> None:
        self._live: Mapping[str, Execution] = {}
        self._loops: dict[Home, _Loop] = {}
        self._bell = ThreadWaker()
        self._thread: dict[str, object] = {}
        self._is_awake = False

    def rouse(self, live: Mapping[str, Execution]) -> None:
        if self._is_awake:
            return
        self._live = live
        me = object()
        try:
            if self._thread.setdefault("by", me) is me:
                spawn("watchdog", self._work)
            else:
                self._bell.wake(threadsafe=True)
        except BaseException as error:  # no more threads, or Ctrl-C: the next run tries again
            self._thread.clear()
            if not isinstance(error, RuntimeError):
                raise
            _logger.warning("no thread could be started to watch stops: %s", error)

    def _work(self) -> None:
        self._is_awake = True
        quiet = 0
        while True:
            time.sleep(PERIOD)
            self._look(time.monotonic())
            quiet = 0 if self._live else quiet + 1
            if quiet >= LOOKS_BEFORE_SLEEP:
                self._sleep()
                quiet = 0

    def _sleep(self) -> None:
        self._is_awake = False
        if not self._live:  # a run enters the index first and rouses afterwards: it is seen here or heard
            self._bell.wait()
        self._is_awake = True

    def _look(self, now: float) -> None:
        stopped: defaultdict[Home, list[Execution]] = defaultdict(list)
        for execution in snapshot(self._live):
            if execution.is_over():  # its loop was closed: whoever waits in another thread would never hear of it
                continue
            if execution.requests and execution.given_to is not None:
                stopped[execution.given_to].append(execution)
        self._loops = {home: self._loops.get(home) or _Loop(home, now) for home in stopped}
        for home, loop in self._loops.items():
            loop.look(stopped[home], now)


_watchdog = _Watchdog()


def rouse(live: Mapping[str, Execution]) -> None:
    """Has the thread look at the stops among these runs, the process's live ones, until there are none.

    Called where a run starts, after it has entered `live`; not for signal handlers.
    """
    _watchdog.rouse(live)


def _forget() -> None:
    global _watchdog
    _watchdog = _Watchdog()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget)
