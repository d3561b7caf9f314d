"""What a model makes of a conversation: changes to what is known, and what of them holds. Pure.

A model may name facts that do not exist, say the same twice, or write an essay: such changes are dropped, and the
others hold. What somebody has edited or forgotten while it thought is left as that person wants it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Annotated

import msgspec
from msgspec import Meta

from halter.core.ids import new_id
from halter.sessions.fact_book import LONGEST_FACT, as_fact
from halter.sessions.records import Fact, FactScope

MOST_CHANGES = 30  # of each kind, in one answer
TICK = 1e-6  # seconds between two facts of one answer


class Replacement(msgspec.Struct, frozen=True):
    """One fact in the place of others."""

    facts: Annotated[list[int], Meta(description="The numbers of the known facts that it replaces.")]
    by: Annotated[str, Meta(description="The fact that is true now, as one short sentence.")]


class Changes(msgspec.Struct, frozen=True):
    """What a model answers."""

    add: Annotated[list[str], Meta(description="New facts, each as one short sentence.")] = []
    replace: Annotated[list[Replacement], Meta(description="Facts that have changed, or that say the same.")] = []
    forget: Annotated[list[int], Meta(description="The numbers of known facts that are not true any more.")] = []


class Held(msgspec.Struct, frozen=True):
    """What holds of the changes. `forget`: ids."""

    put: tuple[Fact, ...] = ()
    forget: tuple[str, ...] = ()


def held(
    changes: Changes,
    numbered: Sequence[Fact],
    known: Sequence[Fact],
    *,
    scope: FactScope,
    session_id: str | None,
    now: float,
) -> Held:
    """The changes that hold. `numbered`: what the model was told, from 1; `known`: all that is known by now."""
    working = _Working(numbered, known)
    for replacement in changes.replace[:MOST_CHANGES]:
        working.replace(replacement.facts, _text(replacement.by))
    working.drop(changes.forget[:MOST_CHANGES])
    for text in map(_text, changes.add[:MOST_CHANGES]):
        working.add(text, scope, session_id, now)
    return Held(tuple(_in_order(working.put, now)), tuple(working.forget))


class _Working:
    """What is known while an answer is gone through. `open`: what it may still change, by number."""

    def __init__(self, numbered: Sequence[Fact], known: Sequence[Fact]) -> None:
        current = {fact.id: fact.text for fact in known}
        told = enumerate(numbered, 1)
        self.open = {number: fact for number, fact in told if current.get(fact.id) == fact.text}
        self.senses = {_sense(fact.text) for fact in known}
        self.put: list[Fact] = []
        self.forget: list[str] = []

    def replace(self, numbers: Iterable[int], text: str) -> None:
        """One fact in the place of others; it has the id of the first."""
        replaced = self._taken(numbers) if text else []
        if not replaced:
            return
        first, *others = replaced
        if _sense(text) in self.senses:  # another fact says that already: what it replaces is the same, or is wrong
            self.forget += [fact.id for fact in replaced]
            return
        self.senses.add(_sense(text))
        self.forget += [fact.id for fact in others]
        if text != first.text:
            self.put.append(msgspec.structs.replace(first, text=text, embedding=None))

    def drop(self, numbers: Iterable[int]) -> None:
        self.forget += [fact.id for fact in self._taken(numbers)]

    def add(self, text: str, scope: FactScope, session_id: str | None, now: float) -> None:
        if text and _sense(text) not in self.senses:
            self.senses.add(_sense(text))
            self.put.append(Fact(id=new_id(), scope=scope, text=text, session_id=session_id, created_at=now))

    def _taken(self, numbers: Iterable[int]) -> list[Fact]:
        """The facts of these numbers that are left: an answer deals with each once."""
        taken = [self.open.pop(number) for number in dict.fromkeys(numbers) if number in self.open]
        self.senses -= {_sense(fact.text) for fact in taken}
        return taken


def _in_order(facts: Iterable[Fact], now: float) -> Iterator[Fact]:
    """As if one after another: lists are sorted by these times."""
    return (msgspec.structs.replace(fact, updated_at=now + place * TICK) for place, fact in enumerate(facts))


def beyond(known: Iterable[Fact], changes: Held, most: int) -> Held:
    """The changes, and those facts forgotten which nobody has used for longest, so that `most` are left."""
    gone = set(changes.forget)
    after = {fact.id: fact for fact in known if fact.id not in gone} | {fact.id: fact for fact in changes.put}
    newest = sorted(after.values(), key=_last_used, reverse=True)
    over = [fact.id for fact in newest[most:]]
    put = tuple(fact for fact in changes.put if fact.id not in over)
    return Held(put, (*changes.forget, *over))


def untouched(changes: Held, before: Iterable[Fact], now: Iterable[Fact]) -> Held:
    """The changes without those to facts that somebody has edited or forgotten between `before` and `now`."""
    current = {fact.id: fact.text for fact in now}
    others = {fact.id for fact in before if current.get(fact.id) != fact.text}
    put = tuple(fact for fact in changes.put if fact.id not in others)
    return Held(put, tuple(id for id in changes.forget if id not in others))


def _last_used(fact: Fact) -> float:
    return max(fact.created_at, fact.updated_at, fact.recalled_at)


def _text(given: str) -> str:
    """The fact in one line; empty if it is none."""
    text = as_fact(given)
    return text if len(text) <= LONGEST_FACT else ""


def _sense(text: str) -> str:
    """By what two facts are the same, however they are written."""
    return text.casefold().rstrip(".! ")
