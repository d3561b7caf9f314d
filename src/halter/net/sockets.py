"""The byte source in production: aiohttp, one pool per loop, and the raw sockets under it.

1. A stop is `shutdown(SHUT_RDWR)` on the raw socket and `transport.abort()`, never a close that waits. 2. A raw socket
is known before it connects; which transport serves which run is known on reuse, and forgotten at the instant when the
connection goes back to the pool: a stop never poisons another's, though it may come from any thread. 3. Names are
looked up in threads of our own. 4. Bytes that come before a request was written are nobody's answer: they end their
connection.
"""

from __future__ import annotations

import asyncio
import contextvars
import errno
import io
import socket
import ssl
import threading
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from functools import partial
from typing import Any
from weakref import WeakKeyDictionary

import aiohttp
from aiohttp.abc import AbstractResolver, ResolveResult
from aiohttp.client_proto import ResponseHandler
from yarl import URL

from halter.core.context import RunContext
from halter.core.home import home_here
from halter.core.ports import LARGEST_READ, HttpRequest, Progress
from halter.core.threads import call_in_thread
from halter.errors import AuthenticationFailed, ConfigurationError, ConnectionFailed, MalformedStream
from halter.net.addresses import is_public
from halter.net.proxies import proxy_for
from halter.outcome import Ended

# Bytes. By default kernel and aiohttp swallow 8 MB before a stopped reader is felt (TLS keeps 256 KiB more). Less would
# be felt sooner still, but a far provider's large answers would crawl: so much may be on its way at a time.
RECEIVE_BUFFER = 128 * 1024
LARGE_BODY = 512 * 1024  # above it a body is written in pieces; from 1 MiB on aiohttp warns of whole ones
LOOK_AGAIN = 0.001
PROXY_REFUSED = 407  # "Proxy Authentication Required" (RFC 9110, 15.5.8)
NO_TIMEOUT = aiohttp.ClientTimeout(total=None, connect=None, sock_read=None, sock_connect=None)


class SocketSource:
    """Bytes over HTTP/1.1. `connections`: at once to one host, 0 for no limit. `ca_file`: a CA bundle to trust.

    `public_only`: connects to addresses of the public internet alone (`net/addresses.py`), whatever a name resolves
    to; a proxy may be anywhere, and is trusted with what lies behind it. Raises `ConfigurationError` if `ca_file`
    cannot be read. Proxies come from the environment (`HTTPS_PROXY`, …).
    """

    def __init__(self, *, connections: int = 0, ca_file: str | None = None, public_only: bool = False) -> None:
        self._connections = connections
        self._ca_file = ca_file
        self._public_only = public_only
        self._ssl = _trusting(ca_file) if ca_file else None

    @asynccontextmanager
    async def open(self, request: HttpRequest, ctx: RunContext, progress: Progress) -> AsyncGenerator[_Body]:
        exchange = _Exchange(request, ctx, progress)
        cell = _Cell(exchange)
        _current.set(cell)
        try:
            exchange.response = await self._pool().request(request, self._ssl)
            if exchange.response.status == PROXY_REFUSED:
                raise _refused_by_proxy(request)
            _check_encoding(request.label, exchange.response.headers.get("Content-Encoding", ""))
            yield _Body(exchange.response, exchange, request.label)
        except aiohttp.ClientHttpProxyError as error:
            if error.status == PROXY_REFUSED:
                raise _refused_by_proxy(request) from error
            raise _no_tunnel(request, error) from error
        except aiohttp.ClientProxyConnectionError as error:
            raise ConnectionFailed(f"{request.label}: {_proxy_of(request)} cannot be reached: {error}") from error
        except aiohttp.ClientResponseError as error:  # a body of which aiohttp cannot read the encoding
            if "content-encoding" in error.message:
                raise _unread_encoding(request.label, error.message) from error
            raise _failure(request.label, error) from error
        except aiohttp.ClientError as error:
            raise _failure(request.label, error) from error
        except OSError as error:
            raise ConnectionFailed(f"{request.label}: {error}") from error
        finally:
            cell.exchange = None
            exchange.leave()

    def _pool(self) -> _Pool:
        home = home_here()
        key = (_Pool, self._connections, self._ca_file, self._public_only)
        pool = home.kept.get(key)
        if pool is None:
            pool = home.kept[key] = _Pool(self._connections, self._public_only)
            home.at_close(pool.close, lost=pool.lose)
        return pool

    def __repr__(self) -> str:
        public = ", public_only=True" if self._public_only else ""
        return f"SocketSource(connections={self._connections}, ca_file={self._ca_file!r}{public})"


