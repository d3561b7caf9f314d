"""What you type when you are asked, as an answer. Nothing but a clear yes is a yes."""

from __future__ import annotations

from typing import Any, NamedTuple

from halter import events

YES = {"y", "yes"}
NO = {"n", "no"}


class Reading(NamedTuple):
    """`value`: the answer, `None` if there is none in the words yet; `problem`: why not."""

    value: Any = None
    problem: str = ""


def choices(asked: events.InputRequested) -> str:
    """The answers that a question takes, as the prompt shows them."""
    if asked.kind == "approval":
        return "allow it? y(es), n(o)"
    if asked.options:
        return ", ".join(f"{number} {option}" for number, option in enumerate(asked.options, 1))
    return "your answer"


def read_answer(asked: events.InputRequested, typed: str) -> Reading:
    """The answer in what was typed."""
    words = typed.strip()
    if asked.kind == "approval":
        return _approval(words.lower())
    if not words:
        return Reading(problem="type an answer, or press Esc to stop")
    if not asked.options:
        return Reading(words)
    if words.isdecimal() and 1 <= int(words) <= len(asked.options):
        return Reading(asked.options[int(words) - 1])
    if words in asked.options:
        return Reading(words)
    return Reading(problem=f"one of {choices(asked)}")


def _approval(words: str) -> Reading:
    if words in YES:
        return Reading("yes")
    if words in NO:
        return Reading("no")
    return Reading(problem="y and Enter allows it, n and Enter does not")
