"""What is said: messages, their parts, and what they cost.

All of it is frozen data. A part that only its provider understands (signatures, encrypted reasoning, server-tool
blocks) is an `Opaque`: carried unchanged to the next turn and never interpreted. No cycle can be made of frozen data:
the garbage collector is spared the many that a long conversation has (`gc=False`).
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any, Literal, TypeAlias, cast

import msgspec

from halter.errors import ConfigurationError

Role: TypeAlias = Literal["system", "developer", "user", "assistant", "tool"]
ROLES = frozenset(("system", "developer", "user", "assistant", "tool"))


PAUSED = "pause_turn"  # the finish reason of an answer that is not whole: asked again, its provider goes on with it


class Usage(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """Tokens, as the provider counts them; `estimated` when part of it is our own count (after a stop)."""

    input: int = 0
    output: int = 0
    cached: int = 0
    reasoning: int = 0
    estimated: bool = False

    @property
    def total(self) -> int:
        return self.input + self.output

    def __add__(self, other: Usage) -> Usage:
        return Usage(
            input=self.input + other.input,
            output=self.output + other.output,
            cached=self.cached + other.cached,
            reasoning=self.reasoning + other.reasoning,
            estimated=self.estimated or other.estimated,
        )


class Text(msgspec.Struct, frozen=True, tag="text", gc=False):
    """Words for the reader."""

    text: str


class Reasoning(msgspec.Struct, frozen=True, tag="reasoning", gc=False):
    """The model's thinking, as far as the provider shows it."""

    text: str


class Refusal(msgspec.Struct, frozen=True, tag="refusal", gc=False):
    """The model declined, in its own words."""

    text: str


class ToolCall(msgspec.Struct, frozen=True, tag="tool_call", gc=False, omit_defaults=True):
    """A call that the model asks for. `arguments`: the JSON text exactly as the model wrote it.

    `incomplete`: the answer was cut off before the arguments were complete; the call does not run.
    """

    id: str
    name: str
    arguments: str
    incomplete: bool = False


class Image(msgspec.Struct, frozen=True, tag="image"):
    """A picture: its bytes, or a URL that the provider fetches. Raises `ConfigurationError` for neither or both.

    `media_type`: as in `image/png`; found from the bytes if it is left out. `detail`: `low`, `high` or `auto`, where
    a provider has it.
    """

    data: bytes | None = None
    url: str | None = None
    media_type: str | None = None
    detail: str | None = None

    def __post_init__(self) -> None:
        _one_of("an Image", data=self.data, url=self.url)
        if self.data is not None and self.media_type is None:
            kind = next((kind for begin, kind in _IMAGES if self.data.startswith(begin)), None)
            if kind is None:
                raise ConfigurationError("give the Image's media_type: its bytes are no PNG, JPEG, GIF or WebP")
            msgspec.structs.force_setattr(self, "media_type", kind)


_IMAGES = (
    (b"\x89PNG", "image/png"),
    (b"\xff\xd8\xff", "image/jpeg"),
    (b"GIF8", "image/gif"),
    (b"RIFF", "image/webp"),
)


class File(msgspec.Struct, frozen=True, tag="file"):
    """A document: its bytes, a URL that the provider fetches, or the `id` of a file that it has already.

    `name`: as the model sees it. `media_type`: of the bytes, as in `application/pdf`. Raises `ConfigurationError`
    unless exactly one of the three is given.
    """

    data: bytes | None = None
    url: str | None = None
    id: str | None = None
    name: str | None = None
    media_type: str = "application/pdf"

    def __post_init__(self) -> None:
        _one_of("a File", data=self.data, url=self.url, id=self.id)


def _one_of(what: str, **given: object) -> None:
    if sum(value is not None for value in given.values()) != 1:
        raise ConfigurationError(f"{what} takes exactly one of {', '.join(given)}")


class ToolResult(msgspec.Struct, frozen=True, tag="tool_result", gc=False):
    """The result of the call with the id `call_id`. `attachments`: images and files that the tool returned."""

    call_id: str
    content: str
    is_error: bool = False
    attachments: tuple[Image | File, ...] = ()


class Opaque(msgspec.Struct, frozen=True, tag="opaque"):
    """Something that only `provider` understands and needs back unchanged."""

    provider: str
    data: Any


Part: TypeAlias = Text | Reasoning | Refusal | Image | File | ToolCall | ToolResult | Opaque


