"""`extra_body`: the fields that a user adds to each request, or gives other values."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, cast

from halter.errors import ConfigurationError


def with_extra(body: Mapping[str, Any], extra: Mapping[str, Any], *, schema: Sequence[str]) -> dict[str, Any]:
    """The body with the fields of `extra`.

    Objects are merged field by field, `tools` are added to ours, any other value replaces ours, and `None` leaves a
    field of ours out. `schema`: the path of the answer's schema. Raises `ConfigurationError` where `extra` would change
    a schema that the body has: `output=` could not be read from such an answer.
    """
    theirs = _at(extra, schema)
    if theirs is not _NOTHING and _at(body, schema) is not _NOTHING and theirs != _at(body, schema):
        field = ".".join(schema)
        raise ConfigurationError(
            f"extra_body sets {field}, where the schema of output= stands: leave {field} out of extra_body, or output="
        )
    return {name: value for name, value in _merged(body, extra).items() if value is not None}


def _merged(ours: Mapping[str, Any], theirs: Mapping[str, Any]) -> dict[str, Any]:
    whole = dict(ours)
    for name, value in theirs.items():
        mine = ours.get(name)
        if isinstance(mine, Mapping) and isinstance(value, Mapping):
            whole[name] = _merged(cast("Mapping[str, Any]", mine), cast("Mapping[str, Any]", value))
        elif name == "tools" and isinstance(mine, list) and isinstance(value, list):
            whole[name] = [*cast("list[Any]", mine), *cast("list[Any]", value)]
        elif value is None and name in ours:
            del whole[name]
        else:
            whole[name] = value
    return whole


_NOTHING = object()


def _at(fields: Mapping[str, Any], path: Sequence[str]) -> Any:
    """The value at this path; one above it that is no object is as if it stood there."""
    found: Any = fields
    for name in path:
        if not isinstance(found, Mapping):
            return found
        found = cast("Mapping[str, Any]", found).get(name, _NOTHING)
    return found
