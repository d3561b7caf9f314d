"""One run of a flow: its steps begin when they are due, those that are due together at once.

1. Each step is a child run: its events have its name, a stop reaches it, what it starts is under it. 2. A step's end
and what follows from it are one: they happen in the step's own last moment, without an `await` between. 3. A step that
fails, or that somebody stops alone, fails the flow, and the others are stopped. 4. One voice at a time.
"""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING, Any

from halter.core.context import RunContext
from halter.core.run import Run
from halter.core.runnable import Runnable
from halter.errors import StepsExhausted
from halter.flows.progress import FlowState, Progress
from halter.flows.steps import Step
from halter.outcome import CancelReason
from halter.parts import fail_as, has_fallen, hear, keep_answer, stop_all

if TYPE_CHECKING:
    from halter.flows.flow import Flow


class Walk:
    """All that changes while a flow runs. `at`: where it begins."""

    def __init__(self, flow: Flow[Any], ctx: RunContext, at: FlowState[Any]) -> None:
        self.flow = flow
        self._ctx = ctx
        self._progress = Progress(flow.graph, at)
        self._running: list[Run[Any]] = []
        self._begun = 0

    async def run(self) -> Any:
        """Steps until none is due and none is running; the output."""
        hear(self._ctx)
        self._keep()
        Floor(self._ctx)
        while self._begin_due():
            await self._wait()
        return self._progress.output

    def _keep(self) -> None:
        self._ctx.keep(self._progress.snapshot())

    def _begin_due(self) -> bool:
        """Begins what is due; False if nothing is left to wait for. A stop may let nothing begin any more."""
        if self._running:
            if self._ctx.run.is_cancelling:
                return True
        elif self._begun and self._progress.pending:
            self._ctx.before_next_step()
        for number in self._progress.due:
            self._begin(number)
        return bool(self._running)

    def _begin(self, number: int) -> None:
        ctx = self._ctx
        if self._begun == self.flow.max_steps:
            raise StepsExhausted(
                f"flow {self.flow.name!r} has run {self._begun} steps, its max_steps, and has not ended"
            )
        self._begun += 1
        step, value = self._progress.begin(number)
        child = StepRun(self, number, step)
        self._running.append(ctx.start(child, value, task=step.name, context=ctx.context, grace=ctx.grace))

    async def _wait(self) -> None:
        """Until one of those that run is over, or several are."""
        over = await self._ctx.wait_for_children(self._running, lambda over: True)
        self._running = [run for run in self._running if run not in over]
        if fallen := [run for run in over if self._has_fallen(run)]:
            stop_all(self._running, CancelReason.SIBLING_FAILED)
            await fail_as(fallen)

    def _has_fallen(self, run: Run[Any]) -> bool:
        """A step that was cut by a stop which lets turns end is none that has failed: it stays pending."""
        return has_fallen(run) or not (run.is_completed or self._ctx.run.is_cancelling)

    @property
    def state(self) -> Any:
        """The flow's own, as of the steps that have ended."""
        return self._progress.state

    def end(self, number: int, value: Any, base: Any, mine: Any) -> None:
        """A step has ended. Raises `StateConflict`."""
        self._progress.end(number, value, base, mine)
        self._keep()


class StepRun(Runnable[Any]):
    """One step, once, as a run of its own."""

    kind = "step"

    def __init__(self, walk: Walk, number: int, step: Step) -> None:
        self._walk = walk
        self._number = number
        self._step = step

    @property
    def name(self) -> str:
        return self._step.name

    async def execute(self, ctx: RunContext) -> Any:
        base = self._walk.state
        flow = self._walk.flow.seen_by_step(copy.deepcopy(base))
        Floor(ctx)
        value = await self._step.call(flow, ctx, ctx.input)
        ctx.close_reply()
        ctx.token.raise_if_cancelled()  # it was cut, and has returned all the same
        self._walk.end(self._number, value, base, flow.state)
        return value


class Floor:
    """Who speaks for a run: its children and it itself, one at a time, each until it is over.

    What was said last is taken down as its answer in the end, when all under it is over, as far as it came.
    """

    def __init__(self, ctx: RunContext) -> None:
        self._ctx = ctx
        self._speaker: Run[Any] | None = None
        ctx.on_voice(self._ask)
        ctx.at_end(self._take_down)

    def _take_down(self) -> None:
        speaker = self._speaker
        if speaker is not None and speaker.id != self._ctx.run_id:  # its own words are taken down already
            keep_answer(self._ctx, speaker)

    def _ask(self, run: Run[Any]) -> None:
        """`run` is about to speak: it has the floor, unless another is speaking. The run itself always has it."""
        me, speaker = self._ctx.run_id, self._speaker
        if run.id == me or speaker is None or speaker.id == me or speaker.is_done:
            self._speaker = run
            self._ctx.speak_through(run)
