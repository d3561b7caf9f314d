"""Following a run: one stream of events, which is resumed by itself until the run is over.

1. The start is idempotent: it is sent again with the same id if its answer was lost. 2. After the terminal event, and
after `close`, nothing is sent. 3. A server that cannot be reached for `patience` seconds ends it.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping
from typing import Any

import aiohttp
import msgspec

from halter import events
from halter.client.state import RemoteState
from halter.client.transport import Transport
from halter.core.sse import FrameSplitter
from halter.errors import ConnectionFailed, HalterError, RunLost, ServerRefused

FIRST_DELAY = 0.1  # seconds before the first attempt to resume; twice as long before each further one
LONGEST_DELAY = 5.0
TRY_AGAIN = frozenset((408, 425, 429, 500, 502, 503, 504))


class Following:
    """Follows one run. Runs on the background loop.

    Args:
        transport: to the server.
        state: what it tells.
        start: the body of the start; `None` for a run that was started elsewhere.
        patience: seconds without any connection until it gives up.
    """

    def __init__(
        self, transport: Transport, state: RemoteState, start: Mapping[str, Any] | None, *, patience: float
    ) -> None:
        self._transport = transport
        self._state = state
        self._start = start
        self._patience = patience
        self._heard_at = time.monotonic()

    async def run(self) -> None:
        """Until the run is over, or nothing more can be known of it."""
        delay = FIRST_DELAY
        while not self._state.is_over:
            before = self._heard_at
            try:
                await self._connect_once()
            except asyncio.CancelledError:
                raise
            except Exception as error:
                if not self._may_try_again(error):
                    self._state.fail(_explained(error, self._state.run_id))
                    return
                delay = FIRST_DELAY if self._heard_at > before else min(delay * 2, LONGEST_DELAY)
                await asyncio.sleep(_pause(error, delay))

    def _may_try_again(self, error: Exception) -> bool:
        if time.monotonic() - self._heard_at > self._patience:
            return False
        if isinstance(error, ServerRefused):
            # A start that is refused for good was the caller's mistake, or the server is full: say so.
            return self._state.epoch is not None and error.status in TRY_AGAIN
        return isinstance(error, ConnectionFailed)

    async def _connect_once(self) -> None:
        state = self._state
        if state.epoch is None and self._start is not None:
            async with self._transport.open("POST", "/v1/runs", body=self._start) as response:
                await self._read(response)
            return
        headers = {"Last-Event-ID": state.cursor or "0"}
        async with self._transport.open("GET", f"/v1/runs/{state.run_id}/events", headers=headers) as response:
            if response.status == 204:
                raise RunLost(f"run {state.run_id} is over, and its end was not seen")
            await self._read(response)

    async def _read(self, response: aiohttp.ClientResponse) -> None:
        splitter = FrameSplitter()
        gap: tuple[int, int | None] | None = None
        async for chunk in response.content.iter_any():
            self._heard_at = time.monotonic()
            found: list[events.AnyEvent] = []
            for data in splitter.feed(chunk):
                event = _decoded(data)
                if isinstance(event, dict):
                    if event.get("type") == "snapshot":
                        self._state.place(event, gap)
                    elif "from" in event:
                        gap = int(event["from"]), event.get("to")
                elif event is not None:
                    found.append(event)
            self._state.take(found)
            if self._state.is_over:
                return
        raise ConnectionFailed("the event stream ended before the run did")


def _decoded(data: bytes) -> events.AnyEvent | dict[str, Any] | None:
    """An event; a snapshot or a gap as it is; `None` for a type that this version does not know."""
    if data.startswith((b'{"type":"snapshot"', b'{"type":"gap"')):
        return msgspec.json.decode(data)
    try:
        return events.decode(data)
    except msgspec.ValidationError:
        return None


def _pause(error: Exception, delay: float) -> float:
    asked = error.retry_after if isinstance(error, ServerRefused) else None
    return min(asked, LONGEST_DELAY) if asked is not None else delay


def _explained(error: Exception, run_id: str) -> BaseException:
    if isinstance(error, ServerRefused) and error.status == 404:
        return RunLost(f"the server does not know run {run_id}: it was started anew, or has forgotten it")
    if isinstance(error, HalterError):
        return error
    return RunLost(f"run {run_id} can be followed no longer: {type(error).__name__}: {error}")
