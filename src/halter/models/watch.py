"""How long a request may take: a limit for each phase, one timestamp, and one timer that looks at it."""

from __future__ import annotations

import asyncio
import math

import msgspec

from halter.errors import ConfigurationError, StreamTimeout


class Timeouts(msgspec.Struct, frozen=True, kw_only=True):
    """Seconds for each phase of one request; `None` switches one off.

    `pool`: for a free connection. `connect`: look-up, TCP and TLS. `first_token`: from the connection to the first
    byte of the answer. `idle`: between two reads. `total`: for all of it. Raises `ConfigurationError` for what is no
    time.
    """

    pool: float | None = 60.0
    connect: float | None = 10.0
    first_token: float | None = 300.0
    idle: float | None = 60.0
    total: float | None = None

    def __post_init__(self) -> None:
        for name in self.__struct_fields__:
            seconds = getattr(self, name)
            is_number = isinstance(seconds, int | float) and not isinstance(seconds, bool)
            if seconds is not None and not (is_number and seconds > 0):
                raise ConfigurationError(f"the time-out {name!r} must be a number of seconds above 0, or None")


class Watch:
    """One attempt's clock: a timestamp, and one timer that looks at it."""

    def __init__(self, timeouts: Timeouts, label: str) -> None:
        self.expired: str | None = None
        self.is_paused = False
        self._timeouts = timeouts
        self._label = label
        self._loop = asyncio.get_running_loop()
        self._time = self._loop.time
        self._phase = "pool"
        self._limit = math.inf
        self._since = self._started = self._loop.time()
        self._scope: asyncio.Timeout | None = None
        self._timer: asyncio.TimerHandle | None = None

    def start(self, scope: asyncio.Timeout) -> None:
        self._scope = scope
        self.phase("pool", self._timeouts.pool)

    def stop(self) -> None:
        self._scope = None
        if self._timer is not None:
            self._timer.cancel()

    # The phases, as the byte source reports them.

    def connecting(self) -> None:
        self.phase("connect", self._timeouts.connect)

    def sending(self) -> None:
        self.phase("first_token", self._timeouts.first_token)

    def progress(self) -> None:
        """Bytes have come."""
        if self._phase == "idle":
            self._since = self._time()
        elif self._phase != "tail":  # behind its terminal frame a server may send comments for ever
            self.phase("idle", self._timeouts.idle)

    def resume(self) -> None:
        """Our own readers had us wait: the idle clock has stood still."""
        self.is_paused = False
        self.progress()

    def phase(self, name: str, limit: float | None) -> None:
        if self.expired is not None or (name == self._phase and self._timer is not None):
            return
        self._phase = name
        self._limit = math.inf if limit is None else limit
        self._since = self._loop.time()
        self._arm()

    def _due(self) -> float:
        total = self._timeouts.total
        end = math.inf if total is None else self._started + total
        since = self._loop.time() if self.is_paused else self._since
        return min(since + self._limit, end)

    def _arm(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        due = self._due()
        self._timer = None if due == math.inf else self._loop.call_at(due, self._look)

    def _look(self) -> None:
        if self._scope is None or self.expired is not None:
            return
        now = self._loop.time()
        if self._due() > now:
            self._arm()
            return
        total = self._timeouts.total
        self.expired = "total" if total is not None and now >= self._started + total else self._phase
        self._scope.reschedule(now)

    def error(self) -> StreamTimeout:
        waited = self._loop.time() - (self._started if self.expired == "total" else self._since)
        phase = self.expired or self._phase
        return StreamTimeout(f"{self._label}: nothing for {waited:.1f} s ({phase} time-out)", phase=phase)
