"""HTTP/1.1 as bytes: a reader of requests (bytes in, events out) and the responses we write (RFC 9112)."""

from collections.abc import Callable
from http import HTTPStatus

import msgspec

HEAD_LIMIT = 1 << 20


class BadRequest(Exception):
    """The peer does not speak HTTP/1.1."""


class Head(msgspec.Struct, frozen=True):
    """A request line and its headers, names lower-cased; of repeated headers the last one counts."""

    method: str
    target: str
    headers: dict[str, str]
    keep_alive: bool


class Body(msgspec.Struct, frozen=True):
    """Some bytes of the body."""

    data: bytes


class Complete(msgspec.Struct, frozen=True):
    """The body has ended."""


Event = Head | Body | Complete


class RequestReader:
    """Cuts a connection's bytes into `Head, Body*, Complete` per request, however they were split."""

    def __init__(self) -> None:
        self._buffer = bytearray()
        self._left = 0
        self._read: Callable[[], Event | None] = self._head

    def __repr__(self) -> str:
        return f"<RequestReader in {self._read.__name__}, {len(self._buffer)} bytes unread>"

    @property
    def unread(self) -> int:
        return len(self._buffer)

    def feed(self, data: bytes) -> None:
        self._buffer += data

    def next_event(self) -> Event | None:
        """The next event, or None if more bytes are needed. Raises `BadRequest`."""
        return self._read()

    def _head(self) -> Event | None:
        # Empty lines before a request line are to be ignored (RFC 9112, 2.2).
        while self._buffer.startswith(b"\r\n"):
            del self._buffer[:2]
        end = self._buffer.find(b"\r\n\r\n")
        if end < 0:
            if len(self._buffer) > HEAD_LIMIT:
                raise BadRequest("the head is too long")
            return None
        head = _parse_head(bytes(self._buffer[:end]))
        del self._buffer[: end + 4]
        self._expect_body(head.headers)
        return head

    def _expect_body(self, headers: dict[str, str]) -> None:
        if headers.get("transfer-encoding", "").lower() == "chunked":
            self._read = self._chunk_size
            return
        self._left = _length(headers.get("content-length", "0"), 10)
        self._read = self._sized_body

    def _sized_body(self) -> Event | None:
        if self._left == 0:
            self._read = self._head
            return Complete()
        return self._take()

    def _chunk_size(self) -> Event | None:
        line = self._line()
        if line is None:
            return None
        self._left = _length(line.partition(";")[0], 16)
        self._read = self._chunk_data if self._left else self._trailers
        return self._read()

    def _chunk_data(self) -> Event | None:
        if self._left:
            return self._take()
        line = self._line()
        if line is None:
            return None
        if line:
            raise BadRequest("a chunk is longer than it said")
        self._read = self._chunk_size
        return self._read()

    def _trailers(self) -> Event | None:
        while (line := self._line()) is not None:
            if not line:
                self._read = self._head
                return Complete()
        return None

    def _take(self) -> Body | None:
        data = bytes(self._buffer[: self._left])
        if not data:
            return None
        del self._buffer[: len(data)]
        self._left -= len(data)
        return Body(data)

    def _line(self) -> str | None:
        end = self._buffer.find(b"\r\n")
        if end < 0:
            return None
        line = self._buffer[:end].decode("latin-1")
        del self._buffer[: end + 2]
        return line


def _parse_head(data: bytes) -> Head:
    request_line, *lines = data.decode("latin-1").split("\r\n")
    words = request_line.split(" ")
    if len(words) != 3 or not words[2].startswith("HTTP/1."):
        raise BadRequest(f"no HTTP/1.1 request line: {request_line[:100]!r}")
    headers: dict[str, str] = {}
    for line in lines:
        name, colon, value = line.partition(":")
        if not colon:
            raise BadRequest(f"no header: {line[:100]!r}")
        headers[name.lower()] = value.strip()
    keep_alive = words[2] == "HTTP/1.1" and headers.get("connection", "").lower() != "close"
    return Head(words[0], words[1], headers, keep_alive)


def _length(text: str, base: int) -> int:
    # int() would also take "+5", "1_0" and " 5 ".
    if not text.strip().isalnum():
        raise BadRequest(f"no length: {text[:100]!r}")
    try:
        return int(text.strip(), base)
    except ValueError as error:
        raise BadRequest(f"no length: {text[:100]!r}") from error


def chunk(data: bytes) -> bytes:
    """One chunk of a chunked body; nothing for no data, since an empty chunk would end the body."""
    return b"%x\r\n%b\r\n" % (len(data), data) if data else b""


LAST_CHUNK = b"0\r\n\r\n"


def response_head(status: int, headers: dict[str, str], keep_alive: bool) -> bytes:
    """A status line and headers."""
    lines = [f"HTTP/1.1 {status} {_phrase(status)}", *(f"{name}: {value}" for name, value in headers.items())]
    if not keep_alive:
        lines.append("connection: close")
    return "\r\n".join([*lines, "", ""]).encode("latin-1")


def json_response(status: int, body: bytes, keep_alive: bool, headers: dict[str, str] | None = None) -> bytes:
    """A whole response with a JSON body."""
    fields = {"content-type": "application/json", "content-length": str(len(body))} | (headers or {})
    return response_head(status, fields, keep_alive) + body


def _phrase(status: int) -> str:
    try:
        return HTTPStatus(status).phrase
    except ValueError:
        return "Unknown"
