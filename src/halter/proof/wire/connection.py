"""One accepted socket: requests in, answers out, and the instant its other end went away.

A bare protocol, for the exact control of the socket. Only one thing cannot be seen: while `no-read` holds
unread data back, a FIN behind that data stays invisible; an RST, or a FIN with nothing before it, is found by
asking the kernel.
"""

import asyncio
import socket
import ssl
import struct
import sys
from time import monotonic
from typing import cast

import msgspec

from halter.proof.wire.control import PREFIX, ControlRequest
from halter.proof.wire.exchange import Exchange
from halter.proof.wire.http1 import BadRequest, Body, Complete, Event, Head, RequestReader, json_response
from halter.proof.wire.provider import Provider
from halter.proof.wire.records import ClosedHow, Record
from halter.proof.wire.request import NOBODY, Request
from halter.proof.wire.tls import TlsLayer

SEND_BUFFER = 64 * 1024
UNREAD_LIMIT = 1 << 20
DEAF_POLL = 0.005
TCP_ESTABLISHED = 1
TCP_CLOSE_WAIT = 8


class Connection(asyncio.Protocol):
    """Serves one connection; a `Line` for the players of its answers."""

    def __init__(self, provider: Provider, tls: TlsLayer | None = None) -> None:
        self._provider = provider
        self._tls = tls
        self._reader = RequestReader()
        self._number: int | None = None
        self._records: list[Record] = []
        self._first_byte_at: float | None = None
        self._current: Request = NOBODY
        self._is_answering = False
        self._closed_how: ClosedHow | None = None
        self._is_control = False
        self._poll: asyncio.TimerHandle | None = None

    def __repr__(self) -> str:
        return f"<Connection {self._number}, {len(self._records)} requests, {self._closed_how or 'open'}>"

    # What the event loop tells us.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._socket = cast(socket.socket, transport.get_extra_info("socket"))
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        # Small buffers, so that what was handed over is close to what the peer has read.
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, SEND_BUFFER)
        self._transport.set_write_buffer_limits(high=SEND_BUFFER)
        self._provider.open_connections += 1

    def data_received(self, data: bytes) -> None:
        if self._closed_how is not None:
            return
        plain = self._decrypt(data) if self._tls is not None else data
        if plain and self._first_byte_at is None:
            self._first_byte_at = monotonic()
        self._reader.feed(plain)
        self._advance()
        if self._tls is not None and self._tls.has_ended:
            self.eof_received()

    def eof_received(self) -> None:
        """The client is gone: also one that only shut down its sending half."""
        self._gone("eof")
        self._transport.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        self._gone("eof" if exc is None else "reset")
        if not self._is_control:
            self._provider.open_connections -= 1

    def pause_writing(self) -> None:
        self._current.pause()

    def resume_writing(self) -> None:
        self._current.resume()

    # The line of a player.

    def write(self, data: bytes) -> int:
        sealed = data if self._tls is None else self._tls.seal(data)
        self._transport.write(sealed)
        return len(sealed)

    @property
    def has_flushed(self) -> bool:
        return self._transport.get_write_buffer_size() == 0

    def hang_up(self, *, politely: bool) -> None:
        if politely and self._tls is not None:
            self._transport.write(self._tls.goodbye())
        self._gone("server")
        self._transport.close()

    def reset(self) -> None:
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self._gone("server")
        self._transport.abort()

    # Requests.

    def _decrypt(self, data: bytes) -> bytes:
        assert self._tls is not None
        try:
            plain = self._tls.receive(data)
        except ssl.SSLError:
            self.reset()
            return b""
        if outgoing := self._tls.outgoing():
            self._transport.write(outgoing)
        return plain

    def _advance(self) -> None:
        """Take events until an answer is being given: then the next request waits."""
        try:
            while not self._is_answering and self._closed_how is None:
                event = self._reader.next_event()
                if event is None:
                    break
                self._take(event)
        except BadRequest as error:
            self._refuse(str(error))
        if self._reader.unread > UNREAD_LIMIT and not self._is_deaf:
            # Pipelining is served, but not stored without end; and a reply would land inside the answer.
            self.reset()

    def _take(self, event: Event) -> None:
        match event:
            case Head():
                self._begin(event)
            case Body(data):
                self._current.took(data)
            case Complete():
                self._is_answering = True
                self._current.complete()

    def _begin(self, head: Head) -> None:
        started = self._first_byte_at or monotonic()
        if head.target.startswith(PREFIX):
            self._begin_control(head)
            return
        if self._number is None:
            self._number = self._provider.next_connection()
        exchange = Exchange(self._provider, self, head, self._number, started)
        self._records.append(exchange.record)
        self._current = exchange
        if exchange.wants_no_body:
            self._go_deaf()

    def _begin_control(self, head: Head) -> None:
        if not self._is_control:
            self._is_control = True
            self._provider.open_connections -= 1
        self._current = ControlRequest(self._provider, self, head)

    def ended(self, *, keep_alive: bool) -> None:
        """The current request is answered."""
        self._current = NOBODY
        if not keep_alive:
            self.hang_up(politely=True)
            return
        self._is_answering = False
        self._first_byte_at = monotonic() if self._reader.unread else None
        # Not here and now: a thousand pipelined requests would be a thousand frames deep.
        asyncio.get_running_loop().call_soon(self._advance)

    def _refuse(self, message: str) -> None:
        content = msgspec.json.encode({"error": {"message": message, "type": "invalid_request_error"}})
        self.write(json_response(400, content, keep_alive=False))
        self.hang_up(politely=True)

    def _gone(self, how: ClosedHow) -> None:
        if self._closed_how is not None:
            return
        self._closed_how = how
        now = monotonic()
        self._current.drop()
        if self._poll is not None:
            self._poll.cancel()
        for record in self._records:
            record.closed(now, how)
            self._provider.journal.entered(record, "closed")

    # Not reading.

    @property
    def _is_deaf(self) -> bool:
        return self._poll is not None

    def _go_deaf(self) -> None:
        self._is_answering = True
        self._transport.pause_reading()
        self._look()

    def _look(self) -> None:
        how = departure(self._socket)
        if how is None:
            self._poll = asyncio.get_running_loop().call_later(DEAF_POLL, self._look)
            return
        self._gone(how)
        self._transport.abort()


def departure(sock: socket.socket) -> ClosedHow | None:
    """Ask the kernel, without reading, whether and how the peer has left. None also where it cannot tell."""
    if not sys.platform.startswith("linux"):
        return None
    try:
        state = sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 1)[0]
    except OSError:
        return "reset"
    if state == TCP_ESTABLISHED:
        return None
    return "eof" if state == TCP_CLOSE_WAIT else "reset"
