"""`Compaction`: what it is given is checked where it is made, and what it comes to in tokens."""

from __future__ import annotations

from typing import Any

import pytest

from halter import Agent, Budget
from halter.compaction import TEMPLATE, Compaction
from halter.compaction.summary import Summarising, longest_summary
from halter.errors import ConfigurationError
from halter.messages import Message
from halter.models import Anthropic, Fallback, OpenAIChat, Settings
from halter.models.scripted import Scripted


@pytest.mark.parametrize(
    "wrong",
    [
        {"model": 5},
        {"model": "nobody:nothing"},
        {"threshold": 0.0},
        {"threshold": 1.5},
        {"threshold": 0},
        {"threshold": True},
        {"threshold": "0.8"},
        {"target": -1},
        {"target": 0.9},
        {"threshold": 1_000, "target": 1_000},
        {"window": 0},
        {"keep_turns": 0},
        {"max_tool_result": 10},
        {"template": "Summarise."},
        {"template": 5},
    ],
    ids=repr,
)
def test_what_cannot_work_is_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(ConfigurationError):
        Compaction(**wrong)


def test_an_agent_takes_a_compaction_or_none() -> None:
    assert Agent("scripted:hi", compaction=None).compaction is None
    assert Agent("scripted:hi").compaction is not None
    with pytest.raises(ConfigurationError, match="compaction"):
        Agent("scripted:hi", compaction=0.8)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("given", "window", "most", "goal"),
    [
        ({}, 100_000, 80_000, 50_000),
        ({}, None, None, None),
        ({"threshold": 30_000}, None, 30_000, None),
        ({"threshold": 30_000, "target": 10_000}, 200_000, 30_000, 10_000),
        ({"threshold": 30_000, "target": 0.5}, 200_000, 30_000, 15_000),
        ({"threshold": 0.5, "target": 90_000}, 100_000, 50_000, 25_000),
    ],
)
def test_shares_are_of_the_window_and_whole_numbers_are_tokens(
    given: dict[str, Any], window: int | None, most: int | None, goal: int | None
) -> None:
    """A target that is no less than the threshold comes to half of it."""
    compaction = Compaction(**given)
    assert compaction.most(window) == most
    if window is not None:
        assert compaction.goal(window) == goal


def test_a_window_without_end_is_one() -> None:
    agent = Agent("scripted:yes", compaction=Compaction(window=10**400))
    assert agent.run("x" * 100).result().text == "yes"


def test_its_repr_tells_what_counts() -> None:
    assert repr(Compaction()) == "Compaction(threshold=0.8, target=0.5)"
    assert repr(Compaction("scripted:hi", threshold=900)) == "Compaction('scripted', threshold=900, target=0.5)"


def test_a_summariser_whose_price_nobody_knows_cannot_work_under_a_budget_in_dollars() -> None:
    """Found out before anything runs."""
    unknown = OpenAIChat("m", base_url="http://127.0.0.1:9/v1")
    agent = Agent(Scripted("hi"), compaction=Compaction(unknown))
    with pytest.raises(ConfigurationError, match="price"):
        agent.run("hi", budget=Budget(cost_usd=1.0))


def test_a_summary_takes_a_quarter_of_a_small_window_at_most() -> None:
    assert longest_summary(None) == longest_summary(1_000_000) == 8_192
    assert longest_summary(2_000) == 500
    assert longest_summary(1) == 1


def test_a_model_without_a_setting_for_the_length_is_asked_without_one() -> None:
    class Bare:
        name = "bare"
        features = Scripted.features if hasattr(Scripted, "features") else None

        async def respond(self, request: Any, ctx: Any) -> Message:
            raise NotImplementedError

    assert Summarising(Bare(), TEMPLATE, ["a"], window=None)._settings.max_output_tokens == 8_192
    without = OpenAIChat("m", base_url="http://127.0.0.1:9/v1").features.without("max_output_tokens")
    Bare.features = without  # type: ignore[assignment]
    assert Summarising(Bare(), TEMPLATE, ["a"], window=None)._settings.given() == {}


@pytest.mark.parametrize(
    ("settings", "longest"),
    [
        ({}, 8_192),
        ({"reasoning_tokens": 16_000}, 24_192),
        ({"reasoning_effort": "high"}, 8_192 + 24_576),
        ({"reasoning_tokens": 60_000}, 64_000),  # as much as it ever answers
    ],
)
def test_a_model_that_thinks_has_room_for_a_summary_besides(settings: dict[str, Any], longest: int) -> None:
    """A bound on the answer holds for thinking too: smaller than what that may take, it is refused, or all used up."""
    model = Anthropic("claude-sonnet-4-5", api_key="k", settings=Settings(**settings))
    assert Summarising(model, TEMPLATE, ["a"], window=200_000)._settings.max_output_tokens == longest
    both = Fallback(OpenAIChat("gpt-4o", api_key="k"), model)
    assert Summarising(both, TEMPLATE, ["a"], window=None)._settings.max_output_tokens == min(longest, 16_384)


def test_of_several_models_the_smallest_window_counts() -> None:
    from halter.compaction.size import window_of

    large, small = "openai:gpt-4.1", "openai:gpt-4o"
    both = Fallback(OpenAIChat(large[7:], api_key="k"), OpenAIChat(small[7:], api_key="k"))
    assert window_of(both) == window_of(OpenAIChat("gpt-4o", api_key="k")) == 128_000
    assert window_of(Fallback(Scripted("hi"))) is None
