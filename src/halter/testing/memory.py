"""A provider in memory: a `ByteSource` that answers from a script, on the loop's own clock.

1. Policy (time-outs, retries, watchdogs) is tested over it in virtual time; whether a *socket* really closes
is not: that is what the recording provider is for. 2. Each request is recorded before anything happens to it,
and its record says how it ended. 3. Like a real connection it is a resource of the run: a stop closes it.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping
from types import TracebackType
from typing import TypeAlias

from halter.core.context import RunContext
from halter.core.ports import HttpRequest, Progress
from halter.errors import ConnectionFailed
from halter.testing.answers import (
    HANG,
    Answer,
    Delay,
    chat_stream,
    cut,
    eof,
    error_frame,
    error_status,
    no_head,
    no_slot,
    stalled,
)
from halter.testing.memory_request import How, MemoryRequest

__all__ = [
    "HANG",
    "Answer",
    "MemoryRequest",
    "MemorySource",
    "chat_stream",
    "cut",
    "eof",
    "error_frame",
    "error_status",
    "no_head",
    "no_slot",
    "stalled",
]

Script: TypeAlias = Answer | Callable[[HttpRequest], Answer]


class MemorySource:
    """A `ByteSource` that gives the n-th request the n-th of `answers`.

    An answer that is a function is called with the `HttpRequest` and returns the `Answer`. `repeat`: begin
    again after the last one; without it, a request too many is an `AssertionError`. `requests`: all that were
    made, in order. One source serves any number of runs and loops in one thread.
    """

    def __init__(self, *answers: Script, repeat: bool = False) -> None:
        if not answers:
            raise ValueError("a source in memory needs an answer")
        self.requests: list[MemoryRequest] = []
        self._answers = answers
        self._repeat = repeat

    def open(self, request: HttpRequest, ctx: RunContext, progress: Progress) -> _Exchange:
        return _Exchange(self, request, ctx, progress)

    @property
    def open_requests(self) -> list[MemoryRequest]:
        """Those that nobody has ended: none, after a stop."""
        return [record for record in self.requests if record.is_open]

    def answer(self, request: HttpRequest) -> tuple[MemoryRequest, Answer]:
        """Records the request, and takes its answer from the script."""
        number = len(self.requests)
        if number >= len(self._answers) and not self._repeat:
            scripted = f"{len(self._answers)} answers are scripted"
            raise AssertionError(f"nobody expected request {number + 1}, {request.label}: {scripted}")
        record = MemoryRequest(request, asyncio.get_running_loop().time())
        self.requests.append(record)
        scripted = self._answers[number % len(self._answers)]
        return record, scripted if isinstance(scripted, Answer) else scripted(request)

    def __repr__(self) -> str:
        return f"<MemorySource {len(self.requests)} requests, {len(self.open_requests)} open>"


class _Exchange:
    """One request on its way through the phases."""

    def __init__(self, source: MemorySource, request: HttpRequest, ctx: RunContext, progress: Progress) -> None:
        self._source, self._request, self._ctx, self._progress = source, request, ctx, progress

    async def __aenter__(self) -> _Body:
        record, answer = self._source.answer(self._request)
        self._connection = _Connection(record)
        self._resource = self._ctx.resource("socket", self._request.label, self._connection.abort)
        try:
            await self._until_head(record, answer)
        except BaseException:
            self._leave()
            raise
        return _Body(answer, self._connection)

    async def _until_head(self, record: MemoryRequest, answer: Answer) -> None:
        wait = self._connection.wait
        await wait(answer.pool)
        record.phase = "connect"
        self._progress.connecting()
        await wait(answer.connect)
        record.phase = "head"
        self._progress.sending()
        await wait(answer.head)
        record.phase = "body"

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._leave()

    def _leave(self) -> None:
        self._connection.abort()
        if not self._resource.is_closing:
            self._resource.end()


class _Connection:
    """What can be waited on, and cut off meanwhile."""

    def __init__(self, record: MemoryRequest) -> None:
        self.record = record
        self._loop = asyncio.get_running_loop()
        self._waiter: asyncio.Future[None] | None = None

    async def wait(self, delay: Delay) -> None:
        """Waits, or fails as scripted; raises `ConnectionFailed` if the connection is cut off."""
        if isinstance(delay, Exception):
            self.end("broken")
            raise delay
        if not self.record.is_open:
            raise self._gone()
        if delay > 0:
            await self._sleep(delay)

    async def _sleep(self, delay: float) -> None:
        waiter = self._waiter = self._loop.create_future()
        timer = None if delay == HANG else self._loop.call_later(delay, _wake, waiter)
        try:
            await waiter
        finally:
            self._waiter = None
            if timer is not None:
                timer.cancel()

    def abort(self) -> None:
        """Ends it now, unless it has ended. What waits on it fails."""
        self.end("aborted")
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_exception(self._gone())

    def end(self, how: How) -> None:
        self.record.end(how, self._loop.time())
        self.record.phase = "over" if how == "finished" else self.record.phase

    def _gone(self) -> ConnectionFailed:
        return ConnectionFailed(f"{self.record.request.label}: the connection is closed")


def _wake(waiter: asyncio.Future[None]) -> None:
    if not waiter.done():
        waiter.set_result(None)


class _Body:
    """The answer as a `ByteStream`."""

    def __init__(self, answer: Answer, connection: _Connection) -> None:
        self.status = answer.status
        self.headers: Mapping[str, str] = {name.lower(): value for name, value in answer.headers.items()}
        self._pieces = iter(answer.body)
        self._connection = connection

    def __aiter__(self) -> AsyncIterator[bytes]:
        return self

    async def pump(self, take: Callable[[bytes], bool]) -> bool:
        async for piece in self:
            if take(piece):
                return True
        return False

    async def __anext__(self) -> bytes:
        record = self._connection.record
        if record.ended == "finished":
            raise StopAsyncIteration
        piece = next(self._pieces, None)
        if piece is None:
            await self._connection.wait(0.0)
            self._connection.end("finished")
            raise StopAsyncIteration
        delay, data = (piece, b"") if isinstance(piece, Exception) else piece
        await self._connection.wait(delay)
        record.bytes_read += len(data)
        return data
