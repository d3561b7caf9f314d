"""Types as JSON schemas in OpenAI's strict subset, and answers as values of those types."""

from __future__ import annotations

import enum
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import date, datetime, timezone
from decimal import Decimal
from typing import Annotated, Any, Literal, NamedTuple, NotRequired, TypedDict
from uuid import UUID

import msgspec
import pydantic
import pytest
from hypothesis import given
from hypothesis import strategies as st

from halter.codec import Unfit
from halter.errors import ConfigurationError
from halter.messages import Message
from halter.outputs import AnswerType
from halter.schemas import in_words, strict_schema, without_absent

KEYWORDS = {
    *("type", "enum", "anyOf", "$ref", "$defs", "description", "properties", "required", "additionalProperties"),
    *("items", "minItems", "maxItems", "pattern", "format", "minimum", "maximum", "exclusiveMinimum"),
    *("exclusiveMaximum", "multipleOf"),
}


class City(msgspec.Struct):
    """A place."""

    name: Annotated[str, msgspec.Meta(min_length=2, max_length=20, description="as on the map")]
    people: Annotated[int, msgspec.Meta(ge=0)] = 0
    twin: City | None = None
    rivers: list[River] = []


class River(msgspec.Struct):
    name: str
    length: float | None = 1.5
    mouth: Annotated[City | None, msgspec.Meta(description="where it ends")] = None


class Dog(msgspec.Struct, tag="dog"):
    bark: str = "wuff"


class Cat(msgspec.Struct, tag="cat"):
    lives: int = 9


class Colour(enum.Enum):
    RED = "red"
    BLUE = "blue"


@dataclass
class Lamp:
    colour: Literal["red", "green"] = "red"
    power: Colour | None = None


@dataclass
class Point:
    """In the plane."""

    x: int
    y: int = 7
    names: list[str] = field(default_factory=list)


class Movie(TypedDict):
    title: str
    year: NotRequired[int]


class Pair(NamedTuple):
    left: int
    right: str


class Person(pydantic.BaseModel):
    """Somebody."""

    name: str = pydantic.Field(min_length=1, description="full")
    age: int = pydantic.Field(3, ge=0)
    born: date | None = None
    friends: list[Person] = []


class Square(pydantic.BaseModel):
    kind: Literal["square"]
    side: float


class Round(pydantic.BaseModel):
    kind: Literal["round"]
    within: Square = pydantic.Field(description="around it")


class Draft(pydantic.BaseModel):
    a: int


class Page(pydantic.BaseModel):
    b: int
    c: str = "x"


class Count(pydantic.BaseModel):
    b: str
    c: int = 1


class Papers(pydantic.BaseModel):
    """Whose lists are told apart by what is in them."""

    all: list[Draft] | list[Page] | list[Count]
    named: dict[str, int] | Count = Count(b="0")


class Branch(pydantic.BaseModel):
    twigs: list[Branch | Stem] = []
    end: int = 1


class Stem(pydantic.BaseModel):
    twigs: list[Branch | Stem] = []
    end: str = "s"


class Bill(msgspec.Struct):
    total: Decimal
    share: float = 0.5


class Invoice(pydantic.BaseModel):
    total: Decimal
    tax: Annotated[Decimal, pydantic.Field(ge=0)] | None = Decimal(1)
    share: float | Decimal = 0.5


class Row(NamedTuple):
    a: int
    b: str = "z"
    c: int | None = 3


class Place(msgspec.Struct, array_like=True):
    x: int
    y: int = 3


Shape = Annotated[Square | Round, pydantic.Field(discriminator="kind")]

CLOSED: list[Any] = [
    *(City, River, Dog | Cat, Lamp, Point, Movie, Colour, Pair, Person, Shape, list[Person], list[Dog | Cat]),
    *(str, int, float, bool, list[int], set[int], tuple[int, str], tuple[int, ...], int | str | None),
    *(Row, Place, Invoice, Draft | Page, list[Draft | Page], Branch),
    *(Literal["a", "b"], Literal[1, "x", None], datetime, date, Decimal, UUID, bytes, list[list[Point]]),
]
OPEN: list[Any] = [dict, dict[str, int], list[Any], dict[str, City], list[dict[str, str]]]


def nodes(node: Any) -> Iterator[dict[str, Any]]:
    """All schemas in a schema."""
    assert isinstance(node, dict), node
    yield node
    for name in ("$defs", "properties"):
        for inner in node.get(name, {}).values():
            yield from nodes(inner)
    for inner in (*node.get("anyOf", ()), *([node["items"]] if "items" in node else ())):
        yield from nodes(inner)


