"""Whose facts a run knows: those of the session that it, or a run above it, has the turn of."""

from __future__ import annotations

from typing import Any

import msgspec

from halter.core.context import RunContext
from halter.core.run import Run
from halter.facts.facts import Scope
from halter.sessions import given
from halter.sessions.port import Store
from halter.sessions.turn import Turn


class Whose(msgspec.Struct, frozen=True):
    """`scope`: of whom something is known. `turn`: the run that has the session's turn."""

    store: Store
    scope: str
    session_id: str
    turn: Run[Any]


def whose(ctx: RunContext, scope: Scope | None) -> Whose | None:
    """`None`: the run belongs to no session, or `scope` says that nothing is to be known.

    Raises what `scope` raises, and `ConfigurationError` if it returns no name of 1 to 256 characters.
    """
    turn = ctx.session_turn
    if not isinstance(turn, Turn) or turn.session_id is None:
        return None
    name = (turn.session.user or turn.session_id) if scope is None else scope(ctx)
    if name is None:
        return None
    return Whose(turn.store, given.name("what scope() returns", name), turn.session_id, turn.run)
