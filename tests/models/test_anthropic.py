"""`Anthropic`: what it sends, where, with which key, and how it goes on with an answer that was paused."""

from __future__ import annotations

import json
from base64 import b64encode
from collections.abc import Iterable, Mapping
from itertools import pairwise
from typing import Any

import anthropic
import pytest
from anthropic.types.message_create_params import MessageCreateParamsStreaming
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import BaseModel, TypeAdapter

from halter import Agent, Budget, RunContext, RunFailed, runnable
from halter.errors import AuthenticationFailed, ConfigurationError, IncompleteStream
from halter.messages import File, Image, Message, Opaque, Reasoning, Refusal, Text, ToolCall, ToolResult, Usage
from halter.models.anthropic.model import API_VERSION, MOST_CONTINUATIONS, Anthropic
from halter.models.anthropic.request import DEFAULT_MAX_TOKENS, LARGEST_IN_ONE_PIECE, anthropic_body
from halter.models.anthropic.turns import turns_of
from halter.models.limits import limits_of
from halter.request import ModelRequest, OnlyTool, OutputSchema, Settings, ToolSpec
from halter.testing import HANG, Answer, MemorySource, run
from halter.testing.wire_probe import WireProbe

from ..sizes import examples

KEY = "sk-ant-very-secret-key"
MARK = "anthropic:api.anthropic.com"
VARIABLES = ("ANTHROPIC_API_KEY", "ANTHROPIC_BASE_URL", "ANTHROPIC_AUTH_TOKEN")
PARAMETERS = TypeAdapter(MessageCreateParamsStreaming)
PNG = b"\x89PNG\r\n"


@pytest.fixture(autouse=True)
def no_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in VARIABLES:
        monkeypatch.delenv(name, raising=False)


def stream(*texts: str, reason: str | None = "end_turn", blocks: tuple[dict[str, Any], ...] = ()) -> Answer:
    """A streamed answer: these texts in one block, then these blocks whole; without a reason it stops there."""
    frames: list[dict[str, Any]] = [
        {"type": "message_start", "message": {"usage": {"input_tokens": 40, "output_tokens": 1}}},
        {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}},
        *({"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": t}} for t in texts),
    ]
    if reason is not None:
        frames.append({"type": "content_block_stop", "index": 0})
        for index, block in enumerate(blocks, 1):
            frames.append({"type": "content_block_start", "index": index, "content_block": block})
            frames.append({"type": "content_block_stop", "index": index})
        frames.append({"type": "message_delta", "delta": {"stop_reason": reason}, "usage": {"output_tokens": 9}})
    body = b"".join(b"event: x\ndata: " + json.dumps(frame).encode() + b"\n\n" for frame in frames)
    return Answer(body=((0.1, body), *(((HANG, b""),) if reason is None else ())))


def asked(model: Any, *messages: Message, **options: Any) -> Message:
    """One question to the model, in a run of its own."""

    @runnable
    async def ask(ctx: RunContext) -> Message:
        return await model.respond(ModelRequest(messages=messages or (Message.user("hi"),), **options), ctx)

    async def main() -> Message:
        return (await ask.run(None)).output

    return run(main)


def body_of(*messages: Message, model: str = "claude-opus-5", stream: bool = True, **options: Any) -> dict[str, Any]:
    request = ModelRequest(messages=messages or (Message.user("hi"),), **options)
    return anthropic_body(request, model=model, provider=MARK, stream=stream)


def with_settings(model: str = "claude-opus-5", *, stream: bool = True, **settings: Any) -> dict[str, Any]:
    """What settings add to a request."""
    body = body_of(model=model, stream=stream, settings=Settings(**settings))
    return {name: value for name, value in body.items() if name not in ("model", "messages")}


def checked(body: dict[str, Any]) -> dict[str, Any]:
    """The body, as far as the official SDK's own type of it, read strictly by pydantic, takes it."""
    return read_all(PARAMETERS.validate_python(body | {"stream": True}))


def read_all(value: Any) -> Any:
    """The value with every iterable in it read: pydantic looks at their items only then."""
    if isinstance(value, BaseModel):  # the SDK takes its own answers back as they are
        return value.model_dump(mode="json", exclude_unset=True)
    if isinstance(value, Mapping):
        return {key: read_all(item) for key, item in value.items()}
    if isinstance(value, Iterable) and not isinstance(value, str | bytes):
        return [read_all(item) for item in value]
    return value


# --- the conversation ---------------------------------------------------------------------------------------

