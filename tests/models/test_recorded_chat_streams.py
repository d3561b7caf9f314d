"""F59: every recorded chat stream, however it is cut, gives what the official SDK makes of the same bytes."""

from __future__ import annotations

import importlib
import json
import re
import time
from pathlib import Path
from typing import Any

import msgspec
import openai
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from openai.lib.streaming.chat import ChatCompletionStreamState
from openai.types.chat.completion_create_params import CompletionCreateParamsStreaming
from pydantic import TypeAdapter

from halter.errors import RequestRejected
from halter.messages import Message, ToolResult
from halter.models.chat.dialect import OPENAI
from halter.models.chat.request import chat_body
from halter.models.compatible import COMPATIBLE
from halter.request import ModelRequest
from halter.testing import split_sweep

from ..sizes import examples
from .recording_reply import WIRE, Decoded, decode

RECORDINGS = Path(__file__).parents[3] / "shared" / "recorded-streams" / "openai-chat"
NAMES = sorted(path.stem for path in RECORDINGS.glob("*.sse"))
SMALL = 8 * 1024

pytestmark = [
    pytest.mark.scenario("F59"),
    pytest.mark.skipif(not NAMES, reason="the recorded streams are not here"),
]

# Where the SDK's own accumulation differs, and the bytes that show it.
SDK_DIFFERS: dict[str, dict[str, Any]] = {
    "groq-groq-model-web-search-tool-stream-0": {
        # b'"x_groq":{"usage":{"queue_time":0.235881,"prompt_tokens":5003,' — the only count; the SDK knows no x_groq.
        "usage": (5003, 359, 0, 0),
    },
}
# Streams that the SDK's accumulator does not survive, by its words; its chunks are added up here instead.
# b'"annotations":[{"type":"url_citation",' — entries of a list in a delta, without an `index`.
SDK_BREAKS = {"openrouter-openrouter-web-search-annotations-stream-0": "to have an `index` key"}


def read(name: str) -> bytes:
    return (RECORDINGS / f"{name}.sse").read_bytes()


# --- what the SDK makes of it -------------------------------------------------------------------------------


class SdkAnswer:
    """The official SDK's view of some bytes: its chunks, their accumulation, and what it raised."""

    def __init__(self, body: bytes) -> None:
        self.chunks: list[Any] = []
        self.state_error: Exception | None = None
        self.error: openai.APIError | None = None
        state = ChatCompletionStreamState()
        client = sdk_client(body)
        try:
            for chunk in client.chat.completions.create(model="m", messages=[], stream=True):
                self.chunks.append(chunk)
                self._accumulate(state, chunk)
        except openai.APIError as error:
            self.error = error
        finally:
            client.close()
        self.choice = state.current_completion_snapshot.choices[0]

    def _accumulate(self, state: ChatCompletionStreamState[Any], chunk: Any) -> None:
        if self.state_error is None:
            try:
                state.handle_chunk(chunk)
            except RuntimeError as error:
                self.state_error = error

    @property
    def facts(self) -> dict[str, Any]:
        message = self.choice.message
        text = message.content or ""
        finish_reason = self.choice.finish_reason
        if self.state_error is not None:
            choices = [choice for chunk in self.chunks for choice in chunk.choices]
            text = "".join(choice.delta.content or "" for choice in choices)
            finish_reason = next(filter(None, (choice.finish_reason for choice in reversed(choices))), None)
        return {
            "text": text,
            "reasoning": reasoning_of(message.model_extra or {}),
            "refusal": message.refusal or "",
            "calls": [(call.id, call.function.name, call.function.arguments) for call in message.tool_calls or ()],
            "finish_reason": finish_reason,
            "usage": self._usage(),
        }

    def _usage(self) -> tuple[int, int, int, int] | None:
        # The accumulator keeps the last chunk's usage even if that is none: OpenAI's moderation chunk comes after it.
        usage = next((chunk.usage for chunk in reversed(self.chunks) if chunk.usage), None)
        if usage is None:
            return None
        before, after = usage.prompt_tokens_details, usage.completion_tokens_details
        cached, reasoning = before and before.cached_tokens, after and after.reasoning_tokens
        return usage.prompt_tokens, usage.completion_tokens, cached or 0, reasoning or 0


