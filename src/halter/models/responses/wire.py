"""The answers of OpenAI's Responses (https://platform.openai.com/docs/api-reference/responses-streaming).

1. Text is shown as its deltas come; what is told again whole (`.done`, the item, the response) shows only what no
delta has brought. 2. Each output item is kept, in its place, to go back unchanged (`items.py`). 3. The event
with the whole response ends the answer; what comes after it is nobody's failure.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from halter.core.reply import Reply
from halter.errors import MalformedStream, ServerFailed
from halter.models.error_frames import is_error
from halter.models.format import Format, all_there_is
from halter.models.redaction import redacted
from halter.models.responses.frames import (
    UNFIT,
    Event,
    decode_event,
    fields_of,
    objects_in,
    salvage,
    text_in,
    usage_of,
)
from halter.models.responses.items import Field, OutputItem, Shown, text_of_part, texts_of

_UNFINISHED = ("queued", "in_progress")


class ResponsesWire(Format):
    """One model's Responses. `secrets`: of its tools, kept out of every error as its key is."""

    __slots__ = ("_secrets",)

    def __init__(self, name: str, *, provider: str, key: str = "", secrets: tuple[str, ...] = ()) -> None:
        super().__init__(name, provider=provider, key=key)
        self._secrets = secrets

    def redacted(self, text: str) -> str:
        return redacted(super().redacted(text), self._secrets)

    def begin(self, reply: Reply) -> ResponsesDecoder:
        return ResponsesDecoder(self, reply)


