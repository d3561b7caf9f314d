"""An event loop on which waiting takes no time: when all tasks wait, the clock jumps to the next timer.

1. Nothing ever waits for real (unless `real_threads`): a test of a one-hour time-out ends in a millisecond.
2. What would hang a real loop raises: `DeadlockError` (nothing can happen any more), `LivelockError` (it
never ends). 3. A seed fixes the schedule: the same seed replays it, another one tries another order of the
tasks. In memory only: with sockets or threads in flight, time must be real.
"""

from __future__ import annotations

import asyncio
import contextlib
import math
import threading
import types
import weakref
from collections import Counter
from collections.abc import Awaitable, Callable, Coroutine, Generator
from concurrent.futures import Executor
from typing import Any, TypeVar, TypeVarTuple

from halter.core.threads import CALL_THREAD
from halter.testing.failures import DeadlockError, LivelockError, RealTimeError, VirtualTimeoutError
from halter.testing.leaks import describe_tasks
from halter.testing.schedule import Polled, ReadyQueue, Selector, describe_callback

T = TypeVar("T")
Ts = TypeVarTuple("Ts")

CALL_PATIENCE = 0.25  # real seconds for a plain function in a thread
_TAIL = 1_000  # callbacks looked at to name the busy ones


class VirtualTimeLoop(asyncio.SelectorEventLoop):
    """An asyncio loop whose clock jumps instead of waiting.

    `seed`: None keeps asyncio's order. A number shuffles, at the beginning of each iteration, the callbacks
    ready then: steps of different tasks change places; plain callbacks (`call_soon`, timers, done-callbacks)
    keep their order among themselves. `start`: the first `time()`, in seconds. `max_steps`: callbacks until
    `LivelockError`. `real_threads`: allow `run_in_executor` and wake-ups from other threads. While an
    executor call runs, in `clock_held()`, or when there is no timer, the loop then really waits, at most
    `patience` seconds at a time.

    Running it raises, out of `run_until_complete`: `DeadlockError`, `LivelockError`, `VirtualTimeoutError`
    (past `deadline`, a virtual instant or None), `RealTimeError`, and what a function given to `at_step`
    raises.
    """

    _scheduled: list[asyncio.TimerHandle]
    _selector: Selector
    _clock_resolution: float
    _asyncgens: weakref.WeakSet[types.AsyncGeneratorType[Any, Any]]

    def __init__(
        self,
        *,
        seed: int | None = None,
        start: float = 0.0,
        max_steps: int = 1_000_000,
        real_threads: bool = False,
        patience: float = 5.0,
    ) -> None:
        self.deadline: float | None = None
        self._now = start
        self._steps = 0
        self._max_steps = self._last_step = max_steps
        self._hooks: dict[int, list[Callable[[], object]]] = {}
        self._recent: Counter[str] = Counter()
        self._real_threads, self._patience, self._held = real_threads, patience, 0
        self._settle_until: float | None = None
        self._awaited: weakref.WeakSet[threading.Thread] = weakref.WeakSet()
        super().__init__(Selector(self._poll))
        self._set_clock(start)
        self._ready = ReadyQueue(self._before_callback, seed)

    def __repr__(self) -> str:
        state = "closed" if self.is_closed() else "running" if self.is_running() else "idle"
        return f"<VirtualTimeLoop {state} at {self._now:g} s, {self._steps} steps>"

    def time(self) -> float:
        """The virtual time, in seconds."""
        return self._now

    @property
    def steps(self) -> int:
        """How many callbacks were executed; cancelled ones do not count."""
        return self._steps

    def at_step(self, step: int, fn: Callable[[], object]) -> None:
        """Call `fn` on the loop just before callback number `step` (from 0); never, if the loop ends before.

        Raises `ValueError` if that callback was already executed.
        """
        if step < self._steps:
            raise ValueError(f"step {step} has passed: {self._steps} callbacks were executed")
        self._hooks.setdefault(step, []).append(fn)

    def settle(self, seconds: float = 0.0) -> None:
        """Run a loop that is not running until it is idle; at most `seconds` of virtual time pass."""
        self._settle_until = self._now + seconds
        try:
            self.run_forever()
        finally:
            self._settle_until = None

    def open_generators(self) -> list[types.FrameType]:
        """The frames of the async generators begun on this loop and neither finished nor closed."""
        return [agen.ag_frame for agen in self._asyncgens if agen.ag_frame is not None]

    def lift_limits(self) -> None:
        """For cleaning up: drop the deadline and what `at_step` holds, grant `max_steps` more callbacks."""
        self.deadline = None
        self._hooks.clear()
        self._last_step = self._steps + self._max_steps

    @contextlib.contextmanager
    def clock_held(self) -> Generator[None, None, None]:
        """Inside, time stands still and waiting is real: around waiting for a thread of your own."""
        if not self._real_threads:
            raise RealTimeError("a thread in flight needs VirtualTimeLoop(real_threads=True)")
        self._held += 1
        try:
            yield
        finally:
            self._held -= 1

    def run_in_executor(self, executor: Executor | None, func: Callable[[*Ts], T], *args: *Ts) -> asyncio.Future[T]:
        """As asyncio's; time stands still until it is done. Raises `RealTimeError` without `real_threads`."""
        hold = contextlib.ExitStack()
        hold.enter_context(self.clock_held())
        future = super().run_in_executor(executor, func, *args)
        future.add_done_callback(lambda _: hold.close())
        return future

    async def shutdown_default_executor(self, timeout: float | None = None) -> None:
        """As asyncio's; `timeout` is ignored: it would be virtual, the threads are not."""
        with self.clock_held() if self._real_threads else contextlib.nullcontext():
            await super().shutdown_default_executor()

    def _write_to_self(self) -> None:
        # A loop that never sleeps needs no waking; the byte would add a step to every call_soon_threadsafe.
        if self._real_threads:
            super()._write_to_self()  # pyright: ignore[reportAttributeAccessIssue, reportUnknownMemberType]  # private

    def _before_callback(self, handle: asyncio.Handle) -> None:
        for fn in self._hooks.pop(self._steps, ()):
            fn()
        if handle.cancelled():
            return
        if self._steps >= self._last_step:
            raise LivelockError(self._livelock())
        if self._steps >= self._last_step - _TAIL:
            self._recent[describe_callback(handle)] += 1
        self._steps += 1

    def _poll(self, timeout: float | None) -> Polled:
        self._ready.is_new_batch = True
        events = self._selector.look(0)
        return events if events or timeout == 0 else self._when_idle()

    def _when_idle(self) -> Polled:
        """Nothing is ready: stop, wait for real, jump or raise."""
        if self._await_calls():
            return []
        when = self._scheduled[0].when() if self._scheduled else math.inf
        if self._settle_until is not None and (when > self._settle_until or when == math.inf):
            self.stop()
        elif self._real_threads and (self._held or when == math.inf):
            return self._selector.look(self._patience) or self._give_up()
        elif not self._ready:  # another thread may have filled it just now
            self._jump(when)
        return []

    def _await_calls(self) -> bool:
        """Waits for plain functions that runs call in threads: a moment of real time for each, once.

        True if that has made something ready. One that takes longer is blocked: time goes on without it.
        """
        for thread in threading.enumerate():
            if thread.name.startswith(CALL_THREAD) and thread not in self._awaited:
                self._awaited.add(thread)
                thread.join(CALL_PATIENCE)
        return bool(self._ready)

    def _jump(self, when: float) -> None:
        self._refuse_sockets()
        if when == math.inf:
            self._give_up()
        if self.deadline is not None and when > self.deadline:
            why = f"past the deadline of {self.deadline:g} s: nothing happens before {when:g} s"
            raise VirtualTimeoutError(f"{why}; {describe_tasks(self)}")
        self._set_clock(max(when, self._now))

    def _set_clock(self, now: float) -> None:
        self._now = now
        # Timers less than this ahead are due: it must never vanish beside a large time.
        self._clock_resolution = max(1e-9, 2 * math.ulp(now))

    def _give_up(self) -> Polled:
        why = f"deadlock at {self._now:g} s: nothing is ready, no timer is set"
        if self._real_threads:
            why += f", no thread woke the loop within {self._patience:g} real seconds"
        raise DeadlockError(f"{why}; {describe_tasks(self)}")

    def _refuse_sockets(self) -> None:
        others = len(self._selector.get_map()) - 1  # one is the loop's own
        if others > 0:
            why = f"with sockets or threads in flight time must be real: {others} descriptors to wait for"
            raise RealTimeError(f"{why}; {describe_tasks(self)}")

    def _livelock(self) -> str:
        busy = "".join(f"\n  {count:>5} × {name}" for name, count in self._recent.most_common(5))
        at = f"after {self._steps:,} callbacks, at {self._now:g} s, there is no end"
        return f"{at}; the busiest of the last {self._recent.total():,}:{busy}"


