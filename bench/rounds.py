"""Interleaved rounds: every round measures every candidate once, in a new order."""

from __future__ import annotations

import random
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeVar

T = TypeVar("T")


@dataclass(frozen=True)
class Options:
    """How much to measure. `loop`: `uvloop` or `asyncio`, for every client process."""

    rounds: int = 3
    quick: bool = False
    loop: str = "uvloop"


def interleaved(
    subject: str, rounds: int, candidates: Sequence[str], measure: Callable[[str], T]
) -> dict[str, list[T]]:
    """Candidate → its results by round."""
    found: dict[str, list[T]] = {name: [] for name in candidates}
    for number in range(1, rounds + 1):
        for name in random.sample(candidates, len(candidates)):
            print(f"{subject}: round {number} of {rounds}, {name} …", file=sys.stderr, flush=True)
            found[name].append(measure(name))
    return found
