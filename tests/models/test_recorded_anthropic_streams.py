"""F59: every recorded stream of Anthropic's, however it is cut, gives what the official SDK makes of the same bytes."""

from __future__ import annotations

import importlib
import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import anthropic
import pytest
from anthropic.types import message_create_params
from anthropic.types.beta import message_create_params as beta_message_create_params
from pydantic import BaseModel, TypeAdapter

from halter.messages import Message, Opaque, ToolResult
from halter.models.anthropic.request import anthropic_body
from halter.models.anthropic.turns import turns_of
from halter.models.anthropic.wire import AnthropicWire
from halter.request import ModelRequest
from halter.testing import split_sweep

from .recording_reply import Decoded, RecordingReply
from .recording_reply import decode as decode_as

RECORDINGS = Path(__file__).parents[3] / "shared" / "recorded-streams" / "anthropic-messages"
NAMES = sorted(path.stem for path in RECORDINGS.glob("*.sse"))
SMALL = 8 * 1024
PROVIDER = "anthropic:api.anthropic.com"
WIRE = AnthropicWire("anthropic:test", provider=PROVIDER, key="sk-very-secret")
# With blocks that only the SDK's beta half has types for.
IS_BETA = ("advisor", "mcp-servers")
# What the accumulator of the SDK's stable half drops, by its recording: it collects the input of two kinds of blocks.
# b'"content_block":{"type":"mcp_tool_use",' begins one of a third, b'"partial_json":"{\\"repoName\\""' adds to its
# input, and that stays {}.
SDK_LOSES = {"mcp-servers": "mcp_tool_use"}

pytestmark = [
    pytest.mark.scenario("F59"),
    pytest.mark.skipif(not NAMES, reason="the recorded streams are not here"),
]


def read(name: str) -> bytes:
    return (RECORDINGS / f"{name}.sse").read_bytes()


def decode(chunks: list[bytes]) -> Decoded:
    return decode_as(chunks, WIRE)


# --- what the SDK makes of it -------------------------------------------------------------------------------


def sdk_client(body: bytes) -> anthropic.Anthropic:
    """The SDK over a transport that answers with these bytes; it brings its own httpx, under one of two names."""
    base = importlib.import_module("anthropic._base_client")
    http = importlib.import_module(next(name for name in ("httpx2", "httpx") if hasattr(base, name)))
    head = {"content-type": "text/event-stream"}
    transport = http.MockTransport(lambda _: http.Response(200, headers=head, content=body))
    client = http.Client(transport=transport)
    return anthropic.Anthropic(api_key="none", base_url="http://sdk.test", max_retries=0, http_client=client)


def sdk_answer(body: bytes, *, beta: bool = True) -> Any:
    """The message that the SDK accumulates; its beta half knows all kinds of blocks."""
    with sdk_client(body) as client:
        asked: Any = {"model": "m", "max_tokens": 9, "messages": [{"role": "user", "content": "hi"}]}
        messages = client.beta.messages if beta else client.messages
        with messages.stream(**asked) as stream:
            return stream.get_final_message()


def sdk_blocks(answer: Any) -> list[dict[str, Any]]:
    """The content as the SDK itself would send it back: what the provider has set, and nothing else."""
    return [block.model_dump(mode="json", exclude_unset=True) for block in answer.content]


def sdk_facts(answer: Any) -> dict[str, Any]:
    usage, details = answer.usage, answer.usage.output_tokens_details
    read_from_cache = usage.cache_read_input_tokens or 0
    return {
        "text": "".join(block.text for block in answer.content if block.type == "text"),
        "reasoning": "".join(block.thinking for block in answer.content if block.type == "thinking"),
        "calls": [(block.id, block.name, block.input) for block in answer.content if block.type == "tool_use"],
        "finish_reason": answer.stop_reason,
        "usage": (
            usage.input_tokens + (usage.cache_creation_input_tokens or 0) + read_from_cache,
            usage.output_tokens,
            read_from_cache,
            details.thinking_tokens if details else 0,
        ),
    }