THOUGHT = {"type": "thinking", "thinking": "hm", "signature": "c2ln"}
SEARCH = {"type": "server_tool_use", "id": "srvtoolu_1", "name": "web_search", "input": {"query": "q"}}
FOUND = {"type": "web_search_tool_result", "tool_use_id": "srvtoolu_1", "content": []}
CITATIONS = [{"type": "char_location", "cited_text": "x", "document_index": 0, "document_title": None}]
CITATIONS[0] |= {"start_char_index": 0, "end_char_index": 1}
CONVERSATION = (
    Message.system("Be brief."),
    Message.user("Weather?", name="Anna"),
    Message(
        "assistant",
        (
            Reasoning("hm"),
            Opaque(MARK, THOUGHT),
            Opaque(MARK, SEARCH),
            Opaque(MARK, FOUND),
            Text("Looking."),
            Opaque(MARK, {"citations": CITATIONS}),
            Opaque("openai:else", {"type": "reasoning", "id": "rs"}),
            ToolCall("a", "weather", '{"in": "Rome"}'),
            Opaque(MARK, {"caller": {"type": "direct"}}),
            ToolCall("call:b/1", "now", ""),
            ToolCall("c", "now", '{"broken'),
        ),
    ),
    Message("tool", (ToolResult("a", "sunny"),)),
    Message("tool", (ToolResult("call:b/1", "", is_error=True), ToolResult("c", " "))),
    Message.user("  "),
    Message("assistant", (Reasoning("unsigned"), Text("It is su")), interrupted=True),
    Message("assistant", (Reasoning("only thought"),), interrupted=True),
    Message("assistant", (Text("Let me"), Opaque(MARK, SEARCH | {"id": "s2"}), ToolCall("z", "weather", '{"in'))),
    Message("tool", (ToolResult("gone", "nobody called"),)),
    Message.user("And?"),
    Message.user("Tomorrow?"),
    Message("developer", (Text("Be kind."),)),
    Message("assistant", (Refusal("No."),)),
    Message.user("Go on."),
)
SENT: list[dict[str, Any]] = [
    {"role": "user", "content": [{"type": "text", "text": "Weather?"}]},
    {
        "role": "assistant",
        "content": [
            THOUGHT,
            SEARCH,
            FOUND,
            {"type": "text", "text": "Looking.", "citations": CITATIONS},
            {"type": "tool_use", "id": "a", "name": "weather", "input": {"in": "Rome"}, "caller": {"type": "direct"}},
            {"type": "tool_use", "id": "call_b_1", "name": "now", "input": {}},
            {"type": "tool_use", "id": "c", "name": "now", "input": {"INVALID_JSON": '{"broken'}},
        ],
    },
    {
        "role": "user",
        "content": [
            {"type": "tool_result", "tool_use_id": "a", "content": "sunny"},
            {"type": "tool_result", "tool_use_id": "call_b_1", "content": "failed", "is_error": True},
            {"type": "tool_result", "tool_use_id": "c"},
        ],
    },
    {"role": "assistant", "content": [{"type": "text", "text": "It is su"}, {"type": "text", "text": "Let me"}]},
    {"role": "user", "content": [{"type": "text", "text": "And?"}, {"type": "text", "text": "Tomorrow?"}]},
    {"role": "assistant", "content": [{"type": "text", "text": "No."}]},
    {"role": "user", "content": [{"type": "text", "text": "Go on."}]},
]


def test_a_conversation_is_sent_as_far_as_the_provider_takes_it() -> None:
    """Instructions apart, turns that alternate, nothing empty, no unsigned thinking, no call without its result."""
    source = MemorySource(stream("ok"))
    asked(Anthropic("claude-opus-5", api_key=KEY, source=source), *CONVERSATION)
    assert source.requests[0].json == {
        "model": "claude-opus-5",
        "max_tokens": DEFAULT_MAX_TOKENS,
        "stream": True,
        "system": "Be brief.\n\nBe kind.",
        "messages": SENT,
    }


def test_what_is_sent_is_what_the_official_sdk_takes() -> None:
    """The SDK's own type of the request accepts ours, down to each block."""
    tools = (ToolSpec(name="weather", description="d", strict=True), ToolSpec(name="now"))
    output = OutputSchema(name="n", schema={"type": "object", "additionalProperties": False})
    settings = Settings(
        stop=("END",), reasoning_effort="high", parallel_tool_calls=False, cache_prompt=True, max_output_tokens=50
    )
    picture = (Image(data=PNG), Image(url="https://a.test/b.png"))
    files = (File(data=b"%PDF", name="n"), File(url="https://a.test/b"), File(id="file_1"))
    more = Message.user("look", *picture, *files, File(data=b"words", media_type="text/markdown"))
    request = {"tools": tools, "output": output, "settings": settings, "tool_choice": OnlyTool("now")}
    body = body_of(*CONVERSATION, more, **request)
    sent = checked(body)
    assert {name: sent[name] for name in body} == json.loads(json.dumps(body))


