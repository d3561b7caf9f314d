"""`OpenAIResponses`: what it sends, where, with which key, and what of an earlier answer goes back."""

from __future__ import annotations

import json
from typing import Any

import pytest
from openai.types.responses.response_create_params import ResponseCreateParamsStreaming
from pydantic import TypeAdapter

from halter import RunContext, runnable
from halter.errors import ConfigurationError, RunFailed
from halter.messages import File, Image, Message, Opaque, Part, Reasoning, Refusal, Text, ToolCall, ToolResult
from halter.models import OpenAIResponses
from halter.models.names import resolve
from halter.models.responses.input import input_items
from halter.models.responses.request import Ways, responses_body
from halter.request import ModelRequest, OnlyTool, OutputSchema, Settings, ToolSpec
from halter.testing import Answer, MemorySource, run

KEY = "sk-very-secret-key"
MARK = "responses:api.openai.com"
VARIABLES = ("OPENAI_API_KEY", "OPENAI_BASE_URL", "OPENAI_ORG_ID", "OPENAI_PROJECT_ID")
PARAMETERS: TypeAdapter[Any] = TypeAdapter(ResponseCreateParamsStreaming)
DONE = {"type": "response.completed", "response": {"id": "resp_1", "status": "completed", "output": []}}
ANSWER = Answer(body=((0.0, b"data: " + json.dumps(DONE).encode() + b"\n\n"),))


@pytest.fixture(autouse=True)
def no_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in VARIABLES:
        monkeypatch.delenv(name, raising=False)


def sent(*messages: Message, model: str = "gpt-5.2", request: dict[str, Any] | None = None, **options: Any) -> Any:
    """What one question becomes: the request that the server sees."""
    source = MemorySource(ANSWER)
    made = OpenAIResponses(model, **({"api_key": KEY} | options), source=source)

    @runnable
    async def ask(ctx: RunContext) -> Message:
        return await made.respond(ModelRequest(messages=messages or (Message.user("hi"),), **(request or {})), ctx)

    async def main() -> None:
        await ask.run(None)

    run(main)
    return source.requests[0]


def body_of(*messages: Message, **options: Any) -> dict[str, Any]:
    body = sent(*messages, **options).json
    PARAMETERS.validate_json(json.dumps(body))
    return body


# --- the body -----------------------------------------------------------------------------------------------


def test_a_question_is_sent_without_being_stored_and_asks_for_encrypted_reasoning() -> None:
    assert body_of() == {
        "model": "gpt-5.2",
        "input": [{"role": "user", "content": "hi"}],
        "stream": True,
        "store": False,
        "include": ["reasoning.encrypted_content"],
    }


@pytest.mark.parametrize("model", ["gpt-4o-mini", "gpt-4.1", "ft:gpt-4o:org", "gpt-3.5-turbo", "gpt-5-chat-latest"])
def test_a_model_that_does_not_reason_is_not_asked_for_its_reasoning(model: str) -> None:
    """OpenAI refuses such a request."""
    assert "include" not in body_of(model=model)


def test_every_setting_tool_and_shape_has_its_word() -> None:
    """What the SDK's own type of the request accepts."""
    schema = {"type": "object", "properties": {"x": {"type": "integer"}}}
    body = body_of(
        settings=Settings(temperature=0.5),
        reasoning_summary="auto",
        built_in_tools=[{"type": "web_search"}],
        request={
            "settings": Settings(
                max_output_tokens=50, top_p=1.0, reasoning_effort="high", parallel_tool_calls=False, temperature=1.0
            ),
            "tools": (
                ToolSpec(name="f", description="Does f.", parameters=schema),
                ToolSpec(name="g", strict=True),
            ),
            "tool_choice": OnlyTool("f"),
            "output": OutputSchema(name="answer", schema=schema, description="It."),
        },
    )
    assert {name: body[name] for name in body if name not in ("model", "input", "stream", "store", "include")} == {
        "max_output_tokens": 50,
        "top_p": 1.0,
        "temperature": 1.0,
        "parallel_tool_calls": False,
        "reasoning": {"effort": "high", "summary": "auto"},
        "tools": [
            {"type": "function", "name": "f", "description": "Does f.", "parameters": schema, "strict": False},
            {"type": "function", "name": "g", "parameters": {"type": "object", "properties": {}}, "strict": True},
            {"type": "web_search"},
        ],
        "tool_choice": {"type": "function", "name": "f"},
        "text": {
            "format": {
                "type": "json_schema",
                "name": "answer",
                "description": "It.",
                "schema": schema,
                "strict": True,
            }
        },
    }


