"""What stands in the way of deleting a session: runs that are live on it."""

from __future__ import annotations

from collections.abc import Hashable, Iterable

from halter.core.current import current_execution
from halter.core.execution import Execution
from halter.core.home import LIVE
from halter.core.lockfree import snapshot
from halter.core.run import Run
from halter.errors import BusyError, SessionBusy
from halter.outcome import CancelReason
from halter.sessions.records import RunRecord, Session


def refuse_from_inside(key: Hashable) -> None:
    """Raises `BusyError` where a run on this session asks: it would wait for its own end."""
    current = current_execution()
    if current is not None and any(run.session_key == key for run in (current, *current.ancestors())):
        raise BusyError("a run cannot delete the session that it runs on")


def refuse_while_held(session: Session | None, lost: Iterable[RunRecord]) -> None:
    """Raises `SessionBusy` if a run has the session's turn; not of one that is `lost`, which nobody would end."""
    if session is not None and session.holder not in (None, *(record.run_id for record in lost)):
        id, holder = session.id, session.holder
        raise SessionBusy(f"session {id!r} is busy: run {holder} has its turn", session_id=id, holder=holder)


async def stop_all(key: Hashable) -> None:
    """Stops the runs of this process that are on the session or wait for it; returns when they have ended."""
    live = [execution for execution in snapshot(LIVE) if _is_first_on(execution, key)]
    for execution in live:
        execution.cancel("its session is deleted", reason=CancelReason.ADMIN)
    for execution in live:
        await Run.observing(execution).finished()


def _is_first_on(execution: Execution, key: Hashable) -> bool:
    """True for the run itself that has the session; those under it end with it."""
    above = execution.parent
    return execution.session_key == key and (above is None or above.session_key != key)
