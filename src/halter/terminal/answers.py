"""What you type when you are asked, as an answer. Nothing but a clear yes is a yes."""

from __future__ import annotations

from typing import Any, NamedTuple

from halter import events
from halter.core.asking import LONGEST_REASON

WORDS = {"y": "yes", "s": "session", "a": "always", "n": "no"}
SHOWN = {"yes": "y(es)", "session": "s(ession)", "always": "a(lways)", "no": "n(o) and why"}
YES_OR_NO = ("yes", "no")


class Reading(NamedTuple):
    """`value`: the answer, `None` if there is none in the words yet; `problem`: why not. `reason`: behind a no."""

    value: Any = None
    problem: str = ""
    reason: str | None = None


def choices(asked: events.InputRequested) -> str:
    """The answers that a question takes, as the prompt shows them."""
    if asked.kind == "approval":
        return "allow it? " + ", ".join(SHOWN.get(option, option) for option in asked.options or YES_OR_NO)
    if asked.options:
        return ", ".join(f"{number} {option}" for number, option in enumerate(asked.options, 1))
    return "your answer"


def read_answer(asked: events.InputRequested, typed: str) -> Reading:
    """The answer in what was typed."""
    words = typed.strip()
    if asked.kind == "approval":
        return _approval(words, asked.options or YES_OR_NO)
    if not words:
        return Reading(problem="type an answer, or press Esc to stop")
    if not asked.options:
        return Reading(words)
    if words.isdecimal() and 1 <= int(words) <= len(asked.options):
        return Reading(asked.options[int(words) - 1])
    if words in asked.options:
        return Reading(words)
    return Reading(problem=f"one of {choices(asked)}")


def _approval(typed: str, options: tuple[str, ...]) -> Reading:
    """Only a no may have words behind it, which the model is told."""
    word, _, rest = typed.partition(" ")
    word = word.lower().rstrip(",:;")
    answer = WORDS.get(word, word)
    if answer == "no":
        return Reading("no", reason=rest.strip()[:LONGEST_REASON] or None)
    if answer in options and not rest.strip():
        return Reading(answer)
    return Reading(problem="y and Enter allows it, n and Enter does not")
