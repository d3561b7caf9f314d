"""A flow as a diagram, in Mermaid's language: `flowchart TD`. Pure.

Steps are boxes, those with which it begins rounded, routers diamonds; a label is written on its arrow; an `and_` is a
knot of its own, and so is an `or_` within one. Source: https://mermaid.js.org/syntax/flowchart.html
"""

from __future__ import annotations

from collections.abc import Iterator

from halter.flows.conditions import All, Condition, Either
from halter.flows.graph import Graph
from halter.flows.steps import Step

# Words that mean something to Mermaid where a node's name stands.
_RESERVED = {"call", "class", "classdef", "click", "default", "direction", "end", "flowchart", "graph", "href"} | {
    *("linkstyle", "style", "subgraph", "bt", "lr", "rl", "tb", "td")
}


def drawn(graph: Graph) -> str:
    """The diagram, with a line for each step and for each arrow."""
    lines = [_node(step) for step in graph.steps.values()]
    for step in graph.steps.values():
        for number, part in enumerate(_ways_in(step)):
            lines += _arrows(_id(step.name), part, graph, f"{step.name}__{number}")
    loose = [label for label in graph.routers if not graph.listeners[label]]
    for number, label in enumerate(loose):
        lines += [f'{arrow} end__{number}((("end")))' for arrow in _arrows_from(label, graph)]
    return "".join(f"{line}\n" for line in ("flowchart TD", *(f"    {line}" for line in lines)))


def _ways_in(step: Step) -> tuple[Condition, ...]:
    """What brings the step, each by itself."""
    condition = step.condition
    return () if condition is None else condition.parts if isinstance(condition, Either) else (condition,)


def _node(step: Step) -> str:
    left, right = ("{", "}") if step.labels is not None else ("([", "])") if step.is_start else ("[", "]")
    return f'{_id(step.name)}{left}"{step.name}"{right}'


def _arrows(target: str, condition: Condition, graph: Graph, knot: str) -> Iterator[str]:
    """All that lead to `target`. `knot`: the name of the knot on the way, if there has to be one."""
    if isinstance(condition, str):
        yield from (f"{arrow} {target}" for arrow in _arrows_from(condition, graph))
        return
    word = "and" if isinstance(condition, All) else "or"
    yield f'{knot}(("{word}")) --> {target}'
    for number, part in enumerate(condition.parts):
        yield from _arrows(knot, part, graph, f"{knot}_{number}")


def _arrows_from(source: str, graph: Graph) -> Iterator[str]:
    """An arrow from the step, or one from each router that may choose the label."""
    routers = graph.routers.get(source)
    if routers is None:
        yield f"{_id(source)} -->"
    else:
        yield from (f'{_id(step.name)} -->|"{_escaped(source)}"|' for step in routers)


def _escaped(text: str) -> str:
    for sign, code in (("#", "#35;"), ('"', "#quot;"), ("<", "#lt;"), (">", "#gt;")):
        text = text.replace(sign, code)
    return " ".join(text.split())


def _id(name: str) -> str:
    return f"{name}_" if name.lower() in _RESERVED else name
