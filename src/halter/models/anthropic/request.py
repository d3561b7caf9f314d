"""A question as a request body of Anthropic's messages (https://platform.claude.com/docs/en/api/messages/create)."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

from halter.errors import ConfigurationError
from halter.messages import Message, Opaque
from halter.models.anthropic.thinking import FAMILY, thinking
from halter.models.anthropic.turns import turns_of
from halter.models.conversation import instructions
from halter.models.limits import limits_of
from halter.request import ModelRequest, OnlyTool, Settings, ToolSpec
from halter.schemas import in_words

# The API wants an upper bound with each request. Every model since Claude 3.7 takes this one; these take less:
DEFAULT_MAX_TOKENS = 32_000
_LESS = {"claude-3-7": DEFAULT_MAX_TOKENS, "claude-3-5": 8_192, "claude-3-": 4_096}
# More may take longer than the ten minutes after which an answer in one piece is given up: the official SDK's own
# reckoning, 128,000 tokens an hour. It is streamed then.
LARGEST_IN_ONE_PIECE = 21_333
CACHED = {"cache_control": {"type": "ephemeral"}}

_NAMES = {"stop": "stop_sequences", "temperature": "temperature", "top_p": "top_p", "top_k": "top_k"}


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
        | thinking(request, messages, model, most)
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


# --- the answer's shape -------------------------------------------------------------------------------------


def _output(request: ModelRequest, model: str) -> dict[str, Any]:
    limits = limits_of(FAMILY, model)
    effort = limits.efforts.get(request.settings.reasoning_effort or "")
    config: dict[str, Any] = {"effort": effort} if effort is not None else {}
    if request.output is not None:
        config["format"] = {"type": "json_schema", "schema": in_words(request.output.schema, limits.schemas.not_held)}
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
