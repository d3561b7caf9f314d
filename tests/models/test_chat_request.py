"""A whole `ModelRequest` as a body of chat completions: each part, tool, shape and setting, held to the SDK's types."""

from __future__ import annotations

import base64
import re
from typing import Any

import msgspec
import pytest
from openai.types.chat.completion_create_params import (
    CompletionCreateParamsNonStreaming,
    CompletionCreateParamsStreaming,
)
from pydantic import TypeAdapter

from halter.errors import ConfigurationError
from halter.messages import File, Image, Message, Reasoning, Refusal, Text, ToolCall, ToolResult
from halter.models.anthropic import Anthropic
from halter.models.chat.dialect import OPENAI, Dialect
from halter.models.chat.model import CHAT_FEATURES
from halter.models.chat.request import chat_body
from halter.models.gemini import Gemini
from halter.models.openai import OpenAIChat
from halter.models.responses.model import RESPONSES_FEATURES
from halter.request import ModelRequest, OnlyTool, OutputSchema, Settings, ToolSpec

PNG = b"\x89PNG\r\n\x1a\n"
ASK = Message.user("hi")
WEATHER = ToolSpec(
    name="weather", description="Looks outside.", parameters={"type": "object", "properties": {}}, strict=True
)
NOW = ToolSpec(name="now")
SHAPE = OutputSchema(name="answer", schema={"type": "object", "properties": {}}, description="What it is.")
KNOBS = Settings(
    max_output_tokens=9,
    temperature=0.5,
    top_p=0.9,
    stop=("END", "\n\n"),
    seed=-7,
    presence_penalty=1.0,
    frequency_penalty=-1.0,
    reasoning_effort="xhigh",
    parallel_tool_calls=False,
)


def body(*messages: Message, stream: bool = True, dialect: Dialect = OPENAI, **request: Any) -> dict[str, Any]:
    """The body as JSON brings it to the server; in OpenAI's dialect the SDK's own types must take it."""
    asked = ModelRequest(messages=messages or (ASK,), **request)
    made = chat_body(asked, model="m", provider="chat:test", stream=stream, dialect=dialect)
    sent = msgspec.json.decode(msgspec.json.encode(made))
    if dialect is OPENAI:
        parameters = CompletionCreateParamsStreaming if stream else CompletionCreateParamsNonStreaming
        TypeAdapter(parameters).validate_python(sent)
    return sent


def content(*parts: Any, dialect: Dialect = OPENAI) -> Any:
    return body(Message.user(*parts), dialect=dialect)["messages"][0]["content"]


# --- the conversation ---------------------------------------------------------------------------------------


def test_each_role_is_sent_as_it_is() -> None:
    """System, developer and user; text alone stays text."""
    sent = body(Message.system("a"), Message("developer", (Text("b"),)), Message.user("c", "d"))["messages"]
    assert [(each["role"], each["content"]) for each in sent] == [("system", "a"), ("developer", "b"), ("user", "cd")]


