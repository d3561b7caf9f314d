"""Runnables made of runnables: one after another, side by side, again and again, whoever is first.

1. The run of a part is a child of the composition's: its events are in the same stream under its own name, and a stop,
a time-out, a budget reach it. 2. A part that fails, or that somebody stops alone, fails the composition with that very
error, unless it was told what else to do. 3. Where a step ends, a stop that has waited for it is seen: nothing new
begins. 4. The composition's answer is that of the part which has the last word.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import Any, TypeAlias, TypeVar

from halter import checked
from halter.core.calling import call_function
from halter.core.context import RunContext
from halter.core.run import Run
from halter.core.runnable import Runnable
from halter.errors import ConfigurationError
from halter.outcome import CancelReason
from halter.parts import (
    OnFailure,
    as_json,
    error_of,
    fail_as,
    has_fallen,
    hear,
    keep_answer,
    output_of,
    say,
    start_part,
    stop_all,
)

T = TypeVar("T")
Until: TypeAlias = Callable[[Any, int], bool | Awaitable[bool]]


class Composition(Runnable[T]):
    """What all compositions are: immutable, with a name, a description and parts, in order."""

    def __init__(self, parts: Iterable[Runnable[Any]], name: str, description: str) -> None:
        self.parts = tuple(parts)
        for part in self.parts:
            if not isinstance(part, Runnable):
                raise ConfigurationError(
                    f"a {self.kind} is made of agents, compositions and functions under @runnable, not of {part!r}"
                )
        if not self.parts:
            raise ConfigurationError(f"a {self.kind} needs something to run")
        self._name = checked.text("name", name) or self.kind
        self._description = checked.text("description", description)

    @property
    def first_parts(self) -> Sequence[Runnable[Any]]:
        """Those that get the composition's own input, and the history before it."""
        return self.parts

    def check_input(self, input: Any) -> Any:
        """The input unchanged, if all that get it take it."""
        for part in self.first_parts:
            part.check_input(input)
        return input

    def check_price(self) -> None:
        for part in self.parts:
            part.check_price()

    def __repr__(self) -> str:
        return f"{type(self).__name__}({', '.join(map(repr, self.parts))}, name={self._name!r})"


class Sequential(Composition[Any]):
    """Its parts one after another; the output of one is the input of the next, that of the last its own.

    An output is handed over as it is if the next part takes that, as text always is; else as JSON text. The text is the
    last part's, live. `name`: how its events are marked. `description`: what it is for, for models that may call it.

    A part that fails, or is stopped alone, fails it, and the rest never starts. Raises `ConfigurationError` for no
    parts, or what is none.
    """

    kind = "sequential"

    def __init__(self, *runnables: Runnable[Any], name: str = "", description: str = "") -> None:
        super().__init__(runnables, name, description)

    @property
    def first_parts(self) -> Sequence[Runnable[Any]]:
        return self.parts[:1]

    async def execute(self, ctx: RunContext) -> Any:
        history, value = hear(ctx), ctx.input
        *parts, last = self.parts
        for part, following in zip(parts, self.parts[1:], strict=True):
            ctx.begin_step()
            output = await output_of(start_part(ctx, part, value, history))
            ctx.end_step()
            ctx.before_next_step()
            history, value = (), _handed_over(output, following)
        ctx.begin_step()
        speaker = start_part(ctx, last, value, history)
        ctx.speak_through(speaker)
        try:
            output = await output_of(speaker)
        finally:
            keep_answer(ctx, speaker)
        ctx.end_step()
        return output


