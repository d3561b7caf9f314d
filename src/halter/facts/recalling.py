"""Which facts fit what the user says: by their meaning where there are embeddings, else by their words."""

from __future__ import annotations

from collections.abc import Sequence

from halter.core.context import RunContext
from halter.facts.facts import Facts
from halter.facts.nearness import Vector, nearest, units
from halter.sessions.port import Store
from halter.sessions.records import Fact, FactScope

AT_ONCE = 50_000  # numbers that are compared on the loop: some milliseconds


async def fitting(facts: Facts, store: Store, scope: FactScope, text: str, ctx: RunContext) -> list[Fact]:
    """The best `facts.recall` of a scope, the best first. Raises what the store and `embed` raise.

    Where fewer fit, the newest fill the list: of somebody who has told little all is known, whatever words are used.
    """
    most = facts.recall
    known = await store.facts(scope, limit=most + 1 if facts.embed is None else None)
    if len(known) <= most or not text.strip():
        return known[:most]
    if facts.embed is None:
        return _first(most, await store.find_facts(scope, text, limit=most), known)
    [vector] = units(await facts.embed([text]), 1)
    near = await _near(known, vector, most, ctx)
    ids = {fact.id for fact in known if fact.embedding is None or len(fact.embedding) != len(vector)}
    worded = await store.find_facts(scope, text, limit=most) if ids else []
    return _first(most, [fact for fact in worded if fact.id in ids], near, known)


async def _near(known: Sequence[Fact], vector: Vector, most: int, ctx: RunContext) -> list[Fact]:
    if len(known) * len(vector) <= AT_ONCE:
        return nearest(known, vector, most)
    return await ctx.in_thread(nearest, known, vector, most)


def _first(most: int, *lists: Sequence[Fact]) -> list[Fact]:
    """The first so many of all, each once."""
    each = {fact.id: fact for facts in lists for fact in facts}
    return list(each.values())[:most]
