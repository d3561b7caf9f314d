"""An MCP server as a child process: spoken to over its stdin and stdout, and ended with everything that it has started.

The SDK would start it as well, but outside of Halter's supervision: it could then outlive this process, and leave
behind what it has started.
Source: https://modelcontextprotocol.io/specification/latest/basic/transports (stdio), …/basic/lifecycle (shutdown)
"""

from __future__ import annotations

import asyncio
import math
import os
import sys
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import asynccontextmanager, suppress

import anyio
import mcp_types
from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream
from mcp.client.stdio import get_default_environment
from mcp.shared.message import SessionMessage

from halter.children.child import Child
from halter.errors import ConfigurationError

CLOSE_GRACE = 1.0  # seconds in which a server may end by itself once its stdin is closed
TERM_GRACE = 1.0  # seconds between TERM and KILL
LONGEST_LINE = 64 * 1024 * 1024  # bytes; a server that never ends its line is ended

Incoming = SessionMessage | Exception
Streams = tuple[MemoryObjectReceiveStream[Incoming], MemoryObjectSendStream[SessionMessage]]


@asynccontextmanager
async def stdio_server(
    command: Sequence[str], env: Mapping[str, str] | None = None, cwd: str | None = None
) -> AsyncGenerator[Streams]:
    """Starts a server; yields the SDK's two streams, of what it says and of what it is told.

    `env`: more variables than the few that the SDK passes on. At the end its stdin is closed; if it does not end by
    itself within a second, its whole tree is ended: TERM, and KILL a second later. Raises `ConfigurationError` if it
    cannot be started. Cancellation-safe: cancelled, it is ended at once.
    """
    said, incoming = anyio.create_memory_object_stream[Incoming](math.inf)
    outgoing, to_tell = anyio.create_memory_object_stream[SessionMessage](0)
    read, write = os.pipe()
    stdin = _Stdin(write)
    try:
        child = _start(command, {**get_default_environment(), **(env or {})}, cwd, read, _Lines(said))
    except BaseException:
        stdin.close()
        raise
    finally:
        os.close(read)
    child.outlives_runs = True
    child.exited.add_done_callback(lambda _: said.close())
    teller = asyncio.create_task(_tell(to_tell, stdin, said))
    try:
        with incoming, outgoing:
            yield incoming, outgoing
        with suppress(TimeoutError):
            async with asyncio.timeout(CLOSE_GRACE):
                await teller
                stdin.close()
                await child.wait()
    finally:
        gone = child.end(TERM_GRACE)
        teller.cancel()
        stdin.close()
        said.close()
        await asyncio.shield(gone)


def _start(command: Sequence[str], environment: Mapping[str, str], cwd: str | None, stdin: int, lines: _Lines) -> Child:
    try:
        return Child.start(
            command, environment=environment, cwd=cwd, on_output=lines.feed, stdin=stdin, stderr=_stderr()
        )
    except (OSError, ValueError) as error:
        raise ConfigurationError(f"the MCP server {command[0]!r} could not be started: {error}") from error


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


async def _tell(
    to_tell: MemoryObjectReceiveStream[SessionMessage], stdin: _Stdin, said: MemoryObjectSendStream[Incoming]
) -> None:
    """Writes messages until there are no more, or nobody reads them."""
    with to_tell:
        try:
            async for each in to_tell:
                await stdin.write(each.message.model_dump_json(by_alias=True, exclude_unset=True).encode() + b"\n")
        except OSError:
            said.close()  # else a request would wait for its answer for ever


class _Stdin:
    """The writing end of a pipe, on a loop."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor: int | None = descriptor
        os.set_blocking(descriptor, False)

    async def write(self, data: bytes) -> None:
        """Raises `OSError` if nobody reads it any more. One at a time."""
        rest = memoryview(data)
        while rest:
            if self._descriptor is None:
                raise BrokenPipeError
            try:
                rest = rest[os.write(self._descriptor, rest) :]
            except BlockingIOError:
                await self._writable(self._descriptor)

    async def _writable(self, descriptor: int) -> None:
        loop = asyncio.get_running_loop()
        ready = loop.create_future()
        loop.add_writer(descriptor, lambda: ready.done() or ready.set_result(None))
        try:
            await ready
        finally:
            loop.remove_writer(descriptor)

    def close(self) -> None:
        descriptor, self._descriptor = self._descriptor, None
        if descriptor is not None:
            os.close(descriptor)
