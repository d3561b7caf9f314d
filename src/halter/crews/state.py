"""`CrewState`: how far a run of a crew has come, as data that can be stored and gone on from."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from halter.core.run import Run
from halter.errors import ConfigurationError
from halter.messages import Message
from halter.parts import as_json

GO_ON = "You were interrupted. Go on with your task, and give your whole answer, from its beginning."


class CrewState(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How far a run has come. Immutable; all of it can be written as JSON (`msgspec.json.encode`), and read back.

    `outputs`: of each task that is done, by its name: text as it is, anything else in JSON's terms. `open`: of each
    task that was cut short, the conversation of its agent, as far as it came.
    """

    outputs: dict[str, Any] = msgspec.field(default_factory=dict[str, Any])
    open: dict[str, tuple[Message, ...]] = msgspec.field(default_factory=dict[str, tuple[Message, ...]])

    def after(self, runs: Mapping[str, Run[Any]]) -> CrewState:
        """The state after these runs of tasks, whether they have ended or not."""
        results = {name: result for name, run in runs.items() if (result := run.outcome) is not None}
        done = {name: plain(result.output) for name, result in results.items() if result.is_completed}
        cut = {name: result.state for name, result in results.items() if not result.is_completed and result.state}
        still_open = {name: messages for name, messages in self.open.items() if name not in done}
        return CrewState(outputs={**self.outputs, **done}, open={**still_open, **cut})


def read_state(given: Any, tasks: Sequence[str]) -> CrewState:
    """A state as `run(state=…)` was given it, decoded or not. Raises `ConfigurationError`."""
    try:
        state = given if isinstance(given, CrewState) else msgspec.convert(given, CrewState)
    except msgspec.ValidationError as error:
        raise ConfigurationError(f"state must be a CrewState, or what was decoded from its JSON: {error}") from error
    unknown = (state.outputs.keys() | state.open.keys()) - set(tasks)
    if unknown:
        raise ConfigurationError(f"the state is of another crew: this one has no task {', '.join(sorted(unknown))}")
    return state


def going_on(messages: Sequence[Message]) -> tuple[Sequence[Message], Message]:
    """The conversation of a task that was cut short, and what to say next in it."""
    if messages[-1].role == "user":
        return messages[:-1], messages[-1]
    return messages, Message.user(GO_ON)


def plain(output: Any) -> Any:
    """An output in JSON's terms. Raises `ConfigurationError` for what has none."""
    if output is None or isinstance(output, str):
        return output
    return msgspec.json.decode(as_json(output))
