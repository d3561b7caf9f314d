"""One event loop that carries runs: how other threads reach it, and what lives and dies with it.

1. A home is made by the first run on its loop, and ends with the loop: an async generator that is registered with it
is closed by `shutdown_asyncgens`, in `asyncio.run` and `uvloop.run` alike. 2. The index of live runs is the process's.
3. In a forked child every run is lost, and new ones work. 4. At exit all runs are stopped, within two seconds.
"""

from __future__ import annotations

import _thread
import asyncio
import atexit
import contextlib
import logging
import os
import time
from collections import deque
from collections.abc import AsyncGenerator, Awaitable, Callable
from typing import TYPE_CHECKING, Any

from halter.core import stopping, watchdog
from halter.core.lockfree import snapshot
from halter.core.threads import background_loop, background_thread_id, is_background
from halter.errors import BusyError, RunLost
from halter.outcome import CancelReason

if TYPE_CHECKING:
    from halter.core.execution import Execution

EXIT_PATIENCE = 2.0
READ_AT_ONCE = 1_024
TICKS_AT_THE_END = 4  # in which what was given up last, and cancelled, may still end
_logger = logging.getLogger("halter")


class Home:
    """A running event loop as Halter sees it."""

    def __init__(self, loop: asyncio.AbstractEventLoop, thread_id: int) -> None:
        self.loop = loop
        self.thread_id = thread_id
        self.live: dict[str, Execution] = {}
        # What adapters keep per loop (connection pools), by a key of their own.
        self.kept: dict[object, Any] = {}
        self._closers: list[Callable[[], Awaitable[object]]] = []
        self._losers: list[Callable[[], object]] = []
        self._inbox: deque[Callable[[], object]] = deque()
        self._is_awake = False
        self._keeper: AsyncGenerator[None, None] | None = None

    # --- reaching it ----------------------------------------------------------------------------------------

    @property
    def is_here(self) -> bool:
        """True on the loop itself."""
        return asyncio._get_running_loop() is self.loop

    def submit(self, fn: Callable[[], object]) -> None:
        """Calls `fn` on the loop: now, if this is it. Raises `RunLost` if the loop is closed."""
        if self.is_here:
            fn()
        elif not self.wake(fn):
            raise RunLost("the event loop that carries this run is closed")

    def wake(self, fn: Callable[[], object]) -> bool:
        """Calls `fn` on the loop soon; from any thread and signal handler. False if the loop is closed."""
        try:
            self.loop.call_soon_threadsafe(fn)
        except RuntimeError:
            return False
        return True

    def post(self, fn: Callable[[], object]) -> None:
        """As `wake`, in order, with one wake-up for a burst."""
        self._inbox.append(fn)
        if not self._is_awake:
            self._is_awake = True
            self.wake(self._read_some)
        if len(self._inbox) > READ_AT_ONCE:
            time.sleep(0)  # a thread that floods gives way to the loop

    def _read_some(self) -> None:
        """A part of the inbox at a time: a flood must not starve a stop."""
        self._is_awake = False
        self._read(READ_AT_ONCE)
        if self._inbox and not self._is_awake:
            self._is_awake = True
            self.loop.call_soon(self._read_some)

    def read_inbox(self) -> None:
        """Calls all that has been posted so far. Home loop only."""
        self._read(len(self._inbox))

    def _read(self, at_most: int) -> None:
        for _ in range(min(at_most, len(self._inbox))):
            try:
                self._inbox.popleft()()
            except BaseException:
                _logger.exception("something that a thread had posted failed; the others are not affected")

    # --- what lives here ------------------------------------------------------------------------------------

    def admit(self, execution: Execution) -> None:
        """Enters it in the process's index, before it starts. Raises `BusyError` if a live run has its id."""
        if LIVE.setdefault(execution.id, execution) is not execution:
            raise BusyError(f"a run with the id {execution.id!r} is live")

    def register(self, execution: Execution) -> None:
        watchdog.start()
        self.live[execution.id] = execution

    def unregister(self, execution: Execution) -> None:
        self.live.pop(execution.id, None)
        LIVE.pop(execution.id, None)

    def at_close(self, closer: Callable[[], Awaitable[object]], *, lost: Callable[[], object]) -> None:
        """Has `closer()` awaited when the loop ends. `lost()`: called instead where it never will, as after a fork."""
        self._closers.append(closer)
        self._losers.append(lost)

    def lose(self) -> None:
        """The loop is closed, or another process's: what was kept for it is let go of."""
        while self._losers:
            self._losers.pop()()
        self.kept.clear()

    def keep(self) -> None:
        """Has this home closed with its loop."""
        self._keeper = _closing(self)
        with contextlib.suppress(StopIteration):
            self._keeper.asend(None).send(None)

    async def shut_down(self) -> None:
        """Stops what runs here, all at once, and closes what was kept. It goes on being this loop's home."""
        while roots := [execution for execution in self.live.values() if execution.parent is None]:
            for root in roots:
                root.cancel("the event loop ends", reason=CancelReason.SHUTDOWN)
            for root in roots:
                await root.done.wait_until(lambda root=root: root.result is not None)
        while self._closers:
            await self._closers.pop()()
        self._losers.clear()
        self.kept.clear()

    async def close(self) -> None:
        """The same at the loop's end."""
        await self.shut_down()
        for _ in range(TICKS_AT_THE_END):
            await asyncio.sleep(0)
        _homes.pop(self.loop, None)

    def __repr__(self) -> str:
        return f"<Home {self.loop!r}, {len(self.live)} live>"


