"""`runtime()`: finds runs, stops many at once, lets somebody watch them all, and shuts down.

One per event loop; the index of live runs and the observers are the process's.
"""

from __future__ import annotations

import asyncio
from typing import Any

from halter.core import elsewhere
from halter.core.execution import Execution
from halter.core.home import LIVE, Home, home_here
from halter.core.lockfree import snapshot
from halter.core.observers import Observation
from halter.core.ports import Observer
from halter.core.run import Run
from halter.outcome import Cancellation, CancelMode, CancelReason, RunStatus


class Runtime:
    """What carries the runs of one event loop."""

    def __init__(self, home: Home) -> None:
        self._home = home

    def find(self, id: str) -> Run[Any] | None:
        """A handle on the live run with this id, which does not own it; `None` if there is none in this process."""
        execution = LIVE.get(id)
        return Run.observing(execution) if execution else None

    def runs(
        self, *, tag: str | None = None, status: RunStatus | None = None, session: str | None = None
    ) -> list[Run[Any]]:
        """The live runs of this process, children too, with this tag and status, and on the session of this id."""
        return [Run.observing(execution) for execution in snapshot(LIVE) if _fits(execution, tag, status, session)]

    async def cancel(
        self,
        id: str,
        message: str | None = None,
        *,
        reason: CancelReason = CancelReason.USER_STOP,
        mode: CancelMode = CancelMode.IMMEDIATE,
        actor: str | None = None,
        wait: bool = False,
    ) -> bool:
        """Stops the run with this id, as `Run.cancel`; False if no live run has it. `wait`: until it has ended.

        A run of another process is asked to stop through its record, in the sessions that are configured or in use
        here. That process hears of it within half a second. True: it was asked; with `wait`: the run was stopped. A run
        that has no record, or that still waits for its session's turn, is not found. Raises `SessionsUnavailable` if
        the run is not in this process and a place that may have it did not answer.
        """
        run = self.find(id)
        if run is None:
            return await elsewhere.stop(id, Cancellation.of(reason, mode, actor, message), wait=wait)
        in_force = run.cancel(message, reason=reason, mode=mode, actor=actor)
        if wait:
            await run.finished()
        return in_force

    async def cancel_all(
        self,
        message: str | None = None,
        *,
        tag: str | None = None,
        session: str | None = None,
        reason: CancelReason = CancelReason.USER_STOP,
        mode: CancelMode = CancelMode.IMMEDIATE,
        actor: str | None = None,
        wait: bool = False,
    ) -> list[str]:
        """Stops the process's live runs (those with this tag, on the session of this id); returns the ids of the roots.

        What runs in the background goes on: `cancel` stops it, by its id.
        """
        roots = [Run.observing(execution) for execution in snapshot(LIVE) if _is_root(execution, tag, session)]
        stopped = [run for run in roots if run.cancel(message, reason=reason, mode=mode, actor=actor)]
        if wait:
            await asyncio.gather(*(run.finished() for run in stopped))
        return [run.id for run in stopped]

    def observe(self, observer: Observer) -> Observation:
        """Has `observer(event)` called for every event of every run of this process, on a thread of its own.

        Slow, failing, blocking: no run notices. Close what is returned to end it.
        """
        return Observation(observer)

    async def shutdown(self, *, grace: float | None = None) -> None:
        """Stops this loop's runs with reason `shutdown`, waits for them, and closes what the loop kept (pools).

        Meanwhile no new run starts here but under a live one: it ends as cancelled at once, for the same reason.
        `grace`: seconds for the runs to end by themselves first; `None` or 0: stopped at once. What runs in the
        background (learning facts) has as long; with `None`, its own grace.
        """
        with self._home.refusing():
            live = [Run.observing(execution) for execution in snapshot(self._home.live) if execution.parent is None]
            if grace and live:
                ended = [asyncio.ensure_future(run.finished()) for run in live]
                await asyncio.wait(ended, timeout=grace)
            await self._home.shut_down(background_for=None if grace is None else 0.0)

    def __repr__(self) -> str:
        return f"<Runtime of {self._home!r}>"


def _fits(execution: Execution, tag: str | None, status: RunStatus | None, session: str | None) -> bool:
    return (
        (tag is None or tag in execution.options.tags)
        and (status is None or execution.shown_status is status)
        and (session is None or execution.session_id == session)
    )


def _is_root(execution: Execution, tag: str | None, session: str | None) -> bool:
    """True for what is stopped by itself; the rest goes with the run above it."""
    if execution.root.is_background or not _fits(execution, tag, None, session):
        return False
    parent = execution.parent
    return parent is None or tag is not None or (session is not None and parent.session_id != session)


def runtime() -> Runtime:
    """The runtime of the loop that runs here; of the background loop in blocking code."""
    return Runtime(home_here())
