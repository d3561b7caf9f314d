"""SIGTERM: no new runs, live runs get the grace, then they are stopped, and only then does the server exit.

The first signal begins this; the second one ends the grace at once; the third ends the process.
"""

from __future__ import annotations

import asyncio
import logging
import signal
import threading
from collections.abc import Callable
from types import FrameType
from typing import Any

from halter.outcome import Cancellation, CancelReason
from halter.server.server import Server

SIGNALS = (signal.SIGTERM, signal.SIGINT)
_logger = logging.getLogger("halter.server")


class Draining:
    """Ends a server's runs before its process ends.

    Args:
        server: whose runs.
        grace: seconds that live runs have to end by themselves.
    """

    def __init__(self, server: Server, grace: float) -> None:
        self._server = server
        self._grace = grace
        self._before: dict[int, Any] = {}
        self._loop: asyncio.AbstractEventLoop | None = None
        self._signals = 0
        self._task: asyncio.Task[None] | None = None
        self._hurry = asyncio.Event()

    def watch_signals(self) -> None:
        """From now on the process's signals to end come here first. Only in the main thread they do."""
        self._signals, self._task, self._hurry = 0, None, asyncio.Event()
        if threading.current_thread() is not threading.main_thread():
            return
        self._loop = asyncio.get_running_loop()
        for number in SIGNALS:
            before = signal.getsignal(number)
            if callable(before):  # a server that handles it itself; else the process ends as it would without us
                self._before[number] = before
                signal.signal(number, self._on_signal)

    def unwatch_signals(self) -> None:
        """Puts the handlers back that were there before."""
        for number, before in self._before.items():
            if signal.getsignal(number) == self._on_signal:
                signal.signal(number, before)
        self._before.clear()

    def _on_signal(self, number: int, frame: FrameType | None) -> None:
        assert self._loop is not None
        self._signals += 1
        servers, before = self._in_this_process(number)
        if self._signals >= 3:
            before(number, frame)
            for each in servers:
                each._server.on_forced()
        else:
            self._loop.call_soon_threadsafe(self._begin, servers, lambda: before(number, None))

    def _in_this_process(self, number: int) -> tuple[list[Draining], Callable[[int, FrameType | None], object]]:
        """All that wait for this signal, if several servers are mounted, and the handler that was there before them."""
        found: list[Draining] = [self]
        before = self._before[number]
        while isinstance(inner := getattr(before, "__self__", None), Draining):
            found.append(inner)
            before = inner._before[number]
        return found, before

    def _begin(self, servers: list[Draining], exit: Callable[[], object]) -> None:
        if self._task is None:
            self._task = asyncio.ensure_future(_drain_and(servers, exit))
            return
        for each in servers:
            each._hurry.set()

    async def drain(self) -> None:
        """Takes no new runs, waits for the live ones, stops what is left after the grace, and waits for its end."""
        server = self._server
        server.is_draining = True
        if server.store.live:
            _logger.info(
                "draining: %d live %s %g s to end; a second signal stops them now, a third one ends the process",
                server.store.live,
                "run has" if server.store.live == 1 else "runs have",
                self._grace,
            )
        until = asyncio.get_running_loop().time() + self._grace
        while server.store.live and not self._hurry.is_set():
            left = until - asyncio.get_running_loop().time()
            if left <= 0:
                break
            await server.store.until_quiet(min(left, 0.5))
        await self.stop_all()

    async def stop_all(self) -> None:
        """Stops the live runs with the reason `shutdown`, and waits until they are sealed."""
        store = self._server.store
        stop = Cancellation(reason=CancelReason.SHUTDOWN, message="the server shuts down", actor="server")
        await store.cancel_all(stop)
        await store.until_quiet(None)
        self._server.on_drained()


async def _drain_and(servers: list[Draining], exit: Callable[[], object]) -> None:
    try:
        await asyncio.gather(*(each.drain() for each in servers))
    finally:
        exit()