def assert_strict(schema: dict[str, Any]) -> None:
    """https://platform.openai.com/docs/guides/structured-outputs#supported-schemas"""
    assert schema["type"] == "object"
    for node in nodes(schema):
        assert node.keys() <= KEYWORDS, node
        if "$ref" in node:
            assert list(node) == ["$ref"]
            assert node["$ref"].removeprefix("#/$defs/") in schema["$defs"]
        else:
            assert ("type" in node) != ("anyOf" in node), node
        if node.get("type") == "object":
            assert node["additionalProperties"] is False
            assert node["required"] == list(node["properties"])


def read(kind: Any, text: str) -> Any:
    return AnswerType(kind).read(Message.assistant(text))


@pytest.mark.parametrize("kind", CLOSED, ids=str)
def test_every_type_has_a_schema_in_the_strict_subset(kind: Any) -> None:
    """Objects closed, all properties required, a root that is an object, no keyword that is refused."""
    schema = AnswerType(kind).schema
    assert schema.strict
    assert_strict(schema.schema)
    assert msgspec.json.decode(msgspec.json.encode(schema.schema)) == schema.schema


@pytest.mark.parametrize("kind", OPEN, ids=str)
def test_free_keys_and_any_values_are_told_and_not_held(kind: Any) -> None:
    """No strict schema has a word for them: the model is only told, and the answer checked."""
    schema = AnswerType(kind).schema
    assert not schema.strict
    assert schema.schema["type"] == "object"


@pytest.mark.parametrize("kind", [Person, Shape, list[Person], Round], ids=str)
def test_the_official_sdk_finds_nothing_more_to_tighten(kind: Any) -> None:
    """What OpenAI's own helper would do to our schema: nothing."""
    from openai.lib._pydantic import _ensure_strict_json_schema

    ours = AnswerType(kind).schema.schema
    copy = msgspec.json.decode(msgspec.json.encode(ours))
    assert _ensure_strict_json_schema(copy, path=(), root=copy) == ours


def test_what_may_be_left_out_is_nullable_and_required() -> None:
    properties = AnswerType(Point).schema.schema["properties"]
    assert properties["x"] == {"type": "integer"}
    assert properties["y"] == {"anyOf": [{"type": "integer", "description": "default: 7"}, {"type": "null"}]}


def test_what_the_subset_cannot_say_is_said_in_words() -> None:
    """The bounds of a text are the model's to know, and ours to check."""
    name = AnswerType(City).schema.schema["properties"]["name"]
    assert name == {"type": "string", "description": "as on the map; maxLength: 20; minLength: 2"}
    with pytest.raises(Unfit, match="length >= 2"):
        read(City, '{"name": "x", "people": 1, "twin": null, "rivers": []}')


def test_a_provider_that_takes_less_is_told_in_words() -> None:
    """Keywords go, properties of the same name stay; nothing is changed in place."""

    class Bounds(msgspec.Struct):
        minimum: Annotated[int, msgspec.Meta(ge=1, description="least")]
        all: list[Annotated[float, msgspec.Meta(le=2)]]
        more: dict[str, Annotated[int, msgspec.Meta(ge=3)]]

    schema = AnswerType(Bounds).schema.schema
    told = in_words(schema, frozenset(("minimum", "maximum")))["properties"]
    assert told["minimum"] == {"type": "integer", "description": "least; minimum: 1"}
    assert told["all"]["items"] == {"type": "number", "description": "maximum: 2"}
    assert told["more"]["additionalProperties"] == {"type": "integer", "description": "minimum: 3"}
    assert schema["properties"]["minimum"]["minimum"] == 1


def test_a_recursive_type_keeps_its_definitions() -> None:
    """The root is spelled out, and what refers to it refers to its definition."""
    schema = AnswerType(City).schema.schema
    assert set(schema["$defs"]) == {"City", "River"}
    assert "$defs" not in AnswerType(Point).schema.schema


