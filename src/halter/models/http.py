"""The one HTTP path to providers: policy over the `ByteSource` seam.

1. Each phase has its own time-out; the clock is a timestamp and one timer, not a scope per read. 2. A retry happens
only while nothing was shown, and never after a stop: `raise_if_cancelled` stands before each request and first in
each `except` that goes on. 3. A body without its terminal frame is incomplete, never a success. 4. What is broken
after the terminal frame breaks nothing.
"""

from __future__ import annotations

import asyncio
import math
import random
import time
from collections.abc import Callable
from email.utils import parsedate_to_datetime
from typing import Protocol

import msgspec

from halter import events
from halter.core.context import RunContext
from halter.core.ids import new_id
from halter.core.ports import ByteSource, ByteStream, HttpRequest
from halter.core.reply import Reply
from halter.core.sse import FrameSplitter
from halter.errors import (
    AuthenticationFailed,
    ConnectionFailed,
    IncompleteStream,
    MalformedStream,
    ModelNotFound,
    ProviderError,
    RateLimited,
    RequestRejected,
    ServerFailed,
    StreamTimeout,
)
from halter.messages import Message

LARGEST_ERROR_BODY = 64 * 1024
LONGEST_RETRY_AFTER = 120.0  # seconds; a provider that asks for more is told to the caller instead
TAIL_PATIENCE = 2.0  # seconds for a body to end after its terminal frame


class Timeouts(msgspec.Struct, frozen=True, kw_only=True):
    """Seconds for each phase of one request; `None` switches one off.

    `pool`: for a free connection. `connect`: look-up, TCP and TLS. `first_token`: from the connection to the first
    byte of the answer. `idle`: between two reads. `total`: for all of it.
    """

    pool: float | None = 60.0
    connect: float | None = 10.0
    first_token: float | None = 300.0
    idle: float | None = 60.0
    total: float | None = None


class Decoder(Protocol):
    """One attempt's wire format: bytes in, deltas into its reply. `is_over`: its terminal frame has come."""

    is_over: bool

    def frame(self, data: bytes) -> None:
        """The data of one event. Raises `ProviderError` for an error frame, `MalformedStream` for no such format."""
        ...

    def whole(self, body: bytes) -> None:
        """A complete answer that was not streamed. Raises as `frame`."""
        ...


class Wire(Protocol):
    """What policy asks of an adapter."""

    @property
    def name(self) -> str:
        """The model, as events name it."""
        ...

    def begin(self, reply: Reply) -> Decoder: ...

    def describe_error(self, body: bytes) -> tuple[str, str | None]:
        """The message and the code in an error body of any shape."""
        ...


class Http:
    """Sends requests and reads answers, with time-outs and retries; immutable, shared by any number of runs.

    `max_retries`: how often a request is repeated while nothing was shown. `connections`: how many at once to one
    host, 0 for no limit. `source`: another way to the bytes than the pool of this loop.
    """

    def __init__(
        self,
        *,
        timeouts: Timeouts = Timeouts(),  # noqa: B008 - frozen
        max_retries: int = 2,
        connections: int = 0,
        source: ByteSource | None = None,
    ) -> None:
        self._timeouts = timeouts
        self._max_retries = max_retries
        self._source = source or _default_source(connections)

    async def ask(self, request: HttpRequest, ctx: RunContext, wire: Wire) -> Message:
        """One answer, streamed into `ctx`. Raises `ProviderError`; cancelled, it leaves no connection behind."""
        attempt = 0
        while True:
            ctx.token.raise_if_cancelled()
            attempt += 1
            reply = ctx.reply()
            ctx.write(
                events.ModelRequested,
                model=wire.name,
                attempt=attempt,
                request_id=new_id(),
                message_id=reply.message_id,
            )
            try:
                await self._attempt(request, ctx, wire, wire.begin(reply))
            except ProviderError as error:
                ctx.token.raise_if_cancelled()
                delay = self._delay(error, attempt)
                if reply.shown or delay is None:
                    raise
                reply.discard()
                ctx.write(events.ModelRetry, attempt=attempt, delay=delay, cause=events.failure_of(error))
                await asyncio.sleep(delay)
            else:
                return reply.finish()

    def _delay(self, error: ProviderError, attempt: int) -> float | None:
        """Seconds until the next attempt; `None` if there should be none."""
        if attempt > self._max_retries or not _may_retry(error):
            return None
        if error.retry_after is not None:
            return error.retry_after if error.retry_after <= LONGEST_RETRY_AFTER else None
        return min(8.0, 0.5 * 2 ** (attempt - 1)) * random.uniform(0.75, 1.0)

    # --- one attempt ----------------------------------------------------------------------------------------

    async def _attempt(self, request: HttpRequest, ctx: RunContext, wire: Wire, decoder: Decoder) -> None:
        watch = Watch(self._timeouts, request.label)
        try:
            async with asyncio.timeout(None) as scope:
                watch.start(scope)
                await self._exchange(request, ctx, wire, decoder, watch)
        except TimeoutError as error:
            if not watch.expired:
                raise
            if not decoder.is_over:
                raise watch.error() from error
        except ConnectionFailed:
            if not decoder.is_over:
                raise
        finally:
            watch.stop()
        if not decoder.is_over:
            raise IncompleteStream(f"{request.label}: the answer ended without its terminal frame")

    async def _exchange(
        self, request: HttpRequest, ctx: RunContext, wire: Wire, decoder: Decoder, watch: Watch
    ) -> None:
        async with self._source.open(request, ctx, watch) as stream:
            if stream.status >= 300:
                raise await _refusal(request, stream, wire)
            if "json" in stream.headers.get("content-type", ""):
                decoder.whole(await _whole(stream, watch))
            else:
                await _read_frames(stream, ctx, decoder, watch)


