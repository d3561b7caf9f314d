"""Events as chunks of a chat completion, and as a whole one.

Chat completions know neither resuming nor a stop: a run that was stopped ends with `finish_reason: "length"`, the word
for an answer that is not whole, and says more in the field `halter`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

import msgspec

from halter import events
from halter.events import Event
from halter.messages import PAUSED, ToolCall, Usage
from halter.server.fronts.front import Dropped, RuledFormat, Rules
from halter.server.fronts.openai.errors import error_of_failure
from halter.server.fronts.openai.finishing import Finish, answer_of, calls_for_client, chat_usage, finish_of
from halter.server.fronts.showing import Showing
from halter.server.names import Names
from halter.server.port import RunPlan
from halter.server.views import shown
from halter.snapshot import Snapshot

BETWEEN_MESSAGES = "\n\n"
_OF_SERVER = Dropped("tools of the served agent are its own business; calls for the client come with their message")


class ChatFormat(RuledFormat):
    """One run as chunks.

    Words of the runs that it is made of (members of a crew, steps of a flow) are shown as reasoning, as they come: the
    answer is what it makes of them.

    Args:
        names: of the tenant who reads.
        plan: of the run.
        include_usage: whether the last chunk says what the run has used.
    """

    def __init__(self, names: Names, plan: RunPlan, *, include_usage: bool = False) -> None:
        super().__init__(names)
        asked: Mapping[str, Any] = plan.metadata.get("openai", {})
        self._run_id = plan.key.id
        self._tools = frozenset(asked.get("client_tools", ()))
        self._holds_back = bool(asked.get("holds_back"))
        self._include_usage = include_usage
        self._head = {
            "id": f"chatcmpl-{plan.key.id}",
            "object": "chat.completion.chunk",
            "created": int(plan.created_at),
            "model": plan.agent,
        }
        usage = b',"usage":null' if include_usage else b""
        head = msgspec.json.encode(self._head)[:-1]
        self._before = b"data: " + head + usage + b',"choices":[{"index":0,"delta":{"'
        self._message_id: str | None = None  # whose text was shown last
        self._said: list[str] = []
        self._between = BETWEEN_MESSAGES
        self._thought: list[str] = []
        self._parts = Showing()
        self._part_message: str | None = None  # of a part, whose text was shown last
        self._calls: tuple[ToolCall, ...] = ()
        self._finish: Finish = "stop"
        self._refusal = ""
        self._usage = Usage()
        self.end_event: events.Completed | events.Failed | events.Cancelled | None = None

    # --- frames ---------------------------------------------------------------------------------------------

    def snapshot(self, snapshot: Snapshot, *, gap: tuple[int, int | None] | None) -> bytes:
        """The chunk with the role: the first one of every stream."""
        return self._chunk({"role": "assistant", "content": ""})

    def end(self) -> bytes:
        return b"data: [DONE]\n\n"

    def _delta(self, field: bytes, text: str) -> bytes:
        """The hot path: one piece of text."""
        return self._before + field + b'":' + _json(text) + b'},"logprobs":null,"finish_reason":null}]}\n\n'

    def _chunk(self, delta: dict[str, Any], finish: Finish | None = None, **more: Any) -> bytes:
        choice = {"index": 0, "delta": delta, "logprobs": None, "finish_reason": finish}
        usage = {"usage": None} if self._include_usage else {}
        return b"data: " + msgspec.json.encode({**self._head, **usage, "choices": [choice], **more}) + b"\n\n"

    # --- events ---------------------------------------------------------------------------------------------

    def _begun(self, event: events.Started) -> bytes:
        if event.parent_id is None:
            self._parts.begin(event.run_id)
        self._parts.take_run(event)
        return b""

    def _text(self, event: events.TextDelta) -> bytes:
        if event.parent_id is not None:
            return self._text_of_part(event)
        if self._holds_back:
            return b""
        text = event.text
        if event.message_id != self._message_id:
            self._message_id = event.message_id
            text = self._between + text if self._said else text
        self._said.append(text)
        return self._delta(b"content", text)

    def _text_of_part(self, event: events.TextDelta) -> bytes:
        if not self._parts.shows(event.run_id):
            return b""
        text = event.text
        if event.message_id != self._part_message:
            self._part_message = event.message_id
            text = BETWEEN_MESSAGES + text if self._thought else text
        self._thought.append(text)
        return self._delta(b"reasoning_content", text)

    def _reasoning(self, event: events.ReasoningDelta) -> bytes:
        if event.parent_id is not None:
            return b""
        self._thought.append(event.text)
        return self._delta(b"reasoning_content", event.text)

    def _message(self, event: events.MessageFinished) -> bytes:
        message = event.message
        if event.parent_id is not None or message.role != "assistant":
            return b""
        self._calls = calls_for_client(message, self._tools)
        self._finish = finish_of(message, self._calls)
        self._between = "" if message.finish_reason == PAUSED else BETWEEN_MESSAGES
        self._refusal = message.refusal
        if not self._calls:
            return b""
        return self._chunk({"tool_calls": [{"index": at, **_call(call)} for at, call in enumerate(self._calls)]})

    def _over(self, event: events.Completed | events.Failed | events.Cancelled) -> bytes:
        if event.parent_id is not None:
            return b""
        self.end_event, self._usage = event, event.usage
        frames = self._rest(event)
        if isinstance(event, events.Failed):
            return frames + b"data: " + msgspec.json.encode({"error": error_of_failure(event.error)}) + b"\n\n"
        if isinstance(event, events.Cancelled):
            self._finish = "length"
        frames += self._chunk({}, self._finish, **self._told())
        if self._include_usage:
            last: dict[str, Any] = {**self._head, "choices": [], "usage": chat_usage(event.usage)}
            frames += b"data: " + msgspec.json.encode(last) + b"\n\n"
        return frames

    def _rest(self, event: events.Completed | events.Failed | events.Cancelled) -> bytes:
        """The answer, if none of it was shown as it came."""
        text = answer_of(event)
        if self._said or not text:
            return b""
        self._said.append(text)
        return self._delta(b"content", text)

    def _told(self) -> dict[str, Any]:
        """What only Halter's clients read: whether and why the run was stopped."""
        event = self.end_event
        if not isinstance(event, events.Cancelled):
            return {}
        return {"halter": {"run_id": self._run_id, "status": "cancelled", "reason": event.reason, "mode": event.mode}}

    # --- the whole ------------------------------------------------------------------------------------------

    def completion(self) -> dict[str, Any]:
        """The completion, once all events were shown."""
        text = "".join(self._said)
        message: dict[str, Any] = {
            "role": "assistant",
            "content": shown(text) if text or not self._calls else None,
            "refusal": None,
            "annotations": [],
        }
        if self._refusal and self._refusal == text:
            message |= {"content": None, "refusal": shown(text)}
        if self._thought:
            message["reasoning_content"] = shown("".join(self._thought))
        if self._calls:
            message["tool_calls"] = [_call(call) for call in self._calls]
        choice = {"index": 0, "message": message, "logprobs": None, "finish_reason": self._finish}
        return {
            **self._head,
            "object": "chat.completion",
            "choices": [choice],
            "usage": chat_usage(self._usage),
            **self._told(),
        }

    rules: ClassVar[Rules] = {
        events.TextDelta: _text,
        events.ReasoningDelta: _reasoning,
        events.MessageFinished: _message,
        events.Completed: _over,
        events.Failed: _over,
        events.Cancelled: _over,
        events.Queued: Dropped("the stream is open and silent until the run has its session's turn"),
        events.Started: _begun,
        events.Cancelling: Dropped("the last chunk says that the run was stopped"),
        events.StepStarted: Dropped("chat completions have no steps"),
        events.StepFinished: Dropped("chat completions have no steps"),
        events.ModelRequested: Dropped("the served runnable is the model"),
        events.ModelRetry: Dropped("the served runnable is the model"),
        events.UsageUpdated: Dropped("the last chunk has the usage of the whole run"),
        events.ToolCalled: _OF_SERVER,
        events.ToolArgumentsDelta: _OF_SERVER,
        events.ToolStarted: _OF_SERVER,
        events.ToolProgress: _OF_SERVER,
        events.ToolFinished: _OF_SERVER,
        events.ToolLate: _OF_SERVER,
        events.Handoff: Dropped("who answers is the served runnable's own business"),
        events.CompactionStarted: Dropped("the conversation is the client's, and is not changed"),
        events.CompactionFinished: Dropped("the conversation is the client's, and is not changed"),
        events.InputRequested: Dropped("answered through POST /v1/runs/{id}/input; the run waits"),
        events.InputReceived: Dropped("answered through POST /v1/runs/{id}/input"),
        events.Custom: Dropped("chat completions have no place for data of one's own"),
    }


def _call(call: ToolCall) -> dict[str, Any]:
    return {
        "id": call.id,
        "type": "function",
        "function": {"name": call.name, "arguments": shown(call.arguments)},
    }


def _json(text: str) -> bytes:
    try:
        return _encode(text)
    except UnicodeEncodeError:
        return _encode(shown(text))


_encode = msgspec.json.Encoder().encode


def is_over(event: Event) -> bool:
    """True for the end of the run itself."""
    return event.is_terminal and event.parent_id is None
