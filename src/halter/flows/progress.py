"""How far one run of a flow has come: a machine without a clock; and `FlowState`, its form for storing. Pure.

1. A step counts when it has ended, and as a whole: its value is handed on, its changes are the flow's, and what waits
for it is pending, all at once. 2. What has begun and not ended is pending still: a run that goes on begins it anew.
"""

from __future__ import annotations

import copy
from collections.abc import Iterable
from typing import Any, Generic, TypeVar

import msgspec

from halter.errors import ConfigurationError
from halter.flows.conditions import is_met, sources_of, value_of
from halter.flows.graph import Graph
from halter.flows.state import merged
from halter.flows.steps import Step

S = TypeVar("S")


class Pending(msgspec.Struct, frozen=True, kw_only=True):
    """A step that is to run, with what it gets."""

    step: str
    value: Any = None


class FlowState(msgspec.Struct, Generic[S], frozen=True, kw_only=True):
    """Where a flow is, between two steps: in `result.state`, and fit for `run(state=…)`.

    `state`: the flow's own, as of the steps that have ended. `done`: these, in the order of their ends. `pending`: what
    comes next, and what was cut. `arrived`: for each step that waits for several, what has come so far. `output`: as
    far as there is one.
    """

    state: S
    done: tuple[str, ...] = ()
    pending: tuple[Pending, ...] = ()
    arrived: dict[str, dict[str, Any]] = {}
    output: Any = None


def fresh(graph: Graph, state: Any, value: Any) -> FlowState[Any]:
    """Before the first step. `value`: what those get with which the flow begins."""
    return FlowState(state=state, pending=tuple(Pending(step=step.name, value=value) for step in graph.starts))


def check_names(graph: Graph, flow: str, at: FlowState[Any]) -> None:
    """Raises `ConfigurationError` if this is the state of another flow."""
    said = "this state is of another flow"
    named = {*at.done, *(pending.step for pending in at.pending), *at.arrived}
    if unknown := sorted(named - graph.steps.keys()):
        raise ConfigurationError(f"{said}: {flow} has no step {unknown[0]!r}")
    for name, values in at.arrived.items():
        condition = graph.steps[name].condition
        if unknown := sorted(values.keys() - set(() if condition is None else sources_of(condition))):
            raise ConfigurationError(f"{said}: {flow}.{name} does not wait for {unknown[0]!r}")


class Progress:
    """One run, as it goes. A pending step has a number; one that begins is told by it, and ends by it.

    `state`: never changed, only replaced.
    """

    def __init__(self, graph: Graph, at: FlowState[Any]) -> None:
        self._graph = graph
        self.state = at.state
        self.output = at.output
        self.pending: dict[int, Pending] = {}
        self._begun: set[int] = set()
        self._numbers = 0
        self._done = list(at.done)
        self._arrived = {name: dict(values) for name, values in at.arrived.items()}
        self._await(at.pending)

    def _await(self, pending: Iterable[Pending]) -> None:
        for each in pending:
            self._numbers += 1
            self.pending[self._numbers] = each

    @property
    def due(self) -> list[int]:
        """What is pending and has not begun, in order."""
        return [number for number in self.pending if number not in self._begun]

    def begin(self, number: int) -> tuple[Step, Any]:
        """The step with this number begins; it, and what it gets."""
        self._begun.add(number)
        pending = self.pending[number]
        return self._graph.steps[pending.step], pending.value

    def end(self, number: int, value: Any, base: Any, mine: Any) -> None:
        """It has ended, with `value`, and has made `mine` of the state `base`. Raises `StateConflict`; then not."""
        pending = self.pending[number]
        self.state = copy.deepcopy(merged(pending.step, base, mine, self.state))
        del self.pending[number]
        self._done.append(pending.step)
        step = self._graph.steps[pending.step]
        if step.labels is None:
            handed_on, is_heard = value, self._tell(step.name, value)
        else:
            told = self._tell(step.name, value)
            handed_on, is_heard = pending.value, self._tell(value, pending.value) or told
        if not is_heard:
            self.output = handed_on

    def _tell(self, source: str, value: Any) -> bool:
        """Whatever waits for `source` gets it; False if nothing does."""
        listeners = self._graph.listeners[source]
        for step in listeners:
            assert step.condition is not None
            arrived = self._arrived.setdefault(step.name, {})
            arrived[source] = value
            if is_met(step.condition, arrived):
                del self._arrived[step.name]
                self._await([Pending(step=step.name, value=value_of(step.condition, arrived))])
        return bool(listeners)

    def snapshot(self) -> FlowState[Any]:
        """All of it, for a run that goes on from here."""
        return FlowState(
            state=self.state,
            done=tuple(self._done),
            pending=tuple(self.pending.values()),
            arrived={name: dict(values) for name, values in self._arrived.items()},
            output=self.output,
        )
