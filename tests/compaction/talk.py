"""Conversations of any shape, and what one is after a compaction."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any

from hypothesis import strategies as st

from halter.compaction.plan import Plan, plan_for
from halter.core.tokens import MESSAGE, estimate_parts
from halter.messages import Message, Opaque, Part, Reasoning, Text, ToolCall, ToolResult


def size_of(message: Message) -> int:
    return MESSAGE + estimate_parts(message.parts)


def total(messages: Sequence[Message]) -> int:
    return sum(map(size_of, messages))


def calling(*ids: str, text: str = "", name: str = "look") -> Message:
    words: tuple[Part, ...] = (Text(text),) if text else ()
    return Message("assistant", (*words, *(ToolCall(id, name, '{"at":"it"}') for id in ids)))


def returned(*ids: str, text: str = "seen", interrupted: bool = False) -> Message:
    return Message("tool", tuple(ToolResult(id, text) for id in ids), interrupted=interrupted)


def long_talk(turns: int, words: int = 100) -> list[Message]:
    """Questions and answers without tools."""
    said: list[Message] = []
    for turn in range(turns):
        said += [Message.user(f"question {turn} " * words), Message.assistant(f"answer {turn} " * words)]
    return said


def plan(messages: Sequence[Message], goal: int, **options: Any) -> Plan | None:
    given: dict[str, Any] = {"overhead": 0, "most": goal, "keep_turns": 2, "max_tool_result": 400}
    return plan_for(messages, goal=goal, **({"size_of": size_of} | given | options))


def applied(messages: Sequence[Message], plan: Plan, text: str = "In short.") -> tuple[Message, ...]:
    """The conversation as the model is told it then."""
    summary = plan.summary(text) if plan.summarised else None
    return (*plan.messages(summary), *messages[plan.upto :])


# --- any conversation ---------------------------------------------------------------------------------------

TEXTS = ("yes", "a few words of it ", "many words " * 40, "a whole page of text " * 100)


def conversations() -> st.SearchStrategy[list[Message]]:
    """As a model would be asked with it: it ends with the user, or with the results of tools."""
    return st.integers(0, 2**32).map(lambda seed: _conversation(random.Random(seed)))


def _conversation(source: random.Random) -> list[Message]:
    said: list[Message] = [Message.system("Be brief.")] if source.random() < 0.5 else []
    number = 0
    for _ in range(source.randint(1, 5)):
        said += [Message.user(source.choice(TEXTS)) for _ in range(source.randint(1, 2))]
        for _ in range(source.randint(0, 4)):
            number += 1
            said += _step(source, number)
            if source.random() < 0.2:
                said.append(Message.user("and mind the gap"))
        if source.random() < 0.5:
            parts = (Text(source.choice(TEXTS)),)
            said.append(Message("assistant", parts, interrupted=source.random() < 0.3))
    if said[-1].role == "assistant":
        said.append(Message.user(source.choice(TEXTS)))
    return said


def _step(source: random.Random, number: int) -> list[Message]:
    """An answer with calls, and their results; as long as it likes."""
    ids = [f"c{number}-{place}" for place in range(source.randint(1, 3))]
    parts: list[Part] = [Reasoning("hm"), Opaque("p", {"signature": number})] if source.random() < 0.5 else []
    parts += [Text(source.choice(TEXTS))] if source.random() < 0.5 else []
    parts += [ToolCall(id, "look", "{}") for id in ids]
    results = tuple(ToolResult(id, source.choice(TEXTS)) for id in ids)
    return [Message("assistant", tuple(parts)), Message("tool", results, interrupted=source.random() < 0.2)]
