"""A clock that runs since the machine was started, also while it sleeps, and that nobody sets: equal for all processes.

Where the system has none, it is the wall clock.
"""

from __future__ import annotations

import time
from functools import cache

LONGEST = 1e9  # seconds; no machine runs for 30 years, and the wall clock has shown more since 2001


def now() -> float:
    """Seconds."""
    clock = getattr(time, "CLOCK_BOOTTIME", None)
    return time.time() if clock is None else time.clock_gettime(clock) - _offset()


def is_of_boot(moment: float) -> bool:
    """False for a moment of the wall clock."""
    return moment < LONGEST


@cache
def _offset() -> float:
    """Seconds by which this process's namespace shows another time than the machine's first one."""
    try:
        with open("/proc/self/timens_offsets") as file:
            found = {name: float(seconds) + float(rest) / 1e9 for name, seconds, rest in map(str.split, file)}
    except (OSError, ValueError):
        return 0.0
    return found.get("boottime", 0.0)
