"""How one resource is ended: severed, cancelled, closed, or given up and named. `stopping.py` says which, and when.

Callbacks are called in the context of the run that the resource belongs to, or of its tool call: a stop comes with the
canceller's context.
"""

from __future__ import annotations

import asyncio
import contextvars
import inspect
import logging
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any

from halter.core.resources import Resource
from halter.outcome import Ended

if TYPE_CHECKING:
    from halter.core.execution import Execution

_logger = logging.getLogger("halter")


def _context(resource: Resource, member: Execution) -> contextvars.Context:
    """A copy: the context itself may be entered at this moment, by the body or in another thread."""
    return (resource.owner or member).carried.copy()


def sever_one(resource: Resource, member: Execution) -> None:
    """Calls its `sever`."""
    _call(resource.sever, resource, member)


def end_from_anywhere(resource: Resource, member: Execution) -> None:
    """What can be done about it from any thread, where its own loop does not answer."""
    _call(resource.sever, resource, member)
    _call(resource.last_resort, resource, member)


def _call(end: Callable[[], None] | None, resource: Resource, member: Execution) -> None:
    """Calls one of its ends, if it has it; one that fails is logged."""
    try:
        if end is not None:
            _context(resource, member).run(end)
    except BaseException:  # as for `close`
        _logger.exception("severing %r failed", resource)


def cancel_task(resource: Resource, member: Execution) -> None:
    """Cancels its task, unless that is done, is this very task, or is the body's and the body is over."""
    resource.is_closing = True
    task = resource.task
    if task is None or task.done() or (resource is member.body and member.body_is_over):
        return
    if task is not asyncio.current_task():
        task.cancel()


def end_one(resource: Resource, member: Execution) -> None:
    """Ends it, whatever it is."""
    if resource.task is not None:
        cancel_task(resource, member)
    else:
        close(resource, member)


def close(resource: Resource, member: Execution) -> None:
    """Calls its `close`, once; a resource whose close fails counts as abandoned, and is logged."""
    if resource.is_closing or resource.close is None:
        return
    resource.is_closing = True
    context = _context(resource, member)
    try:
        pending = context.run(resource.close)
    except BaseException:  # also SystemExit: it would end the loop, and every run on it
        _logger.exception("closing %r failed", resource)
        resource.end(Ended.ABANDONED)
        return
    if inspect.isawaitable(pending):
        _end_when_done(resource, member, pending, context)
    else:
        resource.end(Ended.CLOSED)


def _end_when_done(
    resource: Resource, member: Execution, pending: Awaitable[Any], context: contextvars.Context
) -> None:
    future = pending if asyncio.isfuture(pending) else member.spawn(_awaited(pending), context=context)

    def done(future: asyncio.Future[Any]) -> None:
        if future.cancelled() or future.exception() is not None:
            _logger.error("closing %r failed: %r", resource, None if future.cancelled() else future.exception())
            resource.end(Ended.ABANDONED)
        else:
            resource.end(Ended.CLOSED)

    future.add_done_callback(done)


async def _awaited(pending: Awaitable[Any]) -> Any:
    try:
        return await pending
    except (SystemExit, KeyboardInterrupt) as error:  # as for `close`
        raise RuntimeError(f"{type(error).__name__} where something is closed") from error


def give_up(resource: Resource, member: Execution) -> None:
    """Lets go of what has not ended in its time: named, with the place where it is, and told in the receipt."""
    if resource.ended is not None:
        return
    if resource.place is not None:
        resource.label = f"{resource.label} ({resource.place()})"
    _logger.warning("abandoned after the grace: %s %s of run %s", resource.kind, resource.label, member.id)
    for each in (member, *member.ancestors()):
        if each.stop is not None and each.stop.cut is not None and resource not in each.stop.open:
            each.stop.open.append(resource)  # opened after the cut
    resource.end(Ended.ABANDONED)
