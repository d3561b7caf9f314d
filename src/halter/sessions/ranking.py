"""Which facts a text is about: the same order in memory and in SQL. Pure."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence

from halter.sessions.records import Fact
from halter.sessions.words import words


def best(facts: Sequence[Fact], text: str, limit: int, *, among: int | None = None) -> list[Fact]:
    """Those that share words with the text, the best first; of equals, as they were given.

    A word counts by how few of the facts have it (the inverse document frequency of BM25), whatever their length.
    `among`: how many facts there are, if only those that share a word are given.
    """
    asked = set(words(text))
    shared = [(fact, asked & set(words(fact.text))) for fact in facts]
    known_by = Counter(word for _, found in shared for word in found)
    total = len(facts) if among is None else among
    worth = {word: math.log(1 + (total - number + 0.5) / (number + 0.5)) for word, number in known_by.items()}
    ranked = sorted(shared, key=lambda each: sum(worth[word] for word in sorted(each[1])), reverse=True)
    return [fact for fact, found in ranked if found][:limit]