def test_pictures_and_files_are_blocks() -> None:
    """Bytes, URLs and ids; text files as text. A picture's kind is found from its bytes."""
    message = Message.user(
        Image(data=PNG),
        Image(url="https://a.test/b.png", detail="low"),
        File(data=b"%PDF", name="report.pdf"),
        File(data="wörds".encode(), media_type="text/csv"),
        File(url="https://a.test/b.pdf"),
        File(id="file_1"),
    )
    (turn,) = turns_of((message,), MARK)
    png, pdf = b64encode(PNG).decode(), b64encode(b"%PDF").decode()
    assert turn["content"] == [
        {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": png}},
        {"type": "image", "source": {"type": "url", "url": "https://a.test/b.png"}},
        {
            "type": "document",
            "source": {"type": "base64", "media_type": "application/pdf", "data": pdf},
            "title": "report.pdf",
        },
        {"type": "document", "source": {"type": "text", "media_type": "text/plain", "data": "wörds"}},
        {"type": "document", "source": {"type": "url", "url": "https://a.test/b.pdf"}},
        {"type": "document", "source": {"type": "file", "file_id": "file_1"}},
    ]


def test_what_is_in_a_data_url_is_sent_along() -> None:
    """The API fetches from https only."""
    png, pdf = b64encode(PNG).decode(), b64encode(b"%PDF").decode()
    words = b64encode("wörds".encode()).decode()
    message = Message.user(
        Image(url=f"data:image/png;base64,{png}"),
        File(url=f"data:application/pdf;base64,{pdf}"),
        File(url=f"DATA:text/csv;charset=utf-8;base64,{words}"),
    )
    assert [block["source"] for block in turns_of((message,), MARK)[0]["content"]] == [
        {"type": "base64", "media_type": "image/png", "data": png},
        {"type": "base64", "media_type": "application/pdf", "data": pdf},
        {"type": "text", "media_type": "text/plain", "data": "wörds"},
    ]


@pytest.mark.parametrize(
    ("part", "words"),
    [
        (File(data=b"PK", media_type="application/zip"), "PDF and text"),
        (Image(data=b"BM", media_type="image/bmp"), "image/png.*not image/bmp"),
        (Image(url="data:image/bmp;base64,Qk0="), "not image/bmp"),
        (Image(url="data:image/png,%89PNG"), "in base64"),
        (File(url="data:text/plain;base64,a"), "in base64"),
    ],
)
def test_a_file_of_a_kind_that_is_not_read_is_refused_with_a_way_out(part: Image | File, words: str) -> None:
    """Before anything is sent."""
    with pytest.raises(ConfigurationError, match=words):
        body_of(Message.user(part))


def test_a_conversation_that_ends_in_nothing_to_answer_is_refused() -> None:
    """A blank message is not sent; without it, the answer before it would be gone on with."""
    said = (Message.user("hi"), Message.assistant("hello"))
    with pytest.raises(ConfigurationError, match="nothing to answer"):
        body_of(*said, Message.user("  "))
    assert body_of(*said)["messages"][-1]["role"] == "assistant"


def test_results_stand_first_and_next_to_their_calls() -> None:
    """The API wants them in the very next turn, before any other words; a pair torn apart is joined again."""
    call, result = ToolCall("a", "x", "{}"), ToolResult("a", "1")
    near = (Message.user("q"), Message("assistant", (call,)), Message.user("wait"), Message("tool", (result,)))
    assert [block["type"] for block in turns_of(near, MARK)[2]["content"]] == ["tool_result", "text"]
    far = (*near[:3], Message.assistant("hm"), near[3], Message.user("so?"))
    kinds = [[block["type"] for block in turn["content"]] for turn in turns_of(far, MARK)]
    assert kinds == [["text"], ["tool_use"], ["tool_result", "text"], ["text"], ["text"]]


def test_an_id_that_is_used_again_is_another_call_and_gets_another_id() -> None:
    """Some providers count from 0 in each turn; the API refuses an id that two calls have, wherever they stand."""
    call, result = Message("assistant", (ToolCall("0", "x", "{}"),)), Message("tool", (ToolResult("0", "1"),))
    said = (Message.user("q"), call, result, call, result)
    assert ids_in(turns_of(said, MARK)) == ["0", "0", "0_2", "0_2"]
    other = Message("assistant", (ToolCall("0_2", "x", "{}"),)), Message("tool", (ToolResult("0_2", "1"),))
    longer = turns_of((*said, *other, call, result), MARK)
    assert longer[: len(said)] == turns_of(said, MARK), "a prompt cache stays valid"
    assert ids_in(longer)[4:] == ["0_2_2", "0_2_2", "0_3", "0_3"]
    twice = turns_of((Message.user("q"), call, call, Message("tool", (ToolResult("0", "1"),) * 3)), MARK)
    assert ids_in(twice) == ["0", "0", "0_2", "0_2"]


def ids_in(turns: list[Any]) -> list[str]:
    blocks = (block for turn in turns for block in turn["content"])
    return [id for block in blocks if (id := block.get("id") or block.get("tool_use_id"))]


def test_a_servers_tool_and_its_result_may_stand_in_two_answers() -> None:
    """Its code calls a tool of ours, and goes on when that has answered; the open call stays until then."""
    code = {"type": "server_tool_use", "id": "s", "name": "code_execution", "input": {}}
    done = {"type": "code_execution_tool_result", "tool_use_id": "s", "content": {}}
    calling = Message("assistant", (Opaque(MARK, code), ToolCall("a", "x", "{}")), finish_reason="tool_use")
    waiting = (Message.user("q"), calling, Message("tool", (ToolResult("a", "1"),)))
    assert turns_of(waiting, MARK)[1]["content"][0] == code
    finished = (*waiting, Message("assistant", (Opaque(MARK, done), Text("so"))), Message.user("ok"))
    assert turns_of(finished, MARK)[1]["content"][0] == code
    assert turns_of(finished, MARK)[3]["content"][0] == done
    stopped = (*waiting, Message.user("never mind"))
    assert [block["type"] for block in turns_of(stopped, MARK)[1]["content"]] == ["tool_use"]
    orphan = (Message.user("q"), finished[3])
    assert turns_of(orphan, MARK)[1]["content"] == [{"type": "text", "text": "so"}]


def test_an_answer_at_the_end_does_not_end_with_white_space() -> None:
    """The API refuses it; everywhere else words are left as they are."""
    said = (Message.user("q "), Message.assistant("so \n"))
    assert turns_of(said, MARK)[-1]["content"][-1]["text"] == "so"
    assert turns_of((*said, Message.user("x")), MARK)[1]["content"][-1]["text"] == "so \n"


def test_thinking_is_never_the_last_of_a_turn() -> None:
    """The API refuses that; a stop between thinking and speaking, or an unanswered call, would leave it there."""
    redacted = {"type": "redacted_thinking", "data": "ZW5j"}
    thoughts = (Opaque(MARK, THOUGHT), Opaque(MARK, redacted))
    for last in ((), (ToolCall("z", "x", "{}"),)):
        stopped = Message("assistant", (*thoughts, *last), interrupted=True)
        assert turns_of((Message.user("q"), stopped, Message.user("so?")), MARK) == [
            {"role": "user", "content": [{"type": "text", "text": "q"}, {"type": "text", "text": "so?"}]}
        ]
    said = Message("assistant", (*thoughts, Text("so"), *thoughts))
    assert turns_of((Message.user("q"), said), MARK)[1]["content"] == [
        THOUGHT,
        redacted,
        {"type": "text", "text": "so"},
    ]


@pytest.mark.parametrize("messages", [(Message.system("Be brief."),), (Message.user(" "),), (Message("user", ()),)])
def test_a_conversation_without_a_word_is_refused_with_a_way_out(messages: tuple[Message, ...]) -> None:
    """The API would answer 400."""
    with pytest.raises(ConfigurationError, match="user's message"):
        body_of(*messages)


PARTS = [
    *(Text(""), Text(" \n"), Text("a "), Refusal("no"), Reasoning("hm"), Opaque("other", {"type": "x"})),
    *(Opaque(MARK, THOUGHT), Opaque(MARK, {"citations": CITATIONS}), Opaque(MARK, {"container": {"id": "c"}})),
    *(Opaque(MARK, SEARCH), Opaque(MARK, FOUND), Opaque(MARK, None)),
    *(ToolCall("a", "x", "{}"), ToolCall("b", "x", "[")),
]
RESULTS = [ToolResult("a", "1"), ToolResult("b", " "), ToolResult("c", "2")]
USERS = st.lists(st.sampled_from(PARTS[:3]), max_size=2).map(lambda parts: Message("user", tuple(parts)))
TOOLS_SAID = st.lists(st.sampled_from(RESULTS), max_size=3).map(lambda parts: Message("tool", tuple(parts)))
ANSWERS = st.builds(
    lambda parts, reason, interrupted: Message(
        "assistant", tuple(parts), interrupted=interrupted, finish_reason=reason
    ),
    st.lists(st.sampled_from(PARTS), max_size=5),
    st.sampled_from(["end_turn", "pause_turn", "tool_use", None]),
    st.booleans(),
)


@given(st.lists(USERS | TOOLS_SAID | ANSWERS, max_size=8))
@settings(deadline=None, max_examples=examples(60))
def test_whatever_a_stop_leaves_is_a_conversation_that_the_api_takes(messages: list[Message]) -> None:
    """Turns alternate and say something, each call has its one result next to it, and no message was changed."""
    before = json.dumps([[str(part) for part in message.parts] for message in messages])
    turns = turns_of(messages, MARK)
    assert json.dumps([[str(part) for part in message.parts] for message in messages]) == before
    assert all(one["role"] != other["role"] for one, other in pairwise(turns))
    calls: list[str] = []
    for turn in turns:
        kinds = [block["type"] for block in turn["content"]]
        results = [block["tool_use_id"] for block in turn["content"] if block["type"] == "tool_result"]
        assert kinds
        assert kinds[-1] != "thinking"
        assert sorted(results) == sorted(calls)
        assert kinds[: len(results)] == ["tool_result"] * len(results)
        assert all(block["text"].strip() for block in turn["content"] if block["type"] == "text")
        calls = [block["id"] for block in turn["content"] if block["type"] == "tool_use"]
        assert len(set(calls)) == len(calls)
    assert not calls


# --- settings -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("model", "settings", "wanted"),
    [
        ("claude-opus-5", {}, {"max_tokens": DEFAULT_MAX_TOKENS}),
        ("claude-3-5-haiku-latest", {}, {"max_tokens": 8192}),
        ("claude-3-haiku-20240307", {}, {"max_tokens": 4096}),
        ("claude-3-7-sonnet-latest", {}, {"max_tokens": DEFAULT_MAX_TOKENS}),
        (
            "claude-haiku-4-5",
            {"max_output_tokens": 5, "temperature": 0.5, "top_k": 3, "stop": ("a", "b")},
            {"max_tokens": 5, "temperature": 0.5, "top_k": 3, "stop_sequences": ("a", "b")},
        ),
        (
            "claude-opus-5",
            {"reasoning_effort": "xhigh"},
            {
                "max_tokens": DEFAULT_MAX_TOKENS,
                "thinking": {"type": "adaptive"},
                "output_config": {"effort": "xhigh"},
            },
        ),
        (
            "claude-sonnet-4-5-20250929",
            {"reasoning_effort": "low"},
            {"max_tokens": DEFAULT_MAX_TOKENS, "thinking": {"type": "enabled", "budget_tokens": 2048}},
        ),
        (
            "claude-opus-5",
            {"reasoning_effort": "none"},
            {"max_tokens": DEFAULT_MAX_TOKENS, "thinking": {"type": "disabled"}},
        ),
        (
            "claude-haiku-4-5",
            {"reasoning_tokens": 2000},
            {"max_tokens": DEFAULT_MAX_TOKENS, "thinking": {"type": "enabled", "budget_tokens": 2000}},
        ),
        (
            "claude-haiku-4-5",
            {"reasoning_tokens": 40_000},
            {"max_tokens": 72_000, "thinking": {"type": "enabled", "budget_tokens": 40_000}},
        ),
        (
            "claude-haiku-4-5",
            {"reasoning_tokens": 2000, "max_output_tokens": 1500},
            {"max_tokens": 1500, "thinking": {"type": "enabled", "budget_tokens": 1499}},
        ),
        ("claude-haiku-4-5", {"reasoning_tokens": 2000, "max_output_tokens": 100}, {"max_tokens": 100}),
    ],
)
def test_settings_are_sent_in_the_providers_words(model: str, settings: dict[str, Any], wanted: dict[str, Any]) -> None:
    """An upper bound always; effort where a model knows it, else a budget, which fits into the upper bound."""
    assert with_settings(model, **settings) == {"stream": True} | wanted


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"reasoning_tokens": 1000}, "1024 or more"),
        ({"temperature": 1.5}, "temperature must be a number from 0 to 1"),
        ({"reasoning_effort": "high", "max_output_tokens": 1000}, "max_output_tokens to more"),
        ({"reasoning_tokens": 1024, "max_output_tokens": 1024}, "max_output_tokens to more"),
        ({"reasoning_tokens": 4000, "max_output_tokens": 2000}, "for 4000 tokens or more"),
        ({"reasoning_effort": "low", "temperature": 0.0}, "temperature"),
        ({"reasoning_tokens": 2000, "top_k": 5}, "top_k"),
        ({"reasoning_tokens": 2000, "top_p": 0.5}, "top_p"),
    ],
)
def test_settings_that_the_api_refuses_are_refused_when_the_model_is_made(given: dict[str, Any], words: str) -> None:
    """Nor are they dropped; nor where some are the model's, and some its agent's."""
    with pytest.raises(ConfigurationError, match=words):
        Anthropic("claude-haiku-4-5", api_key=KEY, settings=Settings(**given))
    if len(given) == 2:
        (first, second), source = given.items(), MemorySource(stream("ok"))
        model = Anthropic("claude-haiku-4-5", api_key=KEY, settings=Settings(**dict([first])), source=source)
        with pytest.raises(RunFailed, match=words):
            asked(model, settings=Settings(**dict([second])))
        assert not source.requests