@pytest.mark.parametrize(
    ("kind", "text", "value"),
    [
        (City, '{"name":"Ulm","people":null,"twin":null,"rivers":null}', City("Ulm")),
        (
            City,
            '{"name":"Ulm","people":5,"twin":{"name":"Oz","people":null,"twin":null,"rivers":[]},'
            '"rivers":[{"name":"Iller","length":null,"mouth":null}]}',
            City("Ulm", 5, City("Oz"), [River("Iller", None)]),
        ),
        (Point, '{"x":1,"y":null,"names":null}', Point(1)),
        (Lamp, '{"colour":null,"power":null}', Lamp()),
        (list[Lamp], '{"value":[{"colour":null,"power":"red"}]}', [Lamp("red", Colour.RED)]),
        (Movie, '{"title":"M","year":null}', {"title": "M"}),
        (Movie, '{"title":"M","year":1931}', {"title": "M", "year": 1931}),
        (Dog | Cat, '{"value":{"type":"cat","lives":null}}', Cat()),
        (list[Dog | Cat], '{"value":[{"type":"cat","lives":3},{"type":"dog","bark":null}]}', [Cat(3), Dog()]),
        (Colour, '{"value":"blue"}', Colour.BLUE),
        (Pair, '{"value":[1,"x"]}', Pair(1, "x")),
        (tuple[int, str], '{"value":[1,"x"]}', (1, "x")),
        (Literal[1, "x", None], '{"value":null}', None),
        (int | None, '{"value":null}', None),
        (dict[str, int], '{"a":1}', {"a": 1}),
        (dict[int, str], '{"1":"a"}', {1: "a"}),
        (datetime, '{"value":"2026-01-02T03:04:05Z"}', datetime(2026, 1, 2, 3, 4, 5, tzinfo=timezone.utc)),  # noqa: UP017
        (Decimal, '{"value":"1.50"}', Decimal("1.50")),
        (bytes, '{"value":"aGk="}', b"hi"),
        (Person, '{"name":"Eve","age":null,"born":null,"friends":null}', Person(name="Eve")),
        (
            list[Person],
            '{"value":[{"name":"Eve","age":1,"born":"2020-02-03","friends":[{"name":"Al","age":null}]}]}',
            [Person(name="Eve", age=1, born=date(2020, 2, 3), friends=[Person(name="Al")])],
        ),
        (Shape, '{"value":{"kind":"square","side":2}}', Square(kind="square", side=2)),
        (str, '{"value":"{}"}', "{}"),
        (Draft | Page, '{"value":{"b":1,"c":null}}', Page(b=1)),
        (list[Draft | Page], '{"value":[{"b":1,"c":null},{"a":2}]}', [Page(b=1), Draft(a=2)]),
        (list[Draft] | list[Page], '{"value":[{"b":1,"c":null}]}', [Page(b=1)]),
        (dict[str, int] | Count, '{"value":{"b":"1","c":null}}', Count(b="1")),
        (
            Papers,
            '{"all":[{"b":"1","c":null}],"named":{"b":"2","c":null}}',
            Papers(all=[Count(b="1")], named=Count(b="2")),
        ),
        (Row, '{"value":[1]}', Row(1)),
        (Row, '{"value":[1,null]}', Row(1)),
        (Place, '{"value":[1,null]}', Place(1)),
    ],
    ids=str,
)
def test_an_answer_becomes_a_value_of_the_type(kind: Any, text: str, value: Any) -> None:
    """A null where something may be left out is as if it were; elsewhere it is a value."""
    assert read(kind, text) == value
    assert type(read(kind, text)) is type(value)


@pytest.mark.parametrize("number", ["1234567890123456.78", "0.1000", "12345678901234567890123", "1e-30", "-0.0"])
def test_a_decimal_keeps_its_digits(number: str) -> None:
    """As a number or as text, also where something was left out; a float is a float."""
    for written in (number, f'"{number}"'):
        for bill in (
            read(Bill, f'{{"total":{written},"share":null}}'),
            read(Bill, f'{{"total":{written},"share":2.5}}'),
        ):
            assert str(bill.total) == str(Decimal(number))
        invoice = read(Invoice, f'{{"total":{written},"tax":null,"share":2.5}}')
        assert str(invoice.total) == str(Decimal(number))
        assert type(invoice.share) is float
    assert read(list[Decimal], f'{{"value":[{number}]}}') == [Decimal(number)]
    assert read(float, f'{{"value":{number}}}') == float(number)


def test_pydantic_is_asked_for_decimals_as_text() -> None:
    """Which is how it reads all of their digits; the bounds are words."""
    properties = AnswerType(Invoice).schema.schema["properties"]
    assert properties["total"] == {"type": "string", "description": 'format: "decimal"'}
    assert "minimum: 0" in str(properties["tax"])


def test_the_tail_of_a_tuple_may_be_left_out_and_nothing_else_of_it() -> None:
    value = AnswerType(Row).schema.schema["properties"]["value"]
    assert (value["minItems"], value["maxItems"]) == (1, 3)
    value = AnswerType(tuple[int, str]).schema.schema["properties"]["value"]
    assert (value["minItems"], value["maxItems"]) == (2, 2)
    with pytest.raises(Unfit, match=r"\$\[1\]"):
        read(Row, '{"value":[1,null,5]}')


