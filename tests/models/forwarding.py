"""A proxy on a loopback socket (RFC 9110, 9.3.6 and 7.6): tunnels by CONNECT, and forwards absolute URLs."""

from __future__ import annotations

import socket
import threading
from base64 import b64decode
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Literal
from urllib.parse import urlsplit

Way = Literal["open", "silent", "refusing", "bad gateway", "garbled"]


@dataclass
class Asked:
    """One request to the proxy itself. `target`: a URL, or `host:port` of a tunnel."""

    method: str
    target: str
    headers: dict[str, str]


@dataclass
class Proxy:
    """`way`: `silent` takes a connection and says nothing; `refusing` answers 407, and repeats what it was told.

    `bad gateway` answers 502 in the same words, `garbled` no HTTP at all.
    """

    way: Way
    listener: socket.socket
    asked: list[Asked] = field(default_factory=list)
    open: set[socket.socket] = field(default_factory=set)
    closed_by_client: threading.Event = field(default_factory=threading.Event)

    @property
    def url(self) -> str:
        return f"127.0.0.1:{self.listener.getsockname()[1]}"

    def serve(self) -> None:
        while True:
            try:
                client, _ = self.listener.accept()
            except OSError:
                return
            self.open.add(client)
            threading.Thread(target=self._talk, args=(client,), daemon=True).start()

    def _talk(self, client: socket.socket) -> None:
        upstream: socket.socket | None = None
        try:
            while (request := _head(client)) is not None:
                method, target, headers, rest = request
                self.asked.append(Asked(method, target, headers))
                if self.way == "silent":
                    continue  # until the client hangs up
                if self.way != "open":
                    client.sendall(_refusal(self.way, headers.get("proxy-authorization", "Basic")))
                    continue
                place = urlsplit(target if method != "CONNECT" else f"//{target}")
                if upstream is None:
                    upstream = socket.create_connection((place.hostname, place.port or 80))
                    self.open.add(upstream)
                    threading.Thread(target=_pump, args=(upstream, client), daemon=True).start()
                if method == "CONNECT":
                    client.sendall(b"HTTP/1.1 200 OK\r\n\r\n")
                    _pump(client, upstream)
                    return
                path = place._replace(scheme="", netloc="").geturl()
                lines = [f"{method} {path} HTTP/1.1", *(f"{n}: {v}" for n, v in headers.items() if n[:6] != "proxy-")]
                upstream.sendall("\r\n".join([*lines, "", ""]).encode() + rest)
                _copy(client, upstream, int(headers.get("content-length", "0")) - len(rest))
        except OSError:
            pass
        finally:
            self.closed_by_client.set()
            for end in filter(None, (client, upstream)):
                _shut(end)

    def close(self) -> None:
        for each in (self.listener, *self.open):
            _shut(each)
            each.close()


def _refusal(way: Way, told: str) -> bytes:
    if way == "garbled":
        return f"HTTP/1.1 no {told}\r\n\r\n".encode()
    said = f"no entry for {told}, {b64decode(told.partition(' ')[2]).decode()}".encode()
    status = b"407 No" if way == "refusing" else b"502 No"
    return b"HTTP/1.1 %s\r\ncontent-length: %d\r\n\r\n%s" % (status, len(said), said)


def _head(client: socket.socket) -> tuple[str, str, dict[str, str], bytes] | None:
    data = b""
    while b"\r\n\r\n" not in data:
        piece = client.recv(65536)
        if not piece:
            return None
        data += piece
    head, _, rest = data.partition(b"\r\n\r\n")
    first, *lines = head.decode().split("\r\n")
    headers = {name.strip().lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
    return first.split(" ")[0], first.split(" ")[1], headers, rest


def _copy(source: socket.socket, target: socket.socket, count: int) -> None:
    while count > 0:
        piece = source.recv(min(count, 65536))
        if not piece:
            raise ConnectionError
        target.sendall(piece)
        count -= len(piece)


def _pump(source: socket.socket, target: socket.socket) -> None:
    try:
        while piece := source.recv(65536):
            target.sendall(piece)
    except OSError:
        pass
    for end in (source, target):
        _shut(end)


def _shut(end: socket.socket) -> None:
    try:
        end.shutdown(socket.SHUT_RDWR)
    except OSError:
        pass


@contextmanager
def forwarding(way: Way = "open") -> Generator[Proxy]:
    """A proxy in threads of this process, until the end of the block."""
    proxy = Proxy(way, socket.create_server(("127.0.0.1", 0)))
    threading.Thread(target=proxy.serve, daemon=True).start()
    try:
        yield proxy
    finally:
        proxy.close()
