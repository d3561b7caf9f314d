"""How a run takes its place: born cancelled, or joined to its tree, announced, and its clocks set. Home loop."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from halter import events
from halter.core.context import RunContext
from halter.core.lifecycle import Ending, advance
from halter.errors import RunCancelled
from halter.outcome import Cancellation, CancelReason, RunResult, RunStatus

if TYPE_CHECKING:
    from halter.core.execution import Execution
    from halter.core.home import Home


def born_cancelled(execution: Execution) -> Ending | None:
    """The end of a run that starts under one that is over, under a cancelled token, or while the runtime shuts down.

    `None` for any other.
    """
    over = next((ancestor for ancestor in execution.ancestors() if ancestor.cell), None)
    if over is not None:
        stopped = over.cell["end"].status is RunStatus.CANCELLED
        reason = CancelReason.PARENT_CANCELLED if stopped else CancelReason.PARENT_FINISHED
        return Ending(RunStatus.CANCELLED, cancellation=Cancellation(reason=reason))
    home = execution.home
    if home is not None and home.is_refusing and execution.parent is None and not execution.is_background:
        why = "the runtime is shutting down and starts no new runs"
        return Ending(RunStatus.CANCELLED, cancellation=Cancellation(reason=CancelReason.SHUTDOWN, message=why))
    token = execution.options.cancellation
    if token is not None and (request := token.cancellation) is not None:
        return Ending(RunStatus.CANCELLED, cancellation=request)
    return None


def join(execution: Execution, home: Home) -> None:
    """Takes its place among the live."""
    home.register(execution)
    if execution.parent is not None:
        execution.parent.children[execution.id] = execution
    for ancestor in execution.ancestors():
        if ancestor.parent is not None:  # a root's readers read all of its tree's log
            ancestor.family.add(execution.id)


def queue(execution: Execution) -> None:
    """Its first event, where it has to wait for its turn on a session."""
    execution.first_seq = execution.log.head + 1
    execution.write(events.Queued, session_id=execution.session_id)


def announce(execution: Execution) -> None:
    """It runs: its first event, or the one behind `run.queued`."""
    execution.status = advance(execution.status, RunStatus.RUNNING)
    if execution.keeping is None:
        execution.first_seq = execution.log.head + 1
    execution.write(
        events.Started,
        name=execution.definition.name,
        kind=execution.definition.kind,
        input=execution.options.input,
        session_id=execution.session_id if execution.keeping is not None else None,
        tags=execution.options.tags,
        model=execution.definition.model_name,
        timeout=execution.options.timeout,
    )


def answer_as(execution: Execution, answered: RunResult[Any]) -> Any:
    """Ends the body as another run has ended, which has taken up what this one was to say."""
    if answered.is_completed:
        context = RunContext(execution)
        context.text(answered.text)
        context.close_reply()
        return answered.output
    if answered.cancellation is not None:
        execution.request_stop(answered.cancellation)
        raise RunCancelled("the run that it has steered was stopped", cancellation=answered.cancellation)
    assert answered.error is not None
    raise answered.error


def arm(execution: Execution, home: Home) -> None:
    """The clocks start: its time-out, and the token that governs it."""
    timeout = execution.options.timeout
    inherited = execution.parent.deadline if execution.parent else None
    own = None if timeout is None else home.loop.time() + timeout
    if own is not None and (inherited is None or own < inherited):
        execution.timer = home.loop.call_at(own, _time_out, execution)
    execution.deadline = min((at for at in (own, inherited) if at is not None), default=None)
    if execution.options.cancellation is not None:
        execution.governor = execution.options.cancellation.govern(execution)


def _time_out(execution: Execution) -> None:
    execution.cancel(f"after {execution.options.timeout:g} s", reason=CancelReason.TIMEOUT)
