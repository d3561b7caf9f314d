"""What every provider wants of a conversation, whatever its words for it."""

from __future__ import annotations

import re
from base64 import b64encode
from collections.abc import Callable, Sequence

import msgspec

from halter.errors import ConfigurationError
from halter.messages import File, Image, Message, Opaque, ToolResult
from halter.models.prices import family_of
from halter.request import ModelRequest

LONGEST_NAME = 64
_NOT_IN_A_NAME = re.compile(r"[^a-zA-Z0-9_-]")
_DATA_URL = re.compile(r"data:([^;,]*)(?:;[^,]*)?;base64,(.*)", re.DOTALL | re.IGNORECASE)


def tool_name(name: str) -> str:
    """The name of a tool that a model has called, as providers take it back: models invent some that are refused."""
    return _NOT_IN_A_NAME.sub("_", name)[:LONGEST_NAME] or "unknown"


def is_theirs(part: object, provider: str) -> bool:
    """Whether this is an `Opaque` that `provider` has made, and gets back."""
    return isinstance(part, Opaque) and part.provider == provider


def with_own_reasoning(
    request: ModelRequest, model: str, is_bound: Callable[[Opaque], bool], *, reasons: bool
) -> ModelRequest:
    """The request without the signed or encrypted reasoning of other models, which this one would refuse.

    Args:
        request: Its messages say which model made them, as far as that is known.
        model: The name of the model that is asked, as in `openai:gpt-5.2`.
        is_bound: Whether only the model that made this part takes it back.
        reasons: Whether it takes the reasoning of messages that do not say which model made them.
    """
    family = family_of(model)

    def cleaned(message: Message) -> Message:
        is_own = reasons if message.model is None else family_of(message.model) == family
        if is_own or message.role != "assistant":
            return message
        kept = tuple(part for part in message.parts if not (isinstance(part, Opaque) and is_bound(part)))
        return message if len(kept) == len(message.parts) else msgspec.structs.replace(message, parts=kept)

    messages = tuple(map(cleaned, request.messages))
    is_same = all(new is old for new, old in zip(messages, request.messages, strict=True))
    return request if is_same else msgspec.structs.replace(request, messages=messages)


def instructions(messages: Sequence[Message]) -> tuple[str, Sequence[Message]]:
    """The system and developer text, for providers that take it apart from the conversation; and the rest."""
    texts = [message.text for message in messages if message.role in ("system", "developer")]
    return "\n\n".join(filter(None, texts)), [m for m in messages if m.role not in ("system", "developer")]


def attached_to(result: ToolResult, tool: str) -> str:
    """Stands before the attachments of a result, where a format has no place for them in the result itself."""
    return f"Attached to the result of {tool} (call {result.call_id}):"


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