def facts_of(message: Message) -> dict[str, Any]:
    usage = message.usage
    return {
        "text": message.text,
        "reasoning": message.reasoning,
        "calls": [(call.id, call.name, json.loads(call.arguments or "{}")) for call in message.tool_calls],
        "finish_reason": message.finish_reason,
        "usage": usage and (usage.input, usage.output, usage.cached, usage.reasoning),
    }


# --- the message --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("cuts", [100, pytest.param(1_000, marks=pytest.mark.soak)])
@pytest.mark.parametrize("name", NAMES)
def test_any_cut_of_a_recorded_stream_gives_the_same_message(name: str, cuts: int) -> None:
    """A small stream is cut at each byte, a large one at places all over; both at random and into single bytes."""
    body = read(name)
    every = 1 if len(body) <= SMALL else len(body) // 128
    tried = split_sweep(decode, body, every=every, cuts=cuts)
    assert tried > cuts


@pytest.mark.parametrize("name", NAMES)
def test_a_recorded_stream_gives_what_the_official_sdk_accumulates(name: str) -> None:
    """Text, thinking, calls, stop reason and usage are the SDK's, and the answer is whole."""
    body = read(name)
    decoded = decode([body])
    assert (decoded.error, decoded.is_over) == (None, True)
    assert facts_of(decoded.message) == sdk_facts(sdk_answer(body))


@pytest.mark.parametrize("name", NAMES)
def test_crlf_and_missing_spaces_change_nothing_in_a_recorded_stream(name: str) -> None:
    """The same stream with CRLF line ends, without the space behind `data:`, and without its `event:` lines."""
    body = read(name)
    expected = decode([body])
    lines = [line for line in body.split(b"\n") if not line.startswith(b"event:")]
    for same in (body.replace(b"\n", b"\r\n"), body.replace(b"data: ", b"data:"), b"\n".join(lines)):
        assert decode([same]) == expected


@pytest.mark.parametrize("name", NAMES)
def test_an_answer_in_one_piece_is_the_one_that_was_streamed(name: str) -> None:
    """The SDK's message as a JSON body gives the same parts, reason and usage."""
    streamed = decode([read(name)]).message
    reply_body = sdk_answer(read(name)).model_dump_json(exclude_unset=True).encode()
    whole = decode_whole(reply_body)
    assert whole.is_over
    assert facts_of(whole.message) == facts_of(streamed)
    assert blocks_of(whole.message) == blocks_of(streamed)


def decode_whole(body: bytes) -> Decoded:
    reply = RecordingReply()
    decoder = WIRE.begin(reply)  # type: ignore[arg-type]
    decoder.whole(body)
    return Decoded(reply.assembly.message(), None, decoder.is_over)


# --- the next turn ------------------------------------------------------------------------------------------


def conversation(message: Message, *, is_continued: bool) -> tuple[Message, ...]:
    results = tuple(ToolResult(call.id, "done") for call in message.tool_calls)
    after = (Message("tool", results),) if results else () if is_continued else (Message.user("Go on."),)
    return (Message.user("hi"), message, *after)


def blocks_of(message: Message) -> list[dict[str, Any]]:
    asked = conversation(message, is_continued=message.finish_reason == "pause_turn")
    return turns_of(asked, PROVIDER)[1]["content"]


@pytest.mark.parametrize("name", NAMES)
def test_the_answer_goes_back_block_by_block_as_the_official_sdk_would_send_it(name: str) -> None:
    """Signatures, encrypted content, citations, ids, server tools and their results: all unchanged, in their order."""
    ours, theirs = blocks_of(decode([read(name)]).message), sdk_blocks(sdk_answer(read(name)))
    assert ours == [_without_empty_citations(block) for block in theirs]


