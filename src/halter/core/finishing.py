"""How a run is finished: sealed, stored, its terminal event written, its waiters woken. The last line of defence.

1. It happens once: whoever claims it first does all of it. 2. Every step is taken, also where one before it has
failed. 3. A failed step is logged, and a run that had completed ends as failed with that error. 4. Nothing raised on
the way reaches the caller.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from functools import partial
from typing import TYPE_CHECKING, Any

from halter import events
from halter.core import sealing, stopping
from halter.core.lifecycle import Ending, advance
from halter.errors import RunLost
from halter.messages import Usage
from halter.outcome import Cancellation, CancelReceipt, RunResult, RunStatus

if TYPE_CHECKING:
    from halter.core.execution import Execution

_logger = logging.getLogger("halter")


def finish(execution: Execution, *, confirmed: bool) -> None:
    """Seals the run, has what was said stored, and completes it. Once, whoever comes first; from any thread if lost.

    `confirmed`: its own loop ends it. Then the runs above it that have waited only for this one end as well.
    """
    _end(execution, confirmed=confirmed)
    run = execution
    while confirmed and run.result is not None and run.parent is not None and run.home is not None:
        run = run.parent  # one after another: a deep tree must not need a deep stack
        settle = partial(_settle, run)
        if not _surely(run, settle):
            _surely(run, settle)


def _settle(execution: Execution) -> None:
    """Ends it if nothing of it is left; the runs above it are looked at by the caller."""
    if execution.result is None and execution.may_end():
        _end(execution, confirmed=True)
    else:
        execution.changed.wake()


def _end(execution: Execution, *, confirmed: bool) -> None:
    me = object()
    if execution.claims.setdefault("finish", me) is not me:
        if not confirmed and execution.ended_as is not None:  # its loop has gone while the last of it was stored
            _complete(execution, _lost_while_stored(execution, execution.ended_as), confirmed=False)
        return
    if execution.task is None:
        _surely(execution, execution.part_from_tree)
    if confirmed:
        sealing.let_body_add(execution)
    for step in sealing.steps(execution):
        _surely(execution, step)
    result = execution.ended_as = _result_of(execution, confirmed)
    keeping = execution.keeping
    if keeping is None or not keeping.has_begun:
        _complete(execution, result, confirmed=confirmed)
    elif confirmed:
        if not _surely(execution, lambda: keeping.close(result, partial(_stored, execution))):
            _complete(execution, result, confirmed=True)
    else:
        _surely(execution, keeping.lose)
        _complete(execution, result, confirmed=False)


def _stored(execution: Execution, result: RunResult[Any]) -> None:
    """What it had said is in its session, some time later; or nobody waits for that any more."""
    _complete(execution, result, confirmed=True)
    if execution.parent is not None:
        execution.parent.settle()


def _lost_while_stored(execution: Execution, result: RunResult[Any]) -> RunResult[Any]:
    lost: list[RunResult[Any]] = []
    if execution.keeping is not None:
        keeping = execution.keeping
        _surely(execution, lambda: lost.append(keeping.lose_end_of(result)))
    return lost[0] if lost else result


def _complete(execution: Execution, result: RunResult[Any], *, confirmed: bool) -> None:
    """Writes the terminal event, and tells everybody. Once, whoever comes first."""
    me = object()
    if execution.claims.setdefault("completed", me) is not me:
        return
    _write_terminal(execution, result)
    _settle_status(execution, result.status)
    execution.result = result
    for step in (*_partings(execution, confirmed), *execution.on_done.values()):
        _surely(execution, step)
    execution.on_done.clear()
    for step in _wake_ups(execution, confirmed):
        if not _surely(execution, step):
            _surely(execution, step)  # one waiter that cannot be woken keeps no other asleep


def _partings(execution: Execution, confirmed: bool) -> Iterator[Callable[[], object]]:
    """Yields what lets go of everything that it held, and of everything that held it."""
    execution.at_end = None
    yield execution.voice.end
    yield execution.current.empty
    if execution.governor is not None:
        yield execution.governor.close
    if execution.parent is not None and execution.home is not None:
        yield partial(_leave, execution, execution.parent)
    if confirmed:
        yield execution.disarm


def _wake_ups(execution: Execution, confirmed: bool) -> Iterator[Callable[[], object]]:
    """Yields what takes it off the index of the live, and wakes everybody who waits: readers and waiters."""
    if execution.given_to is not None:
        yield partial(execution.given_to.unregister, execution)
    yield partial(execution.log.arrived.wake, threadsafe=not confirmed)
    yield partial(execution.log.resumed.wake, threadsafe=not confirmed)
    yield partial(execution.done.wake, threadsafe=True)
    yield partial(execution.changed.wake, threadsafe=True)


def _leave(execution: Execution, parent: Execution) -> None:
    """What it has used is its parent's too."""
    parent.children.pop(execution.id, None)
    parent.usage = parent.usage + execution.usage
    parent.add_cost(execution.cost)


