"""How a stop goes through a tree of runs, and how a run that ended by itself is wound down.

1. In one tick: sockets are shut down; descendants' tasks are cancelled, innermost first, then the run's own; then every
resource of the tree is closed, newest first. (In another tick, a body could take the stop for a broken connection.)
2. `CancelledError` is delivered once; what is alive at half the grace gets it again and again, at the end of the grace
for the last time, and is then abandoned and named. 3. What the stop's mode spares (a tool that must finish) is left
alone until the grace is over. 4. Nothing here waits: `settle` ends the run when the last thing has ended.
"""

from __future__ import annotations

import asyncio
import logging
import math
import time
import warnings
from collections.abc import Iterator
from functools import partial
from typing import TYPE_CHECKING

from halter import events
from halter.core.ending import cancel_task, close, end_from_anywhere, give_up, sever_one
from halter.core.grace import Grace
from halter.core.lifecycle import Ending, advance
from halter.core.lockfree import snapshot
from halter.core.resources import Resource, receipt
from halter.outcome import Cancellation, CancelMode, CancelReason, CancelReceipt, RunStatus

if TYPE_CHECKING:
    from halter.core.execution import Execution

KILL_PATIENCE = 0.25  # seconds until a process that was killed is known to be gone
_logger = logging.getLogger("halter")
TICKS_BEFORE_A_KILL_ABANDONS = 4  # a task that ends at its first CancelledError needs as many to be seen as ended


class Stop:
    """One run's stop, or winding down, while it is under way."""

    __slots__ = ("cut", "cut_seq", "mode", "open", "timers", "until")

    def __init__(self) -> None:
        self.mode: CancelMode | None = None  # as announced
        self.cut: CancelMode | None = None  # how hard it has been cut so far
        self.until: float | None = None  # when its grace is over, on its loop's clock
        self.cut_seq: int | None = None  # readers that do not replay go on from here
        self.open: list[Resource] = []
        self.timers: list[asyncio.Handle | Grace] = []

    def disarm(self) -> None:
        for timer in self.timers:
            timer.cancel()
        self.timers.clear()


def _stop_of(execution: Execution) -> Stop:
    execution.stop = execution.stop or Stop()
    return execution.stop


# --- a request arrives --------------------------------------------------------------------------------------


def on_request(execution: Execution) -> None:
    """On the home loop, after each request: makes it happen. If that fails, the run is lost: it ends all the same."""
    try:
        _obey(execution)
    except Exception as error:
        _logger.error("stopping run %s failed; please report this", execution.id, exc_info=error)
        lose(execution)


def _obey(execution: Execution) -> None:
    if execution.result is not None:
        _end_leftovers([execution])
        return
    ending = execution.cell.get("end")
    request = execution.request()
    if request is None or (ending is not None and ending.status is not RunStatus.CANCELLED):
        return  # it had ended otherwise before this request came
    cuts = request.mode.cuts or ending is not None
    if cuts:
        _sever(execution, request.mode)
    _announce(execution, request)
    if cuts:
        _cut(execution, request)
    else:
        for asked in snapshot(execution.inputs):
            if asked.kind == "approval":
                asked.answer.cancel()  # what has not begun when a stop is asked for does not begin
        for child in snapshot(execution.children):
            if not child.is_spared(request.mode):
                child.cancel(request.message, reason=CancelReason.PARENT_CANCELLED, mode=request.mode)


def _reached(execution: Execution, mode: CancelMode) -> Iterator[Execution]:
    """The live runs that the stop ends now, innermost first."""
    found = [execution]
    for member in found:  # which grows meanwhile: depth costs no stack
        found.extend(child for child in snapshot(member.children) if not child.is_spared(mode))
    return reversed(found)


def sever(execution: Execution) -> None:
    """Ends the traffic of a run that is asked to stop, at once, in whatever thread asks for it."""
    request = execution.request()
    if request is not None and request.mode.cuts:
        _sever(execution, request.mode)


def _sever(execution: Execution, mode: CancelMode) -> None:
    """The traffic ends before anything is written down. The bodies' tasks are cancelled in this very tick: before the
    loop looks at its sockets again, so that none of them takes the end for the provider's."""
    for member in _reached(execution, mode):
        for resource in snapshot(member.resources):
            if resource.sever is not None and not resource.is_closing and not resource.is_spared(mode):
                sever_one(resource, member)


