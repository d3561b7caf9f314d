"""Messages of chat completions as Halter's."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

from halter.messages import Message, Part, Text, ToolCall, ToolResult
from halter.server.fronts.openai.content import parts_of, text_in, text_of
from halter.server.fronts.openai.errors import refusal

SYSTEM = ("system", "developer")


def read_chat(messages: Sequence[dict[str, Any]]) -> tuple[str, tuple[Message, ...]]:
    """A conversation as instructions, which the system messages at its beginning are, and messages.

    Raises `Problem` 400 for what is no such message.
    """
    leading = next((place for place, each in enumerate(messages) if each.get("role") not in SYSTEM), len(messages))
    instructions = [
        text_of(each.get("content"), f"messages[{place}].content") for place, each in enumerate(messages[:leading])
    ]
    said: list[Message] = []
    for place, each in enumerate(messages[leading:], leading):
        add(said, _message(each, f"messages[{place}]"))
    return "\n\n".join(text for text in instructions if text), tuple(said)


def add(said: list[Message], message: Message) -> None:
    """Adds a message; results of tools that follow one another are one message."""
    if message.role == "tool" and said and said[-1].role == "tool":
        said[-1] = Message("tool", (*said[-1].parts, *message.parts))
    else:
        said.append(message)


def _message(given: dict[str, Any], where: str) -> Message:
    role, content = given.get("role"), given.get("content")
    match role:
        case "system" | "developer":
            return Message(role, (Text(text_of(content, f"{where}.content")),))
        case "user":
            name = given.get("name")
            return Message("user", parts_of(content, f"{where}.content"), name if isinstance(name, str) else None)
        case "assistant":
            return Message("assistant", _answer(given, where))
        case "tool":
            id = text_in(given, "tool_call_id", where)
            return Message("tool", (ToolResult(id, text_of(content, f"{where}.content")),))
        case _:
            raise refusal(f"{where}: the role {role!r} is not supported", f"{where}.role")


def _answer(given: dict[str, Any], where: str) -> tuple[Part, ...]:
    if given.get("function_call") is not None:
        raise refusal(f"{where}.function_call is not supported: use tool_calls", f"{where}.function_call")
    text = text_of(given.get("content"), f"{where}.content") or text_of(given.get("refusal"), f"{where}.refusal")
    calls: Any = given.get("tool_calls") or []
    if not isinstance(calls, list):
        raise refusal(f"{where}.tool_calls must be a list", f"{where}.tool_calls")
    made = (_call(each, f"{where}.tool_calls[{place}]") for place, each in enumerate(cast("list[Any]", calls)))
    return (*((Text(text),) if text else ()), *made)


def _call(given: Any, where: str) -> ToolCall:
    fields = cast("dict[str, Any]", given) if isinstance(given, dict) else {}
    function = fields.get("function")
    if not isinstance(function, dict):
        raise refusal(f"{where} must be a call of a function", where)
    function = cast("dict[str, Any]", function)
    return ToolCall(
        text_in(fields, "id", where), text_in(function, "name", where), text_in(function, "arguments", where)
    )
