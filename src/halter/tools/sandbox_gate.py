"""The one door of a sandbox whose network is a list of hosts: a proxy on the loopback interface of its own network.

The sandbox's network namespace has nothing else in it, so that whatever does not speak to the proxy reaches nobody. Its
listening socket was made in there and sent here (`sandbox_start.py`): connections are accepted on this side. 1. Names
are looked up here, once, and it is the address that was checked which is connected to. 2. It speaks CONNECT, and plain
HTTP with one request to each connection. 3. It closes when nothing of the program is left.

It sees the names that clients ask for and never inside TLS: who is behind an allowed host's address decides what it
serves there.
"""

from __future__ import annotations

import asyncio
import re
import socket
from contextlib import suppress
from urllib.parse import urlsplit

from halter.core.threads import call_in_thread
from halter.net.addresses import is_host
from halter.net.proxies import Proxy, proxy_for
from halter.tools.sandbox_hosts import AllowedHosts

MOST_CONNECTIONS = 256  # at once
PATIENCE = 20.0  # seconds for a request's head, and for a connection
READ = 64 * 1024  # bytes
_LINE = re.compile(rb"([A-Z]{1,20}) ([\x21-\x7e]{1,8000}) HTTP/1\.[01]")
_OURS = (b"host", b"connection", b"proxy-connection", b"proxy-authorization", b"keep-alive", b"upgrade")


class _Refused(Exception):
    """What a client is told. `status`: of HTTP."""

    def __init__(self, status: str, why: str) -> None:
        super().__init__(why)
        self.status = status


class Gate:
    """The proxy of one program, on the loop that runs. `handover`: to be inherited by what starts the program."""

    def __init__(self, hosts: AllowedHosts) -> None:
        self._hosts = hosts
        self._loop = asyncio.get_running_loop()
        self._ours, self.handover = socket.socketpair()
        self._ours.setblocking(False)
        self._tasks: set[asyncio.Task[None]] = set()
        self._writers: set[asyncio.StreamWriter] = set()
        self._server: asyncio.Server | None = None
        self._is_closed = False
        self._has_heard: asyncio.Future[None] = self._loop.create_future()

    async def open(self) -> None:
        """Waits for the listening socket, which comes once the program has been started; then accepts connections.

        Returns without one where the program could not enter its sandbox. Cancellation-safe: call `close`.
        """
        self.handover.close()  # else nobody would be missed who does not send it
        if self._is_closed:
            return
        self._loop.add_reader(self._ours, self._hear)
        await self._has_heard
        if self._is_closed:
            return
        try:
            found = socket.recv_fds(self._ours, 1, 1)[1]
        except OSError:  # it has ended
            return
        if found:
            listener = socket.socket(fileno=found[0])
            listener.setblocking(False)
            self._server = await asyncio.start_server(self._serve, sock=listener, limit=READ)
            if self._is_closed:
                self._server.close()

    def _hear(self) -> None:
        self._loop.remove_reader(self._ours)
        if not self._has_heard.done():
            self._has_heard.set_result(None)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """One connection, in a task that asyncio has made for it."""
        task = asyncio.current_task()
        if self._is_closed or task is None or len(self._tasks) >= MOST_CONNECTIONS:
            writer.transport.abort()
            return
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        self._writers.add(writer)
        with suppress(asyncio.CancelledError):  # by `close`: asyncio would log it
            await self._answer(reader, writer)

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        there: asyncio.StreamWriter | None = None
        try:
            async with asyncio.timeout(PATIENCE):
                head = await reader.readuntil(b"\r\n\r\n")
                method, host, port, rest = _read(head)
                answers, there = await self._connected(method, host, port)
            self._writers.add(there)
            if method == b"CONNECT":
                writer.write(b"HTTP/1.1 200 Connection established\r\n\r\n")
            else:
                there.write(rest)
            await asyncio.gather(_pump(reader, there), _pump(answers, writer))
        except _Refused as refused:
            await _refuse(writer, refused.status, str(refused))
        except asyncio.LimitOverrunError:
            await _refuse(writer, "431 Request Header Fields Too Large", "its head is too long")
        except (OSError, asyncio.IncompleteReadError, TimeoutError) as error:
            if there is None:
                await _refuse(writer, "502 Bad Gateway", f"no connection: {error or type(error).__name__}")
        finally:
            for each in (writer, there):
                if each is not None:
                    self._writers.discard(each)
                    each.transport.abort() if self._is_closed else each.close()

    async def _connected(
        self, method: bytes, host: str, port: int
    ) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        refusal = self._hosts.refusal(host, port)
        if refusal is not None:
            raise _Refused("403 Forbidden", refusal)
        scheme = "http" if method != b"CONNECT" else "https"
        shown = f"[{host}]" if ":" in host else host
        proxy = proxy_for(f"{scheme}://{shown}:{port}/")
        try:
            found = await call_in_thread(socket.getaddrinfo, host, port, type=socket.SOCK_STREAM)
        except (OSError, UnicodeError) as error:
            if proxy is None:
                raise _Refused("502 Bad Gateway", f"{host} cannot be found: {error}") from error
            found = []  # behind a proxy a machine need not know names
        addresses = list(dict.fromkeys(str(address[0]) for *_, address in found))
        for address in addresses:
            if not self._hosts.allows_address(address):
                raise _Refused("403 Forbidden", f"{host} is at {address}, which is no address of the public internet")
        if proxy is not None:
            return await _through(proxy, shown, port)
        return await _first_of(addresses, port)

    def close(self) -> None:
        """Cuts all connections; from the loop."""
        if self._is_closed:
            return
        self._is_closed = True
        self._hear()
        self._ours.close()
        self.handover.close()
        if self._server is not None:
            self._server.close()
        for writer in self._writers:
            writer.transport.abort()
        for task in self._tasks:
            task.cancel()