@pytest.mark.parametrize("name", NAMES)
def test_the_stable_half_of_the_sdk_agrees_but_for_what_it_loses(name: str) -> None:
    """The same facts and blocks, except for the input of the tools in `SDK_LOSES`."""
    ours, answer = decode([read(name)]).message, sdk_answer(read(name), beta=False)
    assert facts_of(ours) == sdk_facts(answer)
    lost = [kind for word, kind in SDK_LOSES.items() if word in name]
    kept = [block | ({"input": {}} if block["type"] in lost else {}) for block in blocks_of(ours)]
    assert kept == [_without_empty_citations(block) for block in sdk_blocks(answer)]
    assert bool(lost) == (kept != blocks_of(ours))


def _without_empty_citations(block: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in block.items() if (key, value) != ("citations", [])}


@pytest.mark.parametrize("name", NAMES)
def test_the_next_request_is_what_the_official_sdk_takes(name: str) -> None:
    """Read strictly by pydantic, down to each block; the beta half's types where only it knows a block."""
    message = decode([read(name)]).message
    is_beta = any(word in name for word in IS_BETA)
    module = beta_message_create_params if is_beta else message_create_params
    parameters = TypeAdapter(module.MessageCreateParamsStreaming)
    for is_continued in (False, True):
        request = ModelRequest(messages=conversation(message, is_continued=is_continued))
        body = anthropic_body(request, model="m", provider=PROVIDER, stream=True)
        assert read_all(parameters.validate_python(body)) == body


def read_all(value: Any) -> Any:
    """The value with every iterable in it read: pydantic looks at their items only then."""
    if isinstance(value, BaseModel):  # the SDK takes its own answers back as they are
        return value.model_dump(mode="json", exclude_unset=True)
    if isinstance(value, Mapping):
        return {key: read_all(item) for key, item in value.items()}
    if isinstance(value, Iterable) and not isinstance(value, str | bytes):
        return [read_all(item) for item in value]
    return value


@pytest.mark.parametrize("name", NAMES)
def test_another_server_gets_nothing_that_it_did_not_make(name: str) -> None:
    """Only text and calls: signatures and encrypted blocks are of no use to anybody else."""
    message = decode([read(name)]).message
    turns = turns_of(conversation(message, is_continued=False), "anthropic:elsewhere")
    kinds = {block["type"] for turn in turns for block in turn["content"]}
    assert kinds <= {"text", "tool_use", "tool_result"}
    assert not [block for turn in turns for block in turn["content"] if "citations" in block]


@pytest.mark.parametrize("name", [name for name in NAMES if "pause-turn" in name])
def test_a_paused_answer_goes_back_with_the_tool_that_still_runs_and_otherwise_without_it(name: str) -> None:
    """To be continued it must be as it was; behind it a user's message makes the open call an error."""
    message = decode([read(name)]).message
    assert blocks_of(message)[-1]["type"] == "server_tool_use"
    ended = turns_of(conversation(message, is_continued=False), PROVIDER)[1]["content"]
    assert ended == blocks_of(message)[:-1]


@pytest.mark.parametrize("name", [name for name in NAMES if "code-execution" in name])
def test_the_container_is_used_again_until_it_expires(name: str) -> None:
    """Its id is in the next request while it lives; these have expired long ago."""
    message = decode([read(name)]).message
    kept = [part.data["container"] for part in message.parts if isinstance(part, Opaque) and "container" in part.data]
    assert [container["id"][:10] for container in kept] == ["container_"]

    def asked(expires_at: str | None) -> dict[str, Any]:
        parts = (*message.parts[:-1], Opaque(PROVIDER, {"container": kept[0] | {"expires_at": expires_at}}))
        said = (Message.user("hi"), Message("assistant", parts), Message.user("Go on."))
        return anthropic_body(ModelRequest(messages=said), model="m", provider=PROVIDER, stream=True)

    assert asked("2999-01-01T00:00:00.5Z")["container"] == kept[0]["id"]
    assert asked(None)["container"] == kept[0]["id"]
    assert "container" not in asked(kept[0]["expires_at"])
