"""The provider process: its listeners, its first line on stdout, its end."""

import asyncio
import os
import signal
import socket
import sys
import tempfile
from collections.abc import Generator
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from threading import Thread

import msgspec

from halter.proof.wire.certificates import Certificates, make_certificates
from halter.proof.wire.connection import Connection
from halter.proof.wire.provider import Provider
from halter.proof.wire.records import Hello
from halter.proof.wire.tls import TlsLayer

BACKLOG = 4096
# Fixed and small: what `no-read` leaves unread must not vanish into a buffer that grows.
RECEIVE_BUFFER = 256 * 1024
MOST_FILLERS = 16


class Options(msgspec.Struct, frozen=True, kw_only=True):
    """What the command line says."""

    host: str = "127.0.0.1"
    port: int = 0
    tls: bool = False
    recordings: Path | None = None
    parent_stdin: bool = False


async def serve(options: Options) -> None:
    """Listen, print the `Hello` line, serve until SIGTERM, SIGINT or, with `parent_stdin`, stdin's end."""
    over = asyncio.Event()
    _end_by_signals(over)
    provider = Provider(options.recordings)
    with ExitStack() as stack:
        certificates = stack.enter_context(_certificates()) if options.tls else None
        port = await _listen(stack, options.host, options.port, provider, None)
        tls_port = await _listen(stack, options.host, 0, provider, certificates) if certificates else None
        full = stack.enter_context(full_listener(options.host))
        hello = Hello(
            port=port,
            tls_port=tls_port,
            no_accept_port=full,
            ca_file=str(certificates.ca_file) if certificates else None,
        )
        print(msgspec.json.encode(hello).decode(), flush=True)
        if options.parent_stdin:
            _end_with_stdin(over)
        await over.wait()


async def _listen(stack: ExitStack, host: str, port: int, provider: Provider, certificates: Certificates | None) -> int:
    context = certificates.server_context() if certificates else None

    def connection() -> Connection:
        return Connection(provider, TlsLayer(context) if context else None)

    listener = socket.create_server((host, port), backlog=BACKLOG)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, RECEIVE_BUFFER)
    server = await asyncio.get_running_loop().create_server(connection, sock=listener, backlog=BACKLOG)
    stack.callback(server.close)
    return _port(listener)


@contextmanager
def full_listener(host: str) -> Generator[int, None, None]:
    """A port whose queue of connections is full, so that a connect() to it hangs."""
    with ExitStack() as stack:
        listener = stack.enter_context(closing(socket.create_server((host, 0), backlog=0)))
        address = listener.getsockname()
        for _ in range(MOST_FILLERS):
            filler = stack.enter_context(closing(socket.socket(listener.family)))
            filler.settimeout(0.05)
            try:
                filler.connect(address)
            except TimeoutError:
                break
        yield _port(listener)


@contextmanager
def _certificates() -> Generator[Certificates, None, None]:
    with tempfile.TemporaryDirectory(prefix="halter-wire-") as directory:
        yield make_certificates(Path(directory))


def _port(listener: socket.socket) -> int:
    return int(listener.getsockname()[1])


def _end_by_signals(over: asyncio.Event) -> None:
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        if sys.platform == "win32":
            signal.signal(number, lambda number, frame: loop.call_soon_threadsafe(over.set) and None)
        else:
            loop.add_signal_handler(number, over.set)


def _end_with_stdin(over: asyncio.Event) -> None:
    loop = asyncio.get_running_loop()

    def read_to_the_end() -> None:
        # os.read: a thread inside sys.stdin would hold its lock while the interpreter ends.
        while os.read(0, 4096):
            pass
        loop.call_soon_threadsafe(over.set)

    Thread(target=read_to_the_end, name="parent-stdin", daemon=True).start()