def test_settings_that_go_together_are_taken() -> None:
    """Claude 4.6 and later set no tokens aside for thinking; other servers have bounds of their own."""
    for name, taken in (
        ("claude-opus-4-6", {"reasoning_effort": "high", "max_output_tokens": 1000, "temperature": 1.0}),
        ("claude-haiku-4-5", {"reasoning_effort": "none", "max_output_tokens": 10, "temperature": 0.0, "top_k": 3}),
        ("deepseek-chat", {"temperature": 1.5}),
    ):
        Anthropic(name, api_key=KEY, settings=Settings(**taken))


def test_a_budget_of_the_run_that_leaves_no_room_for_thinking_leaves_it_out() -> None:
    """What lowers the output here is no setting of the user's, and no mistake."""
    source = MemorySource(stream("ok"))
    model = Anthropic("claude-haiku-4-5", api_key=KEY, settings=Settings(reasoning_effort="high"), source=source)

    async def main() -> str:
        return (await Agent(model).run("hi", budget=Budget(tokens=600)).finished()).text

    assert run(main) == "ok"
    assert source.requests[0].json["max_tokens"] < 600
    assert "thinking" not in source.requests[0].json


def test_an_answer_that_has_begun_without_thinking_is_gone_on_with_in_that_way() -> None:
    """The API refuses a budget for an open tool turn without signed thinking, such as another provider's."""
    question, result = Message.user("q"), Message("tool", (ToolResult("a", "1"),))
    foreign = Message("assistant", (Reasoning("hm"), ToolCall("a", "x", "{}")))
    own = Message("assistant", (Opaque(MARK, THOUGHT), ToolCall("a", "x", "{}")))
    more = Message("assistant", (ToolCall("b", "x", "{}"),)), Message("tool", (ToolResult("b", "2"),))
    for messages, is_there in (
        ((question, foreign, result), False),
        ((question, foreign, result, *more), False),
        ((question, foreign, result, Message.user("hurry")), False),
        ((question, Message.assistant("It is ")), False),
        ((question, own, result), True),
        ((question, own, result, *more), True),
        ((question, foreign, result, Message.assistant("so"), question), True),
    ):
        for thinking in (Settings(reasoning_tokens=2000), Settings(reasoning_effort="low")):
            body = body_of(*messages, model="claude-sonnet-4-5", settings=thinking)
            assert ("thinking" in body) is is_there
        adaptive = body_of(*messages, model="claude-opus-5", settings=Settings(reasoning_effort="low"))
        assert adaptive["thinking"] == {"type": "adaptive"}


