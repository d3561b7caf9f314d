"""The events of OpenAI's Responses, as far as they are used, for the strict decoder and for what does not fit it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, cast

import msgspec

from halter.messages import Usage
from halter.models.counts import tokens


class Event(msgspec.Struct, gc=False):
    """One event. What is an object stays as it is decoded: those are rare, and most go back unchanged."""

    type: str = ""
    delta: str | None = None
    item_id: str | None = None
    output_index: int = 0
    content_index: int = 0
    summary_index: int = 0
    sequence_number: int | None = None
    text: str | None = None
    refusal: str | None = None
    arguments: str | None = None
    item: Any = None
    part: Any = None
    annotation: Any = None
    response: Any = None


decode_event = msgspec.json.Decoder(Event).decode
UNFIT = (msgspec.MsgspecError, UnicodeDecodeError, RecursionError)

_TEXTS = ("type", "delta", "item_id", "text", "refusal", "arguments")
_NUMBERS = ("output_index", "content_index", "summary_index", "sequence_number")
_OBJECTS = ("item", "part", "annotation", "response")


def salvage(fields: dict[str, Any]) -> Event:
    """As much of a decoded value as fits; a field that does not is as if it were missing."""
    kept: dict[str, Any] = {name: fields[name] for name in _TEXTS if isinstance(fields.get(name), str)}
    kept |= {name: fields[name] for name in _NUMBERS if type(fields.get(name)) is int}
    kept |= {name: fields.get(name) for name in _OBJECTS}
    return Event(**kept)


def fields_of(value: Any) -> dict[str, Any]:
    """The value if it is an object, else an empty one."""
    return cast("dict[str, Any]", value) if isinstance(value, dict) else {}


def objects_in(value: Any) -> Iterator[tuple[int, dict[str, Any]]]:
    """The objects of a list, each with its place in it; nothing if it is no list."""
    for place, item in enumerate(cast("list[Any]", value) if isinstance(value, list) else ()):
        if isinstance(item, dict):
            yield place, cast("dict[str, Any]", item)


def text_in(fields: dict[str, Any], name: str) -> str:
    value = fields.get(name)
    return value if isinstance(value, str) else ""


def usage_of(value: Any) -> Usage | None:
    """The counts of a response in our words; `input` includes what was cached, `output` what was thought."""
    counts = fields_of(value)
    if not counts:
        return None
    return Usage(
        input=_count(counts, "input_tokens"),
        output=_count(counts, "output_tokens"),
        cached=_count(fields_of(counts.get("input_tokens_details")), "cached_tokens"),
        reasoning=_count(fields_of(counts.get("output_tokens_details")), "reasoning_tokens"),
    )


def _count(counts: dict[str, Any], name: str) -> int:
    value = counts.get(name)
    return tokens(value) if isinstance(value, int | float) else 0
