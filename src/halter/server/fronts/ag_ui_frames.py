"""A run as AG-UI events, of protocol 1.0 and of the versions before it that know interrupts.

Source: https://docs.ag-ui.com/spec/1.0

A pause ends the response as an interrupt; the client's next request answers it, and the rest of the same run is its
next run. Members of a crew or team and steps of a flow are subagents.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any, ClassVar, cast

from halter import events
from halter.messages import Usage
from halter.server.fronts.front import Dropped, Rules
from halter.server.fronts.showing import MessageFormat, ShownCall
from halter.server.names import Names
from halter.snapshot import Snapshot

PROTOCOL = "1.0"
APPROVAL = {"type": "object", "properties": {"approved": {"type": "boolean"}}, "required": ["approved"]}
JOINT = ":"  # between the ids of a run and of its question; neither has one


class AgUiFormat(MessageFormat):
    """Shows a run as AG-UI events.

    Args:
        names: of the tenant who reads.
        thread: the client's id of the conversation; by default the session's, or else the run's.
        run: the client's id of this run; by default the run's own.
        protocol: the version that the client says it speaks. Clients before 1.0 say none, and have no cancelled
            outcome: they are told of a stop as an error with the code `cancelled`.
        pausing: see `MessageFormat`.
    """

    def __init__(
        self,
        names: Names,
        *,
        thread: str | None = None,
        run: str | None = None,
        protocol: str | None = PROTOCOL,
        **pausing: Any,
    ) -> None:
        super().__init__(names, **pausing)
        self._thread = thread
        self._run = run
        self._is_1_0 = protocol is not None
        self._is_gap = False
        self._has_started = False
        self._parts: dict[tuple[str, str], bytes] = {}  # what each piece of an open part begins with
        self._steps: dict[tuple[str, int], bytes] = {}  # what begins each open one, and what ends it
        self._subagents: dict[str, bytes] = {}
        self._stop: events.Cancelling | None = None
        self._messages: dict[str, str] = {}  # of each run, the message that its calls belong to

    # --- the stream -----------------------------------------------------------------------------------------

    def snapshot(self, snapshot: Snapshot, *, gap: tuple[int, int | None] | None) -> bytes:
        """Nothing yet: the run's first event says which conversation it belongs to."""
        self._showing.begin(snapshot.run_id)
        self._is_gap = gap is not None
        return b""

    def _start(self, session: str | None = None) -> bytes:
        if self._has_started:
            return b""
        self._has_started = True
        self._thread = self._thread or session or self._showing.root
        self._run = self._run or self._showing.root
        version = {"protocolVersion": PROTOCOL} if self._is_1_0 else {}
        return _event("RUN_STARTED", **self._ids, **version, metadata=self._about())

    @property
    def _ids(self) -> dict[str, Any]:
        return {"threadId": self._thread, "runId": self._run}

    def _about(self, **more: Any) -> dict[str, Any]:
        return {"halter": {"runId": self._showing.root, **more}}

    def _resumed(self) -> bytes:
        self._close_parts()
        self._has_started = False
        return self._start() + b"".join(self._subagents.values()) + b"".join(self._steps.values())

    def _paused(self) -> bytes:
        frames = self._close_parts() + b"".join(self._step_end(*which) for which in self._steps)
        for id in reversed(self._subagents):
            frames += _event("SUBAGENT_FINISHED", subagentRunId=id, outcome={"type": "suspended"})
        asked = [self._interrupt(question) for question in self._showing.unanswered]
        outcome = {"type": "interrupt", "interrupts": asked}
        return frames + _event("RUN_FINISHED", **self._ids, outcome=outcome, metadata=self._about(status="waiting"))

    def _interrupt(self, question: events.InputRequested) -> dict[str, Any]:
        call = self._showing.asking(question)
        is_approval = question.kind == "approval"
        schema = APPROVAL if is_approval else _schema(question)
        expires = question.expires_at
        shown: dict[str, Any] = {
            "id": f"{self._showing.root}{JOINT}{question.request_id}",
            "reason": "tool_call" if is_approval else "input_required",
            "message": question.prompt,
            "toolCallId": call.id if call is not None and call.is_begun else None,
            "responseSchema": schema,
            "expiresAt": None if expires is None else datetime.fromtimestamp(expires, UTC).isoformat(),
        }
        return {name: value for name, value in shown.items() if value is not None}

    # --- runs and steps -------------------------------------------------------------------------------------

    def _queued(self, event: events.Queued) -> bytes:
        return self._start(event.session_id) if event.run_id == self._showing.root else b""

    def _started(self, event: events.Started) -> bytes:
        if event.run_id == self._showing.root:
            self._showing.take_run(event)
            return self._start(event.session_id)
        if not self._showing.take_run(event):
            return b""
        above = {"parentSubagentRunId": event.parent_id} if event.parent_id in self._subagents else {}
        frame = _event("SUBAGENT_STARTED", subagentRunId=event.run_id, name=event.name or event.kind, **above)
        self._subagents[event.run_id] = frame
        return frame

    def _cancelling(self, event: events.Cancelling) -> bytes:
        if event.run_id != self._showing.root:
            return b""
        self._stop = event
        value = {"reason": event.reason, "mode": event.mode, "actor": event.actor, "message": event.message}
        return self._start() + _event("CUSTOM", name="halter.cancelling", value=value)

    def _completed(self, event: events.Completed) -> bytes:
        if event.run_id != self._showing.root:
            return self._end_subagent(event, "SUBAGENT_FINISHED")
        pending = [call.id for call in self._showing.open_calls] if self._is_1_0 else []
        outcome = {"type": "success", "pendingToolCallIds": pending} if pending else {"type": "success"}
        result = {} if event.output is None else {"result": event.output}
        text = b"" if self._showing.has_spoken else self._whole_text(event.text)
        about = self._about(status="completed")
        end = _event(
            "RUN_FINISHED",
            **self._ids_at(event),
            outcome=outcome,
            **result,
            usage=[_usage(event.usage)],
            metadata=about,
        )
        return self._start() + text + self._close_all(event) + end

    def _ids_at(self, event: events.Event) -> dict[str, Any]:
        """The ids, also where the end is all that is left of the run."""
        self._thread, self._run = self._thread or event.run_id, self._run or event.run_id
        return self._ids

    def _failed(self, event: events.Failed) -> bytes:
        error = {"message": event.error.message or event.error.type, "code": event.error.type}
        if event.run_id != self._showing.root:
            return self._end_subagent(event, "SUBAGENT_ERROR", **error)
        end = _event("RUN_ERROR", **error, usage=[_usage(event.usage)], metadata=self._about(status="failed"))
        return self._start() + self._left(event) + self._close_all(event) + end

    def _cancelled(self, event: events.Cancelled) -> bytes:
        if event.run_id != self._showing.root:
            why = f"stopped: {event.reason}"
            return self._end_subagent(event, "SUBAGENT_ERROR", message=why, code="cancelled")
        stop = self._stop
        about = self._about(
            status="cancelled",
            reason=event.reason,
            mode=event.mode,
            actor=stop.actor if stop else None,
            message=stop.message if stop else None,
            receipt=event.receipt,
        )
        usage = [_usage(event.usage)]
        frames = self._start() + self._left(event) + self._close_all(event)
        if self._is_1_0:
            outcome = {"type": "cancelled"}
            return frames + _event("RUN_FINISHED", **self._ids_at(event), outcome=outcome, usage=usage, metadata=about)
        why = f"run {event.run_id} was stopped: {event.reason}"
        return frames + _event("RUN_ERROR", message=why, code="cancelled", usage=usage, metadata=about)

    def _left(self, event: events.Failed | events.Cancelled) -> bytes:
        """Of a log that is lost, the text is what its last event has."""
        return self._whole_text(event.text) if self._is_gap and not self._showing.has_spoken else b""

    def _close_all(self, event: events.Event) -> bytes:
        """Ends what is open: a run with open parts cannot finish."""
        frames = self._close_parts()
        for call in self._showing.open_calls:
            if not call.is_whole:
                frames += _event("TOOL_CALL_END", toolCallId=call.id)
        for run_id, step in list(self._steps):
            frames += self._end_step(run_id, step)
        for id in reversed(list(self._subagents)):
            frames += _event("SUBAGENT_FINISHED", subagentRunId=id)
        self._subagents.clear()
        return frames

    def _end_subagent(self, event: events.Event, kind: str, **fields: Any) -> bytes:
        if self._subagents.pop(event.run_id, None) is None:
            return b""
        frames = b"".join(self._end_step(*which) for which in list(self._steps) if which[0] == event.run_id)
        return frames + _event(kind, subagentRunId=event.run_id, **fields)

    def _of(self, run_id: str) -> dict[str, str]:
        """Whose event it is, where that is a subagent."""
        return {"subagentRunId": run_id} if run_id in self._subagents else {}

    def _step_started(self, event: events.StepStarted) -> bytes:
        if not self._showing.shows(event.run_id):
            return b""
        self._showing.stage += 1
        frame = _event("STEP_STARTED", stepName=f"step {event.step}", **self._of(event.run_id))
        self._steps[event.run_id, event.step] = frame
        return frame

    def _step_finished(self, event: events.StepFinished) -> bytes:
        return self._end_step(event.run_id, event.step)

    def _end_step(self, run_id: str, step: int) -> bytes:
        return b"" if self._steps.pop((run_id, step), None) is None else self._step_end(run_id, step)

    def _step_end(self, run_id: str, step: int) -> bytes:
        return _event("STEP_FINISHED", stepName=f"step {step}", **self._of(run_id))

    def _requested(self, event: events.ModelRequested) -> bytes:
        self._messages[event.run_id] = event.message_id
        return b""

    def _handoff(self, event: events.Handoff) -> bytes:
        value = {"from": event.from_agent, "to": event.to_agent}
        return self._custom_of(event, "halter.handoff", value)

    def _custom(self, event: events.Custom) -> bytes:
        return self._custom_of(event, event.name, event.data)

    def _custom_of(self, event: events.Event, name: str, value: Any) -> bytes:
        if not self._showing.shows(event.run_id):
            return b""
        return _event("CUSTOM", name=name, value=value, **self._of(event.run_id))

    # --- text -----------------------------------------------------------------------------------------------

    def _text(self, event: events.TextDelta) -> bytes:
        head = self._parts.get(("text", event.message_id))
        if head is not None:
            return head + events.encode_any(event.text) + b"}\n\n"
        if not self._showing.shows(event.run_id):
            return b""
        self._showing.has_spoken = True
        opening = self._close_part("reasoning", event.message_id)
        who = {"role": "assistant", **({"name": event.agent} if event.agent else {}), **self._of(event.run_id)}
        opening += _event("TEXT_MESSAGE_START", messageId=event.message_id, **who)
        self._parts["text", event.message_id] = _head("TEXT_MESSAGE_CONTENT", event.message_id)
        return opening + self._text(event)

    def _reasoning(self, event: events.ReasoningDelta) -> bytes:
        head = self._parts.get(("reasoning", event.message_id))
        if head is not None:
            return head + events.encode_any(event.text) + b"}\n\n"
        if not self._showing.shows(event.run_id):
            return b""
        id = _reasoning_id(event.message_id)
        opening = self._close_part("text", event.message_id)
        opening += _event("REASONING_START", messageId=id, **self._of(event.run_id))
        opening += _event("REASONING_MESSAGE_START", messageId=id, role="reasoning", **self._of(event.run_id))
        self._parts["reasoning", event.message_id] = _head("REASONING_MESSAGE_CONTENT", id)
        return opening + self._reasoning(event)

    def _close_part(self, kind: str, message_id: str) -> bytes:
        if self._parts.pop((kind, message_id), None) is None:
            return b""
        if kind == "text":
            return _event("TEXT_MESSAGE_END", messageId=message_id)
        id = _reasoning_id(message_id)
        return _event("REASONING_MESSAGE_END", messageId=id) + _event("REASONING_END", messageId=id)

    def _close_parts(self) -> bytes:
        return b"".join(self._close_part(kind, id) for kind, id in list(self._parts))

    def _message_finished(self, event: events.MessageFinished) -> bytes:
        return self._close_part("reasoning", event.message_id) + self._close_part("text", event.message_id)

    def _whole_text(self, text: str) -> bytes:
        if not text:
            return b""
        id = self._showing.root
        return (
            _event("TEXT_MESSAGE_START", messageId=id, role="assistant")
            + _event("TEXT_MESSAGE_CONTENT", messageId=id, delta=text)
            + _event("TEXT_MESSAGE_END", messageId=id)
        )

    # --- tools ----------------------------------------------------------------------------------------------

    def _fragment(self, event: events.ToolArgumentsDelta) -> bytes:
        call = self._showing.call(event.run_id, event.call_id, event.name)
        if not self._showing.shows(event.run_id):
            return b""
        call.pieces.append(event.fragment)
        if not call.name:
            return b""  # its beginning has to name it
        fragment = event.fragment if call.is_begun else "".join(call.pieces)
        opening = b"" if call.is_begun else self._begin_call(call)
        return opening + _event("TOOL_CALL_ARGS", toolCallId=call.id, delta=fragment)

    def _begin_call(self, call: ShownCall) -> bytes:
        self._showing.show_call(call)
        message = self._messages.get(call.run_id) if self._showing.shows(call.run_id) else None
        parent = {"parentMessageId": message} if message is not None else {}
        return _event("TOOL_CALL_START", toolCallId=call.id, toolCallName=call.name, **parent, **self._of(call.run_id))

    def _called(self, event: events.ToolCalled) -> bytes:
        call = self._showing.call(event.run_id, event.call_id, event.name)
        call.name, call.arguments = event.name, event.arguments
        return self._whole_call(call) if self._showing.shows(event.run_id) else b""

    def _whole_call(self, call: ShownCall) -> bytes:
        opening = b""
        if not call.is_begun:
            opening = self._begin_call(call)
            opening += _event("TOOL_CALL_ARGS", toolCallId=call.id, delta=call.arguments) if call.arguments else b""
        call.is_whole = True
        return opening + _event("TOOL_CALL_END", toolCallId=call.id)

    def _progress(self, event: events.ToolProgress) -> bytes:
        call = self._showing.call(event.run_id, event.call_id)
        if not call.is_begun:
            return b""
        value = {"toolCallId": call.id, "text": event.text, "data": event.data}
        return _event("CUSTOM", name="halter.tool.progress", value=value)

    def _finished(self, event: events.ToolFinished) -> bytes:
        call = self._showing.finish_call(event.run_id, event.call_id)
        if call is None or not call.is_begun:
            return b""
        return _event(
            "TOOL_CALL_RESULT",
            messageId=f"{self._showing.root}.{call.id}",
            toolCallId=call.id,
            role="tool",
            content=str(event.result),
            metadata={"halter": {"outcome": event.outcome}},
            **self._of(event.run_id),
        )

    # --- questions ------------------------------------------------------------------------------------------

    def _asked(self, event: events.InputRequested) -> bytes:
        call = self._showing.asking(event)
        frames = b""
        if call is not None and not call.is_begun:  # of a run that an agent's tool has started: nothing else waits
            self._showing.stage += 1
            frames += self._whole_call(call)
        self._showing.ask(event, call)
        value = {
            "requestId": event.request_id,
            "kind": event.kind,
            "prompt": event.prompt,
            "options": event.options,
            "pattern": event.pattern,
            "schema": event.schema,
            "toolCallId": call.id if call else None,
        }
        return frames + _event("CUSTOM", name="halter.input.requested", value=value)

    def _heard(self, event: events.InputReceived) -> bytes:
        if self._showing.hear(event) is None:
            return b""
        value = {"requestId": event.request_id, "outcome": event.outcome}
        return _event("CUSTOM", name="halter.input.received", value=value)

    rules: ClassVar[Rules] = {
        events.Queued: _queued,
        events.Started: _started,
        events.Cancelling: _cancelling,
        events.Completed: _completed,
        events.Failed: _failed,
        events.Cancelled: _cancelled,
        events.StepStarted: _step_started,
        events.StepFinished: _step_finished,
        events.ModelRequested: _requested,
        events.ModelRetry: Dropped("a retry is the server's affair: nothing that was shown is taken back"),
        events.TextDelta: _text,
        events.ReasoningDelta: _reasoning,
        events.MessageFinished: _message_finished,
        events.UsageUpdated: Dropped("the usage is told once, with the end"),
        events.ToolCalled: _called,
        events.ToolArgumentsDelta: _fragment,
        events.ToolStarted: Dropped("a call that has ended its arguments counts as running"),
        events.ToolProgress: _progress,
        events.ToolFinished: _finished,
        events.ToolLate: Dropped("the call has its result already"),
        events.Handoff: _handoff,
        events.CompactionStarted: Dropped("what the model is shown changes, and not what its reader is"),
        events.CompactionFinished: Dropped("what the model is shown changes, and not what its reader is"),
        events.InputRequested: _asked,
        events.InputReceived: _heard,
        events.Custom: _custom,
    }


def _event(kind: str, /, **fields: Any) -> bytes:
    return b"data: " + events.encode_any({"type": kind, **fields}) + b"\n\n"


def _head(kind: str, message_id: str) -> bytes:
    return b'data: {"type":"%s","messageId":%s,"delta":' % (kind.encode(), events.encode_any(message_id))


def _reasoning_id(message_id: str) -> str:
    """Reasoning is a message of its own."""
    return f"{message_id}.reasoning"


def _schema(question: events.InputRequested) -> dict[str, Any] | None:
    if isinstance(question.schema, dict):
        return cast("dict[str, Any]", question.schema)
    return {"type": "string", "enum": list(question.options)} if question.options else None


def _usage(usage: Usage) -> dict[str, int]:
    return {
        "inputTokens": usage.input,
        "outputTokens": usage.output,
        "totalTokens": usage.total,
        "cachedInputTokens": usage.cached,
        "reasoningTokens": usage.reasoning,
    }
