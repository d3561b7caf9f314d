"""Where a conversation may be cut: never between an answer's calls and their results. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from halter.messages import Message, ToolResult


def whole_cut(messages: Sequence[Message], at: int) -> int:
    """The number of messages, at most `at`, after which nothing is torn apart.

    A cut behind an answer and before the last of its results goes back to before that answer.
    """
    for asked, answered in reversed(_spans(messages)):
        if asked < at <= answered:
            at = asked
    return at


def _spans(messages: Sequence[Message]) -> list[tuple[int, int]]:
    """The positions of each answer with results, and of the last of them, in the order of the answers."""
    last: dict[int, int] = {}
    asked_by: dict[str, int] = {}  # an id may be used again: its result is that of the last call before it
    for position, message in enumerate(messages):
        for call in message.tool_calls:
            asked_by[call.id] = position
        for part in message.parts:
            if isinstance(part, ToolResult) and part.call_id in asked_by:
                last[asked_by.pop(part.call_id)] = position
    return sorted(last.items())