def test_leading_system_messages_are_the_instructions_and_later_ones_stay_where_they_are() -> None:
    body = body_of(
        Message.system("Be brief."),
        Message.system("Be kind."),
        Message("developer", (Text("Be exact."),)),
        Message.user("hi"),
        Message.system("Now in French."),
    )
    assert body["instructions"] == "Be brief.\n\nBe kind."
    assert body["input"] == [
        {"role": "developer", "content": "Be exact."},
        {"role": "user", "content": "hi"},
        {"role": "system", "content": "Now in French."},
    ]


def test_a_conversation_of_nothing_but_system_messages_is_its_input() -> None:
    """The API takes no request without one."""
    assert body_of(Message.system("Say hi."))["input"] == [{"role": "system", "content": "Say hi."}]


def test_images_and_files_are_parts_of_a_users_message() -> None:
    png = Image(data=b"\x89PNG", detail="low")
    files = (File(data=b"%PDF", name="a.pdf"), File(data=b"%PDF"), File(url="https://x.test/f.pdf"), File(id="file-1"))
    body = body_of(Message.user("Look:", png, Image(url="https://x.test/i.png"), *files))
    assert body["input"] == [
        {
            "role": "user",
            "content": [
                {"type": "input_text", "text": "Look:"},
                {"type": "input_image", "image_url": "data:image/png;base64,iVBORw==", "detail": "low"},
                {"type": "input_image", "image_url": "https://x.test/i.png", "detail": "auto"},
                {"type": "input_file", "filename": "a.pdf", "file_data": "data:application/pdf;base64,JVBERg=="},
                {"type": "input_file", "filename": "file.pdf", "file_data": "data:application/pdf;base64,JVBERg=="},
                {"type": "input_file", "file_url": "https://x.test/f.pdf"},
                {"type": "input_file", "file_id": "file-1"},
            ],
        }
    ]


def test_an_extra_body_adds_replaces_and_leaves_out_fields() -> None:
    body = body_of(extra_body={"include": None, "store": True, "truncation": "auto"})
    assert "include" not in body
    assert body["store"] is True
    assert body["truncation"] == "auto"


# --- what the model said ------------------------------------------------------------------------------------


def reasoning(id: str, **fields: Any) -> Opaque:
    return Opaque(MARK, {"type": "reasoning", "id": id, "summary": [], "encrypted_content": f"enc-{id}"} | fields)


def spoken(id: str, *kinds: str) -> Opaque:
    content = [{"type": kind} | ({"annotations": []} if kind == "output_text" else {}) for kind in kinds]
    return Opaque(MARK, {"type": "message", "id": id, "role": "assistant", "status": "completed", "content": content})


def called(id: str) -> tuple[Part, Part]:
    kept = Opaque(MARK, {"type": "function_call", "id": f"fc_{id}", "call_id": id, "status": "completed"})
    return kept, ToolCall(id, "f", "{}")


def call_item(id: str, *, own: bool = True) -> dict[str, Any]:
    known = {"id": f"fc_{id}", "status": "completed"} if own else {}
    return {"type": "function_call", "call_id": id, "name": "f", "arguments": "{}"} | known


def items(*messages: Message, is_stored: bool = False) -> list[dict[str, Any]]:
    """The input, as the SDK's own type of it accepts it."""
    found = input_items(messages, MARK, is_stored=is_stored)
    if found:
        PARAMETERS.validate_json(json.dumps({"model": "m", "stream": True, "input": found}))
    return found


def assistant(*parts: Part, interrupted: bool = False) -> Message:
    return Message("assistant", parts, interrupted=interrupted)


def results(*ids: str) -> Message:
    return Message("tool", tuple(ToolResult(id, "ok") for id in ids))


def output(id: str) -> dict[str, Any]:
    return {"type": "function_call_output", "call_id": id, "output": "ok"}


def test_an_answer_goes_back_item_by_item_as_it_came() -> None:
    """Reasoning with its encryption, messages with their ids, calls with both of theirs; no readable reasoning."""
    answer = assistant(
        reasoning("rs_1"),
        Reasoning("readable"),
        spoken("msg_1", "output_text", "refusal"),
        Text("Hello"),
        Refusal("but no."),
        reasoning("rs_2"),
        *called("a"),
        *called("b"),
    )
    assert items(answer, results("a", "b")) == [
        {"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": "enc-rs_1"},
        {
            "type": "message",
            "id": "msg_1",
            "role": "assistant",
            "status": "completed",
            "content": [
                {"type": "output_text", "annotations": [], "text": "Hello"},
                {"type": "refusal", "refusal": "but no."},
            ],
        },
        {"type": "reasoning", "id": "rs_2", "summary": [], "encrypted_content": "enc-rs_2"},
        call_item("a"),
        call_item("b"),
        output("a"),
        output("b"),
    ]


