"""Children of one run, side by side: how many at once, and what a failure means."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from halter.core.context import RunContext
from halter.core.run import Run
from halter.outcome import CancelReason
from halter.parts import OnFailure, fail_as, has_fallen, stop_all


async def run_all(
    ctx: RunContext,
    starts: Sequence[Callable[[], Run[Any]]],
    runs: list[Run[Any]],
    *,
    at_once: int | None = None,
    on_failure: OnFailure = "cancel",
) -> None:
    """Starts them in order, `at_once` at a time, into `runs`, and waits until all are over.

    `on_failure`: as for `Parallel`; under `cancel`, what has not begun is not started. Raises what the first has failed
    with, unless it is `collect`, and `RunCancelled` if a stop that lets a turn finish came before all had been started.
    """

    def is_decided(over: Sequence[Run[Any]]) -> bool:
        return on_failure == "cancel" and any(map(has_fallen, over))

    for start in starts:
        running = [run for run in runs if not run.is_done]
        if at_once is not None and len(running) >= at_once:
            await ctx.wait_for_children(running, bool)
            if is_decided(runs) or ctx._execution.request() is not None:
                break
        runs.append(start())
    over = await ctx.wait_for_children(runs, is_decided)
    fallen = [run for run in over if has_fallen(run)]
    if fallen and on_failure == "cancel":
        stop_all(runs, CancelReason.SIBLING_FAILED)
    if fallen and on_failure != "collect":
        await fail_as(fallen)
    if len(runs) < len(starts):
        ctx.before_next_step()