class ResponsesDecoder:
    """One attempt: feed it frames, or one whole body; it writes into its reply. `response_id`: the server's own."""

    __slots__ = (
        "_at",
        "_count",
        "_places",
        "_reply",
        "_shown",
        "_waiting",
        "_where",
        "_wire",
        "is_over",
        "response_id",
    )

    def __init__(self, wire: Format, reply: Reply) -> None:
        self.is_over = False
        self.response_id: str | None = None
        self._wire = wire
        self._reply = reply
        self._count = 0
        self._at: dict[int, OutputItem] = {}  # by output index
        self._places: dict[str, int] = {}  # output indexes, by the id of the item
        self._waiting: list[OutputItem] = []  # begun, and not yet in the message: nothing of them was shown
        self._where: tuple[int, Field, int] | None = None  # output index, field, index of what is being shown
        self._shown = Shown()  # of that

    def frame(self, data: bytes) -> None:
        """The data of one event. Raises `ProviderError` for an error event, `MalformedStream` for what is no JSON."""
        if self.is_over:
            return
        try:
            event = decode_event(data)
        except UNFIT:
            self._unfit_frame(data)
            return
        take = _TAKE.get(event.type)
        if take is not None:
            take(self, event)
        elif event.type == "response.error" or not event.type.startswith("response."):
            self._raise_if_error(self._wire.read(data))

    def whole(self, body: bytes) -> None:
        """A complete answer that was not streamed. Raises as `frame`, also for JSON without an answer."""
        fields = fields_of(self._wire.read(body))
        if not isinstance(fields.get("output"), list) and not fields.get("status"):
            with all_there_is():
                self._raise_if_error(fields)
            raise MalformedStream(f"{self._wire.name}: no answer in {self._wire.beginning(body)}")
        self.response_id = text_in(fields, "id") or self.response_id
        if fields.get("status") not in _UNFINISHED:
            self._take_response(fields)

    # --- deltas ---------------------------------------------------------------------------------------------

    def _text(self, event: Event) -> None:
        self._show(self._place(event), "text", event.content_index, event.delta)

    def _refusal(self, event: Event) -> None:
        self._show(self._place(event), "refusal", event.content_index, event.delta)

    def _summary(self, event: Event) -> None:
        self._show(self._place(event), "summary", event.summary_index, event.delta)

    def _thought(self, event: Event) -> None:
        self._show(self._place(event), "thought", event.content_index, event.delta)

    def _arguments(self, event: Event) -> None:
        self._show(self._place(event), "arguments", 0, event.delta)

    def _show(self, place: int, field: Field, index: int, text: str | None) -> None:
        if not text:
            return
        where = (place, field, index)
        if where != self._where:
            self._turn_to(where)
        self._shown.add(text)
        if field == "text":
            self._reply.text(text)
        else:
            self._show_other(place, field, text)

    def _show_other(self, place: int, field: Field, text: str) -> None:
        match field:
            case "refusal":
                self._reply.refusal(text)
            case "arguments":
                item = self._at[place]
                self._reply.tool_fragment(item.key, item.call_id or None, item.name or None, text)
            case _:
                self._reply.reasoning(text)

    def _turn_to(self, where: tuple[int, Field, int]) -> None:
        """What comes next is another part, perhaps of an item that nobody has announced."""
        place, field, index = where
        item = self._at.get(place) or self._begin(place)
        self._carry()
        self._reply.next_part()
        self._where = where
        self._shown = item.shown[field, index]

    # --- what is told again, whole --------------------------------------------------------------------------

    def _text_done(self, event: Event) -> None:
        self._complete(self._place(event), "text", event.content_index, event.text)

    def _refusal_done(self, event: Event) -> None:
        self._complete(self._place(event), "refusal", event.content_index, event.refusal)

    def _summary_done(self, event: Event) -> None:
        self._complete(self._place(event), "summary", event.summary_index, event.text)

    def _thought_done(self, event: Event) -> None:
        self._complete(self._place(event), "thought", event.content_index, event.text)

    def _arguments_done(self, event: Event) -> None:
        self._complete(self._place(event), "arguments", 0, event.arguments)

    def _summary_part(self, event: Event) -> None:
        self._complete(self._place(event), "summary", event.summary_index, text_in(fields_of(event.part), "text"))

    def _part(self, event: Event) -> None:
        for field, index, text in text_of_part(fields_of(event.part), event.content_index):
            self._complete(self._place(event), field, index, text)

    def _complete(self, place: int, field: Field, index: int, text: str | None) -> None:
        """Shows what of this text no delta has brought. What was shown otherwise stays as it was shown."""
        if not text:
            return
        item = self._at.get(place)
        lacking = item.shown[field, index].lacks_of(text) if item is not None else text
        self._show(place, field, index, lacking)

    def _annotation(self, event: Event) -> None:
        item = self._at.get(self._place(event))
        if item is not None and event.annotation:
            item.annotations.setdefault(event.content_index, []).append(event.annotation)

    # --- items ----------------------------------------------------------------------------------------------

    def _item_added(self, event: Event) -> None:
        fields = fields_of(event.item)
        if not fields:
            return
        item = self._at.get(event.output_index)
        if item is None or (item.kind and (item.kind, item.id) != (text_in(fields, "type"), text_in(fields, "id"))):
            item = self._begin(event.output_index)
        self._learn(event.output_index, item, fields)
        self._show_item(event.output_index, fields)

    def _item_done(self, event: Event) -> None:
        fields = fields_of(event.item)
        if fields:
            place = event.output_index
            self._settle(place if place in self._at else self._place_of(fields, place), fields)

    def _begin(self, place: int) -> OutputItem:
        item = self._at[place] = OutputItem(self._count)
        self._count += 1
        self._waiting.append(item)
        self._where = None
        return item

    def _learn(self, place: int, item: OutputItem, fields: dict[str, Any]) -> None:
        if item.kind:
            return
        item.learn(fields)
        self._places[item.id] = place
        if item.is_call:
            self._carry()
            self._reply.tool_fragment(item.key, item.call_id or None, item.name or None, "")

    def _settle(self, place: int, fields: dict[str, Any]) -> None:
        """The item at this place is whole."""
        item = self._at.get(place)
        if item is None or item.kind not in ("", text_in(fields, "type")):
            item = self._begin(place)
        self._learn(place, item, fields)
        self._show_item(place, fields)
        if item.is_call and text_in(fields, "status") == "incomplete":
            self._reply.incomplete_call(item.key)
        item.keep(fields)
        self._carry()

    def _show_item(self, place: int, fields: dict[str, Any]) -> None:
        for field, index, text in texts_of(fields):
            self._complete(place, field, index, text)

    def _carry(self) -> None:
        """What is shown, or whole, is part of the message, and so is what began before it."""
        for item in self._waiting:
            self._reply.carry(self._wire.provider, item.kept)
        self._waiting.clear()

    # --- the response ---------------------------------------------------------------------------------------

    def _begun(self, event: Event) -> None:
        self.response_id = text_in(fields_of(event.response), "id") or self.response_id

    def _ended(self, event: Event) -> None:
        fields = fields_of(event.response)
        self._take_response({"status": event.type.removeprefix("response.")} | fields)

    def _take_response(self, fields: dict[str, Any]) -> None:
        """The terminal frame: the whole response."""
        status = text_in(fields, "status") or "completed"
        usage = usage_of(fields.get("usage"))
        self._reply.assembly.usage = usage or self._reply.assembly.usage
        if status in ("failed", "cancelled"):
            raise self._failure(status, fields.get("error"))
        for place, item in objects_in(fields.get("output")):
            self._settle(self._place_of(item, place), item)
        reason = text_in(fields_of(fields.get("incomplete_details")), "reason")
        self._reply.assembly.finish_reason = reason or status
        self.is_over = True

    def _place(self, event: Event) -> int:
        """Where its item is: at its index if there is one, else where the item of its id is, or begins with it."""
        place, id = event.output_index, event.item_id
        return place if place in self._at or not id else self._places.setdefault(id, place)

    def _place_of(self, item: dict[str, Any], place: int) -> int:
        """Where the stream had it: some servers count gaps, others change ids on the way."""
        id = text_in(item, "id")
        return self._places.get(id, place) if id else place

    def _failure(self, status: str, error: Any) -> Exception:
        if error:
            return self._wire.error(error)
        return ServerFailed(f"{self._wire.name} ended its answer as {status}", code=status)

    # --- odd frames -----------------------------------------------------------------------------------------

    def _unfit_frame(self, data: bytes) -> None:
        text = data.strip()
        if not text or text.startswith(b"[DONE]"):
            return
        fields = fields_of(self._wire.read(data))
        event = salvage(fields)
        take = _TAKE.get(event.type)
        if take is not None:
            take(self, event)
        else:
            self._raise_if_error(fields)

    def _raise_if_error(self, value: Any) -> None:
        fields = fields_of(value)
        if fields.get("error") or is_error(fields):
            raise self._wire.error(fields)

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self._wire.name} {'over' if self.is_over else 'open'}>"


_D = ResponsesDecoder
_TAKE: dict[str, Callable[[ResponsesDecoder, Event], None]] = {
    "response.output_text.delta": _D._text,
    "response.function_call_arguments.delta": _D._arguments,
    "response.reasoning_summary_text.delta": _D._summary,
    "response.reasoning_text.delta": _D._thought,
    "response.refusal.delta": _D._refusal,
    "response.output_item.added": _D._item_added,
    "response.output_item.done": _D._item_done,
    "response.content_part.added": _D._part,
    "response.content_part.done": _D._part,
    "response.output_text.done": _D._text_done,
    "response.output_text.annotation.added": _D._annotation,
    "response.function_call_arguments.done": _D._arguments_done,
    "response.reasoning_summary_part.added": _D._summary_part,
    "response.reasoning_summary_part.done": _D._summary_part,
    "response.reasoning_summary_text.done": _D._summary_done,
    "response.reasoning_text.done": _D._thought_done,
    "response.refusal.done": _D._refusal_done,
    "response.created": _D._begun,
    "response.queued": _D._begun,
    "response.in_progress": _D._begun,
    "response.completed": _D._ended,
    "response.incomplete": _D._ended,
    "response.failed": _D._ended,
    "response.cancelled": _D._ended,
}