def _read(head: bytes) -> tuple[bytes, str, int, bytes]:
    """The method, the host and port that are asked for, and the head that their server is to get."""
    line, *fields = head[:-4].split(b"\r\n")
    asked = _LINE.fullmatch(line)
    if asked is None:
        raise _Refused("400 Bad Request", "this is a proxy for HTTP/1.1: it takes CONNECT host:port, and http:// URLs")
    method, target = asked[1], asked[2].decode("ascii")
    try:
        place = urlsplit(f"//{target}" if method == b"CONNECT" else target)
        host, port = (place.hostname or "").rstrip("."), place.port or (0 if method == b"CONNECT" else 80)
    except ValueError as error:
        raise _Refused("400 Bad Request", f"{target[:200]} names no host and port: {error}") from error
    is_url = method == b"CONNECT" or place.scheme == "http"
    if not is_url or not port or not is_host(host) or "@" in place.netloc or "%" in host:
        raise _Refused("400 Bad Request", f"{target[:200]} names no host and port")
    path = (place.path or "/") + (f"?{place.query}" if place.query else "")
    kept = [field for field in fields if field.partition(b":")[0].strip().lower() not in _OURS]
    first = (b"%s %s HTTP/1.1" % (method, path.encode("ascii")), b"Host: " + place.netloc.encode("ascii"))
    return method, host, port, b"\r\n".join((*first, *kept, b"Connection: close", b"", b""))


async def _first_of(addresses: list[str], port: int) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """A connection to the first of them that answers."""
    failure: OSError | None = None
    for address in addresses:
        try:
            return await asyncio.open_connection(address, port, limit=READ)
        except OSError as error:
            failure = error
    raise failure or OSError("it has no address")


async def _through(proxy: Proxy, host: str, port: int) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """A tunnel through the proxy that this machine has to use itself."""
    place = urlsplit(proxy.url)
    is_tls = place.scheme == "https"
    reader, writer = await asyncio.open_connection(
        place.hostname, place.port or (443 if is_tls else 80), ssl=is_tls or None, limit=READ
    )
    try:
        said = [f"CONNECT {host}:{port} HTTP/1.1", f"Host: {host}:{port}"]
        said += [] if proxy.authorization is None else [f"Proxy-Authorization: {proxy.authorization}"]
        writer.write("\r\n".join((*said, "", "")).encode())
        status = (await reader.readuntil(b"\r\n\r\n")).split(b" ", 2)[1:2]
        if status != [b"200"]:
            raise _Refused("502 Bad Gateway", f"the proxy before {host} refused the connection")
    except BaseException:
        writer.close()
        raise
    return reader, writer


async def _pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """All that one side says, to the other; then its end."""
    while data := await reader.read(READ):
        writer.write(data)
        await writer.drain()
    if writer.can_write_eof():
        writer.write_eof()


async def _refuse(writer: asyncio.StreamWriter, status: str, why: str) -> None:
    body = f"Halter's sandbox: {why}\n".encode()
    writer.write(
        f"HTTP/1.1 {status}\r\nContent-Type: text/plain\r\nContent-Length: {len(body)}\r\n"
        f"X-Halter-Refused: {why[:500].encode('ascii', 'replace').decode()}\r\nConnection: close\r\n\r\n".encode()
        + body
    )
    with suppress(OSError, TimeoutError):
        async with asyncio.timeout(PATIENCE):
            await writer.drain()