def test_images_are_sent_by_their_bytes_or_their_url_in_order() -> None:
    """Bytes as a `data:` URL; `detail` only where it was given."""
    seen = content("What?", Image(data=PNG, detail="low"), Image(url="https://a.test/b.png"), "And?")
    encoded = base64.b64encode(PNG).decode()
    assert seen == [
        {"type": "text", "text": "What?"},
        {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{encoded}", "detail": "low"}},
        {"type": "image_url", "image_url": {"url": "https://a.test/b.png"}},
        {"type": "text", "text": "And?"},
    ]


def test_files_are_sent_by_their_bytes_or_their_id() -> None:
    """The API wants a name beside the bytes: one is made of the media type."""
    seen = content(File(data=b"%PDF", name="a.pdf"), File(data=b"%PDF"), File(id="file-1"))
    data = "data:application/pdf;base64," + base64.b64encode(b"%PDF").decode()
    assert [part["file"] for part in seen] == [
        {"filename": "a.pdf", "file_data": data},
        {"filename": "document.pdf", "file_data": data},
        {"file_id": "file-1"},
    ]


def test_a_server_that_fetches_files_gets_their_url() -> None:
    """OpenRouter does; OpenAI's chat completions do not."""
    (part,) = content(File(url="https://a.test/b.pdf"), dialect=Dialect(file_urls=True))
    assert part["file"]["file_data"] == "https://a.test/b.pdf"


@pytest.mark.parametrize(
    ("part", "dialect", "words"),
    [
        (File(url="https://a.test/b.pdf"), OPENAI, "data or id"),
        (Image(data=PNG, detail="huge"), OPENAI, "detail"),
        (Image(url="https://a.test/b.png"), Dialect(image_urls=False), "data, not its url"),
    ],
)
def test_a_part_that_the_server_cannot_take_is_refused_before_anything_is_sent(
    part: Image | File, dialect: Dialect, words: str
) -> None:
    """`ConfigurationError` says what to give instead."""
    with pytest.raises(ConfigurationError, match=words):
        content(part, dialect=dialect)


def test_parts_that_a_model_has_no_word_for_are_refused_by_every_model() -> None:
    """By the features, for all adapters; and pictures are the user's alone."""
    blind = msgspec.structs.replace(CHAT_FEATURES, images=False, files=False)
    for part in (Image(data=PNG), File(id="f")):
        with pytest.raises(ConfigurationError, match="takes no"):
            blind.check_parts("x:y", [Message.user(part)])
        with pytest.raises(ConfigurationError, match="'system'"):
            CHAT_FEATURES.check_parts("x:y", [Message("system", (part,))])
        CHAT_FEATURES.check_parts("x:y", [Message.user("see", part)])


# --- tools, the answer's shape, settings --------------------------------------------------------------------


def test_tools_and_the_choice_among_them_are_sent() -> None:
    """What a tool leaves open is left to the API."""
    sent = body(tools=(WEATHER, NOW), tool_choice="auto")
    assert sent["tools"] == [
        {
            "type": "function",
            "function": {
                "name": "weather",
                "description": "Looks outside.",
                "parameters": {"type": "object", "properties": {}},
                "strict": True,
            },
        },
        {"type": "function", "function": {"name": "now", "parameters": {"type": "object", "properties": {}}}},
    ]
    assert sent["tool_choice"] == "auto"
    assert body(tools=(NOW,), tool_choice="none")["tool_choice"] == "none"
    assert body(tools=(NOW,), tool_choice="required")["tool_choice"] == "required"
    only = body(tools=(NOW, WEATHER), tool_choice=OnlyTool("now"))["tool_choice"]
    assert only == {"type": "function", "function": {"name": "now"}}
    assert "tool_choice" not in body(tools=(NOW,))


def test_without_tools_nothing_about_tools_is_sent() -> None:
    """The API answers 400 to a choice, or to `parallel_tool_calls`, where there is no tool."""
    sent = body(tool_choice="auto", settings=Settings(parallel_tool_calls=False))
    assert not {"tools", "tool_choice", "parallel_tool_calls"} & set(sent)


@pytest.mark.parametrize("request_", [{"tool_choice": "required"}, {"tools": (NOW,), "tool_choice": OnlyTool("then")}])
def test_a_choice_that_no_tool_can_meet_is_refused(request_: dict[str, Any]) -> None:
    """A tool that must be called has to be there."""
    for features in (CHAT_FEATURES, RESPONSES_FEATURES, Anthropic.features, Gemini.features):
        with pytest.raises(ConfigurationError, match="tool"):
            features.check("x:y", Settings(), **request_)


def test_the_shape_of_the_answer_is_sent_as_a_strict_schema() -> None:
    """`response_format`, with the description where there is one."""
    schema = {"name": "answer", "schema": SHAPE.schema, "strict": True}
    expected = {"type": "json_schema", "json_schema": schema | {"description": "What it is."}}
    assert body(output=SHAPE)["response_format"] == expected
    assert "description" not in body(output=OutputSchema(name="a", schema={}))["response_format"]["json_schema"]


def test_every_setting_of_the_format_is_sent_under_its_name() -> None:
    """All that `CHAT_FEATURES` promises, streamed or not."""
    assert set(KNOBS.given()) == set(CHAT_FEATURES.settings)
    fixed = {"model", "messages", "tools"}
    knobs = {
        "max_completion_tokens": 9,
        "temperature": 0.5,
        "top_p": 0.9,
        "stop": ["END", "\n\n"],
        "seed": -7,
        "presence_penalty": 1.0,
        "frequency_penalty": -1.0,
        "reasoning_effort": "xhigh",
        "parallel_tool_calls": False,
    }
    whole = body(tools=(NOW,), settings=KNOBS, stream=False)
    assert {name: value for name, value in whole.items() if name not in fixed} == knobs
    streamed = body(tools=(NOW,), settings=KNOBS)
    assert streamed == whole | {"stream": True, "stream_options": {"include_usage": True}}


def test_a_setting_that_the_format_has_no_word_for_is_refused_when_the_model_is_made() -> None:
    """`top_k` and a budget for thinking: OpenAI has neither."""
    for name in ("top_k", "reasoning_tokens"):
        with pytest.raises(ConfigurationError, match=name):
            OpenAIChat("m", api_key="k", settings=Settings(**{name: 5}))


# --- dialects -----------------------------------------------------------------------------------------------

TURN = (
    Message.user("Weather?"),
    Message("assistant", (Reasoning("I look."), ToolCall("call_1", "now", "{}"))),
    Message("tool", (ToolResult("call_1", "noon"),)),
    Message("assistant", (Reasoning("So it is."), Text("Noon."))),
    Message.user("Sure?"),
)


def test_thinking_goes_back_once_a_tool_was_called_where_the_server_wants_it() -> None:
    """DeepSeek and Kimi answer 400 without; in a conversation without tools, and elsewhere, it is not sent."""
    dialect = Dialect(reasoning="reasoning_content")
    sent = body(*TURN, dialect=dialect)["messages"]
    assert [each.get("reasoning_content") for each in sent] == [None, "I look.", None, "So it is.", None]
    plain = body(TURN[0], TURN[3], TURN[4], dialect=dialect)["messages"]
    assert not [each for each in plain if "reasoning_content" in each]
    assert not [each for each in body(*TURN)["messages"] if "reasoning_content" in each or "reasoning" in each]


def test_a_first_call_changes_nothing_of_what_was_sent_before_it() -> None:
    """Without a call its thinking is ignored (https://api-docs.deepseek.com/guides/thinking_mode), and with it the
    provider's prompt cache would be lost."""
    dialect = Dialect(reasoning="reasoning_content")
    before = (TURN[0], TURN[3], TURN[4])
    sent = body(*before, *TURN[1:], dialect=dialect)["messages"]
    assert sent[:3] == body(*before, dialect=dialect)["messages"]
    assert sent[3]["reasoning_content"] == "I look."


def test_a_call_without_thinking_has_the_field_where_it_must_be_there() -> None:
    """A conversation that began with another model: DeepSeek wants the field, though it is empty."""
    silent = (TURN[0], Message("assistant", (ToolCall("c", "now", ""),)), Message("tool", (ToolResult("c", "noon"),)))
    assert "reasoning" not in body(*silent, dialect=Dialect(reasoning="reasoning"))["messages"][1]
    needed = body(*silent, dialect=Dialect(reasoning="reasoning", needs_reasoning=True))["messages"][1]
    assert needed["reasoning"] == ""


def test_an_id_of_another_provider_is_given_the_form_that_the_server_takes() -> None:
    """The call and its result keep the same id; one that fits already is not touched."""
    dialect = Dialect(call_id_length=9)
    sent = body(*TURN, dialect=dialect)["messages"]
    given = sent[1]["tool_calls"][0]["id"]
    assert re.fullmatch("[a-zA-Z0-9]{9}", given)
    assert sent[2]["tool_call_id"] == given
    own = (TURN[0], Message("assistant", (ToolCall("aB3xK9mP2", "now", ""),)))
    own += (Message("tool", (ToolResult("aB3xK9mP2", "noon"),)),)
    assert body(*own, dialect=dialect)["messages"][1]["tool_calls"][0]["id"] == "aB3xK9mP2"


def test_an_id_that_is_too_long_for_openai_is_shortened_in_call_and_result() -> None:
    """Another provider's may be; OpenAI takes 40 characters."""
    for id, is_kept in (("c" * 40, True), ("c" * 41, False)):
        turn = (TURN[0], Message("assistant", (ToolCall(id, "now", ""),)), Message("tool", (ToolResult(id, "noon"),)))
        sent = body(*turn)["messages"]
        given = sent[1]["tool_calls"][0]["id"]
        assert (len(given), given == id, sent[2]["tool_call_id"]) == (40, is_kept, given)


def test_the_assistant_speaks_between_a_tool_and_a_user_where_it_must() -> None:
    """Mistral's servers refuse the one directly behind the other."""
    turn = (*TURN[:3], TURN[4])
    roles = [each["role"] for each in body(*turn)["messages"]]
    assert roles == ["user", "assistant", "tool", "user"]
    sent = body(*turn, dialect=Dialect(after_results="OK."))["messages"]
    assert sent[3:] == [{"role": "assistant", "content": "OK."}, {"role": "user", "content": "Sure?"}]
    assert len(body(*TURN, dialect=Dialect(after_results="OK."))["messages"]) == len(TURN)


def test_a_conversation_of_which_nothing_can_be_sent_is_refused() -> None:
    """The API answers 400 to no messages."""
    with pytest.raises(ConfigurationError, match="nothing in the conversation can be sent"):
        body(Message("assistant", (Reasoning("only thought"),), interrupted=True))


def test_where_no_tool_can_be_named_it_is_the_only_one() -> None:
    """LM Studio takes words only: the choice is made by what is sent."""
    sent = body(tools=(NOW, WEATHER), tool_choice=OnlyTool("weather"), dialect=Dialect(names_choice=False))
    assert [tool["function"]["name"] for tool in sent["tools"]] == ["weather"]
    assert sent["tool_choice"] == "required"


def test_names_and_refusals_are_fields_only_where_there_are_such() -> None:
    """A refusal is text elsewhere: nothing of what was said is lost."""
    said = (Message.user("hi", name="Anna"), Message("assistant", (Refusal("No."),)))
    sent = body(*said, dialect=Dialect(takes_names=False, takes_refusals=False))["messages"]
    assert sent == [{"role": "user", "content": "hi"}, {"role": "assistant", "content": "No."}]


def test_a_field_inside_another_gathers_all_that_belongs_there() -> None:
    """OpenRouter's `reasoning`, of two settings."""
    dialect = Dialect(fields={"reasoning_effort": "reasoning.effort", "reasoning_tokens": "reasoning.max_tokens"})
    sent = body(settings=Settings(reasoning_effort="low", reasoning_tokens=100), dialect=dialect)
    assert sent["reasoning"] == {"effort": "low", "max_tokens": 100}
