"""A run of the store as a response: what all routes that stream answer with."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from starlette.types import Receive, Scope, Send

from halter.server.frames import StreamFormat, stream_format
from halter.server.names import Names
from halter.server.port import RunKey
from halter.server.problems import Problem
from halter.server.server import Server
from halter.server.stream import Cursor, FeedStream


async def run_stream(
    server: Server,
    key: RunKey,
    format: str | Callable[[int, Names], StreamFormat] = "halter",
    *,
    cursor: Cursor | None,
    headers: dict[str, str] | None = None,
) -> CountedStream:
    """A run's events as a response.

    Args:
        server: whose run it is.
        key: the run.
        format: a name of `FORMATS`, or what makes the format of the log's epoch and the tenant's names.
        cursor: the last event that the client has; `None`: it begins with the run's state as of now.
        headers: added to those of every stream, such as `Halter-Run-Id`.

    Raises:
        Problem: 404 for an unknown run, 429 if the tenant has too many open streams.
    """
    feed = await server.feed(key)
    if feed is None:
        raise no_run(key.id)
    names = server.names(key.tenant)
    made = stream_format(format, feed.epoch, names) if isinstance(format, str) else format(feed.epoch, names)
    return CountedStream(
        server,
        key.tenant,
        feed,
        server.store.presence(key),
        made,
        run_id=key.id,
        cursor=cursor,
        headers=headers,
    )


class CountedStream(FeedStream):
    """A stream that counts for its tenant's limit, and in the metrics."""

    def __init__(self, server: Server, tenant: str, *stream: Any, **options: Any) -> None:
        super().__init__(*stream, **options)
        server.usage.check_streams(tenant)
        self._server = server
        self._tenant = tenant

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        with self._server.usage.stream(self._tenant), self._server.metrics.stream():
            await super().__call__(scope, receive, send)


def no_run(id: str) -> Problem:
    """The problem of an unknown run."""
    return Problem(404, f"there is no run {id!r}", code="run_not_found")
