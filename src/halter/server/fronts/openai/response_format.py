"""Events as the semantic events of Responses, numbered so that a stream can be resumed.

1. The numbers come of the run's log alone: translated again, each event has its number. A merged delta takes as many
numbers as it has pieces, and shows the last. 2. Each message of the model is an item of its own; calls for the client
follow it. 3. A run that was stopped ends with `response.incomplete`, and its status is `cancelled`.
"""

from __future__ import annotations

from collections.abc import Mapping
from copy import copy
from typing import Any, ClassVar

import msgspec

from halter import events
from halter.messages import Message, ToolCall
from halter.server.fronts.front import Dropped, RuledFormat, Rules
from halter.server.fronts.openai.errors import error_of_failure
from halter.server.fronts.openai.finishing import answer_of, calls_for_client, finish_of
from halter.server.fronts.openai.items import call_item, message_item, output_text, reasoning_item
from halter.server.fronts.openai.response_object import response_object
from halter.server.names import Names
from halter.server.port import RunPlan
from halter.server.views import shown
from halter.snapshot import Snapshot

_OF_SERVER = Dropped("tools of the served agent are its own business; calls for the client come with their message")
_INCOMPLETE = {"length": "max_output_tokens", "content_filter": "content_filter"}
_EMPTY_SUMMARY = {"type": "summary_text", "text": ""}