def _trusting(ca_file: str) -> ssl.SSLContext:
    try:
        return ssl.create_default_context(cafile=ca_file)
    except (OSError, ssl.SSLError) as error:
        raise ConfigurationError(f"ca_file {ca_file!r} cannot be read: {error}") from error


def _failure(label: str, error: Exception) -> ConnectionFailed:
    said = str(error) or type(error).__name__
    return ConnectionFailed(f"{label}: {said}")


def _refused_by_proxy(request: HttpRequest) -> AuthenticationFailed:
    """Without what the proxy says: it may repeat what it was told."""
    said = f"{request.label}: 407 by {_proxy_of(request)}: see the user and the password in its URL, in the environment"
    return AuthenticationFailed(said, status=PROXY_REFUSED)


def _proxy_of(request: HttpRequest) -> str:
    proxy = proxy_for(request.url)
    return "no proxy that we know of" if proxy is None else f"the proxy {proxy.url}"


def _no_tunnel(request: HttpRequest, error: aiohttp.ClientHttpProxyError) -> ConnectionFailed:
    """A proxy that lets nobody through to this host does not the next time either, unless it is its own trouble."""
    said = f"{request.label}: {_proxy_of(request)} refused the connection: {error.status} {error.message}"
    refusal = ConnectionFailed(said.rstrip(), status=error.status)
    refusal.retryable = error.status >= 500 or error.status in (408, 429)
    return refusal


_READABLE = frozenset(("", "identity", "gzip", "deflate", "br", "zstd"))  # the last two where aiohttp finds a library


def _check_encoding(label: str, encoding: str) -> None:
    if encoding.strip().lower() not in _READABLE:
        raise _unread_encoding(label, f"Content-Encoding: {encoding}")


def _unread_encoding(label: str, said: str) -> MalformedStream:
    return MalformedStream(
        f"{label}: the answer is compressed in a way that cannot be read here, though none was asked for ({said}): "
        "turn compression off at the server or the proxy before it"
    )


class _Body:
    """An aiohttp response as a `ByteStream`."""

    __slots__ = ("_exchange", "_label", "_response", "headers", "status")

    def __init__(self, response: aiohttp.ClientResponse, exchange: _Exchange, label: str) -> None:
        self._response = response
        self._exchange = exchange
        self._label = label
        self.status: int = response.status
        self.headers: Mapping[str, str] = {name.lower(): value for name, value in response.headers.items()}

    def __aiter__(self) -> AsyncIterator[bytes]:
        return self._response.content.iter_chunked(LARGEST_READ)  # what is there, up to so much

    async def pump(self, take: Callable[[bytes], bool]) -> bool:
        connection = self._response.connection
        protocol = connection.protocol if connection is not None else None
        # A compressed body grows as it is read: aiohttp has to count it.
        pump = _Pump(self._response.content, take, protocol, counted="content-encoding" in self.headers)
        try:
            is_paused = await pump.paused
        finally:
            pump.detach()
        if not is_paused and self._exchange.is_severed:  # a body that ends with its connection looks complete
            raise ConnectionFailed(f"{self._label}: the run was stopped before its answer had ended")
        return is_paused


class _Handed(aiohttp.StreamReader):
    """A body of aiohttp's while a pump reads it: each read is taken whole, so that nothing of it has to be counted.

    It has no fields of its own: a reader becomes one, and is what it was again, by its class.
    """

    __slots__ = ()

    def feed_data(self, data: bytes, size: int = 0) -> bool:
        self._buffer.append(data)
        return False

    def begin_http_chunk_receiving(self) -> None:
        """Its chunks are of no interest."""

    def end_http_chunk_receiving(self) -> None:
        """Nor are their ends."""


