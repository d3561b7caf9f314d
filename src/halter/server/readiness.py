"""Whether new runs can be taken: the server is up, and its sessions answer."""

from __future__ import annotations

import asyncio
import logging
import time

from halter.errors import SessionsUnavailable
from halter.server.problems import Problem
from halter.sessions.sessions import Sessions

KEPT_FOR = 1.0  # seconds for which an answer of the database holds
PATIENCE = 3.0  # seconds for its answer
NO_RUN = "readiness"  # an id that is looked up, and that no run has
_logger = logging.getLogger("halter.server")


class Readiness:
    """Knows whether the server is up.

    Args:
        sessions: the conversations; what keeps them is asked for an answer.
    """

    def __init__(self, sessions: Sessions) -> None:
        self._sessions = sessions
        self._looking = asyncio.Lock()
        self._looked_at = float("-inf")
        self._error: str | None = None
        self._is_up = False

    async def begin(self) -> None:
        """The server is up. The first look at the database also ends what a lost process has left there."""
        await self._look()
        self._is_up = True

    async def check(self) -> None:
        """Raises `Problem` 503 if new runs cannot be taken now. At most one look at the database a second."""
        if not self._is_up:
            raise Problem(503, "the server is starting", code="starting", retry_after=1)
        async with self._looking:
            if time.monotonic() - self._looked_at > KEPT_FOR:
                await self._look()
        if self._error is not None:
            detail = "the place where sessions are kept does not answer; the server's log says why"
            raise Problem(503, detail, code="sessions_unavailable", retry_after=1)

    async def _look(self) -> None:
        error = await self._sessions_error()
        self._looked_at = time.monotonic()
        if error != self._error:
            _logger.log(logging.WARNING if error else logging.INFO, "%s", error or "the sessions answer again")
        self._error = error

    async def _sessions_error(self) -> str | None:
        if not self._sessions.is_durable:
            return None
        try:
            await asyncio.wait_for(self._sessions.run(NO_RUN), PATIENCE)
        except TimeoutError:
            return f"the sessions have not answered for {PATIENCE:.0f} s"
        except SessionsUnavailable as error:
            return str(error)
        return None
