"""A run as a UI message stream of the AI SDK: protocol v1, as `ai` 6 and 7 read it.

Source: https://ai-sdk.dev/docs/ai-sdk-ui/stream-protocol

One run is one message of the assistant, whose id is the run's. A connection begins with the message's beginning: the
protocol has no cursors, and its client replaces a message that it has by the one that is replayed.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

import msgspec

from halter import events
from halter.messages import Usage
from halter.outcome import Cancellation
from halter.server.fronts.front import Dropped, Rules
from halter.server.fronts.showing import MessageFormat, ShownCall
from halter.server.names import Names
from halter.snapshot import Snapshot

DONE = b"data: [DONE]\n\n"
CUT_OFF = "The run was stopped while the model wrote this call."


class AiSdkFormat(MessageFormat):
    """Shows a run as chunks of a UI message. Arguments: see `MessageFormat`."""

    headers: ClassVar[Mapping[str, str]] = {"x-vercel-ai-ui-message-stream": "v1"}

    def __init__(self, names: Names, **pausing: Any) -> None:
        super().__init__(names, **pausing)
        self._is_gap = False
        self._parts: dict[tuple[str, str], bytes] = {}  # what each delta of an open part begins with
        self._has_step = False
        self._stop: events.Cancelling | None = None
        self._unlike: dict[str, events.InputRequested] = {}  # open questions that are no approval of a call

    # --- the stream -----------------------------------------------------------------------------------------

    def snapshot(self, snapshot: Snapshot, *, gap: tuple[int, int | None] | None) -> bytes:
        """The message's beginning. What has happened so far follows as events."""
        self._showing.begin(snapshot.run_id)
        self._is_gap = gap is not None
        return b"" if self._is_silent else self._start()

    def _start(self) -> bytes:
        root = self._showing.root
        return _chunk("start", messageId=root, messageMetadata={"runId": root})

    def _resumed(self) -> bytes:
        self._close_parts()
        return self._start()

    def _paused(self) -> bytes:
        return (
            self._close_parts()
            + self._end_step()
            + _chunk("finish", finishReason="tool-calls", messageMetadata={"status": "waiting"})
        )

    def end(self) -> bytes:
        """The protocol's own end."""
        return DONE

    # --- runs and steps -------------------------------------------------------------------------------------

    def _started(self, event: events.Started) -> bytes:
        self._showing.take_run(event)
        if event.run_id != self._showing.root:
            return b""
        return _chunk("message-metadata", messageMetadata={"agent": event.name, "sessionId": event.session_id})

    def _cancelling(self, event: events.Cancelling) -> bytes:
        if event.run_id != self._showing.root:
            return b""
        self._stop = event
        stop = {"reason": event.reason, "mode": event.mode, "actor": event.actor, "message": event.message}
        return _chunk("data-halter-cancelling", data=stop, transient=True)

    def _completed(self, event: events.Completed) -> bytes:
        if event.run_id != self._showing.root:
            return b""
        metadata = {"status": "completed", "usage": _usage(event.usage)}
        rest = b"" if self._showing.has_spoken else self._whole_text(event.text)
        finish = _chunk("finish", finishReason="stop", messageMetadata=metadata)
        return self._close_parts() + rest + self._end_step() + finish

    def _failed(self, event: events.Failed) -> bytes:
        if event.run_id != self._showing.root:
            return b""
        metadata = {"status": "failed", "usage": _usage(event.usage), "error": event.error}
        return (
            self._close_all(event, "The run failed while the model wrote this call.")
            + _chunk("message-metadata", messageMetadata=metadata)
            + _chunk("error", errorText=event.error.message or event.error.type)
        )

    def _cancelled(self, event: events.Cancelled) -> bytes:
        if event.run_id != self._showing.root:
            return b""
        by = self._stop
        stop = Cancellation(
            reason=event.reason,
            mode=event.mode,
            actor=by.actor if by else None,
            message=by.message if by else None,
        )
        metadata = {
            "status": "cancelled",
            "usage": _usage(event.usage),
            "reason": stop.reason,
            "actor": stop.actor,
            "message": stop.message,
            "receipt": event.receipt,
        }
        return (
            self._close_all(event, CUT_OFF)
            + _chunk("message-metadata", messageMetadata=metadata)
            + _chunk("abort", reason=f"run {event.run_id} was stopped: {stop}")
        )

    def _close_all(self, event: events.Failed | events.Cancelled, why: str) -> bytes:
        """Ends what the run has left open. Of a log that is lost, the text is what its last event has."""
        chunks = self._close_parts()
        for call in self._showing.open_calls:
            chunks += _output_error(call, why) if call.is_whole else _input_error(call, why)
        if self._is_gap and not self._showing.has_spoken:
            chunks += self._whole_text(event.text)
        return chunks + self._end_step()

    def _step_started(self, event: events.StepStarted) -> bytes:
        if not self._showing.shows(event.run_id):
            return b""
        return self._next_step()

    def _next_step(self) -> bytes:
        chunks = self._close_parts() + self._end_step() + _chunk("start-step")
        self._has_step = True
        self._showing.stage += 1
        return chunks

    def _step_finished(self, event: events.StepFinished) -> bytes:
        if not self._showing.shows(event.run_id):
            return b""
        return self._close_parts() + self._end_step()

    def _end_step(self) -> bytes:
        had_step, self._has_step = self._has_step, False
        return _chunk("finish-step") if had_step else b""

    def _handoff(self, event: events.Handoff) -> bytes:
        if not self._showing.shows(event.run_id):
            return b""
        return _chunk("data-halter-handoff", data={"from": event.from_agent, "to": event.to_agent})

    def _custom(self, event: events.Custom) -> bytes:
        if not self._showing.shows(event.run_id):
            return b""
        return _chunk(f"data-{event.name}", data=event.data)

    # --- text -----------------------------------------------------------------------------------------------

    def _text(self, event: events.TextDelta) -> bytes:
        head = self._parts.get(("text", event.message_id))
        if head is not None:
            return head + events.encode_any(event.text) + b"}\n\n"
        if not self._showing.shows(event.run_id):
            return b""
        self._showing.has_spoken = True
        opening = self._close_part("reasoning", event.message_id) + self._open_part("text", event)
        return opening + self._text(event)

    def _reasoning(self, event: events.ReasoningDelta) -> bytes:
        head = self._parts.get(("reasoning", event.message_id))
        if head is not None:
            return head + events.encode_any(event.text) + b"}\n\n"
        if not self._showing.shows(event.run_id):
            return b""
        opening = self._close_part("text", event.message_id) + self._open_part("reasoning", event)
        return opening + self._reasoning(event)

    def _open_part(self, kind: str, event: events.TextDelta | events.ReasoningDelta) -> bytes:
        id = events.encode_any(event.message_id)
        self._parts[kind, event.message_id] = b'data: {"type":"%s-delta","id":%s,"delta":' % (kind.encode(), id)
        if event.run_id == self._showing.root:
            return _chunk(f"{kind}-start", id=event.message_id)
        who = {"runId": event.run_id, "agent": event.agent, "task": event.task}
        return _chunk(f"{kind}-start", id=event.message_id, providerMetadata={"halter": who})

    def _close_part(self, kind: str, id: str) -> bytes:
        return b"" if self._parts.pop((kind, id), None) is None else _chunk(f"{kind}-end", id=id)

    def _close_parts(self) -> bytes:
        return b"".join(self._close_part(kind, id) for kind, id in list(self._parts))

    def _message_finished(self, event: events.MessageFinished) -> bytes:
        return self._close_part("reasoning", event.message_id) + self._close_part("text", event.message_id)

    def _whole_text(self, text: str) -> bytes:
        if not text:
            return b""
        id = self._showing.root
        return _chunk("text-start", id=id) + _chunk("text-delta", id=id, delta=text) + _chunk("text-end", id=id)

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
        return opening + _chunk("tool-input-delta", toolCallId=call.id, inputTextDelta=fragment)

    def _begin_call(self, call: ShownCall) -> bytes:
        self._showing.show_call(call)
        return _chunk("tool-input-start", toolCallId=call.id, toolName=call.name)

    def _called(self, event: events.ToolCalled) -> bytes:
        call = self._showing.call(event.run_id, event.call_id, event.name)
        call.name, call.arguments = event.name, event.arguments
        if not self._showing.shows(event.run_id):
            return b""
        return self._whole_call(call)

    def _whole_call(self, call: ShownCall) -> bytes:
        opening = b"" if call.is_begun else self._begin_call(call)
        call.is_whole = True
        return opening + _chunk(
            "tool-input-available", toolCallId=call.id, toolName=call.name, input=call_input(call.arguments)
        )

    def _progress(self, event: events.ToolProgress) -> bytes:
        call = self._showing.call(event.run_id, event.call_id)
        if not call.is_begun:
            return b""
        shown = {"toolCallId": call.id, "text": event.text, "data": event.data}
        return _chunk("data-halter-tool-progress", data=shown, transient=True)

    def _finished(self, event: events.ToolFinished) -> bytes:
        call = self._showing.finish_call(event.run_id, event.call_id)
        if call is None or not call.is_begun:
            return b""
        if event.outcome == "ok":
            return _chunk("tool-output-available", toolCallId=call.id, output=event.result)
        if event.outcome == "denied" and call.was_asked:
            return _chunk("tool-output-denied", toolCallId=call.id)
        return _output_error(call, str(event.result))

    # --- questions ------------------------------------------------------------------------------------------

    def _asked(self, event: events.InputRequested) -> bytes:
        call = self._showing.asking(event) if event.kind == "approval" else None
        if call is None:
            self._unlike[event.request_id] = event
            return self._question(event, "open")
        chunks = b""
        if not call.is_begun:  # of a run that an agent's tool has started: a step of its own, where nothing else waits
            chunks += self._next_step() + self._whole_call(call)
        self._showing.ask(event, call)
        return chunks + _chunk(
            "tool-approval-request", approvalId=event.request_id, toolCallId=call.id, reason=event.prompt
        )

    def _question(self, event: events.InputRequested, state: str, **answer: Any) -> bytes:
        asked = {
            "state": state,
            "requestId": event.request_id,
            "kind": event.kind,
            "prompt": event.prompt,
            "options": event.options,
            "pattern": event.pattern,
            "schema": event.schema,
            "expiresAt": event.expires_at,
            **answer,
        }
        return _chunk("data-halter-input", id=event.request_id, data=asked)

    def _heard(self, event: events.InputReceived) -> bytes:
        question = self._unlike.pop(event.request_id, None)
        if question is not None:
            return self._question(question, event.outcome, answer=event.answer)
        self._showing.hear(event)
        return b""

    rules: ClassVar[Rules] = {
        events.Queued: Dropped("the message begins with its run, whose turn on the session may come later"),
        events.Started: _started,
        events.Cancelling: _cancelling,
        events.Completed: _completed,
        events.Failed: _failed,
        events.Cancelled: _cancelled,
        events.StepStarted: _step_started,
        events.StepFinished: _step_finished,
        events.ModelRequested: Dropped("requests to providers are no part of a message"),
        events.ModelRetry: Dropped("a retry is the server's affair: nothing of the message is taken back"),
        events.TextDelta: _text,
        events.ReasoningDelta: _reasoning,
        events.MessageFinished: _message_finished,
        events.UsageUpdated: Dropped("the usage is told once, with the end"),
        events.ToolCalled: _called,
        events.ToolArgumentsDelta: _fragment,
        events.ToolStarted: Dropped("a call whose input is available counts as running"),
        events.ToolProgress: _progress,
        events.ToolFinished: _finished,
        events.ToolLate: Dropped("the call has its end already"),
        events.Handoff: _handoff,
        events.CompactionStarted: Dropped("what the model is shown changes, and not what its reader is"),
        events.CompactionFinished: Dropped("what the model is shown changes, and not what its reader is"),
        events.InputRequested: _asked,
        events.InputReceived: _heard,
        events.Custom: _custom,
    }


def _chunk(kind: str, /, **fields: Any) -> bytes:
    return b"data: " + events.encode_any({"type": kind, **fields}) + b"\n\n"


def _output_error(call: ShownCall, why: str) -> bytes:
    return _chunk("tool-output-error", toolCallId=call.id, errorText=why)


def _input_error(call: ShownCall, why: str) -> bytes:
    return _chunk("tool-input-error", toolCallId=call.id, toolName=call.name, input="".join(call.pieces), errorText=why)


def call_input(arguments: str) -> Any:
    """The arguments as a value; as text where they are no JSON, which the tool is told as well."""
    try:
        return msgspec.json.decode(arguments or "{}")
    except (msgspec.DecodeError, UnicodeEncodeError, RecursionError):
        return arguments


def _usage(usage: Usage) -> dict[str, int]:
    return {
        "inputTokens": usage.input,
        "outputTokens": usage.output,
        "totalTokens": usage.total,
        "cachedInputTokens": usage.cached,
        "reasoningTokens": usage.reasoning,
    }
