"""`Gemini`: what it sends, where, with which key, and what comes of a whole turn."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest
from google.genai import types

from halter import Agent, RunContext, RunFailed, runnable
from halter.errors import AuthenticationFailed, ConfigurationError, RateLimited
from halter.messages import (
    File,
    Image,
    Message,
    Opaque,
    Reasoning,
    Refusal,
    Text,
    ToolCall,
    ToolResult,
    Usage,
)
from halter.models import Fallback
from halter.models.gemini import Gemini
from halter.models.gemini.request import NO_SIGNATURE, gemini_body, gemini_contents
from halter.request import ModelRequest, OnlyTool, OutputSchema, Settings, ToolSpec
from halter.testing import Answer, MemorySource, run

KEY = "sk-very-secret-key"
VARIABLES = ("GOOGLE_API_KEY", "GEMINI_API_KEY", "GOOGLE_GEMINI_BASE_URL")
JSON = {"content-type": "application/json"}
PNG = b"\x89PNG\r\n"
WEATHER = ToolSpec(name="weather", description="The weather.", parameters={"type": "object", "properties": {"in": {}}})


@pytest.fixture(autouse=True)
def no_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in VARIABLES:
        monkeypatch.delenv(name, raising=False)


def frame(*parts: dict[str, Any], finish: str | None = None, **more: Any) -> dict[str, Any]:
    reason = {} if finish is None else {"finishReason": finish}
    return {"candidates": [{"content": {"parts": list(parts), "role": "model"}, **reason}], **more}


def stream(*frames: dict[str, Any]) -> Answer:
    return Answer(body=tuple((0.01, b"data: " + msgspec.json.encode(one) + b"\r\n\r\n") for one in frames))


def whole(body: dict[str, Any], status: int = 200) -> Answer:
    return Answer(status=status, headers=JSON, body=((0.01, msgspec.json.encode(body)),))


COUNTS = {"promptTokenCount": 4, "candidatesTokenCount": 2}
HELLO = stream(frame({"text": "Hello "}), frame({"text": "you"}, finish="STOP", usageMetadata=COUNTS))


def model_over(source: MemorySource, name: str = "gemini-2.5-flash", **options: Any) -> Gemini:
    return Gemini(name, **({"api_key": KEY} | options), source=source)


def asked(model: Any, *messages: Message, **options: Any) -> Message:
    """One question to the model, in a run of its own."""

    @runnable
    async def ask(ctx: RunContext) -> Message:
        return await model.respond(ModelRequest(messages=messages or (Message.user("hi"),), **options), ctx)

    async def main() -> Message:
        return (await ask.run(None)).output

    return run(main)


def sent(model: str = "gemini-2.5-flash", *messages: Message, **options: Any) -> dict[str, Any]:
    """The body of one request."""
    request = ModelRequest(messages=messages or (Message.user("hi"),), **options)
    return gemini_body(request, model=model, address="https://host.test/v1beta")


# --- the conversation ---------------------------------------------------------------------------------------


def added(**fields: Any) -> Opaque:
    return Opaque("gemini", {"added": fields})


CODE = {"executableCode": {"language": "PYTHON", "code": "1"}}
CONVERSATION = (
    Message.system("Be brief."),
    Message.user("Weather?", name="Anna"),
    Message.user("In Rome."),
    Message(
        "assistant",
        (
            Reasoning("unsigned"),
            Reasoning("signed"),
            added(thoughtSignature="c2ln"),
            Opaque("gemini", {"part": CODE}),
            Text("Looking."),
            Opaque("anthropic", {"part": {"text": "foreign"}}),
            Opaque("gemini", {"facts": {"groundingMetadata": {"a": 1}}}),
            ToolCall("a", "weather", '{"in": "Rome"}'),
            added(thoughtSignature="Y2FsbA=="),
            ToolCall("b", "now", ""),
            ToolCall("lost", "now", "{}"),
            added(thoughtSignature="bG9zdA=="),
        ),
    ),
    Message("tool", (ToolResult("a", "sunny"),)),
    Message("tool", (ToolResult("b", "no clock", is_error=True), ToolResult("gone", "nobody called"))),
    Message("developer", (Text("Be kind."),)),
    Message.user(""),
    Message("assistant", (Text("It is su"), Opaque("gemini", {"part": CODE})), interrupted=True),
    Message("assistant", (Reasoning("only thought"),), interrupted=True),
    Message("assistant", (Text("Let me"), ToolCall("c", "weather", '{"in')), interrupted=True),
    Message("assistant", (Refusal("No."),)),
    Message.user("Go on."),
)
CONTENTS = [
    {"role": "user", "parts": [{"text": "Weather?"}, {"text": "In Rome."}]},
    {
        "role": "model",
        "parts": [
            {"text": "signed", "thought": True, "thoughtSignature": "c2ln"},
            CODE,
            {"text": "Looking."},
            {
                "functionCall": {"id": "a", "name": "weather", "args": {"in": "Rome"}},
                "thoughtSignature": "Y2FsbA==",
            },
            {"functionCall": {"id": "b", "name": "now", "args": {}}},
        ],
    },
    {
        "role": "user",
        "parts": [
            {"functionResponse": {"id": "a", "name": "weather", "response": {"output": "sunny"}}},
            {"functionResponse": {"id": "b", "name": "now", "response": {"error": "no clock"}}},
        ],
    },
    {"role": "model", "parts": [{"text": "It is su"}, {"text": "Let me"}, {"text": "No."}]},
    {"role": "user", "parts": [{"text": "Go on."}]},
]


def test_a_conversation_is_sent_in_turns_with_what_only_google_understands_on_its_own_part() -> None:
    """No empty content, no unsigned thought, nothing foreign, no call without its result nor the reverse."""
    assert sent("gemini-3-pro", *CONVERSATION) == {
        "contents": CONTENTS,
        "systemInstruction": {"parts": [{"text": "Be brief.\n\nBe kind."}]},
    }


def test_what_is_sent_is_what_the_official_sdk_takes() -> None:
    """The SDK's own types, which allow no field that they do not know, accept every part of our body."""
    user = Message.user(
        "look", Image(data=PNG), Image(url="https://host.test/a.JPG?b=c"), File(data=b"%PDF"), File(id="files/a")
    )
    settings = Settings(
        max_output_tokens=5, temperature=1.5, top_p=0.5, top_k=7, stop=("x",), seed=1, presence_penalty=0.5,
        frequency_penalty=0.5, reasoning_effort="low",
    )  # fmt: skip
    output = OutputSchema(name="city", schema={"type": "object", "properties": {"name": {"type": "string"}}})
    choice = OnlyTool("weather")
    body = sent(
        "gemini-3-pro", *CONVERSATION, user, settings=settings, tools=(WEATHER,), tool_choice=choice, output=output
    )
    kinds = {
        "systemInstruction": types.Content,
        "toolConfig": types.ToolConfig,
        "generationConfig": types.GenerationConfig,
    }
    pairs = [(types.Content, one) for one in body.pop("contents")] + [(types.Tool, one) for one in body.pop("tools")]
    for kind, value in [*pairs, *((kinds[name], value) for name, value in body.items())]:
        kind.model_validate_json(json.dumps(value), strict=True)