@pytest.mark.parametrize("choice", ["required", OnlyTool("now")])
def test_thinking_by_a_budget_and_a_tool_that_must_be_called_are_refused(choice: Any) -> None:
    """By the API; a model that thinks as it sees fit takes both."""
    options: dict[str, Any] = {"settings": Settings(reasoning_effort="low"), "tools": TOOLS, "tool_choice": choice}
    with pytest.raises(ConfigurationError, match="leave tool_choice"):
        body_of(model="claude-haiku-4-5", **options)
    assert "thinking" in body_of(model="claude-opus-5", **options)
    assert "thinking" in body_of(model="claude-haiku-4-5", **(options | {"tool_choice": "none"}))


@pytest.mark.parametrize("setting", ["seed", "presence_penalty", "frequency_penalty"])
def test_a_setting_without_a_word_for_it_is_refused_when_the_model_is_made(setting: str) -> None:
    """By its name."""
    with pytest.raises(ConfigurationError, match=setting):
        Anthropic("m", api_key=KEY, settings=Settings(**{setting: 1}))


@pytest.mark.parametrize(
    ("model", "adaptive"),
    [
        ("claude-3-opus-20240229", False),
        ("claude-3-7-sonnet-20250219", False),
        ("claude-sonnet-4-20250514", False),
        ("claude-opus-4-1@20250805", False),
        ("anthropic.claude-haiku-4-5-20251001-v1:0", False),
        ("claude-opus-4-6", True),
        ("claude-sonnet-5", True),
        ("claude-fable-5-1", True),
        ("claude-mythos-preview", True),
        ("another-model", True),
    ],
)
def test_which_models_know_an_effort_is_told_by_their_version(model: str, *, adaptive: bool) -> None:
    """Claude 4.6 was the first; dates are no versions, and names without one are of the future."""
    assert (limits_of("anthropic", model).thinking != "budget") is adaptive


