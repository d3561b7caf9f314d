"""The body of a 200, in whichever form it comes: frames, one JSON value, or a page that is no answer.

Servers and proxies label one as the other, so the first bytes decide; the content type only where they say nothing.
White space and comments are silence: no time-out waits longer for them.
"""

from __future__ import annotations

from typing import Literal, TypeAlias

from halter.core.context import RunContext
from halter.core.metering import Meter
from halter.core.ports import ByteStream
from halter.core.sse import FrameSplitter
from halter.errors import IncompleteStream, MalformedStream
from halter.models.watch import Watch
from halter.models.wire import Decoder, Wire

TAIL_PATIENCE = 2.0  # seconds for a body to end after its terminal frame
LARGEST_PAGE = 64 * 1024  # bytes that are read of what is no answer
_BLANK = b"\xef\xbb\xbf \t\r\n"
_FIELDS = (b"data", b"event", b"id", b"retry")

Form: TypeAlias = Literal["frames", "value", "page"]


def form_of(start: bytes, otherwise: Form) -> Form | None:
    """What a body is that begins so, without the white space before it; `None`: its next bytes will tell.

    `otherwise`: where they say nothing.
    """
    if start[:1] in (b"{", b"["):
        return "value"
    if start[:1] == b"<":
        return "page"
    if start[:1] == b":" or start.startswith(_FIELDS):
        return "frames"
    return None if any(field.startswith(start) for field in _FIELDS) else otherwise


class Body:
    """Reads one body into its decoder. `label`: how errors name the request."""

    def __init__(
        self,
        stream: ByteStream,
        ctx: RunContext,
        wire: Wire,
        decoder: Decoder,
        *,
        label: str,
        meter: Meter | None,
        watch: Watch,
    ) -> None:
        self._stream = stream
        self._ctx = ctx
        self._wire = wire
        self._decoder = decoder
        self._label = label
        self._meter = meter
        self._watch = watch
        self._splitter = FrameSplitter()
        self._feed = self._splitter.feed
        self._frame = decoder.frame
        self._is_too_far_ahead = ctx.is_too_far_ahead
        self._form: Form | None = None
        self._pieces: list[bytes] = []  # of what has no frames, or of what may have
        self._size = 0

    async def read(self) -> None:
        """Reads it to its end, no faster than its readers. Raises `ProviderError`."""
        while await self._stream.pump(self._take):
            self._watch.is_paused = True
            await self._ctx.drain()
            self._watch.resume()
        if self._form is None and self._content_kind == "value":
            self._form = "value"
        if self._form in ("value", "page"):
            self._read_whole()
        elif not self._decoder.is_over:
            self._read_rest()

    def _take(self, chunk: bytes) -> bool:
        """One read; whether to pause behind it."""
        if self._form is None:
            chunk = self._begin(chunk)
        if self._form != "frames":
            self._collect(chunk)
            return False
        frames = self._feed(chunk)
        if frames or self._splitter.has_begun:
            self._watch.progress()
        for data in frames:
            self._frame(data)
        if self._decoder.is_over:
            self._watch.phase("tail", TAIL_PATIENCE)
        elif self._meter is not None:
            self._meter.after_read()
        return self._is_too_far_ahead()

    def _begin(self, chunk: bytes) -> bytes:
        """The first bytes that are not blank say what it is; they are returned with all that came before."""
        start = b"".join((*self._pieces, chunk))
        self._form = form_of(start.lstrip(_BLANK), self._content_kind)
        if self._form is None:
            return chunk
        self._pieces.clear()
        if self._form == "value" and self._meter is not None:
            self._meter.came_whole = True
        return start

    @property
    def _content_kind(self) -> Form:
        """What the content type says, in any case of letters."""
        kind = self._stream.headers.get("content-type", "").lower()
        if "json" in kind:
            return "value"
        return "page" if "text/" in kind and "event-stream" not in kind else "frames"

    def _collect(self, chunk: bytes) -> None:
        self._pieces.append(chunk)
        self._size += len(chunk)
        if self._form is not None and chunk.strip():
            self._watch.progress()
        if self._form == "page" and self._size > LARGEST_PAGE:
            self._read_whole()

    def _read_whole(self) -> None:
        body = b"".join(self._pieces)
        if self._form == "value":
            self._decoder.whole(body)
            return
        words, _ = self._wire.describe_error(body)
        raise MalformedStream(f"{self._label} answered 200 with a page, and no answer (see base_url): {words}")

    def _read_rest(self) -> None:
        """A last frame without its blank line may be whole, or cut off."""
        try:
            for data in self._splitter.close():
                self._decoder.frame(data)
        except MalformedStream as error:
            raise IncompleteStream("the answer was cut off within a frame") from error
