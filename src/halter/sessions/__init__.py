"""Conversations that outlive their runs, their process, and every stop. Each name is loaded when it is first used."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from halter.errors import SessionBusy as SessionBusy
    from halter.errors import SessionDamaged as SessionDamaged
    from halter.errors import SessionError as SessionError
    from halter.errors import SessionNotFound as SessionNotFound
    from halter.errors import SessionsUnavailable as SessionsUnavailable
    from halter.errors import TurnLost as TurnLost
    from halter.sessions.fact_book import FactBook as FactBook
    from halter.sessions.memory.store import MemoryStore as MemoryStore
    from halter.sessions.place import SessionRef as SessionRef
    from halter.sessions.port import Store as Store
    from halter.sessions.records import Damage as Damage
    from halter.sessions.records import Fact as Fact
    from halter.sessions.records import FactScope as FactScope
    from halter.sessions.records import Hit as Hit
    from halter.sessions.records import LateResult as LateResult
    from halter.sessions.records import RunRecord as RunRecord
    from halter.sessions.records import Session as Session
    from halter.sessions.sessions import Sessions as Sessions

_WHERE = {
    "Damage": "halter.sessions.records",
    "Fact": "halter.sessions.records",
    "FactBook": "halter.sessions.fact_book",
    "FactScope": "halter.sessions.records",
    "Hit": "halter.sessions.records",
    "LateResult": "halter.sessions.records",
    "MemoryStore": "halter.sessions.memory.store",
    "RunRecord": "halter.sessions.records",
    "Session": "halter.sessions.records",
    "SessionBusy": "halter.errors",
    "SessionDamaged": "halter.errors",
    "SessionError": "halter.errors",
    "SessionNotFound": "halter.errors",
    "SessionRef": "halter.sessions.place",
    "Sessions": "halter.sessions.sessions",
    "SessionsUnavailable": "halter.errors",
    "Store": "halter.sessions.port",
    "TurnLost": "halter.errors",
}
__all__ = list(_WHERE)  # pyright: ignore[reportUnsupportedDunderAll]


def __getattr__(name: str) -> Any:
    if name not in _WHERE:
        raise AttributeError(f"module 'halter.sessions' has no attribute {name!r}")
    return getattr(import_module(_WHERE[name]), name)
