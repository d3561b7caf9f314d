"""`halter serve`: an app on a socket, by uvicorn."""

from __future__ import annotations

import logging
import os
import signal
import socket
import sys
import threading
from collections.abc import Callable
from types import FrameType

import msgspec
import uvicorn
from fastapi import FastAPI

from halter.errors import ConfigurationError
from halter.server.http_protocol import KEEP_ALIVE, PatientProtocol, listen_on
from halter.server.websocket_protocol import GuardedSockets

FORCED = 0.5  # seconds after the third signal, in which what is sealed is still stored
LAST_RESORT = 15.0  # seconds after the grace: then a task that refuses to end does not keep the process
_logger = logging.getLogger("halter.server")


class Address(msgspec.Struct, frozen=True, kw_only=True):
    """Where to listen. `port` 0: any free one."""

    host: str = "127.0.0.1"
    port: int = 8000


def serve(app: FastAPI, address: Address, *, grace: float, on_ready: Callable[[str], object]) -> int:
    """Serves the app until the process is told to end.

    Args:
        app: what `create_app` gave.
        address: where to listen.
        grace: seconds that live runs have after SIGTERM; the app's own.
        on_ready: called with the server's URL when it accepts requests.

    Returns:
        The exit code: 0 after SIGTERM or SIGINT.

    Raises:
        ConfigurationError: if the address cannot be listened on.
    """
    listening = _listen(address)
    url = _url(address.host, listening.getsockname()[1])
    config = uvicorn.Config(
        app,
        http=PatientProtocol,
        ws=GuardedSockets,
        log_config=None,
        access_log=False,
        server_header=False,
        timeout_keep_alive=KEEP_ALIVE,
        ws_max_size=1 << 20,
    )
    server = _Server(config, ready=lambda: on_ready(url))
    app.state.halter.on_drained = lambda: _end_in_the_end(LAST_RESORT)
    app.state.halter.on_forced = lambda: _end_in_the_end(FORCED)
    _hang_up_as_terminate()
    server.run(sockets=[listening])
    return 0


def _hang_up_as_terminate() -> None:
    """A terminal that closes ends the server as SIGTERM does, instead of killing it."""
    if hasattr(signal, "SIGHUP") and signal.getsignal(signal.SIGHUP) is signal.SIG_DFL:
        signal.signal(signal.SIGHUP, _terminate)


def _terminate(_number: int, _frame: FrameType | None) -> None:
    signal.raise_signal(signal.SIGTERM)


class _Server(uvicorn.Server):
    """uvicorn's, which says when it is ready, and ends with exit code 0 after a signal."""

    def __init__(self, config: uvicorn.Config, ready: Callable[[], object]) -> None:
        super().__init__(config)
        self._ready = ready

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        self.force_exit = self.should_exit
        self.should_exit = True

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        if self.started:
            self._ready()


def _listen(address: Address) -> socket.socket:
    try:
        return listen_on(address.host, address.port)
    except OSError as error:
        raise ConfigurationError(
            f"cannot listen on {address.host} port {address.port}: {error.strerror or error}; --port 0 takes a free one"
        ) from error


def _url(host: str, port: int) -> str:
    shown = f"[{host}]" if ":" in host else host
    return f"http://{shown}:{port}"


def _end_in_the_end(seconds: float) -> None:
    """Ends the process by force after this time: a coroutine that never ends would keep it for ever."""

    def end() -> None:
        _logger.error("the server did not end in time after its runs had; the process is ended")
        sys.stderr.flush()
        os._exit(1)

    timer = threading.Timer(seconds, end)
    timer.daemon = True
    timer.start()
