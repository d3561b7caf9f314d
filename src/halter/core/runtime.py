"""`runtime()`: finds runs, stops many at once, lets somebody watch them all, and shuts down.

One per event loop; the index of live runs and the observers are the process's.
"""

from __future__ import annotations

import asyncio
from collections.abc import Hashable
from typing import Any

from halter import checked
from halter.core import elsewhere
from halter.core.approvals import DECISIONS, Decision
from halter.core.execution import Execution, unstarted
from halter.core.home import LIVE, Home, home_here
from halter.core.lockfree import snapshot
from halter.core.observers import Observation
from halter.core.ports import Observer, SessionRef
from halter.core.run import Run
from halter.core.settings import session_ref
from halter.errors import ConfigurationError
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
        self, *, tag: str | None = None, status: RunStatus | None = None, session: str | SessionRef | None = None
    ) -> list[Run[Any]]:
        """The live runs of this process, children too, with this tag and status, and on this session.

        Args:
            tag: One of their tags.
            status: Their status now.
            session: The id of a session where `halter.configure(sessions=…)` keeps them, or
                `Sessions.session(id)` of any place.

        Raises:
            ConfigurationError: An argument is of another type.
        """
        filter = _Filter(tag, status, session)
        return [Run.observing(execution) for execution in snapshot(LIVE) if filter.fits(execution)]

    def decisions(self, *, session: str | None = None) -> list[Decision]:
        """What was allowed in this process and what was not, and by whom: the newest 1,000 answers, the oldest first.

        Args:
            session: The id of a session, for those on it alone.
        """
        return [each for each in DECISIONS.copy() if session is None or each.session == session]

    async def cancel(
        self,
        id: str | Run[Any],
        message: str | None = None,
        *,
        reason: CancelReason = CancelReason.USER_STOP,
        mode: CancelMode = CancelMode.IMMEDIATE,
        actor: str | None = None,
        wait: bool = False,
    ) -> bool:
        """Stops one run, as `Run.cancel` does; returns False if there is no run with this id.

        Several runs of this process may have the id, as long as one of them at most has started: all are stopped.

        A run of another process is asked to stop through its record, in the sessions that are configured or in use
        here. That process hears of it within half a second, also while the run waits for its session's turn. True: it
        was asked; with `wait`: the run was stopped. A run without a record is not found.

        Args:
            id: The run's id, or a handle on it. A run of this process that has not started never starts.
            wait: Return only when it has ended.

        Raises:
            ConfigurationError: `id` is neither.
            SessionsUnavailable: The run is not in this process, and a place that may have it did not answer.
        """
        runs = [id] if isinstance(id, Run) else _all_with(checked.text("id", id))
        if not runs:
            assert isinstance(id, str)
            return await elsewhere.stop(id, Cancellation.of(reason, mode, actor, message), wait=wait)
        in_force = [run.cancel(message, reason=reason, mode=mode, actor=actor) for run in runs]
        if wait:
            await asyncio.gather(*(run.finished() for run in runs))
        return any(in_force)

    async def cancel_all(
        self,
        message: str | None = None,
        *,
        tag: str | None = None,
        session: str | SessionRef | None = None,
        reason: CancelReason = CancelReason.USER_STOP,
        mode: CancelMode = CancelMode.IMMEDIATE,
        actor: str | None = None,
        wait: bool = False,
    ) -> list[str]:
        """Stops the process's live runs; returns the ids of those that were stopped by themselves, not with a parent.

        What runs in the background goes on: `cancel` stops it, by its id. With a tag, runs that are made and have not
        started are stopped as well: they never start.

        Args:
            tag: Only those with this tag.
            session: Only those on this session: an id where `halter.configure(sessions=…)` keeps them, or
                `Sessions.session(id)` of any place.
            wait: Return only when they have ended.

        Raises:
            ConfigurationError: An argument is of another type; nothing is stopped.
        """
        filter = _Filter(tag, None, session)
        made = unstarted() if tag is not None else []
        roots = [Run.observing(execution) for execution in (*snapshot(LIVE), *made) if filter.is_root(execution)]
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


class _Filter:
    """Which runs are meant; checked, so that a mistake is an error and not a stop of nothing."""

    def __init__(self, tag: object, status: object, session: object) -> None:
        self._tag = None if tag is None else checked.text("tag", tag)
        self._status = None if status is None else checked.one_of("status", status, tuple(RunStatus))
        self._has_session = session is not None
        self._session = _session_key(session)

    def fits(self, execution: Execution) -> bool:
        return (
            (self._tag is None or self._tag in execution.options.tags)
            and (self._status is None or execution.shown_status == self._status)
            and self._is_on_session(execution)
        )

    def is_root(self, execution: Execution) -> bool:
        """True for what is stopped by itself; the rest goes with the run above it."""
        if execution.root.is_background or not self.fits(execution):
            return False
        parent = execution.parent
        return parent is None or self._tag is not None or (self._has_session and not self._is_on_session(parent))

    def _is_on_session(self, execution: Execution) -> bool:
        return not self._has_session or execution.session_key == self._session


def _session_key(given: Any) -> Hashable:
    """The session's id together with its place: equal ids of two places are two sessions."""
    if given is not None and not isinstance(given, str) and not callable(getattr(given, "turn", None)):
        raise ConfigurationError(f"session must be an id or Sessions.session(id), not {type(given).__name__}")
    ref = session_ref(given)
    return None if ref is None else ref.turn().key


def _all_with(id: str) -> list[Run[Any]]:
    """The run with this id that is live here, and those that are made and have not started."""
    live = LIVE.get(id)
    made = [execution for execution in unstarted() if execution.id == id and execution is not live]
    return [Run.observing(execution) for execution in (*([] if live is None else [live]), *made)]


def runtime() -> Runtime:
    """The runtime of the loop that runs here; of the background loop in blocking code."""
    return Runtime(home_here())
