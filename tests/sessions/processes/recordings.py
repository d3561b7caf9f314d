"""What the provider says to a process, as files that it replays: text, and calls of `work`."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

PACE = 2  # milliseconds between two frames


class Answer:
    """An answer as the provider streams it: words, then calls of `work`, all of whose names are their ids as well."""

    def __init__(self, text: str, *calls: dict[str, Any]) -> None:
        self.text = text
        self.calls = calls

    def frames(self) -> Iterator[dict[str, Any]]:
        yield {"role": "assistant", "content": ""}
        for word in self.text.split():
            yield {"content": f"{word} "}
        for index, call in enumerate(self.calls):
            function = {"name": "work", "arguments": json.dumps(call)}
            yield {"tool_calls": [{"index": index, "id": call["name"], "type": "function", "function": function}]}

    def recorded(self) -> str:
        reason = "tool_calls" if self.calls else "stop"
        chunks = [{"choices": [{"index": 0, "delta": delta, "finish_reason": None}]} for delta in self.frames()]
        chunks.append({"choices": [{"index": 0, "delta": {}, "finish_reason": reason}]})
        return "".join(f"data: {json.dumps(_head() | chunk)}\n\n" for chunk in chunks) + "data: [DONE]\n\n"


def _head() -> dict[str, Any]:
    return {"id": "chatcmpl-1", "object": "chat.completion.chunk", "created": 1, "model": "m"}


ANSWERS = {
    "one": Answer("I look at the first thing.", {"name": "one", "ms": 20}),
    "three": Answer(
        "And now at three of them.",
        {"name": "slow", "ms": 30},
        {"name": "quick", "ms": 5},
        {"name": "middling", "ms": 15},
    ),
    "long": Answer("This takes a while.", {"name": "long", "ms": 40, "characters": 4_000}),
    "summary": Answer("The user wanted much, and got it: rivers, their sources, and where they flow into the sea."),
    "last": Answer("All is done, and this is what came of it."),
    "gate": Answer("I wait.", {"name": "gate", "ms": -1}),
    "forever": Answer("I wait.", {"name": "forever", "ms": 30_000}),
}
WHOLE_TURN = ("one", "three", "long", "last")


def write_all(directory: Path) -> Path:
    """One file for each."""
    for name, answer in ANSWERS.items():
        (directory / f"{name}.sse").write_text(answer.recorded())
    return directory


def mode(name: str) -> str:
    """How the provider is asked to say it."""
    return f"replay({name}.sse,{PACE})"
