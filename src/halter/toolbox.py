"""The tools of one agent, by name: functions, runnables, and those to whom it may hand over."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping
from copy import copy
from typing import TYPE_CHECKING, Annotated, Any, cast

from halter.core.ports import Tool
from halter.core.runnable import Runnable
from halter.errors import ConfigurationError
from halter.messages import ToolCall
from halter.request import ToolSpec
from halter.tools.function import FunctionTool, tool
from halter.tools.runnables import as_tool

if TYPE_CHECKING:
    from halter.agent import Agent

_NOT_IN_A_NAME = re.compile(r"[^a-zA-Z0-9_-]+")


class Toolbox:
    """Immutable. `tools`: all that the model may call; `handoffs`: which of the names hand over, and to whom.

    `exits`: which of them hand over to somebody outside of the run, which ends with that turn. `left_to_caller`: names
    of tools that whoever has started the run answers. Raises `ConfigurationError` for what is no tool, and for two
    tools of one name.
    """

    def __init__(self, tools: Iterable[Any], handoffs: Iterable[Agent[Any]]) -> None:
        self.tools: dict[str, Tool] = {}
        self.handoffs: dict[str, Agent[Any]] = {}
        self.exits: dict[str, str] = {}
        self.left_to_caller: frozenset[str] = frozenset()
        for each in _flat(tools):
            self._add(_as_tool(each))
        if not isinstance(handoffs, Iterable):
            raise ConfigurationError(f"handoffs must be a list of agents, not {handoffs!r}")
        for agent in handoffs:
            if not isinstance(agent, Runnable) or agent.kind != "agent":
                raise ConfigurationError(f"a handoff is to an Agent, not to {agent!r}")
            handoff = handoff_tool(agent.name, agent.description)
            self._add(handoff)
            self.handoffs[handoff.spec.name] = agent
        self.specs = self._specs()

    def _specs(self) -> tuple[ToolSpec, ...]:
        return tuple(each.spec for each in self.tools.values())

    def with_exits(self, targets: Mapping[str, str]) -> Toolbox:
        """These tools, and a handoff to each of these names, which stand with what they are for."""
        other = copy(self)
        other.tools, other.exits = dict(self.tools), dict(self.exits)
        for name, about in targets.items():
            handoff = handoff_tool(name, about)
            other._add(handoff)
            other.exits[handoff.spec.name] = name
        other.specs = other._specs()
        return other

    def leaving_to_caller(self, specs: Iterable[ToolSpec]) -> Toolbox:
        """These tools, and those that the caller of the run answers."""
        other = copy(self)
        given = tuple(specs)
        names = Counter((*self.tools, *(spec.name for spec in given)))
        if twice := next((name for name, times in names.items() if times > 1), None):
            raise ConfigurationError(f"two tools are called {twice!r}: give one another name")
        other.specs = (*self.specs, *given)
        other.left_to_caller = frozenset(spec.name for spec in given)
        return other

    def ours(self, calls: Iterable[ToolCall]) -> tuple[ToolCall, ...]:
        """The calls that the run answers itself; one that was cut off is never left to the caller."""
        return tuple(call for call in calls if call.incomplete or call.name not in self.left_to_caller)

    def _add(self, each: Tool) -> None:
        name = each.spec.name
        if name in self.tools:
            raise ConfigurationError(
                f"two tools are called {name!r}, {self.tools[name]!r} and {each!r}: give one another name, or a prefix"
            )
        self.tools[name] = each


def _flat(tools: Iterable[Any]) -> Iterable[Any]:
    """Tools come alone, and in groups such as `files(…)`."""
    if isinstance(tools, str) or not isinstance(tools, Iterable):
        raise ConfigurationError(f"tools must be a list of tools, not {tools!r}")
    for each in tools:
        if isinstance(each, list | tuple):
            yield from _flat(each)  # pyright: ignore[reportUnknownArgumentType]
        else:
            yield each


def _as_tool(each: Any) -> Tool:
    if isinstance(each, Runnable):
        return as_tool(cast("Runnable[Any]", each))
    if all(hasattr(each, name) for name in ("spec", "rules", "read", "call")):
        return each
    if callable(each) and not isinstance(each, type):
        return tool(each)
    raise ConfigurationError(f"a tool is a function, a tool, or anything that runs, not {each!r}")


def handoff_tool(name: str, about: str) -> FunctionTool[[], Any]:
    """What a model calls to hand the conversation over to `name`. `about`: what that one is for, or nothing."""
    about = f" It is for: {about}" if about else ""

    async def transfer(reason: Annotated[str, "Why, in a few words."] = "") -> str:
        return f"{name} goes on from here."

    return tool(
        transfer,
        name=f"transfer_to_{_NOT_IN_A_NAME.sub('_', name)}"[:64],
        description=f"Hands the conversation over to {name}, who goes on with it.{about}",
    )
