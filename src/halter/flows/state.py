"""The state of a flow: a type with fields, read from what was given; and what steps that run at once make of it. Pure.

Each step works on a copy of its own. When it ends, the fields that it has changed become the flow's; a field that
another step has changed meanwhile, to another value, is a conflict: nobody's work is lost silently.
"""

from __future__ import annotations

import copy
import dataclasses
import typing
from collections.abc import Mapping
from typing import Any, cast

import msgspec

from halter.codec import Unfit, codec_of
from halter.errors import ConfigurationError, StateConflict
from halter.tools.function import encoded

_GONE: Any = object()  # a key that is not in a mapping


class StateType:
    """The type of a flow's state: a msgspec Struct, a dataclass, a pydantic model, a TypedDict, or a dict.

    `flow`: how errors call it. Raises `ConfigurationError` for any other type, and for one that has no form in JSON.
    """

    def __init__(self, given: Any, flow: str) -> None:
        self._class: Any = dict if typing.is_typeddict(given) else typing.get_origin(given) or given
        self._takes_anything = given in (dict, dict[str, Any])
        if not (isinstance(self._class, type) and _has_fields(cast("type[Any]", self._class))):
            raise ConfigurationError(
                f"the state of {flow} must be a msgspec Struct, a dataclass, a pydantic model or a dict, not {given!r}"
            )
        self._what = f"the state of {flow}"
        self._codec = codec_of(given, self._what)
        self._names = _names(self._codec.schema)

    def is_one(self, value: Any) -> bool:
        """True for a value of the type."""
        return isinstance(value, self._class)

    def read(self, given: Any) -> Any:
        """A state of its own from a value of the type, a mapping of its fields, or nothing: then all are defaults.

        Raises `ConfigurationError` for what does not fit, and for a name that is no field.
        """
        if self.is_one(given) and self._class is not dict:
            return copy.deepcopy(given)
        if given is not None and not isinstance(given, Mapping):
            raise ConfigurationError(f"{self._what} is read from a mapping of its fields, not {type(given).__name__}")
        fields = cast("Mapping[str, Any]", given or {})
        if self._names is not None and (unknown := [name for name in fields if name not in self._names]):
            raise ConfigurationError(f"{self._what} has no {unknown[0]!r}; it has {', '.join(self._names)}")
        try:
            if self._takes_anything:
                return copy.deepcopy(dict(fields))
            return self._codec.decode(msgspec.json.encode(fields, enc_hook=encoded))
        except (Unfit, TypeError, ValueError) as error:
            raise ConfigurationError(f"{self._what} does not fit its type: {error}") from error


def _has_fields(kind: type[Any]) -> bool:
    return issubclass(kind, (dict, msgspec.Struct)) or dataclasses.is_dataclass(kind) or hasattr(kind, "model_fields")


def _names(schema: Mapping[str, Any]) -> tuple[str, ...] | None:
    """The names of its fields; `None` if it takes any."""
    if "$ref" in schema:
        schema = schema["$defs"][schema["$ref"].rpartition("/")[2]]
    return tuple(schema["properties"]) if "properties" in schema and not schema.get("additionalProperties") else None


def merged(step: str, base: Any, mine: Any, current: Any) -> Any:
    """The flow's state after `step`, which began with `base` and has made `mine` of it, while others made `current`.

    Raises `StateConflict`.
    """
    if current is base:
        return mine
    changed, others = _changes(base, mine), _changes(base, current)
    for name, value in changed.items():
        if name in others and not _is_same(value, others[name]):
            raise StateConflict(
                f"step {step!r} has changed {name!r} of the state, and so has a step that ran at the same time: "
                f"let each change a field of its own, or return it to a step that waits for both"
            )
    return _changed(current, changed)


def _changes(before: Any, after: Any) -> dict[str, Any]:
    was, now = _fields(before), _fields(after)
    names = dict.fromkeys((*was, *now))
    each = ((name, was.get(name, _GONE), now.get(name, _GONE)) for name in names)
    return {name: new for name, old, new in each if not _is_same(old, new)}


def _is_same(one: Any, other: Any) -> bool:
    return one is other or bool(one == other)


def _fields(state: Any) -> dict[str, Any]:
    if isinstance(state, dict):
        return cast("dict[str, Any]", state)
    if isinstance(state, msgspec.Struct):
        return {name: getattr(state, name) for name in state.__struct_fields__}
    if dataclasses.is_dataclass(state):
        return {field.name: getattr(state, field.name) for field in dataclasses.fields(state)}
    return dict(state)  # a pydantic model gives its fields, those that are extra too


def _changed(state: Any, changes: Mapping[str, Any]) -> Any:
    """A copy with these fields; also of what is frozen."""
    if hasattr(state, "model_copy"):
        return state.model_copy(update=changes)
    new = copy.copy(state)
    for name, value in changes.items():
        _put(new, name, value)
    return new


def _put(state: Any, name: str, value: Any) -> None:
    if isinstance(state, msgspec.Struct):
        msgspec.structs.force_setattr(state, name, value)
    elif not isinstance(state, dict):
        object.__setattr__(state, name, value)  # it may be frozen
    elif value is _GONE:
        cast("dict[str, Any]", state).pop(name, None)
    else:
        state[name] = value
