"""F59: every recorded Gemini stream, however it is cut, gives what the official SDK makes of the same bytes."""

from __future__ import annotations

import importlib
import json
from base64 import b64decode
from pathlib import Path
from typing import Any

import pytest
from google import genai
from google.genai import types

from halter.messages import Message, ToolCall, ToolResult
from halter.models.gemini.request import gemini_contents
from halter.models.gemini.wire import GeminiWire
from halter.testing import split_sweep

from .recording_reply import Decoded
from .recording_reply import decode as decode_with

RECORDINGS = Path(__file__).parents[3] / "shared" / "recorded-streams" / "gemini"
NAMES = sorted(path.stem for path in RECORDINGS.glob("*.sse"))
SMALL = 8 * 1024
WIRE = GeminiWire("gemini:test", provider="gemini", key="sk-very-secret")

pytestmark = [
    pytest.mark.scenario("F59"),
    pytest.mark.skipif(not NAMES, reason="the recorded streams are not here"),
]


def read(name: str) -> bytes:
    return (RECORDINGS / f"{name}.sse").read_bytes()


def decode(chunks: list[bytes]) -> Decoded:
    return decode_with(chunks, WIRE)  # type: ignore[arg-type]


def raw_parts(name: str) -> list[dict[str, Any]]:
    """All parts of a stream, in order, as they stand in its bytes."""
    frames = [json.loads(line[6:]) for line in read(name).splitlines() if line.startswith(b"data: ")]
    contents = [candidate["content"] for frame in frames for candidate in frame["candidates"] if "content" in candidate]
    return [part for content in contents for part in content.get("parts", ())]


# --- what the SDK makes of it -------------------------------------------------------------------------------


class SdkAnswer:
    """The official SDK's view of some bytes: its chunks, and their parts put together."""

    def __init__(self, body: bytes) -> None:
        client = sdk_client(body)
        self.chunks = list(client.models.generate_content_stream(model="m", contents="hi"))
        self.candidates = [candidate for chunk in self.chunks for candidate in chunk.candidates or ()]
        self.parts = [part for one in self.candidates if one.content for part in one.content.parts or ()]

    @property
    def facts(self) -> dict[str, Any]:
        calls = [part.function_call for part in self.parts if part.function_call is not None]
        reasons = [one.finish_reason for one in self.candidates if one.finish_reason is not None]
        return {
            "text": "".join(part.text or "" for part in self.parts if not part.thought),
            "reasoning": "".join(part.text or "" for part in self.parts if part.thought),
            "calls": [(call.id, call.name, call.args) for call in calls],
            "signatures": [part.thought_signature for part in self.parts if part.thought_signature],
            "finish_reason": reasons[-1].value if reasons else None,
            "usage": self._usage(),
        }

    def _usage(self) -> tuple[int, ...] | None:
        counts = next((chunk.usage_metadata for chunk in reversed(self.chunks) if chunk.usage_metadata), None)
        if counts is None:
            return None
        thoughts, sent = counts.thoughts_token_count or 0, counts.prompt_token_count or 0
        return (
            sent + (counts.tool_use_prompt_token_count or 0),
            (counts.candidates_token_count or 0) + thoughts,
            counts.cached_content_token_count or 0,
            thoughts,
            counts.total_token_count or 0,
        )


def sdk_client(body: bytes) -> genai.Client:
    """The SDK over a transport that answers with these bytes; it brings its own httpx, under one of two names."""
    api_client = importlib.import_module("google.genai._api_client")
    http = importlib.import_module(next(name for name in ("httpx2", "httpx") if hasattr(api_client, name)))
    head = {"content-type": "text/event-stream"}
    transport = http.MockTransport(lambda _: http.Response(200, headers=head, content=body))
    options = types.HttpOptions(httpx_client=http.Client(transport=transport), base_url="http://sdk.test")
    return genai.Client(api_key="none", http_options=options)


def facts_of(decoded: Decoded) -> dict[str, Any]:
    message = decoded.message
    usage = message.usage
    calls = message.tool_calls
    return {
        "text": message.text,
        "reasoning": message.reasoning,
        "calls": [(id_of(call), call.name, json.loads(call.arguments)) for call in calls],
        "signatures": [
            b64decode(part["thoughtSignature"]) for part in next_turn(message) if "thoughtSignature" in part
        ],
        "finish_reason": message.finish_reason,
        "usage": usage and (usage.input, usage.output, usage.cached, usage.reasoning, usage.total),
    }


