"""What every provider wants of a conversation, whatever its words for it."""

from __future__ import annotations

import re
from base64 import b64encode
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from collections.abc import Set as AbstractSet
from typing import NamedTuple

from halter.errors import ConfigurationError
from halter.messages import File, Image, Message, Opaque, ToolResult

_DATA_URL = re.compile(r"data:([^;,]*)(?:;[^,]*)?;base64,(.*)", re.DOTALL | re.IGNORECASE)


class Paired(NamedTuple):
    """A message, and the ids of those of its calls whose results are the next message."""

    message: Message
    answered: AbstractSet[str] = frozenset()


def calls_in(message: Message) -> Iterable[str]:
    """The ids of its tool calls."""
    return (call.id for call in message.tool_calls)


def paired(messages: Sequence[Message], calls_of: Callable[[Message], Iterable[str]] = calls_in) -> list[Paired]:
    """The conversation with the results of an answer's calls directly behind it, in one message, wherever they stood.

    Anything else is refused with 400: a call without its result, a result before its call or without one, or a second
    one. An id may be used again: a result is that of the last call before it. `calls_of`: the ids of all calls in an
    answer, where it has others than tool calls.
    """
    answers: list[tuple[Message, list[ToolResult]]] = []
    waiting: dict[str, list[list[ToolResult]]] = {}  # for each call without a result, where that belongs
    for message in messages:
        results: list[ToolResult] = []
        answers.append((message, results))
        if message.role == "assistant":
            waiting |= {id: [results] * number for id, number in Counter(calls_of(message)).items()}
        for result in _results_in(message):
            if waiting.get(result.call_id):
                waiting[result.call_id].pop().append(result)
    return [each for message, results in answers for each in _with_results(message, results)]


def _results_in(message: Message) -> Iterator[ToolResult]:
    return (part for part in message.parts if isinstance(part, ToolResult) and message.role == "tool")


def _with_results(message: Message, results: list[ToolResult]) -> Iterator[Paired]:
    if message.role == "tool":  # its results stand behind their calls
        rest = tuple(part for part in message.parts if not isinstance(part, ToolResult))
        if rest:
            yield Paired(Message("tool", rest))
        return
    yield Paired(message, {result.call_id for result in results})
    if results:
        yield Paired(Message("tool", tuple(results)))


def is_theirs(part: object, provider: str) -> bool:
    """Whether this is an `Opaque` that `provider` has made, and gets back."""
    return isinstance(part, Opaque) and part.provider == provider


def instructions(messages: Sequence[Message]) -> tuple[str, Sequence[Message]]:
    """The system and developer text, for providers that take it apart from the conversation; and the rest."""
    texts = [message.text for message in messages if message.role in ("system", "developer")]
    return "\n\n".join(filter(None, texts)), [m for m in messages if m.role not in ("system", "developer")]


def data_url(media_type: str, data: bytes) -> str:
    """The bytes as a `data:` URL (RFC 2397)."""
    return f"data:{media_type};base64,{base64_of(data)}"


def inline_data(part: Image | File) -> tuple[str, str] | None:
    """The media type and the base64 text of what is sent along: bytes, or a `data:` URL. `None`: it is fetched.

    Raises `ConfigurationError` for a `data:` URL that is not in base64.
    """
    if part.data is not None:
        return part.media_type or "", base64_of(part.data)
    if part.url is None or part.url[:5].lower() != "data:":
        return None
    found = _DATA_URL.fullmatch(part.url)
    if found is None:
        raise ConfigurationError("a data: URL must be in base64, as in data:image/png;base64,…: else give the data")
    return found[1] or part.media_type or "", found[2]


def base64_of(data: bytes) -> str:
    return b64encode(data).decode()
