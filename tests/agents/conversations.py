"""A conversation as each provider gets it, and what must hold of it there."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
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
from halter.models.responses.request import Ways, responses_body
from halter.request import ModelRequest

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
    return {
        "chat": chat_body(request, model="m", provider="p", stream=True),
        "responses": responses_body(request, model="m", ways=Ways(provider="p")),
        "anthropic": anthropic_body(request, model="m", provider="p", stream=True),
        "gemini": gemini_body(request, model="gemini-2.5-pro", address=""),
    }


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


# --- one provider at a time ---------------------------------------------------------------------------------


def _chat(body: Body) -> list[str]:
    found: list[str] = []
    open_calls: list[str] = []
    for message in body["messages"]:
        if message["role"] == "tool":
            assert message["tool_call_id"] == open_calls.pop(0), "results stand behind their calls, in their order"
            continue
        assert not open_calls, f"{open_calls} have no result"
        open_calls = [call["id"] for call in message.get("tool_calls", ())]
        found += open_calls
        assert message["content"] or open_calls, f"an empty message: {message}"
    assert not open_calls
    assert body["messages"][-1]["role"] == "user"
    return found


def _responses(body: Body) -> list[str]:
    calls = [item["call_id"] for item in body["input"] if item.get("type") == "function_call"]
    results = [item["call_id"] for item in body["input"] if item.get("type") == "function_call_output"]
    assert sorted(calls) == sorted(results)
    waiting: set[str] = set()
    for item in body["input"]:
        match item.get("type"):
            case "function_call":
                waiting.add(item["call_id"])
            case "function_call_output":
                waiting.remove(item["call_id"])
            case _:
                assert item["content"]
                assert not waiting or item["role"] == "assistant", "something stands between a call and its result"
    return calls


def _anthropic(body: Body) -> list[str]:
    turns = body["messages"]
    assert [turn["role"] for turn in turns] == ["user", "assistant"] * (len(turns) // 2) + ["user"]
    found: list[str] = []
    called: list[str] = []
    for turn in turns:
        assert turn["content"]
        results = [block["tool_use_id"] for block in turn["content"] if block["type"] == "tool_result"]
        assert results == called, f"results {results} behind the calls {called}"
        assert all(block["type"] == "tool_result" for block in turn["content"][: len(results)]), "results come first"
        assert all(block["text"].strip() for block in turn["content"] if block["type"] == "text")
        called = [block["id"] for block in turn["content"] if block["type"] == "tool_use"]
        found += called
    return found


def _gemini(body: Body) -> list[str]:
    contents = body["contents"]
    assert contents[0]["role"] == contents[-1]["role"] == "user"
    found: list[str] = []
    called: list[str] = []
    for content in contents:
        assert content["parts"]
        results = [part["functionResponse"]["id"] for part in content["parts"] if "functionResponse" in part]
        assert results == called, f"results {results} behind the calls {called}"
        called = [part["functionCall"]["id"] for part in content["parts"] if "functionCall" in part]
        found += called
    return found


CHECKS: dict[str, Callable[[Body], list[str]]] = {
    "chat": _chat,
    "responses": _responses,
    "anthropic": _anthropic,
    "gemini": _gemini,
}
