"""Who is connected to a run, and when a run is stopped because nobody is."""

from __future__ import annotations

import asyncio
from collections.abc import Generator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any, Literal, TypeAlias

from halter.core.run import Run
from halter.outcome import CancelReason

OnDisconnect: TypeAlias = Literal["cancel", "detach"]


class Connection:
    """One connection to a run."""

    def __init__(self) -> None:
        self.is_answered = False
        self.expected_within: float | None = None

    def keep(self, expected_within: float | None = None) -> None:
        """The connection ends because it was answered, not because its client left.

        Args:
            expected_within: seconds in which a client has to come back all the same; `None`: nobody has to.
        """
        self.is_answered = True
        self.expected_within = expected_within


class Presence:
    """Counts the connections that read a run or wait for it.

    Args:
        run: the run.
        on_disconnect: `cancel` stops the run when the last connection has gone and none came back within `linger`;
            `detach` lets it run on.
        linger: seconds.
        actor: who is named as the one who left.

    A run that no connection has ever used is never stopped by this. While a run waits for the answer of a client that
    is expected back, others may look at it and go: that client keeps its time. Event loop of the server only.
    """

    def __init__(self, run: Run[Any], on_disconnect: OnDisconnect, linger: float, actor: str | None = None) -> None:
        self.on_disconnect = on_disconnect
        self.linger = linger
        self._run = run
        self._actor = actor
        self._connections = 0
        self._timer: asyncio.TimerHandle | None = None
        self._expected_until: float | None = None  # by the loop's clock

    @contextmanager
    def connected(self) -> Generator[Connection]:
        """Within this block a connection uses the run; leaving it means that the client left, unless it says `keep`."""
        connection = Connection()
        self._connections += 1
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        try:
            yield connection
        finally:
            self._connections -= 1
            if connection.expected_within is not None:
                self._expected_until = asyncio.get_running_loop().time() + connection.expected_within
            if not (self._connections or self._run.is_done):
                self._left(connection)

    @property
    def is_over(self) -> bool:
        """Whether the run has ended, so that nobody's leaving stops it."""
        return self._run.is_done

    @property
    def connections(self) -> int:
        """How many connections use the run now."""
        return self._connections

    def _left(self, last: Connection) -> None:
        patience = None if last.is_answered else self.linger
        if self._expected_until is not None and self._run.is_asking:
            patience = max(patience or 0.0, self._expected_until - asyncio.get_running_loop().time())
        if self.on_disconnect == "detach" or patience is None:
            return
        if patience <= 0:
            self._stop()
        else:
            self._timer = asyncio.get_running_loop().call_later(patience, self._stop)

    def _stop(self) -> None:
        self._timer = None
        if self._connections == 0:
            self._run.cancel("its client left", reason=CancelReason.CLIENT_DISCONNECT, actor=self._actor)

    def __repr__(self) -> str:
        return f"<Presence of run {self._run.id}: {self._connections} connected, {self.on_disconnect}>"


def connection_to(presence: Presence | None) -> AbstractContextManager[Connection]:
    """A connection to the run of `presence`; without one, to a run that nobody's leaving stops."""
    return nullcontext(Connection()) if presence is None else presence.connected()