def id_of(call: ToolCall) -> str | None:
    """The provider's id; the reply of these tests marks the ids that it has made itself."""
    return None if call.id.startswith("made-") else call.id


def conversation(message: Message) -> tuple[Message, ...]:
    results = tuple(ToolResult(call.id, "done") for call in message.tool_calls)
    return (Message.user("hi"), message, *((Message("tool", results),) if results else (Message.user("go on"),)))


def next_turn(message: Message) -> list[dict[str, Any]]:
    """What of the message goes back on the next turn."""
    _, answer, _ = gemini_contents(conversation(message), model="gemini-2.5-pro")
    return answer["parts"]


# --- the facts ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", NAMES)
def test_any_cut_of_a_recorded_stream_gives_the_same_message(name: str) -> None:
    """A small stream is cut at each byte, a large one at places all over; both at random and into single bytes."""
    body = read(name)
    every = 1 if len(body) <= SMALL else len(body) // 128
    tried = split_sweep(decode, body, every=every, cuts=1000)
    assert tried > 1000


@pytest.mark.parametrize("name", NAMES)
def test_a_recorded_stream_gives_what_the_official_sdk_reads(name: str) -> None:
    """Text, thoughts, calls, signatures, finish reason and usage are the SDK's."""
    body = read(name)
    decoded = decode([body])
    assert decoded.error is None
    assert decoded.is_over
    assert facts_of(decoded) == SdkAnswer(body).facts


@pytest.mark.parametrize("name", NAMES)
def test_plain_line_ends_and_missing_spaces_change_nothing_in_a_recorded_stream(name: str) -> None:
    """The streams have CRLF line ends; with LF, and without the space behind `data:`, they are the same message."""
    body = read(name)
    expected = decode([body])
    assert decode([body.replace(b"\r\n", b"\n")]) == expected
    assert decode([body.replace(b"data: ", b"data:")]) == expected


@pytest.mark.parametrize("name", NAMES)
def test_each_signed_part_and_each_part_of_another_kind_goes_back_as_it_came(name: str) -> None:
    """In order, byte for byte; only a call without an id has got one. Unsigned text is one part, and all there."""
    sent = next_turn(decode([read(name)]).message)
    for part in sent:
        call = part.get("functionCall", {})
        if call.get("id", "").startswith("made-"):
            del call["id"]
    special = [part for part in raw_parts(name) if set(part) != {"text"}]
    assert [part for part in sent if set(part) != {"text"}] == special
    assert "".join(part.get("text", "") for part in sent) == "".join(part.get("text", "") for part in raw_parts(name))


@pytest.mark.parametrize("name", NAMES)
def test_the_next_turn_after_a_recorded_stream_is_a_request_by_the_sdks_own_types(name: str) -> None:
    """Each content is valid, strictly; a result has its call's id and name."""
    contents = gemini_contents(conversation(decode([read(name)]).message), model="gemini-3-pro")
    read_back = [types.Content.model_validate_json(json.dumps(content), strict=True) for content in contents]
    assert [content.role for content in read_back] == ["user", "model", "user"]
    assert all(content.parts for content in read_back)
    calls = [part.function_call for part in read_back[1].parts or () if part.function_call]
    results = [part.function_response for part in read_back[2].parts or () if part.function_response]
    assert [(call.id, call.name) for call in calls] == [(result.id, result.name) for result in results]


@pytest.mark.parametrize("name", NAMES)
def test_facts_about_an_answer_are_kept_and_not_sent_back(name: str) -> None:
    """Grounding, citations and fetched addresses stand in the message as the API gave them."""
    message = decode([read(name)]).message
    kept = [part.data["facts"] for part in message.parts if type(part).__name__ == "Opaque" and "facts" in part.data]
    frames = [json.loads(line[6:]) for line in read(name).splitlines() if line.startswith(b"data: ")]
    known = ("groundingMetadata", "citationMetadata", "urlContextMetadata")
    told = [
        {key: candidate[key] for key in known if candidate.get(key)}
        for frame in frames
        for candidate in frame["candidates"]
    ]
    assert kept == [facts for facts in told if facts]
    assert not any(set(part) & {"facts", "added"} for part in next_turn(message))
