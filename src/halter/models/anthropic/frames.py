"""The frames of Anthropic's messages, as far as they are used, for the strict decoder and for what does not fit it."""

from __future__ import annotations

from typing import Any, TypeVar, cast

import msgspec

from halter.messages import Usage
from halter.models.counts import tokens


class TokenDetails(msgspec.Struct, gc=False):
    thinking_tokens: int | None = None


class TokenCounts(msgspec.Struct, gc=False):
    """`input_tokens` leaves out what was written to the cache or read from it."""

    input_tokens: int | None = None
    cache_creation_input_tokens: int | None = None
    cache_read_input_tokens: int | None = None
    output_tokens: int | None = None
    output_tokens_details: TokenDetails | None = None


class Delta(msgspec.Struct, gc=False):
    """More of a block, or of the message: one kind of delta has one or two of the fields."""

    text: str | None = None
    thinking: str | None = None
    partial_json: str | None = None
    signature: str | None = None
    citation: Any = None
    type: str | None = None
    stop_reason: str | None = None
    stop_details: Any = None
    container: Any = None


class Answer(msgspec.Struct, gc=False):
    """A message: its beginning in a stream, all of it elsewhere."""

    content: list[Any] | None = None
    usage: TokenCounts | None = None
    stop_reason: str | None = None
    stop_details: Any = None
    container: Any = None


class Frame(msgspec.Struct, gc=False):
    type: str | None = None
    index: int | None = None
    delta: Delta | None = None
    content_block: dict[str, Any] | None = None
    message: Answer | None = None
    usage: TokenCounts | None = None
    error: Any = None


decode_frame = msgspec.json.Decoder(Frame).decode
UNFIT = (msgspec.MsgspecError, UnicodeDecodeError, RecursionError)


def joined_counts(before: TokenCounts, after: TokenCounts) -> TokenCounts:
    """Counts are for the answer so far: the last ones hold, and what they leave out stands."""
    pairs = zip(msgspec.structs.astuple(before), msgspec.structs.astuple(after), strict=True)
    return TokenCounts(*(old if new is None else new for old, new in pairs))


def usage_of(counts: TokenCounts, *, is_final: bool) -> Usage:
    """The counts in our words: `input` with what went through the cache, `cached` what was read from it."""
    cached = tokens(counts.cache_read_input_tokens)
    details = counts.output_tokens_details
    return Usage(
        input=tokens(counts.input_tokens) + tokens(counts.cache_creation_input_tokens) + cached,
        output=tokens(counts.output_tokens),
        cached=cached,
        reasoning=tokens(details and details.thinking_tokens),
        estimated=not is_final,
    )


# --- what does not fit --------------------------------------------------------------------------------------

_S = TypeVar("_S", bound=msgspec.Struct)
_NESTED: dict[str, type[msgspec.Struct]] = {
    "delta": Delta,
    "message": Answer,
    "output_tokens_details": TokenDetails,
    "usage": TokenCounts,
}


def salvage(kind: type[_S], fields: dict[str, Any]) -> _S:
    """As much of a decoded value as fits the struct; a field that does not is as if it were missing."""
    kept: dict[str, Any] = {}
    for field in msgspec.structs.fields(kind):
        value, nested = fields.get(field.name), _NESTED.get(field.name)
        if nested is not None:
            kept[field.name] = salvage(nested, cast("dict[str, Any]", value)) if isinstance(value, dict) else None
            continue
        try:
            kept[field.name] = msgspec.convert(value, field.type, strict=False)
        except msgspec.ValidationError:
            pass  # the default stands
    return kind(**kept)