def test_a_call_that_no_gemini_model_has_signed_says_so_to_the_models_that_check() -> None:
    """The first call of each step, where the conversation was begun by another model or its signature is lost."""
    calls = Message("assistant", (ToolCall("a", "f", "{}"), ToolCall("b", "f", "{}")))
    messages = (Message.user("hi"), calls, Message("tool", (ToolResult("a", "1"), ToolResult("b", "2"))))
    for model in ("gemini-3-pro", "gemini-flash-latest"):
        parts = gemini_contents(messages, model=model)[1]["parts"]
        assert [part.get("thoughtSignature") for part in parts] == [NO_SIGNATURE, None]
    parts = gemini_contents(messages, model="gemini-2.5-pro")[1]["parts"]
    assert [part.get("thoughtSignature") for part in parts] == [None, None]


@pytest.mark.parametrize("arguments", ["", "[1]", "{", "7", "[" * 100_000])
def test_arguments_that_are_no_object_are_sent_within_one(arguments: str) -> None:
    """They were answered with an error; the API takes objects only, and the model sees what it wrote."""
    messages = (
        Message.user("hi"),
        Message("assistant", (ToolCall("a", "f", arguments),)),
        Message("tool", (ToolResult("a", "these are no arguments", is_error=True),)),
    )
    (part,) = gemini_contents(messages, model="gemini-2.5-pro")[1]["parts"]
    assert part["functionCall"]["args"] == ({"INVALID_JSON": arguments} if arguments else {})


