"""Threads of executors know the run that they work for, or say that they do not.

asyncio's `run_in_executor` does not carry the caller's context into the thread: what is started there would be outside
its run, and survive its stop. Loops that carry runs do so. Of an executor's own `submit`, Halter sees nothing before a
run is made in its thread: then it warns.
"""

from __future__ import annotations

import asyncio
import contextvars
import threading
import warnings
from collections.abc import Callable
from concurrent.futures import Executor, ThreadPoolExecutor, thread
from functools import partial
from typing import TYPE_CHECKING, Any

from halter.core.current import current_execution
from halter.core.lockfree import snapshot

if TYPE_CHECKING:
    from collections.abc import Mapping

    from halter.core.execution import Execution

_WORK = getattr(thread, "_worker", None)  # what the threads of all pools do


def carry_context(loop: asyncio.AbstractEventLoop) -> Callable[[], None]:
    """Has `loop.run_in_executor` carry the context into threads while a run is current; returns what undoes it."""
    plain = loop.run_in_executor

    def run_in_executor(executor: Executor | None, func: Callable[..., Any], *args: Any) -> Any:
        in_thread = executor is None or isinstance(executor, ThreadPoolExecutor)
        if not in_thread or current_execution() is None:
            return plain(executor, func, *args)
        return plain(executor, partial(contextvars.copy_context().run, func, *args))

    try:
        setattr(loop, "run_in_executor", run_in_executor)  # noqa: B010 - a method, of this one loop
    except AttributeError:  # a loop without attributes of its own
        return lambda: None

    def undo() -> None:
        if vars(loop).get("run_in_executor") is run_in_executor:
            delattr(loop, "run_in_executor")

    return undo


def pool_here() -> str | None:
    """The name of the executor that this thread belongs to, which its threads share; `None` in any other thread."""
    here = threading.current_thread()
    is_worker = _WORK is not None and getattr(here, "_target", None) is _WORK
    return here.name.rpartition("_")[0] if is_worker else None


def warn_if_outside(name: str, pool: str | None, live: Mapping[str, Execution]) -> None:
    """Warns where a run is made in an executor's thread, beside a live run from elsewhere that it may belong to.

    Runs that were made in threads of the same executor are its neighbours, as in a server.
    """
    if pool is None:
        return
    other = next((each for each in snapshot(live) if each.pool != pool and not each.root.is_background), None)
    if other is not None:
        warnings.warn(
            f"{name!r} runs outside any run, in a thread of an executor, while run {other.id} of "
            f"{other.definition.name!r} is live: if it belongs to that one, submit `current_run().bind(fn)` instead of "
            f"`fn`, else say run(…, parent=None)",
            RuntimeWarning,
            stacklevel=3,
        )
