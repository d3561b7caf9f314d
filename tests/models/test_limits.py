"""What models refuse, by name: settings and choices are refused when a model or an agent is made."""

from __future__ import annotations

from typing import Any

import pytest

from halter import Agent, tool
from halter.errors import ConfigurationError
from halter.messages import Message
from halter.models import Anthropic, Fallback, Gemini, OpenAIChat, OpenAIResponses
from halter.models.anthropic.request import anthropic_body
from halter.models.limits import limits_of
from halter.request import ModelRequest, OnlyTool, Settings

MAKERS: dict[str, Any] = {"claude": Anthropic, "gemini": Gemini, "gpt": OpenAIResponses, "o": OpenAIResponses}


def made(name: str, **settings: Any) -> Any:
    kind = next(kind for start, kind in MAKERS.items() if name.startswith(start))
    return kind(name, api_key="k", settings=Settings(**settings))


@pytest.mark.parametrize(
    ("name", "settings", "words"),
    [
        ("claude-opus-4-7", {"reasoning_tokens": 2000}, "set reasoning_effort instead"),
        ("claude-sonnet-5", {"reasoning_tokens": 2000}, "set reasoning_effort instead"),
        ("claude-opus-5", {"temperature": 0.5}, "takes no temperature"),
        ("claude-opus-4-8", {"top_k": 5}, "takes no top_k"),
        ("claude-haiku-5-5", {"top_p": 0.9}, "takes no top_p"),
        ("claude-haiku-4-5", {"top_p": 0.9, "temperature": 0.5}, "temperature or top_p, not both"),
        ("claude-opus-5-5", {"reasoning_effort": "none"}, "always thinks"),
        ("claude-fable-5-1", {"reasoning_effort": "none"}, "always thinks"),
        ("claude-nova-7", {"temperature": 0.5}, "takes no temperature"),
        ("claude-haiku-4-5", {"stop": ("END", " \n")}, "white space alone"),
        ("gemini-2.5-pro", {"reasoning_effort": "none"}, "always thinks"),
        ("gemini-3-pro", {"reasoning_effort": "none"}, "always thinks"),
        ("gpt-5", {"temperature": 0.5}, "takes no temperature while it reasons: leave"),
        ("gpt-5.2", {"reasoning_effort": "low", "top_p": 0.5}, "reasoning_effort='none' or leave top_p out"),
        ("gpt-6-sol", {"temperature": 0.5}, "takes no temperature"),
        ("o3", {"reasoning_effort": "none"}, "always reasons"),
    ],
)
def test_a_setting_that_a_model_refuses_is_refused_when_it_or_its_agent_is_made(
    name: str, settings: dict[str, Any], words: str
) -> None:
    with pytest.raises(ConfigurationError, match=words):
        made(name, **settings)
    with pytest.raises(ConfigurationError, match=words):
        Agent(made(name), settings=Settings(**settings))
    with pytest.raises(ConfigurationError, match=words):
        Agent(Fallback("scripted:x", made(name)), settings=Settings(**settings))


@pytest.mark.parametrize(
    ("name", "settings"),
    [
        ("claude-opus-4-6", {"reasoning_tokens": 2000}),
        ("claude-opus-4-5", {"temperature": 0.5, "top_k": 3}),
        ("claude-sonnet-4-0", {"temperature": 0.5, "top_p": 0.9}),
        ("claude-opus-5", {"temperature": 1.0, "reasoning_effort": "none"}),
        ("claude-opus-5", {"stop": ("END", "a b")}),
        ("gemini-2.5-flash", {"reasoning_effort": "none"}),
        ("gpt-5.2", {"temperature": 0.5}),
        ("gpt-5.6-sol", {"temperature": 0.5, "reasoning_effort": "none"}),
        ("gpt-4o", {"temperature": 0.5}),
    ],
)
def test_what_a_model_takes_is_taken(name: str, settings: dict[str, Any]) -> None:
    Agent(made(name), settings=Settings(**settings))
    made(name, **settings)


def test_openais_rules_hold_for_openais_servers_alone() -> None:
    OpenAIChat("gpt-5", base_url="http://localhost/v1", settings=Settings(temperature=0.5))
    with pytest.raises(ConfigurationError, match="temperature"):
        OpenAIChat("gpt-5", api_key="k", settings=Settings(temperature=0.5))


@tool
def now() -> str:
    """The time."""
    return "noon"


@pytest.mark.parametrize("choice", ["required", OnlyTool("now")])
def test_a_choice_that_claude_refuses_is_refused_when_the_agent_is_made(choice: Any) -> None:
    """Since Claude 5.5 always; beside a budget for thinking; not where it thinks as it sees fit."""
    for name, settings in (
        ("claude-opus-5-5", {}),
        ("claude-sonnet-5-5", {}),
        ("claude-mythos-preview", {}),
        ("claude-sonnet-4-5", {"reasoning_effort": "low"}),
        ("claude-opus-4-6", {"reasoning_tokens": 2000}),
    ):
        with pytest.raises(ConfigurationError, match="which tool to call: leave tool_choice"):
            Agent(made(name), tools=[now], tool_choice=choice, settings=Settings(**settings))
        Agent(made(name), tools=[now], settings=Settings(**settings))
    for name in ("claude-opus-5", "claude-opus-4-7", "claude-sonnet-4-6"):
        Agent(made(name), tools=[now], tool_choice=choice, settings=Settings(reasoning_effort="high"))


@pytest.mark.parametrize(
    ("name", "effort", "thinking", "config"),
    [
        ("claude-opus-4-7", "none", None, None),
        ("claude-sonnet-5", "none", {"type": "disabled"}, None),
        ("claude-sonnet-5-5", "none", {"type": "between_tools"}, None),
        ("claude-opus-4-6", "xhigh", {"type": "adaptive"}, {"effort": "max"}),
        ("claude-opus-4-7", "xhigh", {"type": "adaptive"}, {"effort": "xhigh"}),
        ("claude-opus-5-5", "minimal", {"type": "adaptive"}, {"effort": "low"}),
        ("claude-opus-4-5", "low", {"type": "enabled", "budget_tokens": 2048}, None),
    ],
)
def test_an_effort_is_said_in_the_words_of_the_model(name: str, effort: Any, thinking: Any, config: Any) -> None:
    request = ModelRequest(messages=(Message.user("hi"),), settings=Settings(reasoning_effort=effort))
    body = anthropic_body(request, model=name, provider="p", stream=True)
    assert (body.get("thinking"), body.get("output_config")) == (thinking, config)


def test_geminis_levels_are_those_of_the_model() -> None:
    """`xhigh` is none of them; some begin with `LOW`."""
    assert limits_of("gemini", "gemini-3-flash").levels["xhigh"] == "HIGH"
    assert limits_of("gemini", "gemini-3-flash").levels["minimal"] == "MINIMAL"
    assert limits_of("gemini", "gemini-3.1-pro-preview").levels["minimal"] == "LOW"
    assert limits_of("gemini", "gemini-2.5-flash").levels == {}
