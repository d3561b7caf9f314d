"""Anthropic's messages (https://platform.claude.com/docs/en/api/messages), streaming and not."""

from collections.abc import Callable
from typing import Any

import msgspec

from halter.proof.wire.formats import Ask, AskError, FinishReason, Said

_ID = "msg_HalterWire0000000000000000"
_MARK = "\N{BULLET}"
_STOP_REASONS = {"stop": "end_turn", "tool_calls": "tool_use", "length": "max_tokens"}
_ERROR_TYPES = {
    400: "invalid_request_error",
    401: "authentication_error",
    402: "billing_error",
    403: "permission_error",
    404: "not_found_error",
    413: "request_too_large",
    429: "rate_limit_error",
    504: "timeout_error",
    529: "overloaded_error",
}
_TEXT, _CALL = 0, 1  # the blocks' indexes


class _Message(msgspec.Struct):
    role: str = ""
    content: str | list[dict[str, Any]] = ""

    @property
    def text(self) -> str:
        if isinstance(self.content, str):
            return self.content
        return "".join(str(block.get("text", "")) for block in self.content if block.get("type") == "text")

    @property
    def is_result(self) -> bool:
        return isinstance(self.content, list) and any(block.get("type") == "tool_result" for block in self.content)


class _Request(msgspec.Struct):
    max_tokens: int
    messages: list[_Message]
    model: str
    stream: bool | None = None


_requests = msgspec.json.Decoder(_Request)


class AnthropicFormat:
    """The `WireFormat` of `/v1/messages`."""

    def __repr__(self) -> str:
        return "<AnthropicFormat>"

    def read(self, body: bytes) -> Ask:
        try:
            request = _requests.decode(body)
        except (msgspec.MsgspecError, UnicodeDecodeError) as error:
            raise AskError(f"the body is no request of Anthropic's messages: {error}") from error
        prompts = [message.text for message in request.messages if message.role == "user"]
        return Ask(
            model=request.model,
            stream=bool(request.stream),
            wants_usage=True,
            prompt=prompts[-1] if prompts else "",
            has_tool_result=bool(request.messages) and request.messages[-1].is_result,
        )

    def opening(self, ask: Ask) -> bytes:
        message = _message(ask, []) | {"usage": _usage(ask, 1)}
        return _frame("message_start", message=message) + _begin(_TEXT, {"type": "text", "text": ""}) + _frame("ping")

    def token_encoder(self, ask: Ask) -> Callable[[str], bytes]:
        # Only the text differs between the tokens of a stream: the rest is encoded once.
        frame = _delta(_TEXT, {"type": "text_delta", "text": _MARK})
        before, _, after = frame.rpartition(msgspec.json.encode(_MARK))
        encode = msgspec.json.encode
        return lambda text: before + encode(text) + after

    def tool_fragment(self, ask: Ask, call_id: str, name: str, fragment: str, opens: bool) -> bytes:
        frame = _delta(_CALL, {"type": "input_json_delta", "partial_json": fragment})
        if not opens:
            return frame
        block: dict[str, Any] = {"type": "tool_use", "id": call_id, "name": name, "input": {}}
        return _stop(_TEXT) + _begin(_CALL, block) + frame

    def finish(self, ask: Ask, reason: FinishReason, tokens: int) -> bytes:
        delta = {"stop_reason": _STOP_REASONS[reason], "stop_sequence": None}
        last = _stop(_TEXT if reason == "stop" else _CALL)
        return last + _frame("message_delta", delta=delta, usage=_usage(ask, tokens))

    def done(self) -> bytes:
        return _frame("message_stop")

    def error_frame(self) -> bytes:
        return _frame("error", error={"type": "overloaded_error", "message": "Overloaded"})

    def refusal(self, status: int, message: str) -> bytes:
        kind = _ERROR_TYPES.get(status, "api_error" if status >= 500 else "invalid_request_error")
        return msgspec.json.encode({"type": "error", "error": {"type": kind, "message": message}})

    def whole(self, ask: Ask, said: Said, call_id: str, finished: bool) -> bytes:
        block: dict[str, Any] = {"type": "text", "text": "".join(said.text)}
        if said.tool is not None:
            made = msgspec.json.decode(said.arguments or "{}")
            block = {"type": "tool_use", "id": call_id, "name": said.tool, "input": made}
        reason = _STOP_REASONS[said.reason] if finished else None
        return msgspec.json.encode(
            _message(ask, [block]) | {"stop_reason": reason, "usage": _usage(ask, said.tokens)},
        )


def _message(ask: Ask, content: list[dict[str, Any]]) -> dict[str, Any]:
    return {
        "id": _ID,
        "type": "message",
        "role": "assistant",
        "model": ask.model,
        "content": content,
        "stop_reason": None,
        "stop_sequence": None,
    }


def _usage(ask: Ask, tokens: int) -> dict[str, int]:
    return {
        "input_tokens": len(ask.prompt.split()),
        "cache_creation_input_tokens": 0,
        "cache_read_input_tokens": 0,
        "output_tokens": tokens,
    }


def _begin(index: int, block: dict[str, Any]) -> bytes:
    return _frame("content_block_start", index=index, content_block=block)


def _delta(index: int, delta: dict[str, Any]) -> bytes:
    return _frame("content_block_delta", index=index, delta=delta)


def _stop(index: int) -> bytes:
    return _frame("content_block_stop", index=index)


def _frame(kind: str, **content: Any) -> bytes:
    return f"event: {kind}\ndata: ".encode() + msgspec.json.encode({"type": kind} | content) + b"\n\n"
