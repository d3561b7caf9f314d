"""A conversation as plain text, for the model that summarises it; in pieces that fit its window. Pure.

Thinking is left out, and what only its provider understands.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from halter.messages import File, Image, Message, Part, Refusal, Text, ToolCall, ToolResult
from halter.tools.bounds import head_and_tail

STOPPED = "(It was stopped here, before it was complete.)"
_SEPARATOR = "\n\n"


def transcript(messages: Sequence[Message], *, longest: int) -> list[str]:
    """One text for each message that says something. `longest`: characters of a call's arguments or result."""
    names: dict[str, str] = {}
    for message in messages:
        names |= {call.id: call.name for call in message.tool_calls}
    texts = ("\n".join(_lines(message, names, longest)) for message in messages)
    return [text for text in texts if text]


def pieces(texts: Sequence[str], *, most: int, size_of: Callable[[str], int], before: int = 0) -> list[str]:
    """The texts together, as one piece of at most `most` tokens; or in as few as their order allows, each of `before`
    less, for a summary of those before it.

    `size_of`: tokens of a text. One that is too long by itself is cut in its middle.
    """
    if sum(map(size_of, texts)) + len(texts) > most:
        most = max(1, most - before)
    whole: list[str] = []
    held: list[str] = []
    size = 0
    for text in (_bounded(text, most, size_of) for text in texts):
        more = size_of(text) + 1
        if held and size + more > most:
            whole.append(_SEPARATOR.join(held))
            held, size = [], 0
        held.append(text)
        size += more
    return [*whole, _SEPARATOR.join(held)] if held else whole


def _bounded(text: str, most: int, size_of: Callable[[str], int]) -> str:
    size = size_of(text)
    return text if size <= most else head_and_tail(text, int(len(text) * 0.9 * most / size))


def _lines(message: Message, names: dict[str, str], longest: int) -> Iterator[str]:
    if message.role == "tool":
        for part in message.parts:
            if isinstance(part, ToolResult):
                kind = "Error" if part.is_error else "Result"
                yield f"{kind} of {names.get(part.call_id, 'a tool')}:\n{head_and_tail(part.content, longest)}"
        return
    who = {"user": "User", "assistant": "Assistant"}.get(message.role, message.role.capitalize())
    said = [text for part in message.parts if (text := _said(part))]
    if said:
        yield f"{who}{f' ({message.name})' if message.name else ''}:"
        yield from said
    for call in message.tool_calls:
        yield _called(call, longest)
    if message.interrupted and message.role == "assistant":
        yield STOPPED


def _said(part: Part) -> str:
    match part:
        case Text(text) | Refusal(text):
            return text
        case Image():
            return "[an image]"
        case File():
            return f"[the file {part.name}]" if part.name else "[a file]"
        case _:
            return ""


def _called(call: ToolCall, longest: int) -> str:
    return f"Assistant called {call.name} with {head_and_tail(call.arguments or '{}', longest)}"
