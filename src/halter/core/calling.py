"""A function of the user's, called so that it cannot hold up the event loop."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any, TypeVar, cast

if TYPE_CHECKING:
    from halter.core.context import RunContext

T = TypeVar("T")


def is_async(fn: Callable[..., Any]) -> bool:
    """True if calling it gives a coroutine: also of an object whose `__call__` is async."""
    return inspect.iscoroutinefunction(fn) or inspect.iscoroutinefunction(getattr(fn, "__call__", None))  # noqa: B004


async def call_function(ctx: RunContext, fn: Callable[..., Awaitable[T] | T], /, *args: Any, **kwargs: Any) -> T:
    """Calls it and returns what it returns: an async one on the loop, a plain one in a daemon thread.

    Raises what it raises. Cancelled, a plain one is abandoned as in `RunContext.in_thread`.
    """
    said = fn(*args, **kwargs) if is_async(fn) else await ctx.in_thread(fn, *args, **kwargs)
    return await cast("Awaitable[T]", said) if inspect.isawaitable(said) else cast("T", said)
