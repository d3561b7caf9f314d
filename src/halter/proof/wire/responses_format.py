"""OpenAI Responses (https://platform.openai.com/docs/api-reference/responses), streaming and not, and in background.

Each frame has its number: 0 and 1 say that the response has begun, 2 and 3 that an item has, and the tokens follow. The
first token's frames hold those of its item. What has a number can be asked for again (`GET …/{id}?starting_after=`).
"""

import time
from collections.abc import Callable, Iterator
from itertools import count
from typing import Any, Literal
from urllib.parse import parse_qs, unquote, urlsplit

import msgspec

from halter.proof.wire.formats import Ask, AskError, FinishReason, Said

ITEM_NUMBER = 2
TOKEN_NUMBER = 4
_MARK = "\N{BULLET}"
_MESSAGE_ID = "msg_HalterWire"
_CALL_ID = "fc_HalterWire"
_ERROR_TYPES = {400: "invalid_request_error", 401: "authentication_error", 429: "rate_limit_error"}


class ResponsesAsk(Ask, frozen=True, kw_only=True):
    """A question, or what follows one. `after`: the last frame that the client has; `numbers`: of a call's frames."""

    id: str = "resp_HalterWire"
    background: bool = False
    after: int = -1
    numbers: Iterator[int] = msgspec.field(default_factory=lambda: count(ITEM_NUMBER))


class _Item(msgspec.Struct):
    type: str = "message"
    role: str = ""
    content: str | list[dict[str, Any]] | None = None

    @property
    def text(self) -> str:
        if isinstance(self.content, list):
            return "".join(str(part.get("text", "")) for part in self.content)
        return self.content or ""


class _Request(msgspec.Struct):
    model: str = "unnamed"
    input: str | list[_Item] = ""
    stream: bool | None = None
    background: bool | None = None

    @property
    def items(self) -> list[_Item]:
        return [_Item(role="user", content=self.input)] if isinstance(self.input, str) else self.input


_requests = msgspec.json.Decoder(_Request)
_ids = count(1)


class ResponsesFormat:
    """The `WireFormat` of `/v1/responses`; `of`: of what follows under `/v1/responses/{id}`."""

    def __init__(self, of: Literal["question", "rest", "cancel"] = "question") -> None:
        self._of: Literal["question", "rest", "cancel"] = of

    def __repr__(self) -> str:
        return f"<ResponsesFormat of a {self._of}>"

    def read(self, body: bytes) -> Ask:
        try:
            request = _requests.decode(body)
        except (msgspec.MsgspecError, UnicodeDecodeError) as error:
            raise AskError(f"the body is no responses request: {error}") from error
        prompts = [item.text for item in request.items if item.role == "user"]
        return ResponsesAsk(
            model=request.model,
            stream=bool(request.stream),
            wants_usage=True,
            prompt=prompts[-1] if prompts else "",
            has_tool_result=bool(request.items) and request.items[-1].type == "function_call_output",
            id=f"resp_HalterWire{next(_ids)}",
            background=bool(request.background),
        )

    def read_target(self, target: str) -> Ask | None:
        """What follows on a response, by its URL; `None` for a question. Raises `AskError`."""
        if self._of == "question":
            return None
        parts = urlsplit(target)
        query = parse_qs(parts.query)
        after = query.get("starting_after", ["-1"])[0]
        if not after.removeprefix("-").isdigit():
            raise AskError(f"starting_after must be a number, not {after!r}")
        return ResponsesAsk(
            model="resumed",
            stream=query.get("stream") == ["true"],
            follow_up=self._of,
            id=unquote(parts.path).partition("/v1/responses/")[2].partition("/")[0],
            background=True,
            after=int(after),
            first=max(0, int(after) - TOKEN_NUMBER + 1),
        )

    def opening(self, ask: Ask) -> bytes:
        known = _known(ask)
        statuses = ("created", "queued" if known.background else "in_progress")
        frames = [
            _frame(f"response.{status}", number, response=_response(known, "queued" if number else "in_progress", []))
            for number, status in enumerate(statuses)
            if number > known.after
        ]
        return b"".join(frames)

    def token_encoder(self, ask: Ask) -> Callable[[str], bytes]:
        # Only text and number differ between the tokens of a stream: the rest is encoded once.
        place = {"item_id": _MESSAGE_ID, "output_index": 0, "content_index": 0}
        frame = _frame("response.output_text.delta", 0, **place, delta=_MARK, logprobs=[])
        before, _, after = frame.partition(b'"sequence_number":0')
        between, _, after = after.partition(msgspec.json.encode(_MARK))
        numbers = count(TOKEN_NUMBER)
        encode = msgspec.json.encode

        def token(text: str) -> bytes:
            number = next(numbers)
            delta = b'%b"sequence_number":%d%b%b%b' % (before, number, between, encode(text), after)
            return _item_frames() + delta if number == TOKEN_NUMBER else delta

        return token

    def tool_fragment(self, ask: Ask, call_id: str, name: str, fragment: str, opens: bool) -> bytes:
        number = next(_known(ask).numbers)
        if opens:
            item = _call(call_id, name, "", "in_progress")
            return _frame("response.output_item.added", number, output_index=0, item=item)
        place = {"item_id": _CALL_ID, "output_index": 0}
        return _frame("response.function_call_arguments.delta", number, **place, delta=fragment)

    def finish(self, ask: Ask, reason: FinishReason, tokens: int) -> bytes:
        return self.recite(ask, Said(tokens=tokens), "")

    def recite(self, ask: Ask, said: Said, call_id: str) -> bytes:
        """The frames that tell all of it again."""
        known = _known(ask)
        end = _end_of(said)
        output = _output(said, call_id)
        numbers = known.numbers if said.tool is not None or not said.tokens else count(TOKEN_NUMBER + said.tokens)
        frames = [
            *_done_frames(said, numbers),
            *(
                _frame("response.output_item.done", next(numbers), output_index=index, item=item)
                for index, item in enumerate(output)
            ),
            _frame(f"response.{end}", next(numbers), response=_response(known, end, output, said.tokens)),
        ]
        return b"".join(frames)

    def done(self) -> bytes:
        return b""

    def error_frame(self) -> bytes:
        said = {"code": "server_error", "message": "The server had an error while processing your request."}
        return _frame("error", None, **said, param=None)

    def refusal(self, status: int, message: str) -> bytes:
        kind = _ERROR_TYPES.get(status, "server_error")
        code = "rate_limit_exceeded" if status == 429 else None
        return msgspec.json.encode({"error": {"message": message, "type": kind, "param": None, "code": code}})

    def whole(self, ask: Ask, said: Said, call_id: str, finished: bool) -> bytes:
        known = _known(ask)
        if self._of == "cancel":
            return msgspec.json.encode(_response(known, "cancelled", []))
        status = _end_of(said) if finished else "in_progress"
        return msgspec.json.encode(_response(known, status, _output(said, call_id), said.tokens))


