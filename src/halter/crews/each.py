"""One crew for many inputs, in one run."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from halter import checked
from halter.core.context import RunContext
from halter.core.run import Run
from halter.core.runnable import Runnable
from halter.crews.braces import Inputs
from halter.crews.group import run_all
from halter.crews.state import CrewState
from halter.crews.task import listed
from halter.errors import ConfigurationError
from halter.parts import OnFailure, error_of, has_fallen, output_of, say

if TYPE_CHECKING:
    from halter.crews.crew import Crew


class Each(Runnable[tuple[Any, ...]]):
    """What `run_each` runs: a crew for each input; its state is the tuple of theirs."""

    kind = "crews"

    def __init__(self, name: str, crews: Sequence[Crew], max_concurrency: int | None, on_failure: OnFailure) -> None:
        self._name = name
        self._crews = tuple(crews)
        most = max_concurrency
        self._at_once = None if most is None else checked.whole("max_concurrency", most, at_least=1)
        self._on_failure: OnFailure = checked.one_of("on_failure", on_failure, ("cancel", "wait", "collect"))
        if not crews:
            raise ConfigurationError("there are no inputs")

    @property
    def name(self) -> str:
        return self._name

    def check_input(self, input: Any) -> tuple[Inputs, ...]:
        return tuple(self._read(number, each) for number, each in enumerate(input))

    def _read(self, number: int, given: Any) -> Inputs:
        try:
            return self._crews[number].check_input(given)
        except ConfigurationError as error:
            raise ConfigurationError(f"input {number}: {error}") from error

    def check_state(self, state: Any) -> tuple[CrewState, ...] | None:
        if state is None:
            return None
        given = listed(state)
        if len(given) != len(self._crews):
            raise ConfigurationError(f"state must be a list of {len(self._crews)} states, one for each input")
        pairs = zip(self._crews, given, strict=True)
        return tuple(crew.check_state(each) or CrewState() for crew, each in pairs)

    def check_price(self) -> None:
        self._crews[0].check_price()

    async def execute(self, ctx: RunContext) -> tuple[Any, ...]:
        before: tuple[CrewState, ...] = ctx.state or tuple(CrewState() for _ in self._crews)
        ctx.keep(before)
        runs: list[Run[Any]] = []
        starts = [partial(self._start, ctx, number, state) for number, state in enumerate(before)]
        ctx.at_end(lambda: ctx.keep((*map(_state_of, runs, before), *before[len(runs) :])))
        await run_all(ctx, starts, runs, at_once=self._at_once, on_failure=self._on_failure)
        outputs = [await (error_of(run) if has_fallen(run) else output_of(run)) for run in runs]
        say(ctx, "\n\n".join(run.text for run in runs if run.is_completed and run.text))
        return tuple(outputs)

    def _start(self, ctx: RunContext, number: int, state: CrewState) -> Run[Any]:
        return ctx.start(
            self._crews[number],
            ctx.input[number],
            history=ctx.messages,
            state=state,
            tags=(f"input:{number}",),
            context=ctx.context,
            grace=ctx.grace,
        )


def _state_of(run: Run[Any], before: CrewState) -> CrewState:
    """How far this one has come; of one that has not ended, how far it had come before."""
    return before if run.outcome is None or run.outcome.state is None else run.outcome.state
