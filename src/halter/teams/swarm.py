"""`Swarm`: whoever has the conversation hands it over, or ends it by answering."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from msgspec.structs import replace

from halter.agent import Agent
from halter.core.runnable import Runnable
from halter.errors import ConfigurationError
from halter.messages import ToolCall, ToolResult
from halter.teams.state import TeamState, Turn
from halter.teams.team import Floor, Members, Team
from halter.terminations import MaxMessages, Termination
from halter.toolbox import handoff_tool

MOST_TURNS = 100


class Swarm(Team):
    """The member who has the conversation speaks; it may hand it over to another, and ends the work by answering.

    To a model a handoff is a tool, `transfer_to_` and the name. `start`: who begins; the first, if it is left out. The
    next run from its state begins with whoever has spoken last. `handoffs`: for each name, to which names it may hand
    over; all to all, if it is left out. `outside`: more names, of nobody in the team: handing over to one of them ends
    the work, and `result.state.floor` says to whom. Members that are no agents cannot hand over.

    `until`: by default `MaxMessages(100)`. The rest as in `RoundRobin`. Raises `ConfigurationError`.
    """

    kind = "swarm"

    def __init__(
        self,
        members: Members,
        *,
        start: str | None = None,
        handoffs: Mapping[str, Iterable[str]] | None = None,
        outside: Iterable[str] = (),
        until: Termination | None = None,
        name: str = "",
        description: str = "",
    ) -> None:
        super().__init__(members, MaxMessages(MOST_TURNS) if until is None else until, name, description)
        self.outside = _names(outside)
        both = [name for name in self.outside if name in self.members]
        if both:
            raise ConfigurationError(f"{both[0]!r} is a member, and cannot be outside")
        self.start = next(iter(self.members)) if start is None else start
        self.handoffs = self._checked(handoffs)
        self._targets = {handoff_tool(name, "").spec.name: name for name in (*self.members, *self.outside)}
        self.members = {name: self._able_to_hand_over(name, member) for name, member in self.members.items()}

    def _checked(self, given: Mapping[str, Iterable[str]] | None) -> dict[str, tuple[str, ...]]:
        everybody = (*self.members, *self.outside)
        if given is None:
            able = {name for name, member in self.members.items() if isinstance(member, Agent)}
            found = {name: tuple(to for to in everybody if to != name) for name in able}
        else:
            found = {name: _names(to) for name, to in given.items()}
        for name in (self.start, *found, *(to for each in found.values() for to in each)):
            if name not in everybody or (name in self.outside and (name in found or name == self.start)):
                raise ConfigurationError(f"{name!r} is no member of the swarm; these are: {', '.join(self.members)}")
        mute = next((name for name, to in found.items() if to and not isinstance(self.members[name], Agent)), None)
        if mute is not None:
            raise ConfigurationError(f"{mute!r} cannot hand over: it is no agent, and has no tools")
        return found

    def _able_to_hand_over(self, name: str, member: Runnable[Any]) -> Runnable[Any]:
        targets = self.handoffs.get(name, ())
        if not targets or not isinstance(member, Agent):
            return member
        return member.leaving_to({to: self.members[to].description if to in self.members else "" for to in targets})

    # --- running --------------------------------------------------------------------------------------------

    def opened(self, state: TeamState) -> TeamState:
        return replace(state, floor=state.last or self.start)

    async def due(self, floor: Floor) -> Sequence[str]:
        state = floor.state
        has_answered = bool(state.turns) and state.turns[-1] == state.floor
        return () if has_answered or state.floor not in self.members else (state.floor,)

    def heard(self, state: TeamState, turn: Turn, judgement: tuple[str, ...]) -> TeamState:
        to = self._handed_to(turn)
        return state if to is None else replace(state, floor=to, handoffs=(*state.handoffs, to))

    def is_whole(self, turn: Turn) -> bool:
        """It was cut off behind a handoff, with nothing of its last answer left undone."""
        last = turn.messages[-1].parts if turn.messages else ()
        results = [part for part in last if isinstance(part, ToolResult)]
        return bool(results) and not any(result.is_error for result in results) and self._handed_to(turn) is not None

    def _handed_to(self, turn: Turn) -> str | None:
        """The first handoff of its last answer that went through."""
        *_, answer = [message for message in turn.messages if message.role == "assistant"] or [None]
        calls = answer.tool_calls if answer is not None else ()
        refused = {
            part.call_id
            for message in turn.messages
            for part in message.parts
            if isinstance(part, ToolResult) and part.is_error
        }
        made = (self._targets[call.name] for call in calls if call.name in self._targets and call.id not in refused)
        return next(made, None)

    def aside(self, call: ToolCall) -> str:
        to = self._targets.get(call.name)
        return f"[hands over to {to}]" if to is not None else ""

    def done(self, state: TeamState) -> str:
        return f"{state.last} has answered" if state.floor in self.members else f"handed over to {state.floor}"


def _names(given: Iterable[str]) -> tuple[str, ...]:
    """One name may be given as it is."""
    return (given,) if isinstance(given, str) else tuple(given)
