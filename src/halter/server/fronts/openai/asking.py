"""A request as a run to start: settings, tools and the answer's shape as the served agent takes them."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, cast

from halter.agent import Agent
from halter.core.runnable import Runnable
from halter.errors import ConfigurationError
from halter.features import Features
from halter.request import OnlyTool, OutputSchema, Settings, ToolChoice, ToolSpec
from halter.server.bodies import ID
from halter.server.fronts.openai.bodies import ChatBody, ResponseBody, SamplingBody
from halter.server.fronts.openai.errors import refusal

# Values that change nothing: clients send them without being asked to, also to models that lack the setting.
_NEUTRAL: dict[str, Any] = {"temperature": 1, "top_p": 1, "presence_penalty": 0, "frequency_penalty": 0}
_LONGEST_TAG = 64
_MOST_TAGS = 16


def settings_of(body: SamplingBody, runnable: Runnable[Any]) -> Settings:
    """The settings that the request gives. Raises `Problem` 400 for a value that cannot be."""
    given = {
        name: value
        for name in (*_NEUTRAL, "top_k")
        if (value := getattr(body, name)) is not None and not _changes_nothing(name, value, runnable)
    }
    if body.parallel_tool_calls is False:
        given["parallel_tool_calls"] = False
    given |= {name: value for name, value in _own_settings(body).items() if value is not None}
    try:
        return Settings(**given)
    except ConfigurationError as error:
        raise refusal(str(error), next((name for name in given if name in str(error)), None)) from error


def _own_settings(body: SamplingBody) -> dict[str, Any]:
    """Those that the two APIs name differently."""
    if isinstance(body, ChatBody):
        longest = body.max_tokens if body.max_completion_tokens is None else body.max_completion_tokens
        stop = (body.stop,) if isinstance(body.stop, str) else tuple(body.stop) if body.stop else None
        return {
            "max_output_tokens": longest,
            "stop": stop,
            "seed": body.seed,
            "reasoning_effort": body.reasoning_effort,
        }
    assert isinstance(body, ResponseBody)
    return {
        "max_output_tokens": body.max_output_tokens,
        "reasoning_effort": body.reasoning.effort if body.reasoning else None,
    }


def _changes_nothing(name: str, value: Any, runnable: Runnable[Any]) -> bool:
    """True for a neutral value of a setting that the served model lacks."""
    features = getattr(runnable.model, "features", None) if isinstance(runnable, Agent) else None
    has_setting = isinstance(runnable, Agent) and (not isinstance(features, Features) or name in features.settings)
    return not has_setting and name in _NEUTRAL and value == _NEUTRAL[name]


def tools_of(given: list[dict[str, Any]] | None, choice: Any) -> tuple[ToolSpec, ...]:
    """The client's tools; none if it says that none may be called. Raises `Problem` 400."""
    return () if choice == "none" else tuple(_tool(each, f"tools[{place}]") for place, each in enumerate(given or ()))


def _tool(given: dict[str, Any], where: str) -> ToolSpec:
    if given.get("type") != "function":
        kind = given.get("type")
        raise refusal(f"{where}: tools of type {kind!r} are not run here: give the served agent a tool instead", where)
    nested = given.get("function")
    fields = cast("dict[str, Any]", nested) if isinstance(nested, dict) else given
    name, parameters = fields.get("name"), fields.get("parameters")
    if not isinstance(name, str) or not name:
        raise refusal(f"{where} needs a name", where)
    spec: dict[str, Any] = {"name": name, "description": str(fields.get("description") or "")}
    if isinstance(parameters, dict) and parameters:
        spec["parameters"] = parameters
    strict = fields.get("strict")
    return ToolSpec(**spec, strict=strict if isinstance(strict, bool) else None)


def choice_of(given: Any) -> ToolChoice | None:
    """Which tool must be called. Raises `Problem` 400."""
    match given:
        case None | "auto" | "none":
            return None
        case "required":
            return "required"
        case {"type": "function", "function": {"name": str() as name}} | {"type": "function", "name": str() as name}:
            return OnlyTool(name)
        case _:
            raise refusal(f"tool_choice {given!r} is not supported", "tool_choice")


def output_of(asked: Any, param: str) -> OutputSchema | None:
    """The shape that the answer must have: `{"type": "json_schema", …}`. Raises `Problem` 400."""
    given = cast("dict[str, Any]", asked) if isinstance(asked, dict) else {}
    kind = given.get("type", "text") if asked is None or isinstance(asked, dict) else None
    if kind == "text":
        return None
    if kind == "json_object":
        return OutputSchema(name="answer", schema={"type": "object"}, strict=False)
    nested = given.get("json_schema")
    fields = cast("dict[str, Any]", nested) if isinstance(nested, dict) else given
    name, schema = fields.get("name"), fields.get("schema")
    if kind != "json_schema" or not isinstance(name, str) or not isinstance(schema, dict):
        raise refusal(f"{param} must be text, json_object, or json_schema with a name and a schema", param)
    return OutputSchema(
        name=name,
        schema=cast("dict[str, Any]", schema),
        description=str(fields.get("description") or ""),
        strict=bool(fields.get("strict")),
    )


def holds_back(runnable: Runnable[Any], output: OutputSchema | None) -> bool:
    """True if the answer is a value of a type: what was said before its last message is no part of it."""
    if not isinstance(runnable, Agent):
        return False
    return runnable.answer is not None or (output is not None and bool(runnable.toolbox.specs))


def tags_of(metadata: Mapping[str, str] | None) -> list[str]:
    """`key=value` for each entry that a tag has room for."""
    tags = (f"{key}={value}" for key, value in (metadata or {}).items())
    return [tag for tag in tags if len(tag) <= _LONGEST_TAG and tag.isprintable() and not tag.startswith("halter.")][
        :_MOST_TAGS
    ]


def user_of(given: str | None) -> str | None:
    """Whom the run talks with. Raises `Problem` 400 for a name that users cannot have here."""
    if given and not re.fullmatch(ID, given):
        raise refusal("user must be 1 to 128 letters, digits and . _ ~ -", "user")
    return given or None
