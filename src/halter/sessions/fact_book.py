"""`FactBook`: what is known of somebody, to look at and to correct: `sessions.facts`."""

from __future__ import annotations

import time
from typing import Any, TypeAlias

import msgspec

from halter import checked
from halter.core.ids import new_id
from halter.errors import ConfigurationError, UsageError
from halter.sessions import given
from halter.sessions.port import Store
from halter.sessions.records import Fact, FactScope

LONGEST_FACT = 500  # characters
Found: TypeAlias = list[Fact]  # in the class below, `list` is a method


def as_fact(text: str) -> str:
    """The text on one line: facts stand in a list, where a line break would begin something else."""
    return " ".join(text.split())


class FactBook:
    """The facts of users, of sessions without a user, and of names that a `scope` function gave.

    `scope` is the name of a user, or a `FactScope`: `FactScope("session", "monday")`, `FactScope("custom", "team")`.
    Each method may be cancelled at any point: what it changes is one transaction. All raise `SessionsUnavailable` if
    the place where sessions are kept fails, and `ConfigurationError` for a scope or an id that is no text.
    """

    def __init__(self, store: Store) -> None:
        self._store = store

    async def list(self, scope: str | FactScope, limit: int | None = None) -> Found:
        """What is known, the newest first; at most `limit` facts, all if it is `None`."""
        most = None if limit is None else given.most(limit)
        return await self._store.facts(given.scope(scope), limit=most)

    async def find(self, scope: str | FactScope, text: str, *, limit: int = 10) -> Found:
        """The facts that share words with the text, the best first."""
        most = given.most(limit)
        return await self._store.find_facts(given.scope(scope), checked.text("text", text), limit=most)

    async def add(self, scope: str | FactScope, text: str) -> Fact:
        """Adds a fact of 1 to 500 characters, in one line. Raises `ConfigurationError` for any other text."""
        now = time.time()
        fact = Fact(id=new_id(), scope=given.scope(scope), text=_text(text), created_at=now, updated_at=now)
        await self._store.change_facts(fact.scope, put=(fact,))
        return fact

    async def edit(self, scope: str | FactScope, id: str, text: str) -> Fact:
        """Says it otherwise; `text` as in `add`. Raises `UsageError` if this scope has no fact of this id."""
        told = _text(text)
        of = given.scope(scope)
        fact = await self._known(of, id)
        if fact is None:
            raise UsageError(f"{of.kind} {of.name!r} has no fact of the id {id!r}")
        # What stood for the old words stands for nothing now: agents that use embeddings make a new one.
        fact = msgspec.structs.replace(fact, text=told, embedding=None, updated_at=time.time())
        await self._store.change_facts(of, put=(fact,))
        return fact

    async def forget(self, scope: str | FactScope, id: str) -> bool:
        """Deletes a fact; False if this scope has none of this id."""
        if await self._known(scope, id) is None:
            return False
        await self._store.change_facts(given.scope(scope), forget=(id,))
        return True

    async def forget_all(self, scope: str | FactScope) -> int:
        """Deletes all that is known; how much it was."""
        known = await self._store.facts(given.scope(scope))
        await self._store.change_facts(given.scope(scope), forget=[fact.id for fact in known])
        return len(known)

    async def _known(self, scope: str | FactScope, id: str) -> Fact | None:
        given.name("id", id)
        known = await self._store.facts(given.scope(scope))
        return next((fact for fact in known if fact.id == id), None)

    def __repr__(self) -> str:
        return f"<FactBook in {self._store!r}>"


def _text(value: Any) -> str:
    text = as_fact(checked.text("text", value))
    if not text or len(text) > LONGEST_FACT:
        raise ConfigurationError(f"a fact has 1 to {LONGEST_FACT} characters, not {len(text)}")
    return text
