"""An answer that the server goes on with whether or not somebody listens, and what that takes.

1. From its first event on it is a resource of the run, until the server says that it has ended: a stop cancels it at
the server, and so does whoever gives it up, before anybody asks anew. If that cancel fails, nobody asks anew.
2. A connection that breaks is made anew and goes on behind the last event that came; what is told again is skipped.
3. So often without anything new, and it is given up. After silence the server is asked how it stands: that it is still
at work counts as new, so a long job may be silent; the time-out `total` and the run's own are what limits it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any
from urllib.parse import quote, urlsplit, urlunsplit

import msgspec

from halter.core.context import RunContext
from halter.core.ports import ByteSource, HttpRequest
from halter.core.reply import Reply
from halter.core.resources import Close, Resource
from halter.errors import (
    ConnectionFailed,
    IncompleteStream,
    MalformedStream,
    ProviderError,
    RateLimited,
    ServerFailed,
    StreamTimeout,
)
from halter.models.format import Format
from halter.models.http import error_of
from halter.models.responses.frames import UNFIT
from halter.models.responses.wire import ResponsesDecoder, ResponsesWire
from halter.models.wire import Decoder

TRIES = 5  # in a row, without a new event
CANCEL_PATIENCE = 2.0  # seconds; what is not answered by then is abandoned
CANCEL_PAUSE = 0.1  # seconds; a kept connection that the server has just closed fails at once
_OVER_ALREADY = (400, 404, 409)


class Background(ResponsesWire):
    """The wire of one request for a background answer. `wire`: its model's; `asked`: the request itself."""

    __slots__ = ("_asked", "_ctx", "_source")

    def __init__(self, wire: ResponsesWire, asked: HttpRequest, ctx: RunContext, source: ByteSource) -> None:
        super().__init__(wire.name, provider=wire.provider, key=wire._key, secrets=wire._secrets)
        self._asked = asked
        self._ctx = ctx
        self._source = source

    def begin(self, reply: Reply) -> BackgroundDecoder:
        return BackgroundDecoder(self, reply, self._hold)

    def resume(self, decoder: Decoder, error: ProviderError) -> HttpRequest | None:
        if not isinstance(decoder, BackgroundDecoder) or not _is_of_the_connection(error):
            return None
        query = decoder.rest(was_silent=isinstance(error, StreamTimeout))
        if query is None or decoder.response_id is None:
            return None
        return self._about(decoder.response_id, "GET", query=query)

    async def give_up(self, decoder: Decoder) -> bool:
        """Cancels it. If that fails, the run's end tries once more."""
        if not isinstance(decoder, BackgroundDecoder) or decoder.response_id is None or not decoder.is_held:
            return True
        try:
            await self._cancel(self._about(decoder.response_id, "POST", "/cancel"))
        except (ProviderError, TimeoutError):
            return False
        decoder.let_go()
        return True

    def _hold(self, id: str) -> Resource:
        cancel = self._about(id, "POST", "/cancel")
        return self._ctx.resource("response", cancel.label, lambda: self._cancel(cancel))

    async def _cancel(self, request: HttpRequest) -> None:
        """Asks once more where the first time fails and the next may not. Raises if the server may go on with it."""
        async with asyncio.timeout(CANCEL_PATIENCE):
            try:
                await self._ask_to_cancel(request)
            except ProviderError as error:
                if not error.retryable:
                    raise
                await asyncio.sleep(CANCEL_PAUSE)
                await self._ask_to_cancel(request)

    async def _ask_to_cancel(self, request: HttpRequest) -> None:
        async with self._source.open(request, _Aside(self._ctx), _Untimed()) as stream:
            if stream.status >= 300 and stream.status not in _OVER_ALREADY:
                raise error_of(stream.status, f"{request.label} answered {stream.status}")
            async for _ in stream:  # a body that is read leaves its connection to the next request
                pass

    def _about(self, id: str, method: str, path: str = "", query: str = "") -> HttpRequest:
        place = urlsplit(self._asked.url)
        joined = "&".join(part for part in (place.query, query) if part)
        url = urlunsplit(place._replace(path=f"{place.path}/{quote(id, safe='')}{path}", query=joined))
        return msgspec.structs.replace(self._asked, url=url, method=method, body=b"")