def _announce(execution: Execution, request: Cancellation) -> None:
    """Writes `run.cancelling`: at first, and each time the stop is made stronger."""
    stop = _stop_of(execution)
    if not _is_stronger(request.mode, stop.mode):
        return
    if stop.mode is None and request.reason is CancelReason.HANDLE_DROPPED:
        assert execution.home is not None
        execution.home.loop.call_soon(_warn_of_dropped, execution)  # where warnings are errors, the stop goes on
    stop.mode = request.mode
    execution.status = advance(execution.status, RunStatus.CANCELLING)
    event = execution.write(
        events.Cancelling,
        reason=request.reason,
        mode=request.mode,
        actor=request.actor,
        message=request.message,
        after_seq=execution.log.head,
    )
    if request.mode.cuts and stop.cut_seq is None:
        stop.cut_seq = event.seq
    execution.log.resumed.wake()


def _warn_of_dropped(execution: Execution) -> None:
    warnings.warn(
        f"run {execution.id} of {execution.definition.name!r} was stopped because its handle was dropped; "
        f"keep the handle, use `async with`, or let it run on with run.detach()",
        ResourceWarning,
        stacklevel=1,
    )


def _cut(execution: Execution, request: Cancellation) -> None:
    mode = request.mode
    family = [member for member in _reached(execution, mode) if _is_stronger(mode, _stop_of(member).cut)]
    for member in reversed(family):  # the cause before its effects
        _claim_for(member, execution, request)
    for member in family:
        _note_what_is_open(member)
    for member in family:
        member.tell()
        if not _is_delivered(member, request):
            _deliver(member, mode, again=mode is CancelMode.KILL)
    _close_all(family, mode)
    for member in family:
        _arm_grace(member, mode, execution.options.grace)


def _is_stronger(mode: CancelMode, before: CancelMode | None) -> bool:
    return before is None or mode.strength > before.strength


def _claim_for(member: Execution, execution: Execution, request: Cancellation) -> None:
    """Claims a descendant's end for the stop of `execution`, unless it has one."""
    if member is not execution:
        caused = Cancellation(
            reason=CancelReason.PARENT_CANCELLED,
            mode=request.mode,
            actor=request.actor,
            message=request.message,
            at=request.at,
        )
        member.claims.setdefault("instant", execution.claims["instant"])
        member.claims.setdefault("request", caused)
        member.requests.append(caused)
        held = member.claim(Ending(RunStatus.CANCELLED, cancellation=caused))
        if held.status is RunStatus.CANCELLED:
            own = member.request()
            assert own is not None
            _announce(member, own)
    _stop_of(member).cut = request.mode


def _note_what_is_open(member: Execution) -> None:
    """Remembers, for the receipt, what the stop found open; of children that it has cut, they know it already."""
    stop = _stop_of(member)
    stop.open = stop.open or sorted(_open_in(member), key=lambda resource: resource.age)


def _open_in(member: Execution) -> Iterator[Resource]:
    found = [member]
    for each in found:  # which grows meanwhile
        if each is not member and each.stop is not None and each.stop.open:
            yield from each.stop.open
        else:
            yield from snapshot(each.resources)
            found.extend(snapshot(each.children))


# --- ending what is open ------------------------------------------------------------------------------------


def _deliver(member: Execution, mode: CancelMode, *, again: bool = True) -> None:
    """Cancels the tasks of the run that `mode` does not spare, the newest first: the body's own comes last."""
    for resource in sorted(snapshot(member.resources), key=lambda resource: resource.age, reverse=True):
        if resource.task is not None and not resource.is_spared(mode) and (again or not resource.is_closing):
            cancel_task(resource, member)


def _is_delivered(member: Execution, request: Cancellation) -> bool:
    """True if the end of `asyncio.run` has cancelled this task, with all others: a second would cut its clean-up."""
    with_the_loop = request.reason in (CancelReason.SHUTDOWN, CancelReason.CALLER_CANCELLED)
    return with_the_loop and member.task is not None and member.task.cancelling() > 0


def _close_all(family: list[Execution], mode: CancelMode) -> None:
    resources = [(resource, member) for member in family for resource in snapshot(member.resources)]
    for resource, member in sorted(resources, key=lambda pair: pair[0].age, reverse=True):
        if not resource.is_spared(mode):
            close(resource, member)


# --- grace --------------------------------------------------------------------------------------------------


def _arm_grace(member: Execution, mode: CancelMode, grace: float) -> None:
    assert member.home is not None
    stop = _stop_of(member)
    stop.disarm()
    loop = member.home.loop
    if mode is CancelMode.KILL or grace == 0:
        stop.timers.append(loop.call_soon(_count_down, member, TICKS_BEFORE_A_KILL_ABANDONS * _height(member)))
        return
    now = loop.time()
    stop.until = until = min(stop.until or math.inf, now + grace)  # a stop made stronger gives no more time
    stop.timers.append(Grace(loop, until, partial(_deliver, member, mode), partial(abandon, member)))
    for resource in snapshot(member.resources):
        if resource.patience is not None and now + resource.patience < until and not resource.is_spared(mode):
            stop.timers.append(loop.call_later(resource.patience, _lose_patience, resource, member, mode))


