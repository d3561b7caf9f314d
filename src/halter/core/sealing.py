"""The end of a run, written down: what was open is sealed, the result is made, the terminal event comes last."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterator
from functools import partial
from typing import TYPE_CHECKING, Any

from halter import events
from halter.core import history, stopping
from halter.errors import ConfigurationError, RunLost
from halter.messages import Message, as_messages
from halter.outcome import CancelReason, RunResult, RunStatus

if TYPE_CHECKING:
    from halter.core.execution import Execution

_logger = logging.getLogger("halter")


def let_body_add(execution: Execution) -> None:
    """What the body has left to say of its children, now that they are over. If that fails, it is logged."""
    try:
        if execution.at_end is not None:
            execution.carried.copy().run(execution.at_end)  # a child that ended last comes here in its own
    except BaseException:  # also SystemExit: it would end the loop, and every run on it
        _logger.exception("what run %s has left to its end failed", execution.id)


def steps(execution: Execution) -> Iterator[Callable[[], object]]:
    """Yields what closes, in the log and the history, one thing after another that was open, as far as it came."""
    for call in execution.calls:
        yield call.seal
    yield partial(_end_announced_calls, execution)
    yield partial(_end_questions, execution)
    yield partial(_end_compaction, execution)
    for reply in list(execution.replies.values()):
        yield reply.seal
    yield partial(_end_step, execution)
    yield partial(_end_conversation, execution)


def _end_announced_calls(execution: Execution) -> None:
    for announced in execution.announced if execution.cell["end"].status is not RunStatus.COMPLETED else ():
        execution.write(
            events.ToolFinished,
            call_id=announced.id,
            name=announced.name,
            outcome="cancelled",
            result=history.NOT_RUN,
            elapsed=0.0,
        )


def _end_questions(execution: Execution) -> None:
    for request_id in execution.inputs:
        execution.write(events.InputReceived, request_id=request_id, outcome="cancelled")


def _end_compaction(execution: Execution) -> None:
    if execution.open_compaction is not None:
        outcome = "cancelled" if execution.cell["end"].status is RunStatus.CANCELLED else "failed"
        execution.write(events.CompactionFinished, outcome=outcome, tokens_before=execution.open_compaction)


def _end_step(execution: Execution) -> None:
    if execution.open_step is not None:
        execution.write(events.StepFinished, step=execution.open_step, interrupted=True)


def _end_conversation(execution: Execution) -> None:
    if execution.cell["end"].status is RunStatus.COMPLETED:
        return
    if execution.options.keep == "rollback":
        del execution.conversation[execution.base :]
        execution.state = execution.state_before
    else:
        _seal_history(execution)


def _seal_history(execution: Execution) -> None:
    """Each call of the turn that was cut off gets its result; that it was cut off is seen from its last message."""
    conversation = execution.conversation
    unheard = _unheard(execution)
    conversation.extend(unheard)
    results = tuple(call.result for call in execution.calls if call.result is not None)
    if results:
        conversation.append(Message("tool", results, interrupted=True))
        return
    was_stopped = execution.has_asked and execution.cell["end"].status is RunStatus.CANCELLED
    was_stopped = was_stopped or bool(unheard)
    missing = history.seal(conversation, was_stopped=was_stopped)
    if missing is not None:
        conversation.append(missing)


def _unheard(execution: Execution) -> tuple[Message, ...]:
    """What a run was to say that had its session's turn and was overtaken before it spoke: it was said all the same."""
    request = execution.request()
    if request is None or request.reason is not CancelReason.SUPERSEDED or execution.keeping is None:
        return ()
    given = execution.options.input
    has_spoken = len(execution.conversation) > execution.base
    try:
        return () if has_spoken else as_messages(given)
    except ConfigurationError:  # inputs of a crew, a state: nothing that is said
        return ()


def result_of(execution: Execution, confirmed: bool) -> RunResult[Any]:
    """Everything that the run has produced; `confirmed`: its own loop has ended it."""
    ending = execution.cell["end"]
    stopped = ending.status is RunStatus.CANCELLED
    request = execution.request() or ending.cancellation
    return RunResult(
        run_id=execution.id,
        status=ending.status,
        output=ending.output,
        text=execution.text or (ending.output if isinstance(ending.output, str) else ""),
        messages=tuple(execution.conversation),
        undelivered=tuple(execution.steering),
        state=execution.state,
        usage=execution.usage,
        cost=execution.cost,
        error=ending.error or execution.body_error,
        cancellation=request if stopped else None,
        receipt=stopping.receipt_of(execution, request, confirmed) if stopped and request else None,
    )


def write_terminal(execution: Execution, result: RunResult[Any]) -> None:
    """The run's last event."""
    summary = {"text": result.text, "usage": result.usage}
    if result.status is RunStatus.COMPLETED:
        execution.write(events.Completed, output=result.output, **summary)
    elif result.status is RunStatus.FAILED:
        error = result.error or RunLost("it ended without a reason")
        execution.write(events.Failed, error=events.failure_of(error), **summary)
    else:
        assert result.cancellation is not None
        execution.write(
            events.Cancelled,
            reason=result.cancellation.reason,
            mode=result.cancellation.mode,
            receipt=result.receipt,
            **summary,
        )


def surfaces(error: BaseException | None) -> bool:
    """True for what is raised again in whoever waits: `SystemExit`, `KeyboardInterrupt`.

    A `CancelledError` of the body's own must not look like a cancel of the waiter.
    """
    return error is not None and not isinstance(error, Exception | asyncio.CancelledError | GeneratorExit)
