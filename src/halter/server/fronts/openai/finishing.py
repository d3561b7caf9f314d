"""How an answer ended, in OpenAI's words."""

from __future__ import annotations

from collections.abc import Set as AbstractSet
from typing import Literal, TypeAlias

import msgspec

from halter import events
from halter.messages import Message, ToolCall, Usage
from halter.server.views import plain

Finish: TypeAlias = Literal["stop", "length", "tool_calls", "content_filter"]

# The providers' words for an answer that was cut short, and for one that was withheld.
_LENGTH = frozenset(("length", "max_tokens", "max_output_tokens", "model_context_window_exceeded"))
_FILTER = frozenset(
    (
        "content_filter",
        "refusal",
        "safety",
        "recitation",
        "blocklist",
        "prohibited_content",
        "spii",
        "image_safety",
        "language",
    )
)


def finish_of(message: Message, calls: tuple[ToolCall, ...]) -> Finish:
    """Why the model ended this message; `calls`: those that the client is to answer."""
    word = (message.finish_reason or "").lower()
    if calls:
        return "tool_calls"
    if word in _LENGTH:
        return "length"
    return "content_filter" if word in _FILTER else "stop"


def calls_for_client(message: Message, names: AbstractSet[str]) -> tuple[ToolCall, ...]:
    """The calls of tools that the client has brought, without those that were cut off."""
    return tuple(call for call in message.tool_calls if call.name in names and not call.incomplete)


def answer_of(event: events.Completed | events.Failed | events.Cancelled) -> str:
    """The run's answer as text: what it has said, or its output as JSON."""
    output = event.output if isinstance(event, events.Completed) else None
    if event.text or output is None or isinstance(output, str):
        return event.text
    return msgspec.json.encode(plain(output)).decode()


def chat_usage(usage: Usage) -> dict[str, object]:
    """Tokens, as chat completions count them."""
    return {
        "prompt_tokens": usage.input,
        "completion_tokens": usage.output,
        "total_tokens": usage.total,
        "prompt_tokens_details": {"cached_tokens": usage.cached},
        "completion_tokens_details": {"reasoning_tokens": usage.reasoning},
    }


def response_usage(usage: Usage) -> dict[str, object]:
    """Tokens, as Responses count them."""
    return {
        "input_tokens": usage.input,
        "input_tokens_details": {"cached_tokens": usage.cached, "cache_write_tokens": 0},
        "output_tokens": usage.output,
        "output_tokens_details": {"reasoning_tokens": usage.reasoning},
        "total_tokens": usage.total,
    }
