"""Events of runs as events of ADK: one table says how each type is shown, or why it is not.

1. The pieces of an answer are `partial` and have the id of their message; the whole message follows under the same id.
2. The last event of a completed run has its whole answer. 3. A stop is an event that is `interrupted`, a failure one
with `errorCode`; also with `error`, which ADK's clients raise.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar, NamedTuple

import msgspec

from halter import events
from halter.events import Event
from halter.messages import ToolCall
from halter.server.fronts.adk.contents import Json, call_json, message_fields, response_part
from halter.server.fronts.front import Dropped, RuledFormat, Rules
from halter.server.names import Names
from halter.snapshot import Snapshot

NO_ACTIONS: Json = {"stateDelta": {}, "artifactDelta": {}, "requestedAuthConfigs": {}, "requestedToolConfirmations": {}}
CONFIRMATION, INPUT = "adk_request_confirmation", "adk_request_input"


class Wrapping(NamedTuple):
    """What stands around each event."""

    head: bytes
    tail: bytes


FRAMES = Wrapping(b"data: ", b"\n\n")
LINES = Wrapping(b"", b"\n")  # JSON has no line feeds: one event in each line


class AdkFormat(RuledFormat):
    """A `StreamFormat` for ADK's clients.

    Args:
        names: of the session, for texts that name it.
        app: what runs: the author where an event names none.
        streaming: also shows the pieces of answers as they come.
        is_live: ends each turn with an event that is `turnComplete`, and goes on when the run asks something: else a
            question ends the response, and the answer comes in a request of its own.
        on_paused: told the number of the last event before that end.
        custom_metadata: shown with each whole event.
        wrapping: around each event.
    """

    def __init__(
        self,
        names: Names,
        *,
        app: str,
        streaming: bool,
        is_live: bool = False,
        on_paused: Callable[[int], None] = lambda _: None,
        custom_metadata: Mapping[str, Any] | None = None,
        wrapping: Wrapping = FRAMES,
    ) -> None:
        super().__init__(names)
        self._app = app
        self._streaming = streaming
        self._is_live = is_live
        self._on_paused = on_paused
        self._metadata = dict(custom_metadata or {})
        self._head, self._tail = wrapping
        self._paths: dict[str, tuple[str, ...]] = {}  # the names of each run and of those above it
        self._calls: dict[tuple[str, str], ToolCall] = {}  # by run and id; those that are not over
        self._pieces: dict[tuple[str, bool], tuple[bytes, bytes]] = {}  # what stands around each piece of a message
        self._last = ""  # the newest whole answer

    def snapshot(self, snapshot: Snapshot, *, gap: tuple[int, int | None] | None) -> bytes:
        """See `StreamFormat.snapshot`: nothing is shown, but the runs and calls that have begun are known."""
        for run in snapshot.runs:
            self._note(run.run_id, run.parent_id, run.name)
        for tool in snapshot.tools:
            if tool.status != "finished":
                self._calls[tool.run_id, tool.call_id] = ToolCall(tool.call_id, tool.name, tool.arguments)
        return b""

    def batch(self, found: Sequence[Event]) -> bytes:
        """See `StreamFormat.batch`."""
        frames = super().batch(found)
        if self.is_paused:
            self._on_paused(found[-1].seq)
        return frames

    # --- who ------------------------------------------------------------------------------------------------

    def _note(self, run_id: str, parent_id: str | None, name: str) -> None:
        self._paths[run_id] = (*self._paths.get(parent_id or "", ()), name)

    def _about(self, event: Any) -> Json:
        path = self._paths.get(event.run_id) or (self._app,)
        about = {
            "invocationId": event.root_id,
            "author": getattr(event, "agent", None) or path[-1],
            "actions": NO_ACTIONS,
            "nodeInfo": {"path": "/".join(path)},
        }
        return about if len(path) == 1 else {**about, "branch": ".".join(path)}

    def _frame(self, event: Event, fields: Json, *, id: str | None = None) -> bytes:
        metadata = {"customMetadata": self._metadata} if self._metadata else {}
        stamp = {"id": id or f"{event.root_id}.{event.seq}", "timestamp": event.at}
        return self._head + events.encode_any({**self._about(event), **metadata, **fields, **stamp}) + self._tail

    # --- answers --------------------------------------------------------------------------------------------

    def _begun(self, event: events.Started) -> bytes:
        self._note(event.run_id, event.parent_id, event.name)
        return b""

    def _text(self, event: events.TextDelta) -> bytes:
        return self._piece(event, is_thought=False)

    def _thought(self, event: events.ReasoningDelta) -> bytes:
        return self._piece(event, is_thought=True)

    def _piece(self, event: events.TextDelta | events.ReasoningDelta, *, is_thought: bool) -> bytes:
        if not self._streaming:
            return b""
        around = self._pieces.get((event.message_id, is_thought)) or self._around(event, is_thought)
        return b"%s%s%s%.6f}%s" % (around[0], _text_json(event.text), around[1], event.at, self._tail)

    def _around(self, event: events.TextDelta | events.ReasoningDelta, is_thought: bool) -> tuple[bytes, bytes]:
        """All of the event but its text and its time: encoded once for each message, as every token comes by here."""
        thought = b',"thought":true' if is_thought else b""
        rest = events.encode_any({"partial": True, **self._about(event), "id": event.message_id})
        before = self._head + b'{"content":{"parts":[{"text":'
        after = thought + b'}],"role":"model"},' + rest[1:-1] + b',"timestamp":'
        found = self._pieces[event.message_id, is_thought] = before, after
        return found

    def _message(self, event: events.MessageFinished) -> bytes:
        message = event.message
        for is_thought in (False, True):
            self._pieces.pop((event.message_id, is_thought), None)
        self._last = message.text or message.refusal
        self._calls.update(((event.run_id, call.id), call) for call in message.tool_calls)
        fields = message_fields(message, {})
        if message.interrupted and not fields["content"]["parts"]:
            return b""  # the event of the stop follows
        return self._frame(event, fields, id=event.message_id)

    # --- tools and questions --------------------------------------------------------------------------------

    def _result(self, event: events.ToolFinished) -> bytes:
        self._calls.pop((event.run_id, event.call_id), None)
        part = response_part(event.call_id, event.name, event.result, is_error=event.outcome != "ok")
        return self._frame(event, {"content": {"parts": [part], "role": "user"}})

    def _handed_off(self, event: events.Handoff) -> bytes:
        return self._frame(event, {"actions": {**NO_ACTIONS, "transferToAgent": event.to_agent}})

    def _question(self, event: events.InputRequested) -> bytes:
        self.is_paused = not self._is_live
        call = {"id": event.request_id, **(self._approval(event) if event.kind == "approval" else _input(event))}
        content = {"parts": [{"functionCall": call}], "role": "model"}
        return self._frame(event, {"content": content, "longRunningToolIds": [event.request_id]})

    def _approval(self, event: events.InputRequested) -> Json:
        call = self._calls.get((event.run_id, event.call_id or ""))
        unknown: Json = {"id": event.call_id or event.request_id, "args": {}, "name": "approval"}
        original = call_json(call) if call else unknown
        confirmation = {"hint": event.prompt, "confirmed": False}
        return {"args": {"originalFunctionCall": original, "toolConfirmation": confirmation}, "name": CONFIRMATION}

    # --- the end --------------------------------------------------------------------------------------------

    def _completed(self, event: events.Completed) -> bytes:
        if event.run_id != event.root_id:
            return b""
        fields: Json = {"turnComplete": True} if self._is_live else {}
        text = event.text or _output_text(event.output)
        if text and text != self._last:
            fields["content"] = {"parts": [{"text": text}], "role": "model"}
            if event.output is not None and not isinstance(event.output, str):
                fields["output"] = event.output
        return self._frame(event, fields) if fields else b""

    def _failed(self, event: events.Failed) -> bytes:
        if event.run_id != event.root_id:
            return b""
        error = event.error
        details = {"error_type": error.type, "error_message": error.message, "timestamp": event.at}
        fields = {"errorCode": error.type, "errorMessage": error.message, "turnComplete": True}
        raised = {"error": f"{error.type}: {error.message}", "error_details": details}
        return self._frame(event, {**fields, **raised})

    def _cancelled(self, event: events.Cancelled) -> bytes:
        if event.run_id != event.root_id:
            return b""
        stop = {"status": "cancelled", "reason": event.reason, "mode": event.mode}
        metadata = {**self._metadata, "halter": stop}
        return self._frame(event, {"interrupted": True, "turnComplete": True, "customMetadata": metadata})

    rules: ClassVar[Rules] = {
        events.Queued: Dropped("ADK has no event for a turn that waits"),
        events.Started: _begun,
        events.Cancelling: Dropped("the interrupted event says it, once everything has ended"),
        events.Completed: _completed,
        events.Failed: _failed,
        events.Cancelled: _cancelled,
        events.StepStarted: Dropped("ADK does not count the turns of an agent"),
        events.StepFinished: Dropped("ADK does not count the turns of an agent"),
        events.ModelRequested: Dropped("the message names its model"),
        events.ModelRetry: Dropped("ADK shows no attempts; what failed in the end is an error"),
        events.TextDelta: _text,
        events.ReasoningDelta: _thought,
        events.MessageFinished: _message,
        events.UsageUpdated: Dropped("each message has its own usage"),
        events.ToolCalled: Dropped("the message that asks for it has the whole call"),
        events.ToolArgumentsDelta: Dropped("the message that asks for it has the whole call"),
        events.ToolStarted: Dropped("ADK shows a tool's call and its response"),
        events.ToolProgress: Dropped("ADK shows a tool's call and its response"),
        events.ToolFinished: _result,
        events.ToolLate: Dropped("a call has one response in ADK, and it was given"),
        events.Handoff: _handed_off,
        events.CompactionStarted: Dropped("the conversation that the client sees does not change"),
        events.CompactionFinished: Dropped("the conversation that the client sees does not change"),
        events.InputRequested: _question,
        events.InputReceived: Dropped("the client that answered knows it"),
        events.Custom: Dropped("ADK has no event for data of an application's own"),
    }


def _input(event: events.InputRequested) -> Json:
    schema = event.schema
    if schema is None and event.options:
        schema = {"type": "string", "enum": list(event.options)}
    args = {"interruptId": event.request_id, "message": event.prompt, "payload": None, "response_schema": schema}
    return {"args": args, "name": INPUT}


def _output_text(output: Any) -> str:
    if output is None or isinstance(output, str):
        return output or ""
    return events.encode_any(output).decode()


def _text_json(text: str) -> bytes:
    try:
        return _ENCODER.encode(text)
    except UnicodeEncodeError:
        return events.encode_any(text)


_ENCODER = msgspec.json.Encoder()
