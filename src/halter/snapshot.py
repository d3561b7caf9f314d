"""The state of a run, folded from its events: what a page or a terminal shows after it (re)connects.

1. A snapshot is a pure fold: the same events give the same snapshot, however they were merged. 2. It costs one pass
over the events; `Fold` keeps its place, so a later look costs only what is new.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Literal, TypeAlias

import msgspec

from halter import events
from halter.events import Event, Failure
from halter.messages import Usage
from halter.outcome import CancelMode, CancelReason, RunStatus

ToolStatus: TypeAlias = Literal["called", "running", "finished"]


class CancellingState(msgspec.Struct, kw_only=True):
    """The stop that is under way. `at`: seconds since the epoch."""

    reason: CancelReason
    mode: CancelMode
    actor: str | None
    message: str | None
    at: float


class RunState(msgspec.Struct, kw_only=True):
    """One run of the tree."""

    run_id: str
    parent_id: str | None
    name: str
    kind: str
    status: RunStatus
    input: Any = None
    model: str | None = None
    session_id: str | None = None
    started_at: float | None = None
    ended_at: float | None = None
    error: Failure | None = None
    cancelling: CancellingState | None = None


class MessageState(msgspec.Struct, kw_only=True):
    """One message of a model, as far as it came."""

    message_id: str
    run_id: str
    agent: str | None
    task: str | None
    role: str = "assistant"
    text: str = ""
    reasoning: str = ""
    finished: bool = False
    interrupted: bool = False


class ToolState(msgspec.Struct, kw_only=True):
    """One tool call. `output`: what it has shown while it ran."""

    call_id: str
    run_id: str
    agent: str | None
    task: str | None
    name: str
    arguments: str = ""
    status: ToolStatus = "called"
    output: str = ""
    outcome: str | None = None
    result: Any = None
    started_at: float | None = None


class InputState(msgspec.Struct, kw_only=True):
    """A question that waits for its answer."""

    request_id: str
    run_id: str
    kind: str
    prompt: str
    schema: Any = None
    options: tuple[str, ...] = ()
    call_id: str | None = None
    expires_at: float | None = None
    pattern: Mapping[str, Any] | None = None


class OpenItems(msgspec.Struct, kw_only=True):
    """What is not over: ids of tool calls, and questions."""

    tools: tuple[str, ...] = ()
    inputs: tuple[InputState, ...] = ()


class Snapshot(msgspec.Struct, kw_only=True):
    """The state of a run after the event `seq`. `status` and `cancelling` are the root's."""

    seq: int
    run_id: str
    status: RunStatus
    cancelling: CancellingState | None
    usage: Usage
    runs: tuple[RunState, ...]
    messages: tuple[MessageState, ...]
    tools: tuple[ToolState, ...]
    open: OpenItems


_ENDS = {
    events.Completed: RunStatus.COMPLETED,
    events.Failed: RunStatus.FAILED,
    events.Cancelled: RunStatus.CANCELLED,
}


