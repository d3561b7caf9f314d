"""`Member`: an agent with a role, a goal and a backstory; and what a crew makes of an agent for one of its tasks."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from copy import copy
from typing import Any, TypedDict, Unpack, cast

from halter import checked
from halter.agent import Agent, Instructions
from halter.core.calling import call_function
from halter.core.context import RunContext
from halter.core.ports import Model
from halter.crews.braces import fill, inputs_of, names_in
from halter.errors import ConfigurationError
from halter.facts.facts import Facts
from halter.hooks import Hooks
from halter.outputs import AnswerType
from halter.request import Settings, ToolChoice
from halter.toolbox import Toolbox
from halter.tools.runnables import as_tool


class MemberOptions(TypedDict, total=False):
    """What a `Member` takes besides, as every `Agent` does."""

    description: str
    tools: Iterable[Any]
    tool_choice: ToolChoice | None
    parallel_tools: bool
    handoffs: Iterable[Agent[Any]]
    max_turns: int
    hooks: Hooks | None
    settings: Settings
    memory: Facts | None
    output_retries: int


class Member(Agent[str]):
    """An `Agent` whose instructions are made of a role, a goal and a backstory.

    `{names}` in these three are filled from the inputs of the crew that it works in, also as a tool of another member
    there (`asked`: those whom it has as tools), or where it is handed over to; alone, they stay as they are.
    `name`: how its events are marked, and what a manager calls it; the role, if it is left out. The rest is as for an
    `Agent`. Raises `ConfigurationError`.
    """

    def __init__(
        self,
        model: str | Model,
        *,
        role: str,
        goal: str,
        backstory: str = "",
        name: str = "",
        **options: Unpack[MemberOptions],
    ) -> None:
        self.role = _said("role", role)
        self.goal = _said("goal", goal)
        self.backstory = checked.text("backstory", backstory)
        told = "\n\n".join(filter(None, (f"You are {role}.", backstory, f"Your goal: {goal}")))
        name = checked.text("name", name) or re.sub("[{}]", "", role)
        tools = options.get("tools", ())
        if not isinstance(tools, str) and isinstance(tools, Iterable):
            options["tools"] = tools = tuple(tools)  # an iterator can be looked through only once
        super().__init__(model, instructions=told, name=name, **options)
        asked = [cast("Agent[Any]", each) for each in tools if isinstance(each, Agent)]
        self.asked = {as_tool(each).name: each for each in asked}


class Told:
    """What an agent is told in a crew: instructions of its own, and a text with braces, filled from the inputs."""

    def __init__(self, own: Instructions, text: str) -> None:
        self._own = own
        self._text = text
        self.names = names_in((text,))

    async def __call__(self, ctx: RunContext) -> str:
        said = self._own if isinstance(self._own, str) else await call_function(ctx, self._own, ctx)
        return "\n\n".join(filter(None, (said, fill(self._text, inputs_of(ctx)))))


def in_crew(agent: Agent[Any], *, tools: Sequence[Any] = (), output: Any = None, about: str = "") -> Agent[Any]:
    """`agent` as it works in a crew: its braces are filled, as are those of what it is told besides (`about`).

    `tools`: besides its own. `output`: the type of its answers, if it is not its own. Raises `ConfigurationError`.
    """
    own, text = agent.instructions, about
    if isinstance(agent, Member) and isinstance(own, str):
        own, text = "", "\n\n".join(filter(None, (own, about)))
    other = copy(agent)
    other.instructions = Told(own, text) if text else own
    _equip(other, tools)
    if output is not None:
        other.answer = _answers(agent, output)
    other._check_features()
    return other


def _equip(agent: Agent[Any], tools: Sequence[Any]) -> None:
    """Gives it these tools besides its own; those whom it may ask, or hand over to, are in the crew with it."""
    toolbox, own = agent.toolbox, dict(agent.toolbox.tools)
    if isinstance(agent, Member):
        agent.asked = {name: in_crew(each) for name, each in agent.asked.items()}
        own |= {name: as_tool(each) for name, each in agent.asked.items()}
    kept = [each for name, each in own.items() if name not in toolbox.handoffs]
    agent.toolbox = Toolbox((*kept, *tools), [in_crew(each) for each in toolbox.handoffs.values()])


def names_of(agent: Any) -> set[str]:
    """The names in braces that it wants to be filled, once it is in a crew."""
    if not isinstance(agent, Agent):
        return set()
    own = agent.instructions.names if isinstance(agent.instructions, Told) else set[str]()
    asked = agent.asked.values() if isinstance(agent, Member) else ()
    return own.union(*map(names_of, (*asked, *agent.toolbox.handoffs.values())))


def _answers(agent: Agent[Any], output: Any) -> AnswerType[Any]:
    if agent.toolbox.handoffs:
        raise ConfigurationError(
            f"{agent.name!r} may hand over to agents that know nothing of the task's output=: give it no handoffs"
        )
    return AnswerType(output)


def _said(name: str, text: str) -> str:
    if not checked.text(name, text).strip():
        raise ConfigurationError(f"a member needs a {name}")
    return text
