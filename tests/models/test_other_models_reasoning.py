"""Reasoning that one model has signed or encrypted goes back to that model alone."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest

from halter import Agent
from halter.core.ports import Model
from halter.messages import Message, Opaque, Reasoning, Text, ToolCall, ToolResult
from halter.models import Anthropic, Fallback, Gemini, OpenAIChat, OpenAIResponses
from halter.models.gemini.request import NO_SIGNATURE
from halter.testing import Answer, MemorySource
from halter.testing.memory import chat_stream, error_status

from .test_openai import asked

KEY = "k"
QUESTION, MORE = Message.user("q"), Message.user("more")
RESULT = Message("tool", (ToolResult("call_1", "noon"),))


def said_by(model: str | None, *parts: Any) -> Message:
    return Message("assistant", parts, model=model)


def body_after(model: Model, source: MemorySource, *messages: Message) -> Any:
    asked(model, source, *messages)
    return source.requests[-1].json


DONE = {"type": "response.completed", "response": {"id": "r", "status": "completed", "output": []}}
MARK = "responses:api.openai.com"
RESPONSES_PARTS = (
    Opaque(MARK, {"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": "enc"}),
    Opaque(MARK, {"type": "function_call", "id": "fc_1", "call_id": "call_1", "status": "completed"}),
    ToolCall("call_1", "now", "{}"),
)


def responses(model: str, maker: str | None) -> list[dict[str, Any]]:
    source = MemorySource(Answer(body=((0.0, b"data: " + json.dumps(DONE).encode() + b"\n\n"),)))
    made = OpenAIResponses(model, api_key=KEY, source=source)
    return body_after(made, source, QUESTION, said_by(maker, *RESPONSES_PARTS), RESULT, MORE)["input"]


@pytest.mark.parametrize(
    ("model", "maker", "is_there"),
    [
        ("gpt-5.2", "openai:gpt-5.2", True),
        ("gpt-5.2", "openai:gpt-5.2-2025-12-11", True),
        ("gpt-5.2", "openai-responses:gpt-5.2", True),
        ("gpt-5.2", None, True),
        ("gpt-5.2", "openai:gpt-5.1", False),
        ("gpt-4o", "openai:gpt-5.2", False),
        ("gpt-4o", None, False),
    ],
)
def test_encrypted_reasoning_goes_back_to_its_own_model(model: str, maker: str | None, *, is_there: bool) -> None:
    """What followed it loses its id with it: by that the server would miss the reasoning. The call itself stays."""
    sent = responses(model, maker)
    call = {"type": "function_call", "call_id": "call_1", "name": "now", "arguments": "{}"}
    if is_there:
        assert [item.get("type") for item in sent[1:3]] == ["reasoning", "function_call"]
        assert sent[2] == call | {"id": "fc_1", "status": "completed"}
    else:
        assert sent[1] == call
    assert {"type": "function_call_output", "call_id": "call_1", "output": "noon"} in sent


def test_a_model_that_does_not_reason_gets_its_own_items_back_as_they_were() -> None:
    own = said_by("openai:gpt-4o", *RESPONSES_PARTS[1:])
    source = MemorySource(Answer(body=((0.0, b"data: " + json.dumps(DONE).encode() + b"\n\n"),)))
    sent = body_after(OpenAIResponses("gpt-4o", api_key=KEY, source=source), source, QUESTION, own, RESULT, MORE)
    assert sent["input"][1]["id"] == "fc_1"


THOUGHT = Opaque("anthropic:api.anthropic.com", {"type": "thinking", "thinking": "hm", "signature": "s"})
SEARCH = (
    Opaque("anthropic:api.anthropic.com", {"type": "server_tool_use", "id": "srv", "name": "web_search", "input": {}}),
    Opaque("anthropic:api.anthropic.com", {"type": "web_search_tool_result", "tool_use_id": "srv", "content": []}),
)
STOP = {"type": "message_delta", "delta": {"stop_reason": "end_turn"}}


@pytest.mark.parametrize(
    ("maker", "is_there"),
    [("anthropic:claude-sonnet-4-5-20250929", True), (None, True), ("anthropic:claude-opus-5", False)],
)
def test_signed_thinking_goes_back_to_its_own_model(maker: str | None, *, is_there: bool) -> None:
    """Its searches and words go back to any."""
    source = MemorySource(Answer(body=((0.0, b"data: " + json.dumps(STOP).encode() + b"\n\n"),)))
    model = Anthropic("claude-sonnet-4-5", api_key=KEY, source=source)
    sent = body_after(model, source, QUESTION, said_by(maker, THOUGHT, *SEARCH, Text("Noon.")), MORE)
    kinds = [block["type"] for block in sent["messages"][1]["content"]]
    assert kinds == [*(["thinking"] if is_there else []), "server_tool_use", "web_search_tool_result", "text"]


def test_what_another_provider_has_broken_breaks_no_request() -> None:
    """Its `Opaque`s are of any shape: they are nobody else's business."""
    source = MemorySource(Answer(body=((0.0, b"data: " + json.dumps(STOP).encode() + b"\n\n"),)))
    model = Anthropic("claude-sonnet-4-5", api_key=KEY, source=source)
    odd = [Opaque("responses:api.openai.com", {"type": kind}) for kind in (["reasoning"], {"a": 1}, None)]
    sent = body_after(model, source, QUESTION, said_by("openai:gpt-5", *odd, Text("Noon.")), MORE)
    assert [block["type"] for block in sent["messages"][1]["content"]] == ["text"]


