"""A question as a request body of Anthropic's messages (https://platform.claude.com/docs/en/api/messages/create)."""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

from halter.errors import ConfigurationError
from halter.messages import Message, Opaque
from halter.models.anthropic.turns import Turn, goes_on_without_thinking, turns_of
from halter.models.conversation import instructions
from halter.request import Effort, ModelRequest, OnlyTool, Settings, ToolSpec
from halter.schemas import in_words

# The API wants an upper bound with each request. Every model since Claude 3.7 takes this one; these take less:
DEFAULT_MAX_TOKENS = 32_000
_LESS = {"claude-3-7": DEFAULT_MAX_TOKENS, "claude-3-5": 8_192, "claude-3-": 4_096}
# More may take longer than the ten minutes after which an answer in one piece is given up: the official SDK's own
# reckoning, 128,000 tokens an hour. It is streamed then.
LARGEST_IN_ONE_PIECE = 21_333
LEAST_THINKING = 1_024
LEAST_TOP_P = 0.95  # beside thinking
CACHED = {"cache_control": {"type": "ephemeral"}}

_NAMES = {"stop": "stop_sequences", "temperature": "temperature", "top_p": "top_p", "top_k": "top_k"}
_VERSION = re.compile(r"claude-(?:[a-z]+-)?(\d{1,2})(?:[-.](\d{1,2}))?(?!\d)")
ADAPTIVE_SINCE = (4, 6)
_EFFORTS: dict[Effort, str] = {"minimal": "low", "low": "low", "medium": "medium", "high": "high", "xhigh": "xhigh"}
_BUDGETS: dict[Effort, int] = {"minimal": 1_024, "low": 2_048, "medium": 8_192, "high": 16_384, "xhigh": 24_576}


def anthropic_body(request: ModelRequest, *, model: str, provider: str, stream: bool) -> dict[str, Any]:
    """The body. `provider`: whose `Opaque` parts go back. Raises `ConfigurationError` for what cannot be sent."""
    settings = request.settings
    system, conversation = instructions(request.messages)
    messages = turns_of(conversation, provider)
    if not messages or (messages[-1]["role"] == "assistant" and conversation[-1].role != "assistant"):
        raise ConfigurationError("nothing to answer: end the conversation with a user's message with some text")
    most = max_tokens(settings, model, stream=stream)
    body: dict[str, Any] = {"model": model, "max_tokens": most, "messages": messages}
    if stream or most > LARGEST_IN_ONE_PIECE:
        body["stream"] = True
    if system.strip():
        body["system"] = system
    body |= (
        _tools(request)
        | _thinking(request, messages, model, most)
        | _output(request, model)
        | _container(conversation, provider)
    )
    body |= {_NAMES[name]: value for name, value in settings.given().items() if name in _NAMES}
    return _with_cache_marks(body) if settings.cache_prompt else body


def max_tokens(settings: Settings, model: str, *, stream: bool) -> int:
    """The `max_tokens` of a request."""
    if settings.max_output_tokens is not None:
        return settings.max_output_tokens
    most = next((most for name, most in _LESS.items() if name in model), DEFAULT_MAX_TOKENS)
    most = most if stream else min(most, LARGEST_IN_ONE_PIECE)
    budget = settings.reasoning_tokens or 0
    return most if budget < most else budget + most  # thinking counts, and must leave something for the answer


# --- thinking and the answer's shape ------------------------------------------------------------------------


def check_settings(settings: Settings, model: str) -> None:
    """Raises `ConfigurationError` for values that the API refuses, alone or together.

    https://platform.claude.com/docs/en/build-with-claude/extended-thinking#feature-compatibility. Other servers of the
    format have bounds of their own for `temperature` and the like: those of Claude hold for Claude.
    """
    budget, most = settings.reasoning_tokens, settings.max_output_tokens
    if budget is not None and budget < LEAST_THINKING:
        raise ConfigurationError(f"reasoning_tokens must be {LEAST_THINKING} or more for Anthropic, not {budget}")
    if most is not None and most <= (least := _least_thinking(settings, model)):
        raise ConfigurationError(
            f"{model} thinks within max_output_tokens, and with these settings for {least} tokens or more: set "
            f"max_output_tokens to more than that, not to {most}, or leave reasoning_effort and reasoning_tokens out"
        )
    if "claude" in model:
        _check_sampling(settings, model)


def _least_thinking(settings: Settings, model: str) -> int:
    """The tokens that are set aside for thinking, at least."""
    if settings.reasoning_tokens is not None:
        return settings.reasoning_tokens
    return LEAST_THINKING if _is_to_think(settings) and not is_adaptive(model) else 0


def _is_to_think(settings: Settings) -> bool:
    return settings.reasoning_tokens is not None or settings.reasoning_effort not in (None, "none")