class _Pump:
    """Hands each read on where aiohttp has parsed it, in the loop's own callback."""

    __slots__ = ("_buffer", "_content", "_counted", "_goes_on", "_handler", "_is_pulling", "_take", "paused")

    def __init__(
        self,
        content: aiohttp.StreamReader,
        take: Callable[[bytes], bool],
        protocol: ResponseHandler | None,
        *,
        counted: bool,
    ) -> None:
        self.paused: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        self._content = content
        self._buffer = content._buffer
        self._take = take
        self._handler = protocol if isinstance(protocol, _Handler) else None  # None: the body is here already
        self._counted = counted or self._handler is None or type(content) is not aiohttp.StreamReader
        self._is_pulling = False
        self._goes_on = False
        if self._handler is not None:
            self._handler.pump = self
        self._pull()

    def pull(self) -> None:
        """Takes what there is, up to one read; the rest in the loop's next round: a flood must not starve a stop."""
        if self._is_pulling or self.paused.done():
            return
        content, buffer = self._content, self._buffer
        if content.__class__ is not _Handed or content._exception is not None:
            self._pull()
            return
        if buffer:
            data = buffer[0] if len(buffer) == 1 else b"".join(buffer)
            if len(data) > LARGEST_READ:
                self._count()
                self._pull()
                return
            buffer.clear()
            try:
                if self._take(data):
                    self._end(True)
                    return
            except BaseException as error:
                self._fail(error)
                return
        if content._eof:
            self._end(False)

    def _pull(self) -> None:
        """The same of a body that aiohttp counts."""
        self._is_pulling = True  # aiohttp comes back in here when a read makes room for more
        try:
            data = self._content.read_nowait(LARGEST_READ)
            if data and self._take(data):
                self._end(True)
            elif self._content.at_eof():
                self._end(False)
            elif self._buffer:
                self._pull_again()
            elif not self._counted:
                self._content.__class__ = _Handed
        except BaseException as error:
            self._fail(error)
        finally:
            self._is_pulling = False

    def _pull_again(self) -> None:
        if not self._goes_on:
            self._goes_on = True
            self.paused.get_loop().call_soon(self._go_on)

    def _go_on(self) -> None:
        self._goes_on = False
        self.pull()

    def _count(self) -> None:
        """What is here and not taken is counted by aiohttp from now on."""
        content = self._content
        if content.__class__ is _Handed:
            content.__class__ = aiohttp.StreamReader
            content._size = sum(map(len, self._buffer))
            if self._handler is not None and content._size > content._high_water and not content._eof:
                self._handler.hold()

    def _end(self, paused: bool) -> None:
        self.detach()
        self.paused.set_result(paused)

    def _fail(self, error: BaseException) -> None:
        self.detach()
        self.paused.set_exception(error)

    def detach(self) -> None:
        """Before the next request has the connection."""
        self._count()
        if self._handler is not None and self._handler.pump is self:
            self._handler.pump = None


class _Handler(ResponseHandler):
    """aiohttp's protocol, which says when it has parsed a read, and takes an answer only to a request.

    `was_asked`: a request is being written, or was. aiohttp would give what comes before to the next request as its
    answer, and so each request of the connection the answer to the one before it.
    """

    pump: _Pump | None = None
    was_asked = True  # a proxy, for a tunnel, before the connection serves anybody

    def data_received(self, data: bytes) -> None:
        if not self.was_asked:
            self.refuse()
            return
        pump, parser = self.pump, self._parser
        if pump is None or parser is None or self._upgraded:
            super().data_received(data)
        else:  # as aiohttp does it, without its looks at what no body of ours can be: one of these for each token
            try:
                parsed = parser.feed_data(data)
            except BaseException as error:
                self._pass_on(error, data)
            else:
                if parsed[0] or parsed[1]:
                    self._pass_on(parsed, data)
        if pump is not None:
            pump.pull()
        if not self.was_asked and self.should_close:  # the answer has ended within this read, and more came with it
            self.refuse()

    def _pass_on(self, parsed: Any, data: bytes) -> None:
        """Has aiohttp do what it does about an error, or about one more answer."""
        parser, self._parser = self._parser, _Parsed(parsed)
        try:
            super().data_received(data)
        finally:
            if isinstance(self._parser, _Parsed):
                self._parser = parser

    def rest(self) -> None:
        """No request is on its way: nothing may come."""
        self.was_asked = False
        if self.should_close:
            self.refuse()

    def refuse(self) -> None:
        """Bytes have come that nobody asked for: whoever serves itself from this connection fails, and so do others."""
        if self._exception is None:
            self.set_exception(aiohttp.ClientConnectionError("the server sent an answer before it was asked"))
        if self.transport is not None:
            self.transport.abort()

    def hold(self) -> None:
        """Reads nothing more until aiohttp has room again: its parser has nothing left, and need not be told."""
        if self.transport is not None and not self._reading_paused:
            self._reading_paused = True
            self.transport.pause_reading()

    def resume_reading(self, resume_parser: bool = True) -> None:
        """aiohttp calls it after each read, and parses nothing once more, whether or not anything was paused."""
        if self._reading_paused or self._buffer_paused:
            super().resume_reading(resume_parser)

    def connection_lost(self, exc: BaseException | None) -> None:
        super().connection_lost(exc)
        if self.pump is not None:
            self.pump.pull()


