"""`Member`: an agent with a role, a goal and a backstory; and what a crew makes of an agent for one of its tasks."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterable, Sequence
from copy import copy
from typing import Any, TypedDict, Unpack

from halter import checked
from halter.agent import Agent, Instructions
from halter.core.context import RunContext
from halter.core.ports import Model
from halter.crews.braces import fill, inputs_of, names_in
from halter.errors import ConfigurationError
from halter.hooks import Hooks
from halter.outputs import AnswerType
from halter.request import Settings, ToolChoice
from halter.toolbox import Toolbox


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
    output_retries: int


class Member(Agent[str]):
    """An `Agent` whose instructions are made of a role, a goal and a backstory.

    `{names}` in these three are filled from the inputs of the crew that it works in; alone, they stay as they are.
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
        super().__init__(model, instructions=told, name=name, **options)


class Told:
    """What an agent is told in a crew: instructions of its own, and a text with braces, filled from the inputs."""

    def __init__(self, own: Instructions, text: str) -> None:
        self._own = own
        self._text = text
        self.names = names_in((text,))

    async def __call__(self, ctx: RunContext) -> str:
        own = self._own if isinstance(self._own, str) else self._own(ctx)
        said = await own if inspect.isawaitable(own) else own
        return "\n\n".join(filter(None, (said, fill(self._text, inputs_of(ctx)))))


def in_crew(agent: Agent[Any], *, tools: Sequence[Any] = (), output: Any = None, about: str = "") -> Agent[Any]:
    """`agent` as it works in a crew: its braces are filled, as are those of what it is told besides (`about`).

    `tools`: besides its own. `output`: the type of its answers, if it is not its own. Raises `ConfigurationError`.
    """
    own, text = agent.instructions, about
    if isinstance(agent, Member) and isinstance(own, str):
        own, text = "", "\n\n".join(filter(None, (own, about)))
    toolbox, other = agent.toolbox, copy(agent)
    other.instructions = Told(own, text) if text else own
    if tools:
        kept = [each for name, each in toolbox.tools.items() if name not in toolbox.handoffs]
        other.toolbox = Toolbox((*kept, *tools), toolbox.handoffs.values())
    if output is not None:
        other.answer = _answers(agent, output)
    other._check_features()
    return other


def names_of(agent: Any) -> set[str]:
    """The names in braces that it wants to be filled, once it is in a crew."""
    told = agent.instructions if isinstance(agent, Agent) else None
    return told.names if isinstance(told, Told) else set()


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
