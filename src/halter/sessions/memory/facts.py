"""Facts in memory. Plain data, no lock."""

from __future__ import annotations

from collections.abc import Collection, Sequence

import msgspec

from halter.sessions.records import Fact, FactScope


class KeptFacts:
    """The facts of each scope, by their ids."""

    def __init__(self) -> None:
        self._scopes: dict[FactScope, dict[str, Fact]] = {}

    def of(self, scope: FactScope) -> list[Fact]:
        """The newest first."""
        facts = self._scopes.get(scope, {}).values()
        return sorted(facts, key=lambda fact: (fact.updated_at, fact.id), reverse=True)

    def change(self, scope: FactScope, put: Sequence[Fact], forget: Collection[str]) -> None:
        facts = self._scopes.setdefault(scope, {})
        for id in forget:
            facts.pop(id, None)
        facts.update((fact.id, fact) for fact in put)
        if not facts:
            del self._scopes[scope]

    def forget(self, scope: FactScope) -> None:
        self._scopes.pop(scope, None)

    def forget_session(self, session_id: str) -> None:
        for scope, facts in list(self._scopes.items()):
            self.change(scope, (), [fact.id for fact in facts.values() if fact.session_id == session_id])

    def recalled(self, ids: Collection[str], at: float) -> None:
        for facts in self._scopes.values():
            for id in facts.keys() & set(ids):
                facts[id] = msgspec.structs.replace(facts[id], recalled_at=at)