def test_a_long_answer_is_streamed_even_if_it_was_to_come_in_one_piece() -> None:
    """Over ten minutes of writing, by the SDK's reckoning, no connection holds; unless asked, no answer is so long."""
    assert with_settings(stream=False) == {"max_tokens": LARGEST_IN_ONE_PIECE}
    assert with_settings(stream=False, max_output_tokens=LARGEST_IN_ONE_PIECE + 1)["stream"] is True
    client = anthropic.Anthropic(api_key="none")
    client._calculate_nonstreaming_timeout(LARGEST_IN_ONE_PIECE, None)
    with pytest.raises(ValueError, match="Streaming is required"):
        client._calculate_nonstreaming_timeout(LARGEST_IN_ONE_PIECE + 1, None)
    source = MemorySource(stream("long"))
    model = Anthropic("m", api_key=KEY, stream=False, settings=Settings(max_output_tokens=64_000), source=source)
    assert asked(model).text == "long"


TOOLS = (ToolSpec(name="now"), ToolSpec(name="weather", description="d", parameters={"type": "object"}, strict=True))


@pytest.mark.parametrize(
    ("choice", "parallel", "wanted"),
    [
        (None, None, None),
        (None, True, None),
        ("auto", None, {"type": "auto"}),
        ("none", False, {"type": "none"}),
        ("required", None, {"type": "any"}),
        (OnlyTool("now"), None, {"type": "tool", "name": "now"}),
        (None, False, {"type": "auto", "disable_parallel_tool_use": True}),
        ("required", False, {"type": "any", "disable_parallel_tool_use": True}),
        (OnlyTool("now"), False, {"type": "tool", "name": "now", "disable_parallel_tool_use": True}),
    ],
)
def test_tools_and_the_choice_among_them(choice: Any, parallel: bool | None, wanted: dict[str, Any] | None) -> None:
    """One call at a time is a matter of the choice; a choice among no tools is not sent."""
    settings = Settings(parallel_tool_calls=parallel)
    body = body_of(tools=TOOLS, tool_choice=choice, settings=settings)
    assert body.get("tool_choice") == wanted
    assert body["tools"] == [
        {"name": "now", "input_schema": {"type": "object", "properties": {}}},
        {"name": "weather", "input_schema": {"type": "object"}, "description": "d", "strict": True},
    ]
    assert "tool_choice" not in body_of(tool_choice=choice, settings=settings)


