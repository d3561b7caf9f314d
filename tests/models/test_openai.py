"""`OpenAIChat`: what it sends, where, with which key, and what it never shows."""

from __future__ import annotations

import traceback
from typing import Any

import msgspec
import pytest
from openai.types.chat.completion_create_params import CompletionCreateParamsStreaming
from pydantic import TypeAdapter

from halter import Agent, RunContext, RunFailed, runnable
from halter.errors import AuthenticationFailed, ConfigurationError
from halter.messages import (
    Message,
    Opaque,
    Reasoning,
    Refusal,
    Text,
    ToolCall,
    ToolResult,
    Usage,
)
from halter.models.chat.messages import chat_messages
from halter.models.openai import OpenAIChat
from halter.request import ModelRequest, Settings
from halter.testing import Answer, MemorySource, run
from halter.testing.memory import chat_stream, error_status

KEY = "sk-very-secret-key"
VARIABLES = ("OPENAI_API_KEY", "OPENAI_BASE_URL", "OPENAI_ORG_ID", "OPENAI_PROJECT_ID")


@pytest.fixture(autouse=True)
def no_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in VARIABLES:
        monkeypatch.delenv(name, raising=False)


def asked(model: Any, source: MemorySource, *messages: Message, **options: Any) -> Message:
    """One question to the model, in a run of its own."""

    @runnable
    async def ask(ctx: RunContext) -> Message:
        return await model.respond(ModelRequest(messages=messages or (Message.user("hi"),), **options), ctx)

    async def main() -> Message:
        return (await ask.run(None)).output

    return run(main)


def model_over(source: MemorySource, **options: Any) -> OpenAIChat:
    return OpenAIChat("gpt-5.2", **({"api_key": KEY} | options), source=source)


# --- the request --------------------------------------------------------------------------------------------

CONVERSATION = (
    Message.system("Be brief."),
    Message.user("Weather?", name="Anna B."),
    Message(
        "assistant",
        (
            Reasoning("hm"),
            Text("Looking."),
            ToolCall("a", "weather", '{"in": "Rome"}'),
            ToolCall("b", "now", ""),
            Opaque("chat:api.openai.com", {"extra_content": {"a": {"sig": 1}}, "reasoning_details": [{"data": "x"}]}),
            Opaque("anthropic", {"reasoning_details": ["foreign"]}),
        ),
    ),
    Message("tool", (ToolResult("a", "sunny"), ToolResult("b", "noon", is_error=True))),
    Message("assistant", (Text("It is su"),), interrupted=True),
    Message("assistant", (Reasoning("only thought"),), interrupted=True),
    Message("assistant", (Text("Let me"), ToolCall("c", "weather", '{"in'), ToolResult("z", "?")), interrupted=True),
    Message("assistant", (Refusal("No."),)),
    Message("tool", (ToolResult("gone", "nobody called"),)),
    Message.user("Go on."),
)
SENT = [
    {"role": "system", "content": "Be brief."},
    {"role": "user", "content": "Weather?", "name": "Anna_B."},
    {
        "role": "assistant",
        "content": "Looking.",
        "tool_calls": [
            {
                "id": "a",
                "type": "function",
                "function": {"name": "weather", "arguments": '{"in": "Rome"}'},
                "extra_content": {"sig": 1},
            },
            {"id": "b", "type": "function", "function": {"name": "now", "arguments": "{}"}},
        ],
        "reasoning_details": [{"data": "x"}],
    },
    {"role": "tool", "tool_call_id": "a", "content": "sunny"},
    {"role": "tool", "tool_call_id": "b", "content": "noon"},
    {"role": "assistant", "content": "It is su\n\nLet me"},
    {"role": "assistant", "content": None, "refusal": "No."},
    {"role": "user", "content": "Go on."},
]


def test_a_conversation_is_sent_as_far_as_the_format_and_the_provider_know_it() -> None:
    """No reasoning, nothing of another provider, no empty message, no call without its result nor the reverse."""
    source = MemorySource(chat_stream(2))
    asked(model_over(source), source, *CONVERSATION, settings=Settings(max_output_tokens=50))
    assert source.requests[0].json == {
        "model": "gpt-5.2",
        "messages": SENT,
        "stream": True,
        "stream_options": {"include_usage": True},
        "max_completion_tokens": 50,
    }


def test_what_is_sent_is_what_the_official_sdk_takes() -> None:
    """The SDK's own type of the request, read strictly by pydantic, accepts ours."""
    parameters = TypeAdapter(CompletionCreateParamsStreaming)
    body = {"model": "m", "messages": chat_messages(CONVERSATION, "elsewhere"), "stream": True}
    parameters.validate_python(body | {"stream_options": {"include_usage": True}, "max_completion_tokens": 5})


def test_an_opaque_part_goes_back_only_to_the_server_that_made_it() -> None:
    """Another server would refuse a field that it does not know."""
    assert not [m for m in chat_messages(CONVERSATION, "chat:elsewhere") if "reasoning_details" in m]


def test_an_extra_body_adds_replaces_and_leaves_out_fields() -> None:
    """Its values win over ours; `None` removes a field that a server does not take."""
    source = MemorySource(chat_stream(1))
    extra = {"temperature": 0, "model": "other", "stream_options": None}
    asked(model_over(source, extra_body=extra), source)
    assert source.requests[0].json == {
        "model": "other",
        "messages": [{"role": "user", "content": "hi"}],
        "stream": True,
        "temperature": 0,
    }


def test_half_a_surrogate_pair_in_a_prompt_is_replaced() -> None:
    """Text from a terminal or a file name may hold one; no provider takes it."""
    source = MemorySource(chat_stream(1))
    asked(model_over(source), source, Message.user("a\ud800b"))
    assert source.requests[0].json["messages"][0]["content"] == "a\ufffdb"


