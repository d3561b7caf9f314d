"""Edges, conditions, branches side by side, joins and loops."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from halter import CancelReason, events, runnable
from halter.core.runnable import Runnable
from halter.errors import ConfigurationError
from halter.teams import Edge, Graph, Turn
from halter.terminations import MaxMessages, TextMention

from .parts import agent, log_of, now, said

virtual = pytest.mark.virtual_time


def each(names: str, seconds: dict[str, int] | None = None) -> list[Runnable[Any]]:
    """Agents that say their own name so many times, once if nothing is said, each taking a second."""
    return [agent(name, f"{name} " * (seconds or {}).get(name, 1)) for name in names]


@virtual
async def test_edges_lead_from_one_to_the_next() -> None:
    result = await Graph(each("abc"), [("a", "b"), ("b", "c")]).run("go")
    assert (result.state.turns, result.text) == (("a", "b", "c"), "c ")
    assert result.state.stop_reason == "everybody is through"
    assert result.state.arrived == {}


@virtual
async def test_branches_run_side_by_side_and_meet_again() -> None:
    """The join waits for both, hears both, and is alone when it speaks."""
    graph = Graph(each("abcd", {"b": 5, "c": 2}), [("a", "b"), ("a", "c"), ("b", "d"), ("c", "d")])
    run = graph.run("go")
    result = await run
    assert now() == 1 + 5 + 1
    assert result.state.turns == ("a", "c", "b", "d")
    assert result.text == "d "
    starts = {event.name: event.at for event in await log_of(run) if isinstance(event, events.Started)}
    assert set(starts) == {"graph", "a", "b", "c", "d"}


@virtual
async def test_any_begins_with_the_first_and_again_with_the_next() -> None:
    graph = Graph(each("abcd", {"b": 5, "c": 2}), [("a", "b"), ("a", "c"), ("b", "d"), ("c", "d")], joins={"d": "any"})
    result = await graph.run("go")
    assert result.state.turns == ("a", "c", "d", "b", "d")


@virtual
async def test_a_branch_that_was_not_taken_is_not_waited_for() -> None:
    """A join waits only while somebody under way could still lead to it."""
    edges = [("a", "b", "B"), ("a", "c", "a"), ("b", "d"), ("c", "d")]
    assert (await Graph(each("abcd"), edges).run("go")).state.turns == ("a", "c", "d")
    # A long way round is waited for.
    edges = [("a", "b"), ("b", "c"), ("a", "d"), ("c", "d")]
    assert (await Graph(each("abcd"), edges).run("go")).state.turns == ("a", "b", "c", "d")


@virtual
async def test_conditions_are_texts_and_functions_of_a_turn() -> None:
    """Where none holds, the graph is through."""
    turns: list[Turn] = []

    @runnable(name="judge")
    async def judge(ctx: Any, input: Any) -> int:
        return len(input)

    def is_long(turn: Turn) -> bool:
        turns.append(turn)
        return turn.output > 3

    graph = Graph([judge, *each("ab")], [Edge("judge", "a", is_long), Edge("judge", "b", "2")])
    assert (await graph.run("long")).state.turns == ("judge", "a")
    assert (await graph.run("go")).state.turns == ("judge", "b")
    assert (await graph.run("x")).state.turns == ("judge",)
    assert [(turn.speaker, turn.text, turn.output) for turn in turns] == [
        ("judge", "4", 4), ("judge", "2", 2), ("judge", "1", 1),
    ]  # fmt: skip


@virtual
async def test_a_loop_goes_round_until_its_condition_fails() -> None:
    writer, critic = agent("writer", "one", "two", "three"), agent("critic", "REVISE it", "REVISE again", "fine")
    graph = Graph([writer, critic, *each("z")], [("writer", "critic"), ("critic", "writer", "REVISE"),
                                                 ("critic", "z", lambda turn: "REVISE" not in turn.text)],
                  start="writer")  # fmt: skip
    result = await graph.run("go")
    assert result.state.turns == ("writer", "critic") * 3 + ("z",)


@virtual
async def test_a_termination_bounds_a_loop() -> None:
    graph = Graph(each("ab"), [("a", "b"), ("b", "a")], start="a", until=MaxMessages(5))
    assert (await graph.run("go")).state.turns == ("a", "b", "a", "b", "a")


@virtual
async def test_two_that_wait_for_each_other_do_not_wait_for_ever() -> None:
    """Both are led to, and each leads to the other."""
    graph = Graph(each("abc"), [("a", "b"), ("a", "c"), ("b", "c"), ("c", "b")], start="a", until=MaxMessages(4))
    assert (await graph.run("go")).state.turns == ("a", "b", "c", "b")


@virtual
async def test_several_may_begin() -> None:
    """By default all to whom no edge leads; they do not hear each other."""
    run = Graph(each("abc", {"b": 3}), [("a", "c"), ("b", "c")]).run("go")
    result = await run
    assert result.state.turns == ("a", "b", "c")
    inputs = {event.name: event.input for event in await log_of(run) if isinstance(event, events.Started)}
    assert [message.text for message in inputs["b"]] == ["go"]
    assert [message.text for message in inputs["c"]] == ["go", "a: a", "b: b b b"]


@virtual
async def test_of_those_side_by_side_one_has_the_voice() -> None:
    """The text does not mix two answers, and what was streamed is what the result says."""
    run = Graph(each("abc", {"b": 3, "c": 5}), [("a", "b"), ("a", "c")]).run("go")
    texts = [text async for text in run.text_stream()]
    result = await run
    assert "".join(texts) == "a b b b "
    assert (result.text, result.output) == ("b b b ", "b b b ")
    assert said(result.messages) == [(None, "go"), ("a", "a "), ("b", "b b b "), ("c", "c c c c c ")]


@virtual
async def test_one_branch_that_fails_stops_the_other() -> None:
    """`sibling_failed`; the first error is the graph's; what the other had said is kept."""

    @runnable(name="bad")
    async def bad(ctx: Any, input: Any) -> None:
        await asyncio.sleep(2.5)
        raise ZeroDivisionError

    run = Graph([bad, agent("ann", "one two three four")], []).run("go")
    result = await run.finished()
    assert isinstance(result.error, ZeroDivisionError)
    assert now() == 2.5
    assert said(result.messages) == [(None, "go"), ("ann", "one two ")]
    ends = [event.reason for event in await log_of(run) if isinstance(event, events.Cancelled)]
    assert ends == [CancelReason.SIBLING_FAILED]


