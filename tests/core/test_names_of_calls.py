"""Readers learn the name of a tool while the model still writes the call's arguments."""

from __future__ import annotations

from halter import Agent, events, tool
from halter.models.scripted import Scripted, calls
from halter.snapshot import Fold


@tool
async def look(city: str) -> str:
    """Looks out of the window."""
    return city


def test_a_piece_of_arguments_names_its_tool_also_in_the_snapshot() -> None:
    run = Agent(Scripted(calls("look", city="Nara"), "Sunny."), name="agent", tools=[look]).run("Go.")
    seen = list(run)
    [at] = [place for place, each in enumerate(seen) if isinstance(each, events.ToolArgumentsDelta)]
    assert isinstance(piece := seen[at], events.ToolArgumentsDelta)
    assert piece.name == "look"
    fold = Fold(run.id)
    fold.apply(seen[: at + 1])
    assert [(each.name, each.status) for each in fold.snapshot().tools] == [("look", "called")]
