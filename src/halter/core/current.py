"""Which run this code belongs to, and which tool call: a context variable that holds a small cell.

The cell is emptied at the run's end: nothing that outlives a run (a pool, a timer, a thread) keeps it alive, and work
started from it then is a new root.
"""

from __future__ import annotations

import contextvars
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from halter.core.call import Call
    from halter.core.execution import Execution


class CurrentRun:
    """The cell in the context variable. `call`: the tool call, while it is under way; its cell is `of` the run's."""

    __slots__ = ("_execution", "_of", "call")

    def __init__(self, execution: Execution | None, *, of: CurrentRun | None = None, call: Call | None = None) -> None:
        self._execution = execution
        self._of = of
        self.call = call

    @property
    def execution(self) -> Execution | None:
        """`None` once the run is over."""
        return self._of.execution if self._of is not None else self._execution

    def empty(self) -> None:
        """The run is over."""
        self._execution = None


CURRENT: contextvars.ContextVar[CurrentRun | None] = contextvars.ContextVar("halter_current_run", default=None)


def current_execution() -> Execution | None:
    """The live run that this code belongs to, or `None`."""
    cell = CURRENT.get()
    return cell.execution if cell is not None else None


def call_of(execution: Execution | None) -> Call | None:
    """The tool call of `execution` that this code belongs to, or `None`."""
    cell = CURRENT.get()
    return cell.call if cell is not None and execution is not None and cell.execution is execution else None
