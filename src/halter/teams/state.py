"""Where a team is: data that can be stored, and from which a next run goes on."""

from __future__ import annotations

from typing import Any

import msgspec

from halter.errors import ConfigurationError
from halter.messages import Message, Usage


class Turn(msgspec.Struct, frozen=True, kw_only=True):
    """One member's turn, whole. `output`: its value, where that is no text; `text`: its answer."""

    speaker: str
    text: str
    output: Any = None
    messages: tuple[Message, ...] = ()


class TeamState(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A team's conversation, and whose turn it is: whole turns, and what was cut off, marked as interrupted.

    `messages`: all that was said; what a member has said has its name. `since`: how many of them had been said when
    the present work began. `turns`: whose turns have ended since then; `handoffs`: to whom it was handed over; `usage`:
    what that has cost. `last`: who has spoken last. `floor`: who has the conversation, in a swarm. `cut`: whose turns
    were cut off, and how many of the messages they had heard: they go on first. `arrived`: who in a graph is to begin,
    and whom they have heard. `members`: the states of those that have one. `stop_reason`: why the team has completed;
    `None`: it has not.
    """

    messages: tuple[Message, ...] = ()
    since: int = 0
    turns: tuple[str, ...] = ()
    handoffs: tuple[str, ...] = ()
    usage: Usage = Usage()
    last: str | None = None
    floor: str | None = None
    cut: dict[str, int] = {}
    arrived: dict[str, tuple[str, ...]] = {}
    members: dict[str, Any] = {}
    stop_reason: str | None = None

    @property
    def names(self) -> set[str]:
        """All members that it speaks of."""
        last = {self.last} if self.last is not None else set[str]()
        return {*self.turns, *self.cut, *self.arrived, *self.members} | last


def as_state(given: Any) -> TeamState:
    """A state, also as what its JSON gives. Raises `ConfigurationError`."""
    if isinstance(given, TeamState):
        return given
    try:
        return msgspec.convert(given, TeamState)
    except msgspec.ValidationError as error:
        raise ConfigurationError(f"a team goes on from a TeamState, or its JSON: {error}") from error