def test_images_and_files_are_parts_by_their_bytes_or_their_address() -> None:
    parts = sent(
        "m",
        Message.user(
            Image(data=PNG),
            Image(url="https://host.test/a.png"),
            Image(url="data:image/gif;base64,R0lG"),
            File(url="data:text/csv;charset=utf-8;base64,YQ=="),
            Image(url="https://host.test/b", media_type="image/webp"),
            File(data=b"%PDF", name="a.pdf"),
            File(url="https://host.test/a.csv", media_type="text/csv"),
            File(id="files/abc"),
            File(id="https://elsewhere.test/files/abc"),
        ),
    )["contents"][0]["parts"]
    pdf = {"mimeType": "application/pdf"}
    assert parts == [
        {"inlineData": {"mimeType": "image/png", "data": "iVBORw0K"}},
        {"fileData": {"mimeType": "image/png", "fileUri": "https://host.test/a.png"}},
        {"inlineData": {"mimeType": "image/gif", "data": "R0lG"}},
        {"inlineData": {"mimeType": "text/csv", "data": "YQ=="}},
        {"fileData": {"mimeType": "image/webp", "fileUri": "https://host.test/b"}},
        {"inlineData": pdf | {"data": "JVBERg=="}},
        {"fileData": {"mimeType": "text/csv", "fileUri": "https://host.test/a.csv"}},
        {"fileData": pdf | {"fileUri": "https://host.test/v1beta/files/abc"}},
        {"fileData": pdf | {"fileUri": "https://elsewhere.test/files/abc"}},
    ]


@pytest.mark.parametrize("url", ["https://host.test/a", "https://host.test/a.tiff", "data:image/png,%89PNG"])
def test_an_image_whose_kind_is_not_to_be_seen_is_refused_with_a_way_out(url: str) -> None:
    with pytest.raises(ConfigurationError, match="give the"):
        sent("m", Message.user(Image(url=url)))


def test_a_conversation_that_the_model_began_has_a_users_turn_before_it() -> None:
    """The API refuses any other beginning; nothing that was said is left out."""
    called = (Message("assistant", (ToolCall("a", "f", "{}"),)), Message("tool", (ToolResult("a", "1"),)))
    for messages in ((Message.assistant("Hello!"), Message.user("hi")), called):
        contents = gemini_contents(messages, model="m")
        assert [content["role"] for content in contents] == ["user", "model", "user"]
        assert contents[0]["parts"] == [{"text": " "}]


def test_a_conversation_without_anything_to_answer_is_refused_before_it_is_sent() -> None:
    said = (Message.user("hi"), Message.assistant("hello"))
    for messages in ((Message.system("Be brief."),), (Message.user(""),), (*said, Message.user(""))):
        with pytest.raises(ConfigurationError, match="needs something to answer"):
            sent("m", *messages)


