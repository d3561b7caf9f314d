"""A conversation as a request body of OpenAI's chat completions (https://platform.openai.com/docs/api-reference/chat).

1. Only what the format knows is sent: reasoning is not, and an `Opaque` goes back only to the provider that made it.
2. No message is sent that the provider would refuse: not an assistant message that says nothing, and a tool call and
its result only together.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, assert_never, cast

import msgspec

from halter.messages import Message, ModelRequest, Opaque, ToolCall, ToolResult
from halter.models.lenient_json import without_lone_surrogates

_NOT_IN_A_NAME = re.compile(r"[\s<|\\/>]+")
LONGEST_NAME = 64


def encode_request(
    request: ModelRequest, *, model: str, provider: str, stream: bool, extra: Mapping[str, Any]
) -> bytes:
    """The body. `provider`: whose `Opaque` parts go back. `extra`: more fields; one that is `None` is left out."""
    body: dict[str, Any] = {"model": model, "messages": chat_messages(request.messages, provider)}
    if stream:
        body |= {"stream": True, "stream_options": {"include_usage": True}}
    if request.max_output_tokens is not None:
        body["max_completion_tokens"] = request.max_output_tokens
    body = {name: value for name, value in (body | dict(extra)).items() if value is not None}
    try:
        return msgspec.json.encode(body)
    except UnicodeEncodeError:  # half a surrogate pair in somebody's text
        return msgspec.json.encode(without_lone_surrogates(msgspec.to_builtins(body)))


def chat_messages(messages: tuple[Message, ...], provider: str) -> list[dict[str, Any]]:
    """The conversation in the format's own messages."""
    paired = _paired_calls(messages)
    sent: list[dict[str, Any]] = []
    for message in messages:
        match message.role:
            case "system" | "user":
                sent.append({"role": message.role, "content": message.text} | _name(message))
            case "assistant":
                sent.extend(_assistant(message, paired, provider))
            case "tool":
                sent.extend(_results(message, paired))
            case _:
                assert_never(message.role)
    return sent


def _paired_calls(messages: tuple[Message, ...]) -> set[str]:
    """The calls that have a result: a call without one, or a result without its call, is refused with 400."""
    called = {call.id for message in messages if message.role == "assistant" for call in message.tool_calls}
    answered = {part.call_id for m in messages if m.role == "tool" for part in m.parts if isinstance(part, ToolResult)}
    return called & answered


def _assistant(message: Message, paired: set[str], provider: str) -> list[dict[str, Any]]:
    calls = [call for call in message.tool_calls if call.id in paired]
    if not (message.text or message.refusal or calls):
        return []
    returned = _returned(message, provider)
    sent: dict[str, Any] = {"role": "assistant", "content": message.text or None} | _name(message)
    if message.refusal:
        sent["refusal"] = message.refusal
    if calls:
        sent["tool_calls"] = [_call(call, returned.get("extra_content", {})) for call in calls]
    if "reasoning_details" in returned:
        sent["reasoning_details"] = returned["reasoning_details"]
    return [sent]


def _call(call: ToolCall, extra: dict[str, Any]) -> dict[str, Any]:
    # A call without arguments was written as no text at all, which several servers fail to parse.
    function = {"name": call.name, "arguments": call.arguments or "{}"}
    sent: dict[str, Any] = {"id": call.id, "type": "function", "function": function}
    return sent | {"extra_content": extra[call.id]} if call.id in extra else sent


def _results(message: Message, paired: set[str]) -> list[dict[str, Any]]:
    return [
        {"role": "tool", "tool_call_id": part.call_id, "content": part.content}
        for part in message.parts
        if isinstance(part, ToolResult) and part.call_id in paired
    ]


def _returned(message: Message, provider: str) -> dict[str, Any]:
    """What this provider needs back: `reasoning_details`, and `extra_content` by the id of its call."""
    returned: dict[str, Any] = {}
    for part in message.parts:
        if isinstance(part, Opaque) and part.provider == provider and isinstance(part.data, dict):
            returned |= cast("dict[str, Any]", part.data)
    return returned


def _name(message: Message) -> dict[str, str]:
    """The name as the API takes it: no spaces, and at most 64 characters."""
    name = _NOT_IN_A_NAME.sub("_", message.name or "")[:LONGEST_NAME]
    return {"name": name} if name else {}
