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
from datetime import UTC
from email.utils import parsedate_to_datetime
from urllib.parse import urljoin, urlsplit, urlunsplit

from halter import events
from halter.core.context import RunContext
from halter.core.ids import new_id
from halter.core.metering import Allowance
from halter.core.ports import ByteSource, ByteStream, HttpRequest
from halter.core.reply import Reply
from halter.errors import (
    AuthenticationFailed,
    ConnectionFailed,
    ContextTooLong,
    IncompleteStream,
    ModelNotFound,
    ProviderError,
    ProviderRefused,
    RateLimited,
    RequestRejected,
    ServerFailed,
    StreamTimeout,
)
from halter.messages import Message
from halter.models.answer_body import Body
from halter.models.redaction import redact, remember
from halter.models.too_long import excess
from halter.models.watch import Timeouts, Watch
from halter.models.wire import Decoder, Wire
from halter.net.proxies import proxy_for

LARGEST_ERROR_BODY = 64 * 1024
LONGEST_RETRY_AFTER = 120.0  # seconds; a provider that asks for more is told to the caller instead
ERROR_PATIENCE = 5.0  # seconds for the body of an error, whose status is here already


class Http:
    """Sends requests and reads answers, with time-outs and retries; immutable, shared by any number of runs.

    `max_retries`: how often a request is repeated while nothing was shown. `connections`: how many at once to one
    host, 0 for no limit. `ca_file`: a CA bundle to trust. `source`: another way to the bytes than this loop's pool.
    """

    def __init__(
        self,
        *,
        timeouts: Timeouts = Timeouts(),  # noqa: B008 - frozen
        max_retries: int = 2,
        connections: int = 0,
        ca_file: str | None = None,
        source: ByteSource | None = None,
    ) -> None:
        self._timeouts = timeouts
        self._max_retries = max_retries
        self._source = source or _default_source(connections, ca_file)

    async def ask(
        self, request: HttpRequest, ctx: RunContext, wire: Wire, allowance: Allowance | None = None
    ) -> Message:
        """One answer, streamed into `ctx`. Raises `ProviderError`; cancelled, it leaves no connection behind.

        `allowance`: what it costs, and what the budgets over the run leave for it, by `ctx.allowance`.
        """
        remember(request)
        attempt = 0
        while True:
            ctx.token.raise_if_cancelled()
            attempt += 1
            reply = ctx.reply(allowance)
            reply.asked, reply.was_sent, reply.assembly.model = request.asked, False, wire.name
            ctx.write(
                events.ModelRequested,
                model=wire.name,
                attempt=attempt,
                request_id=new_id(),
                message_id=reply.message_id,
            )
            try:
                await self._answer(request, ctx, wire, wire.begin(reply), reply)
            except ProviderError as error:
                ctx.token.raise_if_cancelled()
                if isinstance(error, ProviderRefused) or not reply.was_sent:
                    reply.refund()
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
        return _backoff(attempt)

    @property
    def source(self) -> ByteSource:
        return self._source

    # --- one attempt ----------------------------------------------------------------------------------------

    async def _answer(self, request: HttpRequest, ctx: RunContext, wire: Wire, decoder: Decoder, reply: Reply) -> None:
        """One attempt; where its connection breaks and the wire knows how to go on, over as many as it takes."""
        tries = 0
        while True:
            try:
                return await self._attempt(request, ctx, wire, decoder, reply)
            except ProviderError as error:
                redact(error, request)
                ctx.token.raise_if_cancelled()
                rest = wire.resume(decoder, error)
                if rest is None:
                    error.retryable = await wire.give_up(decoder) and error.retryable
                    raise
                request = rest
                tries += 1
            await asyncio.sleep(_backoff(tries))

    async def _attempt(self, request: HttpRequest, ctx: RunContext, wire: Wire, decoder: Decoder, reply: Reply) -> None:
        watch = _Progress(self._timeouts, request.label, reply)
        try:
            async with asyncio.timeout(None) as scope:
                watch.start(scope)
                await self._exchange(request, ctx, wire, decoder, reply, watch)
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
        self,
        request: HttpRequest,
        ctx: RunContext,
        wire: Wire,
        decoder: Decoder,
        reply: Reply,
        watch: Watch,
    ) -> None:
        async with self._source.open(request, ctx, watch) as stream:
            if stream.status >= 300:
                watch.phase("error", None)  # it has a patience of its own
                if request.method == "POST":  # else it was about the rest of an answer, which is billed
                    reply.refund()
                raise await _refusal(request, stream, wire)
            label, meter = request.label, reply.meter
            await Body(stream, ctx, wire, decoder, label=label, meter=meter, watch=watch).read()


