"""uvicorn's HTTP protocol, with patience for clients that never finish their request (slow loris)."""

from __future__ import annotations

import asyncio
from typing import Any

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

REQUEST_PATIENCE = 30.0  # seconds until the headers of a request must have come


class PatientProtocol(HttpToolsProtocol):
    """Closes a connection whose request is not complete in time; one that is idle between requests is uvicorn's."""

    _headers_timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        self._expect_headers()

    def connection_lost(self, exc: Exception | None) -> None:
        self._disarm()
        super().connection_lost(exc)

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self._expect_headers()

    def on_headers_complete(self) -> None:
        self._disarm()
        super().on_headers_complete()

    def _expect_headers(self) -> None:
        if self._headers_timer is None:
            self._headers_timer = self.loop.call_later(REQUEST_PATIENCE, self.transport.abort)

    def _disarm(self) -> None:
        if self._headers_timer is not None:
            self._headers_timer.cancel()
            self._headers_timer = None
