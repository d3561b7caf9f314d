"""A model's deltas become one whole message. Pure: no clock, no event.

1. Parts keep the order in which they began. 2. Tool-call fragments are keyed by index, then by id; they may be
interleaved. 3. `message()` may be called at any time: what arrived so far, and nothing invented. 4. Calls whose
arguments were cut off are marked, by one rule for all formats (`complete_calls.py`).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from halter.core.complete_calls import is_object, was_cut_off
from halter.messages import Message, Opaque, Part, Reasoning, Refusal, Text, ToolCall, Usage, checked_usage


class CallFragments:
    """One tool call while it is being streamed."""

    __slots__ = ("id", "incomplete", "name", "pieces")

    def __init__(self) -> None:
        self.id = ""
        self.name = ""
        self.pieces: list[str] = []
        self.incomplete = False  # the provider says so

    def whole(self, *, was_cut: bool) -> ToolCall:
        """The call as far as it came. `was_cut`: its answer was cut off, perhaps within it."""
        arguments = "".join(self.pieces)
        return ToolCall(self.id, self.name, arguments, self.incomplete or (was_cut and not is_object(arguments)))


class Pieces:
    """Text of one kind while it is being streamed: all of that kind in one list, of which this part is a stretch."""

    __slots__ = ("all", "begin", "end", "kind")

    def __init__(self, kind: type[Text | Reasoning | Refusal], pieces: list[str]) -> None:
        self.kind = kind
        self.all = pieces
        self.begin = len(pieces)
        self.end: int | None = None

    @property
    def pieces(self) -> list[str]:
        return self.all[self.begin : self.end]

    def whole(self) -> Part:
        return self.kind("".join(self.pieces))


class Assembly:
    """One assistant message while it is being streamed."""

    __slots__ = ("_calls", "_open", "_parts", "_pieces", "_usage", "finish_reason", "model", "on_count")

    def __init__(self) -> None:
        self._parts: list[Pieces | CallFragments | Opaque] = []
        self._open: dict[type, Pieces] = {}
        self._pieces: dict[type, list[str]] = {}
        self._calls: dict[int | str, CallFragments] = {}
        self.finish_reason: str | None = None
        self.model: str | None = None  # that writes it
        self.on_count: Callable[[Usage], None] | None = None  # told when the provider counts
        self._usage: Usage | None = None

    @property
    def usage(self) -> Usage | None:
        """The provider's last count."""
        return self._usage

    @usage.setter
    def usage(self, usage: Usage | None) -> None:
        self._usage = None if usage is None else checked_usage(usage)
        if self.on_count is not None and usage is not None:
            self.on_count(usage)

    def pieces(self, kind: type[Text | Reasoning | Refusal]) -> list[str]:
        """The list to append text of this kind to; the same for all parts of a message."""
        found = self._open.get(kind)
        if found is None:
            found = self._open[kind] = Pieces(kind, self._pieces.setdefault(kind, []))
            self._parts.append(found)
        return found.all

    def end_pieces(self) -> None:
        """What text comes next begins a part of its own."""
        for part in self._open.values():
            part.end = len(part.all)
        self._open.clear()

    def call(self, key: int | str) -> CallFragments:
        """The tool call with this index or id; begun if it is new."""
        found = self._calls.get(key)
        if found is None:
            found = self._calls[key] = CallFragments()
            self._parts.append(found)
        return found

    @property
    def calls_begun(self) -> int:
        return len(self._calls)

    def carry(self, provider: str, data: Any) -> None:
        """Keeps something that `provider` needs back unchanged."""
        self._parts.append(Opaque(provider, data))

    @property
    def is_empty(self) -> bool:
        return not self._parts

    def message(self, *, interrupted: bool = False) -> Message:
        was_cut = was_cut_off(self.finish_reason)
        parts = tuple(_whole(part, was_cut=was_cut) for part in self._parts)
        return Message(
            "assistant",
            parts,
            interrupted=interrupted,
            finish_reason=self.finish_reason,
            usage=self.usage,
            model=self.model,
        )


def _whole(part: Pieces | CallFragments | Opaque, *, was_cut: bool) -> Part:
    if isinstance(part, Opaque):
        return part
    return part.whole(was_cut=was_cut) if isinstance(part, CallFragments) else part.whole()
