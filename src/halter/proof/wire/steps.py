"""What a provider can do next, as data: a script is an iterator of these, and the player performs it.

`at` is seconds since the answer began. Steps know neither the wire format nor whether the client asked
to stream.
"""

from collections.abc import Callable, Iterator
from typing import Literal

import msgspec

Words = Callable[[int], str]
Style = Literal["plain", "crlf", "one-byte"]
Delivery = Literal["as asked", "stream", "whole"]


class Open(msgspec.Struct, frozen=True):
    """Send the response's head and whatever precedes the first token; `bare`: the head alone."""

    at: float = 0.0
    bare: bool = False


class Say(msgspec.Struct, frozen=True):
    """Send the words `first` … `first + count - 1`, one token each."""

    at: float
    first: int
    count: int = 1


class CallTool(msgspec.Struct, frozen=True):
    """Send one fragment of a tool call's arguments; the one that `opens` names the tool."""

    at: float
    name: str
    fragment: str
    opens: bool


class Replay(msgspec.Struct, frozen=True):
    """Send recorded bytes as they are."""

    at: float
    data: bytes


class Refuse(msgspec.Struct, frozen=True):
    """Answer with an error status instead of a stream."""

    status: int
    retry_after: float | None = None
    at: float = 0.0


class Fail(msgspec.Struct, frozen=True):
    """Send an error frame inside the stream."""

    at: float


class End(msgspec.Struct, frozen=True):
    """End the answer: with or without the finish reason, the terminal frame, the end of the HTTP body.

    `is_cut`: by its length, in the middle of what it was saying.
    """

    at: float
    finish: bool = True
    done: bool = True
    body: bool = True
    close: bool = False
    is_cut: bool = False


class Cut(msgspec.Struct, frozen=True):
    """Send half a frame, then FIN."""

    at: float


class Reset(msgspec.Struct, frozen=True):
    """Send RST, once everything before has left."""

    at: float


class Hush(msgspec.Struct, frozen=True):
    """Send nothing more, for ever."""

    at: float = 0.0


Step = Open | Say | CallTool | Replay | Refuse | Fail | End | Cut | Reset | Hush
Steps = Iterator[Step]


def counted_words(index: int) -> str:
    """The default tokens, `t0 `, `t1 ` …, which show order and loss."""
    return f"t{index} "


class Script(msgspec.Struct, frozen=True):
    """One answer: its steps, the words that `Say` means, and how it is to be put on the wire."""

    steps: Steps
    words: Words = counted_words
    style: Style = "plain"
    delivery: Delivery = "as asked"
