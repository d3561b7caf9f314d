"""What all teams are: members of one conversation, and an end to it. Immutable; all that changes lives in the runs."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from copy import copy
from typing import Any, Protocol, Self, TypeAlias, TypeVar, cast

import msgspec

from halter import checked
from halter.core.context import RunContext
from halter.core.options import RunOptions
from halter.core.runnable import Runnable
from halter.errors import ConfigurationError
from halter.messages import Message, ToolCall, as_messages
from halter.teams.meeting import Meeting
from halter.teams.state import TeamState, Turn, as_state
from halter.terminations.combining import Termination, checked_termination

T = TypeVar("T")
Members: TypeAlias = Iterable[Runnable[Any]] | Mapping[str, Runnable[Any]]
ANY_TEXT = "…"


class Team(Runnable[Any]):
    """Members that speak in one conversation; who comes next is the business of each kind of team.

    Each turn is a run of a member under the team's. Its output is that of the last turn: text, or the value that the
    member's `output=` makes of it. `result.state` is a `TeamState`: the conversation, and where to go on.

    `run(input)` begins new work, with `state=` behind what was said before; `run(state=…)` without an input goes on
    with the work that was stopped, and completes at once if that was done.
    """

    kind = "team"

    def __init__(self, members: Members, until: Termination | None, name: str, description: str) -> None:
        self.members = _named(members, self.kind)
        self.termination = None if until is None else self._checked_end(until)
        self._name = checked.text("name", name) or self.kind
        self._description = checked.text("description", description)

    def until(self, termination: Termination) -> Self:
        """The same team with another end, for one run: `team.until(External() | MaxMessages(9)).run(…)`."""
        other = copy(self)
        other.termination = self._checked_end(termination)
        return other

    def _checked_end(self, given: Termination) -> Termination:
        termination = checked_termination(given)
        unknown = next((name for name in termination.waits_for if name not in self.members), None)
        if unknown is not None:
            raise ConfigurationError(
                f"{termination!r} waits for {unknown!r}, who is no member; these are: {', '.join(self.members)}"
            )
        return termination

    # --- what it is given -----------------------------------------------------------------------------------

    def check_input(self, input: Any) -> tuple[Message, ...]:
        messages = () if input is None else as_messages(input)
        taken = next((message.name for message in messages if message.name in self.members), None)
        if taken is not None:
            raise ConfigurationError(f"a message from outside has the name of a member, {taken!r}: give it another")
        return messages

    def check_state(self, state: Any) -> TeamState | None:
        if state is None:
            return None
        found = as_state(state)
        strangers = found.names - self.members.keys()
        if strangers:
            raise ConfigurationError(f"the state speaks of {', '.join(sorted(strangers))}: not in {self._name!r}")
        states = {name: self.members[name].check_state(each) for name, each in found.members.items()}
        return msgspec.structs.replace(found, members=states)

    def check_options(self, options: RunOptions) -> None:
        said = options.input or (options.state and options.state.messages)
        if not said:
            raise ConfigurationError(f"the {self.kind} {self._name!r} needs an input: text, a Message or several")
        if options.state is not None and options.history:
            raise ConfigurationError("a state has its conversation in it: leave history= out")

    def check_price(self) -> None:
        for member in self.members.values():
            member.check_price()

    # --- running --------------------------------------------------------------------------------------------

    async def execute(self, ctx: RunContext) -> Any:
        """Turns until the team is through, or its termination says so; the last one's output."""
        return await Meeting(self, ctx).run()

    def opened(self, state: TeamState) -> TeamState:
        """New work begins."""
        return state

    async def due(self, floor: Floor) -> Sequence[str]:
        """Who begins to speak now; nobody while nobody else does: the team is through."""
        raise NotImplementedError(f"a {self.kind} must know who is next")

    def judged(self, turn: Turn) -> tuple[str, ...] | None:
        """What `heard` needs to know of a whole turn; `None` where the user's functions have to be `asked`."""
        return ()

    async def asked(self, turn: Turn, ctx: RunContext) -> tuple[str, ...]:
        """The same, as the user's functions say."""
        return ()

    def heard(self, state: TeamState, turn: Turn, judgement: tuple[str, ...]) -> TeamState:
        """A turn has ended whole."""
        return state

    def is_whole(self, turn: Turn) -> bool:
        """True if a turn that was cut off lacks nothing: it is not taken again."""
        return False

    def aside(self, call: ToolCall) -> str:
        """What the others hear of a member's tool call."""
        return ""

    def done(self, state: TeamState) -> str:
        """Why nobody is next."""
        return "everybody is through"

    def __repr__(self) -> str:
        return f"{type(self).__name__}([{', '.join(self.members)}], name={self._name!r})"


class Floor(Protocol):
    """What a team looks at to say who is next."""

    @property
    def state(self) -> TeamState: ...

    @property
    def speaking(self) -> Sequence[str]:
        """Whose turns are under way."""
        ...

    @property
    def ctx(self) -> RunContext: ...

    async def ask(self, runnable: Runnable[T], input: Any) -> T | None:
        """The output of a run beside the conversation; `None` if the team's end came first."""
        ...


def _named(given: Any, kind: str) -> dict[str, Runnable[Any]]:
    """The members by name. Raises `ConfigurationError` for none, for two of one name, and for what takes no text."""
    if isinstance(given, Mapping):
        pairs = list(cast("Mapping[Any, Any]", given).items())
    elif isinstance(given, Iterable) and not isinstance(given, str):
        pairs = [(getattr(each, "name", ""), each) for each in cast("Iterable[Any]", given)]
    else:
        raise ConfigurationError(f"the members of a {kind} are a list, or a mapping of names, not {given!r}")
    if not pairs:
        raise ConfigurationError(f"a {kind} needs members")
    members: dict[str, Runnable[Any]] = {}
    for name, member in pairs:
        if not isinstance(member, Runnable):
            raise ConfigurationError(f"a member of a {kind} is an agent, or anything that runs, not {member!r}")
        if not checked.text("a member's name", name).strip():
            raise ConfigurationError(f"a member of a {kind} needs a name: {member!r}")
        if name in members:
            raise ConfigurationError(f"two members are called {name!r}: give them as {{name: member}}")
        member.check_input(ANY_TEXT)
        members[name] = member
    return members
