"""A conversation as text for the model that summarises it, in pieces that fit its window. Pure.

Each line is a JSON object: what somebody said, called or got back. Whatever stands in a text, it cannot end the line,
begin another one, or close the tag around them. Thinking is left out, and what only its provider understands.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import msgspec
from msgspec.structs import replace

from halter.messages import File, Image, Message, Part, Refusal, Text, ToolCall, ToolResult
from halter.tools.bounds import head_and_tail

STOPPED = "It was stopped here, before it was complete."
SUMMARY = "an earlier summary"


class Line(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One thing that was said or done. `by`: a role, or `SUMMARY`. `calls`, `result_of`, `error_of`: names of tools.

    `text`: what was said, a call's arguments, or its result.
    """

    by: str
    name: str | None = None
    calls: str | None = None
    result_of: str | None = None
    error_of: str | None = None
    text: str = ""
    note: str | None = None

    def __str__(self) -> str:
        return msgspec.json.encode(self).decode().replace("<", "\\u003c")


def transcript(messages: Sequence[Message], *, longest: int) -> list[Line]:
    """What was said and done. `longest`: characters of a call's arguments or result."""
    names: dict[str, str] = {}
    for message in messages:
        names |= {call.id: call.name for call in message.tool_calls}
    return [line for message in messages for line in _lines(message, names, longest)]


def pieces(lines: Sequence[Line], *, most: int, size_of: Callable[[str], int], before: int = 0) -> list[str]:
    """The lines together, as one piece of at most `most` tokens; or in as few as their order allows, each of `before`
    less, for a summary of those before it.

    `size_of`: tokens of a text. The text of a line that is too long by itself is cut in its middle.
    """
    if sum(size_of(str(line)) for line in lines) + len(lines) > most:
        most = max(1, most - before)
    whole: list[str] = []
    held: list[str] = []
    size = 0
    for text in (_bounded(line, most, size_of) for line in lines):
        more = size_of(text) + 1
        if held and size + more > most:
            whole.append("\n".join(held))
            held, size = [], 0
        held.append(text)
        size += more
    return [*whole, "\n".join(held)] if held else whole


def _bounded(line: Line, most: int, size_of: Callable[[str], int]) -> str:
    size = size_of(str(line))
    if size <= most:
        return str(line)
    return str(replace(line, text=head_and_tail(line.text, int(len(line.text) * 0.9 * most / size))))


def _lines(message: Message, names: dict[str, str], longest: int) -> Iterator[Line]:
    if message.role == "tool":
        for part in message.parts:
            if isinstance(part, ToolResult):
                what = "error_of" if part.is_error else "result_of"
                tool = names.get(part.call_id, "a tool")
                yield _line(message, text=head_and_tail(part.content, longest), **{what: tool})
        return
    said = [text for part in message.parts if (text := _said(part))]
    if said:
        yield _line(message, name=message.name, text="\n".join(said))
    for call in message.tool_calls:
        yield _line(message, calls=call.name, text=_arguments(call, longest))
    if message.interrupted and message.role == "assistant":
        yield _line(message, note=STOPPED)


def _line(message: Message, **about: str | None) -> Line:
    return Line(by=message.role, **{name: unicode(text) for name, text in about.items() if text is not None})


def unicode(text: str) -> str:
    """Half a character, as a model may have written it, has no place in JSON."""
    return text.encode("utf-8", "replace").decode()


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


def _arguments(call: ToolCall, longest: int) -> str:
    return head_and_tail(call.arguments or "{}", longest)
