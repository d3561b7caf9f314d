"""The arguments of a function: the schema that the model sees, and what it has written, as values."""

from __future__ import annotations

import dataclasses
import datetime
import decimal
import enum
from collections.abc import Callable
from typing import Annotated, Any, Literal, Required, TypedDict

import msgspec
import pydantic
import pytest

from halter import RunContext
from halter.errors import ConfigurationError, ToolError
from halter.tools import ToolContext
from halter.tools.arguments import Arguments


class Node(msgspec.Struct):
    value: int
    next: Node | None = None


class Color(enum.Enum):
    RED = "red"
    BLUE = "blue"


@dataclasses.dataclass
class Size:
    width: int
    unit: str = "cm"


class Options(TypedDict, total=False):
    deep: bool
    name: Required[str]


class Person(pydantic.BaseModel):
    age: int = pydantic.Field(gt=0, description="In years.")
    friend: Person | None = None


def of(fn: Callable[..., Any], **descriptions: str) -> Arguments:
    return Arguments(fn, descriptions)


def complaint(arguments: Arguments, written: str) -> str:
    with pytest.raises(ToolError) as caught:
        arguments.read(written)
    return str(caught.value)


# --- the schema ---------------------------------------------------------------------------------------------


def test_the_schema_is_an_object_that_says_what_must_be_given() -> None:
    """Plain types, defaults, nothing else allowed."""

    def fn(city: str, days: int = 3, exact: bool = False, ratio: float | None = None) -> None: ...

    assert of(fn).schema == {
        "type": "object",
        "properties": {
            "city": {"type": "string"},
            "days": {"type": "integer", "default": 3},
            "exact": {"type": "boolean", "default": False},
            "ratio": {"anyOf": [{"type": "number"}, {"type": "null"}]},
        },
        "additionalProperties": False,
        "required": ["city"],
    }


def test_descriptions_come_from_annotated_or_else_from_the_docstring() -> None:
    """The text nearest to the type wins; msgspec's and pydantic's own are kept."""

    def fn(
        a: Annotated[str, "of the type"],
        b: str,
        c: Annotated[int, msgspec.Meta(description="by msgspec", ge=1)],
        d: Annotated[int, pydantic.Field(description="by pydantic", gt=3)],
        e: Annotated[Node, "of a struct"],
    ) -> None: ...

    shown = of(fn, a="of the docstring", b="of the docstring").schema["properties"]
    assert shown["a"]["description"] == "of the type"
    assert shown["b"]["description"] == "of the docstring"
    assert (shown["c"]["description"], shown["c"]["minimum"]) == ("by msgspec", 1)
    assert (shown["d"]["description"], shown["d"]["exclusiveMinimum"]) == ("by pydantic", 3)
    assert shown["e"] == {"allOf": [{"$ref": "#/$defs/Node"}], "description": "of a struct"}


def test_structs_dataclasses_typed_dicts_enums_and_pydantic_models_are_defined_once() -> None:
    """Each under its name, those that contain themselves too."""

    def fn(node: Node, other: Node, color: Color, size: Size, options: Options, person: Person) -> None: ...

    schema = of(fn).schema
    assert sorted(schema["$defs"]) == ["Color", "Node", "Options", "Person", "Size"]
    assert schema["$defs"]["Options"]["required"] == ["name"]
    assert schema["$defs"]["Person"]["properties"]["age"]["description"] == "In years."


def test_two_types_of_one_name_are_refused() -> None:
    """One would be shown as the other."""
    first, second = (type("Twin", (msgspec.Struct,), {"__annotations__": {"a": kind}}) for kind in (int, str))

    def fn(a: Any, b: Any) -> None: ...

    fn.__annotations__ = {"a": first, "b": second}
    with pytest.raises(ConfigurationError, match="are called 'Twin'"):
        of(fn)


def takes_context(ctx: ToolContext, x: int) -> None: ...
def takes_run_context(x: int, run: RunContext) -> None: ...
def takes_optional_context(x: int, c: ToolContext | None = None) -> None: ...
def takes_annotated_context(x: int, c: Annotated[ToolContext, "it"]) -> None: ...
def takes_untyped_context(ctx, x: int) -> None: ...  # pyright: ignore


WITH_CONTEXT: list[Any] = [
    (takes_context, "ctx"),
    (takes_run_context, "run"),
    (takes_optional_context, "c"),
    (takes_annotated_context, "c"),
    (takes_untyped_context, "ctx"),
]


@pytest.mark.parametrize(("fn", "name"), WITH_CONTEXT)
def test_the_context_is_not_shown_to_the_model(fn: Callable[..., Any], name: str) -> None:
    """Whatever it is called; without a type, by its usual name."""
    arguments = of(fn)
    assert arguments.context == name
    assert list(arguments.schema["properties"]) == ["x"]
    assert "there is no argument" in complaint(arguments, f'{{"x": 1, "{name}": 2}}')


