"""Which facts are near to a text, by their embeddings. Pure."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from operator import mul
from typing import Any

from halter.errors import UsageError
from halter.sessions.records import Fact

Vector = tuple[float, ...]


def unit(vector: Iterable[Any]) -> Vector:
    """The vector with the length 1, so that a product of two is the cosine between them; a null vector stays one."""
    numbers = tuple(map(float, vector))
    length = math.sqrt(math.fsum(map(mul, numbers, numbers)))
    return tuple(number / length for number in numbers) if 0.0 < length < math.inf else (0.0,) * len(numbers)


def units(vectors: Any, count: int) -> list[Vector]:
    """What an `embed` function has returned. Raises `UsageError` unless it is one vector for each of `count` texts."""
    try:
        found = [unit(vector) for vector in vectors]
    except (TypeError, ValueError) as error:
        raise UsageError(f"embed must return a list of lists of numbers: {error}") from error
    if len(found) != count or len({len(vector) for vector in found}) > 1:
        raise UsageError(f"embed must return one vector for each of {count} texts, all of one length")
    return found


def nearest(facts: Sequence[Fact], to: Vector, limit: int) -> list[Fact]:
    """The facts whose embeddings point the same way, the nearest first. Those of another model are passed over."""
    like = [(fact.embedding, fact) for fact in facts if fact.embedding is not None and len(fact.embedding) == len(to)]
    near = [(sum(map(mul, vector, to)), fact) for vector, fact in like]
    near.sort(key=lambda each: -each[0])
    return [fact for nearness, fact in near[:limit] if nearness > 0.0]