# --- settings, tools, output --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("model", "settings", "config"),
    [
        ("m", Settings(), None),
        (
            "m",
            Settings(max_output_tokens=5, top_k=3, stop=("a", "b")),
            {"maxOutputTokens": 5, "topK": 3, "stopSequences": ("a", "b")},
        ),
        ("gemini-3-pro", Settings(reasoning_effort="high"), {"thinkingLevel": "HIGH", "includeThoughts": True}),
        ("gemini-2.5-pro", Settings(reasoning_effort="medium"), {"thinkingBudget": 8192, "includeThoughts": True}),
        ("gemini-3-flash", Settings(reasoning_effort="none"), {"thinkingBudget": 0}),
        ("gemini-2.5-pro", Settings(reasoning_tokens=512), {"thinkingBudget": 512, "includeThoughts": True}),
    ],
)
def test_settings_are_sent_in_the_apis_own_words(model: str, settings: Settings, config: dict[str, Any] | None) -> None:
    """Who asks for thinking sees the thoughts. Models of generation 2.5 know budgets only."""
    if config is not None and {"thinkingBudget", "thinkingLevel"} & set(config):
        config = {"thinkingConfig": config}
    assert sent(model, settings=settings).get("generationConfig") == config


def test_an_effort_and_a_budget_at_once_are_refused() -> None:
    """When the model is made; and when the one is the model's and the other its agent's, before anything is sent."""
    effort, budget = Settings(reasoning_effort="low"), Settings(reasoning_tokens=5)
    with pytest.raises(ConfigurationError, match="not both"):
        Gemini("m", api_key=KEY, settings=effort.over(budget))
    source = MemorySource(HELLO)
    with pytest.raises(RunFailed) as caught:
        asked(model_over(source, settings=effort), settings=budget)
    assert isinstance(caught.value.__cause__, ConfigurationError)
    assert not source.requests


@pytest.mark.parametrize(
    ("choice", "strict", "config"),
    [
        (None, None, None),
        ("auto", None, {"mode": "AUTO"}),
        ("none", True, {"mode": "NONE"}),
        ("required", True, {"mode": "ANY"}),
        (OnlyTool("weather"), None, {"mode": "ANY", "allowedFunctionNames": ["weather"]}),
        (None, True, {"mode": "VALIDATED"}),
        ("auto", False, {"mode": "AUTO"}),
    ],
)
def test_each_choice_of_tools_has_its_mode(choice: Any, strict: bool | None, config: dict[str, Any] | None) -> None:
    tool = msgspec.structs.replace(WEATHER, strict=strict)
    body = sent(tools=(tool,), tool_choice=choice)
    declared = {"name": "weather", "description": "The weather.", "parametersJsonSchema": WEATHER.parameters}
    assert body["tools"] == [{"functionDeclarations": [declared]}]
    assert body.get("toolConfig") == (None if config is None else {"functionCallingConfig": config})
    assert "toolConfig" not in sent(tool_choice=choice)


def test_an_answer_held_to_a_schema_is_asked_for_as_json() -> None:
    output = OutputSchema(name="city", schema={"type": "object"})
    config = {"responseMimeType": "application/json", "responseJsonSchema": {"type": "object"}}
    assert sent(output=output)["generationConfig"] == config


def test_what_the_api_has_no_word_for_is_refused_when_the_model_is_made() -> None:
    for setting in (Settings(parallel_tool_calls=False), Settings(cache_prompt=True)):
        with pytest.raises(ConfigurationError, match="has no setting"):
            Gemini("m", api_key=KEY, settings=setting)


def test_an_extra_body_joins_lists_and_objects_and_replaces_the_rest() -> None:
    """So Google's own tools stand beside ours; `None` leaves a field out."""
    source = MemorySource(HELLO)
    extra = {
        "tools": [{"googleSearch": {}}],
        "generationConfig": {"mediaResolution": "MEDIA_RESOLUTION_LOW", "temperature": None},
        "systemInstruction": None,
        "cachedContent": "cachedContents/1",
    }
    model = model_over(source, extra_body=extra, settings=Settings(temperature=0.5, seed=1))
    asked(model, Message.system("s"), Message.user("hi"), tools=(WEATHER,))
    body = source.requests[0].json
    assert [list(tool) for tool in body["tools"]] == [["functionDeclarations"], ["googleSearch"]]
    assert body["generationConfig"] == {"seed": 1, "mediaResolution": "MEDIA_RESOLUTION_LOW"}
    assert body["cachedContent"] == "cachedContents/1"
    assert "systemInstruction" not in body