def run(
    main: Callable[[], Awaitable[T]] | Coroutine[Any, Any, T],
    *,
    seed: int | None = None,
    timeout: float | None = None,
    debug: bool = False,
    start: float = 0.0,
    max_steps: int = 1_000_000,
    real_threads: bool = False,
) -> T:
    """Like `asyncio.run`, on a new `VirtualTimeLoop`.

    `main`: a coroutine, or a function without arguments that returns an awaitable. `timeout`: in virtual
    seconds from the start. The other arguments are the loop's. Returns what `main` returns; tasks left over
    are cancelled, async generators shut down, the loop is closed. Raises what `main` raises, and what the
    loop raises (`VirtualTimeoutError` past `timeout`); `main` cannot catch those.
    """
    with contextlib.suppress(RuntimeError):
        raise TypeError(f"run() cannot nest in {asyncio.get_running_loop()!r}; await it there")
    loop = VirtualTimeLoop(seed=seed, start=start, max_steps=max_steps, real_threads=real_threads)
    loop.deadline = None if timeout is None else start + timeout
    runner = asyncio.Runner(debug=debug, loop_factory=lambda: loop)
    try:
        result = runner.run(_coroutine(main))
    except BaseException as error:
        _clean_up_after(error, loop, runner)
        raise
    loop.lift_limits()
    runner.close()
    return result


def _clean_up_after(error: BaseException, loop: VirtualTimeLoop, runner: asyncio.Runner) -> None:
    loop.lift_limits()
    try:
        runner.close()
    except Exception as second:
        error.add_note(f"and then, while the tasks left over were cancelled: {second}")


async def _coroutine(main: Callable[[], Awaitable[T]] | Coroutine[Any, Any, T]) -> T:
    return await (main() if callable(main) else main)
