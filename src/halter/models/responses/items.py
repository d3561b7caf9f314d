"""The output items of OpenAI's Responses: what of them is shown, and what is kept to be sent back unchanged.

An item is kept as an `Opaque` without the text that stands in the readable parts behind it, and put together again
from both. 1. The `Opaque` of an item that was never whole is empty. 2. An item that is only for the provider
(reasoning, a call of a built-in tool, an unknown kind) is kept as it is.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from typing import Any, Literal, TypeAlias

from halter.messages import Refusal, Text, ToolCall
from halter.models.calls import arguments_text
from halter.models.conversation import tool_name
from halter.models.responses.frames import fields_of, objects_in, text_in

Field: TypeAlias = Literal["text", "refusal", "summary", "thought", "arguments"]

_SPOKEN: dict[str, Field] = {"output_text": "text", "refusal": "refusal"}


class Shown:
    """One text of an item, as far as it was shown."""

    __slots__ = ("length", "pieces")

    def __init__(self) -> None:
        self.pieces: list[str] = []
        self.length = 0

    def add(self, text: str) -> None:
        self.pieces.append(text)
        self.length += len(text)

    def lacks_of(self, text: str) -> str:
        """What of the whole text is still to be shown; nothing if other words were shown. Linear in `text`."""
        if len(text) <= self.length or not text.startswith("".join(self.pieces)):
            return ""
        return text[self.length :]


class OutputItem:
    """One item while it is streamed. `kept`: the data of its `Opaque`, empty until the item is whole.

    `key`: its tool call's key in the reply. `shown`: its texts, by field and index.
    """

    __slots__ = ("annotations", "call_id", "id", "kept", "key", "kind", "name", "shown")

    def __init__(self, key: int) -> None:
        self.key = key
        self.kind = self.id = self.call_id = self.name = ""
        self.kept: dict[str, Any] = {}
        self.shown: defaultdict[tuple[Field, int], Shown] = defaultdict(Shown)
        self.annotations: dict[int, list[Any]] = {}

    def learn(self, fields: dict[str, Any]) -> None:
        """What it is: announced, or told only when it is whole."""
        self.kind = text_in(fields, "type")
        self.id = text_in(fields, "id")
        self.call_id = text_in(fields, "call_id") or self.id
        self.name = text_in(fields, "name")

    def keep(self, fields: dict[str, Any]) -> None:
        """The item is whole, as `fields`."""
        self.kept.clear()
        self.kept.update(_without_text(fields, self.annotations) | ({"call_id": self.call_id} if self.is_call else {}))

    @property
    def is_call(self) -> bool:
        return self.kind == "function_call"

    def __repr__(self) -> str:
        return f"<OutputItem {self.kind} {self.id} {'whole' if self.kept else 'open'}>"


def texts_of(item: dict[str, Any]) -> Iterator[tuple[Field, int, str]]:
    """All that an item says: field, index, text."""
    match text_in(item, "type"):
        case "message":
            for index, part in objects_in(item.get("content")):
                yield from text_of_part(part, index)
        case "reasoning":
            for index, part in objects_in(item.get("summary")):
                yield "summary", index, text_in(part, "text")
            for index, part in objects_in(item.get("content")):
                yield "thought", index, text_in(part, "text")
        case "function_call":
            yield "arguments", 0, text_in(item, "arguments")
        case _:
            pass


def text_of_part(part: dict[str, Any], index: int) -> Iterator[tuple[Field, int, str]]:
    """What one part of a message says."""
    match text_in(part, "type"):
        case "output_text":
            yield "text", index, text_in(part, "text")
        case "refusal":
            yield "refusal", index, text_in(part, "refusal")
        case "reasoning_text":
            yield "thought", index, text_in(part, "text")
        case _:
            pass


def _without_text(item: dict[str, Any], annotations: dict[int, list[Any]]) -> dict[str, Any]:
    match item:
        case {"type": "message", "content": list()}:
            parts = [_part_without_text(part, annotations.get(index)) for index, part in objects_in(item["content"])]
            return item | {"content": parts}
        case {"type": "function_call"}:
            return {name: value for name, value in item.items() if name not in ("name", "arguments")}
        case _:
            return item


def _part_without_text(part: dict[str, Any], annotations: list[Any] | None) -> dict[str, Any]:
    field = _SPOKEN.get(text_in(part, "type"))
    kept = {name: value for name, value in part.items() if name != field}
    if annotations and not kept.get("annotations"):  # told in events of their own only
        kept["annotations"] = annotations
    return kept


# --- and back -----------------------------------------------------------------------------------------------


def whole_message(kept: dict[str, Any], said: Sequence[Text | Refusal]) -> dict[str, Any] | None:
    """The message as it came, with what was said; `None` if they do not belong together (any more)."""
    parts = [part for _, part in objects_in(kept.get("content"))]
    spoken = [part for part in parts if text_in(part, "type") in _SPOKEN]
    texts = iter(said)
    content: list[dict[str, Any]] = []
    for part in parts:
        field = _SPOKEN.get(text_in(part, "type"))
        text = next(texts, None) if field else None
        if field and (text is None or isinstance(text, Refusal) != (field == "refusal")):
            return None
        content.append(part | ({field: text.text} if field and text else {}))
    return kept | {"content": content} if spoken and len(spoken) == len(said) else None


def whole_call(kept: dict[str, Any], call: ToolCall) -> dict[str, Any]:
    """The function call as it came."""
    return fields_of(kept) | {"call_id": call.id, "name": tool_name(call.name), "arguments": arguments_text(call)}
