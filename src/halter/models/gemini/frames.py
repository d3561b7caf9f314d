"""The answers of Google's Gemini API, as far as they are used, for the strict decoder and for what does not fit it.

A part is a plain object: whatever the API adds to it has to go back unchanged.
"""

from __future__ import annotations

from typing import Any, TypeVar, cast

import msgspec

from halter.messages import Usage
from halter.models.counts import tokens


class TokenCounts(msgspec.Struct, rename="camel", gc=False):
    prompt_token_count: int | None = None
    cached_content_token_count: int | None = None
    candidates_token_count: int | None = None
    thoughts_token_count: int | None = None
    tool_use_prompt_token_count: int | None = None


class Content(msgspec.Struct, gc=False):
    parts: list[dict[str, Any]] | None = None


class Candidate(msgspec.Struct, rename="camel", gc=False):
    """`content`: its parts. The fields from `grounding_metadata` on: facts about the answer, kept as they are."""

    content: Content | None = None
    index: int | None = None
    finish_reason: str | None = None
    finish_message: str | None = None
    grounding_metadata: Any = None
    citation_metadata: Any = None
    url_context_metadata: Any = None
    safety_ratings: Any = None
    logprobs_result: Any = None

    def facts(self) -> dict[str, Any]:
        """What is known about the answer besides its parts, under the API's own names; empty in most frames."""
        if not (
            self.grounding_metadata
            or self.citation_metadata
            or self.url_context_metadata
            or self.safety_ratings
            or self.logprobs_result
            or self.finish_message
        ):
            return {}
        told = {name: getattr(self, field) for field, name in _FACTS.items()}
        return {name: value for name, value in told.items() if value}


_FACTS = {
    "grounding_metadata": "groundingMetadata",
    "citation_metadata": "citationMetadata",
    "url_context_metadata": "urlContextMetadata",
    "safety_ratings": "safetyRatings",
    "logprobs_result": "logprobsResult",
    "finish_message": "finishMessage",
}


class PromptFeedback(msgspec.Struct, rename="camel", gc=False):
    block_reason: str | None = None
    block_reason_message: str | None = None


class Chunk(msgspec.Struct, rename="camel", gc=False):
    candidates: list[Candidate] | None = None
    usage_metadata: TokenCounts | None = None
    prompt_feedback: PromptFeedback | None = None
    error: Any = None


decode_chunk = msgspec.json.Decoder(Chunk).decode
UNFIT = (msgspec.MsgspecError, UnicodeDecodeError, RecursionError)


def usage_of(counts: TokenCounts) -> Usage:
    """The counts in our words; `totalTokenCount` is the sum of both sides.

    The results of server-side tools are input that the API counts apart, thoughts are output that it counts apart.
    """
    thoughts = tokens(counts.thoughts_token_count)
    return Usage(
        input=tokens(counts.prompt_token_count) + tokens(counts.tool_use_prompt_token_count),
        output=tokens(counts.candidates_token_count) + thoughts,
        cached=tokens(counts.cached_content_token_count),
        reasoning=thoughts,
    )


# --- what does not fit --------------------------------------------------------------------------------------


def salvage(fields: dict[str, Any]) -> Chunk:
    """As much of a decoded answer as fits; a field that does not is as if it were missing."""
    return Chunk(
        candidates=_candidates(fields.get("candidates")),
        usage_metadata=_fitting(TokenCounts, fields.get("usageMetadata")),
        prompt_feedback=_fitting(PromptFeedback, fields.get("promptFeedback")),
        error=fields.get("error"),
    )


def _candidates(value: Any) -> list[Candidate] | None:
    return [_candidate(fields) for fields in _objects(value)] if isinstance(value, list) else None


def _candidate(fields: dict[str, Any]) -> Candidate:
    content = fields.get("content")
    found = _fitting(Candidate, {name: value for name, value in fields.items() if name != "content"}) or Candidate()
    if isinstance(content, dict):
        found.content = Content(parts=_objects(cast("dict[str, Any]", content).get("parts")))
    return found


def _objects(value: Any) -> list[dict[str, Any]]:
    items = cast("list[Any]", value) if isinstance(value, list) else []
    return [cast("dict[str, Any]", item) for item in items if isinstance(item, dict)]


_S = TypeVar("_S", bound=msgspec.Struct)


def _fitting(kind: type[_S], value: Any) -> _S | None:
    """The struct from the fields that fit it, one by one."""
    if not isinstance(value, dict):
        return None
    fields = cast("dict[str, Any]", value)
    found = kind()
    for field in msgspec.structs.fields(kind):
        if field.encode_name in fields:
            try:
                alone = msgspec.convert({field.encode_name: fields[field.encode_name]}, kind, strict=False)
            except msgspec.ValidationError:
                continue  # the default stands
            setattr(found, field.name, getattr(alone, field.name))
    return found