def test_an_answer_of_another_provider_is_sent_as_plain_messages_and_calls() -> None:
    answer = assistant(
        Opaque("anthropic", {"signature": "x"}), Reasoning("hm"), Text("Hello"), ToolCall("a", "f", "{}")
    )
    assert items(answer, results("a")) == [
        {"role": "assistant", "content": "Hello"},
        call_item("a", own=False),
        output("a"),
    ]


@pytest.mark.parametrize(
    "parts",
    [
        (reasoning("rs_1"),),
        (reasoning("rs_1"), Opaque(MARK, {})),
        (reasoning("rs_1"), reasoning("rs_2")),
        (reasoning("rs_1"), *called("a")),
        (reasoning("rs_1"), Opaque(MARK, {}), ToolCall("a", "f", '{"x')),
    ],
)
def test_reasoning_is_not_sent_without_the_item_that_followed_it(parts: tuple[Part, ...]) -> None:
    """A stop came before that item was whole, or its call has no result: the API refuses reasoning alone."""
    assert items(Message.user("hi"), assistant(*parts, interrupted=True), Message.user("go on")) == [
        {"role": "user", "content": "hi"},
        {"role": "user", "content": "go on"},
    ]


def test_what_was_cut_off_is_sent_as_far_as_it_came_without_its_id() -> None:
    """Half a message is not the server's own any more, and the reasoning before it has lost what followed it."""
    cut = assistant(reasoning("rs_1"), Opaque(MARK, {}), Text("Hel"), interrupted=True)
    assert items(cut) == [{"role": "assistant", "content": "Hel"}]


def test_a_message_whose_text_was_changed_is_sent_as_it_is_now() -> None:
    """Text that was taken out or put in does not belong to the item of the server's any more."""
    assert items(assistant(spoken("msg_1", "output_text"), Text("a"), Text("b"))) == [
        {"role": "assistant", "content": "ab"}
    ]
    assert items(assistant(spoken("msg_1", "output_text"))) == []


def test_an_item_whose_reasoning_cannot_be_sent_goes_back_without_its_id() -> None:
    """By its id the server would know that reasoning is missing. With what it has stored, the id is enough."""
    lost = assistant(reasoning("rs_1", encrypted_content=None), *called("a"), *called("b"))
    plain = [{name: value for name, value in call_item(id).items() if name != "id"} for id in ("a", "b")]
    assert items(lost, results("a", "b")) == [*plain, output("a"), output("b")]
    kept = {"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": None}
    stored = items(lost, results("a", "b"), is_stored=True)
    assert stored == [kept, call_item("a"), call_item("b"), output("a"), output("b")]


def test_a_call_and_its_result_are_sent_only_together() -> None:
    """Parallel calls of which one has no result: reasoning goes with the very item that followed it."""
    answer = assistant(reasoning("rs_1"), *called("a"), *called("b"))
    plain = {name: value for name, value in call_item("b").items() if name != "id"}
    assert items(answer, results("b", "nobody")) == [plain, output("b")]
    kept = {"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": "enc-rs_1"}
    assert items(answer, results("a")) == [kept, call_item("a"), output("a")]


def test_items_in_the_servers_own_words_are_sent_as_they_are() -> None:
    """An approval, a screenshot, a custom tool's result: with the call that they answer."""
    request = {"type": "mcp_approval_request", "id": "ma_1", "name": "n", "arguments": "{}", "server_label": "s"}
    approval = {"type": "mcp_approval_response", "approval_request_id": "ma_1", "approve": True}
    custom = {"type": "custom_tool_call", "id": "ct_1", "call_id": "t", "name": "n", "input": "free"}
    shell = {"type": "local_shell_call", "id": "ls_1", "call_id": "s", "status": "completed",
             "action": {"type": "exec", "command": ["ls"], "env": {}}}  # fmt: skip
    answer = assistant(Opaque(MARK, request), Opaque(MARK, custom), Opaque(MARK, shell))
    asked = Message("user", (Opaque(MARK, approval),))
    assert items(answer, asked, results("t")) == [
        request,
        custom,
        {"type": "custom_tool_call_output", "call_id": "t", "output": "ok"},
        approval,
    ]
    listed = {"type": "local_shell_call_output", "id": "s", "call_id": "s", "output": "a b"}
    assert items(answer, Message("tool", (Opaque(MARK, listed),))) == [shell, listed], "the approval is not answered"


def test_what_another_server_of_this_format_made_is_not_sent_here() -> None:
    body = responses_body(
        ModelRequest(messages=(assistant(reasoning("rs_1"), spoken("m", "output_text"), Text("hi")),)),
        model="m",
        ways=Ways(provider="responses:elsewhere"),
    )
    assert body["input"] == [{"role": "assistant", "content": "hi"}]