def _check_sampling(settings: Settings, model: str) -> None:
    if settings.temperature is not None and settings.temperature > 1:
        raise ConfigurationError(f"temperature must be a number from 0 to 1 for {model}, not {settings.temperature}")
    if not _is_to_think(settings):
        return
    is_changed = settings.temperature not in (None, 1), settings.top_k is not None, (settings.top_p or 1) < LEAST_TOP_P
    for name, is_it in zip(("temperature", "top_k", "top_p"), is_changed, strict=True):
        if is_it:
            raise ConfigurationError(f"{model} thinks without a {name} of your own: leave it out, or the thinking")


def _thinking(request: ModelRequest, turns: Sequence[Turn], model: str, max_tokens: int) -> dict[str, Any]:
    """How to think. An answer that has begun without thinking, as another provider's, is gone on with in that way."""
    thinking = _way_to_think(request.settings, model, max_tokens)
    if thinking.get("type") == "enabled":
        if goes_on_without_thinking(turns):
            return {}
        if request.tools and (request.tool_choice == "required" or isinstance(request.tool_choice, OnlyTool)):
            raise ConfigurationError(
                f"{model} cannot think and be told which tool to call: leave tool_choice, or the reasoning, out"
            )
    return {"thinking": thinking} if thinking else {}


def _way_to_think(settings: Settings, model: str, max_tokens: int) -> dict[str, Any]:
    """By a budget, given or, for models that know no effort, taken from a table; else as they see fit."""
    effort, budget = settings.reasoning_effort, settings.reasoning_tokens
    if budget is None and effort == "none":
        return {"type": "disabled"}
    if budget is None and effort is not None:
        if is_adaptive(model):
            return {"type": "adaptive"}
        budget = _BUDGETS[effort]
    # It must be less than `max_tokens`; where a `Budget` of the run leaves too little, the answer goes without.
    budget = min(budget or 0, max_tokens - 1)
    return {"type": "enabled", "budget_tokens": budget} if budget >= LEAST_THINKING else {}


def is_adaptive(model: str) -> bool:
    """Whether a model decides for itself how much to think, and can be told an effort: Claude 4.6 and all since."""
    found = _VERSION.search(model)
    return found is None or (int(found[1]), int(found[2] or 0)) >= ADAPTIVE_SINCE


# Bounds that its schemas have no keyword for (https://platform.claude.com/docs/en/build-with-claude/structured-outputs)
_NOT_HELD = frozenset(
    ("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf", "minItems", "maxItems")
)


def _output(request: ModelRequest, model: str) -> dict[str, Any]:
    config: dict[str, Any] = {}
    effort = request.settings.reasoning_effort
    if effort in _EFFORTS and is_adaptive(model):
        config["effort"] = _EFFORTS[effort]
    if request.output is not None:
        config["format"] = {"type": "json_schema", "schema": in_words(request.output.schema, _NOT_HELD)}
    return {"output_config": config} if config else {}


# --- tools --------------------------------------------------------------------------------------------------


def _tools(request: ModelRequest) -> dict[str, Any]:
    if not request.tools:
        return {}  # a choice among no tools is refused
    choice = _choice(request)
    return {"tools": [_tool(tool) for tool in request.tools]} | ({"tool_choice": choice} if choice else {})


def _tool(tool: ToolSpec) -> dict[str, Any]:
    sent: dict[str, Any] = {"name": tool.name, "input_schema": tool.parameters}
    if tool.description:
        sent["description"] = tool.description
    return sent if tool.strict is None else sent | {"strict": tool.strict}


def _choice(request: ModelRequest) -> dict[str, Any]:
    is_single = request.settings.parallel_tool_calls is False
    single = {"disable_parallel_tool_use": True} if is_single else {}
    match request.tool_choice:
        case OnlyTool(name):
            return {"type": "tool", "name": name} | single
        case "required":
            return {"type": "any"} | single
        case "none":
            return {"type": "none"}
        case _:
            return {"type": "auto"} | single if is_single or request.tool_choice else {}


# --- what the provider keeps --------------------------------------------------------------------------------


def _container(messages: Sequence[Message], provider: str) -> dict[str, str]:
    """The container in which its code ran, and where its files are, unless that has expired."""
    for part in (part for message in reversed(messages) for part in reversed(message.parts)):
        match part:
            case Opaque(mark, {"container": {"id": str(id), **more}}) if mark == provider:
                return {} if _is_past(more.get("expires_at")) else {"container": id}
            case _:
                pass
    return {}


def _is_past(moment: object) -> bool:
    try:
        return datetime.fromisoformat(str(moment)) <= datetime.now(UTC)
    except (ValueError, TypeError):
        return False  # none, or none that can be compared: the API knows


def _with_cache_marks(body: dict[str, Any]) -> dict[str, Any]:
    """Marks after the instructions, tools included, and at the end of the conversation.

    https://platform.claude.com/docs/en/build-with-claude/prompt-caching
    """
    if "system" in body:
        body["system"] = [{"type": "text", "text": body["system"]} | CACHED]
    elif "tools" in body:
        body["tools"][-1] = body["tools"][-1] | CACHED
    blocks = body["messages"][-1]["content"]
    blocks[-1] = blocks[-1] | CACHED  # the block itself may be a part of a message
    return body
