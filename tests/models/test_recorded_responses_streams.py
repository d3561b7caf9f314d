"""F59: every recorded Responses stream, however it is cut, gives what the official SDK makes of the same bytes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import openai
import pytest
from openai.lib.streaming.responses._responses import ResponseStreamState
from openai.types.responses import Response
from openai.types.responses.response_create_params import ResponseCreateParamsStreaming
from pydantic import TypeAdapter

from halter.messages import Message, Opaque, ToolResult
from halter.models.responses.request import Ways, responses_body
from halter.models.responses.wire import ResponsesWire
from halter.request import ModelRequest
from halter.testing import split_sweep

from .recording_reply import Decoded, decode
from .test_recorded_chat_streams import sdk_client

RECORDINGS = Path(__file__).parents[3] / "shared" / "recorded-streams" / "openai-responses"
NAMES = sorted(path.stem for path in RECORDINGS.glob("*.sse"))
SMALL = 8 * 1024
MARK = "responses:test"
WIRE = ResponsesWire("openai-responses:test", provider=MARK, key="sk-very-secret")
PARAMETERS: TypeAdapter[Any] = TypeAdapter(ResponseCreateParamsStreaming)

pytestmark = [
    pytest.mark.scenario("F59"),
    pytest.mark.skipif(not NAMES, reason="the recorded streams are not here"),
    # The SDK's types do not know b'"sources":[{"type":"api","name":"oai-weather"}]', and it warns of its own values.
    pytest.mark.filterwarnings("ignore:Pydantic serializer warnings"),
]

# Streams that the SDK's accumulator does not survive, by its words; its last event is taken instead.
SDK_BREAKS: dict[str, str] = {}


def read(name: str) -> bytes:
    return (RECORDINGS / f"{name}.sse").read_bytes()


def decoded(chunks: list[bytes]) -> Decoded:
    return decode(chunks, WIRE)  # type: ignore[arg-type]


# --- what the SDK makes of it -------------------------------------------------------------------------------


class SdkAnswer:
    """The official SDK's view of some bytes: its final response, and where its accumulator broke."""

    def __init__(self, body: bytes) -> None:
        self.error: Exception | None = None
        final: Any = None
        state: ResponseStreamState[Any] = ResponseStreamState(input_tools=openai.omit, text_format=openai.omit)
        client = sdk_client(body)
        try:
            for event in client.responses.create(model="m", input="", stream=True):
                if self.error is None:
                    try:
                        state.handle_event(event)
                    except (RuntimeError, AssertionError, IndexError) as error:
                        self.error = error
                if event.type in ("response.completed", "response.incomplete"):
                    final = event.response
        finally:
            client.close()
        self.response: Response = state._completed_response or final

    @property
    def facts(self) -> dict[str, Any]:
        output = self.response.output
        usage = self.response.usage
        assert usage is not None
        return {
            "text": self.response.output_text,
            "reasoning": "".join(part.text for item in output if item.type == "reasoning" for part in _thoughts(item)),
            "refusal": "",
            "calls": [(item.call_id, item.name, item.arguments) for item in output if item.type == "function_call"],
            "finish_reason": self.response.status,
            "usage": (
                usage.input_tokens,
                usage.output_tokens,
                usage.input_tokens_details.cached_tokens,
                usage.output_tokens_details.reasoning_tokens,
            ),
        }


def _thoughts(item: Any) -> list[Any]:
    return [*item.summary, *(item.content or ())]


def facts_of(message: Message) -> dict[str, Any]:
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
    tried = split_sweep(decoded, body, every=every, cuts=cuts)
    assert tried > cuts


@pytest.mark.parametrize("name", NAMES)
def test_a_recorded_stream_gives_what_the_official_sdk_accumulates(name: str) -> None:
    """Text, reasoning, calls, status and usage are the SDK's."""
    body = read(name)
    sdk, ours = SdkAnswer(body), decoded([body])
    assert (sdk.error is not None) == (name in SDK_BREAKS), sdk.error
    assert SDK_BREAKS.get(name, "") in str(sdk.error)
    assert ours.error is None
    assert ours.is_over
    assert facts_of(ours.message) == sdk.facts


@pytest.mark.parametrize("name", NAMES)
def test_crlf_and_missing_spaces_change_nothing_in_a_recorded_stream(name: str) -> None:
    """The same stream with CRLF line ends, and without the space behind `data:`, is the same message."""
    body = read(name)
    expected = decoded([body])
    assert decoded([body.replace(b"\n", b"\r\n")]) == expected
    assert decoded([body.replace(b"data: ", b"data:")]) == expected


def next_turn(message: Message) -> dict[str, Any]:
    """The request after this answer, with a result for each of its calls."""
    results = tuple(ToolResult(call.id, "done") for call in message.tool_calls)
    rest = (Message("tool", results),) if results else (Message.user("Go on."),)
    request = ModelRequest(messages=(Message.user("Begin."), message, *rest))
    return responses_body(request, model="m", ways=Ways(provider=MARK))


@pytest.mark.parametrize("name", NAMES)
def test_the_next_turn_sends_each_item_back_as_it_came(name: str) -> None:
    """What the server made is in the next request unchanged, ids and encrypted reasoning included, and in its order."""
    body = read(name)
    request = next_turn(decoded([body]).message)
    _, *sent, _ = request["input"]
    frames = [json.loads(line[5:]) for line in body.replace(b"\r", b"").split(b"\n") if line.startswith(b"data:")]
    (final,) = [frame["response"] for frame in frames if frame["type"] == "response.completed"]
    assert sent == final["output"]


@pytest.mark.parametrize("name", NAMES)
def test_the_next_turn_is_what_the_official_sdk_takes(name: str) -> None:
    """The SDK's own type of the request, read by pydantic, accepts ours."""
    PARAMETERS.validate_json(json.dumps(next_turn(decoded([read(name)]).message)))


@pytest.mark.parametrize("name", NAMES)
def test_no_text_is_kept_twice(name: str) -> None:
    """What a message or a call says stands in its readable parts only."""
    message = decoded([read(name)]).message
    kept = [part.data for part in message.parts if isinstance(part, Opaque) and part.data["type"] == "message"]
    assert all("text" not in content for item in kept for content in item["content"])
