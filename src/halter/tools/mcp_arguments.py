"""The arguments of a server's tool, by the JSON schema that the server gives.

The server checks values. Checked here is what an approval depends on: which keys the schema names, in which order, and
what stands for a key that the model leaves out.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from copy import deepcopy
from typing import Any

import msgspec

from halter.errors import ToolError

_OBJECT = msgspec.json.Decoder(dict[str, Any])


class McpArguments:
    """What a tool takes by its input schema. Immutable.

    Keys that the schema does not name are refused if it says `additionalProperties: false`. If it says nothing, they
    are passed on, as JSON Schema has it; no approval pattern ever allows a call that has one.
    """

    def __init__(self, schema: Mapping[str, Any]) -> None:
        properties: Any = schema.get("properties")
        self._properties: Mapping[str, Any] = properties if isinstance(properties, Mapping) else {}
        self._defaults: dict[str, Any] = {
            name: about["default"]
            for name, about in self._properties.items()
            if isinstance(about, Mapping) and "default" in about
        }
        self._is_closed = schema.get("additionalProperties") is False
        others: Any = schema.get("patternProperties")
        self._others: Mapping[str, Any] = others if isinstance(others, Mapping) else {}

    @property
    def names(self) -> tuple[str, ...]:
        """The keys that the schema names, in its order."""
        return tuple(self._properties)

    def read(self, written: str, compared: Collection[str | None]) -> dict[str, Any]:
        """The model's JSON object, ordered by the schema; keys that it does not name come last.

        `compared`: the keys that an approval is about. Where the model leaves one out and the schema has a default, the
        default is sent, so that what was compared is what runs. Raises `ToolError`.
        """
        try:
            given = _OBJECT.decode(written.strip() or "{}")
        except (msgspec.DecodeError, UnicodeError) as error:
            raise ToolError(f"The arguments are no JSON object: {error}.") from error
        except RecursionError as error:
            raise ToolError("The arguments are nested too deeply.") from error
        unknown = [name for name in given if name not in self._properties]
        if refused := [name for name in unknown if self._is_closed and not self._is_other(name)]:
            there = ", ".join(self._properties) or "none"
            named = ", ".join(map(repr, refused))
            raise ToolError(f"The call was not made: there is no argument {named}. There are: {there}.")
        defaults = {name: deepcopy(self._defaults[name]) for name in compared if name in self._defaults}
        complete = defaults | given
        return {name: complete[name] for name in (*self._properties, *unknown) if name in complete}

    def _is_other(self, name: str) -> bool:
        """True if a pattern of the schema names it, or may: JSON Schema's expressions are not quite Python's."""
        try:
            return any(re.search(pattern, name) for pattern in self._others)
        except re.error:
            return True
