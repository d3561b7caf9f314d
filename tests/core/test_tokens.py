"""Tokens are estimated from the shape of a text: close to real counts, in linear time, and never an error."""

from __future__ import annotations

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from halter.core.tokens import (
    CALL,
    IMAGE,
    MESSAGE,
    PAGE_TOKENS,
    estimate_input,
    estimate_parts,
    estimate_request,
    estimate_tokens,
    most_tokens,
)
from halter.messages import File, Image, Message, Opaque, Refusal, Text, ToolCall, ToolResult
from halter.request import ModelRequest, OutputSchema, ToolSpec

ENGLISH = (
    "The council has approved a new plan for public transport. Residents had complained for years about delays and "
    "crowded buses, and many hope that the first changes will come into force before the summer. Experts doubt it."
)
CODE = (
    'def total(items: list[int]) -> int:\n    """Adds them up."""\n    return sum(item for item in items if item > 0)\n'
)
JSON = '{"id": "call_8fK2", "name": "get_weather", "arguments": {"city": "Paris", "days": 3, "units": "metric"}}'
RUSSIAN = "Городской совет утвердил новый план развития общественного транспорта. Жители давно жаловались."
CHINESE = "市议会周三批准了公共交通发展的新计划。居民们长期以来一直抱怨车辆延误和公交车过于拥挤。"
KOREAN = "시의회는 수요일에 대중교통 발전을 위한 새로운 계획을 승인했습니다."

# text → the counts of OpenAI's o200k and of Mistral's Tekken, taken with their own tokenizers
COUNTED = {ENGLISH: (41, 43), CODE: (30, 31), JSON: (39, 40), RUSSIAN: (21, 22), CHINESE: (33, 42), KOREAN: (20, 19)}


@pytest.mark.parametrize("text", COUNTED, ids=["English", "code", "JSON", "Russian", "Chinese", "Korean"])
def test_the_estimate_is_near_what_real_vocabularies_count(text: str) -> None:
    """Within 30 % of the mean of the two, also for a single sentence."""
    counted = sum(COUNTED[text]) / 2
    assert estimate_tokens(text) == pytest.approx(counted, rel=0.3)


def test_no_text_is_no_token_and_any_text_is_one() -> None:
    assert estimate_tokens("") == 0
    assert [estimate_tokens(text) for text in ("a", " ", ".", "\x00", "\u0301")] == [1, 1, 1, 1, 1]


@given(st.text(alphabet=st.characters(), max_size=200), st.text(alphabet=st.characters(), max_size=50))
def test_any_text_has_an_estimate_and_more_text_is_never_less(text: str, more: str) -> None:
    """Lone surrogates as well; never more than four tokens and a bit for a character."""
    assert 0 <= estimate_tokens(text) <= 4 * len(text) + 1
    assert estimate_tokens(text + more) >= estimate_tokens(text) - 1


def test_a_long_text_takes_linear_time() -> None:
    """Eight times the text takes about eight times as long, whatever it is."""
    for text in (ENGLISH, "a", "    ", "\n", CHINESE, "0"):
        short, long = seconds(text * (50_000 // len(text))), seconds(text * (400_000 // len(text)))
        assert long < 40 * short + 0.01


def seconds(text: str) -> float:
    """Of processor time; the best of three."""

    def once() -> float:
        begin = time.process_time()
        estimate_tokens(text)
        return time.process_time() - begin

    return min(once() for _ in range(3))


def test_messages_cost_their_frame_and_their_parts() -> None:
    one = estimate_input([Message.user(ENGLISH)])
    assert one == MESSAGE + estimate_tokens(ENGLISH)
    assert estimate_input([Message.user(ENGLISH), Message.assistant(ENGLISH)]) == 2 * one
    assert estimate_parts([ToolCall("id", "f", "{}")]) == CALL + estimate_tokens("f{}")


def test_pictures_and_documents_count_flat_and_what_nobody_understands_not_at_all() -> None:
    """A megabyte of a picture is no million tokens; a document counts by its pages; text by its text."""
    assert estimate_parts([Image(data=b"\x89PNG" + bytes(1_000_000))]) == IMAGE
    assert estimate_parts([File(data=bytes(500_000))]) == 10 * PAGE_TOKENS
    assert estimate_parts([File(data=ENGLISH.encode(), media_type="text/plain")]) == estimate_tokens(ENGLISH)
    assert estimate_parts([Opaque("anthropic", {"signature": "x" * 10_000}), Text("")]) == 0


def test_tools_count_with_their_schema() -> None:
    tool = ToolSpec(name="get_weather", description=ENGLISH, parameters={"type": "object", "properties": {"city": {}}})
    assert estimate_tokens(ENGLISH) < estimate_input((), [tool]) < estimate_tokens(ENGLISH) + 60


def test_a_very_long_text_is_estimated_from_places_in_it() -> None:
    """Within a few percent of the whole, and in next to no time: a stop waits for the estimate of its input."""
    words = "The quick brown fox jumps over the lazy dog, and 42 others. "
    assert estimate_tokens(words * 20_000) == pytest.approx(estimate_tokens(words * 500) * 40, rel=0.03)


ODD = 'aA0. \n😀é中\u200b-_[]{}"9.5 X'


def test_a_schema_with_half_a_character_is_estimated_too() -> None:
    request = ModelRequest(messages=(), output=OutputSchema(name="x", schema={"description": "half \ud800"}))
    assert 0 < estimate_request(request) <= most_tokens(request)


@given(st.lists(st.text(st.sampled_from(ODD) | st.characters(), max_size=60), max_size=6))
def test_the_most_that_a_request_can_be_is_no_less_than_its_estimate(texts: list[str]) -> None:
    """Whatever the characters, and in whatever parts: so that a look at the lengths may be enough."""
    parts = [(Text(text), Refusal(text), ToolCall(text, text, text), ToolResult(text, text)) for text in texts]
    request = ModelRequest(
        messages=tuple(Message("user", each) for each in parts),
        tools=tuple(ToolSpec(name=text, description=text) for text in texts),
        output=OutputSchema(name="x", schema={"type": "".join(texts)}),
    )
    assert most_tokens(request) >= estimate_request(request)
