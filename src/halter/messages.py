"""What is said: messages, their parts, and what they cost.

All of it is frozen data. A part that only its provider understands (signatures, encrypted reasoning, server-tool
blocks) is an `Opaque`: carried unchanged to the next turn and never interpreted.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Literal, TypeAlias

import msgspec

from halter.errors import ConfigurationError

Role: TypeAlias = Literal["system", "user", "assistant", "tool"]
ROLES = frozenset(("system", "user", "assistant", "tool"))


class Usage(msgspec.Struct, frozen=True, kw_only=True):
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


class Text(msgspec.Struct, frozen=True, tag="text"):
    """Words for the reader."""

    text: str


class Reasoning(msgspec.Struct, frozen=True, tag="reasoning"):
    """The model's thinking, as far as the provider shows it."""

    text: str


class Refusal(msgspec.Struct, frozen=True, tag="refusal"):
    """The model declined, in its own words."""

    text: str


class ToolCall(msgspec.Struct, frozen=True, tag="tool_call"):
    """A call that the model asks for. `arguments`: the JSON text exactly as the model wrote it."""

    id: str
    name: str
    arguments: str


class ToolResult(msgspec.Struct, frozen=True, tag="tool_result"):
    """What came of the call with the id `call_id`."""

    call_id: str
    content: str
    is_error: bool = False


class Opaque(msgspec.Struct, frozen=True, tag="opaque"):
    """Something that only `provider` understands and needs back unchanged."""

    provider: str
    data: Any


Part: TypeAlias = Text | Reasoning | Refusal | ToolCall | ToolResult | Opaque


class Message(msgspec.Struct, frozen=True):
    """One message of a conversation.

    `interrupted`: it was cut off by a stop or a failure; its parts are what arrived before.
    `finish_reason`: the provider's own word (`stop`, `length`, `tool_calls`, …), `None` if it gave none.
    Raises `ConfigurationError` for a role that does not exist.
    """

    role: Role
    parts: tuple[Part, ...]
    name: str | None = None
    interrupted: bool = False
    finish_reason: str | None = None
    usage: Usage | None = None

    def __post_init__(self) -> None:
        if self.role not in ROLES:
            raise ConfigurationError(f"role {self.role!r} is none of {', '.join(sorted(ROLES))}")

    @classmethod
    def system(cls, text: str) -> Message:
        return cls("system", (Text(text),))

    @classmethod
    def user(cls, text: str, *, name: str | None = None) -> Message:
        return cls("user", (Text(text),), name)

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


MessageInput: TypeAlias = str | Message | Iterable[Message]


def as_messages(given: MessageInput) -> tuple[Message, ...]:
    """Text, a message, or several, as a tuple of messages; text is the user's.

    Raises `ConfigurationError` for anything else, and for text or a list that is empty.
    """
    if isinstance(given, str):
        given = Message.user(given) if given.strip() else ()
    if isinstance(given, Message):
        return (given,)
    messages = tuple(given) if isinstance(given, Iterable) else ()
    if not messages or not all(isinstance(message, Message) for message in messages):
        what = "empty" if not given else type(given).__name__
        raise ConfigurationError(f"the input must be text, a Message or a list of Messages, not {what}")
    return messages


class ModelRequest(msgspec.Struct, frozen=True, kw_only=True):
    """What a model is asked: the whole conversation, oldest first.

    `max_output_tokens`: an upper bound for this answer, or `None` for the provider's own.
    """

    messages: tuple[Message, ...]
    max_output_tokens: int | None = None