async def _closing(home: Home) -> AsyncGenerator[None, None]:
    try:
        yield
    finally:
        await home.close()


LIVE: dict[str, Execution] = {}
_homes: dict[asyncio.AbstractEventLoop, Home] = {}


def home_here() -> Home:
    """The home of the loop that runs in this thread; of the background loop where none runs."""
    loop = asyncio._get_running_loop()
    here = loop is not None
    loop = loop or background_loop()
    home = _homes.get(loop)
    if home is None:
        _forget_closed_loops()
        thread_id = _thread.get_ident() if here else background_thread_id()
        home = _homes.setdefault(loop, Home(loop, thread_id))
        if here and not is_background(loop):
            home.keep()
    return home


def begin(execution: Execution) -> None:
    """Starts it on the home of its tree, if nobody has: for a root, the loop that runs here, or the background one."""
    if "starter" not in execution.claims:
        execution.start(execution.root.home or home_here())


def _forget_closed_loops() -> None:
    """A loop that was closed by hand leaves its runs behind: they end where it is noticed."""
    for home in snapshot(_homes):
        if home.loop.is_closed():
            for execution in snapshot(home.live):
                stopping.lose(execution)
            home.lose()
            _homes.pop(home.loop, None)


def _after_fork() -> None:
    lost = RunLost("this run lives in the process that forked; start a new one here")
    for execution in snapshot(LIVE):
        if execution.parent is None:
            stopping.lose(execution, lost, sever=False)
    for home in snapshot(_homes):
        home.lose()
    LIVE.clear()
    _homes.clear()


def _at_exit() -> None:
    until = time.monotonic() + EXIT_PATIENCE
    live = snapshot(LIVE)
    for execution in live:
        execution.cancel("the process ends", reason=CancelReason.SHUTDOWN)
    for execution in live:
        if execution.home is not None and not execution.home.loop.is_running():
            stopping.lose(execution)
        execution.done.block_until(lambda execution=execution: execution.result is not None, until - time.monotonic())
    for home in snapshot(_homes):
        if is_background(home.loop):
            with contextlib.suppress(TimeoutError):
                asyncio.run_coroutine_threadsafe(home.close(), home.loop).result(EXIT_PATIENCE / 4)


atexit.register(_at_exit)
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
