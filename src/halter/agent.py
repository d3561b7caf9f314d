"""`Agent`: a model with instructions and tools. Immutable; all that changes lives in its runs."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from copy import copy
from functools import partial
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar, overload

from halter import checked
from halter.compaction.settings import ON_SESSIONS, Compaction
from halter.core.approvals import Policy, checked_policy
from halter.core.context import RunContext
from halter.core.metering import NO_PRICE
from halter.core.ports import Model
from halter.core.runnable import Runnable
from halter.errors import ConfigurationError
from halter.facts.facts import Facts
from halter.features import Features
from halter.hooks import Hooks, called, overrides
from halter.messages import Message, as_messages
from halter.models.names import as_model
from halter.outputs import AnswerType
from halter.request import OutputSchema, Settings, ToolChoice, ToolSpec
from halter.toolbox import Toolbox
from halter.tools.function import FunctionTool
from halter.tools.runnables import as_tool
from halter.turns import Turns

if TYPE_CHECKING:
    from typing_extensions import TypeVar  # of Python 3.13: with a default, so that `Agent` alone is a type too

    T = TypeVar("T", default=Any)
else:
    T = TypeVar("T")

Instructions: TypeAlias = str | Callable[[RunContext], Any]


class Agent(Runnable[T]):
    """One model, what it is told to be, and what it may do.

    `model`: a name such as `"openai:gpt-5.2"` or `"scripted:Hello"`, or a model object. `instructions`: the system
    text, or a function of the run's context that gives it, plain or async, called before each turn. `name`: how its
    events are marked. `description`: what it is for, told to agents that may call it or hand over to it.

    `tools`: functions, tools, and anything that runs. `tool_choice`: as in a `ModelRequest`; until a tool was called.
    `parallel_tools`: run the calls of one answer all at once, or in order. `handoffs`: agents to which it may hand the
    conversation over. `max_turns`: how many answers one run may take at most; a run whose last answer calls tools fails
    with `TurnsExhausted`. `hooks`: where your code looks into a run.
    `approvals`: which tools ask, by the harm that they can do, see `Policy`; without it, as the run above it has it.

    `memory`: what it learns of its users and knows in later conversations, on sessions; see `Facts`. `compaction`: what
    becomes of conversations that outgrow the model's window, see `Compaction`; without it, those on sessions are
    compacted as by `Compaction()`, others not; with `None`, none are.

    `settings`: temperature, length, reasoning and the like, over the model's own. `output`: the type of the answer, if
    it is not text: a msgspec Struct, a dataclass, a TypedDict, a pydantic model, or any type that JSON can be read
    into; `result.output` is one of it. `output_retries`: how often in one run the model is told what is wrong with an
    answer that does not fit, and answers again, before the run fails with `OutputInvalid`.

    Raises `ConfigurationError` for an unknown model, a missing key or what the model's provider cannot do, before
    anything runs.
    """

    kind = "agent"

    @overload
    def __init__(
        self: Agent[str],
        model: str | Model,
        *,
        instructions: Instructions = ...,
        name: str = ...,
        description: str = ...,
        tools: Iterable[Any] = ...,
        tool_choice: ToolChoice | None = ...,
        parallel_tools: bool = ...,
        handoffs: Iterable[Agent[Any]] = ...,
        max_turns: int = ...,
        hooks: Hooks | None = ...,
        approvals: Policy | None = ...,
        settings: Settings = ...,
        memory: Facts | None = ...,
        compaction: Compaction | None = ...,
        output: None = None,
        output_retries: int = ...,
    ) -> None: ...

    @overload
    def __init__(
        self,
        model: str | Model,
        *,
        instructions: Instructions = ...,
        name: str = ...,
        description: str = ...,
        tools: Iterable[Any] = ...,
        tool_choice: ToolChoice | None = ...,
        parallel_tools: bool = ...,
        handoffs: Iterable[Agent[Any]] = ...,
        max_turns: int = ...,
        hooks: Hooks | None = ...,
        approvals: Policy | None = ...,
        settings: Settings = ...,
        memory: Facts | None = ...,
        compaction: Compaction | None = ...,
        output: type[T],
        output_retries: int = ...,
    ) -> None: ...

    @overload  # a union or a Literal is no `type` to a type checker
    def __init__(
        self: Agent[Any],
        model: str | Model,
        *,
        instructions: Instructions = ...,
        name: str = ...,
        description: str = ...,
        tools: Iterable[Any] = ...,
        tool_choice: ToolChoice | None = ...,
        parallel_tools: bool = ...,
        handoffs: Iterable[Agent[Any]] = ...,
        max_turns: int = ...,
        hooks: Hooks | None = ...,
        approvals: Policy | None = ...,
        settings: Settings = ...,
        memory: Facts | None = ...,
        compaction: Compaction | None = ...,
        output: Any,
        output_retries: int = ...,
    ) -> None: ...

    def __init__(
        self,
        model: str | Model,
        *,
        instructions: Instructions = "",
        name: str = "agent",
        description: str = "",
        tools: Iterable[Any] = (),
        tool_choice: ToolChoice | None = None,
        parallel_tools: bool = True,
        handoffs: Iterable[Agent[Any]] = (),
        max_turns: int = 100,
        hooks: Hooks | None = None,
        approvals: Policy | None = None,
        settings: Settings = Settings(),  # noqa: B008 - frozen
        memory: Facts | None = None,
        compaction: Compaction | None = ON_SESSIONS,
        output: Any = None,
        output_retries: int = 1,
    ) -> None:
        self.model = as_model(model)
        self.instructions = instructions if callable(instructions) else checked.text("instructions", instructions)
        self._name = checked.text("name", name)
        self._description = checked.text("description", description)
        self.toolbox = Toolbox(tools, handoffs)
        self.tool_choice: ToolChoice | None = tool_choice
        self.parallel_tools = bool(parallel_tools)
        self.max_turns = checked.whole("max_turns", max_turns, at_least=1)
        self.hooks = _hooks(hooks)
        self.approvals = checked_policy(approvals)
        self.settings = _settings(settings)
        self.memory = _memory(memory)
        self.compaction = _compaction(compaction)
        self.answer: AnswerType[T] | None = None if output is None else AnswerType(output)
        self.output_retries = checked.whole("output_retries", output_retries, at_least=0)
        self.further_instructions = ""  # of one request, told after its own
        self._asked_schema: OutputSchema | None = None  # of one request, instead of that of its answer
        self._check_features()

    def _check_features(self) -> None:
        features = self.features
        if features is not None:
            tools, choice = self.toolbox.specs, self.tool_choice
            features.check(self.model.name, self.settings, tools=tools, tool_choice=choice, output=self.schema)
        check = getattr(self.model, "check_definition", None)
        if callable(check):
            check(self.settings, tools=self.toolbox.specs, tool_choice=self.tool_choice)

    @property
    def features(self) -> Features | None:
        """What its model can do, if the model says so."""
        found = getattr(self.model, "features", None)
        return found if isinstance(found, Features) else None

    @property
    def model_name(self) -> str | None:
        return self.model.name

    @property
    def schema(self) -> OutputSchema | None:
        """What its answers are held to."""
        return self.answer.schema if self.answer is not None else self._asked_schema

    def as_tool(self, *, name: str | None = None, description: str | None = None) -> FunctionTool[..., Any]:
        """This agent as a tool of another; see `halter.tools.as_tool`."""
        return as_tool(self, name=name, description=description)

    def leaving_to(self, targets: Mapping[str, str]) -> Agent[T]:
        """The same agent with a handoff to each of these names, none of which its own run goes on with.

        `targets`: for each name what it is for. The model sees tools, as with `handoffs`; the run in which it calls one
        completes with that turn, and its output is what was said with the call. Who goes on is the caller's business.
        Raises `ConfigurationError` for a name that another tool has, and if the model takes no tools.
        """
        other = copy(self)
        other.toolbox = self.toolbox.with_exits(targets)
        other._check_features()
        return other

    def for_request(
        self,
        *,
        tools: Iterable[ToolSpec] = (),
        tool_choice: ToolChoice | None = None,
        settings: Settings = Settings(),  # noqa: B008 - frozen
        instructions: str = "",
        output: OutputSchema | None = None,
    ) -> Agent[Any]:
        """This agent as one request asks for it, as a server's client may.

        Args:
            tools: tools of the caller, beside the agent's own. A run in which the model calls one completes with that
                turn and leaves the call without a result. The next run on the conversation brings it, as
                `Message("tool", (ToolResult(call_id, text),))`.
            tool_choice: instead of the agent's own; `None` leaves that.
            settings: over the agent's own.
            instructions: told to the model after the agent's own.
            output: the shape of the answer, instead of the agent's own; the output is the answer's text.

        Returns:
            Another agent; this one does not change.

        Raises:
            ConfigurationError: for a name that two tools have, and for what the model's provider cannot do.
        """
        other: Agent[Any] = copy(self)
        other.toolbox = self.toolbox.leaving_to_caller(tools)
        other.tool_choice = tool_choice or self.tool_choice
        other.settings = settings.over(self.settings)
        other.further_instructions = checked.text("instructions", instructions)
        if output is not None:
            other.answer, other._asked_schema = None, output
        other._check_features()
        return other

    def check_input(self, input: Any) -> tuple[Message, ...]:
        if input is None:
            raise ConfigurationError("an agent needs an input: text, a Message or a list of Messages")
        return as_messages(input)

    def check_price(self) -> None:
        if getattr(self.model, "price", None) is None:
            raise ConfigurationError(NO_PRICE.format(self.model.name))
        summarising = None if self.compaction is None else self.compaction.model
        if summarising is not None and getattr(summarising, "price", None) is None:
            raise ConfigurationError(NO_PRICE.format(summarising.name))
        for agent in self.toolbox.handoffs.values():
            agent.check_price()

    async def execute(self, ctx: RunContext) -> Any:
        """Turns until the model has answered, as it should, and nobody has sent anything more; the last answer."""
        turns = Turns(self, ctx)
        output = await (turns.run() if self.hooks is None else self._run_with(self.hooks, turns, ctx))
        turns.learn()
        return output

    async def _run_with(self, hooks: Hooks, turns: Turns, ctx: RunContext) -> Any:
        on_cancel = ctx.on_cancel(partial(_tell, hooks, ctx)) if overrides(hooks, "on_cancel") else None
        await called(hooks, "before_run", ctx)
        output = await turns.run()
        await called(hooks, "after_run", ctx, output)
        if on_cancel is not None:
            on_cancel.end()
        return output

    def __repr__(self) -> str:
        return f"Agent({self.model.name!r}, name={self._name!r})"


async def _tell(hooks: Hooks, ctx: RunContext) -> None:
    request = ctx.cancellation
    if request is not None:
        await called(hooks, "on_cancel", ctx, request)


def _settings(given: Any) -> Settings:
    if not isinstance(given, Settings):
        raise ConfigurationError(
            f"settings must be Settings, as in Settings(temperature=0.5), not {type(given).__name__}"
        )
    return given


def _memory(given: Any) -> Facts | None:
    if given is not None and not isinstance(given, Facts):
        raise ConfigurationError(f"memory must be Facts, as in Agent(…, memory=Facts()), not {given!r}")
    return given


def _compaction(given: Any) -> Compaction | None:
    if given is not None and not isinstance(given, Compaction):
        raise ConfigurationError(
            f"compaction must be a Compaction, as in Agent(…, compaction=Compaction()), or None, not {given!r}"
        )
    return given


def _hooks(given: Any) -> Hooks | None:
    if given is not None and not isinstance(given, Hooks):
        raise ConfigurationError(f"hooks must be Hooks, a class of your own on top of it, not {given!r}")
    return given
