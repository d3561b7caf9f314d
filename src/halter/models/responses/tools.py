"""The server's own tools, as the caller gives them: some hold keys, which no error may show."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, cast

import msgspec

from halter.errors import ConfigurationError
from halter.models.responses.frames import fields_of

_TELLING = re.compile(r"auth|key|token|secret|password", re.IGNORECASE)
_SHORTEST = 4  # characters; what is shorter is no secret, and would make holes in every message


def checked_tools(tools: Iterable[Mapping[str, Any]]) -> tuple[dict[str, Any], ...]:
    """The tools. Raises `ConfigurationError`, which names one by its place and its fields, never by what they hold."""
    if not isinstance(tools, list | tuple):
        raise ConfigurationError(f"{_WANTED}, not {type(tools).__name__}")
    for place, tool in enumerate(cast("tuple[Any, ...]", tuple(tools))):
        if not isinstance(tool, Mapping):
            raise ConfigurationError(f"{_WANTED}; number {place} is of type {type(tool).__name__}")
        if not isinstance(cast("Mapping[str, Any]", tool).get("type"), str):
            fields = ", ".join(map(str, cast("Mapping[str, Any]", tool))) or "nothing"
            raise ConfigurationError(f"{_WANTED}; number {place} has no type, only {fields}")
    try:
        msgspec.json.encode(tools)
    except (TypeError, ValueError) as error:
        raise ConfigurationError(f"built_in_tools must be JSON: {error}") from None  # its `repr` may show a value
    return tuple(dict(tool) for tool in tools)


_WANTED = "built_in_tools must be a list such as [{'type': 'web_search'}]"


def secrets_in(tools: Iterable[Mapping[str, Any]]) -> Iterator[str]:
    """What lets the server in to others: the headers of an MCP server, and its `authorization`."""
    for tool in tools:
        given = [*fields_of(tool.get("headers")).values(), *(tool[name] for name in tool if _TELLING.search(name))]
        for value in given:
            secret = value.removeprefix("Bearer ").strip() if isinstance(value, str) else ""
            if len(secret) >= _SHORTEST:
                yield secret
