"""The arguments of a function as a model writes them: their schema, and the way from its JSON to values."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from functools import partial
from typing import Annotated, Any, NamedTuple, get_args, get_origin, get_type_hints

import msgspec

from halter.codec import Codec, Unfit, codec_of
from halter.core.context import RunContext
from halter.errors import ConfigurationError, ToolError
from halter.schemas import Schema

_POSSIBLE = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
_OBJECT = msgspec.json.Decoder(dict[str, msgspec.Raw])


class _Argument(NamedTuple):
    codec: Codec
    default: Any  # `Parameter.empty`: it must be given

    @property
    def is_required(self) -> bool:
        return self.default is inspect.Parameter.empty


class Arguments:
    """What `fn` takes from a model. Immutable. `context`: the name of the parameter that gets the context, if any.

    Raises `ConfigurationError` for a parameter that no model can give.
    """

    def __init__(self, fn: Callable[..., Any], descriptions: Mapping[str, str]) -> None:
        signature, hints = _signature(fn), _hints(fn)
        self.context: str | None = None
        self._arguments: dict[str, _Argument] = {}
        properties: dict[str, Schema] = {}
        definitions: dict[str, Schema] = {}
        for place, (name, parameter) in enumerate(signature.parameters.items()):
            hint = hints.get(name, Any)
            if place == 0 and name in ("self", "cls") and name not in hints:
                raise ConfigurationError(
                    f"{_name(fn)} is a method without its object, which no model can give: use tool(object.method)"
                )
            if _is_context(name, hint):
                if self.context is not None:
                    raise ConfigurationError(f"{_name(fn)} has two parameters for the context: one is enough")
                self.context = name
                continue
            if parameter.kind not in _POSSIBLE:
                raise ConfigurationError(f"a tool's arguments have names: {_name(fn)} cannot take {parameter}")
            codec = codec_of(hint, f"the argument {name!r} of {_name(fn)}")
            self._arguments[name] = _Argument(codec, parameter.default)
            properties[name] = _property(codec.schema, parameter, _described(hint) or descriptions.get(name))
            _merge(definitions, codec.schema.get("$defs", {}), fn)
        self.schema: Schema = {"type": "object", "properties": properties, "additionalProperties": False}
        if required := [name for name, argument in self._arguments.items() if argument.is_required]:
            self.schema["required"] = required
        if definitions:
            self.schema["$defs"] = definitions

    @property
    def names(self) -> tuple[str, ...]:
        """The arguments, in the function's order."""
        return tuple(self._arguments)

    def read(self, written: str) -> dict[str, Any]:
        """The model's JSON as keyword arguments. Raises `ToolError` that says all that is wrong with it."""
        try:
            given = _OBJECT.decode(written.strip() or "{}")
        except (msgspec.DecodeError, UnicodeError) as error:
            raise ToolError(f"The arguments are no JSON object: {error}.") from error
        except RecursionError as error:
            raise ToolError("The arguments are nested too deeply.") from error
        values: dict[str, Any] = {}
        wrong = [f"there is no argument {name!r}" for name in given if name not in self._arguments]
        for name, argument in self._arguments.items():
            if name in given:
                wrong += _read(name, argument.codec, given[name], values)
            elif argument.is_required:
                wrong.append(f"the argument {name!r} is missing")
        if wrong:
            raise ToolError(f"The call was not made, its arguments are wrong: {'; '.join(wrong)}.")
        return values

    def completed(self, values: Mapping[str, Any]) -> dict[str, Any]:
        """All arguments in the function's order: what the model has left out has its default."""
        return {name: values.get(name, argument.default) for name, argument in self._arguments.items()}


def _read(name: str, codec: Codec, raw: msgspec.Raw, values: dict[str, Any]) -> tuple[str, ...]:
    """Reads one argument into `values`; what is wrong with it, if anything."""
    try:
        values[name] = codec.decode(bytes(raw))
    except Unfit as unfit:
        return tuple(f"{name}: {reason}" for reason in unfit.reasons)
    except RecursionError:
        return (f"{name}: it is nested too deeply",)
    return ()


def _signature(fn: Callable[..., Any]) -> inspect.Signature:
    try:
        return inspect.signature(fn)
    except (TypeError, ValueError) as error:  # some that are built in have none
        raise ConfigurationError(f"the arguments of {_name(fn)} cannot be read: {error}") from error


def _hints(fn: Callable[..., Any]) -> dict[str, Any]:
    while isinstance(fn, partial):
        fn = fn.func
    try:
        return get_type_hints(fn if inspect.isroutine(fn) else type(fn).__call__, include_extras=True)
    except Exception as error:
        raise ConfigurationError(f"the type hints of {_name(fn)} cannot be read: {error}") from error


def _name(fn: Callable[..., Any]) -> str:
    return getattr(fn, "__qualname__", repr(fn))


def _is_context(name: str, hint: Any) -> bool:
    """By its type, also where that is optional or annotated; a parameter without one, by its name."""
    if any(isinstance(each, type) and issubclass(each, RunContext) for each in (hint, *get_args(hint))):
        return True
    return hint is Any and name == "ctx"


def _described(hint: Any) -> str | None:
    """The first text in `Annotated[…, "text"]`."""
    marks = get_args(hint)[1:] if get_origin(hint) is Annotated else ()
    return next((mark for mark in marks if isinstance(mark, str)), None)


def _property(schema: Schema, parameter: inspect.Parameter, description: str | None) -> Schema:
    shown: Schema = {name: value for name, value in schema.items() if name != "$defs"}
    if description:
        shown = (
            {"allOf": [shown], "description": description} if "$ref" in shown else shown | {"description": description}
        )
    if parameter.default not in (parameter.empty, None) and isinstance(parameter.default, str | int | float):
        shown["default"] = parameter.default
    return shown


def _merge(definitions: dict[str, Schema], more: Mapping[str, Schema], fn: Callable[..., Any]) -> None:
    for name, schema in more.items():
        if definitions.setdefault(name, schema) != schema:
            raise ConfigurationError(f"two types in the arguments of {_name(fn)} are called {name!r}: rename one")
