"""How often a property is tried: a few times in the ordinary run, ten times as often in `make soak`."""

from __future__ import annotations

import os

TIMES = int(os.environ.get("HALTER_MANY_EXAMPLES", "1"))


def examples(few: int) -> int:
    """How many examples a property is tried with, where the ordinary run has `few`."""
    return few * TIMES