def test_tools_that_the_provider_runs_stand_beside_the_agents_own() -> None:
    """They are given by `extra_body`; its other fields replace ours."""
    search = {"type": "web_search_20260318", "name": "web_search"}
    source = MemorySource(stream("a"), stream("b"))
    model = Anthropic("m", api_key=KEY, extra_body={"tools": [search], "max_tokens": 7}, source=source)
    asked(model, tools=TOOLS[:1])
    asked(model)
    first, second = (request.json for request in source.requests)
    assert [tool["name"] for tool in first["tools"]] == ["now", "web_search"]
    assert (second["tools"], second["max_tokens"]) == ([search], 7)


def test_the_answers_shape_is_asked_for_in_the_apis_own_way() -> None:
    """The native format, not a tool that is none; beside an effort."""
    output = OutputSchema(name="n", schema={"type": "object"})
    body = body_of(output=output, settings=Settings(reasoning_effort="low"))
    assert body["output_config"] == {"effort": "low", "format": {"type": "json_schema", "schema": {"type": "object"}}}


def test_the_cache_is_marked_behind_the_instructions_and_at_the_end() -> None:
    """What is behind the marks may change; without instructions the tools are marked. No part of a message changes."""
    mark = {"cache_control": {"type": "ephemeral"}}
    cached = Settings(cache_prompt=True)
    body = body_of(Message.system("s"), Message.user("a", "b"), settings=cached, tools=TOOLS)
    assert body["system"] == [{"type": "text", "text": "s"} | mark]
    assert body["messages"][0]["content"] == [{"type": "text", "text": "a"}, {"type": "text", "text": "b"} | mark]
    assert not [tool for tool in body["tools"] if "cache_control" in tool]
    assert body_of(settings=cached, tools=TOOLS)["tools"][-1]["cache_control"]
    found = Message("assistant", (Opaque(MARK, SEARCH), Opaque(MARK, dict(FOUND))))
    last = body_of(Message.user("q"), found, settings=cached)["messages"][-1]["content"]
    assert last == [SEARCH, FOUND | mark]
    assert found.parts[-1] == Opaque(MARK, FOUND)


# --- answers ------------------------------------------------------------------------------------------------


def test_an_agent_answers_with_what_the_provider_streams() -> None:
    """The model behind `Agent`: text and usage arrive in the result."""
    source = MemorySource(stream("Hello ", "you"))

    async def main() -> Any:
        return await Agent(Anthropic("claude-opus-5", api_key=KEY, source=source)).run("hi")

    result = run(main)
    assert (result.output, result.usage) == ("Hello you", Usage(input=40, output=9))
    assert source.requests[0].url == "https://api.anthropic.com/v1/messages"


def test_an_answer_in_one_piece_is_asked_for_and_read() -> None:
    """`stream=False`: no streaming field, and the whole answer decoded."""
    body = {"content": [{"type": "text", "text": "whole"}], "stop_reason": "end_turn"}
    body |= {"usage": {"input_tokens": 3, "output_tokens": 1}}
    source = MemorySource(
        Answer(headers={"content-type": "application/json"}, body=((0.1, json.dumps(body).encode()),))
    )
    message = asked(Anthropic("m", api_key=KEY, stream=False, source=source))
    assert (message.text, message.usage) == ("whole", Usage(input=3, output=1))
    assert "stream" not in source.requests[0].json


PAUSED = stream("Let me look. ", reason="pause_turn", blocks=(SEARCH,))


def test_a_paused_answer_is_gone_on_with() -> None:
    """It goes back as it came; each piece is a message, and their tokens add up."""
    rest = stream("Found.", blocks=(THOUGHT,))
    source = MemorySource(PAUSED, rest)

    async def main() -> Any:
        return await Agent(Anthropic("m", api_key=KEY, source=source)).run("hi")

    result = run(main)
    assert [message.text for message in result.messages] == ["hi", "Let me look. ", "Found."]
    assert result.output == result.text == "Let me look. Found."
    assert result.usage == Usage(input=80, output=18)
    first, second = (request.json["messages"] for request in source.requests)
    assert second[:-1] == first
    assert second[-1] == {"role": "assistant", "content": [{"type": "text", "text": "Let me look. "}, SEARCH]}


def test_an_answer_that_is_paused_for_ever_is_incomplete() -> None:
    """After a number of requests it is given up, and is no success."""
    source = MemorySource(PAUSED, repeat=True)
    with pytest.raises(RunFailed) as failed:
        asked(Anthropic("m", api_key=KEY, source=source))
    assert isinstance(failed.value.__cause__, IncompleteStream)
    assert len(source.requests) == MOST_CONTINUATIONS + 1


def test_an_answer_that_was_stopped_has_its_input_counted_and_its_output_estimated() -> None:
    """The provider counts the input before the answer, and the output only at its end."""
    source = MemorySource(stream("several words and more of them", reason=None))

    async def main() -> Any:
        started = Agent(Anthropic("m", api_key=KEY, source=source)).run("hi")
        async for event in started:
            if event.type == "text.delta":
                started.cancel()
        return await started.finished()

    result = run(main)
    assert (result.usage.input, result.usage.estimated) == (40, True)
    assert 1 < result.usage.output < 20
    assert result.messages[-1].interrupted


