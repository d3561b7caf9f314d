"""`Flow`: a class whose methods are steps, over a typed state. Immutable; all that changes lives in its runs."""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, ClassVar, Generic, Self, TypeVar, cast, get_args, get_origin

import msgspec

from halter import checked
from halter.core.context import RunContext
from halter.core.options import RunOptions
from halter.core.runnable import Runnable
from halter.errors import ConfigurationError, UsageError
from halter.flows.graph import Graph
from halter.flows.mermaid import drawn
from halter.flows.progress import FlowState, check_names, fresh
from halter.flows.state import StateType
from halter.flows.steps import Step
from halter.flows.walk import Walk
from halter.messages import Message

if TYPE_CHECKING:
    from typing_extensions import TypeVar  # of Python 3.13: with a default, so that `Flow` alone is a type too

    S = TypeVar("S", default=dict[str, Any])
else:
    S = TypeVar("S")

_STATE = "_state_of_step"


class Flow(Runnable[Any], Generic[S]):
    """Steps that wait for one another, over a state: `class Report(Flow[State])`, with methods under `@start()`,
    `@listen(…)` and `@router(…)`.

    `State` is a msgspec Struct, a dataclass, a pydantic model or a TypedDict; without one it is a `dict`. It is read
    from the run's input: a value of it, or a mapping of its fields; what is left out has its default. An input that is
    said instead (text, messages) goes to the steps with which the flow begins, as their `value`.

    In a step, `self.state` is the step's own copy. When the step ends, the fields that it has changed become the
    flow's; two steps that ran at once and changed one field fail the flow with `StateConflict`. Other attributes are
    the definition's and cannot be set there. What a step starts (`await self.writer.run(…)`) is a child of its run.

    Of the class: `name`, by default the class's own, is how its events are marked; `description`, by default the first
    line of its docstring, is what it is for; `max_steps` is how many steps one run may take before it fails with
    `StepsExhausted`. Of a run: the output is what the last step returned to which nothing listens; the text is that of
    whatever spoke last; `result.state` is a `FlowState`, with which `run(state=…)` goes on: steps that have ended are
    not repeated, one that was cut runs anew.

    Raises `ConfigurationError` where the class is made: for a name that there is not, a step that can never run, a
    circle without a way out.
    """

    kind = "flow"
    max_steps: ClassVar[int] = 100
    _title: ClassVar[str] = "flow"
    _about: ClassVar[str] = ""
    _graph: ClassVar[Graph | None] = None
    _state_type: ClassVar[StateType] = StateType(dict[str, Any], "a flow")

    def __init_subclass__(
        cls, *, name: str | None = None, description: str | None = None, max_steps: int | None = None, **rest: Any
    ) -> None:
        super().__init_subclass__(**rest)
        cls._title = checked.text("name", cls.__name__ if name is None else name)
        said = (cls.__dict__.get("__doc__") or "").strip().partition("\n")[0]
        cls._about = checked.text("description", said if description is None else description)
        if max_steps is not None:
            cls.max_steps = checked.whole("max_steps", max_steps, at_least=1)
        if (given := _state_type_of(cls)) is not None:
            cls._state_type = StateType(given, cls.__name__)
        steps = list(_steps_of(cls))
        cls._graph = Graph(cls.__name__, steps) if steps else None

    def __new__(cls, *_: Any, **__: Any) -> Self:
        if cls._graph is None:
            raise ConfigurationError(f"{cls.__name__} has no steps: a flow's methods are under @start(), @listen(…)")
        return super().__new__(cls)

    # --- what it is -----------------------------------------------------------------------------------------

    @property
    def name(self) -> str:
        return self._title

    @property
    def description(self) -> str:
        return self._about

    @property
    def graph(self) -> Graph:
        """Its steps, and what follows what."""
        assert self._graph is not None
        return self._graph

    @classmethod
    def to_mermaid(cls) -> str:
        """The flow as a diagram, in Mermaid's language (`flowchart TD`). Raises `ConfigurationError` without steps."""
        if cls._graph is None:
            raise ConfigurationError(f"{cls.__name__} has no steps to draw")
        return drawn(cls._graph)

    # --- what changes, in a step ----------------------------------------------------------------------------

    @property
    def state(self) -> S:
        """In a step: its own copy of the state; it may be changed, and replaced. Elsewhere: raises `UsageError`."""
        if _STATE not in self.__dict__:
            raise UsageError(f"flow {self.name!r} is a definition: its runs have a state, in their steps and results")
        return self.__dict__[_STATE]

    @state.setter
    def state(self, state: S) -> None:
        if _STATE not in self.__dict__ or not self._state_type.is_one(state):
            raise UsageError(f"in a step, the state of flow {self.name!r} may be replaced by one of its type")
        self.__dict__[_STATE] = state

    def __setattr__(self, name: str, value: Any) -> None:
        if name != "state" and _STATE in self.__dict__:
            raise UsageError(f"self.{name} cannot be set in a step: what changes belongs into self.state")
        super().__setattr__(name, value)

    def seen_by_step(self, state: S) -> Flow[S]:
        """This definition as the `self` of one step; `state` is that step's own."""
        seen = copy.copy(self)
        seen.__dict__[_STATE] = state
        return seen

    # --- running --------------------------------------------------------------------------------------------

    def check_input(self, input: Any) -> Any:
        """What the first steps get, as it is; else a state."""
        if input is None:
            return None
        if _is_said(input):
            self._state_type.read(None)
            return input
        return self._state_type.read(input)

    def check_options(self, options: RunOptions) -> None:
        if options.state is None:
            self._begin_with(options.input)
        elif options.input is not None:
            raise ConfigurationError(f"flow {self.name!r} goes on from state=, or begins with an input: not both")

    def check_state(self, state: Any) -> FlowState[S] | None:
        """The `result.state` of a run before, or what it became in JSON."""
        if state is None:
            return None
        try:
            at: Any = msgspec.convert(state, FlowState[Any]) if isinstance(state, Mapping) else state
        except msgspec.ValidationError as error:
            raise ConfigurationError(f"state= is no FlowState of {self.name!r}: {error}") from error
        if not isinstance(at, FlowState):
            raise ConfigurationError(f"state= must be the result.state of a run, not {type(at).__name__}")
        given = cast("FlowState[Any]", at)
        check_names(self.graph, self.name, given)
        return msgspec.structs.replace(given, state=self._state_type.read(given.state))

    def check_price(self) -> None:
        """For what its attributes hold; what a step finds elsewhere is checked when it runs."""
        for value in _attributes(self):
            for each in cast("list[Any]", value) if isinstance(value, list | tuple) else (value,):
                if isinstance(each, Runnable):
                    each.check_price()

    def _begin_with(self, input: Any) -> FlowState[S]:
        said = _is_said(input)
        return fresh(self.graph, self._state_type.read(None if said else input), input if said else None)

    async def execute(self, ctx: RunContext) -> Any:
        return await Walk(self, ctx, ctx.state or self._begin_with(ctx.input)).run()

    def __repr__(self) -> str:
        return f"<flow {self.name} of {len(self.graph.steps)} steps>"


