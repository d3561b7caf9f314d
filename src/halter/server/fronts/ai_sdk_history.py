"""A session as the messages that `useChat` begins with: what a page loads before it resumes."""

from __future__ import annotations

import base64
from collections.abc import Sequence
from typing import Any

from halter.messages import File, Image, Message, Part, Reasoning, Refusal, Text, ToolCall, ToolResult
from halter.server.fronts.ai_sdk_frames import call_input


def ui_messages(chat: str, said: Sequence[Message]) -> list[dict[str, Any]]:
    """The conversation as UI messages: an answer with its calls and their results is one.

    Args:
        chat: its id, from which those of the messages are made.
        said: the session's messages.
    """
    found: list[dict[str, Any]] = []
    for place, message in enumerate(said):
        if message.role == "tool":
            _add_results(found[-1]["parts"] if found else [], message)
            continue
        role = "system" if message.role == "developer" else message.role
        if role != "assistant" or not found or found[-1]["role"] != role:
            found.append({"id": f"{chat}-{place}", "role": role, "parts": []})
        parts: list[dict[str, Any]] = found[-1]["parts"]
        parts += [{"type": "step-start"}] if role == "assistant" else []
        parts += [shown for part in message.parts if (shown := _part(part)) is not None]
    return found


def _part(part: Part) -> dict[str, Any] | None:
    match part:
        case Text(text) | Refusal(text):
            return {"type": "text", "text": text, "state": "done"}
        case Reasoning(text):
            return {"type": "reasoning", "text": text, "state": "done"}
        case ToolCall():
            shown = {"type": f"tool-{part.name}", "toolCallId": part.id, "input": call_input(part.arguments)}
            return {**shown, "state": "input-available"}
        case Image() | File():
            return _file(part)
        case _:
            return None  # only its provider understands it


def _file(part: Image | File) -> dict[str, Any] | None:
    media_type = part.media_type or "image/*"
    url = part.url
    if part.data is not None:
        url = f"data:{media_type};base64,{base64.b64encode(part.data).decode()}"
    return None if url is None else {"type": "file", "mediaType": media_type, "url": url}


def _add_results(parts: list[dict[str, Any]], message: Message) -> None:
    results = {part.call_id: part for part in message.parts if isinstance(part, ToolResult)}
    for part in parts:
        if part.get("state") == "input-available" and (result := results.get(part["toolCallId"])) is not None:
            is_error = result.is_error
            part["state"] = "output-error" if is_error else "output-available"
            part["errorText" if is_error else "output"] = result.content


def before_the_answer(said: Sequence[Message]) -> Sequence[Message]:
    """The messages up to the last question: what follows is on its way, and is resumed."""
    last = max((place for place, each in enumerate(said) if each.role == "user"), default=-1)
    return said[: last + 1]
