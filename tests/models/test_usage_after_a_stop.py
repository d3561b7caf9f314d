"""D48: what a stopped answer has used is estimated well; D50: what was answered is part of what is asked next."""

from __future__ import annotations

import asyncio
import json
import random
import re
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from halter import Agent
from halter.core.ports import Model
from halter.core.tokens import estimate_parts
from halter.messages import Image, Message, Part, Reasoning, Usage
from halter.models.anthropic import Anthropic
from halter.models.gemini import Gemini
from halter.models.openai import OpenAIChat
from halter.models.responses import OpenAIResponses
from halter.outcome import RunResult
from halter.testing import HANG, Answer, MemorySource
from halter.testing import run as virtually

from ..stopping.adapters import ADAPTERS, Adapter

RECORDINGS = Path(__file__).parents[3] / "shared" / "recorded-streams"
MODELS: dict[str, type[Any]] = {
    "anthropic-messages": Anthropic,
    "gemini": Gemini,
    "openai-chat": OpenAIChat,
    "openai-responses": OpenAIResponses,
}

# --- which recordings tell how many tokens their visible output is ------------------------------------------

ENOUGH = 40  # visible tokens in all
ARRIVED = 20  # of them at a cut: with fewer, the end of one word is 5 %
CUTS = 40
# A provider's own tools: what the model writes to them is counted, and shown in part or not at all.
OWN_TOOLS = re.compile(
    rb'"type": ?"(server_tool_use|mcp_tool_use|mcp_list_tools|(?!function)\w+_call)"'
    rb'|"(executed_tools|annotations)": ?\[[^\]]|"(groundingMetadata|executableCode|toolCall)"'
    rb'|"(tool_calls_requested|web_search_requests)": ?[1-9]'
)
HIDDEN_THINKING = re.compile(rb'"redacted_thinking"|"reasoning_details"|"type": ?"reasoning"')
OPEN = ("deepseek", "groq", "huggingface", "zai")  # they show their thinking as it is counted


class Known(NamedTuple):
    """A recording whose visible output is known: all of it, in tokens by the provider and in characters."""

    path: Path
    tokens: int
    characters: int
    thinks_aloud: bool

    def visible(self, parts: tuple[Part, ...]) -> list[Part]:
        return [part for part in parts if self.thinks_aloud or not isinstance(part, Reasoning)]


def characters(parts: list[Part]) -> int:
    texts = ((getattr(part, name, "") for name in ("text", "name", "arguments")) for part in parts)
    return sum(len(text) for part in texts for text in part)


def known(path: Path) -> Known | None:
    """The rule: the provider has counted; no tool of its own wrote anything; its thinking is shown, or counted apart;
    no call, whose frame around the arguments costs tokens at no character; and there is enough of it."""
    message = virtually(answered(path.parent.name, path.read_bytes())).messages[-1]
    usage, body = message.usage, path.read_bytes()
    if usage is None or usage.estimated or message.tool_calls or OWN_TOOLS.search(body):
        return None
    is_open = path.stem.startswith(OPEN)
    if not is_open and not usage.reasoning and HIDDEN_THINKING.search(body):
        return None
    found = Known(path, usage.output - (0 if is_open else usage.reasoning), 0, is_open or not usage.reasoning)
    found = found._replace(characters=characters(found.visible(message.parts)))
    return found if found.tokens >= ENOUGH else None


def model_over(wire: str, source: MemorySource) -> Model:
    return MODELS[wire]("test", api_key="k", base_url="https://provider.test/v1", source=source)


async def answered(wire: str, body: bytes) -> RunResult[Any]:
    source = MemorySource(Answer(body=((0.0, body),)))
    return await Agent(model_over(wire, source)).run("count").finished()


async def stopped(wire: str, body: bytes) -> RunResult[Any]:
    """A run that is stopped when `body` has arrived, and no more comes."""
    source = MemorySource(Answer(body=((0.0, body), (HANG, b""))))
    run = Agent(model_over(wire, source)).run("count").start()
    await asyncio.sleep(1.0)
    run.cancel()
    return await run.finished()