class _Parsed:
    """Stands for a parser that has made this of a read: a result, or an error."""

    def __init__(self, parsed: Any) -> None:
        self._parsed = parsed

    def feed_data(self, data: bytes) -> Any:
        if isinstance(self._parsed, BaseException):
            raise self._parsed
        return self._parsed


# --- one request on its socket ------------------------------------------------------------------------------


class _Cell:
    """Which exchange is meant, while it lasts: a kept connection keeps the context in which it was made."""

    __slots__ = ("exchange",)

    def __init__(self, exchange: _Exchange | None) -> None:
        self.exchange = exchange


_NONE = _Cell(None)
_current: contextvars.ContextVar[_Cell] = contextvars.ContextVar("halter_exchange", default=_NONE)


class _Exchange:
    """One request and the socket that serves it, for as long as it does."""

    def __init__(self, request: HttpRequest, ctx: RunContext, progress: Progress) -> None:
        self.progress = progress
        self.is_proxied = proxy_for(request.url) is not None
        self.response: aiohttp.ClientResponse | None = None
        self.opened: list[socket.socket] = []  # raw sockets that this request has made
        self.is_severed = False  # by a stop
        self._in_use = threading.Lock()  # its sockets; never waited for, as a stop comes in signal handlers too
        self._raw: socket.socket | None = None
        self._protocol: ResponseHandler | None = None
        self._loop = asyncio.get_running_loop()
        self._gone: asyncio.Future[None] = self._loop.create_future()
        self._resource = ctx.resource("socket", request.label, self.abort, sever=self.sever)

    def take(self, connection: aiohttp.connector.Connection, raw: socket.socket | None) -> None:
        """This connection serves the request, until it goes back to the pool."""
        self._raw = raw
        self._protocol = connection.protocol
        self.progress.sending()

    def give_back(self) -> bool:
        """The answer has been read to its end: the connection is the next one's. False if a stop has ended it."""
        if self.is_severed or not self._in_use.acquire(blocking=False):
            return False
        try:
            if self.is_severed:
                return False
            self._raw = self._protocol = None
            self.opened.clear()
            return True
        finally:
            self._in_use.release()

    def sever(self) -> None:
        """Ends the traffic on its sockets; from any thread. Does nothing while they are given back."""
        if self._in_use.acquire(blocking=False):
            try:
                self.is_severed = True
                self._shut_down()
            finally:
                self._in_use.release()

    def _shut_down(self) -> None:
        for raw in (self._raw, *self.opened):
            if raw is not None:
                try:
                    raw.shutdown(socket.SHUT_RDWR)
                except OSError:
                    pass  # not connected yet, or gone already

    def abort(self) -> asyncio.Future[None]:
        """Ends the socket now; done when the transport has said that it is lost."""
        protocol = self._protocol
        closed = protocol.closed if protocol is not None else None  # made lazily, and only while connected
        self._shut_down()  # a thread that is about to do it finds a closed socket
        if protocol is not None and protocol.transport is not None:
            protocol.transport.abort()
        if closed is not None:
            closed.add_done_callback(self._on_closed)
        elif protocol is not None:
            self._on_closed(None)
        return self._gone

    def _on_closed(self, closed: asyncio.Future[None] | None) -> None:
        if closed is not None and not closed.cancelled():
            closed.exception()  # how it was lost does not matter
        if not self._gone.done():
            self._gone.set_result(None)

    def leave(self) -> None:
        """The request is over: what still serves it (it was left early) is aborted."""
        if self._loop.is_closed():
            self.sever()
            return
        if self._protocol is not None:
            self.abort()
        else:
            self._shut_down()
            self._look()
        if self.response is not None:
            self.response.close()
        if self._gone.done():
            self._finish(self._gone)
        else:
            self._gone.add_done_callback(self._finish)

    def _look(self) -> None:
        """Left while it was connecting: of these sockets nobody tells when they are gone."""
        if self._gone.done():
            return
        if any(raw.fileno() != -1 for raw in self.opened):
            self._loop.call_later(LOOK_AGAIN, self._look)
        else:
            self._gone.set_result(None)

    def _finish(self, _: asyncio.Future[None]) -> None:
        if not self._resource.is_closing:
            self._resource.end(Ended.FINISHED)


