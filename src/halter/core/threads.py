"""Halter's own daemon threads, and the background loop behind the blocking forms.

Never the loop's executor: `asyncio.run` and the interpreter's exit join that one, so that a stuck call would hold up
both. A daemon thread can be left behind, and is named when it is.
"""

from __future__ import annotations

import asyncio
import contextvars
import logging
import os
import threading
from collections.abc import Callable
from typing import Any, ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")
CALL_THREAD = "halter-call-"  # how the names of threads begin that call a function for a run
_logger = logging.getLogger("halter")


def new_event_loop() -> asyncio.AbstractEventLoop:
    """uvloop's loop where it installs, else asyncio's."""
    try:
        import uvloop  # the one optional dependency of the base install
    except ImportError:
        return asyncio.new_event_loop()
    return uvloop.new_event_loop()


def spawn(name: str, target: Callable[..., object], *args: Any) -> threading.Thread:
    """Starts a daemon thread; nothing ever joins it."""
    thread = threading.Thread(target=target, args=args, name=f"halter-{name}", daemon=True)
    thread.start()
    return thread


def call_in_thread(fn: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> asyncio.Future[T]:
    """Calls `fn` in a daemon thread of its own, in a copy of this context; the future is this loop's.

    Cancelling the future leaves the thread running: Python cannot stop one.
    """
    return start_in_thread(fn, *args, **kwargs)[0]


def start_in_thread(
    fn: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs
) -> tuple[asyncio.Future[T], threading.Thread]:
    """The same, and the thread."""
    loop = asyncio.get_running_loop()
    future: asyncio.Future[T] = loop.create_future()
    context = contextvars.copy_context()

    def work() -> None:
        try:
            result = context.run(fn, *args, **kwargs)
        except BaseException as error:
            deliver(loop, future, None, error)
        else:
            deliver(loop, future, result, None)

    name = f"{CALL_THREAD}{getattr(fn, '__name__', 'function')}"
    return future, spawn(name.removeprefix("halter-"), work)


def deliver(
    loop: asyncio.AbstractEventLoop, future: asyncio.Future[Any], result: object, error: BaseException | None
) -> None:
    """From a thread: the result, or the error, of what somebody on `loop` may still wait for."""

    def settle() -> None:
        if future.done():
            return
        if error is None:
            future.set_result(result)
        elif isinstance(error, StopIteration):
            future.set_exception(RuntimeError("the function raised StopIteration"))
        else:
            future.set_exception(error)

    try:
        loop.call_soon_threadsafe(settle)
    except RuntimeError:
        pass  # the loop is closed: nobody waits for this any more


class _Background:
    """The one loop that carries the runs of blocking code; a daemon thread, started at first use."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None
        self.thread_id = 0

    def loop(self) -> asyncio.AbstractEventLoop:
        if self._loop is None:
            with self._lock:
                if self._loop is None:
                    self._loop = self._start()
        return self._loop

    def _start(self) -> asyncio.AbstractEventLoop:
        loop = new_event_loop()
        running = threading.Event()
        loop.call_soon(running.set)
        self.thread_id = spawn("background-loop", self._run, loop).ident or 0
        running.wait()
        return loop

    @staticmethod
    def _run(loop: asyncio.AbstractEventLoop) -> None:
        asyncio.set_event_loop(loop)
        while not loop.is_closed():
            try:
                loop.run_forever()
            except BaseException:  # SystemExit in somebody's callback or task must not end every blocking run
                _logger.exception("something on the background loop raised; the loop goes on")

    @property
    def is_started(self) -> bool:
        return self._loop is not None


_background = _Background()


def background_loop() -> asyncio.AbstractEventLoop:
    """The running background loop; starts it if need be."""
    return _background.loop()


def background_thread_id() -> int:
    return _background.thread_id


def is_background(loop: asyncio.AbstractEventLoop) -> bool:
    return _background.is_started and _background.loop() is loop


def _forget_background() -> None:
    """In a forked child there are no threads but the one that forked."""
    global _background
    _background = _Background()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget_background)
