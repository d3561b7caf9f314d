"""Text bounded to its head and its tail: what is left out in the middle is told, and the end, which often says most, is
kept."""

from __future__ import annotations


def left_out(count: int, what: str = "characters") -> str:
    """The line that stands for so many characters (or lines, …) that are not shown."""
    return f"… {count:,} {what} left out …"


def head_and_tail(text: str, limit: int) -> str:
    """The text, or its first and last `limit / 2` characters around a line that says how many are missing."""
    if len(text) <= limit:
        return text
    tail = limit // 2
    head = limit - tail
    return f"{text[:head]}\n{left_out(len(text) - limit)}\n{text[len(text) - tail :]}"


def clipped(line: str, limit: int) -> str:
    """One line, cut after `limit` characters; what is missing is said behind it."""
    return line if len(line) <= limit else f"{line[:limit]} {left_out(len(line) - limit)}"
