"""A request as a body of OpenAI's chat completions (https://platform.openai.com/docs/api-reference/chat/create)."""

from __future__ import annotations

from typing import Any

from halter.errors import ConfigurationError
from halter.models.chat.dialect import OPENAI, Dialect
from halter.models.chat.messages import chat_messages
from halter.request import ModelRequest, OnlyTool, OutputSchema, Settings, ToolChoice, ToolSpec


def chat_body(
    request: ModelRequest, *, model: str, provider: str, stream: bool, dialect: Dialect = OPENAI
) -> dict[str, Any]:
    """The body. `provider`: whose `Opaque` parts go back. Raises `ConfigurationError` for what cannot be sent."""
    messages = chat_messages(request.messages, provider, dialect)
    if not messages:
        raise ConfigurationError("nothing in the conversation can be sent: give it a user's message with some text")
    body: dict[str, Any] = {"model": model, "messages": messages}
    if stream:
        body |= _streaming(dialect)
    body |= _tools(request.tools, request.tool_choice, dialect)
    if request.output is not None:
        body["response_format"] = {"type": "json_schema", "json_schema": _schema(request.output)}
    _put_settings(body, request.settings, dialect, has_tools=bool(request.tools))
    return body


def _streaming(dialect: Dialect) -> dict[str, Any]:
    options = {"stream_options": {"include_usage": True}} if dialect.has_stream_options else {}
    return {"stream": True} | options


def _put_settings(body: dict[str, Any], settings: Settings, dialect: Dialect, *, has_tools: bool) -> None:
    given = settings.given()
    if not has_tools:
        given.pop("parallel_tool_calls", None)  # without tools the API answers 400 to it
    for name, value in given.items():
        outer, _, field = dialect.field(name).rpartition(".")
        inside: dict[str, Any] = body.setdefault(outer, {}) if outer else body
        inside[field] = value


# --- tools and the answer's shape ---------------------------------------------------------------------------


def _tools(tools: tuple[ToolSpec, ...], choice: ToolChoice | None, dialect: Dialect) -> dict[str, Any]:
    """`tools` and `tool_choice`; without tools the API takes no choice either, and there is none."""
    if not tools:
        return {}
    if isinstance(choice, OnlyTool) and not dialect.names_choice:
        tools, choice = tuple(tool for tool in tools if tool.name == choice.name), "required"
    sent: dict[str, Any] = {"tools": [_tool(tool) for tool in tools]}
    return sent if choice is None else sent | {"tool_choice": _choice(choice, dialect)}


def _choice(choice: ToolChoice, dialect: Dialect) -> str | dict[str, Any]:
    if isinstance(choice, OnlyTool):
        return {"type": "function", "function": {"name": choice.name}}
    return dialect.must_call if choice == "required" else choice


def _tool(tool: ToolSpec) -> dict[str, Any]:
    function: dict[str, Any] = {"name": tool.name, "parameters": tool.parameters}
    if tool.description:
        function["description"] = tool.description
    if tool.strict is not None:
        function["strict"] = tool.strict
    return {"type": "function", "function": function}


def _schema(output: OutputSchema) -> dict[str, Any]:
    sent: dict[str, Any] = {"name": output.name, "schema": output.schema, "strict": output.strict}
    return sent | {"description": output.description} if output.description else sent
