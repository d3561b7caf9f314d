"""One scenario, every way it can go: stopped at each step, under many schedules.

Each variation runs on a fresh `VirtualTimeLoop`, so a failure names the step or seed that replays it.
"""

from __future__ import annotations

import asyncio
import inspect
import sys
import types
from collections.abc import Callable, Coroutine, Iterable
from dataclasses import dataclass
from typing import Any

from halter.core.frames import describe_frame, where
from halter.testing.failures import said
from halter.testing.leaks import describe_task
from halter.testing.virtual_time import VirtualTimeLoop

Scenario = Callable[..., Coroutine[Any, Any, Any]]


@dataclass(frozen=True, kw_only=True)
class SweepOutcome:
    """How one variation of a scenario ended.

    `step`: where it was stopped, None if it was not. `steps`: callbacks executed until it ended. `cancelled`:
    it ended with `CancelledError`; else `result` is what it returned. `stopped_after`: virtual seconds from
    the stop to its end, 0.0 without a stop. `seed`: of its schedule.
    """

    seed: int | None
    step: int | None
    steps: int
    cancelled: bool
    result: Any
    stopped_after: float


class Sweep:
    """What a scenario with a parameter receives: the place to publish how it is stopped.

    `cancel` is called without arguments at the chosen step; at first it cancels the scenario's task. Setting
    it replaces that, and makes the sweep begin with the step after. `step`, `seed`: of this variation, or
    None.
    """

    def __init__(self, loop: VirtualTimeLoop, seed: int | None, step: int | None) -> None:
        self.seed, self.step = seed, step
        self.published_at = 0
        self.stopped_at: float | None = None
        self.place = ""
        self._loop = loop
        self._task: asyncio.Task[Any] | None = None
        self._cancel: Callable[[], object] | None = None

    def __repr__(self) -> str:
        stopped = "not stopped" if self.stopped_at is None else f"stopped at {self.stopped_at:g} s"
        return f"<Sweep step={self.step} seed={self.seed} {stopped}>"

    @property
    def cancel(self) -> Callable[[], object] | None:
        return self._cancel

    @cancel.setter
    def cancel(self, cancel: Callable[[], object]) -> None:
        self._cancel, self.published_at = cancel, self._loop.steps

    def start(self, scenario: Scenario) -> asyncio.Task[Any]:
        """Start the scenario's task; used by the sweeps themselves."""
        parameters = inspect.signature(scenario).parameters.values()
        wants_sweep = any(parameter.default is parameter.empty for parameter in parameters)
        task = self._task = self._loop.create_task(scenario(self) if wants_sweep else scenario())
        if self.step is not None:
            self._loop.at_step(self.step, lambda: self._stop(task))
        return task

    def _stop(self, task: asyncio.Task[Any]) -> None:
        if task.done():
            return
        self.stopped_at, self.place = self._loop.time(), where(task)
        answer = (self._cancel or task.cancel)()
        if inspect.iscoroutine(answer):
            answer.close()
            raise TypeError(f"sweep.cancel must be a plain function; {self._cancel!r} returned a coroutine")


