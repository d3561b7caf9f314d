"""The floor: the least that Python can do with such a stream, on a bare asyncio protocol.

It takes HTTP chunks off, splits frames and decodes them with msgspec; it knows nothing of errors, time-outs, pools
or stops. Nobody would ship it; it says how much of a figure is the bytes themselves.
"""

from __future__ import annotations

import asyncio
from typing import cast
from urllib.parse import urlsplit

import msgspec


class Delta(msgspec.Struct, gc=False):
    content: str | None = None


class Choice(msgspec.Struct, gc=False):
    delta: Delta


class Chunk(msgspec.Struct, gc=False):
    choices: list[Choice]


_decode = msgspec.json.Decoder(Chunk).decode


class FloorProtocol(asyncio.Protocol):
    """One request on one connection; `ended` is done when the answer is."""

    def __init__(self, request: bytes, texts: list[str]) -> None:
        self.ended: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._request = request
        self._texts = texts
        self._in_body = False
        self._raw = b""
        self._frames = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        cast(asyncio.WriteTransport, transport).write(self._request)

    def data_received(self, data: bytes) -> None:
        raw = self._raw + data if self._raw else data
        if not self._in_body:
            head, found, raw = raw.partition(b"\r\n\r\n")
            if not found:
                self._raw = head
                return
            self._in_body = True
        self._take_frames(self._take_chunks(raw))

    def _take_chunks(self, raw: bytes) -> bytes:
        """The payload of the chunks that are complete; what is not is kept."""
        pieces = [self._frames]
        at = 0
        while (line := raw.find(b"\r\n", at)) >= 0:
            end = line + 2 + int(raw[at:line], 16)
            if end + 2 > len(raw):
                break
            pieces.append(raw[line + 2 : end])
            at = end + 2
        self._raw = raw[at:]
        return b"".join(pieces)

    def _take_frames(self, payload: bytes) -> None:
        *frames, self._frames = payload.split(b"\n\n")
        append = self._texts.append
        for frame in frames:
            if frame == b"data: [DONE]":
                self._end()
                return
            choices = _decode(frame[6:]).choices
            if choices and (text := choices[0].delta.content):
                append(text)

    def connection_lost(self, exc: Exception | None) -> None:
        self._end()

    def _end(self) -> None:
        if not self.ended.done():
            self.ended.set_result(None)


async def read_floor(url: str, body: bytes, texts: list[str]) -> None:
    """Reads one answer of chat completions to its end."""
    parts = urlsplit(url)
    head = f"POST {parts.path}/chat/completions HTTP/1.1\r\nhost: {parts.netloc}\r\ncontent-length: {len(body)}\r\n\r\n"
    loop = asyncio.get_running_loop()
    transport, protocol = await loop.create_connection(
        lambda: FloorProtocol(head.encode() + body, texts), parts.hostname, parts.port
    )
    try:
        await protocol.ended
    finally:
        transport.abort()
