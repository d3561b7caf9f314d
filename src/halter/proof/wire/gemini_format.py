"""Google's Gemini API (https://ai.google.dev/api/generate-content), streaming and not.

Whether it streams is asked by the path, so there is a format for each way. There is no terminal frame: the finish
reason is the end, in a frame of its own here. A function call comes whole: its arguments are held until the finish.
"""

from collections.abc import Callable
from typing import Any

import msgspec

from halter.proof.wire.formats import Ask, AskError, FinishReason, Said

_MARK = "\N{BULLET}"
_MODEL = "gemini-wire"
_REASONS: dict[FinishReason, str] = {"stop": "STOP", "tool_calls": "STOP", "length": "MAX_TOKENS"}
_STATUSES = {
    400: "INVALID_ARGUMENT",
    401: "UNAUTHENTICATED",
    403: "PERMISSION_DENIED",
    404: "NOT_FOUND",
    429: "RESOURCE_EXHAUSTED",
    503: "UNAVAILABLE",
    504: "DEADLINE_EXCEEDED",
}


class _Part(msgspec.Struct, rename="camel"):
    text: str = ""
    function_response: Any = None


class _Content(msgspec.Struct):
    role: str = "user"
    parts: list[_Part] = []

    @property
    def text(self) -> str:
        return "".join(part.text for part in self.parts)


class _Request(msgspec.Struct):
    contents: list[_Content]


_requests = msgspec.json.Decoder(_Request)


class _GeminiAsk(Ask, frozen=True, kw_only=True):
    """A question, and the call in its answer while its arguments are still coming."""

    call: dict[str, str] = msgspec.field(default_factory=dict)


class GeminiFormat:
    """The `WireFormat` of `…:streamGenerateContent`, or of `…:generateContent`."""

    def __init__(self, *, stream: bool) -> None:
        self._stream = stream

    def __repr__(self) -> str:
        return f"<GeminiFormat {'streaming' if self._stream else 'whole'}>"

    def read(self, body: bytes) -> Ask:
        try:
            contents = _requests.decode(body).contents
        except (msgspec.MsgspecError, UnicodeDecodeError) as error:
            raise AskError(f"the body is no generateContent request: {error}") from error
        prompts = [content.text for content in contents if content.role == "user" and content.text]
        last = contents[-1].parts if contents else []
        return _GeminiAsk(
            model=_MODEL,
            stream=self._stream,
            wants_usage=True,
            prompt=prompts[-1] if prompts else "",
            has_tool_result=any(part.function_response is not None for part in last),
        )

    def opening(self, ask: Ask) -> bytes:
        return b""

    def token_encoder(self, ask: Ask) -> Callable[[str], bytes]:
        # Only the text differs between the tokens of a stream: the rest is encoded once.
        frame = _frame(_answer([{"text": _MARK}]))
        before, _, after = frame.rpartition(msgspec.json.encode(_MARK))
        encode = msgspec.json.encode
        return lambda text: before + encode(text) + after

    def tool_fragment(self, ask: Ask, call_id: str, name: str, fragment: str, opens: bool) -> bytes:
        assert isinstance(ask, _GeminiAsk)
        arguments = ask.call.get("arguments", "") + fragment
        ask.call.update(id=call_id, name=name, arguments=arguments)
        return b""

    def finish(self, ask: Ask, reason: FinishReason, tokens: int) -> bytes:
        assert isinstance(ask, _GeminiAsk)
        call = _frame(_answer([_called(**ask.call)])) if ask.call else b""
        return call + _frame(_answer([{"text": ""}], _REASONS[reason]) | _usage(ask, tokens))

    def done(self) -> bytes:
        return b""

    def error_frame(self) -> bytes:
        return _frame(_error(500, "An internal error has occurred."))

    def refusal(self, status: int, message: str) -> bytes:
        return msgspec.json.encode(_error(status, message))

    def whole(self, ask: Ask, said: Said, call_id: str, finished: bool) -> bytes:
        part = {"text": "".join(said.text)} if said.tool is None else _called(call_id, said.tool, said.arguments)
        return msgspec.json.encode(
            _answer([part], _REASONS[said.reason] if finished else None) | _usage(ask, said.tokens)
        )


def _answer(parts: list[dict[str, Any]], reason: str | None = None) -> dict[str, Any]:
    candidate: dict[str, Any] = {"content": {"parts": parts, "role": "model"}, "index": 0}
    if reason is not None:
        candidate["finishReason"] = reason
    return {"candidates": [candidate], "modelVersion": _MODEL, "responseId": "HalterWire0000000000000"}


def _called(id: str, name: str, arguments: str) -> dict[str, Any]:
    # Arguments that are no JSON go out as they are: a mode may ask for a broken answer.
    args = {"args": msgspec.Raw(arguments.encode())} if arguments else {}
    return {"functionCall": {"name": name, **args, "id": id}}


def _usage(ask: Ask, tokens: int) -> dict[str, Any]:
    prompt = len(ask.prompt.split())
    counts = {"promptTokenCount": prompt, "candidatesTokenCount": tokens, "totalTokenCount": prompt + tokens}
    return {"usageMetadata": counts}


def _error(status: int, message: str) -> dict[str, Any]:
    return {"error": {"code": status, "message": message, "status": _STATUSES.get(status, "INTERNAL")}}


def _frame(content: dict[str, Any]) -> bytes:
    return b"data: " + msgspec.json.encode(content) + b"\n\n"