def test_an_answer_may_be_asked_for_in_one_piece() -> None:
    """`stream=False`: no streaming fields, and the whole answer decoded."""
    body = {
        "choices": [{"index": 0, "message": {"role": "assistant", "content": "whole"}, "finish_reason": "stop"}],
        "usage": {"prompt_tokens": 3, "completion_tokens": 1},
    }
    answer = Answer(headers={"content-type": "application/json"}, body=((0.1, msgspec.json.encode(body)),))
    source = MemorySource(answer)
    message = asked(model_over(source, stream=False), source)
    assert (message.text, message.usage) == ("whole", Usage(input=3, output=1))
    assert "stream" not in source.requests[0].json
    assert source.requests[0].headers["Accept"] == "application/json"


def test_an_agent_answers_with_what_the_provider_streams() -> None:
    """The model behind `Agent`: text, finish reason and usage arrive in the result."""
    source = MemorySource(chat_stream("Hello you there", usage=(4, 3)))

    async def main() -> Any:
        return await Agent(model_over(source)).run("hi")

    result = run(main)
    assert (result.output, result.usage) == ("Hello you there", Usage(input=4, output=3))
    assert source.requests[0].url == "https://api.openai.com/v1/chat/completions"


# --- keys and places ----------------------------------------------------------------------------------------


def headers_of(**options: Any) -> dict[str, str]:
    source = MemorySource(chat_stream(1))
    asked(OpenAIChat("m", source=source, **options), source)
    return dict(source.requests[0].headers)


def test_key_place_and_account_come_from_the_official_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    """The SDK's variables, and its headers; a line end behind a value is not part of it."""
    values = (KEY + "\n", "http://proxy.test:8080/v1/?version=2", "org-1", "proj-1")
    for name, value in zip(VARIABLES, values, strict=True):
        monkeypatch.setenv(name, value)
    source = MemorySource(chat_stream(1))
    asked(OpenAIChat("m", source=source), source)
    request = source.requests[0]
    assert request.url == "http://proxy.test:8080/v1/chat/completions?version=2"
    assert request.headers["Authorization"] == f"Bearer {KEY}"
    assert (request.headers["OpenAI-Organization"], request.headers["OpenAI-Project"]) == ("org-1", "proj-1")


def test_a_missing_key_is_named_before_anything_runs() -> None:
    """OpenAI's own server does not answer without one, wherever its address came from."""
    for options in ({}, {"api_key": ""}, {"base_url": "https://api.openai.com/v1"}):
        with pytest.raises(ConfigurationError, match="OPENAI_API_KEY"):
            OpenAIChat("m", **options)
    with pytest.raises(ConfigurationError, match="OPENAI_API_KEY"):
        Agent("openai:gpt-5.2")


def test_another_server_may_need_no_key(monkeypatch: pytest.MonkeyPatch) -> None:
    """Then no Authorization is sent; a key in the environment is, as the SDK does, unless an empty one is given."""
    assert "Authorization" not in headers_of(base_url="http://localhost:11434/v1")
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    assert headers_of(base_url="http://localhost:11434/v1")["Authorization"] == f"Bearer {KEY}"
    assert "Authorization" not in headers_of(base_url="http://localhost:11434/v1", api_key="")
    monkeypatch.delenv("OPENAI_API_KEY")
    monkeypatch.setenv("OPENAI_BASE_URL", "http://localhost:11434/v1")
    assert "Authorization" not in headers_of()


def test_given_headers_win_over_ours_whatever_their_case() -> None:
    """One header of a name is sent, never two."""
    sent = headers_of(api_key=KEY, headers={"authorization": "Basic x", "X-Title": "t"})
    assert [value for name, value in sent.items() if name.lower() == "authorization"] == ["Basic x"]
    assert sent["X-Title"] == "t"


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"model": ""}, "model"),
        ({"model": 5}, "model"),
        ({"base_url": ""}, "base_url"),
        ({"base_url": "localhost:11434"}, "base_url"),
        ({"base_url": "http://host:port/"}, "base_url"),
        ({"base_url": "https://user:hidden@host/v1"}, "headers"),
        ({"api_key": "two words"}, "api_key"),
        ({"api_key": "a\nb"}, "api_key"),
        ({"headers": {"X-A": "a\r\nX-B: b"}}, "X-A"),
        ({"headers": {"X-A": 5}}, "X-A"),
        ({"extra_body": {"a": object()}}, "extra_body"),
    ],
)
def test_what_cannot_work_is_refused_at_once_and_without_quoting_secrets(options: dict[str, Any], words: str) -> None:
    """`ConfigurationError` names the argument; keys, passwords and header values are not in it."""
    with pytest.raises(ConfigurationError, match=words) as caught:
        OpenAIChat(**({"model": "m", "api_key": KEY} | options))
    shown = "".join(traceback.format_exception(caught.value))
    assert not [secret for secret in ("hidden", "two words", "X-B", KEY) if secret in str(caught.value)], shown


def test_the_key_is_shown_nowhere() -> None:
    """Not in `repr`, not in the request's, and not in the error of a server that repeats it."""
    source = MemorySource(error_status(401, message=f"Incorrect API key: {KEY}"))
    model = model_over(source, base_url="https://host.test/v1?token=hidden")
    with pytest.raises(RunFailed) as caught:
        asked(model, source)
    error = caught.value.__cause__
    assert isinstance(error, AuthenticationFailed)
    assert "Incorrect API key: [key]" in str(error)
    shown = [repr(model), str(error), repr(source.requests[0].request), source.requests[0].request.label]
    assert not [text for text in shown if KEY in text]
    assert repr(model) == "OpenAIChat('gpt-5.2', base_url='https://host.test/v1')"