class ResponseFormat(RuledFormat):
    """One run as semantic events. The run's own words alone: those of runs under it come with its answer.

    Args:
        names: of the tenant who reads.
        plan: of the run.
        after: the number of the last event that the client has; -1: it has none.
    """

    def __init__(self, names: Names, plan: RunPlan, *, after: int = -1) -> None:
        super().__init__(names)
        asked: Mapping[str, Any] = plan.metadata.get("openai", {})
        self._plan = plan
        self._tools = frozenset(asked.get("client_tools", ()))
        self._holds_back = bool(asked.get("holds_back"))
        self._after = after
        self.number = 0  # of the next event
        self._is_created = False
        self._status = "queued"
        self._output: tuple[dict[str, Any], ...] = ()  # items that are whole
        self._thinking: str | None = None  # the message whose reasoning is an open item
        self._speaking: str | None = None  # the message whose text is an open item
        self._delta_before = b""
        self._last: Message | None = None
        self._calls: tuple[ToolCall, ...] = ()
        self.response = response_object(plan, status="queued")  # as of the last event that showed it
        self.end_event: events.Completed | events.Failed | events.Cancelled | None = None

    # --- frames ---------------------------------------------------------------------------------------------

    def end(self) -> bytes:
        return b"data: [DONE]\n\n"

    def at(self, after: int) -> ResponseFormat:
        """This format in its state now, for a client that has all events up to the number `after`."""
        other = copy(self)
        other._after = after
        return other

    def _frame(self, kind: str, **fields: Any) -> bytes:
        number, self.number = self.number, self.number + 1
        if number <= self._after:
            return b""
        data = {"type": kind, "sequence_number": number, **fields}
        return f"event: {kind}\ndata: ".encode() + msgspec.json.encode(data) + b"\n\n"

    def _show_response(self, kind: str, status: str, **fields: Any) -> bytes:
        self._status = status
        self.response = response_object(self._plan, status=status, output=self._output, **fields)
        return self._frame(kind, response=self.response)

    def now(self) -> dict[str, Any]:
        """The response as of now, with the items that are whole."""
        return {**self.response, "output": list(self._output)}

    # --- the beginning --------------------------------------------------------------------------------------

    def snapshot(self, snapshot: Snapshot, *, gap: tuple[int, int | None] | None) -> bytes:
        return b""

    def _queued(self, event: events.Queued) -> bytes:
        return self._create("queued") if event.parent_id is None else b""

    def _started(self, event: events.Started) -> bytes:
        return self._begin() if event.parent_id is None else b""

    def _create(self, status: str) -> bytes:
        self._is_created = True
        return self._show_response("response.created", status)

    def _begin(self) -> bytes:
        created = b"" if self._is_created else self._create("in_progress")
        return created + self._show_response("response.in_progress", "in_progress")

    # --- what is said ---------------------------------------------------------------------------------------

    @property
    def _index(self) -> int:
        """Of the next item."""
        return len(self._output) + (self._thinking is not None) + (self._speaking is not None)

    def _reasoning(self, event: events.ReasoningDelta) -> bytes:
        if event.parent_id is not None or self._holds_back or self._speaking is not None:
            return b""
        frames = b""
        id = f"rs_{event.message_id}"
        if self._thinking is None:
            frames = self._added(reasoning_item(id, None))
            self._thinking = event.message_id
            frames += self._frame(
                "response.reasoning_summary_part.added",
                item_id=id,
                output_index=len(self._output),
                summary_index=0,
                part=_EMPTY_SUMMARY,
            )
        self.number += event.seq - event.first_seq
        place = {"item_id": id, "output_index": len(self._output), "summary_index": 0}
        return frames + self._frame("response.reasoning_summary_text.delta", **place, delta=shown(event.text))

    def _text(self, event: events.TextDelta) -> bytes:
        if event.parent_id is not None or self._holds_back:
            return b""
        frames = b"" if self._speaking is not None else self._open_message(event.message_id)
        return frames + self._delta(event.text, event.seq - event.first_seq + 1)

    def _open_message(self, message_id: str) -> bytes:
        id, index = f"msg_{message_id}", self._index
        frames = self._added(message_item(id, "assistant", [], "in_progress"))
        self._speaking = message_id
        place = {"item_id": id, "output_index": index, "content_index": 0}
        head = msgspec.json.encode({"type": "response.output_text.delta", **place, "logprobs": []})[:-1]
        self._delta_before = b"event: response.output_text.delta\ndata: " + head + b',"delta":'
        return frames + self._frame("response.content_part.added", **place, part=output_text(""))

    def _delta(self, text: str, pieces: int) -> bytes:
        """The hot path: text."""
        self.number += pieces
        number = self.number - 1
        if number <= self._after:
            return b""
        return self._delta_before + _json(text) + b',"sequence_number":%d}\n\n' % number

    def _added(self, item: dict[str, Any]) -> bytes:
        return self._frame("response.output_item.added", output_index=self._index, item=item)

    def _message(self, event: events.MessageFinished) -> bytes:
        message = event.message
        if event.parent_id is not None or message.role != "assistant":
            return b""
        self._last, self._calls = message, calls_for_client(message, self._tools)
        if self._holds_back:
            return b""
        frames = self._close(message)
        for call in self._calls:
            frames += self._call(call)
        return frames

    def _close(self, message: Message) -> bytes:
        """Ends the items of a message."""
        frames = b""
        if self._thinking is not None:
            frames += self._close_reasoning(f"rs_{self._thinking}", message.reasoning)
        if self._speaking is not None:
            frames += self._close_message(f"msg_{self._speaking}", message)
        return frames

    def _close_reasoning(self, id: str, text: str) -> bytes:
        self._thinking = None
        index = len(self._output)
        place = {"item_id": id, "output_index": index, "summary_index": 0}
        item = reasoning_item(id, text)
        frames = self._frame("response.reasoning_summary_text.done", **place, text=shown(text))
        frames += self._frame("response.reasoning_summary_part.done", **place, part=item["summary"][0])
        self._output = (*self._output, item)
        return frames + self._frame("response.output_item.done", output_index=index, item=item)

    def _close_message(self, id: str, message: Message) -> bytes:
        self._speaking = None
        index, part = len(self._output), output_text(message.text or message.refusal)
        is_whole = not message.interrupted and finish_of(message, ()) == "stop"
        item = message_item(id, "assistant", [part], "completed" if is_whole else "incomplete")
        place = {"item_id": id, "output_index": index, "content_index": 0}
        frames = self._frame("response.output_text.done", **place, text=part["text"], logprobs=[])
        frames += self._frame("response.content_part.done", **place, part=part)
        self._output = (*self._output, item)
        return frames + self._frame("response.output_item.done", output_index=index, item=item)

    def _call(self, call: ToolCall) -> bytes:
        index, item = len(self._output), call_item(call)
        place = {"item_id": item["id"], "output_index": index}
        frames = self._added({**item, "arguments": "", "status": "in_progress"})
        arguments = item["arguments"]
        frames += self._frame("response.function_call_arguments.delta", **place, delta=arguments)
        frames += self._frame("response.function_call_arguments.done", **place, name=call.name, arguments=arguments)
        self._output = (*self._output, item)
        return frames + self._frame("response.output_item.done", output_index=index, item=item)

    # --- the end --------------------------------------------------------------------------------------------

    def _over(self, event: events.Completed | events.Failed | events.Cancelled) -> bytes:
        if event.parent_id is not None:
            return b""
        self.end_event = event
        frames = (b"" if self._is_created else self._begin()) + self._rest(event)
        self._after = min(self._after, self.number - 1)  # the end is told to all
        match event:
            case events.Failed():
                error = error_of_failure(event.error)
                told = {"code": "server_error", "message": error["message"]}
                return frames + self._show_response("response.failed", "failed", usage=event.usage, error=told)
            case events.Cancelled():
                stop = {"run_id": event.run_id, "reason": event.reason, "mode": event.mode}
                return frames + self._show_response("response.incomplete", "cancelled", usage=event.usage, halter=stop)
            case events.Completed():
                return frames + self._completed(event)

    def _completed(self, event: events.Completed) -> bytes:
        finish = "stop" if self._last is None else finish_of(self._last, self._calls)
        reason = _INCOMPLETE.get(finish)
        if reason is not None:
            return self._show_response("response.incomplete", "incomplete", usage=event.usage, incomplete=reason)
        return self._show_response("response.completed", "completed", usage=event.usage, completed_at=event.at)

    def _rest(self, event: events.Completed | events.Failed | events.Cancelled) -> bytes:
        """What is open ends; an answer of which nothing was shown as it came is shown whole."""
        text = answer_of(event)
        frames = self._close(self._last or Message("assistant", (), interrupted=True))
        is_shown = any(item["type"] == "message" for item in self._output)
        if text and not is_shown:
            frames += self._open_message(event.run_id) + self._delta(text, 1)
            last = self._last or Message.assistant(text)
            whole = msgspec.structs.replace(Message.assistant(text), finish_reason=last.finish_reason)
            if not isinstance(event, events.Completed):
                whole = msgspec.structs.replace(whole, interrupted=True)
            frames += self._close_message(f"msg_{event.run_id}", whole)
        if self._holds_back:
            for call in self._calls:
                frames += self._call(call)
        return frames

    rules: ClassVar[Rules] = {
        events.Queued: _queued,
        events.Started: _started,
        events.TextDelta: _text,
        events.ReasoningDelta: _reasoning,
        events.MessageFinished: _message,
        events.Completed: _over,
        events.Failed: _over,
        events.Cancelled: _over,
        events.Cancelling: Dropped("the last event says that the run was stopped"),
        events.StepStarted: Dropped("an item is what Responses have for a step"),
        events.StepFinished: Dropped("an item is what Responses have for a step"),
        events.ModelRequested: Dropped("the served runnable is the model"),
        events.ModelRetry: Dropped("the served runnable is the model"),
        events.UsageUpdated: Dropped("the last event has the usage of the whole run"),
        events.ToolCalled: _OF_SERVER,
        events.ToolArgumentsDelta: _OF_SERVER,
        events.ToolStarted: _OF_SERVER,
        events.ToolProgress: _OF_SERVER,
        events.ToolFinished: _OF_SERVER,
        events.ToolLate: _OF_SERVER,
        events.Handoff: Dropped("who answers is the served runnable's own business"),
        events.CompactionStarted: Dropped("sessions are compacted by themselves"),
        events.CompactionFinished: Dropped("sessions are compacted by themselves"),
        events.InputRequested: Dropped("answered through POST /v1/runs/{id}/input; the run waits"),
        events.InputReceived: Dropped("answered through POST /v1/runs/{id}/input"),
        events.Custom: Dropped("Responses have no place for data of one's own"),
    }


def _json(text: str) -> bytes:
    try:
        return msgspec.json.encode(text)
    except UnicodeEncodeError:
        return msgspec.json.encode(shown(text))
