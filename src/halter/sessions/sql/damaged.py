"""Rows that cannot be read: each spoils one session, run or fact, and is named.

1. A session that lacks a part of what was said, or of its data, is refused with `SessionDamaged`. 2. A run's record is
made up from its columns. 3. Anything else is left out. The log names each such row once in a process.
"""

from __future__ import annotations

import logging

from halter.errors import SessionDamaged
from halter.events import Failure
from halter.sessions.records import RunRecord
from halter.sessions.sql.columns import Unreadable

ADVICE = "`halter sessions check` lists what cannot be read, and repairs it"
MOST_TOLD = 1_000
_logger = logging.getLogger("halter")
_told: set[str] = set()


def damaged(session_id: str, what: str, why: Unreadable) -> SessionDamaged:
    """The error for a session of which this cannot be read."""
    return SessionDamaged(
        f"session {session_id!r} is damaged: {what} cannot be read: {why}; {ADVICE}", session_id=session_id
    )


def tell(what: str, why: Unreadable) -> None:
    """Logs, once in this process, what is left out or made up."""
    if what not in _told and len(_told) < MOST_TOLD:
        _told.add(what)
        _logger.warning("%s cannot be read: %s; %s", what, why, ADVICE)


def failure(why: Unreadable) -> Failure:
    """The error of a run's record that was made up."""
    return Failure(type=SessionDamaged.__name__, message=f"the run's record cannot be read: {why}")


def is_made_up(record: RunRecord) -> bool:
    return record.error is not None and record.error.type == SessionDamaged.__name__