# --- where, and with which key ------------------------------------------------------------------------------


def test_address_key_and_account_come_from_the_variables_of_the_official_sdk(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-from-environment")
    monkeypatch.setenv("OPENAI_BASE_URL", "https://proxy.test/v1/")
    monkeypatch.setenv("OPENAI_ORG_ID", "org-1")
    monkeypatch.setenv("OPENAI_PROJECT_ID", "proj-1")
    request = sent(api_key=None)
    assert request.url == "https://proxy.test/v1/responses"
    assert request.headers["Authorization"] == "Bearer sk-from-environment"
    assert request.headers["OpenAI-Organization"] == "org-1"
    assert request.headers["OpenAI-Project"] == "proj-1"


def test_it_has_a_prefix_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    model = resolve("openai-responses:gpt-5.2")
    assert isinstance(model, OpenAIResponses)
    assert model.name == "openai-responses:gpt-5.2"
    assert KEY not in repr(model)


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"built_in_tools": {"type": "web_search"}}, "built_in_tools must be a list"),
        ({"built_in_tools": ["web_search"]}, "number 0 is of type str"),
        ({"built_in_tools": [{"type": "x"}, {"name": "x", "y": 1}]}, "number 1 has no type, only name, y"),
        ({"built_in_tools": [{"type": "x", "y": object()}]}, "built_in_tools must be JSON"),
        ({"reasoning_summary": "long"}, "reasoning_summary must be"),
        ({"settings": Settings(seed=1)}, "has no setting 'seed'"),
        ({"request": {"tool_choice": "required"}}, "needs a tool"),
        ({"request": {"tool_choice": OnlyTool("g"), "tools": (ToolSpec(name="f"),)}}, "names 'g'"),
    ],
)
def test_what_cannot_work_is_refused_with_what_to_do(options: dict[str, Any], says: str) -> None:
    with pytest.raises(Exception, match=says) as caught:
        sent(**options)
    assert isinstance(caught.value, ConfigurationError) or isinstance(caught.value.__cause__, ConfigurationError)


TOOL = {"type": "mcp", "headers": {"Authorization": "Bearer SUPERSECRET"}, "authorization": "OTHERSECRET"}


@pytest.mark.parametrize("broken", [{"type": 1}, {"type": None}, {"more": object()}, {"more": "\ud800"}])
def test_no_error_about_a_tool_shows_what_it_holds(broken: dict[str, Any]) -> None:
    """Neither in its words nor in what it says came before it."""
    with pytest.raises(ConfigurationError) as raised:
        sent(built_in_tools=[TOOL | broken, TOOL])
    shown: BaseException | None = raised.value
    while shown is not None:
        assert "SECRET" not in f"{shown} {shown!r}"
        shown = shown.__cause__


@pytest.mark.parametrize("background", [False, True])
def test_what_a_server_repeats_of_a_tool_is_not_shown(background: bool) -> None:
    """Its headers and its token, which stand in the body of the request."""
    said = Answer(status=400, body=((0.0, b'{"error": {"message": "bad SUPERSECRET and OTHERSECRET"}}'),))
    model = OpenAIResponses(
        "m", api_key=KEY, built_in_tools=[TOOL], background=background, source=MemorySource(said), max_retries=0
    )

    @runnable
    async def ask(ctx: RunContext) -> Message:
        return await model.respond(ModelRequest(messages=(Message.user("hi"),)), ctx)

    async def main() -> Any:
        return await ask.run(None).finished()

    assert "bad [key] and [key]" in str(run(main()).error)
    assert "SECRET" not in repr(model) + repr(model._ways)  # type: ignore[reportPrivateUsage]


def test_a_conversation_of_which_nothing_can_be_sent_is_an_error() -> None:
    with pytest.raises(RunFailed, match="ConfigurationError: nothing in the conversation can be sent"):
        sent(Message("assistant", (Reasoning("x"),)))


def test_a_question_for_approval_is_sent_only_with_its_answer() -> None:
    """With none, nor what was thought before it."""
    request = {"type": "mcp_approval_request", "id": "ma_1", "name": "n", "arguments": "{}", "server_label": "s"}
    thought = {"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": "x"}
    asked = assistant(Opaque(MARK, thought), Opaque(MARK, request))
    approval = {"type": "mcp_approval_response", "approval_request_id": "ma_1", "approve": False}
    assert items(asked, Message.user("and?")) == [{"role": "user", "content": "and?"}]
    assert items(asked, Message("user", (Opaque(MARK, approval),))) == [thought, request, approval]