@pytest.mark.parametrize(
    ("maker", "signature"), [("gemini:gemini-3-flash", "sig"), ("gemini:gemini-2.5-pro", NO_SIGNATURE)]
)
def test_a_thought_signature_goes_back_to_its_own_model(maker: str, signature: str) -> None:
    parts = Reasoning("hm"), ToolCall("call_1", "now", "{}"), Opaque("gemini", {"added": {"thoughtSignature": "sig"}})
    frame = {"candidates": [{"content": {"parts": [{"text": "ok"}]}, "finishReason": "STOP"}]}
    source = MemorySource(Answer(body=((0.0, b"data: " + json.dumps(frame).encode() + b"\n\n"),)))
    model = Gemini("gemini-3-flash", api_key=KEY, source=source)
    sent = body_after(model, source, QUESTION, said_by(maker, *parts), RESULT, MORE)
    assert sent["contents"][1]["parts"][0]["thoughtSignature"] == signature


def test_signed_reasoning_details_go_back_to_their_own_model() -> None:
    parts = Text("Noon."), Opaque("chat:openrouter.test", {"reasoning_details": [{"data": "x"}]})
    for maker, is_there in (("openai:a", True), ("openai:b", False)):
        source = MemorySource(chat_stream(1))
        model = OpenAIChat("a", base_url="https://openrouter.test/v1", api_key=KEY, source=source)
        sent = body_after(model, source, QUESTION, said_by(maker, *parts), MORE)
        assert ("reasoning_details" in sent["messages"][1]) is is_there


@pytest.mark.virtual_time
async def test_a_message_says_which_model_wrote_it_also_behind_a_fallback() -> None:
    """In the result, in its JSON, and where an answer was cut off."""
    first = OpenAIChat("a", base_url="https://a.test/v1", max_retries=0, source=MemorySource(error_status(503)))
    second = OpenAIChat("b", base_url="https://b.test/v1", source=MemorySource(chat_stream(2)))
    result = await Agent(Fallback(first, second)).run("Hi")
    last = result.messages[-1]
    assert last.model == "openai:b"
    assert msgspec.json.decode(msgspec.json.encode(last), type=Message) == last
    assert Message.user("x").model is None
    cut = MemorySource(Answer(body=((0.0, b'data: {"choices":[{"delta":{"content":"Hel"}}]}\n\n'),)))
    broken = await Agent(OpenAIChat("c", base_url="https://c.test/v1", max_retries=0, source=cut)).run("Hi").finished()
    assert (broken.messages[-1].interrupted, broken.messages[-1].model) == (True, "openai:c")


def test_a_message_that_was_stored_before_models_were_noted_is_read() -> None:
    stored = b'{"role":"assistant","parts":[{"type":"text","text":"hi"}],"finish_reason":"stop"}'
    assert msgspec.json.decode(stored, type=Message).model is None
