"""Who does which task of a crew: its own agent, or the manager, who has the others as tools."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from halter.agent import Agent
from halter.core.ports import Model
from halter.core.runnable import Runnable
from halter.crews.braces import as_it_is
from halter.crews.member import Member, in_crew
from halter.crews.task import Task, listed
from halter.errors import ConfigurationError
from halter.tools.runnables import as_tool

COWORKERS = "Your coworkers. Each is a tool: tell them all that they have to know, they know nothing of the rest."


class Own:
    """Each task is done by its own agent."""

    def __init__(self, agents: Sequence[Runnable[Any]]) -> None:
        self._agents = agents
        self.helpers: Sequence[Runnable[Any]] = ()

    def worker(self, task: Task, name: str) -> Runnable[Any]:
        """Raises `ConfigurationError` if it has no agent, or one of another crew."""
        if task.agent is None:
            raise ConfigurationError(f"{name!r} has no agent: give it one, or the crew a manager")
        _check_known(task.agent, self._agents, name)
        if isinstance(task.agent, Agent):
            return in_crew(task.agent, tools=task.tools, output=task.output)
        if task.tools or task.output is not None:
            raise ConfigurationError(f"{name!r}: {task.agent!r} takes no tools= and output= of a task, only its own")
        return task.agent


class Managed:
    """All tasks are done by a manager, who asks the agents, or the one that a task names."""

    def __init__(self, agents: Sequence[Runnable[Any]], manager: Agent[Any]) -> None:
        if not agents:
            raise ConfigurationError("a manager needs agents to ask: give the crew agents=[…]")
        names = [agent.name for agent in (manager, *agents)]
        if twice := sorted({name for name in names if names.count(name) > 1}):
            raise ConfigurationError(f"two of the crew are called {twice[0]!r}: give one another name=")
        self._agents = agents
        self._manager = manager
        self.helpers = [in_crew(each) if isinstance(each, Agent) else each for each in agents]

    def worker(self, task: Task, name: str) -> Runnable[Any]:
        """Raises `ConfigurationError` if the task names an agent of another crew."""
        if task.agent is not None:
            _check_known(task.agent, self._agents, name)
        pairs = zip(self._agents, self.helpers, strict=True)
        asked = [pair for pair in pairs if task.agent is None or task.agent is pair[0]]
        tools = [as_tool(helper) for _, helper in asked]
        lines = [f"- {tool.name}: {_about(agent)}" for tool, (agent, _) in zip(tools, asked, strict=True)]
        about = "\n".join((COWORKERS, *lines))
        return in_crew(self._manager, tools=(*tools, *task.tools), output=task.output, about=about)


def staff_of(process: str, tasks: Iterable[Task], agents: Iterable[Runnable[Any]], manager: Any) -> Own | Managed:
    """Who works. Raises `ConfigurationError` for what does not go together."""
    known = _checked(agents)
    if process == "hierarchical":
        if manager is None:
            raise ConfigurationError("a hierarchical crew needs a manager: the name of a model, a Member or an Agent")
        return Managed(known, _manager(manager))
    if manager is not None:
        raise ConfigurationError("a sequential crew has no manager: leave it out, or say process='hierarchical'")
    return Own(known or [task.agent for task in tasks if task.agent is not None])


def _checked(agents: Iterable[Runnable[Any]]) -> tuple[Runnable[Any], ...]:
    known = listed(agents)
    for agent in known:
        if not isinstance(agent, Runnable):
            raise ConfigurationError(f"agents are Members, Agents or anything that runs, not {agent!r}")
    return known


def _check_known(agent: Runnable[Any], agents: Sequence[Runnable[Any]], task: str) -> None:
    if not any(agent is each for each in agents):
        raise ConfigurationError(f"the agent of {task!r}, {agent.name!r}, is not among the crew's agents")


def _manager(given: str | Model | Agent[Any]) -> Agent[Any]:
    if isinstance(given, Agent):
        return given
    return Member(
        given,
        name="manager",
        role="the manager of a crew",
        goal="Get each task done well: hand out the work, look at what comes back, and give the answer yourself.",
    )


def _about(agent: Runnable[Any]) -> str:
    if isinstance(agent, Member):
        return f"{agent.role}. Their goal: {agent.goal}"
    return as_it_is(agent.description or agent.name)