@pytest.mark.parametrize("pattern", [r"^(?!foo)", r"a(?=b)", r"(?<=a)b", r"(?P<x>a)", r"(a)\1", r"(?i)a"])
def test_a_pattern_that_no_grammar_has_is_said_in_words(pattern: str) -> None:
    kind: Any = Annotated[str, msgspec.Meta(pattern=pattern)]
    assert AnswerType(kind).schema.schema["properties"]["value"] == {
        "type": "string",
        "description": f"pattern: {msgspec.json.encode(pattern).decode()}",
    }


def test_a_regular_pattern_is_kept() -> None:
    kind: Any = Annotated[str, msgspec.Meta(pattern=r"^(?:a|b)\d+$")]
    assert AnswerType(kind).schema.schema["properties"]["value"] == {"type": "string", "pattern": r"^(?:a|b)\d+$"}


def test_unions_within_unions_take_no_time() -> None:
    """Each place is tried once as each of the two, not twice more for each place around it."""
    schema = pydantic.TypeAdapter(Branch).json_schema()
    value: Any = {"twigs": [], "end": []}
    for _ in range(60):
        value = {"twigs": [value], "end": None}
    back = without_absent(value, schema, schema["$defs"])
    assert back == without_absent(back, schema, schema["$defs"])
    assert "end" not in back
    assert read(Branch, '{"twigs":[{"twigs":[],"end":"t"}],"end":null}') == Branch(twigs=[Stem(end="t")])


@pytest.mark.parametrize("depth", [150, 300, 900])
def test_what_is_nested_too_deeply_is_unfit(depth: int) -> None:
    """Also where the type is as deep as one likes."""
    assert_read_or_unfit(City, '{"name":"Ulm","twin":' * depth + "null" + "}" * depth)
    friends = '{"name":"Eve","friends":['
    assert_read_or_unfit(Person, friends * depth + "]}" * depth)


class Picky(msgspec.Struct):
    a: int

    def __post_init__(self) -> None:
        if self.a == 1:
            raise ValueError("not one")
        raise KeyError("a mistake")


class Careful(pydantic.BaseModel):
    a: int

    @pydantic.field_validator("a")
    @classmethod
    def _check(cls, value: int) -> int:
        if value == 1:
            raise ValueError("not one")
        raise KeyError("a mistake")


@pytest.mark.parametrize("kind", [Picky, Careful])
def test_a_validator_objects_with_a_value_error_and_fails_with_any_other(kind: Any) -> None:
    """The model can mend its answer, and no validator."""
    with pytest.raises(Unfit, match="not one"):
        read(kind, '{"a":1}')
    with pytest.raises(KeyError, match="a mistake"):
        read(kind, '{"a":2}')


def test_a_number_with_a_point_is_an_int_to_pydantic_only() -> None:
    """Each as it is: msgspec is strict."""
    assert read(Draft, '{"a":1.0}') == Draft(a=1)
    with pytest.raises(Unfit, match="Expected `int`, got `float`"):
        read(Point, '{"x":1.0}')


@pytest.mark.parametrize("text", ['```json\n{"x": 1}\n```', '```\n{"x": 1}```', '  {"x":1}\n', '{"x": 1}'])
def test_the_marks_of_a_code_block_are_passed_over(text: str) -> None:
    assert read(Point, text) == Point(1)


@pytest.mark.parametrize(
    ("kind", "text", "reason"),
    [
        (Point, "", "empty"),
        (Point, "Here you are!", "no JSON"),
        (Point, '{"x":1', "no JSON"),
        (Point, "[" * 100_000, "no JSON|deeply"),
        (Point, "[1]", "Expected `object`"),
        (Point, '{"x":"one"}', r"Expected `int`, got `str` - at `\$.x`"),
        (Point, '{"y":1}', "missing required field `x`"),
        (list[int], "[1]", "property 'value'"),
        (list[int], '{"value":[1,"2"]}', r"\$\[1\]"),
        (Person, '{"name":"","age":-1}', r"at `\$.name`.*at `\$.age`"),
        (list[Person], '{"value":[{"name":"x","friends":[{}]}]}', r"at `\$\[0\].friends\[0\].name`"),
        (Literal["a"], '{"value":"b"}', "Invalid enum value"),
    ],
)
def test_what_does_not_fit_is_told_with_its_place(kind: Any, text: str, reason: str) -> None:
    with pytest.raises(Unfit, match=reason):
        read(kind, text)