# --- keys and places ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("base_url", "model", "place"),
    [
        (None, "gemini-3-pro", "https://generativelanguage.googleapis.com/v1beta/models/gemini-3-pro"),
        ("https://host.test", "m", "https://host.test/v1beta/models/m"),
        ("https://host.test/", "models/m", "https://host.test/v1beta/models/m"),
        ("https://host.test/v1", "tunedModels/m", "https://host.test/v1/tunedModels/m"),
        ("https://host.test/v1beta1/publishers/google", "m", "https://host.test/v1beta1/publishers/google/models/m"),
        ("https://host.test/proxy/v1alpha", "a b", "https://host.test/proxy/v1alpha/models/a%20b"),
    ],
)
def test_the_path_names_version_model_and_method(base_url: str | None, model: str, place: str) -> None:
    source = MemorySource(HELLO)
    asked(model_over(source, model, base_url=base_url))
    assert source.requests[0].url == f"{place}:streamGenerateContent?alt=sse"


def test_key_and_place_come_from_the_official_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    """`GOOGLE_API_KEY` before `GEMINI_API_KEY`; the place is written without its version. The key is in one header."""
    for name, value in zip(VARIABLES, (KEY, "other", "http://proxy.test:8080/?a=1"), strict=True):
        monkeypatch.setenv(name, value)
    source = MemorySource(HELLO, HELLO)
    asked(Gemini("m", source=source))
    monkeypatch.delenv("GOOGLE_API_KEY")
    asked(Gemini("m", source=source))
    first, second = source.requests
    assert first.url == "http://proxy.test:8080/v1beta/models/m:streamGenerateContent?a=1&alt=sse"
    assert (first.headers["x-goog-api-key"], second.headers["x-goog-api-key"]) == (KEY, "other")
    assert "Authorization" not in first.headers


def test_a_missing_key_is_named_before_anything_runs() -> None:
    """Google's own server does not answer without one; another may."""
    with pytest.raises(ConfigurationError, match="GOOGLE_API_KEY or GEMINI_API_KEY"):
        Gemini("m")
    with pytest.raises(ConfigurationError, match="GOOGLE_API_KEY or GEMINI_API_KEY"):
        Agent("gemini:gemini-3-pro")
    source = MemorySource(HELLO)
    asked(Gemini("m", base_url="http://localhost:1234", source=source))
    assert "x-goog-api-key" not in source.requests[0].headers


def test_the_key_is_shown_nowhere() -> None:
    """Not in `repr`, and not in the error of a server that repeats it."""
    error = {"error": {"code": 403, "message": f"bad key {KEY}", "status": "PERMISSION_DENIED"}}
    model = model_over(MemorySource(whole(error, 403)))
    with pytest.raises(RunFailed) as caught:
        asked(model)
    cause = caught.value.__cause__
    assert isinstance(cause, AuthenticationFailed)
    assert cause.code == "PERMISSION_DENIED"
    assert "bad key [key]" in str(cause)
    assert KEY not in f"{model!r} {cause}"
    assert repr(model) == "Gemini('gemini-2.5-flash')"


# --- whole turns --------------------------------------------------------------------------------------------


def test_an_agent_answers_with_what_the_provider_streams() -> None:
    async def main() -> Any:
        return await Agent(model_over(MemorySource(HELLO))).run("hi")

    result = run(main)
    assert (result.output, result.usage) == ("Hello you", Usage(input=4, output=2))


def test_an_answer_may_be_asked_for_in_one_piece() -> None:
    """`stream=False`: another method, no `alt`, and the whole answer decoded."""
    source = MemorySource(whole(frame({"text": "whole"}, finish="STOP", usageMetadata=COUNTS)))
    message = asked(model_over(source, stream=False))
    assert (message.text, message.finish_reason, message.usage) == ("whole", "STOP", Usage(input=4, output=2))
    assert source.requests[0].url.endswith("/models/gemini-2.5-flash:generateContent")
    assert source.requests[0].headers["Accept"] == "application/json"


