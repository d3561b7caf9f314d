"""The frames of chat completions, as far as they are used, for the strict decoder and for what does not fit it."""

from __future__ import annotations

from functools import cache
from typing import Any, TypeVar, cast

import msgspec

from halter.messages import Usage
from halter.models.chat.calls import CalledFunction, CallFragment
from halter.models.counts import tokens


class PromptDetails(msgspec.Struct, gc=False):
    cached_tokens: int | None = None


class CompletionDetails(msgspec.Struct, gc=False):
    reasoning_tokens: int | None = None


class TokenCounts(msgspec.Struct, gc=False):
    prompt_tokens: int | None = None
    completion_tokens: int | None = None
    total_tokens: int | None = None
    prompt_tokens_details: PromptDetails | None = None
    completion_tokens_details: CompletionDetails | None = None
    prompt_cache_hit_tokens: int | None = None  # DeepSeek
    cached_tokens: int | None = None  # Moonshot


class Groq(msgspec.Struct, gc=False):
    usage: TokenCounts | None = None
    error: Any = None


class Delta(msgspec.Struct, gc=False):
    content: str | list[Any] | None = None
    reasoning_content: str | None = None
    reasoning: str | None = None
    reasoning_details: list[Any] | None = None
    refusal: str | None = None
    tool_calls: list[CallFragment] | None = None
    function_call: CalledFunction | None = None


class Choice(msgspec.Struct, gc=False):
    delta: Delta | None = None
    message: Delta | None = None  # of an answer that was not streamed
    finish_reason: str | None = None
    index: int | None = 0
    usage: TokenCounts | None = None  # Moonshot
    error: Any = None  # OpenRouter


class Chunk(msgspec.Struct, gc=False):
    choices: list[Choice] | None = None
    usage: TokenCounts | None = None
    x_groq: Groq | None = None
    error: Any = None


decode_chunk = msgspec.json.Decoder(Chunk).decode
UNFIT = (msgspec.MsgspecError, UnicodeDecodeError, RecursionError)


def usage_of(counts: TokenCounts) -> Usage:
    """The counts in our words. `output` includes reasoning, also where a provider (xAI) counts that apart."""
    sent, written = tokens(counts.prompt_tokens), tokens(counts.completion_tokens)
    before, after = counts.prompt_tokens_details, counts.completion_tokens_details
    cached = tokens((before and before.cached_tokens) or counts.prompt_cache_hit_tokens or counts.cached_tokens)
    reasoning = tokens(after and after.reasoning_tokens)
    if reasoning and counts.total_tokens == sent + written + reasoning:
        written += reasoning
    return Usage(input=sent, output=written, cached=cached, reasoning=reasoning)


# --- what does not fit --------------------------------------------------------------------------------------

_S = TypeVar("_S", bound=msgspec.Struct)
_NESTED: dict[str, type[msgspec.Struct]] = {
    "choices": Choice,
    "completion_tokens_details": CompletionDetails,
    "delta": Delta,
    "function": CalledFunction,
    "function_call": CalledFunction,
    "message": Delta,
    "prompt_tokens_details": PromptDetails,
    "tool_calls": CallFragment,
    "usage": TokenCounts,
    "x_groq": Groq,
}
_LISTS = frozenset(("choices", "tool_calls"))


def salvage(kind: type[_S], fields: dict[str, Any]) -> _S:
    """As much of a decoded value as fits the struct; a field that does not is as if it were missing."""
    try:
        return msgspec.convert(fields, kind, strict=False)
    except msgspec.ValidationError:
        pass  # field by field, then
    kept: dict[str, Any] = {}
    for name, alone in _fields_of(kind):
        value, nested = fields.get(name), _NESTED.get(name)
        if nested is not None and value is not None:
            kept[name] = _salvaged(nested, value, is_list=name in _LISTS)
            continue
        try:
            kept[name] = getattr(msgspec.convert({name: value}, alone, strict=False), name)
        except msgspec.ValidationError:
            pass  # the default stands
    return kind(**kept)


@cache
def _fields_of(kind: type[msgspec.Struct]) -> tuple[tuple[str, type[msgspec.Struct]], ...]:
    """Each field in a struct of its own: msgspec prepares a struct once, a bare type at each conversion."""
    fields = msgspec.structs.fields(kind)
    return tuple((field.name, msgspec.defstruct("Alone", [(field.name, field.type)])) for field in fields)


def _salvaged(kind: type[msgspec.Struct], value: Any, *, is_list: bool) -> Any:
    if is_list:
        items = cast("list[Any]", value) if isinstance(value, list) else []
        return [salvage(kind, cast("dict[str, Any]", item)) for item in items if isinstance(item, dict)]
    return salvage(kind, cast("dict[str, Any]", value)) if isinstance(value, dict) else None
