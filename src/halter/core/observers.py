"""Observers: they see every event of every run, and no run can notice them.

Each has a daemon thread of its own, fed in batches. 65,536 events behind, it loses deltas (counted in `lost`), never
anything else. One that raises is logged and goes on with the next event.
"""

from __future__ import annotations

import logging
import os
from collections import deque
from itertools import count
from queue import SimpleQueue

from halter.core import log
from halter.core.fold import is_delta
from halter.core.lockfree import snapshot
from halter.core.ports import Observer
from halter.core.threads import spawn
from halter.events import Event

BACKLOG = 65_536
_logger = logging.getLogger("halter")


class Observation:
    """A running observer; `close()` ends it after what it has been given so far. `lost`: dropped deltas."""

    def __init__(self, observer: Observer) -> None:
        self.lost = 0
        self._observer = observer
        self._events: deque[Event] = deque()
        self._bell: SimpleQueue[bool] = SimpleQueue()
        self._rung = False
        self._key = next(_keys)
        _observations[self._key] = self
        log.publish = _publish
        spawn("observer", self._work)

    def close(self) -> None:
        """Stops observing; may be called twice."""
        _observations.pop(self._key, None)
        if not _observations:
            log.publish = None
        self._bell.put(False)

    def __enter__(self) -> Observation:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def put(self, event: Event) -> None:
        if len(self._events) >= BACKLOG and is_delta(event):
            self.lost += 1
            return
        self._events.append(event)
        if not self._rung:
            self._rung = True
            self._bell.put(True)

    def _work(self) -> None:
        going_on = True
        while going_on:
            going_on = self._bell.get()
            self._rung = False
            while self._events:
                self._show(self._events.popleft())

    def _show(self, event: Event) -> None:
        try:
            self._observer(event)
        except BaseException:  # also SystemExit: it would end the thread, and the events would pile up
            _logger.exception("an observer raised; no run is affected")


def _publish(event: Event) -> None:
    for observation in snapshot(_observations):
        observation.put(event)


def _forget() -> None:
    """A forked child has none of the threads: its observers are registered anew."""
    _observations.clear()
    log.publish = None


_observations: dict[int, Observation] = {}
_keys = count()
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget)