class _Trial:
    """One variation on a loop of its own: run, settle, look what is left, clean up."""

    def __init__(self, seed: int | None, step: int | None, max_steps: int, settle: float) -> None:
        self._loop = VirtualTimeLoop(seed=seed, max_steps=max_steps)
        self._loop.set_exception_handler(self._note)
        self._settle = settle
        self._reported: list[str] = []
        self.sweep = Sweep(self._loop, seed, step)

    def run(self, scenario: Scenario) -> SweepOutcome:
        try:
            task = self.sweep.start(scenario)
            outcome = self._finish(task)
            self._loop.settle(self._settle)
            self._audit()
            return outcome
        finally:
            self._clean_up()

    def _finish(self, task: asyncio.Task[Any]) -> SweepOutcome:
        loop, sweep, result = self._loop, self.sweep, None
        try:
            result = loop.run_until_complete(task)
        except asyncio.CancelledError:
            if sweep.stopped_at is None:
                raise AssertionError("it ended with CancelledError, though nobody stopped it") from None
        return SweepOutcome(
            seed=sweep.seed,
            step=sweep.step,
            steps=loop.steps,
            cancelled=task.cancelled(),
            result=result,
            stopped_after=0.0 if sweep.stopped_at is None else loop.time() - sweep.stopped_at,
        )

    def _audit(self) -> None:
        left = sorted(describe_task(task) for task in asyncio.all_tasks(self._loop))
        frames = [frame for frame in self._loop.open_generators() if not _lives_with_the_loop(frame)]
        left += [f"open async generator: {describe_frame(frame)}" for frame in frames]
        left += self._reported
        if left:
            raise AssertionError("left behind:" + "".join(f"\n  {line}" for line in left))

    def _note(self, _: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        self._reported.append(f"reported to the loop: {context.get('message')}: {context.get('exception')!r}")

    def _clean_up(self) -> None:
        loop = self._loop
        loop.lift_limits()
        try:
            for task in (left := asyncio.all_tasks(loop)):
                task.cancel()
            if left:
                loop.run_until_complete(asyncio.wait(left))
            if loop.open_generators():
                loop.run_until_complete(loop.shutdown_asyncgens())
        except Exception:
            pass  # something is left, hence the audit, or what came before it, has failed: that is the news
        finally:
            loop.close()


def _lives_with_the_loop(frame: types.FrameType) -> bool:
    """Whether it is Halter's own way to learn of its loop's end: it is open until then, and no leak."""
    home = sys.modules.get("halter.core.home")
    return home is not None and frame.f_code is home._closing.__code__


def cancel_sweep(
    scenario: Scenario,
    *,
    check: Callable[[SweepOutcome], object] | None = None,
    max_steps: int = 10_000,
    seed: int | None = None,
    settle: float = 0.0,
) -> int:
    """Run `scenario` undisturbed, then once for each step, stopped there; return how often it was stopped.

    `scenario`: an async function. Its task is cancelled from outside; or, if it wants an argument, it gets a
    `Sweep` and may set `sweep.cancel = run.cancel`, which is then called instead, from the next step on. Each
    time it must end, with `CancelledError` or a result. When everything ready has run and `settle` more
    virtual seconds have passed, no task and no suspended async generator may be left, and nothing may have
    been reported to the loop's exception handler. Then `check` is called, unless it was the undisturbed run.
    `max_steps`: callbacks that one run may take. `seed`: the schedule; None is asyncio's own order.

    Raises `AssertionError` ("cancelled at step 17 of 42: …"), chained from what went wrong.
    """
    whole = _Trial(seed, None, max_steps, settle)
    try:
        steps = whole.run(scenario).steps
    except Exception as error:
        raise AssertionError(f"not cancelled: {said(error)}") from error
    first = step = whole.sweep.published_at
    while True:
        trial = _Trial(seed, step, max_steps, settle)
        try:
            outcome = trial.run(scenario)
            if trial.sweep.stopped_at is None:
                return step - first
            if check is not None:
                check(outcome)
        except Exception as error:
            what = f"{said(error)}\nthe scenario was at {trial.sweep.place or 'its end'}"
            raise AssertionError(f"cancelled at step {step} of {steps}: {what}") from error
        step += 1


def schedule_sweep(
    scenario: Scenario,
    *,
    seeds: Iterable[int] = range(100),
    check: Callable[[SweepOutcome], object] | None = None,
    max_steps: int = 1_000_000,
    settle: float = 0.0,
) -> int:
    """Run `scenario` under each seed's order of its tasks; return how many were run.

    Nothing is cancelled; it must return, and leave nothing behind. The arguments are those of `cancel_sweep`.
    Raises `AssertionError` that names the seed and how to replay it, chained from what went wrong.
    """
    count = 0
    for seed in seeds:
        try:
            outcome = _Trial(seed, None, max_steps, settle).run(scenario)
            if check is not None:
                check(outcome)
        except Exception as error:
            replay = f"replay: schedule_sweep(…, seeds=[{seed}]), or run(…, seed={seed})"
            raise AssertionError(f"under seed {seed}: {said(error)}\n{replay}") from error
        count += 1
    return count
