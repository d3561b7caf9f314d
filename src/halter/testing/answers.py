"""What a provider in memory answers: `Answer`, and the usual good and bad answers of an OpenAI chat stream.

The format: https://platform.openai.com/docs/api-reference/chat-streaming
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, TypeAlias

import msgspec

from halter.errors import ConnectionFailed

HANG: Final = math.inf
"""A delay that never ends."""

Delay: TypeAlias = float | Exception
Piece: TypeAlias = tuple[float, bytes] | Exception

EVENT_STREAM: Final[Mapping[str, str]] = {"content-type": "text/event-stream; charset=utf-8"}
JSON: Final[Mapping[str, str]] = {"content-type": "application/json"}
_ERROR_TYPES = {400: "invalid_request_error", 401: "invalid_request_error", 429: "rate_limit_error"}


@dataclass(frozen=True, kw_only=True)
class Answer:
    """One scripted answer.

    `pool`, `connect`, `head`: seconds until there is a slot in the pool, a connection, the answer's head;
    `HANG`: never; an exception: it fails with that. `body`: one `(seconds, bytes)` for each read, the
    seconds counted from the one before; `(HANG, b"")` never comes; an exception is raised in its place. What
    takes 0 seconds is there at once: reading it does not give up control.
    """

    status: int = 200
    headers: Mapping[str, str] = field(default_factory=lambda: EVENT_STREAM)
    pool: Delay = 0.0
    connect: Delay = 0.0
    head: Delay = 0.0
    body: tuple[Piece, ...] = ()

    def __post_init__(self) -> None:
        for delay in (self.pool, self.connect, self.head, *(p[0] for p in self.body if isinstance(p, tuple))):
            if not isinstance(delay, Exception) and not delay >= 0:
                raise ValueError(f"a delay is 0 seconds or more, HANG, or an exception, not {delay!r}")

    @property
    def payload(self) -> bytes:
        """The whole body, up to where it hangs or fails."""
        return b"".join(_reads(self.body))


def _reads(body: tuple[Piece, ...]) -> Iterator[bytes]:
    for piece in body:
        if isinstance(piece, Exception) or piece[0] == HANG:
            return
        yield piece[1]


# -- OpenAI chat: answers that end well


def chat_stream(
    tokens: int | str | Iterable[str] = 20,
    every: float = 0.01,
    *,
    first: float | None = None,
    head: float = 0.0,
    finish: str = "stop",
    usage: tuple[int, int] | None = None,
    model: str = "memory",
) -> Answer:
    """A whole stream: the role, a chunk for each token, the finish reason, `[DONE]`.

    `tokens`: as they are; of a text, its words; of a number, `t0 `, `t1 ` … `every`: seconds between two of
    them; `first`: before the first one (None: `every`). `head`: seconds until the head. `usage`: prompt and
    completion tokens, told in a chunk of their own behind the finish reason; None: not told.
    """
    end = [_frame(_chunk(model, {}, finish))]
    if usage is not None:
        end.append(_frame({**_head(model), "choices": [], "usage": _usage(*usage)}))
    end.append(b"data: [DONE]\n\n")
    return Answer(head=head, body=(*_tokens(tokens, every, first, model), (0.0, b"".join(end))))


# -- OpenAI chat: answers that do not


def stalled(k: int = 1, every: float = 0.01) -> Answer:
    """The head and `k` tokens, then silence for ever."""
    return Answer(body=(*_tokens(k, every), (HANG, b"")))


def no_head() -> Answer:
    """The request is taken, and never answered."""
    return Answer(head=HANG)


def no_slot() -> Answer:
    """The pool is full, and stays so: no connection is made."""
    return Answer(pool=HANG)


def error_status(
    status: int, *, retry_after: float | str | None = None, message: str = "scripted", after: float = 0.0
) -> Answer:
    """An error instead of a stream, `after` seconds. `retry_after`: seconds, or an HTTP date as text."""
    told = {} if retry_after is None else {"retry-after": _number(retry_after)}
    return Answer(
        status=status,
        headers={**JSON, **told},
        head=after,
        body=((0.0, msgspec.json.encode(_error(status, message))),),
    )


def error_frame(k: int = 3, every: float = 0.01, *, message: str = "scripted") -> Answer:
    """`k` tokens, then an error frame inside the 200 stream, then its end."""
    return Answer(body=(*_tokens(k, every), (every, _frame(_error(500, message)))))


def cut(k: int = 3, every: float = 0.01, error: Exception | None = None) -> Answer:
    """`k` tokens and half a frame, then the connection breaks: `error` (None: a `ConnectionFailed`)."""
    half = _frame(_chunk("memory", {"content": "never whole"}))[:-20]
    broken = error or ConnectionFailed("the connection broke within the body")
    return Answer(body=(*_tokens(k, every), (every, half), broken))


def eof(k: int = 3, every: float = 0.01) -> Answer:
    """`k` tokens, then a clean end of the body: no finish reason, no `[DONE]`."""
    return Answer(body=_tokens(k, every))


# -- frames


def _tokens(
    tokens: int | str | Iterable[str], every: float, first: float | None = None, model: str = "memory"
) -> tuple[Piece, ...]:
    role = _frame(_chunk(model, {"role": "assistant", "content": "", "refusal": None}))
    said = [_frame(_chunk(model, {"content": token})) for token in _words(tokens)]
    delays = [every if first is None or index else first for index in range(len(said))]
    return ((0.0, role), *zip(delays, said, strict=True))


def _words(tokens: int | str | Iterable[str]) -> list[str]:
    if isinstance(tokens, int):
        return [f"t{index} " for index in range(tokens)]
    return re.findall(r"\s*\S+\s*", tokens) if isinstance(tokens, str) else list(tokens)


def _head(model: str) -> dict[str, Any]:
    return {"id": "chatcmpl-memory", "object": "chat.completion.chunk", "created": 0, "model": model}


def _chunk(model: str, delta: dict[str, Any], reason: str | None = None) -> dict[str, Any]:
    choice = {"index": 0, "delta": delta, "logprobs": None, "finish_reason": reason}
    return {**_head(model), "choices": [choice]}


def _usage(prompt: int, completion: int) -> dict[str, Any]:
    return {
        "prompt_tokens": prompt,
        "completion_tokens": completion,
        "total_tokens": prompt + completion,
        "prompt_tokens_details": {"cached_tokens": 0},
        "completion_tokens_details": {"reasoning_tokens": 0},
    }


def _error(status: int, message: str) -> dict[str, Any]:
    kind = _ERROR_TYPES.get(status, "server_error" if status >= 500 else "invalid_request_error")
    code = "rate_limit_exceeded" if status == 429 else None
    return {"error": {"message": message, "type": kind, "param": None, "code": code}}


def _frame(content: dict[str, Any]) -> bytes:
    return b"data: " + msgspec.json.encode(content) + b"\n\n"


def _number(value: float | str) -> str:
    return value if isinstance(value, str) else f"{value:g}"
