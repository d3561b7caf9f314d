"""The attributes of spans: names of the GenAI semantic conventions, and values from events."""

from __future__ import annotations

import re
from typing import Any, TypeAlias

from halter.events import encode_any
from halter.messages import Message, Opaque, Reasoning, Refusal, Text, ToolCall, ToolResult, Usage

Attributes: TypeAlias = dict[str, Any]

OPERATION = "gen_ai.operation.name"
PROVIDER = "gen_ai.provider.name"
AGENT = "gen_ai.agent.name"
WORKFLOW = "gen_ai.workflow.name"
CONVERSATION = "gen_ai.conversation.id"
REQUEST_MODEL = "gen_ai.request.model"
REQUEST_STREAM = "gen_ai.request.stream"
RESPONSE_MODEL = "gen_ai.response.model"
FINISH_REASONS = "gen_ai.response.finish_reasons"
FIRST_CHUNK = "gen_ai.response.time_to_first_chunk"
INPUT_MESSAGES = "gen_ai.input.messages"
OUTPUT_MESSAGES = "gen_ai.output.messages"
TOOL_NAME = "gen_ai.tool.name"
TOOL_TYPE = "gen_ai.tool.type"
TOOL_CALL = "gen_ai.tool.call.id"
TOOL_ARGUMENTS = "gen_ai.tool.call.arguments"
TOOL_RESULT = "gen_ai.tool.call.result"
ERROR = "error.type"

# Prefixes of model names whose provider has another name in the conventions.
_PROVIDERS = {
    "openai-chat": "openai",
    "openai-responses": "openai",
    "azure": "azure.ai.openai",
    "azure-chat": "azure.ai.openai",
    "azure-responses": "azure.ai.openai",
    "gemini": "gcp.gemini",
    "mistral": "mistral_ai",
    "xai": "x_ai",
}
_OTHER = "_OTHER"
_PREFIX = re.compile(r"[a-z0-9-]+")


def model_attributes(name: str) -> Attributes:
    """The provider and the model of a name such as `openai:gpt-5.2`."""
    prefix, colon, model = name.partition(":")
    if not colon or not _PREFIX.fullmatch(prefix):
        return {PROVIDER: _OTHER, REQUEST_MODEL: name}
    return {PROVIDER: _PROVIDERS.get(prefix, prefix), REQUEST_MODEL: model}


def usage_attributes(usage: Usage) -> Attributes:
    """Tokens; what is zero and rarely told is left out."""
    found: Attributes = {"gen_ai.usage.input_tokens": usage.input, "gen_ai.usage.output_tokens": usage.output}
    if usage.cached:
        found["gen_ai.usage.cache_read.input_tokens"] = usage.cached
    if usage.reasoning:
        found["gen_ai.usage.reasoning.output_tokens"] = usage.reasoning
    if usage.estimated:
        found["halter.usage.estimated"] = True
    return found


def input_messages(given: Any) -> str:
    """A run's input, as `gen_ai.input.messages` has it: JSON."""
    listed: list[Any] = list(given) if isinstance(given, list | tuple) else [given]  # pyright: ignore[reportUnknownArgumentType]
    return _json([_message(each) for each in listed])


def output_messages(message: Message) -> str:
    """An answer, as `gen_ai.output.messages` has it: JSON."""
    return _json([{**_message(message), "finish_reason": message.finish_reason or "unknown"}])


def output_value(output: Any, text: str) -> str:
    """A run's output as such a message."""
    content = output if isinstance(output, str) else encode_any(output).decode() if output is not None else text
    return _json([{"role": "assistant", "parts": [_text(content)], "finish_reason": "stop"}])


def _message(given: Any) -> dict[str, Any]:
    if isinstance(given, Message):
        return {"role": given.role, "parts": [_part(part) for part in given.parts if not isinstance(part, Opaque)]}
    return {"role": "user", "parts": [_text(given if isinstance(given, str) else encode_any(given).decode())]}


def _part(part: Any) -> dict[str, Any]:
    match part:
        case Text(text=text) | Refusal(text=text):
            return _text(text)
        case Reasoning(text=text):
            return {"type": "reasoning", "content": text}
        case ToolCall():
            return {"type": "tool_call", "id": part.id, "name": part.name, "arguments": part.arguments}
        case ToolResult():
            return {"type": "tool_call_response", "id": part.call_id, "response": part.content}
        case _:  # files and images: their bytes have no place in a trace
            return {"type": type(part).__name__.lower()}


def _text(text: str) -> dict[str, Any]:
    return {"type": "text", "content": text}


def _json(value: Any) -> str:
    return encode_any(value).decode()


def seconds_between(start: int, end: int) -> float:
    """Seconds from one instant to another, both in nanoseconds."""
    return max(0, end - start) / 1e9
