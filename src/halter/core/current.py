"""Which run this code belongs to: a context variable that holds a small cell, emptied at the run's end.

Nothing that outlives a run (a pool, a timer, a thread) keeps it alive, and work started from it then is a new root.
"""

from __future__ import annotations

import contextvars
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from halter.core.execution import Execution


class CurrentRun:
    """The cell in the context variable; `execution` is `None` once the run is over."""

    __slots__ = ("execution",)

    def __init__(self, execution: Execution | None) -> None:
        self.execution = execution


CURRENT: contextvars.ContextVar[CurrentRun | None] = contextvars.ContextVar("halter_current_run", default=None)


def current_execution() -> Execution | None:
    """The live run that this code belongs to, or `None`."""
    cell = CURRENT.get()
    return cell.execution if cell is not None else None
