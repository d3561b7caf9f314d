"""A model's deltas become one whole message. Pure: no clock, no event.

1. Parts keep the order in which they began. 2. Tool-call fragments are keyed by index, then by id; they may be
interleaved. 3. `message()` may be called at any time: what arrived so far, and nothing invented.
"""

from __future__ import annotations

from typing import Any

from halter.messages import Message, Opaque, Part, Reasoning, Refusal, Text, ToolCall, Usage


class CallFragments:
    """One tool call while it is being streamed."""

    __slots__ = ("id", "name", "pieces")

    def __init__(self) -> None:
        self.id = ""
        self.name = ""
        self.pieces: list[str] = []

    def whole(self) -> ToolCall:
        return ToolCall(self.id, self.name, "".join(self.pieces))


class Pieces:
    """Text of one kind while it is being streamed."""

    __slots__ = ("kind", "pieces")

    def __init__(self, kind: type[Text | Reasoning | Refusal]) -> None:
        self.kind = kind
        self.pieces: list[str] = []

    def whole(self) -> Part:
        return self.kind("".join(self.pieces))


class Assembly:
    """One assistant message while it is being streamed."""

    __slots__ = ("_by_kind", "_calls", "_parts", "finish_reason", "usage")

    def __init__(self) -> None:
        self._parts: list[Pieces | CallFragments | Opaque] = []
        self._by_kind: dict[type, Pieces] = {}
        self._calls: dict[int | str, CallFragments] = {}
        self.finish_reason: str | None = None
        self.usage: Usage | None = None

    def pieces(self, kind: type[Text | Reasoning | Refusal]) -> list[str]:
        """The list to append text of this kind to."""
        found = self._by_kind.get(kind)
        if found is None:
            found = self._by_kind[kind] = Pieces(kind)
            self._parts.append(found)
        return found.pieces

    def call(self, key: int | str) -> CallFragments:
        """The tool call with this index or id; begun if it is new."""
        found = self._calls.get(key)
        if found is None:
            found = self._calls[key] = CallFragments()
            self._parts.append(found)
        return found

    @property
    def calls(self) -> list[CallFragments]:
        return list(self._calls.values())

    def carry(self, provider: str, data: Any) -> None:
        """Keeps something that `provider` needs back unchanged."""
        self._parts.append(Opaque(provider, data))

    @property
    def is_empty(self) -> bool:
        return not self._parts

    def characters(self) -> int:
        """How much text of all kinds has arrived."""
        lists = (part.pieces for part in self._parts if not isinstance(part, Opaque))
        return sum(len(piece) for pieces in lists for piece in pieces)

    def message(self, *, interrupted: bool = False) -> Message:
        parts = tuple(part if isinstance(part, Opaque) else part.whole() for part in self._parts)
        return Message(
            "assistant",
            parts,
            interrupted=interrupted,
            finish_reason=self.finish_reason,
            usage=self.usage,
        )
