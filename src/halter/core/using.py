"""Somebody else's stream or client, closed once: by the stop, or at the end of the block that uses it."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Awaitable, Callable
from typing import Any

from halter.errors import UsageError

LOOK_AGAIN = 0.001  # seconds


def closer(thing: Any, spawn: Callable[[Any], asyncio.Task[Any]]) -> Callable[[], asyncio.Future[Any]]:
    """One closing, however often it is asked for. Raises `UsageError` for what cannot be closed."""
    close = getattr(thing, "aclose", None) or getattr(thing, "close", None)
    if not callable(close):
        raise UsageError(f"{type(thing).__name__} has neither aclose() nor close(); use ctx.resource(…)")
    closing: list[asyncio.Future[Any]] = []

    def once() -> asyncio.Future[Any]:
        if not closing:
            pending = close()
            closing.append(spawn(_closed(thing, pending)) if inspect.isawaitable(pending) else _done())
        return closing[0]

    return once


async def _closed(thing: Any, pending: Awaitable[Any]) -> None:
    try:
        await pending
    except RuntimeError:
        if not getattr(thing, "ag_running", False):
            raise
        # An async generator that is running ends in the body that runs it, by the body's own CancelledError. It has
        # no word for "ended" that could be waited for.
        while thing.ag_running:  # noqa: ASYNC110
            await asyncio.sleep(LOOK_AGAIN)


def _done() -> asyncio.Future[None]:
    future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    future.set_result(None)
    return future
