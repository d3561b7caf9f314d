"""A type, as JSON: its schema, and the way from what a model has written to a value of the type.

A type is msgspec's business (Structs, dataclasses, TypedDicts, `list[int]`, `Literal`, unions, …). What it does not
know is pydantic's, if the caller has imported pydantic: nothing here loads it.
"""

from __future__ import annotations

import sys
from functools import partial
from types import BuiltinFunctionType, FunctionType, MethodType
from typing import Any, Protocol, cast

import msgspec

from halter.errors import ConfigurationError
from halter.schemas import DECIMAL, Schema

MOST_REASONS = 10


class Unfit(Exception):
    """The text is no value of the type; `reasons` say why."""

    def __init__(self, *reasons: str) -> None:
        super().__init__("; ".join(reasons))
        self.reasons = reasons


class Codec(Protocol):
    """A type, as JSON."""

    @property
    def schema(self) -> Schema: ...

    def decode(self, data: bytes) -> Any:
        """JSON as a value of the type. Raises `Unfit`, and what a validator raises that is no complaint."""
        ...


class _Msgspec:
    def __init__(self, given: Any) -> None:
        self.schema: Schema = msgspec.json.schema(given)
        self._decoder: msgspec.json.Decoder[Any] = msgspec.json.Decoder(given)

    def decode(self, data: bytes) -> Any:
        try:
            return self._decoder.decode(data)
        except msgspec.DecodeError as error:
            raise Unfit(str(error)) from error


class _Pydantic:
    """Through a `TypeAdapter`, in its JSON mode: a date is text there, also where the model is strict."""

    def __init__(self, pydantic: Any, given: Any) -> None:
        self._adapter = pydantic.TypeAdapter(given)
        self._invalid: type[Exception] = pydantic.ValidationError
        self.schema: Schema = self._adapter.json_schema(schema_generator=_generator(pydantic))

    def decode(self, data: bytes) -> Any:
        try:
            return self._adapter.validate_json(data)
        except self._invalid as error:
            raise Unfit(*_complaints(cast("Any", error))) from error


def _generator(pydantic: Any) -> Any:
    """Pydantic's own, with a `Decimal` as text, as msgspec has it; its bounds are those of the number."""

    base: Any = pydantic.json_schema.GenerateJsonSchema

    class Generator(base):
        def decimal_schema(self, schema: Any) -> Schema:
            number_or_text: Any = base.decimal_schema(self, schema)
            return number_or_text["anyOf"][0] | DECIMAL

    return Generator


def _complaints(error: Any) -> list[str]:
    found = error.errors(include_url=False, include_context=False, include_input=False)
    return [f"{each['msg']} - at `{_path(each['loc'])}`" for each in found[:MOST_REASONS]]


def _path(places: tuple[str | int, ...]) -> str:
    return "$" + "".join(f"[{place}]" if isinstance(place, int) else f".{place}" for place in places)


_FUNCTIONS = (FunctionType, MethodType, BuiltinFunctionType, partial)


def codec_of(given: Any, what: str) -> Codec:
    """The codec of a type. Raises `ConfigurationError`, which calls it `what`, if JSON cannot be read into it."""
    try:
        return _codec(given, sys.modules.get("pydantic"))
    except Exception as error:
        why = next(line for line in reversed(f"{error}\n".splitlines()) if line or not str(error))
        raise ConfigurationError(f"{what} must be a type that JSON can be read into, not {given!r}: {why}") from error


def _codec(given: Any, pydantic: Any) -> Codec:
    if pydantic is None or isinstance(given, str):  # text is to pydantic the name of a type yet to come
        return _Msgspec(given)
    if hasattr(given, "__pydantic_validator__") or _is_bounded_by_pydantic(given):  # msgspec would take it, and less
        return _Pydantic(pydantic, given)
    try:
        return _Msgspec(given)
    except TypeError as unknown:
        if isinstance(given, _FUNCTIONS):  # pydantic would have the model write its arguments, and call it
            raise
        try:
            return _Pydantic(pydantic, given)
        except pydantic.PydanticUserError:
            raise unknown from None


def _is_bounded_by_pydantic(given: Any) -> bool:
    """`Annotated[int, Field(gt=0)]`."""
    marks = getattr(given, "__metadata__", ())
    return any(type(mark).__module__.partition(".")[0] in ("pydantic", "annotated_types") for mark in marks)