@pytest.mark.parametrize("text", [f'{{"x": {"[" * deep}{"]" * deep}}}' for deep in (100, 900, 5000)])
def test_deep_answers_are_unfit_and_nothing_else(text: str) -> None:
    with pytest.raises(Unfit):
        read(Point, text)


def assert_read_or_unfit(kind: Any, text: str) -> None:
    try:
        read(kind, text)
    except Unfit:
        pass


@given(st.text(max_size=50) | st.binary(max_size=50).map(lambda data: data.decode("latin-1")))
def test_any_text_is_a_value_or_unfit(text: str) -> None:
    for kind in (City, list[Dog | Cat], Person):
        assert_read_or_unfit(kind, text)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-5, 5) | st.sampled_from(["cat", "dog", "x"]),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(["name", "people", "twin", "rivers", "type", "lives", "value"]), inner)
    ),
    max_leaves=12,
)


@given(JSON)
def test_any_json_is_a_value_or_unfit(value: Any) -> None:
    for kind in (City, Dog | Cat, dict[str, Any], Person):
        assert_read_or_unfit(kind, msgspec.json.encode(value).decode())


NAMES = st.text("abcde", min_size=2, max_size=5)
CITIES = st.deferred(
    lambda: st.builds(
        City,
        NAMES,
        st.integers(0, 2),
        st.none() | CITIES,
        st.lists(st.builds(River, NAMES, st.none() | st.sampled_from([1.5, 2.0]), st.none() | CITIES), max_size=2),
    )
)


def as_a_model_writes(value: Any) -> Any:
    """With a null for each default where null says just that: what the strict schema asks for."""
    match value:
        case City():
            fields = msgspec.structs.asdict(value) | ({"people": None} if value.people == 0 else {})
            fields |= {"rivers": None} if value.rivers == [] else {}
        case River():
            fields = msgspec.structs.asdict(value)
        case list():
            return [as_a_model_writes(each) for each in value]
        case _:
            return value
    return {name: as_a_model_writes(each) for name, each in fields.items()}


@given(CITIES)
def test_whatever_a_model_writes_in_the_strict_subset_comes_back_as_it_was_meant(city: City) -> None:
    """Nested and recursive, with nulls where something may be left out, and where null is a value."""
    text = msgspec.json.encode(as_a_model_writes(city)).decode()
    assert read(City, text) == city
    assert read(list[City], f'{{"value":[{text},{text}]}}') == [city, city]


NO_TYPES: list[Any] = ["Point", 3, Point(1), Dog | Point, object(), list["Nobody"], subprocess.Popen]  # noqa: F821


@pytest.mark.parametrize("wrong", [*NO_TYPES, lambda: 0, print])
def test_what_is_no_type_is_refused_at_once(wrong: Any) -> None:
    with pytest.raises(ConfigurationError, match="output must be a type"):
        AnswerType(wrong)


def test_a_name_is_one_that_providers_take() -> None:
    """Letters, digits, `_` and `-`, at most 64."""
    odd = type("Größe [x]" + "y" * 80, (msgspec.Struct,), {"__annotations__": {"a": int}})
    assert AnswerType(odd).schema.name == "Gr_e_x_" + "y" * 57
    assert AnswerType(list[int]).schema.name == "answer"
    assert AnswerType(Point).schema.name == "Point"
    assert AnswerType(Dog | Cat).schema.name == "answer"


def test_pydantic_is_not_loaded_unless_the_user_did() -> None:
    """A dataclass needs none of it."""
    code = (
        "import sys, dataclasses\n"
        "from halter import Agent\n"
        "D = dataclasses.make_dataclass('D', [('a', int)])\n"
        "Agent('scripted:x', output=D)\n"
        "assert not any(name.startswith('pydantic') for name in sys.modules)\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_an_unusual_schema_is_tightened_as_far_as_it_goes() -> None:
    """Type lists, a single `allOf`, several of them, values that are no JSON scalars."""
    schema = {
        "type": "object",
        "properties": {
            "a": {"type": ["string", "null"], "description": "perhaps", "maxLength": 3},
            "b": {"allOf": [{"type": "integer"}], "description": "one"},
        },
        "required": ["a", "b"],
    }
    tight = strict_schema(schema)
    assert_strict(tight.schema)
    assert tight.is_closed
    assert tight.schema["properties"]["b"] == {"type": "integer", "description": "one"}
    for odd in ({"allOf": [{"type": "object"}, {}]}, {"enum": [{"a": 1}]}, {"not": {}}, {"type": "object"}):
        assert not strict_schema(odd).is_closed