def _is_said(input: Any) -> bool:
    """It is for the first steps, and no state."""
    return isinstance(input, str | Message | list | tuple)


def _state_type_of(cls: type) -> Any:
    """`State` in `class Report(Flow[State])`; `None` if that is not said here."""
    for base in cls.__dict__.get("__orig_bases__", ()):
        origin = get_origin(base)
        if isinstance(origin, type) and issubclass(origin, Flow):
            (given,) = get_args(base)
            return None if isinstance(given, TypeVar) else given
    return None


def _steps_of(cls: type) -> Iterator[Step]:
    """In the order of their definition; a method that is defined anew takes the place of the one above."""
    names = dict.fromkeys(name for kind in reversed(cls.__mro__) for name in vars(kind))
    for name in names:
        value = getattr(cls, name, None)
        if isinstance(value, Step):
            if hasattr(Flow, name):
                raise ConfigurationError(
                    f"no step can be called {name!r}: that is a flow's own; rename {cls.__name__}'s"
                )
            if value.name != name:
                raise ConfigurationError(f"{cls.__name__}.{name} is step {value.name!r}: a step has one name")
            yield value


def _attributes(flow: Flow[Any]) -> Iterator[Any]:
    for kind in type(flow).__mro__:
        yield from vars(kind).values()
    yield from vars(flow).values()
