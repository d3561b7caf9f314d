"""A conversation as each provider gets it, and what must hold of it there."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, cast

from anthropic.types.message_create_params import MessageCreateParamsStreaming
from google.genai.types import Content
from openai.types.chat.completion_create_params import CompletionCreateParamsStreaming
from openai.types.responses.response_create_params import ResponseCreateParamsStreaming
from pydantic import BaseModel, TypeAdapter

from halter.core.history import for_model
from halter.messages import Message, ToolResult
from halter.models.anthropic.request import anthropic_body
from halter.models.chat.request import chat_body
from halter.models.gemini.request import gemini_body
from halter.models.http_model import encode_body
from halter.models.responses.request import Ways, responses_body
from halter.request import ModelRequest

from .strict import CHECKS as CHECKS

Body = dict[str, Any]
CHAT: TypeAdapter[Any] = TypeAdapter(CompletionCreateParamsStreaming)
RESPONSES: TypeAdapter[Any] = TypeAdapter(ResponseCreateParamsStreaming)
ANTHROPIC: TypeAdapter[Any] = TypeAdapter(MessageCreateParamsStreaming)


def check_history(messages: Sequence[Message]) -> None:
    """Each call has one result, in the very next message, and there is no result without a call."""
    calls: list[str] = []
    for message in messages:
        results = [part.call_id for part in message.parts if isinstance(part, ToolResult)]
        assert results == calls, f"results {results} behind the calls {calls}"
        assert bool(results) == (message.role == "tool")
        calls = [call.id for call in message.tool_calls]
    assert not calls, f"the calls {calls} have no result"


def bodies_of(messages: Sequence[Message]) -> dict[str, Body]:
    """What each provider would be asked, if a user said something more."""
    told = for_model((*messages, Message.user("Go on.")))
    assert for_model(told) == told, "telling it twice is telling it once"
    request = ModelRequest(messages=told)
    bodies = {
        "chat": chat_body(request, model="m", provider="p", stream=True),
        "responses": responses_body(request, model="m", ways=Ways(provider="p")),
        "anthropic": anthropic_body(request, model="m", provider="p", stream=True),
        "gemini": gemini_body(request, model="gemini-2.5-pro", address=""),
    }
    return {name: json.loads(encode_body(body)) for name, body in bodies.items()}  # as it goes over the wire


def check_bodies(bodies: Mapping[str, Body], calls: int) -> None:
    """No provider would refuse it, and all `calls` are in each body with exactly one result."""
    for name, check in CHECKS.items():
        found = check(bodies[name])
        assert len(found) == calls, f"{name} has {len(found)} calls, not {calls}"


def check_by_sdk(bodies: Mapping[str, Body]) -> None:
    """The types of the official SDKs take it."""
    _read_all(CHAT.validate_python(bodies["chat"]))
    _read_all(RESPONSES.validate_python(bodies["responses"]))
    _read_all(ANTHROPIC.validate_python(bodies["anthropic"]))
    for content in bodies["gemini"]["contents"]:
        Content.model_validate_json(json.dumps(content), strict=True)


def _read_all(value: Any) -> None:
    """Pydantic looks at the items of an iterable when they are read."""
    if isinstance(value, Mapping):
        _read_all(list(cast("Mapping[str, Any]", value).values()))
    elif isinstance(value, Iterable) and not isinstance(value, str | bytes | BaseModel):
        for item in cast("Iterable[Any]", value):
            _read_all(item)