# --- whatever fails -----------------------------------------------------------------------------------------


def _surely(execution: Execution, step: Callable[[], object]) -> bool:
    """Takes one step. One that fails is logged and False is returned; a run that had completed has failed then."""
    try:
        step()
    except BaseException as error:  # also SystemExit: it would end the loop, and every run on it
        _spoil(execution, error)
        return False
    return True


def _spoil(execution: Execution, error: BaseException) -> None:
    """The end of the run cannot be written down as it should be."""
    _logger.error("the end of run %s could not be written down whole; please report this", execution.id, exc_info=error)
    execution.body_error = execution.body_error or error
    if execution.result is None and execution.cell["end"].status is RunStatus.COMPLETED:
        execution.cell["end"] = Ending(RunStatus.FAILED, error=error)
    if isinstance(error, KeyboardInterrupt) and execution.home is not None:
        execution.home.wake(partial(_raise, error))  # it was meant for whoever runs the loop


def _raise(error: BaseException) -> None:
    raise error


def _result_of(execution: Execution, confirmed: bool) -> RunResult[Any]:
    """Everything that the run has produced; where that cannot be put together, what is certain."""
    try:
        return sealing.result_of(execution, confirmed)
    except BaseException as error:
        _spoil(execution, error)
    ending = execution.cell["end"]
    stopped = ending.status is RunStatus.CANCELLED
    request = ending.cancellation or Cancellation()
    return RunResult(
        run_id=execution.id,
        status=ending.status,
        messages=tuple(execution.conversation),
        undelivered=tuple(execution.steering),
        state=execution.state,
        usage=execution.usage,
        cost=execution.cost,
        error=ending.error or execution.body_error,
        cancellation=request if stopped else None,
        receipt=CancelReceipt(requested_at=request.at, stopped_after_ms=0.0, confirmed=False) if stopped else None,
    )


def _write_terminal(execution: Execution, result: RunResult[Any]) -> None:
    """The run's last event; where that cannot be made of its result, a bare one."""
    log = execution.log
    before = log.head
    written = _surely(execution, lambda: sealing.write_terminal(execution, result))
    if not written and log.head == before:
        _surely(execution, lambda: _write_bare_terminal(execution, result))
    execution.last_seq = log.head
    log.ended = execution.parent is None


def _write_bare_terminal(execution: Execution, result: RunResult[Any]) -> None:
    error = result.error or RunLost("its result could not be written down")
    if result.cancellation is not None and result.receipt is not None:
        execution.write(
            events.Cancelled,
            reason=result.cancellation.reason,
            mode=result.cancellation.mode,
            receipt=result.receipt,
            text="",
            usage=Usage(),
        )
    elif result.status is RunStatus.COMPLETED:
        execution.write(events.Completed, output=None, text="", usage=Usage())
    else:
        failure = events.Failure(type=type(error).__name__, message=type(error).__name__)
        execution.write(events.Failed, error=failure, text="", usage=Usage())


def _settle_status(execution: Execution, status: RunStatus) -> None:
    def move() -> None:
        if status is RunStatus.CANCELLED:
            execution.status = advance(execution.status, RunStatus.CANCELLING)
        execution.status = advance(execution.status, status)

    if not _surely(execution, move):
        execution.status = status


def failed(execution: Execution, error: BaseException) -> None:
    """The run's own machinery has failed before its end: it ends here, with all that is under it, not confirmed."""
    _logger.error("run %s is ended: its own machinery failed; please report this", execution.id, exc_info=error)
    stopping.lose(execution, error)