def test_a_pause_that_the_error_body_asks_for_is_kept() -> None:
    """Google says it in a `RetryInfo`, not in a header; one that is too long is told to the caller."""

    def refusal(delay: str) -> Answer:
        error = {"code": 429, "message": "slow", "status": "RESOURCE_EXHAUSTED", "details": [{"retryDelay": delay}]}
        return whole({"error": error}, 429)

    source = MemorySource(refusal("34s"), HELLO)
    assert asked(model_over(source)).text == "Hello you"
    first, second = source.requests
    assert 34.0 <= second.at - first.at < 36.0
    with pytest.raises(RunFailed) as caught:
        asked(model_over(MemorySource(refusal("3600s"))))
    assert isinstance(caught.value.__cause__, RateLimited)
    assert caught.value.__cause__.retry_after == 3600.0


def test_a_bad_key_is_what_it_is_although_the_status_is_that_of_a_bad_request() -> None:
    """So that a `Fallback` goes on to the next model."""
    info = {
        "@type": "type.googleapis.com/google.rpc.ErrorInfo",
        "reason": "API_KEY_INVALID",
        "domain": "googleapis.com",
    }
    message = "API key not valid. Please pass a valid API key."
    error = {"code": 400, "message": message, "status": "INVALID_ARGUMENT", "details": [info]}
    with pytest.raises(RunFailed) as caught:
        asked(model_over(MemorySource(whole({"error": error}, 400))))
    assert isinstance(caught.value.__cause__, AuthenticationFailed)
    assert (caught.value.__cause__.status, caught.value.__cause__.code) == (400, "API_KEY_INVALID")
    assert message in str(caught.value.__cause__)
    model = Fallback(model_over(MemorySource(whole({"error": error}, 400))), model_over(MemorySource(HELLO)))
    assert asked(model).text == "Hello you"


def test_an_answer_broken_by_the_model_is_asked_for_again_while_nothing_was_shown() -> None:
    """Malformed calls are the model's accident, and rare: the next try is likely good."""
    source = MemorySource(stream(frame(finish="MALFORMED_FUNCTION_CALL")), HELLO)
    assert asked(model_over(source)).text == "Hello you"


def test_a_call_goes_back_with_its_id_and_its_signature_through_a_whole_turn() -> None:
    """Also one that came without an id: it gets one, the same for call and result."""
    calls = frame(
        {"functionCall": {"name": "weather", "args": {"in": "Rome"}}, "thoughtSignature": "c2ln+/8="},
        {"functionCall": {"name": "weather", "args": {}, "id": "given"}},
        finish="STOP",
    )
    source = MemorySource(stream(calls), HELLO)
    model = model_over(source, "gemini-3-pro")
    message = asked(model, tools=(WEATHER,))
    results = Message("tool", tuple(ToolResult(call.id, "sunny") for call in message.tool_calls))
    stored = msgspec.json.decode(msgspec.json.encode(message), type=Message)
    asked(model, Message.user("hi"), stored, results, tools=(WEATHER,))
    _, answer, result = source.requests[1].json["contents"]
    first, second = answer["parts"]
    made = first["functionCall"].pop("id")
    assert made
    assert first == {"functionCall": {"name": "weather", "args": {"in": "Rome"}}, "thoughtSignature": "c2ln+/8="}
    assert second == {"functionCall": {"id": "given", "name": "weather", "args": {}}}
    assert [part["functionResponse"]["id"] for part in result["parts"]] == [made, "given"]


def test_frames_behind_the_finish_reason_are_waited_for() -> None:
    """Facts and the last counts may come a second later, and the body may end without another word."""
    late = {
        "candidates": [{"groundingMetadata": {"webSearchQueries": ["a"]}}],
        "usageMetadata": {"promptTokenCount": 9, "candidatesTokenCount": 1},
    }
    frames = (frame({"text": "a"}, finish="STOP"), late)
    answer = Answer(body=tuple((1.0, b"data: " + msgspec.json.encode(one) + b"\r\n\r\n") for one in frames))
    message = asked(model_over(MemorySource(answer)))
    assert message.usage == Usage(input=9, output=1)
    assert message.parts[-1] == Opaque("gemini", {"facts": {"groundingMetadata": {"webSearchQueries": ["a"]}}})
