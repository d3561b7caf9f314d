"""uvicorn's HTTP protocol and listening socket, with patience for slow and vanished clients, and no more than that."""

from __future__ import annotations

import asyncio
import socket
from typing import Any

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

REQUEST_PATIENCE = 30.0  # seconds until the headers of a request must have come
BODY_PATIENCE = 60.0  # seconds after that until its body must have come
KEEP_ALIVE = 65  # seconds of silence between requests; longer than the idle connections of the proxies in front
BACKLOG = 2_048
# A peer that has vanished without a word (no FIN, no RST) is given up after about this long, sending or silent.
SILENT_FOR = 15  # seconds of silence before the first probe
PROBE_EVERY = 5  # seconds
PROBES = 3
UNANSWERED = 30_000  # milliseconds that sent data may stay unacknowledged


class PatientProtocol(HttpToolsProtocol):
    """Closes a connection whose request is not complete in time; one that is silent between requests is uvicorn's."""

    _clock: asyncio.TimerHandle | None = None

    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        self._expect(REQUEST_PATIENCE)

    def connection_lost(self, exc: Exception | None) -> None:
        self._disarm()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        # Bytes between requests that begin none (empty lines) have ended uvicorn's time-out for silent connections.
        cycle: Any = self.cycle  # `None` before the first request
        is_idle = cycle is not None and cycle.response_complete and not self.pipeline
        if is_idle and self.timeout_keep_alive_task is None and not self.transport.is_closing():
            self._expect(REQUEST_PATIENCE)

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self._expect(REQUEST_PATIENCE)

    def on_headers_complete(self) -> None:
        self._disarm()
        super().on_headers_complete()
        self._expect(BODY_PATIENCE)

    def on_message_complete(self) -> None:
        self._disarm()
        super().on_message_complete()

    def handle_websocket_upgrade(self) -> None:
        self._disarm()
        super().handle_websocket_upgrade()

    def _expect(self, seconds: float) -> None:
        if self._clock is None:
            self._clock = self.loop.call_later(seconds, self.transport.abort)

    def _disarm(self) -> None:
        if self._clock is not None:
            self._clock.cancel()
            self._clock = None


def listen_on(host: str, port: int) -> socket.socket:
    """A listening socket whose connections notice that their peer has vanished, also while nothing is sent.

    Args:
        host: an address of this machine.
        port: 0: any free one.

    Raises:
        OSError: if it cannot be listened on.
    """
    listening = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET)
    try:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        for level, name, value in _OPTIONS:  # connections inherit them
            if hasattr(socket, name):
                listening.setsockopt(level, getattr(socket, name), value)
        listening.bind((host, port))
        listening.listen(BACKLOG)
    except BaseException:
        listening.close()
        raise
    return listening


_OPTIONS = (
    (socket.SOL_SOCKET, "SO_KEEPALIVE", 1),
    (socket.IPPROTO_TCP, "TCP_KEEPIDLE", SILENT_FOR),
    (socket.IPPROTO_TCP, "TCP_KEEPINTVL", PROBE_EVERY),
    (socket.IPPROTO_TCP, "TCP_KEEPCNT", PROBES),
    (socket.IPPROTO_TCP, "TCP_USER_TIMEOUT", UNANSWERED),
)
