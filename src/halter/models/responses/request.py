"""A conversation as a request body of OpenAI's Responses (https://platform.openai.com/docs/api-reference/responses).

System messages at the beginning are its `instructions`; later ones, and developer messages, stay where they are. The
format has no names for speakers: `Message.name` is not sent.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import takewhile
from typing import Any, Literal

import msgspec

from halter.errors import ConfigurationError
from halter.messages import Message
from halter.models.responses.input import input_items
from halter.request import ModelRequest, OnlyTool, OutputSchema, ToolChoice, ToolSpec


class Ways(msgspec.Struct, frozen=True, kw_only=True):
    """How a model is asked, whatever the request. `provider`: whose `Opaque` parts go back."""

    provider: str
    stream: bool = True
    background: bool = False
    summary: Literal["auto", "concise", "detailed"] | None = None
    built_in_tools: tuple[dict[str, Any], ...] = ()
    wants_reasoning: bool = True

    def __repr__(self) -> str:
        return f"<Ways of {self.provider}>"  # its tools may have keys


def responses_body(request: ModelRequest, *, model: str, ways: Ways) -> dict[str, Any]:
    """The body. A background answer is stored: the server allows no other. Raises `ConfigurationError`."""
    instructions, rest = _instructions(request.messages)
    sent = input_items(rest, ways.provider, is_stored=ways.background)
    if not sent:
        raise ConfigurationError("nothing in the conversation can be sent: give it a user's message with some text")
    body: dict[str, Any] = {
        "model": model,
        "instructions": instructions or None,
        "input": sent,
        "store": ways.background,
        "stream": ways.stream or None,
        "background": ways.background or None,
        "include": ["reasoning.encrypted_content"] if ways.wants_reasoning else None,
        "tools": [*map(_tool, request.tools), *ways.built_in_tools] or None,
        "tool_choice": _choice(request.tool_choice) if request.tools or ways.built_in_tools else None,
        "text": _text(request.output),
    }
    body |= _settings(request, ways)
    return {name: value for name, value in body.items() if value is not None}


def _settings(request: ModelRequest, ways: Ways) -> dict[str, Any]:
    given = request.settings.given()
    reasoning = {"effort": given.pop("reasoning_effort", None), "summary": ways.summary}
    reasoning = {name: value for name, value in reasoning.items() if value is not None}
    return given | ({"reasoning": reasoning} if reasoning else {})


def _instructions(messages: Sequence[Message]) -> tuple[str, Sequence[Message]]:
    leading = list(takewhile(lambda message: message.role == "system", messages))
    if len(leading) == len(messages):  # a request needs an input
        leading = []
    return "\n\n".join(message.text for message in leading if message.text), messages[len(leading) :]


def _tool(tool: ToolSpec) -> dict[str, Any]:
    """A function. Left open, `strict` is off: the API's default would make all its optional arguments mandatory."""
    described = {"description": tool.description} if tool.description else {}
    return {
        "type": "function",
        "name": tool.name,
        **described,
        "parameters": tool.parameters,
        "strict": bool(tool.strict),
    }


def _choice(choice: ToolChoice | None) -> Any:
    return {"type": "function", "name": choice.name} if isinstance(choice, OnlyTool) else choice


def _text(output: OutputSchema | None) -> dict[str, Any] | None:
    if output is None:
        return None
    described = {"description": output.description} if output.description else {}
    form = {"type": "json_schema", "name": output.name, **described, "schema": output.schema, "strict": output.strict}
    return {"format": form}
