"""Whose facts a run knows: those of the session that it, or a run above it, has the turn of."""

from __future__ import annotations

from typing import Any

import msgspec

from halter.core.calling import call_function
from halter.core.context import RunContext
from halter.core.run import Run
from halter.facts.facts import Scope
from halter.sessions import given
from halter.sessions.port import Store
from halter.sessions.records import FactScope, Session
from halter.sessions.turn import Turn


class Whose(msgspec.Struct, frozen=True):
    """`scope`: of whom something is known. `turn`: the run that has the session's turn."""

    store: Store
    scope: FactScope
    session_id: str
    turn: Run[Any]


async def whose(ctx: RunContext, scope: Scope | None) -> Whose | None:
    """`None`: the run belongs to no session, or `scope`, which is called in a thread, says that nothing is to be known.

    Raises what `scope` raises, and `ConfigurationError` if it returns neither a name of 1 to 256 characters nor a
    `FactScope`.
    """
    turn = ctx.session_turn
    if not isinstance(turn, Turn) or turn.session_id is None:
        return None
    found = of_session(turn.session) if scope is None else await call_function(ctx, scope, ctx)
    if found is None:
        return None
    if not isinstance(found, FactScope):
        found = FactScope("custom", given.name("what scope() returns", found))
    return Whose(turn.store, given.scope(found), turn.session_id, turn.run)


def of_session(session: Session) -> FactScope:
    """Its user's; its own, where it has no user."""
    return FactScope("session", session.id) if session.user is None else FactScope("user", session.user)
