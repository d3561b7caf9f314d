"""The states of a run and the legal moves between them, as a table.

1. Every run reaches exactly one final state. 2. `cancelled` is reached through `cancelling` only: it is written
when the work has stopped, never before. 3. `cancelling` leads to `completed` or `failed` only while the request
has not cut the run (`after_turn`, and the turn was its last).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from halter.errors import HalterError
from halter.outcome import Cancellation, RunStatus

MOVES: dict[RunStatus, frozenset[RunStatus]] = {
    RunStatus.QUEUED: frozenset((RunStatus.RUNNING, RunStatus.CANCELLING, RunStatus.FAILED)),
    RunStatus.RUNNING: frozenset((RunStatus.WAITING, RunStatus.CANCELLING, RunStatus.COMPLETED, RunStatus.FAILED)),
    RunStatus.WAITING: frozenset((RunStatus.RUNNING, RunStatus.CANCELLING, RunStatus.COMPLETED, RunStatus.FAILED)),
    RunStatus.CANCELLING: frozenset((RunStatus.CANCELLED, RunStatus.COMPLETED, RunStatus.FAILED)),
    RunStatus.COMPLETED: frozenset(),
    RunStatus.FAILED: frozenset(),
    RunStatus.CANCELLED: frozenset(),
}


class IllegalMove(HalterError):
    """A bug in Halter: a run was moved where the table does not lead."""


def advance(now: RunStatus, to: RunStatus) -> RunStatus:
    """The state after a move; staying is always legal. Raises `IllegalMove`."""
    if to is not now and to not in MOVES[now]:
        raise IllegalMove(f"a run cannot go from {now} to {to}")
    return to


@dataclass(frozen=True, slots=True, eq=False)
class Ending:
    """A claim to a run's one end; the first claim in the run's cell fixes its status."""

    status: RunStatus
    output: Any = None
    error: BaseException | None = None
    cancellation: Cancellation | None = None


def diagram() -> str:
    """The table as a Mermaid state diagram, for the docs."""
    rows = [f"    {now} --> {to}" for now, targets in MOVES.items() for to in RunStatus if to in targets]
    ends = [f"    {state} --> [*]" for state, targets in MOVES.items() if not targets]
    return "\n".join(("stateDiagram-v2", "    [*] --> queued", *rows, *ends))
