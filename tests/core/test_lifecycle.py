"""The lifecycle table: every legal move works, every other one raises, and the diagram is drawn from it."""

from __future__ import annotations

import itertools

import pytest

from halter import RunStatus
from halter.core.lifecycle import MOVES, IllegalMove, advance, diagram

PAIRS = list(itertools.product(RunStatus, RunStatus))
LEGAL = {
    "queued": {"running", "cancelling", "failed"},
    "running": {"waiting", "cancelling", "completed", "failed"},
    "waiting": {"running", "cancelling", "completed", "failed"},
    "cancelling": {"cancelled", "completed", "failed"},
}


@pytest.mark.parametrize(("now", "to"), PAIRS)
def test_a_move_is_legal_exactly_where_the_design_says_so(now: RunStatus, to: RunStatus) -> None:
    """Written out here once more, so that a slip in the table is seen."""
    if now is to or to.value in LEGAL.get(now.value, ()):
        assert advance(now, to) is to
    else:
        with pytest.raises(IllegalMove, match=f"from {now} to {to}"):
            advance(now, to)


def test_a_final_state_leads_nowhere() -> None:
    """1. Every run reaches exactly one final state."""
    assert all(not MOVES[state] for state in RunStatus if state.is_final)
    assert all(MOVES[state] for state in RunStatus if not state.is_final)


def test_cancelled_is_reached_through_cancelling_only() -> None:
    """2. It is written when the work has stopped, never before."""
    assert [state for state in RunStatus if RunStatus.CANCELLED in MOVES[state]] == [RunStatus.CANCELLING]


def test_the_diagram_has_one_line_for_each_move_and_nothing_else() -> None:
    """The docs' picture cannot disagree with the table."""
    head, *lines = diagram().splitlines()
    assert head == "stateDiagram-v2"
    expected = {f"{now} --> {to}" for now, targets in MOVES.items() for to in targets}
    expected |= {"[*] --> queued", *(f"{state} --> [*]" for state in RunStatus if state.is_final)}
    assert {line.strip() for line in lines} == expected
    assert len(lines) == len(expected)
