"""A web server on a loopback socket that answers as it is told, and knows when its clients have gone."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

Answering = Callable[["Client"], Awaitable[None]]


@dataclass
class Client:
    """One connection. `gone_at`: when the other side has closed it, on the monotonic clock."""

    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter
    path: str = ""
    headers: dict[str, str] = field(default_factory=dict)
    sent: int = 0
    gone_at: float | None = None

    async def say(self, data: bytes) -> None:
        self.writer.write(data)
        await self.writer.drain()
        self.sent += len(data)

    async def answer(self, body: bytes, kind: str = "text/plain", status: str = "200 OK", **headers: str) -> None:
        lines = [f"HTTP/1.1 {status}", f"content-length: {len(body)}", *([f"content-type: {kind}"] if kind else [])]
        lines += [f"{name.replace('_', '-')}: {value}" for name, value in headers.items()]
        await self.say("\r\n".join([*lines, "", ""]).encode() + body)

    async def wait_until_gone(self) -> None:
        try:
            while await self.reader.read(65536):
                pass
        except ConnectionError:
            pass
        self.gone_at = time.monotonic()


@dataclass
class Server:
    """`routes`: what is said under a path. `otherwise`: what is said under any other; `None`: that it is not found."""

    port: int
    routes: dict[str, Answering]
    otherwise: Answering | None = None
    clients: list[Client] = field(default_factory=list)
    asked: list[str] = field(default_factory=list)  # paths

    def url(self, path: str, host: str = "127.0.0.1") -> str:
        return f"http://{host}:{self.port}{path}"

    async def awaited(self, holds: Callable[[], bool], patience: float = 5.0) -> None:
        until = time.monotonic() + patience
        while not holds():
            assert time.monotonic() < until, "has not happened"
            await asyncio.sleep(0.005)

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        client = Client(reader, writer)
        self.clients.append(client)
        try:
            while head := await reader.readuntil(b"\r\n\r\n"):
                request, *lines = head.decode().split("\r\n")
                client.path = request.split(" ")[1]
                client.headers = dict(line.lower().split(": ", 1) for line in lines if line)
                self.asked.append(client.path)
                await self.routes.get(client.path, self.otherwise or not_found)(client)
        except (asyncio.IncompleteReadError, ConnectionError):
            client.gone_at = client.gone_at or time.monotonic()
        finally:
            writer.close()


async def not_found(client: Client) -> None:
    await client.answer(b"<html><body><p>Nothing <b>here</b></body></html>", "text/html", "404 Not Found")


@asynccontextmanager
async def serving(**routes: Answering) -> AsyncGenerator[Server]:
    """Under `/name` the answer of that name."""
    server = Server(0, {f"/{name}": answer for name, answer in routes.items()})
    listener = await asyncio.start_server(server.serve, "127.0.0.1", 0)
    server.port = listener.sockets[0].getsockname()[1]
    async with listener:
        yield server
        for client in server.clients:
            client.writer.transport.abort()
        await asyncio.sleep(0)
