"""What several threads and signal handlers touch at once: waking, and looking, without a lock.

1. A waiter registers first and looks again afterwards; the other side changes the state first and wakes afterwards:
no wake-up is lost. 2. `wake` takes the whole list at once: a burst wakes each waiter once. 3. Waking is safe in a
signal handler when `threadsafe` is given: it uses `call_soon_threadsafe` and bare lock releases only.
"""

from __future__ import annotations

import _thread
import asyncio
import time
from collections.abc import Callable, Mapping
from typing import Any, Protocol, TypeVar

from halter.errors import BlockingCallError

V = TypeVar("V")


def snapshot(table: Mapping[Any, V]) -> list[V]:
    """The values as they are now, in order. A `__del__` or a thread may change the table meanwhile: look again."""
    while True:
        try:
            return list(table.values())
        except RuntimeError:
            continue


class Waker(Protocol):
    def wake(self, threadsafe: bool) -> None: ...


class TaskWaker:
    """Wakes the task that awaits `future`, on that task's own loop."""

    __slots__ = ("_loop", "_thread", "future")

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._thread = _thread.get_ident()
        self.future = self._loop.create_future()

    def wake(self, threadsafe: bool) -> None:
        if not threadsafe and _thread.get_ident() == self._thread:
            self._set()
            return
        try:
            self._loop.call_soon_threadsafe(self._set)
        except RuntimeError:
            pass  # that loop is closed: nobody waits there any more

    def _set(self) -> None:
        if not self.future.done():
            self.future.set_result(None)


class ThreadWaker:
    """Wakes the thread that waits in `wait`."""

    __slots__ = ("_lock",)

    def __init__(self) -> None:
        self._lock = _thread.allocate_lock()
        self._lock.acquire()

    def wake(self, threadsafe: bool) -> None:
        try:
            self._lock.release()
        except RuntimeError:
            pass  # woken before

    def wait(self, timeout: float | None = None) -> bool:
        """Blocks this thread, seconds at most. False if the time was over first."""
        return self._lock.acquire(True, -1 if timeout is None else max(0.0, timeout))


class Wakers:
    """The waiters for one thing. `waiting`: who waits now, for a look before a call on the hot path."""

    __slots__ = ("waiting",)

    def __init__(self) -> None:
        self.waiting: list[Waker] = []

    def wake(self, threadsafe: bool = False) -> None:
        waiting, self.waiting = self.waiting, []
        for waker in waiting:
            waker.wake(threadsafe)

    def add(self, waker: Waker) -> None:
        self.waiting.append(waker)

    def remove(self, waker: Waker) -> None:
        try:
            self.waiting.remove(waker)
        except ValueError:
            pass  # woken meanwhile

    async def wait_until(self, ready: Callable[[], bool]) -> None:
        """Waits in this task until `ready()`; cancellation leaves nothing behind."""
        while not ready():
            waker = TaskWaker()
            self.add(waker)
            try:
                if not ready():
                    await waker.future
            finally:
                self.remove(waker)

    def block_until(self, ready: Callable[[], bool], timeout: float | None = None) -> bool:
        """Blocks this thread until `ready()`, `timeout` seconds at most. False if the time was over first."""
        until = None if timeout is None else time.monotonic() + timeout
        while not ready():
            waker = ThreadWaker()
            self.add(waker)
            try:
                if not ready() and not waker.wait(None if until is None else until - time.monotonic()):
                    return ready()
            finally:
                self.remove(waker)
        return True


def forbid_blocking(instead: str) -> None:
    """Raises `BlockingCallError` where an event loop runs in this thread."""
    if asyncio._get_running_loop() is not None:
        raise BlockingCallError(
            f"this is the blocking form, and an event loop is running in this thread (in a notebook there is "
            f"always one): use `{instead}`"
        )
