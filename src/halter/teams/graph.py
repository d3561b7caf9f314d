"""`Graph`: who speaks after whom is drawn beforehand: conditions, branches side by side, joins, loops.

1. An edge carries when the member at its beginning has ended a turn, and its condition holds. 2. A member that waits
for `all` begins when nobody who is under way can reach it any more: a branch that was not taken is not waited for.
3. Who has begun has forgotten whom it has heard, so that a loop begins anew. All is decided from the state alone.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any, Literal, TypeAlias

import msgspec
from msgspec.structs import replace

from halter import checked
from halter.core.calling import call_function
from halter.core.context import RunContext
from halter.errors import ConfigurationError
from halter.teams.state import TeamState, Turn
from halter.teams.team import Floor, Members, Team
from halter.terminations import Termination

Join: TypeAlias = Literal["all", "any"]


class Edge(msgspec.Struct, frozen=True):
    """From one member to another, by name. Raises `ConfigurationError`.

    `when`: a text that the answer of `start` must hold, or a plain function of its `Turn`, which is called in a thread;
    `None`: always. A function that raises fails the team.
    """

    start: str
    end: str
    when: str | Callable[[Turn], Any] | None = None

    def __post_init__(self) -> None:
        for name, value in (("start", self.start), ("end", self.end)):
            checked.text(f"the {name} of an edge", value)
        if self.when is not None and not isinstance(self.when, str):
            checked.plain_function("when, if it is no text,", self.when)

    async def carries(self, turn: Turn, ctx: RunContext) -> bool:
        if self.when is None or isinstance(self.when, str):
            return self.when is None or self.when in turn.text
        return bool(await call_function(ctx, self.when, turn))


class Graph(Team):
    """Members speak as the edges lead from one to the next; the team is through when nobody is left to speak.

    `edges`: `Edge`s, or tuples of their fields: `("writer", "critic")`, `("critic", "writer", "REVISE")`. Several edges
    that carry at once begin branches side by side. `joins`: for a member at which branches meet, `"all"`, the default:
    it waits while somebody under way may still lead to it; or `"any"`: it begins with the first, and again with what
    comes later. `start`: the name, or names, of those who begin; by default all to whom no edge leads.

    Each hears what was said before it began. Of members side by side one has the voice: whoever begins while nobody
    with the voice is speaking; `text` and `output` are those of the last who had it.

    `until`: bounds loops. The rest as in `RoundRobin`. Raises `ConfigurationError`, also for members that nothing leads
    to, and for a loop that nothing could end.
    """

    kind = "graph"

    def __init__(
        self,
        members: Members,
        edges: Iterable[Edge | tuple[Any, ...]],
        *,
        start: str | Iterable[str] | None = None,
        joins: Mapping[str, Join] | None = None,
        until: Termination | None = None,
        name: str = "",
        description: str = "",
    ) -> None:
        super().__init__(members, until, name, description)
        self.edges = tuple(_edge(each) for each in edges)
        self.joins = {name: checked.one_of("joins", join, ("all", "any")) for name, join in (joins or {}).items()}
        for name in (*self.joins, *(end for edge in self.edges for end in (edge.start, edge.end))):
            self._check_is_member(name)
        self._after = {name: tuple(edge for edge in self.edges if edge.start == name) for name in self.members}
        self.start = self._checked_start(start)
        lost = [name for name in self.members if name not in self._reached(self.start)]
        if lost:
            raise ConfigurationError(f"no edge leads to {', '.join(lost)}")
        endless = next((name for name in self.members if until is None and self._is_endless(name)), None)
        if endless is not None:
            raise ConfigurationError(
                f"{endless!r} is in a loop without any condition: give it one, or the graph until="
            )

    def _checked_start(self, given: str | Iterable[str] | None) -> tuple[str, ...]:
        if given is None:
            found = tuple(name for name in self.members if all(edge.end != name for edge in self.edges))
        else:
            found = (given,) if isinstance(given, str) else tuple(given)
        for name in found:
            self._check_is_member(name)
        if not found:
            raise ConfigurationError("edges lead to all members: say who begins, with start=")
        return found

    def _check_is_member(self, name: str) -> None:
        if name not in self.members:
            raise ConfigurationError(f"{name!r} is no member of the graph; these are: {', '.join(self.members)}")

    def _reached(self, starts: Iterable[str], *, avoiding: str = "", always: bool = False) -> set[str]:
        """Those to whom edges lead from these, and these; `always`: by edges without conditions."""
        found, new = set[str](), list(starts)
        while new:
            name = new.pop()
            if name in found or name == avoiding:
                continue
            found.add(name)
            new += [edge.end for edge in self._after[name] if not (always and edge.when is not None)]
        return found

    def _is_endless(self, name: str) -> bool:
        always = [edge.end for edge in self._after[name] if edge.when is None]
        return name in self._reached(always, always=True)

    # --- running --------------------------------------------------------------------------------------------

    def opened(self, state: TeamState) -> TeamState:
        return replace(state, arrived=dict.fromkeys(self.start, ()))

    def judged(self, turn: Turn) -> tuple[str, ...] | None:
        edges = self._after[turn.speaker]
        texts = [(edge.end, edge.when) for edge in edges if edge.when is None or isinstance(edge.when, str)]
        if len(texts) < len(edges):
            return None
        return tuple(end for end, text in texts if text is None or text in turn.text)

    async def asked(self, turn: Turn, ctx: RunContext) -> tuple[str, ...]:
        return tuple([edge.end for edge in self._after[turn.speaker] if await edge.carries(turn, ctx)])

    def heard(self, state: TeamState, turn: Turn, judgement: tuple[str, ...]) -> TeamState:
        arrived = dict(state.arrived)
        for end in judgement:
            arrived[end] = (*arrived.get(end, ()), turn.speaker)
        return replace(state, arrived=arrived)

    async def due(self, floor: Floor) -> Sequence[str]:
        waiting = [name for name in floor.state.arrived if name not in floor.speaking]
        first = [name for name in waiting if not floor.state.arrived[name]]  # those who begin
        ready = first or [name for name in waiting if self._is_ready(name, {*floor.speaking, *waiting} - {name})]
        # Two that wait for each other: the first that has heard somebody goes on.
        return ready or (() if floor.speaking else waiting[:1])

    def _is_ready(self, name: str, others: Collection[str]) -> bool:
        return self.joins.get(name, "all") == "any" or not any(self._leads_to(other, name) for other in others)

    def _leads_to(self, start: str, end: str) -> bool:
        return end in {edge.end for name in self._reached([start], avoiding=end) for edge in self._after[name]}

    def _paths(self) -> Iterator[str]:
        return (f"{edge.start} → {edge.end}" for edge in self.edges)

    def __repr__(self) -> str:
        return f"Graph([{', '.join(self._paths())}], name={self._name!r})"


def _edge(given: Any) -> Edge:
    if isinstance(given, Edge):
        return given
    if not isinstance(given, tuple) or len(given) not in (2, 3):  # pyright: ignore[reportUnknownArgumentType]
        raise ConfigurationError(f"an edge is an Edge, or a tuple of its fields, not {given!r}")
    return Edge(*given)  # pyright: ignore[reportUnknownArgumentType]