def _lose_patience(resource: Resource, member: Execution, mode: CancelMode) -> None:
    if not resource.is_spared(mode):  # it may be undoing by now what it had done, for which it has the whole grace
        give_up(resource, member)


def _height(member: Execution) -> int:
    """How many runs deep it is: a body that waits for a child ends after it."""
    height, level = 0, [member]
    while level:
        height, level = height + 1, [child for each in level for child in snapshot(each.children)]
    return height


def _count_down(member: Execution, ticks: int) -> None:
    assert member.home is not None
    if ticks == 0:
        if _is_being_killed(member):
            _stop_of(member).timers.append(member.home.loop.call_later(KILL_PATIENCE, abandon, member))
        else:
            abandon(member)
    else:
        _stop_of(member).timers.append(member.home.loop.call_soon(_count_down, member, ticks - 1))


def _is_being_killed(member: Execution) -> bool:
    """Something is open that the system ends by force: that is seen a moment later."""
    return any(resource.last_resort for each in member.subtree() for resource in snapshot(each.resources))


def abandon(member: Execution) -> None:
    """The grace is over: whatever is left is cancelled once more, closed, named, and let go of. Children first."""
    family = list(member.subtree())
    for child in reversed(family[:-1]):
        if not child.cell:  # it was spared so far
            child.cancel(reason=CancelReason.PARENT_CANCELLED, mode=CancelMode.KILL)
        on_request(child)  # also one of its own, which came in this very moment
    for each in family:
        _let_go(each)


def _let_go(member: Execution) -> None:
    _deliver(member, CancelMode.KILL)
    _close_all([member], CancelMode.KILL)  # also what was opened after the cut
    for resource in snapshot(member.resources):
        give_up(resource, member)


# --- a body that ended by itself ----------------------------------------------------------------------------


def wind_down(execution: Execution) -> None:
    """After the body: what it left running is stopped, what it left open is closed. Home loop."""
    ending = execution.cell["end"]
    if ending.status is RunStatus.CANCELLED:
        execution.claims.setdefault("instant", time.monotonic())
        on_request(execution)
        _close_all([execution], ending.cancellation.mode if ending.cancellation else CancelMode.IMMEDIATE)
        return
    for child in snapshot(execution.children):
        if not child.is_spared(CancelMode.IMMEDIATE):
            child.cancel(reason=CancelReason.PARENT_FINISHED)
    _deliver(execution, CancelMode.IMMEDIATE)
    _close_all([execution], CancelMode.IMMEDIATE)
    if execution.children or len(execution.resources) > 1:
        _arm_grace(execution, CancelMode.IMMEDIATE, execution.options.grace)


# --- a home loop that is gone, or does not answer -----------------------------------------------------------


def lose(execution: Execution, error: BaseException | None = None, *, sever: bool = True) -> None:
    """Ends a tree whose loop cannot do it, from any thread, as not confirmed; innermost first.

    `error`: it ends as failed with this, unless a stop was claimed. `sever=False` leaves sockets alone: in a forked
    child they are the parent's.
    """
    family = list(execution.subtree())
    for member in family:
        member.claims.setdefault("launch", lose)  # one that its loop has not looked at yet never begins
        request = member.request() or Cancellation(reason=CancelReason.OWNER_LOST, message="its event loop is gone")
        if error is not None:
            member.claim(Ending(RunStatus.FAILED, error=error))
        else:
            member.claim(Ending(RunStatus.CANCELLED, cancellation=request))
        member.claims.setdefault("instant", time.monotonic())
        stop = _stop_of(member)
        stop.open = stop.open or snapshot(member.resources)
        for resource in snapshot(member.resources) if sever else ():
            end_from_anywhere(resource, member)
        member.finish(confirmed=False)
    if sever and execution.home is not None:
        execution.home.wake(lambda: _end_leftovers(family))


def _end_leftovers(family: list[Execution]) -> None:
    """A loop that did not answer does again: the runs are over, and what is left of them is ended now."""
    for member in family:
        member.disarm()
        _deliver(member, CancelMode.KILL)
        for resource in snapshot(member.resources):
            close(resource, member)
        if member.keeping is not None:
            member.keeping.come_back()
        if member.parent is not None:
            member.parent.settle()  # it may have waited for nothing else


# --- the receipt --------------------------------------------------------------------------------------------


def receipt_of(execution: Execution, request: Cancellation, confirmed: bool) -> CancelReceipt:
    since = execution.claims.get("instant")
    stop = execution.stop
    return receipt(
        request.at,
        since if isinstance(since, float) else time.monotonic(),
        stop.open if stop else [],
        confirmed,
    )