class Message(msgspec.Struct, frozen=True, gc=False):
    """One message of a conversation.

    `interrupted`: it was cut off by a stop or a failure; its parts are what arrived before.
    `finish_reason`: the provider's own word (`stop`, `length`, `tool_calls`, …), `None` if it gave none.
    `model`: the model that wrote it, as in `openai:gpt-5.2`; `None` for what no model has written.
    Raises `ConfigurationError` for a role that does not exist.
    """

    role: Role
    parts: tuple[Part, ...]
    name: str | None = None
    interrupted: bool = False
    finish_reason: str | None = None
    usage: Usage | None = None
    model: str | None = None

    def __post_init__(self) -> None:
        if self.role not in ROLES:
            raise ConfigurationError(f"role {self.role!r} is none of {', '.join(sorted(ROLES))}")

    @classmethod
    def system(cls, text: str) -> Message:
        return cls("system", (Text(text),))

    @classmethod
    def user(cls, *content: str | Image | File, name: str | None = None) -> Message:
        """Text, images and files, in this order."""
        return cls("user", tuple(Text(part) if isinstance(part, str) else part for part in content), name)

    @classmethod
    def assistant(cls, text: str) -> Message:
        return cls("assistant", (Text(text),))

    @property
    def text(self) -> str:
        return "".join(part.text for part in self.parts if isinstance(part, Text))

    @property
    def reasoning(self) -> str:
        return "".join(part.text for part in self.parts if isinstance(part, Reasoning))

    @property
    def refusal(self) -> str:
        return "".join(part.text for part in self.parts if isinstance(part, Refusal))

    @property
    def tool_calls(self) -> tuple[ToolCall, ...]:
        return tuple(part for part in self.parts if isinstance(part, ToolCall))


_TEXTS: dict[type, tuple[str, ...]] = {  # the fields of each part that must be text
    Text: ("text",),
    Reasoning: ("text",),
    Refusal: ("text",),
    ToolCall: ("id", "name", "arguments"),
    ToolResult: ("call_id", "content"),
    Image: (),
    File: (),
    Opaque: ("provider",),
}


def checked_message(given: Any) -> Message:
    """The value, if it is a message whose parts are what they must be. Raises `ConfigurationError`."""
    if not isinstance(given, Message):
        raise ConfigurationError(f"expected a Message such as Message.user(text), not {type(given).__name__}")
    if not isinstance(given.parts, tuple):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise ConfigurationError(f"a message's parts must be a tuple, not {type(given.parts).__name__}")
    for part in given.parts:
        fields = _TEXTS.get(type(part))
        if fields is None:
            raise ConfigurationError(f"a message is made of parts such as Text, not of {type(part).__name__}")
        for field in fields:
            if not isinstance(getattr(part, field), str):
                found = type(getattr(part, field)).__name__
                raise ConfigurationError(f"{field} of a {type(part).__name__} must be text, not {found}")
        if isinstance(part, ToolResult) and not _are_attachments(part.attachments):
            raise ConfigurationError("attachments of a ToolResult must be a tuple of Image and File")
    if given.usage is not None:
        checked_usage(given.usage)
    return given


def _are_attachments(given: Any) -> bool:
    return given == () or (
        isinstance(given, tuple) and all(isinstance(each, Image | File) for each in cast("tuple[Any, ...]", given))
    )


def checked_usage(given: Any) -> Usage:
    """The value, if it is a usage that counts in numbers. Raises `ConfigurationError`."""
    if not isinstance(given, Usage):
        raise ConfigurationError(f"usage must be a halter.Usage, not {type(given).__name__}")
    for count in (given.input, given.output, given.cached, given.reasoning):
        if not isinstance(count, int | float):
            raise ConfigurationError(f"usage counts in numbers, not in {type(count).__name__}")
        if not 0 <= count < math.inf:
            raise ConfigurationError(f"usage counts tokens, 0 or more, not {count!r}")
    return given


MessageInput: TypeAlias = str | Message | Iterable[Message]


def as_messages(given: MessageInput) -> tuple[Message, ...]:
    """Text, a message, or several, as a tuple of messages; text is the user's.

    Raises `ConfigurationError` for anything else, and for text or a list that is empty.
    """
    if isinstance(given, str):
        given = Message.user(given) if given.strip() else ()
    if isinstance(given, Message):
        return (checked_message(given),)
    messages = tuple(given) if isinstance(given, Iterable) else ()
    if not messages or not all(isinstance(message, Message) for message in messages):
        what = "empty" if not given else type(given).__name__
        raise ConfigurationError(f"the input must be text, a Message or a list of Messages, not {what}")
    for message in messages:
        checked_message(message)
    return messages