# --- the pool -----------------------------------------------------------------------------------------------


class _Pool:
    """One loop's connections."""

    def __init__(self, connections: int, public_only: bool) -> None:
        self._connector = _Connector(connections, public_only)
        self._session = aiohttp.ClientSession(
            connector=self._connector,
            timeout=NO_TIMEOUT,
            cookie_jar=aiohttp.DummyCookieJar(),
            skip_auto_headers=("User-Agent", "Accept-Encoding", "Accept"),
            headers={"Accept-Encoding": "identity"},
            read_bufsize=LARGEST_READ,  # what is above twice that waits in the kernel
            request_class=_Request,
        )
        self._session._retry_connection = False  # else a GET is sent twice where a kept connection breaks

    async def request(self, request: HttpRequest, ssl_context: ssl.SSLContext | None) -> aiohttp.ClientResponse:
        options: dict[str, Any] = {"ssl": ssl_context} if ssl_context is not None else {}
        headers = dict(request.headers)
        proxy = proxy_for(request.url)
        if proxy is not None:
            options["proxy"] = proxy.url
        if proxy is not None and proxy.authorization is not None:  # a tunnel is asked for with headers of its own
            is_tunnel = request.url.startswith("https:")
            asked = options.setdefault("proxy_headers", {}) if is_tunnel else headers
            asked["Proxy-Authorization"] = proxy.authorization
        return await self._session.request(
            request.method,
            URL(request.url),
            data=request.body if len(request.body) <= LARGE_BODY else io.BytesIO(request.body),
            headers=headers,
            allow_redirects=False,
            **options,
        )

    async def close(self) -> None:
        await self._session.close()

    def lose(self) -> None:
        """Its loop is gone, or another process's: nothing is closed here, and that loop is told nothing."""
        self._connector.lose()
        self._session.detach()


class _Request(aiohttp.ClientRequest):
    """aiohttp's request, which says when it is written: with its body, that is one round of the loop later."""

    async def send(self, conn: aiohttp.connector.Connection) -> aiohttp.ClientResponse:
        if not self._body:
            _ask(conn)
        return await super().send(conn)

    async def write_bytes(self, writer: Any, conn: aiohttp.connector.Connection, *args: Any, **options: Any) -> None:
        _ask(conn)
        await super().write_bytes(writer, conn, *args, **options)


def _ask(connection: aiohttp.connector.Connection) -> None:
    """From here on an answer may come; one that is there by now is none."""
    protocol, connector = connection.protocol, connection._connector
    if isinstance(protocol, _Handler) and isinstance(connector, _Connector):
        if not _is_encrypted(protocol) and connector.has_unread(protocol):
            protocol.refuse()
        protocol.was_asked = True


def _is_encrypted(protocol: ResponseHandler) -> bool:
    """Then what the kernel holds may be TLS's own, as the tickets that a server sends behind its handshake."""
    return protocol.transport is not None and protocol.transport.get_extra_info("sslcontext") is not None