def test_a_parameter_called_ctx_of_another_type_is_an_argument() -> None:
    """The type counts."""

    def fn(ctx: int) -> None: ...

    assert of(fn).context is None
    assert of(fn).read('{"ctx": 1}') == {"ctx": 1}


def takes_rest(*rest: int) -> None: ...
def takes_names(**names: int) -> None: ...
def takes_position(a: int, /) -> None: ...
def takes_two_contexts(a: ToolContext, b: ToolContext) -> None: ...
def takes_unknown(a: Nowhere) -> None: ...  # pyright: ignore  # noqa: F821


REFUSED: list[Any] = [
    (takes_rest, "cannot take \\*rest"),
    (takes_names, "cannot take \\*\\*names"),
    (takes_position, "cannot take a"),
    (takes_two_contexts, "two parameters for the context"),
    (takes_unknown, "the type hints of takes_unknown cannot be read"),
]


@pytest.mark.parametrize(("fn", "why"), REFUSED)
def test_what_no_model_can_give_is_refused_where_the_tool_is_made(fn: Callable[..., Any], why: str) -> None:
    """With the function's name."""
    with pytest.raises(ConfigurationError, match=why):
        of(fn)


def test_a_type_that_json_has_no_form_for_is_refused() -> None:
    """With the name of the argument."""

    def fn(lock: Any) -> None: ...

    fn.__annotations__ = {"lock": type(iter(()))}
    with pytest.raises(
        ConfigurationError, match=r"the argument 'lock' of .* must be a type that JSON can be read into"
    ):
        of(fn)


# --- reading ------------------------------------------------------------------------------------------------


def test_what_the_model_wrote_becomes_values_of_the_types() -> None:
    """Nested ones, dates and decimals; what it left out is left to the function."""

    def fn(
        node: Node,
        color: Color = Color.RED,
        size: Size | None = None,
        day: datetime.date | None = None,
        amount: decimal.Decimal = decimal.Decimal(0),
        mode: Literal["a", "b"] = "a",
        tags: tuple[str, ...] = (),
        person: Person | None = None,
    ) -> None: ...

    written = (
        '{"node": {"value": 1, "next": {"value": 2}}, "color": "blue", "size": {"width": 3}, "day": "2026-01-31",'
        ' "amount": "0.10", "tags": ["x"], "person": {"age": 5, "friend": {"age": 6}}}'
    )
    assert of(fn).read(written) == {
        "node": Node(1, Node(2)),
        "color": Color.BLUE,
        "size": Size(3),
        "day": datetime.date(2026, 1, 31),
        "amount": decimal.Decimal("0.10"),
        "tags": ("x",),
        "person": Person(age=5, friend=Person(age=6)),
    }


def test_everything_that_is_wrong_is_told_at_once() -> None:
    """So that one more answer can mend it all."""

    def fn(node: Node, color: Color, mode: Literal["a", "b"], person: Person, n: int = 1) -> None: ...

    wrong = complaint(of(fn), '{"node": {"value": "x"}, "color": "green", "person": {"age": 0}, "n": 1.5, "zz": 1}')
    for part in (
        "there is no argument 'zz'",
        "node: Expected `int`, got `str` - at `$.value`",
        "color: Invalid enum value 'green'",
        "the argument 'mode' is missing",
        "person: Input should be greater than 0 - at `$.age`",
        "n: Expected `int`, got `float`",
    ):
        assert part in wrong
    assert wrong.startswith("The call was not made")


@pytest.mark.parametrize("written", ["", "  ", "{}", "null", "[]", "1", '"x"', '{"a', "{'a': 1}", "\ud800", "\x00"])
def test_only_an_object_is_read_and_nothing_at_all_is_an_empty_one(written: str) -> None:
    """As models write it for a tool without arguments."""

    def fn() -> None: ...

    if written.strip() in ("", "{}"):
        assert of(fn).read(written) == {}
    else:
        assert complaint(of(fn), written).startswith("The arguments are no JSON object")


@pytest.mark.parametrize("depth", [1_000, 100_000])
def test_what_is_nested_too_deeply_is_an_error_and_no_crash(depth: int) -> None:
    """In any argument."""

    def fn(x: Any) -> None: ...

    deep = f'{{"x": {"[" * depth}{"]" * depth}}}'
    assert "nested too deeply" in complaint(of(fn), deep)


def test_completed_arguments_are_all_of_them_in_the_functions_order() -> None:
    """What is asked about a call is asked about what would happen."""

    def fn(path: str = "/", comment: str = "", *, force: bool = False) -> None: ...

    assert list(of(fn).completed({"comment": "x"}).items()) == [("path", "/"), ("comment", "x"), ("force", False)]