class BackgroundDecoder(ResponsesDecoder):
    """A decoder that knows how far it has come. `hold`: makes the answer with this id a resource of the run."""

    __slots__ = ("_failed", "_has_ended", "_held", "_hold", "_last", "_resumed_behind", "_tries")

    def __init__(self, wire: Format, reply: Reply, hold: Callable[[str], Resource]) -> None:
        super().__init__(wire, reply)
        self._hold = hold
        self._held: Resource | None = None
        self._failed = False
        self._has_ended = False
        self._last = -1
        self._resumed_behind = -1
        self._tries = 0

    @property
    def is_held(self) -> bool:
        """Whether the server may be at work on it, and nobody is ending that."""
        return self._held is not None and self._held.ended is None and not self._held.is_closing

    def frame(self, data: bytes) -> None:
        number = _number_of(data)
        if number is not None:
            if number <= self._resumed_behind:
                return
            self._last, self._tries = max(number, self._last), 0
        self._read(super().frame, data)

    def whole(self, body: bytes) -> None:
        """The answer as it stands, perhaps unfinished: the server is at work on it."""
        self._read(super().whole, body)
        self._tries = 0

    def rest(self, *, was_silent: bool) -> str | None:
        """The query for what has not come yet, or for how it stands; `None` if it is given up. One more try."""
        self._tries += 1
        if self.response_id is None or self._failed or self._tries > TRIES:
            return None
        if was_silent:
            return ""
        self._resumed_behind = self._last
        return f"stream=true&starting_after={self._last}" if self._last >= 0 else "stream=true"

    def let_go(self) -> None:
        """The server has ended it."""
        if self._held is not None and self.is_held:
            self._held.end()

    def _take_response(self, fields: dict[str, Any]) -> None:
        self._has_ended = True
        super()._take_response(fields)

    def _read(self, read: Callable[[bytes], None], data: bytes) -> None:
        """What the server has not called ended stays held, whatever we cannot read."""
        try:
            read(data)
        except ProviderError as error:
            self._failed = not isinstance(error, MalformedStream)
            raise
        finally:
            if self._has_ended:
                self.let_go()
            elif self._held is None and self.response_id is not None:
                self._held = self._hold(self.response_id)


class _Number(msgspec.Struct, gc=False):
    sequence_number: int | None = None


_decode_number = msgspec.json.Decoder(_Number).decode


def _number_of(data: bytes) -> int | None:
    try:
        return _decode_number(data).sequence_number
    except UNFIT:
        return None


def _is_of_the_connection(error: ProviderError) -> bool:
    """Whether the answer may still be there. What the server itself has reported as failed, its decoder knows."""
    if isinstance(error, StreamTimeout):
        return error.phase != "total"
    return isinstance(error, ConnectionFailed | IncompleteStream | ServerFailed | RateLimited)


class _Aside(RunContext):
    """The run's context for a request that helps to end it: its socket is part of that, and no resource of its own."""

    __slots__ = ()

    def __init__(self, ctx: RunContext) -> None:
        super().__init__(ctx._execution)

    def resource(
        self,
        kind: str,
        label: str,
        close: Close | None,
        *,
        sever: Callable[[], None] | None = None,
        last_resort: Callable[[], None] | None = None,
    ) -> Resource:
        return Resource(kind, label, self.run_id, close, _tell_nobody, sever, last_resort=last_resort)


def _tell_nobody(_: Resource) -> None: ...


class _Untimed:
    def connecting(self) -> None: ...
    def sending(self) -> None: ...