def test_the_recording_provider_speaks_the_format_that_the_official_sdk_reads(wire: WireProbe) -> None:
    """Text and calls, streamed and whole, errors and an error within a stream: our proof rests on it."""
    question: Any = {"model": "m", "max_tokens": 9, "messages": [{"role": "user", "content": "say it"}]}

    def client(mode: str) -> anthropic.Anthropic:
        return anthropic.Anthropic(api_key="none", base_url=wire.url(mode).removesuffix("/v1"), max_retries=0)

    with client("echo(2,1)") as sdk, sdk.messages.stream(**question) as answer:
        message = answer.get_final_message()
    assert (message.content[0].text, message.stop_reason) == ("say it#0 say it#1 ", "end_turn")
    assert (message.usage.input_tokens, message.usage.output_tokens) == (2, 2)
    with client('tool-call(now,{"zone": "UTC"})') as sdk, sdk.messages.stream(**question) as answer:
        message = answer.get_final_message()
    assert (message.content[-1].name, message.content[-1].input) == ("now", {"zone": "UTC"})
    assert message.stop_reason == "tool_use"
    with client("json(3)") as sdk:
        assert sdk.messages.create(**question).content[0].text == "t0 t1 t2 "
    with client("tool-call(now,{})") as sdk:
        assert sdk.messages.create(**question).content[0].input == {}
    with client("status(529)") as sdk, pytest.raises(anthropic.APIStatusError, match="overloaded_error"):
        sdk.messages.create(**question)
    with (
        client("error-frame(1)") as sdk,
        pytest.raises(anthropic.APIStatusError, match="Overloaded"),
        sdk.messages.stream(**question) as answer,
    ):
        answer.get_final_message()


# --- keys and places ----------------------------------------------------------------------------------------


def request_of(**options: Any) -> Any:
    source = MemorySource(stream("ok"))
    asked(Anthropic("m", source=source, **options))
    return source.requests[0]


@pytest.mark.parametrize(
    ("base_url", "url"),
    [
        (None, "https://api.anthropic.com/v1/messages"),
        ("https://api.anthropic.com/v1/", "https://api.anthropic.com/v1/messages"),
        ("http://host.test:1/anthropic", "http://host.test:1/anthropic/v1/messages"),
        ("http://host.test/x/v1?a=b", "http://host.test/x/v1/messages?a=b"),
    ],
)
def test_the_version_in_the_address_may_be_there_or_not(base_url: str | None, url: str) -> None:
    """The SDK adds it, other clients want it given."""
    assert request_of(base_url=base_url, api_key=KEY).url == url


def test_key_and_place_come_from_the_official_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    """A key in its own header; a token, where there is no key, as a bearer's; one of the two is sent, never both."""
    monkeypatch.setenv("ANTHROPIC_BASE_URL", "http://proxy.test")
    monkeypatch.setenv("ANTHROPIC_AUTH_TOKEN", "token\n")
    request = request_of()
    assert request.url == "http://proxy.test/v1/messages"
    assert request.headers["Authorization"] == "Bearer token"
    assert "x-api-key" not in request.headers
    monkeypatch.setenv("ANTHROPIC_API_KEY", KEY + "\n")
    for headers in (request_of().headers, request_of(api_key="given").headers):
        assert headers["x-api-key"] in (KEY, "given")
        assert headers["anthropic-version"] == API_VERSION
        assert "Authorization" not in headers
    assert not {"x-api-key", "Authorization"} & set(request_of(api_key="").headers)


def test_a_missing_key_is_named_before_anything_runs() -> None:
    """Anthropic's own server does not answer without one."""
    for make in (lambda: Anthropic("m"), lambda: Agent("anthropic:claude-opus-5")):
        with pytest.raises(ConfigurationError, match="ANTHROPIC_API_KEY"):
            make()
    assert repr(Anthropic("m", base_url="http://localhost:1")) == "Anthropic('m', base_url='http://localhost:1')"


def test_other_headers_ask_for_betas_or_another_version() -> None:
    """Whatever their case, one of a name is sent."""
    headers = request_of(api_key=KEY, headers={"Anthropic-Version": "2026-10-21", "anthropic-beta": "x"}).headers
    assert [value for name, value in headers.items() if name.lower() == "anthropic-version"] == ["2026-10-21"]
    assert headers["anthropic-beta"] == "x"


@pytest.mark.parametrize("variable", ["ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN"])
def test_the_key_is_shown_nowhere(monkeypatch: pytest.MonkeyPatch, variable: str) -> None:
    """Not in `repr`, and not in the error of a server that repeats it, as a status or within the answer."""
    monkeypatch.setenv(variable, KEY)
    error = json.dumps({"type": "error", "error": {"type": "authentication_error", "message": f"bad {KEY}"}}).encode()
    refused = Answer(status=401, headers={"content-type": "application/json"}, body=((0.0, error),))
    for answer in (refused, Answer(body=((0.0, b"event: error\ndata: " + error + b"\n\n"),))):
        source = MemorySource(answer)
        model = Anthropic("m", source=source)
        with pytest.raises(RunFailed) as caught:
            asked(model)
        cause = caught.value.__cause__
        assert isinstance(cause, AuthenticationFailed)
        assert "bad [key]" in str(cause)
        assert cause.code == "authentication_error"
        assert KEY not in f"{cause!r}{model!r}{source.requests[0].request!r}{caught.value}"
