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
import contextvars
import logging
import os
import time
from collections import deque
from collections.abc import AsyncGenerator, Awaitable, Callable, Coroutine, Generator, Iterable
from typing import TYPE_CHECKING, Any, TypeVar

from halter.core import stopping, watchdog
from halter.core.executors import carry_context
from halter.core.lasting import LastingTask
from halter.core.lockfree import snapshot
from halter.core.threads import background_loop, background_thread_id, is_background
from halter.errors import BusyError, RunLost
from halter.outcome import CancelReason

if TYPE_CHECKING:
    from halter.core.execution import Execution

T = TypeVar("T")
EXIT_PATIENCE = 2.0
WORK_PATIENCE = 2.0  # seconds that the loop's end waits for what runs have left to be stored
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
        self._work: set[LastingTask[Any]] = set()
        self._ends: dict[object, tuple[Callable[[], Awaitable[object]], Callable[[], object]]] = {}
        self._inbox: deque[Callable[[], object]] = deque()
        self._is_awake = False
        self._shutdowns = 0
        self._keeper: AsyncGenerator[None, None] | None = None
        self._plain_executors = carry_context(loop)

    # --- reaching it ----------------------------------------------------------------------------------------

    @property
    def is_here(self) -> bool:
        """True on the loop itself."""
        return asyncio._get_running_loop() is self.loop

    @property
    def is_paused_here(self) -> bool:
        """True in the loop's own thread while it does not run: between two calls of `run_until_complete`."""
        return _thread.get_ident() == self.thread_id and not self.loop.is_running()

    @property
    def is_refusing(self) -> bool:
        """True while it is shut down: no new run starts but under those that are live."""
        return self._shutdowns > 0

    @contextlib.contextmanager
    def refusing(self) -> Generator[None]:
        """Refuses new runs within the block: else a supervisor that restarts its runs would never let it end."""
        self._shutdowns += 1
        try:
            yield
        finally:
            self._shutdowns -= 1

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
            try:
                self.wake(self._read_some)
            except BaseException:  # Ctrl-C: the next one must wake it
                self._is_awake = False
                raise
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
        watchdog.rouse(LIVE)

    def register(self, execution: Execution) -> None:
        self.live[execution.id] = execution

    def unregister(self, execution: Execution) -> None:
        self.live.pop(execution.id, None)
        if LIVE.get(execution.id) is execution:
            del LIVE[execution.id]

    def work(self, coroutine: Coroutine[Any, Any, T], name: str) -> asyncio.Task[T]:
        """A task that belongs to the loop: no stop cancels it, and its end waits for it. It must end by itself."""
        task = LastingTask(
            coroutine,
            asked=lambda task: self.loop.call_later(WORK_PATIENCE, task.end),
            is_stopped=bool,
            loop=self.loop,
            name=f"halter:work:{name}",
            context=contextvars.Context(),
        )
        self._work.add(task)
        task.add_done_callback(self._work.discard)
        return task

    def at_close(self, closer: Callable[[], Awaitable[object]], *, lost: Callable[[], object]) -> Callable[[], object]:
        """Has `closer()` awaited when the loop ends. `lost()`: called instead where it never will, as after a fork.

        What it returns takes that back, for what was closed before.
        """
        key = object()
        self._ends[key] = closer, lost
        return lambda: self._ends.pop(key, None)

    def lose(self) -> None:
        """The loop is closed, or another process's: what was kept for it is let go of."""
        while self._ends:
            _, (_, lost) = self._ends.popitem()
            lost()
        self.kept.clear()

    def keep(self) -> None:
        """Has this home closed with its loop."""
        self._keeper = _closing(self)
        with contextlib.suppress(StopIteration):
            self._keeper.asend(None).send(None)

    async def shut_down(self, *, background_for: float | None = None) -> None:
        """Stops what runs here, all at once, and closes what was kept. It goes on being this loop's home.

        `background_for`: seconds for which what runs in the background may go on; `None`: each for its own grace.
        """
        with self.refusing():
            await self._stop_all(background_for)
        await self._end_work()
        while self._ends:
            key, (closer, _) = next(reversed(self._ends.items()))
            try:
                await closer()
            finally:
                self._ends.pop(key, None)
        self.kept.clear()

    async def _stop_all(self, background_for: float | None) -> None:
        while roots := [execution for execution in self.live.values() if execution.parent is None]:
            timers = [self._stop_soon(root, background_for) for root in roots if root.is_background]
            for root in roots:
                if not root.is_background:
                    _stop_at_the_end(root)
            for root in roots:
                await root.done.wait_until(lambda root=root: root.result is not None)
            for timer in timers:
                timer.cancel()

    def background(self, execution: Execution, body: Coroutine[Any, Any, None], name: str) -> asyncio.Task[None]:
        """The task of a run in the background: the loop's end gives it its grace."""
        return LastingTask(
            body,
            asked=lambda _: self._stop_soon(execution, None),
            is_stopped=lambda: bool(execution.cell),
            loop=self.loop,
            name=name,
            context=execution.carried,
        )

    async def _end_work(self) -> None:
        """It has its time to end by itself; what hangs would else outlive the loop, half done."""
        if self._work:
            await asyncio.wait(self._work, timeout=WORK_PATIENCE)
        for task in list(self._work):
            task.end()
        if self._work:
            await asyncio.wait(self._work, timeout=WORK_PATIENCE)

    def _stop_soon(self, root: Execution, patience: float | None) -> asyncio.TimerHandle:
        patience = root.options.grace if patience is None else patience
        return self.loop.call_later(patience, _stop_at_the_end, root)

    async def close(self) -> None:
        """The same at the loop's end."""
        await self.shut_down()
        for _ in range(TICKS_AT_THE_END):
            await asyncio.sleep(0)
        self._plain_executors()
        _homes.pop(self.loop, None)

    def __repr__(self) -> str:
        return f"<Home {self.loop!r}, {len(self.live)} live>"


def _stop_at_the_end(root: Execution) -> None:
    root.cancel("the event loop ends", reason=CancelReason.SHUTDOWN)


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


def homes() -> list[Home]:
    """Those of this process."""
    return snapshot(_homes)


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
        if execution.parent is None or execution.home is None:
            stopping.lose(execution, lost, sever=False)
    for home in snapshot(_homes):
        home.lose()
    LIVE.clear()
    _homes.clear()


def _await_background(live: Iterable[Execution], until: float) -> None:
    """What runs in the background may end by itself."""
    for execution in live:
        if execution.is_background and execution.home is not None and execution.home.loop.is_running():
            execution.done.block_until(lambda each=execution: each.result is not None, until - time.monotonic())


def _at_exit() -> None:
    until = time.monotonic() + EXIT_PATIENCE
    live = snapshot(LIVE)
    _await_background(live, until - EXIT_PATIENCE / 4)
    for execution in live:
        execution.cancel("the process ends", reason=CancelReason.SHUTDOWN)
    for execution in live:
        if execution.given_to is not None and not execution.given_to.loop.is_running():
            stopping.lose(execution)
        execution.done.block_until(lambda execution=execution: execution.result is not None, until - time.monotonic())
    for home in snapshot(_homes):
        if is_background(home.loop):
            with contextlib.suppress(TimeoutError):
                asyncio.run_coroutine_threadsafe(home.close(), home.loop).result(EXIT_PATIENCE / 4)


atexit.register(_at_exit)
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
