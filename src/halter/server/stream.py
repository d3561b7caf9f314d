"""`EventStream`: a run's events as an HTTP response.

1. A client that left is noticed at once, also while the stream is silent: one task writes, one listens. 2. Events that
are there together leave in one write. 3. A reader that does not read waits in its own socket and delays nobody.
"""

from __future__ import annotations

import asyncio
import logging
from typing import Any, NamedTuple
from weakref import WeakValueDictionary

from starlette.background import BackgroundTask
from starlette.requests import HTTPConnection
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from halter.core.run import Run
from halter.core.settings import seconds
from halter.errors import ConfigurationError
from halter.server.frames import PING, StreamFormat, stream_format
from halter.server.memory.feed import LocalFeed
from halter.server.port import EventFeed, Opening
from halter.server.presence import OnDisconnect, Presence, connection_to

PING_EVERY = 15.0  # seconds of silence
ANSWERED_WITHIN = 3_600.0  # seconds that a run waits for the client that is to bring an answer
HEADERS = {
    "Cache-Control": "no-cache, no-transform",
    "X-Accel-Buffering": "no",
    "Connection": "keep-alive",
    "X-Content-Type-Options": "nosniff",
}
_logger = logging.getLogger("halter.server")


class FeedStream(Response):
    """Any feed as a response.

    Args:
        feed: the reader; it is closed with the response.
        presence: told that this connection uses the run; `None` for one that does not count.
        format: how events are shown.
        run_id: sent as `Halter-Run-Id`.
        cursor: the last event that the client has; `None`: it has none.
    """

    def __init__(
        self,
        feed: EventFeed,
        presence: Presence | None,
        format: StreamFormat,
        *,
        run_id: str,
        cursor: Cursor | None,
        status_code: int = 200,
        headers: dict[str, str] | None = None,
    ) -> None:
        # Not `super().__init__`: it renders a body.
        self.status_code = status_code
        self.background: BackgroundTask | None = None
        self.media_type = format.media_type
        self.body = b""
        self.init_headers({**HEADERS, **format.headers, "Halter-Run-Id": run_id, **(headers or {})})
        del self.headers["content-length"]
        self._feed = feed
        self._presence = presence
        self._format = format
        self._cursor = cursor if format.has_cursors else Cursor(0)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        with connection_to(self._presence) as connection:
            was_answered = await self._run(receive, send)
            if self._format.is_paused:
                connection.keep(ANSWERED_WITHIN)
            elif was_answered:
                connection.keep()
        if self.background is not None:
            await self.background()

    async def _run(self, receive: Receive, send: Send) -> bool:
        """True if all was sent; False if the client has left."""
        writer = asyncio.ensure_future(self._write(send))
        listener = asyncio.ensure_future(client_left(receive))
        try:
            await asyncio.wait((writer, listener), return_when=asyncio.FIRST_COMPLETED)
        finally:
            both = (writer, listener)
            for task in both:
                task.cancel()
            self._feed.close()
            await asyncio.wait(both)
        error = None if writer.cancelled() else writer.exception()
        if error is not None and not isinstance(error, OSError):
            raise error
        return not writer.cancelled() and error is None

    async def _write(self, send: Send) -> None:
        opening = await opened_at(self._feed, self._cursor)
        if opening.at_end:
            await send({"type": "http.response.start", "status": 204, "headers": self.raw_headers})
            await send({"type": "http.response.body", "body": b"", "more_body": False})
            return
        await send({"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers})
        body = _Body(send)
        try:
            await body.write(self._format.snapshot(opening.snapshot, gap=opening.gap))
            while found := await self._feed.next_batch():
                await body.write(self._format.batch(found))
                if self._format.is_paused:
                    break
        finally:
            body.close()
        await send({"type": "http.response.body", "body": self._format.end(), "more_body": False})


class _Body:
    """Writes pieces of the body, and a ping where there was none for a while."""

    def __init__(self, send: Send) -> None:
        self._send = send
        self._loop = asyncio.get_running_loop()
        self._writing = 0
        self._last = self._loop.time()
        self._ping: asyncio.Task[None] | None = None
        self._timer = self._loop.call_later(PING_EVERY, self._look)

    async def write(self, data: bytes) -> None:
        if not data:
            return  # all that the batch told is dropped by the format
        self._writing += 1
        try:
            await self._send({"type": "http.response.body", "body": data, "more_body": True})
        finally:
            self._writing -= 1
        self._last = self._loop.time()

    def _look(self) -> None:
        silent_for = self._loop.time() - self._last
        if silent_for >= PING_EVERY and not self._writing:
            self._ping = asyncio.ensure_future(self.write(PING))
            silent_for = 0.0
        self._timer = self._loop.call_later(max(1.0, PING_EVERY - silent_for), self._look)

    def close(self) -> None:
        self._timer.cancel()
        if self._ping is not None:
            self._ping.cancel()


async def client_left(receive: Receive) -> None:
    """Returns when the client has closed its connection; what it sends until then is read and ignored."""
    is_whole = False
    while (message := await receive())["type"] != "http.disconnect":
        if is_whole:  # a server never sends a second end of the body: asked again, this would answer for ever
            _logger.warning("a middleware replays the request's body: a client that leaves is not noticed")
            await asyncio.Event().wait()
        is_whole = not message.get("more_body", False)


class EventStream(FeedStream):
    """A run as a stream of server-sent events, for a route of your own: `return EventStream(run, request)`.

    The run starts, if it has not. Each connection begins with a snapshot; a client that comes back with
    `Last-Event-ID` (or `?after=`) continues where it was; a finished run replays and ends; behind its end the answer
    is 204, so that an `EventSource` stops asking.

    Args:
        run: the run. Its handle may be dropped: the stream keeps the run.
        request: the request, for its cursor.
        on_disconnect: `cancel` stops the run when its last connection has gone; `detach` lets it run on. The run's
            first stream decides.
        linger: seconds that a client has to come back before the run is stopped.
        format: how events are shown: `halter`, or for other clients, `ai-sdk` or `ag-ui`. Those two have no cursors:
            each connection begins with the run's first event.

    Raises:
        ConfigurationError: if an argument cannot be.
    """

    def __init__(
        self,
        run: Run[Any],
        request: HTTPConnection | None = None,
        *,
        on_disconnect: OnDisconnect = "cancel",
        linger: float = 0.0,
        format: str = "halter",
    ) -> None:
        if on_disconnect not in ("cancel", "detach"):
            raise ConfigurationError(f"on_disconnect must be 'cancel' or 'detach', not {on_disconnect!r}")
        linger = seconds("linger", linger) or 0.0
        feed = LocalFeed(run, epoch=1)
        super().__init__(
            feed,
            _presence_of(run, on_disconnect, linger),
            stream_format(format, feed.epoch),
            run_id=run.id,
            cursor=cursor_of(request),
        )
        self._handle = run

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        self._handle.detach()  # from here on its connections decide, not the handle
        await super().__call__(scope, receive, send)


_presences: WeakValueDictionary[str, Presence] = WeakValueDictionary()


def _presence_of(run: Run[Any], on_disconnect: OnDisconnect, linger: float) -> Presence:
    found = _presences.get(run.id)
    if found is None or found.is_over:  # another run may have had this id, and a slow reader still reads that one
        found = _presences[run.id] = Presence(run, on_disconnect, linger)
    return found


class Cursor(NamedTuple):
    """What a client has: the event `seq` of the log with this epoch. `epoch` is `None` where it did not say."""

    seq: int
    epoch: str | None = None


def cursor_of(request: HTTPConnection | None) -> Cursor | None:
    """The client's cursor: from `Last-Event-ID: <epoch>.<seq>` or `?after=`; `None` for none, or what is not one."""
    if request is None:
        return None
    given = request.headers.get("last-event-id") or request.query_params.get("after") or ""
    epoch, dot, number = given.rpartition(".")
    if not (number.isascii() and number.isdigit()) or len(number) > 18:
        return None
    return Cursor(int(number), epoch if dot else None)


async def opened_at(feed: EventFeed, cursor: Cursor | None) -> Opening:
    """The feed, placed at a client's cursor; one of another epoch has lost all that followed it."""
    if cursor is None:
        return await feed.open(None)
    if cursor.epoch in (None, str(feed.epoch)):
        return await feed.open(cursor.seq)
    return (await feed.open(None))._replace(gap=(cursor.seq + 1, None))
