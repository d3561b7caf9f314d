"""Tasks that the end of an event loop waits for, instead of cancelling them.

`asyncio.run` ends in this order: all tasks are cancelled and waited for; then all async generators are closed at once,
also those that somebody is in the middle of: a connection's, a transaction's. What is to end whole must end among the
tasks. So these are tasks as all others, and only `cancel()` does something else.
"""

from __future__ import annotations

import asyncio
import contextvars
import logging
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

from halter.errors import HalterError

_logger = logging.getLogger("halter")
T = TypeVar("T")


class LastingTask(asyncio.Task[T]):
    """`asked(task)`: called instead of a cancel, unless `is_stopped()` says that somebody means it."""

    def __init__(
        self,
        coroutine: Coroutine[Any, Any, T],
        *,
        asked: Callable[[LastingTask[Any]], object],
        is_stopped: Callable[[], bool],
        loop: asyncio.AbstractEventLoop,
        name: str,
        context: contextvars.Context,
    ) -> None:
        super().__init__(coroutine, loop=loop, name=name, context=context)
        self._asked = asked
        self._is_stopped = is_stopped

    def cancel(self, msg: Any = None) -> bool:
        """Cancels it if it was stopped, or does so itself. Else it goes on, and False says so."""
        if self._is_stopped() or self._is_from_within():
            return super().cancel(msg)
        self._asked(self)
        return False

    def _is_from_within(self) -> bool:
        """`asyncio.timeout` and task groups that it is in cancel it from a callback; the loop's end does not run then,
        and what cancels all tasks is one."""
        loop = self.get_loop()
        return asyncio._get_running_loop() is loop and asyncio.current_task(loop) is None

    def end(self) -> None:
        """Cancels it, as any task."""
        super().cancel()


async def whole(task: asyncio.Task[T]) -> T:
    """Its result; cancelled, it leaves the task to its end. What that fails of then is logged, as nobody sees it."""
    try:
        return await asyncio.shield(task)
    except asyncio.CancelledError:
        task.add_done_callback(_log_failure)
        raise


def _log_failure(task: asyncio.Task[Any]) -> None:
    error = None if task.cancelled() else task.exception()
    if isinstance(error, HalterError):
        _logger.warning("%s, which was left to its end, has failed: %s", task.get_name(), error)
    elif error is not None:
        _logger.error("%s has failed; please report this", task.get_name(), exc_info=error)
