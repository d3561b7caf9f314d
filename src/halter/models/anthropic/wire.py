"""The answers of Anthropic's messages: bytes in, deltas out (https://platform.claude.com/docs/en/build-with-claude/streaming).

1. A good frame is decoded once, into structs of the fields used; what does not fit is salvaged field by field, and only
what is no JSON at all is an error. 2. A stop reason ends the answer: its blocks and its usage are complete then;
`message_stop` says it once more, and half a frame behind it is nobody's failure. 3. The data names its own kind: the
`event:` lines are not needed.
"""

from __future__ import annotations

from typing import Any, cast

from halter.core.reply import Reply
from halter.errors import MalformedStream
from halter.models.anthropic.blocks import Block, begin_block
from halter.models.anthropic.frames import (
    UNFIT,
    Answer,
    Delta,
    Frame,
    TokenCounts,
    decode_frame,
    joined_counts,
    salvage,
    usage_of,
)
from halter.models.error_frames import is_error
from halter.models.format import Format, all_there_is

_KNOWN_DELTAS = frozenset(("text_delta", "thinking_delta", "input_json_delta", "signature_delta", "citations_delta"))


class AnthropicWire(Format):
    """One model's messages."""

    __slots__ = ()

    def begin(self, reply: Reply) -> AnthropicDecoder:
        return AnthropicDecoder(self, reply)


class AnthropicDecoder:
    """One attempt: feed it frames, or one whole body; it writes into its reply."""

    __slots__ = ("_block", "_blocks", "_count", "_counts", "_is_done", "_reply", "_wire", "is_over")

    def __init__(self, wire: AnthropicWire, reply: Reply) -> None:
        self.is_over = False
        self._is_done = False
        self._wire = wire
        self._reply = reply
        self._blocks: dict[int | None, Block] = {}  # those that are open, by index
        self._block: int | None = None  # the index of the last one that began
        self._count = 0
        self._counts = TokenCounts()

    def frame(self, data: bytes) -> None:
        """The data of one event. Raises `ProviderError` for an error frame, `MalformedStream` for what is no JSON."""
        if self._is_done:
            return
        try:
            frame = decode_frame(data)
        except UNFIT:
            self._unfit_frame(data)
            return
        self._take(frame, data)

    def whole(self, body: bytes) -> None:
        """A complete answer that was not streamed. Raises as `frame`, also for JSON without an answer.

        It is over unless it says itself that it is not, by `"stop_reason": null`.
        """
        value = self._wire.read(body)
        fields = cast("dict[str, Any]", value) if isinstance(value, dict) else {}
        answer = salvage(Answer, fields)
        if answer.content is None:
            with all_there_is():
                self._raise_if_error(fields)
            raise MalformedStream(f"{self._wire.name}: no answer in {self._wire.beginning(body)}")
        for index, block in enumerate(answer.content):
            if isinstance(block, dict):
                self._begin_block(index, cast("dict[str, Any]", block))
                self._end_block(index)
        self._take_counts(answer.usage, is_final=True)
        if answer.stop_reason or "stop_reason" not in fields:
            self._end(answer)

    # --- one frame ------------------------------------------------------------------------------------------

    def _take(self, frame: Frame, data: bytes) -> None:
        match frame.type:
            case "content_block_delta":
                self._take_delta(frame.index, frame.delta, data)
            case "content_block_start":
                self._begin_block(frame.index, frame.content_block or {})
            case "content_block_stop":
                self._end_block(self._block if frame.index is None else frame.index)
            case "message_start":
                self._take_counts(frame.message and frame.message.usage, is_final=False)
            case "message_delta":
                self._take_counts(frame.usage, is_final=True)
                if frame.delta is not None and frame.delta.stop_reason:
                    self._end(frame.delta)
            case "message_stop":
                self._is_done = True
                self._end(Answer())
            case "ping":
                pass
            case _:
                self._other_frame(frame, data)

    def _take_delta(self, index: int | None, delta: Delta | None, data: bytes) -> None:
        if delta is None:
            return
        block = self._blocks.get(self._block if index is None else index)
        if block is None:
            block = self._begin_block(index, {"type": "thinking" if delta.thinking else "text"})
        block.take(delta)
        if delta.type not in _KNOWN_DELTAS and delta.type is not None:
            block.take_other(self._wire.read(data)["delta"])

    def _begin_block(self, index: int | None, fields: dict[str, Any]) -> Block:
        self._end_block(index)  # one that a server has begun twice
        self._block = index
        self._count += 1
        block = self._blocks[index] = begin_block(fields, self._count, self._reply, self._wire.provider)
        return block

    def _end_block(self, index: int | None) -> None:
        block = self._blocks.pop(index, None)
        if block is not None:
            block.end()

    def _take_counts(self, counts: TokenCounts | None, *, is_final: bool) -> None:
        if counts is not None:
            self._counts = joined_counts(self._counts, counts)
            self._reply.assembly.usage = usage_of(self._counts, is_final=is_final)

    def _end(self, last: Delta | Answer) -> None:
        """The terminal frame: what the provider needs back is complete."""
        for index in list(self._blocks):
            self._end_block(index)
        self.is_over = True
        if last.stop_reason:
            self._reply.assembly.finish_reason = last.stop_reason
        if last.stop_reason == "refusal":
            self._take_refusal(last.stop_details)
        if last.container:  # where its code runs, and its files are
            self._reply.carry(self._wire.provider, {"container": last.container})

    def _take_refusal(self, details: Any) -> None:
        """The provider's explanation; without one, that there was a refusal, so that an empty answer is no puzzle."""
        match details:
            case {"explanation": str(text)} if text:
                self._reply.refusal(text)
            case {"category": str(category)} if category:
                self._reply.refusal(f"declined: {category}")
            case _:
                self._reply.refusal("declined")

    # --- odd frames -----------------------------------------------------------------------------------------

    def _unfit_frame(self, data: bytes) -> None:
        text = data.strip()
        if not text or text == b"[DONE]":  # the end, as some servers of this format write it too
            return
        try:
            value = self._wire.read(data)
        except MalformedStream:
            if self.is_over:
                return
            raise
        if isinstance(value, dict):
            self._take(salvage(Frame, cast("dict[str, Any]", value)), data)

    def _other_frame(self, frame: Frame, data: bytes) -> None:
        """A kind that we do not know, or an error in any shape. Behind the terminal frame it breaks nothing."""
        if self.is_over:
            return
        if frame.error:
            raise self._wire.error(frame.error)
        value = self._wire.read(data)
        if isinstance(value, dict):
            self._raise_if_error(cast("dict[str, Any]", value))

    def _raise_if_error(self, fields: dict[str, Any]) -> None:
        if fields.get("error") or is_error(fields):
            raise self._wire.error(fields)

    def __repr__(self) -> str:
        state = "done" if self._is_done else "over" if self.is_over else "open"
        return f"<AnthropicDecoder {self._wire.name} {state}>"