def sdk_client(body: bytes) -> openai.OpenAI:
    """The SDK over a transport that answers with these bytes; it brings its own httpx, under one of two names."""
    http_name = next(name for name in ("httpx2", "httpx") if hasattr(importlib.import_module(SDK_BASE), name))
    http = importlib.import_module(http_name)
    head = {"content-type": "text/event-stream"}
    transport = http.MockTransport(lambda _: http.Response(200, headers=head, content=body))
    client = http.Client(transport=transport)
    return openai.OpenAI(api_key="none", base_url="http://sdk.test/v1", max_retries=0, http_client=client)


SDK_BASE = "openai._base_client"


def reasoning_of(extra: dict[str, Any]) -> str:
    details = extra.get("reasoning_details") or []
    return (
        extra.get("reasoning_content")
        or extra.get("reasoning")
        or "".join(block.get("text") or "" for block in details)
    )


def facts_of(decoded: Decoded) -> dict[str, Any]:
    message = decoded.message
    usage = message.usage
    return {
        "text": message.text,
        "reasoning": message.reasoning,
        "refusal": message.refusal,
        "calls": [(call.id, call.name, call.arguments) for call in message.tool_calls],
        "finish_reason": message.finish_reason,
        "usage": usage and (usage.input, usage.output, usage.cached, usage.reasoning),
    }


# --- the facts ----------------------------------------------------------------------------------------------


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
    """Text, reasoning, refusal, calls, finish reason and usage are the SDK's, except where the table shows why not."""
    body = read(name)
    sdk, decoded = SdkAnswer(body), decode([body])
    assert (sdk.state_error is not None) == (name in SDK_BREAKS)
    assert SDK_BREAKS.get(name, "") in str(sdk.state_error)
    assert facts_of(decoded) == sdk.facts | SDK_DIFFERS.get(name, {})


@pytest.mark.parametrize("name", NAMES)
def test_a_recorded_stream_is_over_unless_the_provider_failed_in_it(name: str) -> None:
    """Where the SDK raises, so do we, with its message, as what it is; every other recording has its terminal frame."""
    body = read(name)
    sdk, decoded = SdkAnswer(body), decode([body])
    if sdk.error is None:
        assert decoded.error is None
        assert decoded.is_over
    else:
        assert isinstance(decoded.error, RequestRejected)
        assert sdk.error.message in str(decoded.error)
        assert (decoded.error.status, decoded.error.code) == (400, "tool_use_failed")
        assert not decoded.is_over


@pytest.mark.parametrize("name", NAMES)
def test_crlf_and_missing_spaces_change_nothing_in_a_recorded_stream(name: str) -> None:
    """The same stream with CRLF line ends, and without the space behind `data:`, is the same message."""
    body = read(name)
    expected = decode([body])
    assert decode([body.replace(b"\n", b"\r\n")]) == expected
    assert decode([body.replace(b"data: ", b"data:")]) == expected


def kept_details(name: str) -> list[dict[str, Any]]:
    """OpenRouter's block, out of the raw frames: fragments joined, the last word of each field; none if unsigned."""
    frames = [json.loads(line[6:]) for line in read(name).split(b"\n") if line.startswith(b"data: {")]
    choices = [choice for frame in frames for choice in frame.get("choices") or ()]
    sent = [detail for choice in choices for detail in choice["delta"].get("reasoning_details") or ()]
    block: dict[str, Any] = {}
    for detail in sent:
        block |= {key: value for key, value in detail.items() if value not in (None, "")}
    if any("text" in detail for detail in sent):
        block["text"] = "".join(detail.get("text") or "" for detail in sent)
    return [block] if block.get("signature") or block.get("data") else []


def test_all_recordings_are_here_and_some_of_each_kind() -> None:
    """Eighteen streams; among them signed thinking and calls, so that no test below is empty."""
    assert len(NAMES) == 18
    assert sum(bool(kept_details(name)) for name in NAMES) == 3
    assert any(decode([read(name)]).message.tool_calls for name in NAMES)


# --- the next turn ------------------------------------------------------------------------------------------


def next_turn(message: Message, name: str) -> list[dict[str, Any]]:
    """The assistant's message, and the results of its calls, as they go back to the server that it came from."""
    meta = json.loads((RECORDINGS / f"{name}.json").read_text())
    known = COMPATIBLE.get(meta["provider"])
    results = tuple(ToolResult(call.id, "done") for call in message.tool_calls)
    said = (Message.user("Go on."), message, *([Message("tool", results)] if results else []), Message.user("And?"))
    body = chat_body(
        ModelRequest(messages=said),
        model=meta["model"],
        provider=WIRE.provider,
        stream=True,
        dialect=known.dialect if known else OPENAI,
    )
    sent = msgspec.json.decode(msgspec.json.encode(body))
    TypeAdapter(CompletionCreateParamsStreaming).validate_python(sent)
    return sent["messages"][1:-1]


