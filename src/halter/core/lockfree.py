"""What several threads and signal handlers touch at once: waking, and looking, without a lock.

1. A waiter registers first and looks again afterwards; the other side changes the state first and wakes afterwards:
no wake-up is lost. 2. `wake` takes each waiter off: a burst wakes it once. 3. Waking is safe in a
signal handler when `threadsafe` is given: it uses `call_soon_threadsafe` and bare lock releases only.
"""

from __future__ import annotations

import _thread
import asyncio
import os
import select
import signal
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, Protocol, TypeVar

from halter.errors import BlockingCallError, UsageError

V = TypeVar("V")


def snapshot(table: Mapping[Any, V]) -> list[V]:
    """The values as they are now, in order. A `__del__` or a thread may change the table meanwhile: look again."""
    while True:
        try:
            return list(table.values())
        except RuntimeError:
            continue


_SET_WAKEUP_FD = partial(signal.set_wakeup_fd, warn_on_full_buffer=False)


class Waker(Protocol):
    def wake(self, threadsafe: bool) -> None: ...


class TaskWaker:
    """Wakes the task that awaits `future`, on that task's own loop. For one wait after another: `renew` it."""

    __slots__ = ("_loop", "_thread", "future")

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._thread = _thread.get_ident()
        self.future: asyncio.Future[None] = self._loop.create_future()

    def serves(self, task: asyncio.Task[Any] | None) -> bool:
        """True if `task`, which made it, is the task that runs here and now; `None`: it is gone."""
        # Not `get_running_loop`, which asks the kernel for the process id (CPython before 3.12).
        return task is not None and _thread.get_ident() == self._thread and asyncio.current_task(self._loop) is task

    def renew(self) -> asyncio.Future[None]:
        """A future for the next wait. A late wake-up of the last one may end it early: look again."""
        if self.future.done():
            self.future = self._loop.create_future()
        return self.future

    def wake(self, threadsafe: bool) -> None:
        if not threadsafe and _thread.get_ident() == self._thread:
            if not self.future.done():
                self.future.set_result(None)
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


class MainThreadWaker:
    """The same for the main thread, where Python runs signal handlers.

    A signal that arrives while a thread goes to sleep on a lock is handled at its next wake-up only: perhaps never. So
    the main thread sleeps on a pipe that signals write to as well (`signal.set_wakeup_fd`).
    """

    __slots__ = ("_is_woken", "_pipe")

    def __init__(self) -> None:
        self._is_woken = False
        self._pipe = _main_pipe()

    def wake(self, threadsafe: bool) -> None:
        self._is_woken = True
        _ring(self._pipe[1])

    def wait(self, timeout: float | None = None) -> bool:
        """Blocks this thread, seconds at most; signal handlers run meanwhile. False if the time was over first."""
        until = None if timeout is None else time.monotonic() + timeout
        before: list[int] = []
        try:
            # In one call of C: a `KeyboardInterrupt` between setting it and noting the one before would leave ours.
            before.extend(map(_SET_WAKEUP_FD, self._pipe[1:]))
            while not self._is_woken:
                left = None if until is None else max(0.0, until - time.monotonic()) * 1e3
                if not self._sleep(left):
                    return False
        finally:
            if before:
                signal.set_wakeup_fd(before[0])
            if before == [self._pipe[1]]:
                _ring(before[0])  # a handler has waited inside another wait, and may have taken its bell
        return True

    def _sleep(self, milliseconds: float | None) -> bool:
        poll = select.poll()
        poll.register(self._pipe[0], select.POLLIN)
        if not poll.poll(milliseconds):
            return False
        try:
            os.read(self._pipe[0], 4096)
        except BlockingIOError:
            pass  # a wait inside a signal handler has emptied it
        return True


def _main_pipe() -> tuple[int, int]:
    if not _pipe:
        ends = os.pipe()
        for end in ends:
            os.set_blocking(end, False)
        _pipe.append(ends)
    return _pipe[0]


def _ring(end: int) -> None:
    try:
        os.write(end, b"\0")
    except BlockingIOError:
        pass  # full of bells already


_pipe: list[tuple[int, int]] = []
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_pipe.clear)


def thread_waker() -> ThreadWaker | MainThreadWaker:
    """What wakes this thread."""
    in_main = threading.current_thread() is threading.main_thread()
    return MainThreadWaker() if in_main and hasattr(select, "poll") else ThreadWaker()


class Wakers:
    """The waiters for one thing. `waiting`: who waits now, for a look before a call on the hot path."""

    __slots__ = ("waiting",)

    def __init__(self) -> None:
        self.waiting: deque[Waker] = deque()

    def wake(self, threadsafe: bool = False) -> None:
        for _ in range(len(self.waiting)):  # those that wait now; another thread may wake some of them meanwhile
            try:
                waker = self.waiting.popleft()
            except IndexError:
                return
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
        waker = TaskWaker()
        try:
            while not ready():
                await self.next_wake(waker, ready)
        except BaseException:
            self.remove(waker)
            raise

    def next_wake(self, waker: TaskWaker, ready: Callable[[], bool]) -> asyncio.Future[None]:
        """Done at the next wake-up, or at once if `ready()` meanwhile; it may come for nothing.

        Whoever stops awaiting it early removes the waker. A future and no coroutine: one waits for each token.
        """
        future = waker.renew()
        self.waiting.append(waker)
        if ready():
            self.remove(waker)
            waker.wake(False)
        return future

    def block_until(self, ready: Callable[[], bool], timeout: float | None = None) -> bool:
        """Blocks this thread until `ready()`, `timeout` seconds at most. False if the time was over first."""
        until = None if timeout is None else time.monotonic() + timeout
        while not ready():
            waker = thread_waker()
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


def require_asyncio(instead: str) -> None:
    """Raises `UsageError` under another framework than asyncio: before the run begins, and sends anything."""
    if asyncio._get_running_loop() is None:
        raise UsageError(f"Halter's async forms need a running asyncio event loop, as under asyncio.run: use {instead}")
