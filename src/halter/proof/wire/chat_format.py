"""OpenAI chat completions (https://platform.openai.com/docs/api-reference/chat), streaming and not."""

import time
from collections.abc import Callable
from typing import Any

import msgspec

from halter.proof.wire.formats import Ask, AskError, FinishReason, Said

_ID = "chatcmpl-HalterWire00000000000000000000"
_FINGERPRINT = "fp_halterwire0"
_MARK = "\N{BULLET}"
_ERROR_TYPES = {400: "invalid_request_error", 401: "authentication_error", 429: "rate_limit_error"}


class _Message(msgspec.Struct):
    role: str = ""
    content: str | list[dict[str, Any]] | None = None

    @property
    def text(self) -> str:
        if isinstance(self.content, list):
            return "".join(str(part.get("text", "")) for part in self.content)
        return self.content or ""


class _StreamOptions(msgspec.Struct):
    include_usage: bool | None = None


class _Request(msgspec.Struct):
    model: str = "unnamed"
    messages: list[_Message] = []
    stream: bool | None = None
    stream_options: _StreamOptions | None = None


_requests = msgspec.json.Decoder(_Request)


class ChatFormat:
    """The `WireFormat` of `/v1/chat/completions`."""

    def __repr__(self) -> str:
        return "<ChatFormat>"

    def read(self, body: bytes) -> Ask:
        try:
            request = _requests.decode(body)
        except (msgspec.MsgspecError, UnicodeDecodeError) as error:
            raise AskError(f"the body is no chat completion request: {error}") from error
        prompts = [message.text for message in request.messages if message.role == "user"]
        return Ask(
            model=request.model,
            stream=bool(request.stream),
            wants_usage=bool(request.stream_options and request.stream_options.include_usage),
            prompt=prompts[-1] if prompts else "",
            has_tool_result=bool(request.messages) and request.messages[-1].role == "tool",
        )

    def opening(self, ask: Ask) -> bytes:
        return _frame(_chunk(ask, {"role": "assistant", "content": "", "refusal": None}))

    def token_encoder(self, ask: Ask) -> Callable[[str], bytes]:
        # Only the text differs between the tokens of a stream: the rest is encoded once.
        frame = _frame(_chunk(ask, {"content": _MARK}))
        before, _, after = frame.rpartition(msgspec.json.encode(_MARK))
        encode = msgspec.json.encode
        return lambda text: before + encode(text) + after

    def tool_fragment(self, ask: Ask, call_id: str, name: str, fragment: str, opens: bool) -> bytes:
        call: dict[str, Any] = {"index": 0, "function": {"arguments": fragment}}
        if opens:
            function = {"name": name, "arguments": fragment}
            call = {"index": 0, "id": call_id, "type": "function", "function": function}
        return _frame(_chunk(ask, {"tool_calls": [call]}))

    def finish(self, ask: Ask, reason: FinishReason, tokens: int) -> bytes:
        frames = _frame(_chunk(ask, {}, reason))
        if ask.wants_usage:
            frames += _frame(_head(ask, "chat.completion.chunk") | {"choices": [], "usage": _usage(ask, tokens)})
        return frames

    def done(self) -> bytes:
        return b"data: [DONE]\n\n"

    def error_frame(self) -> bytes:
        return _frame(_error(500, "The server had an error while processing your request."))

    def refusal(self, status: int, message: str) -> bytes:
        return msgspec.json.encode(_error(status, message))

    def whole(self, ask: Ask, said: Said, call_id: str, finished: bool) -> bytes:
        choice = {
            "index": 0,
            "message": _message(said, call_id),
            "logprobs": None,
            "finish_reason": said.reason if finished else None,
        }
        body = _head(ask, "chat.completion") | {"choices": [choice], "usage": _usage(ask, said.tokens)}
        return msgspec.json.encode(body)


class AzureChatFormat(ChatFormat):
    """The same on Azure's routes: what its filters found comes first, in a chunk without a choice, and behind the text.

    (https://learn.microsoft.com/azure/ai-foundry/openai/concepts/content-streaming)
    """

    def __repr__(self) -> str:
        return "<AzureChatFormat>"

    def opening(self, ask: Ask) -> bytes:
        found = [{"prompt_index": 0, "content_filter_results": _SAFE}]
        first = {"id": "", "object": "", "created": 0, "model": "", "choices": [], "prompt_filter_results": found}
        return _frame(first) + super().opening(ask)

    def finish(self, ask: Ask, reason: FinishReason, tokens: int) -> bytes:
        offsets = {"check_offset": 0, "start_offset": 0, "end_offset": tokens}
        choice = {"index": 0, "finish_reason": None, "content_filter_results": _SAFE, "content_filter_offsets": offsets}
        checked = {"id": "", "object": "", "created": 0, "model": "", "choices": [choice]}
        return _frame(checked) + super().finish(ask, reason, tokens)


_SAFE = {name: {"filtered": False, "severity": "safe"} for name in ("hate", "self_harm", "sexual", "violence")}


def _head(ask: Ask, kind: str) -> dict[str, Any]:
    return {
        "id": _ID,
        "object": kind,
        "created": int(time.time()),
        "model": ask.model,
        "service_tier": "default",
        "system_fingerprint": _FINGERPRINT,
    }


def _chunk(ask: Ask, delta: dict[str, Any], reason: FinishReason | None = None) -> dict[str, Any]:
    choice = {"index": 0, "delta": delta, "logprobs": None, "finish_reason": reason}
    return _head(ask, "chat.completion.chunk") | {"choices": [choice]}


def _message(said: Said, call_id: str) -> dict[str, Any]:
    message: dict[str, Any] = {"role": "assistant", "content": "".join(said.text), "refusal": None}
    if said.tool is not None:
        function = {"name": said.tool, "arguments": said.arguments}
        message |= {
            "content": None,
            "tool_calls": [{"id": call_id, "type": "function", "function": function}],
        }
    return message


def _usage(ask: Ask, tokens: int) -> dict[str, Any]:
    prompt = len(ask.prompt.split())
    return {
        "prompt_tokens": prompt,
        "completion_tokens": tokens,
        "total_tokens": prompt + tokens,
        "prompt_tokens_details": {"cached_tokens": 0, "audio_tokens": 0},
        "completion_tokens_details": {"reasoning_tokens": 0, "audio_tokens": 0},
    }


def _error(status: int, message: str) -> dict[str, Any]:
    return {
        "error": {
            "message": message,
            "type": _ERROR_TYPES.get(status, "server_error"),
            "param": None,
            "code": "rate_limit_exceeded" if status == 429 else None,
        }
    }


def _frame(content: dict[str, Any]) -> bytes:
    return b"data: " + msgspec.json.encode(content) + b"\n\n"