def error_at(recording: Known, cut: int) -> float | None:
    """By how much the estimate is off the provider's count, scaled; `None` where too little has come, or all."""
    body = recording.path.read_bytes()
    message = virtually(stopped(recording.path.parent.name, body[:cut])).messages[-1]
    expected = recording.tokens * characters(recording.visible(message.parts)) / recording.characters
    if message.role != "assistant" or not message.interrupted or expected < ARRIVED:
        return None
    assert message.usage is not None
    if message.finish_reason is None:
        assert message.usage.estimated
    unseen = 0 if recording.thinks_aloud else max(message.usage.reasoning, thought(message))
    return (message.usage.output - unseen) / expected - 1


def thought(message: Message) -> int:
    return estimate_parts(part for part in message.parts if isinstance(part, Reasoning))


@pytest.fixture(scope="module")
def recordings() -> list[Known]:
    paths = [path for name in MODELS for path in sorted((RECORDINGS / name).glob("*.sse"))]
    if not paths:
        pytest.skip("the recorded streams are not here")
    return [found for found in map(known, paths) if found is not None]


@pytest.mark.scenario("D48")
def test_the_estimate_after_a_stop_is_within_15_percent_of_the_providers_scaled_count(recordings: list[Known]) -> None:
    """Every recording whose visible output is known, cut at random places."""
    assert len(recordings) >= 8
    chance = random.Random(48)
    errors: dict[str, list[float]] = {}
    for recording in recordings:
        size = recording.path.stat().st_size
        found = (error_at(recording, chance.randrange(1, size)) for _ in range(CUTS))
        errors[recording.path.stem] = [error for error in found if error is not None]
    assert sum(map(len, errors.values())) > 100
    wrong = {name: (min(found), max(found)) for name, found in errors.items() if max(map(abs, found), default=0) > 0.15}
    assert not wrong


# --- what the provider has told already ---------------------------------------------------------------------

ASKED = 'data: {"type":"message_start","message":{"usage":{"input_tokens":1234,"output_tokens":1}}}\n\n'
BEGUN = 'data: {"type":"content_block_start","index":0,"content_block":{"type":"text","text":""}}\n\n'
SAID = 'data: {"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":"One fine day in May"}}\n\n'
COUNTED = (
    'data: {"candidates":[{"content":{"parts":[{"text":"One fine day"}]},"index":0}],'
    '"usageMetadata":{"promptTokenCount":77,"candidatesTokenCount":40,"thoughtsTokenCount":100}}\n\n'
)


async def stopped_after(model: type[Any], body: str, *given: Any, instructions: str = "") -> Usage:
    source = MemorySource(Answer(body=((0.0, body.encode()), (HANG, b""))))
    agent = Agent(model("test", api_key="k", source=source), instructions=instructions)
    run = agent.run(Message.user("count", *given)).start()
    await asyncio.sleep(1.0)
    run.cancel()
    usage = (await run.finished()).messages[-1].usage
    assert usage is not None
    return usage


@pytest.mark.virtual_time
async def test_the_input_that_the_provider_has_told_at_the_beginning_is_kept() -> None:
    """Anthropic counts the input before it answers; only the output is ours."""
    usage = await stopped_after(Anthropic, ASKED + BEGUN + SAID)
    assert (usage.input, usage.estimated) == (1234, True)
    assert 4 <= usage.output <= 7


@pytest.mark.virtual_time
async def test_what_was_told_before_anything_was_shown_counts_for_the_run() -> None:
    """There is no answer then, but the input was read, and is paid for."""
    result = await stopped("anthropic-messages", ASKED.encode())
    assert [message.role for message in result.messages if message.parts] == ["user"]
    assert (result.usage.input, result.usage.output, result.usage.estimated) == (1234, 1, True)


@pytest.mark.virtual_time
async def test_a_running_count_that_is_higher_than_the_estimate_holds() -> None:
    """Gemini counts as it answers, thinking included."""
    usage = await stopped_after(Gemini, COUNTED)
    assert (usage.input, usage.output, usage.reasoning, usage.estimated) == (77, 140, 100, True)


