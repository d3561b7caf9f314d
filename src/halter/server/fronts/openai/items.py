"""Items of Responses as messages, and messages as items."""

from __future__ import annotations

import base64
from collections.abc import Iterator, Sequence
from typing import Any

from halter.messages import File, Image, Message, Part, Text, ToolCall, ToolResult
from halter.server.fronts.openai.chat_messages import add
from halter.server.fronts.openai.content import parts_of, text_in, text_of
from halter.server.fronts.openai.errors import refusal
from halter.server.views import shown

_PASSED_OVER = ("reasoning",)  # encrypted reasoning belongs to the provider that made it, behind the served model


def read_items(given: str | Sequence[dict[str, Any]], param: str = "input") -> tuple[Message, ...]:
    """Input as messages. Raises `Problem` 400 for an item that is not supported."""
    if isinstance(given, str):
        if not given.strip():
            raise refusal(f"{param} is empty", param)
        return (Message.user(given),)
    said: list[Message] = []
    for place, each in enumerate(given):
        message = _message(each, f"{param}[{place}]")
        if message is not None:
            _add(said, message)
    return tuple(said)


def _add(said: list[Message], message: Message) -> None:
    """Adds a message; an answer and the calls that follow it are one."""
    is_call = message.role == "assistant" and bool(message.tool_calls)
    if is_call and said and said[-1].role == "assistant":
        said[-1] = Message("assistant", (*said[-1].parts, *message.parts))
    else:
        add(said, message)


def _message(given: dict[str, Any], where: str) -> Message | None:
    kind = given.get("type", "message")
    match kind:
        case "message":
            return _said(given, where)
        case "function_call":
            id, name = text_in(given, "call_id", where), text_in(given, "name", where)
            return Message("assistant", (ToolCall(id, name, text_in(given, "arguments", where)),))
        case "function_call_output":
            return Message("tool", (ToolResult(text_in(given, "call_id", where), text_of(given.get("output"), where)),))
        case _ if kind in _PASSED_OVER:
            return None
        case _:
            raise refusal(f"{where}: items of type {kind!r} are not supported", f"{where}.type")


def _said(given: dict[str, Any], where: str) -> Message:
    role, content = given.get("role"), given.get("content")
    match role:
        case "user":
            return Message("user", parts_of(content, f"{where}.content"))
        case "assistant" | "system" | "developer":
            return Message(role, (Text(text_of(content, f"{where}.content")),))
        case _:
            raise refusal(f"{where}: the role {role!r} is not supported", f"{where}.role")


# --- messages as items --------------------------------------------------------------------------------------


def items_of(messages: Sequence[Message], prefix: str) -> list[dict[str, Any]]:
    """Messages as items, whose ids begin with `prefix`."""
    found: list[dict[str, Any]] = []
    for place, message in enumerate(messages):
        found.extend(_items(message, f"{prefix}_{place}"))
    return found


def _items(message: Message, id: str) -> Iterator[dict[str, Any]]:
    content = [part for each in message.parts if (part := _content(each, message.role)) is not None]
    if content:
        yield message_item(f"msg_{id}", message.role, content)
    for place, part in enumerate(message.parts):
        if isinstance(part, ToolCall):
            yield call_item(part)
        elif isinstance(part, ToolResult):
            yield {
                "type": "function_call_output",
                "id": f"fco_{id}_{place}",
                "call_id": part.call_id,
                "output": shown(part.content),
                "status": "completed",
            }


def _content(part: Part, role: str) -> dict[str, Any] | None:
    match part:
        case Text() if role == "assistant":
            return output_text(part.text)
        case Text():
            return {"type": "input_text", "text": shown(part.text)}
        case Image():
            return {"type": "input_image", "image_url": _url_of(part), "detail": part.detail or "auto", "file_id": None}
        case File():
            return {"type": "input_file", "filename": part.name, "file_url": part.url}
        case _:
            return None


def _url_of(image: Image) -> str | None:
    if image.data is None:
        return image.url
    return f"data:{image.media_type};base64,{base64.b64encode(image.data).decode()}"


def output_text(text: str) -> dict[str, Any]:
    """A content part of an answer."""
    return {"type": "output_text", "text": shown(text), "annotations": [], "logprobs": []}


def message_item(id: str, role: str, content: list[dict[str, Any]], status: str = "completed") -> dict[str, Any]:
    """A message as an item."""
    return {"type": "message", "id": id, "status": status, "role": role, "content": content}


def call_item(call: ToolCall, status: str = "completed") -> dict[str, Any]:
    """A call of a function as an item."""
    return {
        "type": "function_call",
        "id": f"fc_{call.id}",
        "call_id": call.id,
        "name": call.name,
        "arguments": shown(call.arguments),
        "status": status,
    }


def reasoning_item(id: str, text: str | None) -> dict[str, Any]:
    """What the model thought, as an item; `None`: not yet known."""
    summary = [] if text is None else [{"type": "summary_text", "text": shown(text)}]
    return {"type": "reasoning", "id": id, "summary": summary}
