"""The answers of OpenAI's chat completions, and of the many servers that speak its format: bytes in, deltas out.

1. A good frame is decoded once, into structs of the fields used; what does not fit is salvaged field by field, and only
what is no JSON at all is an error. 2. `[DONE]` or a finish reason ends the answer; usage may follow, and half a frame
or an error after it is nobody's failure. 3. Only the choice with index 0 is read.
"""

from __future__ import annotations

from typing import Any, cast

from halter.core.reply import Reply
from halter.errors import MalformedStream, ServerFailed
from halter.models.chat.calls import Calls
from halter.models.chat.frames import UNFIT, Choice, Chunk, Delta, TokenCounts, decode_chunk, salvage, usage_of
from halter.models.chat.reasoning_details import ReasoningDetails
from halter.models.error_frames import is_error
from halter.models.format import Format, all_there_is


class ChatWire(Format):
    """One model's chat completions."""

    __slots__ = ()

    def begin(self, reply: Reply) -> ChatDecoder:
        return ChatDecoder(self, reply)


class ChatDecoder:
    """One attempt: feed it frames, or one whole body; it writes into its reply."""

    __slots__ = ("_calls", "_details", "_is_done", "_reply", "_returned", "_text", "_wire", "is_over")

    def __init__(self, wire: ChatWire, reply: Reply) -> None:
        self.is_over = False
        self._is_done = False
        self._wire = wire
        self._reply = reply
        self._text = reply.text
        self._calls = Calls()
        self._details: ReasoningDetails | None = None
        self._returned: dict[str, Any] | None = None

    def frame(self, data: bytes) -> None:
        """The data of one event. Raises `ProviderError` for an error frame, `MalformedStream` for what is no JSON."""
        if self._is_done:
            return
        try:
            chunk = decode_chunk(data)
        except UNFIT:
            self._unfit_frame(data)
            return
        choices = chunk.choices
        if choices and not choices[0].index and chunk.usage is None and chunk.x_groq is None and not chunk.error:
            self._take_choice(choices[0], None)  # nearly every frame
            return
        self._take(chunk)
        if choices is None and chunk.usage is None:
            self._other_frame(data)

    def whole(self, body: bytes) -> None:
        """A complete answer that was not streamed. Raises as `frame`, also for JSON without an answer.

        It is over unless it says itself that it is not, by `"finish_reason": null`: several servers give no reason.
        """
        value = self._wire.read(body)
        fields = cast("dict[str, Any]", value) if isinstance(value, dict) else {}
        chunk = salvage(Chunk, fields)
        choices = chunk.choices or []
        for choice in choices:
            _number_calls(choice)
        if all(choice.index for choice in choices):
            with all_there_is():
                self._take(chunk)
                self._raise_if_error(fields)
            raise MalformedStream(f"{self._wire.name}: no answer in {self._wire.beginning(body)}")
        self._take(chunk)
        if not _is_unfinished(fields):
            self._end()

    # --- one frame ------------------------------------------------------------------------------------------

    def _take(self, chunk: Chunk) -> None:
        choices, was_over = chunk.choices, self.is_over
        if choices:
            choice = choices[0]
            if choice.index:
                choice = next((choice for choice in choices if not choice.index), None)
            if choice is not None:
                self._take_choice(choice, chunk.error)
        if chunk.usage is not None:
            self._take_usage(chunk.usage)
        if chunk.x_groq is not None:
            if chunk.x_groq.usage is not None and chunk.usage is None:
                self._take_usage(chunk.x_groq.usage)
            if chunk.x_groq.error and not was_over:
                raise self._wire.error(chunk.x_groq.error)
        if chunk.error and not was_over:
            raise self._wire.error(chunk.error)

    def _take_choice(self, choice: Choice, error: Any) -> None:
        delta = choice.delta if choice.delta is not None else choice.message
        if delta is not None:
            content = delta.content
            if content:
                if isinstance(content, str):
                    self._text(content)
                else:
                    self._take_parts(content)
            self._take_rest(delta)
        if choice.usage is not None:
            self._take_usage(choice.usage)
        if choice.finish_reason:
            self._take_finish(choice.finish_reason, choice.error or error)

    def _take_rest(self, delta: Delta) -> None:
        reasoning = delta.reasoning_content or delta.reasoning  # both, where a server writes it twice
        if reasoning:
            self._reply.reasoning(reasoning)
        if delta.reasoning_details:
            self._take_details(delta.reasoning_details, is_shown=bool(reasoning))
        if delta.refusal:
            self._reply.refusal(delta.refusal)
        if delta.tool_calls is not None:
            for fragment in delta.tool_calls:
                self._calls.take(fragment, self._reply)
        if delta.function_call is not None:
            self._calls.take_function(delta.function_call, self._reply)

    def _take_parts(self, parts: list[Any]) -> None:
        """Content as a list (Mistral): text, and thinking that holds text again; other kinds are skipped."""
        for part in parts:
            fields = cast("dict[str, Any]", part) if isinstance(part, dict) else {"type": "text", "text": part}
            match fields:
                case {"type": "text", "text": str(text)}:
                    self._text(text)
                case {"type": "thinking", "thinking": thinking}:
                    self._reply.reasoning(_joined(thinking))
                case {"type": "refusal", "refusal": str(text)}:
                    self._reply.refusal(text)
                case _:
                    pass

    def _take_details(self, fragments: list[Any], *, is_shown: bool) -> None:
        self._details = self._details or ReasoningDetails()
        readable = self._details.add(fragments)
        if not is_shown:  # Snowflake: nowhere else
            self._reply.reasoning(readable)

    def _take_usage(self, counts: TokenCounts) -> None:
        """Counts are for the answer so far: the last ones hold."""
        if counts.prompt_tokens is not None or counts.completion_tokens is not None:
            self._reply.assembly.usage = usage_of(counts)

    def _take_finish(self, reason: str, error: Any) -> None:
        if reason == "error":  # OpenRouter; what happened stands in the choice or on the frame
            if self.is_over:
                return
            if error:
                raise self._wire.error(error)
            raise ServerFailed(f"{self._wire.name} ended its answer with finish_reason 'error'", code="error")
        self._reply.assembly.finish_reason = reason
        self._end()

    def _end(self) -> None:
        """The terminal frame: what the provider needs back is complete."""
        self.is_over = True
        needed: dict[str, Any] = {}
        if self._calls.extra_content:
            needed["extra_content"] = self._calls.extra_content
        blocks = self._details.whole() if self._details is not None else None
        if blocks:
            needed["reasoning_details"] = blocks
        if needed and self._returned is None:
            self._returned = {}
            self._reply.assembly.carry(self._wire.provider, self._returned)
        if self._returned is not None:
            self._returned.update(needed)

    # --- odd frames -----------------------------------------------------------------------------------------

    def _unfit_frame(self, data: bytes) -> None:
        text = data.strip()
        if text.startswith(b"[DONE]"):
            self._is_done = True
            self._end()
        elif text:
            self._salvaged_frame(data)

    def _salvaged_frame(self, data: bytes) -> None:
        try:
            value = self._wire.read(data)
        except MalformedStream:
            if self.is_over:
                return
            raise
        if isinstance(value, dict):
            fields = cast("dict[str, Any]", value)
            self._take(salvage(Chunk, fields))
            self._raise_if_error(fields)

    def _other_frame(self, data: bytes) -> None:
        """No answer and no count: a ping, a kind we do not know, or an error in a shape of its own."""
        self._raise_if_error(self._wire.read(data))

    def _raise_if_error(self, value: Any) -> None:
        if isinstance(value, dict):
            fields = cast("dict[str, Any]", value)
            if not self.is_over and fields.get("choices") is None and is_error(fields):
                raise self._wire.error(fields)

    def __repr__(self) -> str:
        state = "done" if self._is_done else "over" if self.is_over else "open"
        return f"<ChatDecoder {self._wire.name} {state}>"


def _joined(thinking: Any) -> str:
    """Mistral's thinking: text, or a list of text parts."""
    if isinstance(thinking, str):
        return thinking
    parts = cast("list[Any]", thinking) if isinstance(thinking, list) else []
    texts = [cast("dict[str, Any]", part).get("text") for part in parts if isinstance(part, dict)]
    return "".join(text for text in texts if isinstance(text, str))


def _is_unfinished(answer: dict[str, Any]) -> bool:
    match answer:
        case {"choices": [{"finish_reason": None}, *_]}:
            return True
        case _:
            return False


def _number_calls(choice: Choice) -> None:
    """Whole calls are told apart by their place, whatever their ids."""
    calls = choice.message.tool_calls if choice.message is not None else None
    for place, call in enumerate(calls or ()):
        call.index = place
