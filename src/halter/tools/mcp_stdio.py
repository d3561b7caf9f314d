"""An MCP server as a child process: spoken to over its stdin and stdout, and ended with everything that it has started.

The SDK would start it as well, but outside of Halter's supervision: it could then outlive this process, and leave
behind what it has started.
Source: https://modelcontextprotocol.io/specification/latest/basic/transports (stdio), …/basic/lifecycle (shutdown)
"""

from __future__ import annotations

import asyncio
import logging
import math
import os
import sys
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from types import TracebackType
from typing import Self, cast

import anyio
import mcp_types
from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream
from mcp.client.stdio import get_default_environment
from mcp.shared.message import SessionMessage

from halter.children.child import Child
from halter.errors import ConfigurationError
from halter.tools.sandbox import SandboxOption, sandbox_of
from halter.tools.sandboxed import Sandboxed

CLOSE_GRACE = 1.0  # seconds in which a server may end by itself once its stdin is closed
TERM_GRACE = 1.0  # seconds between TERM and KILL
LONGEST_LINE = 64 * 1024 * 1024  # bytes; a server that never ends its line is ended

_logger = logging.getLogger("halter")
Incoming = SessionMessage | Exception
Streams = tuple[MemoryObjectReceiveStream[Incoming], "_Stdin"]


@asynccontextmanager
async def stdio_server(
    command: Sequence[str],
    env: Mapping[str, str] | None = None,
    cwd: str | None = None,
    sandbox: SandboxOption = None,
    *,
    on_end: Callable[[], object] | None = None,
) -> AsyncGenerator[Streams]:
    """Starts a server; yields the SDK's two streams, of what it says and of what it is told.

    `env`: more variables than the few that the SDK passes on. At the end its stdin is closed; if it does not end by
    itself within a second, its whole tree is ended: TERM, and KILL a second later. Raises `ConfigurationError` if it
    cannot be started, and `SandboxUnavailable`. `on_end()`: called when the server's process has ended.
    Cancellation-safe: cancelled, it is ended at once.
    """
    said, incoming = anyio.create_memory_object_stream[Incoming](math.inf)
    child = Child(_Lines(said).feed)
    child.outlives_runs = True
    child.exited.add_done_callback(lambda _: _note_end(child, command[0]))
    child.exited.add_done_callback(lambda _: said.close())
    if on_end is not None:
        child.exited.add_done_callback(lambda _: on_end())
    stdin: _Stdin | None = None
    try:
        write = await _start(child, command, {**get_default_environment(), **(env or {})}, cwd, sandbox)
        stdin = await _Stdin.over(write, said.close)
        with incoming:
            yield incoming, stdin
        stdin.close()
        with suppress(TimeoutError):
            async with asyncio.timeout(CLOSE_GRACE):
                await child.wait()
    finally:
        gone = child.end(TERM_GRACE)
        if stdin is not None:
            stdin.abort()
        said.close()
        incoming.close()
        await asyncio.shield(gone)


def _note_end(child: Child, name: str) -> None:
    """A call that waits is told that the connection was closed; the log says why, if that was a limit."""
    if child.has_exceeded_a_limit:
        _logger.warning("the MCP server %r was %s", name, child.how_it_ended)


async def _start(
    child: Child, command: Sequence[str], environment: Mapping[str, str], cwd: str | None, sandbox: SandboxOption
) -> int:
    """Returns a descriptor of the server's stdin."""
    read, write = os.pipe()
    try:
        sandboxed, directory = Sandboxed(sandbox_of(sandbox)), cwd or os.getcwd()
        await sandboxed.start(child, command, environment=environment, cwd=directory, stdin=read, stderr=_stderr())
    except BaseException as error:
        os.close(write)
        if isinstance(error, OSError | ValueError) and not isinstance(error, ConfigurationError):
            raise ConfigurationError(f"the MCP server {command[0]!r} could not be started: {error}") from error
        raise
    finally:
        os.close(read)
    return write


def _stderr() -> int:
    """This process's, for what the server logs."""
    try:
        return sys.stderr.fileno()
    except (AttributeError, OSError, ValueError):  # it was replaced by something that is no file
        return 2


class _Lines:
    """What a server says, as messages."""

    def __init__(self, said: MemoryObjectSendStream[Incoming]) -> None:
        self._said = said
        self._rest = bytearray()

    def feed(self, data: bytes) -> None:
        *lines, rest = data.split(b"\n")
        for line in lines:
            self._rest += line
            self._send(_message(bytes(self._rest)))
            self._rest.clear()
        self._rest += rest
        if len(self._rest) > LONGEST_LINE:
            self._rest.clear()
            self._send(ValueError(f"the MCP server has sent a line of more than {LONGEST_LINE:,} bytes"))
            self._said.close()

    def _send(self, message: Incoming) -> None:
        with suppress(anyio.BrokenResourceError, anyio.ClosedResourceError):  # nobody reads any more
            self._said.send_nowait(message)


def _message(line: bytes) -> Incoming:
    try:
        return SessionMessage(mcp_types.jsonrpc_message_adapter.validate_json(line, by_name=False))
    except ValueError as error:
        return error


class _Stdin(asyncio.BaseProtocol):
    """What a server is told: the SDK's stream for writing, over a pipe. A message is written whole, or not at all."""

    def __init__(self, on_lost: Callable[[], object]) -> None:
        self._on_lost = on_lost
        self._transport: asyncio.WriteTransport | None = None
        self._may_write = asyncio.Event()
        self._may_write.set()

    @classmethod
    async def over(cls, descriptor: int, on_lost: Callable[[], object]) -> _Stdin:
        """Takes the descriptor over. `on_lost()`: called when nobody reads any more, else requests would wait on."""
        pipe = os.fdopen(descriptor, "wb", 0)
        try:
            _, stdin = await asyncio.get_running_loop().connect_write_pipe(lambda: cls(on_lost), pipe)
        except BaseException:
            pipe.close()
            raise
        return stdin

    async def send(self, item: SessionMessage, /) -> None:
        """Raises `BrokenResourceError` once the server reads no more. Cancellation-safe: what was begun goes on."""
        await self._may_write.wait()
        if self._transport is None or self._transport.is_closing():  # closed, or lost
            raise anyio.BrokenResourceError
        self._transport.write(item.message.model_dump_json(by_alias=True, exclude_unset=True).encode() + b"\n")

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.WriteTransport", transport)

    def pause_writing(self) -> None:
        self._may_write.clear()

    def resume_writing(self) -> None:
        self._may_write.set()

    def connection_lost(self, exc: Exception | None) -> None:
        self._transport = None
        self._may_write.set()
        self._on_lost()

    def close(self) -> None:
        """Closes it when all is written."""
        if self._transport is not None:
            self._transport.close()

    def abort(self) -> None:
        if self._transport is not None:
            self._transport.abort()

    async def aclose(self) -> None:
        self.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, exc_type: type[BaseException] | None, exc_val: BaseException | None, exc_tb: TracebackType | None
    ) -> None:
        self.close()
