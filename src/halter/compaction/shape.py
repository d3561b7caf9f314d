"""Where a conversation may be cut: between turns and between steps, never through what belongs together. Pure."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Sequence
from itertools import accumulate
from typing import Final

from halter.messages import Message, ToolResult

BEGINNING: Final = "[Summary of the earlier conversation, which is not shown any more."
INSTRUCTIONS: Final = ("system", "developer")


def is_summary(message: Message) -> bool:
    """Whether this is what an earlier compaction has put there."""
    return message.role == "user" and message.text.startswith(BEGINNING)


def begins_with_summary(messages: Sequence[Message]) -> bool:
    """Whether an earlier compaction has left this."""
    first = next((message for message in messages if message.role not in INSTRUCTIONS), None)
    return first is not None and is_summary(first)


def is_said(message: Message) -> bool:
    """Whether a user has said it."""
    return message.role == "user" and not is_summary(message)


class Shape:
    """Turns begin with what a user says; steps, inside of them, with an answer that follows the results of tools.

    `begun`: where what this run was given begins, which is a turn of its own, also behind what was never answered.
    `protected`: where the newest `keep_turns` turns begin. `newest_step`: where the newest step of the newest turn
    begins.
    """

    def __init__(self, messages: Sequence[Message], keep_turns: int, begun: int | None = None) -> None:
        self.messages = messages
        self._begun = begun
        self.starts = [at for at in range(len(messages)) if self._begins_turn(at)]
        newest = self.starts[-1] if self.starts else 0
        self.protected = self.starts[-keep_turns] if len(self.starts) > keep_turns else (*self.starts, 0)[0]
        steps = [at for at in range(newest + 1, len(messages)) if self._begins_step(at)]
        self.newest_step = steps[-1] if steps else newest
        self._parts = _parted_by_a_cut(messages)

    def cuts(self, upto: int) -> Iterator[int]:
        """Where it may be cut, up to there: between turns, and inside the protected ones also between steps."""
        for at in range(1, upto + 1):
            is_step = at > self.protected and self._begins_step(at)
            if not self._parts[at] and (is_step or self._begins_turn(at)):
                yield at

    def turn_of(self, at: int) -> int:
        """Where the turn begins that a cut there is inside of; `at` itself if it is inside of none."""
        place = bisect_left(self.starts, at)
        if place < len(self.starts) and self.starts[place] == at:
            return at
        return self.starts[place - 1] if place else at

    def kept_from(self, at: int) -> int:
        """From where on what users said stays, of what stands before a cut there: what this run was told always."""
        begin = self.turn_of(at)
        return begin if self._begun is None else min(begin, self._begun)

    def _begins_turn(self, at: int) -> bool:
        is_first = at in (0, self._begun) or not is_said(self.messages[at - 1])
        return is_first and is_said(self.messages[at])

    def _begins_step(self, at: int) -> bool:
        return self.messages[at].role == "assistant" and self.messages[at - 1].role == "tool"


def _parted_by_a_cut(messages: Sequence[Message]) -> list[bool]:
    """For each place, whether a cut there would part a call from its result, wherever that stands."""
    waiting: dict[str, list[int]] = {}
    opened = [0] * (len(messages) + 2)
    for at, message in enumerate(messages):
        if message.role == "assistant":
            for call in message.tool_calls:
                waiting.setdefault(call.id, []).append(at)
        for part in message.parts:
            if isinstance(part, ToolResult) and waiting.get(part.call_id):
                opened[waiting[part.call_id].pop() + 1] += 1
                opened[at + 1] -= 1
    return [count > 0 for count in accumulate(opened)]
