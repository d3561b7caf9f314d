"""The answers of Google's Gemini API (https://ai.google.dev/api/generate-content): frames in, deltas out.

1. A good frame is decoded once; what does not fit is salvaged, and only what is no JSON at all is an error. 2. A finish
reason ends the answer: there is no other terminal frame. Frames may follow it, with facts, usage or a signature; what
is broken or fails by then is nobody's failure. 3. A part with a signature is a part of its own, so that the signature
goes back on it; unsigned text that comes in a row is one part. 4. Only the candidate with index 0 is read.
"""

from __future__ import annotations

from contextlib import nullcontext
from typing import Any, Literal, cast

import msgspec

from halter.core.reply import Reply
from halter.errors import MalformedStream, ProviderError, RequestRejected, ServerFailed
from halter.messages import Text, ToolCall
from halter.models.error_frames import is_error
from halter.models.format import Format, all_there_is
from halter.models.gemini.errors import read_status, status_of
from halter.models.gemini.frames import (
    UNFIT,
    Candidate,
    Chunk,
    PromptFeedback,
    decode_chunk,
    salvage,
    usage_of,
)
from halter.models.gemini.parts import Added, Facts, Kept

# The finish reasons that leave no usable answer; the others are kept with what was said.
_FAILURES: dict[str, type[ProviderError]] = {
    "MALFORMED_FUNCTION_CALL": ServerFailed,
    "MALFORMED_RESPONSE": ServerFailed,
    "UNEXPECTED_TOOL_CALL": ServerFailed,
    "MISSING_THOUGHT_SIGNATURE": RequestRejected,
}
_ORDINARY = frozenset(("STOP", "MAX_TOKENS"))
_UNSPECIFIED = "FINISH_REASON_UNSPECIFIED"  # "unused" in the reference: no end


class GeminiWire(Format):
    """One model's answers."""

    __slots__ = ()

    def begin(self, reply: Reply) -> GeminiDecoder:
        return GeminiDecoder(self, reply)

    def describe_error(self, body: bytes) -> tuple[str, str | None]:
        """The code is Google's word for it (`RESOURCE_EXHAUSTED`); its number is the HTTP status once more."""
        message, code = super().describe_error(body)
        status = read_status(body)
        return message, status.reason or status.word or code

    def retry_delay(self, body: bytes) -> float | None:
        return read_status(body).retry_after

    def error(self, found: Any) -> ProviderError:
        error = super().error(found)
        if isinstance(found, dict):
            status = status_of(cast("dict[str, Any]", found))
            error.code = status.reason or status.word or error.code
            error.retry_after = status.retry_after or error.retry_after
        return error


