"""How a model is held to the schema of its answer, where its provider cannot do that.

1. Natively, by the provider's own field, wherever the model takes the schema, the tools and the stream together. 2. By
a tool: the answer is the arguments of one more tool, and is shown as text (`answer_tool.py`). 3. By words: the schema
stands in the instructions. The answer is checked against its type in all three.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count
from typing import Any, NamedTuple, cast

import msgspec

from halter.messages import Message
from halter.models.limits import Limits, SchemaLimits
from halter.request import ModelRequest, OnlyTool, OutputSchema, ToolSpec
from halter.schemas import REFERENCE

ANSWER_TOOL = "final_answer"
_CALL_IT = "Give your final answer by calling the tool {name!r}, once, when you have all that you need."
_WRITE_IT = (
    "Give your final answer as JSON that fits this JSON schema, and write nothing else: no explanation, and no code "
    "block around it.\n{schema}"
)


class Shaped(NamedTuple):
    """A request as its model takes it. `answer_tool`: the tool whose arguments are the answer, or `""`."""

    request: ModelRequest
    answer_tool: str = ""


def shaped(
    request: ModelRequest, limits: Limits, *, stream: bool, has_own_tools: bool, can_force_tools: bool
) -> Shaped:
    """The request in the first of the three ways that the model takes.

    Args:
        request: With its settings complete.
        limits: What the model takes.
        stream: Whether the answer is streamed.
        has_own_tools: Whether tools that the provider runs itself are sent too.
        can_force_tools: Whether the model can be told to call a tool.
    """
    output, has_tools = request.output, bool(request.tools) or has_own_tools
    if output is None or _is_native(output, limits, stream=stream, has_tools=has_tools):
        return Shaped(request)
    if request.tools and (request.tool_choice == "required" or isinstance(request.tool_choice, OnlyTool)):
        return Shaped(msgspec.structs.replace(request, output=None))  # this answer is a call, and not the last one
    is_calling = request.tool_choice != "none" and not (has_own_tools and not limits.schema_with_tools)
    if is_calling and (limits.tool_schemas or fits(output.schema, limits.schemas)):
        return _by_tool(request, output, is_forced=can_force_tools)
    return Shaped(_told(request, _WRITE_IT.format(schema=msgspec.json.encode(output.schema).decode())))


def _is_native(output: OutputSchema, limits: Limits, *, stream: bool, has_tools: bool) -> bool:
    return (
        limits.schema
        and (limits.schema_with_tools or not has_tools)
        and (limits.schema_streamed or not stream)
        and fits(output.schema, limits.schemas)
    )


def _by_tool(request: ModelRequest, output: OutputSchema, *, is_forced: bool) -> Shaped:
    name = _free_name({tool.name for tool in request.tools})
    call_it = _CALL_IT.format(name=name)
    tool = ToolSpec(name=name, description=f"{call_it} {output.description}".strip(), parameters=output.schema)
    request = msgspec.structs.replace(request, output=None, tools=(*request.tools, tool))
    if is_forced:
        return Shaped(msgspec.structs.replace(request, tool_choice="required"), name)
    return Shaped(_told(request, call_it), name)


def _free_name(taken: set[str]) -> str:
    names = (ANSWER_TOOL if number == 1 else f"{ANSWER_TOOL}_{number}" for number in count(1))
    return next(name for name in names if name not in taken)


def _told(request: ModelRequest, words: str) -> ModelRequest:
    """The request with more instructions, and no schema."""
    first, rest = request.messages[:1], request.messages[1:]
    if first and first[0].role == "system":
        words = f"{first[0].text}\n\n{words}" if first[0].text else words
    else:
        rest = request.messages
    return msgspec.structs.replace(request, output=None, messages=(Message.system(words), *rest))


# --- which schemas a provider takes -------------------------------------------------------------------------


def fits(schema: dict[str, Any], limits: SchemaLimits) -> bool:
    """Whether a provider with these limits takes a schema in the strict subset."""
    nodes = list(_nodes(schema))
    if not limits.open_objects and any(map(_is_open, nodes)):
        return False
    if limits.unions is not None and sum("anyOf" in node for node in nodes) > limits.unions:
        return False
    return limits.recursion or not _is_recursive(schema)


def _nodes(schema: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """The schema and all that are inside it."""
    yield schema
    inner: list[Any] = [*schema.get("$defs", {}).values(), *schema.get("properties", {}).values()]
    inner += [*schema.get("anyOf", ()), schema.get("items"), schema.get("additionalProperties")]
    for node in inner:
        if isinstance(node, dict):
            yield from _nodes(cast("dict[str, Any]", node))


def _is_open(node: dict[str, Any]) -> bool:
    """Whether it takes any value, or an object with any keys."""
    if node.get("type") == "object":
        return node.get("additionalProperties") is not False
    return not node.keys() - {"description", "title", "$defs"}


def _is_recursive(schema: dict[str, Any]) -> bool:
    definitions: dict[str, Any] = schema.get("$defs", {})
    uses = {name: _references(node) for name, node in definitions.items()}
    return any(name in _reached(name, uses) for name in uses)


def _references(schema: dict[str, Any]) -> set[str]:
    return {str(node["$ref"]).removeprefix(REFERENCE) for node in _nodes(schema) if "$ref" in node}


def _reached(name: str, uses: dict[str, set[str]]) -> set[str]:
    """The definitions that this one uses, directly or through others."""
    found: set[str] = set()
    new = set(uses.get(name, ()))
    while new:
        found |= new
        new = {inner for each in new for inner in uses.get(each, ())} - found
    return found