@virtual
async def test_a_word_in_one_branch_ends_all_of_it() -> None:
    graph = Graph([agent("ann", "one two STOP more"), agent("ben", "1 2 3 4 5")], [], until=TextMention("STOP"))
    result = await graph.run("go")
    assert now() == 3
    assert said(result.messages) == [(None, "go"), ("ann", "one two STOP "), ("ben", "1 2 3 ")]
    assert result.text == "one two STOP "


@virtual
async def test_stopped_in_a_branch_it_goes_on_with_that_branch_alone() -> None:
    """What had ended is not repeated; the join still knows whom it has heard."""
    graph = Graph(each("abcd", {"b": 5, "c": 2}), [("a", "b"), ("a", "c"), ("b", "d"), ("c", "d")])
    run = graph.run("go").start()
    await asyncio.sleep(4.5)  # c has ended, b is speaking
    run.cancel()
    stopped = (await run.finished()).state
    assert (stopped.turns, list(stopped.cut), stopped.arrived) == (("a", "c"), ["b"], {"d": ("c",)})
    result = await graph.run(state=stopped)
    assert result.state.turns == ("a", "c", "b", "d")
    assert result.state.stop_reason == "everybody is through"


WRONG: dict[str, Any] = {
    "a stranger": lambda: Graph(each("ab"), [("a", "z")]),
    "a stranger begins": lambda: Graph(each("ab"), [("a", "b")], start="z"),
    "a stranger joins": lambda: Graph(each("ab"), [("a", "b")], joins={"z": "any"}),
    "no such join": lambda: Graph(each("ab"), [("a", "b")], joins={"b": "some"}),  # pyright: ignore
    "nothing leads there": lambda: Graph(each("abc"), [("a", "b")], start="a"),
    "nobody begins": lambda: Graph(each("ab"), [("a", "b", "x"), ("b", "a", "x")]),
    "no end": lambda: Graph(each("ab"), [("a", "b"), ("b", "a")], start="a"),
    "no end alone": lambda: Graph(each("a"), [("a", "a")], start="a"),
    "no edge": lambda: Graph(each("ab"), [3]),  # pyright: ignore
    "no names": lambda: Graph(each("ab"), [(1, 2)]),
    "no condition": lambda: Graph(each("ab"), [("a", "b", 3)]),
}


@pytest.mark.parametrize("what", WRONG)
def test_a_graph_that_cannot_work_is_refused_where_it_is_made(what: str) -> None:
    with pytest.raises(ConfigurationError):
        WRONG[what]()


def test_it_shows_its_edges() -> None:
    assert repr(Graph(each("ab"), [("a", "b")])) == "Graph([a → b], name='graph')"


@virtual
async def test_a_condition_that_raises_loses_nothing_that_was_said() -> None:
    """The turn was whole, and who is next is not known: its member goes on, behind its own words."""
    failures = [LookupError("no such page")]

    def once(turn: Turn) -> bool:
        if failures:
            raise failures.pop()
        return True

    team = Graph(each("ab"), [Edge("a", "b", when=once)])
    failed = await team.run("go").finished()
    assert isinstance(failed.error, LookupError)
    assert [message.name for message in failed.state.messages] == [None, "a"]
    result = await team.run(state=failed.state)
    assert (result.state.turns, [message.name for message in result.messages]) == (("a", "b"), [None, "a", "a", "b"])


def test_a_condition_that_has_to_be_awaited_is_refused() -> None:
    async def later(turn: Turn) -> bool:
        return True

    with pytest.raises(ConfigurationError, match="plain function"):
        Edge("a", "b", when=later)