@pytest.mark.parametrize("name", NAMES)
def test_the_next_turn_sends_back_what_the_official_sdk_has_read(name: str) -> None:
    """The SDK's types take it; text, ids and arguments are as the SDK accumulated them, calls before their results."""
    body = read(name)
    facts, sent = SdkAnswer(body).facts, next_turn(decode([body]).message, name)
    if not (facts["text"] or facts["calls"]):
        assert sent == []  # the provider failed before it said anything
        return
    assistant, *results = sent
    assert (assistant["role"], assistant["content"] or "") == ("assistant", facts["text"])
    calls = [(call["id"], call["function"]["name"], call["function"]["arguments"]) for call in calls_in(assistant)]
    assert calls == facts["calls"]
    assert [result["tool_call_id"] for result in results] == [id for id, _, _ in facts["calls"]]


def calls_in(message: dict[str, Any]) -> list[dict[str, Any]]:
    return message.get("tool_calls", [])


@pytest.mark.parametrize("name", NAMES)
def test_signed_and_encrypted_reasoning_goes_back_as_the_provider_wrote_it(name: str) -> None:
    """OpenRouter's blocks: fragments joined, signature and data byte for byte; what is unsigned stays here."""
    sent = next_turn(decode([read(name)]).message, name)
    blocks = [block for message in sent for block in message.get("reasoning_details", ())]
    told = [{key: value for key, value in block.items() if value not in (None, "")} for block in blocks]
    assert told == kept_details(name)


@pytest.mark.parametrize("name", NAMES)
def test_the_next_turn_is_the_same_from_a_message_that_was_stored(name: str) -> None:
    """A message is data: as JSON and back, it asks for the same."""
    message = decode([read(name)]).message
    stored = msgspec.json.decode(msgspec.json.encode(message), type=Message)
    assert stored == message
    assert next_turn(stored, name) == next_turn(message, name)


# --- properties ---------------------------------------------------------------------------------------------


@given(st.data())
@settings(deadline=None, max_examples=examples(30))
def test_any_part_of_any_recording_with_garbage_in_it_gives_a_message_or_one_of_our_errors(data: st.DataObject) -> None:
    """Cut off anywhere, garbage between frames or inside them, in reads of any size: nothing else is ever raised."""
    body = read(data.draw(st.sampled_from([name for name in NAMES if len(read(name)) < 100_000])))
    body = body[: data.draw(st.integers(0, len(body)))]
    for _ in range(data.draw(st.integers(0, 3))):
        ends = [match.end() for match in re.finditer(rb"\n\n", body)] or [0]
        at = data.draw(st.sampled_from(ends) | st.integers(0, len(body)))
        body = body[:at] + data.draw(st.sampled_from(GARBAGE) | st.binary(max_size=50)) + body[at:]
    size = data.draw(st.sampled_from([1, 2, 7, 1000, len(body) + 1]))
    decoded = decode([body[at : at + size] for at in range(0, len(body), size)])
    assert isinstance(decoded.message, Message)
    assert msgspec.json.encode(decoded.message)


GARBAGE = [
    b"data: \n\n",
    b": ping\n\n",
    b"event: error\ndata: {}\n\n",
    b"data: {\n\n",
    b"data: [DONE\n\n",
    b"data: [DONE]\n\n",
    b"data: null\n\n",
    b'data: {"choices": null}\n\n',
    b'data: {"error": {"message": "overloaded"}}\n\n',
    b"\xff\xfe\x00",
    b"data: " + b"[" * 2000 + b"\n\n",
]


def test_a_frame_of_two_megabytes_in_reads_of_one_byte_takes_less_than_two_seconds() -> None:
    """Linear: each byte is looked at a few times, never all that came before it."""
    text = b"x" * (2 << 20)
    body = b'data: {"choices":[{"delta":{"content":"' + text + b'"}}]}\n\ndata: [DONE]\n\n'
    reads = [body[at : at + 1] for at in range(len(body))]
    began = time.process_time()
    decoded = decode(reads)
    assert time.process_time() - began < 2.0
    assert (len(decoded.message.text), decoded.is_over) == (len(text), True)