def _end_of(said: Said) -> str:
    return "incomplete" if said.is_cut else "completed"


def _known(ask: Ask) -> ResponsesAsk:
    return ask if isinstance(ask, ResponsesAsk) else ResponsesAsk(model=ask.model)


def _response(
    ask: ResponsesAsk, status: str, output: list[dict[str, Any]], tokens: int | None = None
) -> dict[str, Any]:
    return {
        "id": ask.id,
        "object": "response",
        "created_at": int(time.time()),
        "status": status,
        "background": ask.background,
        "error": None,
        "incomplete_details": {"reason": "max_output_tokens"} if status == "incomplete" else None,
        "model": ask.model,
        "output": output,
        "parallel_tool_calls": True,
        "tool_choice": "auto",
        "tools": [],
        "usage": None if tokens is None else _usage(ask, tokens),
    }


def _usage(ask: Ask, tokens: int) -> dict[str, Any]:
    prompt = len(ask.prompt.split())
    return {
        "input_tokens": prompt,
        "input_tokens_details": {"cached_tokens": 0},
        "output_tokens": tokens,
        "output_tokens_details": {"reasoning_tokens": 0},
        "total_tokens": prompt + tokens,
    }


def _output(said: Said, call_id: str) -> list[dict[str, Any]]:
    if said.tool is not None:
        return [_call(call_id, said.tool, said.arguments, _end_of(said))]
    return [_message([_text("".join(said.text))], "completed")] if said.text else []


def _message(content: list[dict[str, Any]], status: str) -> dict[str, Any]:
    return {"id": _MESSAGE_ID, "type": "message", "status": status, "role": "assistant", "content": content}


def _text(text: str) -> dict[str, Any]:
    return {"type": "output_text", "annotations": [], "logprobs": [], "text": text}


def _call(call_id: str, name: str, arguments: str, status: str) -> dict[str, Any]:
    call = {"id": _CALL_ID, "type": "function_call", "status": status, "call_id": call_id}
    return call | {"name": name, "arguments": arguments}


def _item_frames() -> bytes:
    """What comes before the first token."""
    place = {"item_id": _MESSAGE_ID, "output_index": 0, "content_index": 0}
    item = _frame("response.output_item.added", ITEM_NUMBER, output_index=0, item=_message([], "in_progress"))
    return item + _frame("response.content_part.added", ITEM_NUMBER + 1, **place, part=_text(""))


def _done_frames(said: Said, numbers: Iterator[int]) -> Iterator[bytes]:
    if said.tool is not None:
        place: dict[str, Any] = {"item_id": _CALL_ID, "output_index": 0}
        told = {"name": said.tool, "arguments": said.arguments}
        yield _frame("response.function_call_arguments.done", next(numbers), **place, **told)
    elif said.text:
        place = {"item_id": _MESSAGE_ID, "output_index": 0, "content_index": 0}
        text = "".join(said.text)
        yield _frame("response.output_text.done", next(numbers), **place, text=text, logprobs=[])
        yield _frame("response.content_part.done", next(numbers), **place, part=_text(text))


def _frame(kind: str, number: int | None, **fields: Any) -> bytes:
    numbered = {} if number is None else {"sequence_number": number}
    return b"event: %b\ndata: %b\n\n" % (kind.encode(), msgspec.json.encode({"type": kind} | numbered | fields))
