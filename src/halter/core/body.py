"""How a run's body is carried: its task, from its first step to its last.

Whatever the body comes to, the run's end is claimed with it, and what it has left open is wound down. Home loop.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import TYPE_CHECKING, Any

from halter.core import finishing, starting, stopping
from halter.core.context import RunContext
from halter.core.current import CURRENT
from halter.core.lifecycle import Ending
from halter.errors import RunCancelled
from halter.outcome import Cancellation, CancelReason, Ended, RunStatus

if TYPE_CHECKING:
    from halter.core.execution import Execution
    from halter.core.home import Home


def launch(execution: Execution, home: Home) -> None:
    """The run takes its place on its home loop, and its body begins, unless it was born cancelled.

    If that fails, the run ends with the error: it is known by its id already, and somebody may wait for it. May be
    called twice.
    """
    me = object()
    try:
        if execution.claims.setdefault("launch", me) is me:
            _launch(execution, home)
    except Exception as error:
        finishing.failed(execution, error)


def _launch(execution: Execution, home: Home) -> None:
    # Published first and looked at afterwards: a stop either finds the home or is found here.
    execution.home = home
    born_dead = starting.born_cancelled(execution)
    if born_dead:
        execution.claim(born_dead)
    if execution.cell:
        execution.end_unstarted()
        return
    starting.join(execution, home)
    if execution.keeping is None:
        starting.announce(execution)
    else:
        starting.queue(execution)
    starting.arm(execution, home)
    _begin(execution, home)
    if execution.requests:  # asked to end after its turn before it had begun
        stopping.on_request(execution)


def _begin(execution: Execution, home: Home) -> None:
    execution.carried.run(CURRENT.set, execution.current)
    name = f"halter:{execution.definition.name}:{execution.id}"
    if execution.is_background:
        task = home.background(execution, _carry(execution), name)
    else:
        task = asyncio.Task(_carry(execution), loop=home.loop, name=name, context=execution.carried)
    execution.task = task
    execution.body = execution.hold(execution.task_resource("task", execution.definition.name, task))
    task.add_done_callback(lambda task: _on_task_done(execution, task))


async def _carry(execution: Execution) -> None:
    if execution.result is not None:
        return  # ended while it was being started
    try:
        ending = Ending(RunStatus.COMPLETED, output=await _body_of(execution))
    except BaseException as error:  # also SystemExit: it must not travel through the loop
        ending = _ending_of(execution, error)
    execution.body_is_over = True
    await _end_with(execution, ending)


def _body_of(execution: Execution) -> Coroutine[Any, Any, Any]:
    """With a session, in the run's turn."""
    keeping, execute = execution.keeping, execution.definition.execute
    if keeping is None:
        return execute(RunContext(execution))
    return keeping.run(lambda: execute(RunContext(execution)))


async def _end_with(execution: Execution, ending: Ending) -> None:
    home = execution.home
    assert home is not None
    if home.is_here:
        execution.is_deaf = True  # first: what a thread emits from here on is refused, and it is told so
        home.read_inbox()  # what its threads emitted before
    if execution.claim(ending) is not ending:
        _keep_error(execution, ending.error)
    elif ending.status is RunStatus.CANCELLED and execution.request() is None:
        execution.note(ending.cancellation)
    if not home.is_here:
        stopping.lose(execution)  # the coroutine is being thrown away: its loop is gone, and nothing may be awaited
        return
    stopping.wind_down(execution)
    foreign = ending.cancellation is not None and ending.cancellation.reason is CancelReason.SHUTDOWN
    if execution.keeping is not None:
        await _until_stored(execution)
    elif foreign:  # the loop is about to end: seal in this very task
        await _until_others_ended(execution)


def _ending_of(execution: Execution, error: BaseException) -> Ending:
    task = execution.task
    if isinstance(error, asyncio.CancelledError) and not execution.cell and task and task.cancelling():
        return Ending(RunStatus.CANCELLED, cancellation=_from_outside())
    if isinstance(error, RunCancelled) and (request := execution.request()):
        return Ending(RunStatus.CANCELLED, cancellation=request)
    return Ending(RunStatus.FAILED, error=error)


def _keep_error(execution: Execution, error: BaseException | None) -> None:
    if error is not None and not isinstance(error, asyncio.CancelledError | RunCancelled):
        execution.body_error = error


async def _until_stored(execution: Execution) -> None:
    """The end of `asyncio.run` waits for the tasks that it has cancelled, then closes what the last write needs."""
    _end_body(execution)
    while execution.result is None:
        try:
            await execution.done.wait_until(lambda: execution.result is not None)
        except asyncio.CancelledError:
            pass  # the body is over, and what is left ends within the grace


async def _until_others_ended(execution: Execution) -> None:
    await execution.changed.wait_until(lambda: execution.result is not None or execution.may_end(ignoring_task=True))


def _on_task_done(execution: Execution, task: asyncio.Task[None]) -> None:
    if not task.cancelled() and (error := task.exception()) is not None:
        finishing.failed(execution, error)
    if execution.result is None and not execution.body_is_over:
        # Cancelled before its first step; by somebody else, if no stop was claimed.
        execution.note(_from_outside() if not execution.cell else None)
        execution.claim(Ending(RunStatus.CANCELLED, cancellation=execution.request()))
        stopping.wind_down(execution)
    _end_body(execution)


def _end_body(execution: Execution) -> None:
    cancelled = execution.cell["end"].status is RunStatus.CANCELLED
    if execution.body is not None:
        execution.body.end(Ended.CANCELLED if cancelled else Ended.FINISHED)


def _from_outside() -> Cancellation:
    """The stop that somebody's `task.cancel()` amounts to, as at the end of `asyncio.run`."""
    return Cancellation(reason=CancelReason.SHUTDOWN, message="its task was cancelled from outside")