class _Progress(Watch):
    """Tells a reply, too, when its request goes out: from then on it may be billed."""

    def __init__(self, timeouts: Timeouts, label: str, reply: Reply) -> None:
        super().__init__(timeouts, label)
        self._reply = reply

    def sending(self) -> None:
        self._reply.was_sent = True
        super().sending()


def _backoff(attempt: int) -> float:
    """Seconds."""
    return 0.5 * 2 ** min(attempt - 1, 4) * random.uniform(0.75, 1.0)


# --- refusals -----------------------------------------------------------------------------------------------

# status → error; the rest of 4xx is RequestRejected, the rest of 5xx ServerFailed. The same for error frames. What is
# said of a prompt that is too long comes first: it is told by words more than by a status.
_BY_STATUS: dict[int, type[ProviderError]] = {
    401: AuthenticationFailed,
    403: AuthenticationFailed,
    404: ModelNotFound,
    407: AuthenticationFailed,  # a proxy's
    408: ServerFailed,
    409: ServerFailed,
    429: RateLimited,
}

_BY_CODE: dict[str, type[ProviderError]] = {"API_KEY_INVALID": AuthenticationFailed}  # Google's, with the status 400


def error_of(
    status: int,
    message: str,
    *,
    code: str | None = None,
    retry_after: float | None = None,
    request_id: str | None = None,
) -> ProviderError:
    """The error for an HTTP status, of an answer or of a frame inside one."""
    too_long = excess(message, status=status, code=code)
    if too_long is not None:
        return ContextTooLong(
            message,
            limit=too_long.limit,
            tokens=too_long.tokens,
            status=status,
            code=code,
            retry_after=retry_after,
            request_id=request_id,
        )
    kind = _BY_CODE.get(code or "") or _BY_STATUS.get(status, ServerFailed if status >= 500 else RequestRejected)
    return kind(message, status=status, code=code, retry_after=retry_after, request_id=request_id)


def _may_retry(error: ProviderError) -> bool:
    """Connection failures, 408, 409, 429, 5xx and overloaded frames; a time-out only while connecting."""
    if isinstance(error, StreamTimeout):
        return error.phase == "connect" and error.retryable
    if error.code == "insufficient_quota":
        return False  # OpenAI's 429 for an empty account: waiting does not fill it
    return error.retryable


async def _error_body(stream: ByteStream) -> bytes:
    """As much of it as comes within a few seconds: the status says enough."""
    body = b""
    try:
        async with asyncio.timeout(ERROR_PATIENCE):
            async for chunk in stream:
                body += chunk
                if len(body) > LARGEST_ERROR_BODY:
                    break
    except (ConnectionFailed, TimeoutError):
        pass
    return body


async def _refusal(request: HttpRequest, stream: ByteStream, wire: Wire) -> ProviderError:
    body = await _error_body(stream)
    message, code = wire.describe_error(body)
    delay = retry_after(stream.headers.get)
    error = error_of(
        stream.status,
        f"{request.label} answered {stream.status}{_by_way_of(request, stream)}: {message or 'no reason given'}",
        code=code,
        retry_after=wire.retry_delay(body) if delay is None else delay,
        request_id=next((stream.headers[name] for name in _REQUEST_IDS if name in stream.headers), None),
    )
    told = stream.headers.get("x-should-retry")  # OpenAI's and Anthropic's servers know better than the status
    error.retryable = {"true": True, "false": False}.get(told or "", error.retryable)
    return error


def _by_way_of(request: HttpRequest, stream: ByteStream) -> str:
    """Where a redirect leads, which is not followed: a key may be meant for one host only. Or who may have said it."""
    to = stream.headers.get("location")
    if stream.status < 400 and to:
        return _redirect(request.url, to)
    proxy = proxy_for(request.url) if request.url.startswith("http:") else None
    return "" if proxy is None else f", by way of the proxy {proxy.url}"


def _redirect(url: str, to: str) -> str:
    """Without what may be a secret in it."""
    try:
        place = urlsplit(urljoin(url, to))
    except ValueError:
        return ", a redirect to what is no URL"
    host = place.netloc.rpartition("@")[2]
    return f", a redirect to {urlunsplit(place._replace(netloc=host, query='', fragment=''))} (give that base_url)"


_REQUEST_IDS = ("x-request-id", "request-id", "apim-request-id")


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
    at = at if at.tzinfo is not None else at.replace(tzinfo=UTC)  # `-0000`: UTC, of no known place (RFC 5322, 3.3)
    return max(0.0, at.timestamp() - time.time())


def _default_source(connections: int, ca_file: str | None) -> ByteSource:
    from halter.net.sockets import SocketSource  # aiohttp: only where a real connection is meant

    return SocketSource(connections=connections, ca_file=ca_file)