async def _read_frames(stream: ByteStream, ctx: RunContext, decoder: Decoder, watch: Watch) -> None:
    splitter = FrameSplitter()
    feed, frame = splitter.feed, decoder.frame

    def take(chunk: bytes) -> bool:
        watch.progress()
        for data in feed(chunk):
            frame(data)
        if decoder.is_over:
            watch.phase("tail", TAIL_PATIENCE)
        return ctx.is_too_far_ahead()

    while await stream.pump(take):
        watch.is_paused = True
        await ctx.drain()
        watch.resume()
    if not decoder.is_over:
        _decode_rest(splitter, decoder)


def _decode_rest(splitter: FrameSplitter, decoder: Decoder) -> None:
    """A last frame without its blank line may be whole, or cut off."""
    try:
        for data in splitter.close():
            decoder.frame(data)
    except MalformedStream as error:
        raise IncompleteStream("the answer was cut off within a frame") from error


async def _whole(stream: ByteStream, watch: Watch) -> bytes:
    pieces: list[bytes] = []
    async for chunk in stream:
        watch.progress()
        pieces.append(chunk)
    return b"".join(pieces)


# --- time ---------------------------------------------------------------------------------------------------


class Watch:
    """One attempt's clock: a timestamp, and one timer that looks at it."""

    def __init__(self, timeouts: Timeouts, label: str) -> None:
        self.expired: str | None = None
        self.is_paused = False
        self._timeouts = timeouts
        self._label = label
        self._loop = asyncio.get_running_loop()
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
        self._restart()
        if self._phase == "first_token":
            self.phase("idle", self._timeouts.idle)

    def resume(self) -> None:
        """Our own readers had us wait: the idle clock has stood still."""
        self.is_paused = False
        self._restart()

    def _restart(self) -> None:
        if self._phase != "tail":  # behind its terminal frame a server may send comments for ever
            self._since = self._loop.time()

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


# --- refusals -----------------------------------------------------------------------------------------------

# status → error; the rest of 4xx is RequestRejected, the rest of 5xx ServerFailed. The same for error frames.
_BY_STATUS: dict[int, type[ProviderError]] = {
    401: AuthenticationFailed,
    403: AuthenticationFailed,
    404: ModelNotFound,
    408: ServerFailed,
    409: ServerFailed,
    429: RateLimited,
}


def error_of(
    status: int,
    message: str,
    *,
    code: str | None = None,
    retry_after: float | None = None,
    request_id: str | None = None,
) -> ProviderError:
    """The error for an HTTP status, of an answer or of a frame inside one."""
    kind = _BY_STATUS.get(status, ServerFailed if status >= 500 else RequestRejected)
    return kind(message, status=status, code=code, retry_after=retry_after, request_id=request_id)


def _may_retry(error: ProviderError) -> bool:
    """Connection failures, 408, 409, 429, 5xx and overloaded frames; a time-out only while connecting."""
    if isinstance(error, StreamTimeout):
        return error.phase == "connect"
    if error.code == "insufficient_quota":
        return False  # OpenAI's 429 for an empty account: waiting does not fill it
    return error.retryable


async def _refusal(request: HttpRequest, stream: ByteStream, wire: Wire) -> ProviderError:
    body = b""
    try:
        async for chunk in stream:
            body += chunk
            if len(body) > LARGEST_ERROR_BODY:
                break
    except ConnectionFailed:
        pass  # the status says enough
    message, code = wire.describe_error(body)
    said = _redacted(message, request) or "no reason given"
    return error_of(
        stream.status,
        f"{request.label} answered {stream.status}: {said}",
        code=code,
        retry_after=retry_after(stream.headers.get),
        request_id=stream.headers.get("x-request-id"),
    )


def _redacted(message: str, request: HttpRequest) -> str:
    """Without the key, which some providers repeat."""
    for name, value in request.headers.items():
        if name.lower() in ("authorization", "api-key", "x-api-key", "x-goog-api-key"):
            secret = value.removeprefix("Bearer ").strip()
            if secret:
                message = message.replace(secret, "[key]")
    return message


def retry_after(header: Callable[[str], str | None]) -> float | None:
    """Seconds that the provider asks for (RFC 9110, 10.2.3: a number or a date; `retry-after-ms` is OpenAI's)."""
    milliseconds = header("retry-after-ms")
    if milliseconds is not None and (value := _number(milliseconds)) is not None:
        return value / 1e3
    text = header("retry-after")
    if text is None:
        return None
    return _number(text) if _number(text) is not None else _until(text)


def _number(text: str) -> float | None:
    try:
        value = float(text)
    except ValueError:
        return None
    return value if 0 <= value < math.inf else None


def _until(text: str) -> float | None:
    try:
        at = parsedate_to_datetime(text)
    except ValueError:
        return None
    return max(0.0, at.timestamp() - time.time())


def _default_source(connections: int) -> ByteSource:
    from halter.models.sockets import SocketSource  # aiohttp: only where a real connection is meant

    return SocketSource(connections=connections)
