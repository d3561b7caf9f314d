"""JSON schemas as providers take them: the strict subset that OpenAI holds an answer to, and the way back.

1. All properties are required and no others allowed; what may be left out becomes nullable instead, and is taken out
again before the answer is read (`without_absent`). 2. What the subset has no word for goes into the description: the
model is told, and the answer is checked against the type anyway. 3. What cannot be closed (any value, free keys) is
said to be open, never refused. Source: https://platform.openai.com/docs/guides/structured-outputs#supported-schemas
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, TypeAlias, cast

import msgspec

Schema: TypeAlias = dict[str, Any]

REFERENCE = "#/$defs/"
NULL: Schema = {"type": "null"}
DECIMAL: Schema = {"type": "string", "format": "decimal"}  # text keeps its digits; a model may write a number too
# The keywords of the subset, by what they say something about; what else bounds a value becomes words.
_STRING = frozenset(("pattern", "format"))
_NUMBER = frozenset(("multipleOf", "minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum"))
_ARRAY = frozenset(("minItems", "maxItems"))
_FORMATS = frozenset(("date-time", "time", "date", "duration", "email", "hostname", "ipv4", "ipv6", "uuid"))
# Lookarounds, named groups, flags, references back and word boundaries: no provider's grammar has them. Looked for only
# where the backslash or parenthesis is not itself escaped.
_BEYOND_REGULAR = re.compile(r"(?<!\\)(?:\\\\)*(?:\(\?(?!:)|\\[1-9kbB])")
_STRUCTURE = frozenset(
    (
        *("$defs", "$ref", "type", "enum", "const", "anyOf", "oneOf", "allOf", "items", "prefixItems"),
        *("properties", "required", "additionalProperties", "description"),
        *("title", "discriminator", "examples", "deprecated", "readOnly", "writeOnly"),  # left out
    )
)
_KINDS: dict[type[Any], frozenset[str]] = {
    dict: frozenset(("object",)),
    list: frozenset(("array",)),
    str: frozenset(("string",)),
    bool: frozenset(("boolean",)),
    int: frozenset(("integer", "number")),
    msgspec.Raw: frozenset(("number",)),
    type(None): frozenset(("null",)),
}
_TYPES = ((str, "string"), (bool, "boolean"), (int, "integer"), (float, "number"), (type(None), "null"))


class StrictSchema(msgspec.Struct, frozen=True, kw_only=True):
    """`schema`: an object in the strict subset. `is_closed`: all of it is; else a provider can only be told of it.

    `is_wrapped`: the schema was none of an object, and is that of the property `value` now.
    """

    schema: Schema
    is_closed: bool
    is_wrapped: bool


WRAPPED = "value"


def strict_schema(schema: Schema) -> StrictSchema:
    """A schema of msgspec or pydantic in the strict subset."""
    tightening = _Tightening()
    definitions = {name: tightening.tighten(node) for name, node in schema.get("$defs", {}).items()}
    root = _inlined(tightening.tighten({name: value for name, value in schema.items() if name != "$defs"}), definitions)
    is_wrapped = root.get("type") != "object"
    if is_wrapped:
        root = _closed({WRAPPED: root})
    used = {name: definitions[name] for name in sorted(_reachable(root, definitions))}
    whole = root | {"$defs": used} if used else root
    return StrictSchema(schema=whole, is_closed=not tightening.is_open, is_wrapped=is_wrapped)


def _inlined(root: Schema, definitions: dict[str, Schema]) -> Schema:
    """A root must say itself that it is an object."""
    while "$ref" in root:
        root = definitions[root["$ref"].removeprefix(REFERENCE)]
    return dict(root)


def _closed(properties: dict[str, Schema]) -> Schema:
    return {
        "type": "object",
        "properties": properties,
        "required": list(properties),
        "additionalProperties": False,
    }


def _reachable(root: Schema, definitions: dict[str, Schema]) -> set[str]:
    found: set[str] = set()
    new = set(_references(root))
    while new:
        found |= new
        new = {name for known in new for name in _references(definitions[known])} - found
    return found


def _references(value: Any) -> Iterator[str]:
    if isinstance(value, dict):
        for name, inner in cast("dict[str, Any]", value).items():
            if name == "$ref" and isinstance(inner, str):
                yield inner.removeprefix(REFERENCE)
            else:
                yield from _references(inner)
    elif isinstance(value, list):
        for inner in cast("list[Any]", value):
            yield from _references(inner)


class _Tightening:
    """One schema on its way into the subset. `is_open`: some place in it takes more than the subset can say."""

    def __init__(self) -> None:
        self.is_open = False

    def tighten(self, node: Any) -> Schema:
        """The node in the subset, its description with what the subset has no keyword for."""
        fields = cast("Schema", node) if isinstance(node, dict) else {}
        tight = self._shape(fields)
        said = "; ".join(filter(None, (fields.get("description"), *_in_words(fields, tight))))
        if said and "$ref" in tight:  # a reference stands alone
            return {"anyOf": [tight], "description": said}
        return tight | {"description": said} if said else tight

    def _shape(self, fields: Schema) -> Schema:
        match fields:
            case {"$ref": str(name)}:
                return {"$ref": name}
            case {"const": value}:
                return self._enum([value])
            case {"enum": [*values]}:
                return self._enum(values)
            case {"anyOf": [*branches]} | {"oneOf": [*branches]}:
                return {"anyOf": [self.tighten(branch) for branch in branches]}
            case {"allOf": [only]}:
                return self.tighten(only)
            case {"type": [*kinds]}:
                return {"anyOf": [self.tighten(_of_kind(fields, kind)) for kind in kinds]}
            case {"type": "object"}:
                return self._object(fields)
            case {"type": "array"}:
                return self._array(fields)
            case {"type": str(kind)}:
                return {"type": kind} | _kept(fields, _STRING if kind == "string" else _NUMBER)
            case _:
                return self._anything()

    def _anything(self) -> Schema:
        self.is_open = True
        return {}

    def _enum(self, values: list[Any]) -> Schema:
        """Each type by itself: an `enum` needs one."""
        by_type: dict[str, list[Any]] = {}
        for value in values:
            kind = next((name for kind, name in _TYPES if isinstance(value, kind)), "")
            by_type.setdefault(kind, []).append(value)
        if "" in by_type:
            return self._anything()
        kinds = [NULL if kind == "null" else {"type": kind, "enum": of_it} for kind, of_it in by_type.items()]
        return kinds[0] if len(kinds) == 1 else {"anyOf": kinds}

    def _object(self, fields: Schema) -> Schema:
        properties: dict[str, Any] = fields.get("properties", {})
        others = fields.get("additionalProperties", "properties" not in fields)
        if others is not False:  # a mapping
            self.is_open = True
            others = self.tighten(others) if isinstance(others, dict) else True
        tight = {
            name: self.tighten(node) if name in fields.get("required", ()) else _or_null(self.tighten(node))
            for name, node in properties.items()
        }
        return _closed(tight) | {"additionalProperties": others}

    def _array(self, fields: Schema) -> Schema:
        """A tuple becomes an array whose items are any of its own; what comes last in it may be left out."""
        places = [self.tighten(node) for node in fields.get("prefixItems", ())]
        different = [node for at, node in enumerate(places) if node not in places[:at]]
        if places:
            items = different[0] if len(different) == 1 else {"anyOf": different}
            bounds = {"minItems": fields.get("minItems", len(places)), "maxItems": len(places)}
        else:
            items = self.tighten(fields.get("items"))
            bounds = _kept(fields, _ARRAY)
        return {"type": "array", "items": items} | bounds


def _of_kind(fields: Schema, kind: Any) -> Schema:
    return {name: value for name, value in fields.items() if name != "description"} | {"type": kind}


def _kept(fields: Schema, keywords: frozenset[str]) -> Schema:
    kept = {name: fields[name] for name in fields if name in keywords}
    if kept.get("format") not in _FORMATS:
        kept.pop("format", None)
    if _BEYOND_REGULAR.search(kept.get("pattern", "")):
        kept.pop("pattern")
    return kept


def _or_null(node: Schema) -> Schema:
    branches = node.get("anyOf")
    if node == NULL or not node or (branches is not None and NULL in branches):
        return node
    return node | {"anyOf": [*branches, NULL]} if branches is not None else {"anyOf": [node, NULL]}


def _in_words(fields: Schema, tight: Schema) -> Iterator[str]:
    """What bounds the value, where the subset has no keyword for it. A default of `null` says nothing new."""
    if isinstance(fields.get("type"), list):
        return  # each of its types says it
    for name, value in fields.items():
        if name not in _STRUCTURE and name not in tight and not (name == "default" and value is None):
            yield f"{name}: {msgspec.json.encode(value).decode()}"


def in_words(schema: Schema, keywords: frozenset[str]) -> Schema:
    """A strict schema for a provider that takes less: these keywords are said in the descriptions instead."""
    said = [f"{name}: {msgspec.json.encode(value).decode()}" for name, value in schema.items() if name in keywords]
    kept = {name: _inner(name, value, keywords) for name, value in schema.items() if name not in keywords}
    return kept | {"description": "; ".join(filter(None, (schema.get("description"), *said)))} if said else kept


def _inner(name: str, value: Any, keywords: frozenset[str]) -> Any:
    if name in ("$defs", "properties"):
        return {each: in_words(node, keywords) for each, node in value.items()}
    if name == "anyOf":
        return [in_words(node, keywords) for node in value]
    return in_words(cast("Schema", value), keywords) if isinstance(value, dict) else value


# --- the way back -------------------------------------------------------------------------------------------


def without_absent(value: Any, node: Any, definitions: dict[str, Any]) -> Any:
    """The value without the nulls that stand for what `node`, not tightened, lets one leave out.

    Numbers with a point or an exponent are `msgspec.Raw`: their digits are nobody's business here. Raises
    `RecursionError`.
    """
    return _WayBack(definitions).without_absent(value, node)


class _WayBack:
    """One value on its way back. What has been found to fit is kept: unions within unions would be tried for ever."""

    def __init__(self, definitions: dict[str, Any]) -> None:
        self._definitions = definitions
        self._known: dict[tuple[int, int], bool] = {}

    def without_absent(self, value: Any, node: Any) -> Any:
        if isinstance(value, msgspec.Raw):
            return self._number(value, node)
        branch = self._meant(value, node) if isinstance(value, dict | list) else None
        if branch is None:
            return cast("Any", value)
        if isinstance(value, dict):
            return self._object(cast("dict[str, Any]", value), branch)
        return self._array(cast("list[Any]", value), branch)

    def _number(self, value: msgspec.Raw, node: Any) -> Any:
        """As text, if it is to be a `Decimal` and nothing else: pydantic reads numbers as `float`."""
        [*perhaps] = (each for each in _branches(node, self._definitions, frozenset()) if _may_be(value, each))
        return bytes(value).decode() if perhaps and all(map(_is_decimal, perhaps)) else value

    def _meant(self, value: Any, node: Any) -> Schema | None:
        """Which of several: the first that it fits, or else might be, which is then told what is wrong."""
        perhaps = [branch for branch in _branches(node, self._definitions, frozenset()) if _may_be(value, branch)]
        if len(perhaps) > 1:
            return next((branch for branch in perhaps if self._fits_branch(value, branch)), perhaps[0])
        return perhaps[0] if perhaps else None

    def _object(self, fields: dict[str, Any], node: Schema) -> dict[str, Any]:
        return {
            name: self.without_absent(value, _property(node, name))
            for name, value in fields.items()
            if not self._is_absent(name, value, node)
        }

    def _array(self, items: list[Any], node: Schema) -> list[Any]:
        """Only what comes last can be left out of a tuple."""
        places: list[Any] = node.get("prefixItems", [])
        end, least = len(items), node.get("minItems", 0)
        while least < end <= len(places) and items[end - 1] is None and not self._fits(None, places[end - 1]):
            end -= 1
        return [self.without_absent(item, _item(node, at)) for at, item in enumerate(items[:end])]

    def _is_absent(self, name: str, value: Any, node: Schema) -> bool:
        if value is not None or name in node.get("required", ()) or name not in node.get("properties", ()):
            return False
        return not self._fits(None, _property(node, name))

    def _fits(self, value: Any, node: Any) -> bool:
        """Whether it is what the schema says, as far as names and kinds go."""
        key = id(value), id(node)
        if key not in self._known:
            branches = _branches(node, self._definitions, frozenset())
            self._known[key] = any(self._fits_branch(value, branch) for branch in branches)
        return self._known[key]

    def _fits_branch(self, value: Any, node: Schema) -> bool:
        if not _may_be(value, node):
            return False
        if isinstance(value, dict) and node.get("type") == "object":
            return self._fits_object(cast("dict[str, Any]", value), node)
        if isinstance(value, list) and node.get("type") == "array":
            return all(self._fits(item, _item(node, at)) for at, item in enumerate(cast("list[Any]", value)))
        return True

    def _fits_object(self, fields: dict[str, Any], node: Schema) -> bool:
        if not fields.keys() >= set(node.get("required", ())):
            return False
        return all(
            self._is_absent(name, value, node) or self._fits(value, _property(node, name))
            for name, value in fields.items()
        )


def _property(node: Schema, name: str) -> Any:
    """The schema of a property; `False` if there is none of this name, as in the strict schema."""
    properties: dict[str, Any] = node.get("properties", {})
    return properties.get(name, node.get("additionalProperties", "properties" not in node))


def _item(node: Schema, at: int) -> Any:
    places: list[Any] = node.get("prefixItems", [])
    return places[at] if at < len(places) else node.get("items")


def _branches(node: Any, definitions: dict[str, Any], seen: frozenset[str]) -> Iterator[Schema]:
    """What the node is, behind its references and unions."""
    if node is False:  # nothing at all
        return
    fields = cast("Schema", node) if isinstance(node, dict) else {}
    name = str(fields.get("$ref", "")).removeprefix(REFERENCE)
    unions = [keyword for keyword in ("anyOf", "oneOf", "allOf") if keyword in fields]
    if name and name not in seen:
        yield from _branches(definitions.get(name), definitions, seen | {name})
    for keyword in unions:
        for branch in fields[keyword]:
            yield from _branches(branch, definitions, seen)
    if not name and not unions:
        yield fields


def _may_be(value: Any, node: Schema) -> bool:
    """Whether it is of the node's kind, and an object by the properties that have but one value."""
    values, kinds = _values(node), node.get("type")
    if values is not None:
        return isinstance(value, msgspec.Raw) or value in values
    if kinds is None:
        return True
    if _is_decimal(node) and isinstance(value, int | msgspec.Raw):
        return True
    if _KINDS[type(value)].isdisjoint(cast("list[str]", kinds) if isinstance(kinds, list) else (kinds,)):
        return False
    if not isinstance(value, dict):
        return True
    fields = cast("dict[str, Any]", value)
    fixed = ((name, each) for name, each in node.get("properties", {}).items() if _values(each) is not None)
    return all(_may_be(fields[name], each) for name, each in fixed if fields.get(name) is not None)


def _is_decimal(node: Schema) -> bool:
    return node.get("format") == DECIMAL["format"]


def _values(node: Any) -> list[Any] | None:
    match node:
        case {"const": value}:
            return [value]
        case {"enum": [*values]}:
            return values
        case _:
            return None
