"""The time that cancelled work has to end by itself: half of it undisturbed, then told again and again.

`TaskGroup` and `wait_for` of some Python versions swallow a `CancelledError` that comes as they end, and so do bodies
that retry: a task that is told once may never hear it, and one that is told twice may miss both.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

REPEATS = 10  # in the second half


class Grace:
    """A countdown on `loop` until its time `until`. Calls `again()` in its second half, then `over()`."""

    __slots__ = ("_again", "_every", "_loop", "_over", "_timer", "_until")

    def __init__(
        self, loop: asyncio.AbstractEventLoop, until: float, again: Callable[[], object], over: Callable[[], object]
    ) -> None:
        half = (until - loop.time()) / 2
        self._loop, self._until, self._every = loop, until, half / REPEATS
        self._again, self._over = again, over
        self._timer = loop.call_at(until - half, self._repeat)

    def _repeat(self) -> None:
        next_at = self._loop.time() + self._every
        # The last repeat would come with the end itself, give or take the clock's last digit.
        is_last = next_at > self._until - self._every / 2
        self._timer = (
            self._loop.call_at(self._until, self._over) if is_last else self._loop.call_at(next_at, self._repeat)
        )
        self._again()

    def cancel(self) -> None:
        """Stops counting."""
        self._timer.cancel()