@pytest.mark.virtual_time
async def test_a_running_count_that_lags_is_made_up_for() -> None:
    """What is shown is not less than what it counts as, and hidden thinking stays on top of it."""
    usage = await stopped_after(Gemini, COUNTED.replace('"candidatesTokenCount":40,', ""))
    assert 103 <= usage.output <= 105


@pytest.mark.virtual_time
async def test_the_input_is_estimated_from_the_whole_request_with_a_picture_at_a_flat_rate() -> None:
    """Instructions count; a picture of a megabyte is not a million tokens."""
    chat = 'data: {"choices":[{"index":0,"delta":{"content":"Yes"}}]}\n\n'
    plain = await stopped_after(OpenAIChat, chat)
    told = await stopped_after(OpenAIChat, chat, instructions="You are a helpful assistant. " * 100)
    seen = await stopped_after(OpenAIChat, chat, Image(data=b"\x89PNG" + bytes(1_000_000)))
    assert plain.input < 20
    assert 500 < told.input < 900
    assert 1_000 <= seen.input - plain.input < 1_100


# --- D50: the second request --------------------------------------------------------------------------------

FIRST = "Nightingales sing at dawn"


def sse(*frames: Any) -> bytes:
    return b"".join(b"data: " + json.dumps(frame).encode() + b"\n\n" for frame in frames)


CHAT = sse({"choices": [{"index": 0, "delta": {"content": FIRST}, "finish_reason": "stop"}]}) + b"data: [DONE]\n\n"
MESSAGE = {"type": "message", "id": "msg_1", "role": "assistant", "status": "completed"}
PART = {"type": "output_text", "text": FIRST, "annotations": []}
AT = {"output_index": 0, "content_index": 0, "item_id": "msg_1"}
RESPONSES = sse(
    {"type": "response.created", "response": {"id": "resp_1", "status": "in_progress", "output": []}},
    {"type": "response.output_item.added", "output_index": 0, "item": {**MESSAGE, "content": []}},
    {"type": "response.content_part.added", **AT, "part": {**PART, "text": ""}},
    {"type": "response.output_text.delta", **AT, "delta": FIRST},
    {"type": "response.output_item.done", "output_index": 0, "item": {**MESSAGE, "content": [PART]}},
    {"type": "response.completed", "response": {"id": "resp_1", "status": "completed", "output": []}},
)
ANTHROPIC = sse(
    {"type": "message_start", "message": {"role": "assistant", "content": [], "usage": {"input_tokens": 1}}},
    {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}},
    {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": FIRST}},
    {"type": "content_block_stop", "index": 0},
    {"type": "message_delta", "delta": {"stop_reason": "end_turn"}, "usage": {"output_tokens": 4}},
    {"type": "message_stop"},
)
GEMINI = sse(
    {"candidates": [{"content": {"role": "model", "parts": [{"text": FIRST}]}, "finishReason": "STOP", "index": 0}]}
)
ANSWERS = {"anthropic": ANTHROPIC, "gemini": GEMINI, "openai-responses": RESPONSES, "azure-responses": RESPONSES}


@pytest.mark.scenario("D50")
@pytest.mark.parametrize("adapter", ADAPTERS, ids=lambda adapter: adapter.name)
@pytest.mark.virtual_time
async def test_the_second_request_contains_the_first_answer(adapter: Adapter) -> None:
    """Text only, no tools: as `history=result.messages` says, in the provider's own words."""
    source = MemorySource(Answer(body=((0.0, ANSWERS.get(adapter.name, CHAT)),)), repeat=True)
    agent = adapter.agent("https://provider.test/v1", source=source)
    first = await agent.run("Which birds?").finished()
    assert first.is_completed, first.why()
    second = await agent.run("And larks?", history=first.messages).finished()
    assert second.is_completed, second.why()
    sent = source.requests[1].request.body.decode()
    assert [sent.count(text) for text in ("Which birds?", FIRST, "And larks?")] == [1, 1, 1]
    assert sent.index("Which birds?") < sent.index(FIRST) < sent.index("And larks?")