class _Connector(aiohttp.TCPConnector):
    """aiohttp's pool, told apart by run."""

    def __init__(self, connections: int, public_only: bool) -> None:
        self._public_only = public_only
        super().__init__(  # pyright: ignore[reportUnknownMemberType]  # aiohttp leaves an address open
            limit=0,
            limit_per_host=connections,
            resolver=_ThreadResolver(),
            socket_factory=self._make_socket,
            keepalive_timeout=30.0,
        )
        self._factory = partial(_Handler, loop=self._loop)
        self._raw: WeakKeyDictionary[ResponseHandler, socket.socket] = WeakKeyDictionary()
        self._serving: dict[ResponseHandler | None, _Exchange] = {}

    def _make_socket(self, address: Any) -> socket.socket:
        family, kind, protocol, _, place = address
        exchange = _current.get().exchange
        if self._public_only and not (exchange is not None and exchange.is_proxied):
            _check_public(place[0])  # the very address that is connected to: no name can change its mind after this
        raw = socket.socket(family, kind, protocol)
        raw.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, RECEIVE_BUFFER)
        if exchange is not None:
            exchange.opened.append(raw)
        return raw

    async def connect(self, *args: Any, **options: Any) -> aiohttp.connector.Connection:
        connection = await super().connect(*args, **options)
        while isinstance(connection.protocol, _Handler) and self._is_stale(connection.protocol):
            connection.close()
            connection = await super().connect(*args, **options)
        exchange = _current.get().exchange
        if exchange is not None:
            exchange.take(connection, self._raw_of(connection, exchange))
            self._serving[connection.protocol] = exchange
        return connection

    def _release(self, key: Any, protocol: ResponseHandler, *, should_close: bool = False) -> None:
        """What does not go back to the pool is aborted here: left to aiohttp, it would be closed, and wait."""
        exchange = self._serving.pop(protocol, None)
        if exchange is not None and (should_close or protocol.should_close or not exchange.give_back()):
            should_close = True
            exchange.abort()
        super()._release(key, protocol, should_close=should_close)
        if isinstance(protocol, _Handler):
            protocol.was_asked = False

    def _is_stale(self, protocol: _Handler) -> bool:
        """Whether a kept connection has something to say, or has ended; a new one must only be silent."""
        if protocol in self._raw:
            return protocol.should_close or self.has_unread(protocol)
        protocol.rest()
        return False

    def has_unread(self, protocol: ResponseHandler) -> bool:
        """Whether the kernel holds bytes of this connection, or its end, that the loop has not come to read."""
        raw = self._raw.get(protocol)
        if raw is None:
            return False
        try:
            raw.recv(1, socket.MSG_PEEK | socket.MSG_DONTWAIT)
        except (BlockingIOError, InterruptedError):
            return False
        except OSError:
            pass  # gone
        return True

    async def _wait_for_available_connection(self, *args: Any, **options: Any) -> None:
        try:
            await super()._wait_for_available_connection(*args, **options)
        except BaseException:
            self._release_waiter()  # it may have been told of a free slot just before: the next one is
            raise

    def lose(self) -> None:
        self._closed = True

    async def _create_connection(self, *args: Any, **options: Any) -> ResponseHandler:
        exchange = _current.get().exchange
        if exchange is not None:
            exchange.progress.connecting()
        return await super()._create_connection(*args, **options)

    def _raw_of(self, connection: aiohttp.connector.Connection, exchange: _Exchange) -> socket.socket | None:
        protocol, transport = connection.protocol, connection.transport
        if protocol is None or transport is None:
            return None
        if protocol not in self._raw:
            number = transport.get_extra_info("socket").fileno()
            for raw in exchange.opened:
                if raw.fileno() == number:
                    self._raw[protocol] = raw
        return self._raw.get(protocol)


def _check_public(address: str) -> None:
    try:
        public = is_public(address)
    except ValueError:
        public = False
    if not public:
        raise OSError(errno.EACCES, f"{address} is no address of the public internet")


class _ThreadResolver(AbstractResolver):
    """Looks names up in daemon threads: `asyncio.run` and the interpreter join the loop's executor."""

    async def resolve(
        self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_INET
    ) -> list[ResolveResult]:
        flags = socket.AI_ADDRCONFIG
        found = await call_in_thread(
            socket.getaddrinfo, host, port, family=family, type=socket.SOCK_STREAM, flags=flags
        )
        return [
            ResolveResult(
                hostname=host,
                host=str(address[0]),
                port=int(address[1]),
                family=family,
                proto=proto,
                flags=socket.AI_NUMERICHOST | socket.AI_NUMERICSERV,
            )
            for family, _, proto, _, address in found
        ]

    async def close(self) -> None:
        """Nothing is kept."""