class GeminiDecoder:
    """One attempt: feed it frames, or one whole body; it writes into its reply."""

    __slots__ = ("_calls", "_kind", "_reply", "_text", "_wire", "is_over")

    def __init__(self, wire: GeminiWire, reply: Reply) -> None:
        self.is_over = False
        self._wire = wire
        self._reply = reply
        self._text = reply.text
        self._kind: Literal["text", "thought"] | None = None  # of the part that is still growing
        self._calls = 0

    def frame(self, data: bytes) -> None:
        """The data of one event. Raises `ProviderError` for an error frame, `MalformedStream` for what is no JSON."""
        try:
            chunk = decode_chunk(data)
        except UNFIT:
            self._unfit_frame(data)
            return
        self._take(chunk)
        if chunk.candidates is None and chunk.usage_metadata is None and chunk.prompt_feedback is None:
            self._other_frame(self._wire.read(data))

    def whole(self, body: bytes) -> None:
        """A complete answer that was not streamed, or all frames in one list. Raises as `frame`."""
        value = self._wire.read(body)
        frames = cast("list[Any]", value) if isinstance(value, list) else [value]
        for frame in frames:
            with nullcontext() if isinstance(frame, dict) and "candidates" in frame else all_there_is():
                self._take_value(frame)
        if not self.is_over and self._reply.assembly.is_empty:
            raise MalformedStream(f"{self._wire.name}: no answer in {self._wire.beginning(body)}")

    # --- one frame ------------------------------------------------------------------------------------------

    def _take(self, chunk: Chunk) -> None:
        if chunk.candidates:
            candidate = chunk.candidates[0]
            if candidate.index:
                candidate = next((one for one in chunk.candidates if not one.index), None)
            if candidate is not None:
                self._take_candidate(candidate)
        counts = chunk.usage_metadata  # behind what they count, which a budget else counts again
        if counts is not None and (counts.prompt_token_count is not None or counts.candidates_token_count is not None):
            self._reply.assembly.usage = usage_of(counts)
        if chunk.prompt_feedback is not None and not self.is_over:
            self._take_feedback(chunk.prompt_feedback)
        if chunk.error and not self.is_over:
            raise self._wire.error(chunk.error)

    def _take_candidate(self, candidate: Candidate) -> None:
        content = candidate.content
        if content is not None and content.parts:
            for part in content.parts:
                if self._kind == "text" and len(part) == 1 and isinstance(text := part.get("text"), str):
                    self._text(text)
                else:
                    self._take_part(part)
        facts = candidate.facts()
        if facts:
            self._carry(Facts(facts=facts))
        if candidate.finish_reason and candidate.finish_reason != _UNSPECIFIED:
            self._take_finish(candidate.finish_reason, candidate.finish_message)

    def _take_part(self, part: dict[str, Any]) -> None:
        match part:
            case {"text": str(text)} if text:
                self._take_text(part, text)
            case {"functionCall": dict()}:
                self._take_call(part, cast("dict[str, Any]", part["functionCall"]))
            case {"functionCall": _} | {"functionResponse": _}:
                pass  # no call, and no word of a model's: sent back, it would be refused
            case _ if any(value not in ("", None) for name, value in part.items() if name != "thought"):
                self._end_part()
                self._carry(Kept(part=part))
            case _:
                pass  # `{"text": ""}`

    def _take_text(self, part: dict[str, Any], text: str) -> None:
        kind = "thought" if part.get("thought") is True else "text"
        added = {name: value for name, value in part.items() if name not in ("text", "thought")}
        if self._kind != kind or added:
            self._end_part()
        (self._reply.reasoning if kind == "thought" else self._text)(text)
        self._kind = kind
        if added:
            self._end_part()
            self._carry(Added(added=added))

    def _take_call(self, part: dict[str, Any], call: dict[str, Any]) -> None:
        """A call comes whole. Without an id the reply makes one."""
        self._end_part()
        id, name = call.get("id"), call.get("name")
        self._reply.tool_fragment(self._calls, _text_or_none(id), _text_or_none(name), _json_of(call.get("args")))
        self._calls += 1
        added = {name: value for name, value in part.items() if name != "functionCall"}
        if added:
            self._carry(Added(added=added))

    def _end_part(self) -> None:
        if self._kind is not None:
            self._reply.next_part()
            self._kind = None

    def _carry(self, data: Added | Kept | Facts) -> None:
        self._reply.carry(self._wire.provider, data)

    def _take_finish(self, reason: str, message: str | None) -> None:
        self._reply.assembly.finish_reason = reason
        failure = _FAILURES.get(reason)
        if failure is not None and not self.is_over:
            said = self._wire.redacted(message or "no reason given")
            raise failure(f"{self._wire.name} ended its answer with {reason}: {said}", code=reason)
        if reason not in _ORDINARY and not self.is_over:
            self._refuse(reason, message)
        self.is_over = True

    def _refuse(self, reason: str, message: str | None) -> None:
        """Says why nothing was said (`SAFETY`, `RECITATION`, …), so that an empty answer is no puzzle."""
        if any(isinstance(part, Text | ToolCall) for part in self._reply.assembly.message().parts):
            return
        self._end_part()
        self._reply.refusal(f"declined: {reason}" + (f": {self._wire.redacted(message)}" if message else ""))

    def _take_feedback(self, feedback: PromptFeedback) -> None:
        """A blocked prompt has no answer at all: asking again cannot help."""
        if feedback.block_reason:
            said = self._wire.redacted(feedback.block_reason_message or "no reason given")
            what = f"{self._wire.name} refused the prompt ({feedback.block_reason}): {said}"
            raise RequestRejected(what, code=feedback.block_reason)

    # --- odd frames -----------------------------------------------------------------------------------------

    def _unfit_frame(self, data: bytes) -> None:
        if not data.strip():
            return
        try:
            value = self._wire.read(data)
        except MalformedStream:
            if self.is_over:
                return
            raise
        self._take_value(value)

    def _take_value(self, value: Any) -> None:
        if isinstance(value, dict):
            fields = cast("dict[str, Any]", value)
            self._take(salvage(fields))
            self._other_frame(fields)

    def _other_frame(self, value: Any) -> None:
        """No answer and no count: a kind we do not know, or an error in a shape of its own."""
        if isinstance(value, dict) and not self.is_over:
            fields = cast("dict[str, Any]", value)
            if fields.get("candidates") is None and is_error(fields):
                raise self._wire.error(fields)

    def __repr__(self) -> str:
        return f"<GeminiDecoder {self._wire.name} {'over' if self.is_over else 'open'}>"


def _text_or_none(value: Any) -> str | None:
    return value if isinstance(value, str) and value else None


def _json_of(arguments: Any) -> str:
    """The arguments as JSON text, none for none. Raises `MalformedStream` where they are too deep to be written."""
    try:
        return "" if arguments is None else msgspec.json.encode(arguments).decode()
    except RecursionError:
        raise MalformedStream("a function call's arguments are nested too deeply") from None