class Fold:
    """Folds the events of one tree, in their order, into a `Snapshot`.

    Args of `apply`: events with rising `seq`. Merged deltas and single ones give the same state.
    """

    def __init__(self, run_id: str) -> None:
        self.seq = 0
        self.run_id = run_id
        self._usage = Usage()
        self._runs: dict[str, RunState] = {}
        self._messages: dict[str, MessageState] = {}
        self._texts: dict[str, list[str]] = {}
        self._reasonings: dict[str, list[str]] = {}
        self._tools: dict[tuple[str, str], ToolState] = {}
        self._pieces: dict[tuple[str, str, bool], list[str]] = {}
        self._inputs: dict[str, InputState] = {}
        self.terminal: Event | None = None

    def apply(self, found: Iterable[Event]) -> None:
        """Takes these events in."""
        for event in found:
            self.seq = event.seq
            self._take(event)

    def _take(self, event: Event) -> None:
        match event:
            case events.TextDelta():
                self._message(event, event.message_id)
                self._texts.setdefault(event.message_id, []).append(event.text)
            case events.ReasoningDelta():
                self._message(event, event.message_id)
                self._reasonings.setdefault(event.message_id, []).append(event.text)
            case events.MessageFinished():
                self._finish_message(event)
            case events.ToolCalled() | events.ToolArgumentsDelta() | events.ToolStarted() | events.ToolProgress():
                self._take_tool(event)
            case events.ToolFinished():
                tool = self._tool(event, event.name)
                tool.status, tool.outcome, tool.result = "finished", event.outcome, event.result
            case events.InputRequested():
                self._inputs[event.request_id] = _input(event)
            case events.InputReceived():
                self._inputs.pop(event.request_id, None)
            case events.UsageUpdated():
                if event.run_id == self.run_id:
                    self._usage = event.usage
            case _:
                self._take_run(event)

    # --- runs -----------------------------------------------------------------------------------------------

    def _take_run(self, event: Event) -> None:
        match event:
            case events.Queued():
                run = self._run(event)
                run.session_id = event.session_id
            case events.Started():
                run = self._run(event)
                run.name, run.kind, run.input, run.model = event.name, event.kind, event.input, event.model
                run.session_id, run.started_at, run.status = event.session_id, event.at, RunStatus.RUNNING
            case events.Cancelling():
                run = self._run(event)
                run.status = RunStatus.CANCELLING
                run.cancelling = CancellingState(
                    reason=event.reason, mode=event.mode, actor=event.actor, message=event.message, at=event.at
                )
            case events.Completed() | events.Failed() | events.Cancelled():
                self._end_run(event)
            case _:
                pass  # handoffs, steps, compactions, custom events: they change nothing that is kept here

    def _end_run(self, event: events.Completed | events.Failed | events.Cancelled) -> None:
        run = self._run(event)
        run.status, run.ended_at, run.cancelling = _ENDS[type(event)], event.at, None
        run.error = event.error if isinstance(event, events.Failed) else None
        if event.run_id == self.run_id:
            self._usage, self.terminal = event.usage, event

    def _run(self, event: Event) -> RunState:
        found = self._runs.get(event.run_id)
        if found is None:
            found = self._runs[event.run_id] = RunState(
                run_id=event.run_id, parent_id=event.parent_id, name="", kind="", status=RunStatus.QUEUED
            )
        return found

    # --- messages and tools ---------------------------------------------------------------------------------

    def _message(self, event: events.AgentEvent, message_id: str) -> MessageState:
        found = self._messages.get(message_id)
        if found is None:
            found = self._messages[message_id] = MessageState(
                message_id=message_id, run_id=event.run_id, agent=event.agent, task=event.task
            )
        return found

    def _finish_message(self, event: events.MessageFinished) -> None:
        state, message = self._message(event, event.message_id), event.message
        state.role, state.finished, state.interrupted = message.role, True, message.interrupted
        self._texts[event.message_id] = [message.text]
        self._reasonings[event.message_id] = [message.reasoning]

    def _tool(self, event: Any, name: str = "") -> ToolState:
        key = (event.run_id, event.call_id)
        found = self._tools.get(key)
        if found is None:
            found = self._tools[key] = ToolState(
                call_id=event.call_id, run_id=event.run_id, agent=event.agent, task=event.task, name=name
            )
        return found

    def _take_tool(
        self, event: events.ToolCalled | events.ToolArgumentsDelta | events.ToolStarted | events.ToolProgress
    ) -> None:
        tool = self._tool(event)
        match event:
            case events.ToolCalled():
                tool.name, tool.arguments = event.name, event.arguments
            case events.ToolArgumentsDelta():
                tool.name = tool.name or event.name
                self._pieces.setdefault((event.run_id, event.call_id, False), []).append(event.fragment)
            case events.ToolStarted():
                tool.status, tool.started_at = "running", event.at
            case events.ToolProgress():
                self._pieces.setdefault((event.run_id, event.call_id, True), []).append(event.text)

    # --- the snapshot ---------------------------------------------------------------------------------------

    @property
    def status(self) -> RunStatus:
        """Where the root is; `waiting` while a question of the tree is open."""
        root = self._runs.get(self.run_id)
        status = root.status if root else RunStatus.QUEUED
        return RunStatus.WAITING if self._inputs and status is RunStatus.RUNNING else status

    @property
    def cancelling(self) -> CancellingState | None:
        """The stop of the root that is under way."""
        root = self._runs.get(self.run_id)
        return root.cancelling if root else None

    @property
    def usage(self) -> Usage:
        """The root's, its children included once."""
        return self._usage

    @property
    def runs(self) -> tuple[RunState, ...]:
        """All runs of the tree so far, in the order in which they began."""
        return tuple(msgspec.structs.replace(each) for each in self._runs.values())

    @property
    def inputs(self) -> tuple[InputState, ...]:
        """The questions that are open."""
        return tuple(self._inputs.values())

    def snapshot(self, *, with_text: bool = True) -> Snapshot:
        """The state now.

        Args:
            with_text: whether texts, reasoning and the output and results of tools are in it. A client that has seen
                the events up to here has them already.
        """
        return Snapshot(
            seq=self.seq,
            run_id=self.run_id,
            status=self.status,
            cancelling=self.cancelling,
            usage=self._usage,
            runs=self.runs,
            messages=tuple(self._shown_message(each, with_text) for each in self._messages.values()),
            tools=tuple(self._shown_tool(each, with_text) for each in self._tools.values()),
            open=OpenItems(
                tools=tuple(each.call_id for each in self._tools.values() if each.status != "finished"),
                inputs=self.inputs,
            ),
        )

    def _shown_message(self, state: MessageState, with_text: bool) -> MessageState:
        text = _joined(self._texts, state.message_id) if with_text else ""
        reasoning = _joined(self._reasonings, state.message_id) if with_text else ""
        return msgspec.structs.replace(state, text=text, reasoning=reasoning)

    def _shown_tool(self, state: ToolState, with_text: bool) -> ToolState:
        if not with_text:
            return msgspec.structs.replace(state, result=None)
        key = (state.run_id, state.call_id)
        arguments = state.arguments or _joined(self._pieces, (*key, False))
        return msgspec.structs.replace(state, arguments=arguments, output=_joined(self._pieces, (*key, True)))


def _joined(pieces: dict[Any, list[str]], key: Any) -> str:
    """The text so far, kept as one piece from now on."""
    found = pieces.get(key)
    if not found:
        return ""
    if len(found) > 1:
        found[:] = ["".join(found)]
    return found[0]


def _input(event: events.InputRequested) -> InputState:
    return InputState(
        request_id=event.request_id,
        run_id=event.run_id,
        kind=event.kind,
        prompt=event.prompt,
        schema=event.schema,
        options=event.options,
        call_id=event.call_id,
        expires_at=event.expires_at,
        pattern=event.pattern,
    )
