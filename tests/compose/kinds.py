"""What runs others, each kind on one line: a new one joins `KINDS`, and every scenario here runs for it.

A kind is made of leaves: `make(leaf)` calls `leaf("a")`, `leaf("b")`, … for the agents at its bottom, which have the
model that the scenario needs. Nested in one another, kinds are kinds again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from itertools import product
from typing import Any

import msgspec
import pytest

from halter import Agent, Message, RunContext, runnable
from halter.compose import Loop, Parallel, Race, Sequential
from halter.core.runnable import Runnable
from halter.crews import Crew, Task
from halter.flows import Flow, listen, start
from halter.models.prices import FREE
from halter.request import ModelRequest
from halter.teams import Graph, RoundRobin, Selector, Swarm
from halter.terminations import MaxMessages
from halter.tools import as_tool

Leaf = Callable[[str], Runnable[Any]]


@dataclass(frozen=True)
class Kind:
    """A way to make one runnable of leaves.

    `at_once`: so many leaves are asked as it begins; `in_all`: until it completes. `goes_on`: after the first leaf's
    answer something new would begin.
    """

    name: str
    make: Callable[[Leaf], Runnable[Any]]
    at_once: int
    in_all: int
    goes_on: bool

    def __repr__(self) -> str:
        return self.name


class Asks:
    """A model that asks its one tool what it was asked, and says what came of it."""

    name = "asks"
    price = FREE

    async def respond(self, request: ModelRequest, ctx: RunContext) -> Message:
        reply = ctx.reply(ctx.allowance(request, self.price))
        await asyncio.sleep(0)
        last = request.messages[-1]
        if last.role == "tool":
            reply.text(last.parts[0].content)  # pyright: ignore
        else:
            reply.tool_fragment(0, "call", "part", msgspec.json.encode({"input": last.text}).decode())
        return reply.finish()


def _agent(leaf: Leaf) -> Runnable[Any]:
    return Agent(Asks(), name="outer", tools=[as_tool(leaf("a"), name="part")])


def _function(leaf: Leaf) -> Runnable[Any]:
    part = leaf("a")

    @runnable(name="function")
    async def function(ctx: RunContext, input: Any) -> Any:
        return (await ctx.start(part, input)).output

    return function


def _crew(leaf: Leaf) -> Runnable[Any]:
    """Its second task is told nothing of the first, so that leaves are asked the same wherever they are."""
    return Crew([Task(description="{input}", agent=leaf(name), context=(), name=name) for name in "ab"])


def _selector(leaf: Leaf) -> Runnable[Any]:
    """A function chooses, in the order of the names: one after the other."""
    return Selector(_two(leaf), choose=lambda messages, names: names[0], until=MaxMessages(2))


def _two(leaf: Leaf) -> dict[str, Runnable[Any]]:
    return {name: leaf(name) for name in "ab"}


class Relay(Flow, name="flow"):
    """Two steps, one after the other."""

    def __init__(self, first: Runnable[Any], second: Runnable[Any]) -> None:
        self.first = first
        self.second = second

    @start()
    async def begin(self, ctx: RunContext, value: Any) -> Any:
        return (await ctx.start(self.first, value)).output

    @listen(begin)
    async def go_on(self, ctx: RunContext, value: Any) -> Any:
        return (await ctx.start(self.second, str(value))).output


COMPOSITIONS = [
    Kind("sequential", lambda leaf: Sequential(leaf("a"), leaf("b")), at_once=1, in_all=2, goes_on=True),
    Kind("loop", lambda leaf: Loop(leaf("a"), max_iterations=2), at_once=1, in_all=2, goes_on=True),
    Kind("parallel", lambda leaf: Parallel(leaf("a"), leaf("b")), at_once=2, in_all=2, goes_on=False),
    Kind("race", lambda leaf: Race(leaf("a"), leaf("b")), at_once=2, in_all=2, goes_on=False),
]
KINDS = [
    *COMPOSITIONS,
    Kind("agent", _agent, at_once=1, in_all=1, goes_on=True),
    Kind("flow", lambda leaf: Relay(leaf("a"), leaf("b")), at_once=1, in_all=2, goes_on=True),
    Kind("function", _function, at_once=1, in_all=1, goes_on=False),
    Kind("crew", _crew, at_once=1, in_all=2, goes_on=True),
    Kind("round_robin", lambda leaf: RoundRobin(_two(leaf), until=MaxMessages(2)), at_once=1, in_all=2, goes_on=True),
    Kind("selector", _selector, at_once=1, in_all=2, goes_on=True),
    Kind("swarm", lambda leaf: Swarm(_two(leaf)), at_once=1, in_all=1, goes_on=False),
    Kind("graph", lambda leaf: Graph(_two(leaf), [("a", "b")]), at_once=1, in_all=2, goes_on=True),
]


def nested(outer: Kind, inner: Kind) -> Kind:
    """`outer`, made of `inner`s."""
    return Kind(
        f"{outer}/{inner}",
        lambda leaf: outer.make(lambda above: inner.make(lambda below: leaf(f"{above}.{below}"))),
        at_once=outer.at_once * inner.at_once,
        in_all=outer.in_all * inner.in_all,
        goes_on=outer.goes_on or inner.goes_on,
    )


PAIRS = [nested(outer, inner) for outer, inner in product(KINDS, KINDS)]
NESTED_COMPOSITIONS = [nested(outer, inner) for outer, inner in product(COMPOSITIONS, COMPOSITIONS)]
TRIPLE_COMPOSITIONS = [nested(outer, inner) for outer, inner in product(COMPOSITIONS, NESTED_COMPOSITIONS)]
# Each kind at the top, in the middle and at the bottom, where all triples would take too long.
SOME_TRIPLES = [
    nested(KINDS[at], nested(KINDS[(at + 1) % len(KINDS)], KINDS[(at + 3) % len(KINDS)])) for at in range(len(KINDS))
]


def each(kinds: list[Kind]) -> pytest.MarkDecorator:
    """A test for each of `kinds`."""
    return pytest.mark.parametrize("kind", kinds, ids=repr)