class Loop(Composition[T]):
    """One runnable again and again; its output is its next input, and the last one the loop's.

    `until(output, n)`: plain or async, asked after each iteration with the number of those so far; True ends the loop.
    `max_iterations`: the loop ends there in any case, and completes. The text is each iteration's in turn, live; in the
    end the last one's. An output is handed over as in `Sequential`. `name`, `description`: as there.

    An iteration that fails, or is stopped alone, fails the loop, as does an `until` that raises. Raises
    `ConfigurationError` for what is no runnable, no function, or no number of 1 or more.
    """

    kind = "loop"

    def __init__(
        self,
        runnable: Runnable[T],
        *,
        until: Until | None = None,
        max_iterations: int = 10,
        name: str = "",
        description: str = "",
    ) -> None:
        super().__init__((runnable,), name, description)
        if until is not None and not callable(until):
            raise ConfigurationError(f"until must be a function of an output and its number, not {until!r}")
        self.until = until
        self.max_iterations = checked.whole("max_iterations", max_iterations, at_least=1)

    async def execute(self, ctx: RunContext) -> T:
        history, value = hear(ctx), ctx.input
        (part,) = self.parts
        speaker: Run[T] | None = None
        try:
            while True:
                number = ctx.begin_step()
                speaker = start_part(ctx, part, value, history)
                ctx.speak_through(speaker)
                output = await output_of(speaker)
                is_last = await self._is_last(ctx, output, number)
                ctx.end_step()
                if is_last:
                    return output
                ctx.before_next_step()
                history, value = (), _handed_over(output, part)
        finally:
            if speaker is not None:
                keep_answer(ctx, speaker)

    async def _is_last(self, ctx: RunContext, output: T, number: int) -> bool:
        is_enough = False if self.until is None else await call_function(ctx, self.until, output, number)
        return bool(is_enough) or number >= self.max_iterations


class Parallel(Composition[tuple[Any, ...]]):
    """All of its parts at once, each with the same input; the output is the tuple of theirs, in their order.

    `on_failure`: what a part that fails, or is stopped alone, means for the others. `"cancel"`: they are stopped, with
    the reason `sibling_failed`, and it fails with that first error. `"wait"`: they finish, then it fails with the first
    error. `"collect"`: they finish, and the error itself stands in the place of the output.

    The text is that of all parts that have completed, in order, with blank lines between; it comes at the end. (Each
    part's own is in the stream, live.) `name`, `description`: as in `Sequential`. Raises `ConfigurationError`.
    """

    kind = "parallel"

    def __init__(
        self, *runnables: Runnable[Any], on_failure: OnFailure = "cancel", name: str = "", description: str = ""
    ) -> None:
        super().__init__(runnables, name, description)
        self.on_failure: OnFailure = checked.one_of("on_failure", on_failure, ("cancel", "wait", "collect"))

    async def execute(self, ctx: RunContext) -> tuple[Any, ...]:
        history = hear(ctx)
        runs = [start_part(ctx, part, ctx.input, history) for part in self.parts]
        over = await ctx.wait_for_children(runs, self._is_decided)
        fallen = [run for run in over if has_fallen(run)]
        if fallen and self.on_failure == "cancel":
            stop_all(runs, CancelReason.SIBLING_FAILED)
        if fallen and self.on_failure != "collect":
            await fail_as(fallen)
        outputs = [await (error_of(run) if has_fallen(run) else output_of(run)) for run in runs]
        say(ctx, "\n\n".join(run.text for run in runs if run.is_completed and run.text))
        return tuple(outputs)

    def _is_decided(self, over: Sequence[Run[Any]]) -> bool:
        return self.on_failure == "cancel" and any(map(has_fallen, over))


class Race(Composition[T]):
    """All of its parts at once, each with the same input; the first that completes wins, and its output is the race's.

    The others are stopped at once, with the reason `lost_race`; the race is over when nothing of them is left. One that
    fails, or is stopped alone, is out; if none is left, the race fails with the first error, which has a note on each
    of the others.

    The text is the winner's; it comes when there is one. (Each part's own is in the stream, live.) `name`,
    `description`: as in `Sequential`. Raises `ConfigurationError` for no parts, or what is none.
    """

    kind = "race"

    def __init__(self, *runnables: Runnable[T], name: str = "", description: str = "") -> None:
        super().__init__(runnables, name, description)

    async def execute(self, ctx: RunContext) -> T:
        history = hear(ctx)
        runs = [start_part(ctx, part, ctx.input, history) for part in self.parts]
        over = await ctx.wait_for_children(runs, lambda over: any(run.is_completed for run in over))
        winner = next((run for run in over if run.is_completed), None)
        if winner is None:
            # What a stop has ended might have won: then the race is stopped, and has not failed.
            await fail_as([run for run in over if not has_fallen(run)] or over)
        stop_all(runs, CancelReason.LOST_RACE)
        say(ctx, winner.text)
        return await output_of(winner)


def _handed_over(output: Any, part: Runnable[Any]) -> Any:
    """One part's output as the next one's input: as it is, if `part` takes that, else as JSON text."""
    if output is None or isinstance(output, str):
        return output
    try:
        part.check_input(output)
    except ConfigurationError:
        return as_json(output)
    return output
