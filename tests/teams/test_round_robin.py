"""Everybody in turn; and what holds for every team: what it is made of, what comes out, how members fail."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Any

import msgspec
import pytest

from halter import Agent, CancelReason, RunFailed, RunStatus, events, runnable
from halter.errors import ConfigurationError, RunCancelled
from halter.models.scripted import Scripted
from halter.teams import RoundRobin, Selector, Swarm, TeamState
from halter.terminations import MaxMessages
from halter.tools import as_tool

from .parts import Notes, agent, log_of, said

virtual = pytest.mark.virtual_time


def pair(most: int = 3) -> RoundRobin:
    return RoundRobin([agent("ann", "one", "three"), agent("ben", "two", "four")], until=MaxMessages(most))


@virtual
async def test_members_speak_in_turn_until_the_end() -> None:
    """Each turn is a step, and a run of the member's; the last one's text is the team's."""
    run = pair().run("Count.")
    texts = [text async for text in run.text_stream()]
    result = await run
    assert texts == ["one", "two", "three"]
    assert (result.text, result.output) == ("three", "three")
    assert result.state.turns == ("ann", "ben", "ann")
    assert result.state.stop_reason == "3 messages"
    log = await log_of(run)
    steps = [event.step for event in log if isinstance(event, events.StepStarted) and event.run_id == run.id]
    assert steps == [1, 2, 3]
    (ended,) = [event for event in log if isinstance(event, events.Custom)]
    assert (ended.name, ended.data) == ("team.ended", {"reason": "3 messages", "turns": 3})


@virtual
async def test_text_is_the_members_who_speaks() -> None:
    run = pair().run("Count.").start()
    heard = []
    async for event in run.events():
        if isinstance(event, events.TextDelta):
            heard.append((event.agent, run.text))
    assert heard == [("ann", "one"), ("ben", "two"), ("ann", "three")]


@virtual
async def test_usage_is_that_of_all_turns() -> None:
    result = await pair().run("Count.")
    assert result.usage.output == 3
    assert result.state.usage == result.usage


@virtual
async def test_the_output_is_the_last_members_value() -> None:
    @dataclass
    class Verdict:
        good: bool

    judge = Agent(Scripted('{"good": true}'), name="judge", output=Verdict)
    result = await RoundRobin([agent("ann", "one"), judge], until=MaxMessages(2)).run("go")
    assert result.output == Verdict(True)
    assert result.text == '{"good": true}'


@virtual
async def test_a_team_is_a_tool_and_a_part_like_any_other() -> None:
    """Its text is the tool's result."""
    caller = Agent(Notes("no tools"), name="caller", tools=[as_tool(pair(), name="team")])
    assert [spec.name for spec in caller.toolbox.specs] == ["team"]
    assert (await pair().run("Count.")).output == "three"


@pytest.mark.scenario("D39")
@virtual
async def test_another_run_is_a_fresh_one() -> None:
    """Without a state it knows nothing of the one before."""
    team = pair()
    first, second = await team.run("Count."), await team.run("Count.")
    assert said(first.messages) == said(second.messages)


# --- going on -----------------------------------------------------------------------------------------------


@virtual
async def test_with_its_state_and_an_input_the_conversation_goes_on() -> None:
    """New work: its turns count anew; the next in turn begins."""
    team = pair()
    first = await team.run("Count.")
    second = await team.run("Go on.", state=first.state)
    assert second.state.turns == ("ben", "ann", "ben")
    assert second.messages[: len(first.messages)] == first.messages
    assert second.messages[len(first.messages)].text == "Go on."


@virtual
async def test_the_state_is_data_that_can_be_stored() -> None:
    """Through JSON and back, with the states of teams within."""
    team = RoundRobin([pair(2), agent("zoe", "fine")], until=MaxMessages(2))
    first = await team.run("Count.")
    stored = msgspec.json.encode(first.state)
    assert msgspec.json.decode(stored, type=TeamState).messages == first.messages
    second = await team.run("Go on.", state=msgspec.json.decode(stored))
    assert second.state.members["round_robin"].turns == ("ann", "ben")
    assert len(second.state.members["round_robin"].messages) == 6


@virtual
async def test_where_the_work_is_done_nothing_is_left_to_do() -> None:
    """Who goes on until it is done need not look first."""
    team = pair()
    first = await team.run("Count.")
    second = await team.run(state=first.state)
    assert (second.output, second.state, second.usage.total) == (first.output, first.state, 0)


@pytest.mark.parametrize("how", ["no state", "another team's", "not a state", "history as well"])
def test_what_it_cannot_go_on_from_is_refused_before_anything_runs(how: str) -> None:
    team = pair()
    options: dict[str, Any] = {
        "no state": {},
        "another team's": {"state": TeamState(last="zoe")},
        "not a state": {"state": {"messages": 3}},
        "history as well": {"state": TeamState(), "input": "go", "history": "before"},
    }[how]
    with pytest.raises(ConfigurationError):
        team.run(options.pop("input", None), **options)


# --- members that fail --------------------------------------------------------------------------------------


@virtual
async def test_a_member_that_fails_fails_the_team_with_its_own_error() -> None:
    """What it had said is kept, and marked; the state is whole."""

    @runnable(name="ben")
    async def breaks(ctx: Any, input: Any) -> None:
        ctx.text("half a ")
        raise ZeroDivisionError("of ben")

    run = RoundRobin([agent("ann", "one"), breaks, agent("zoe", "never")], until=MaxMessages(9)).run("Count.")
    with pytest.raises(RunFailed) as caught:
        await run
    assert isinstance(caught.value.__cause__, ZeroDivisionError)
    result = await run.finished()
    assert said(result.messages) == [(None, "Count."), ("ann", "one"), ("ben", "half a ")]
    assert result.messages[-1].interrupted
    assert (result.state.turns, list(result.state.cut)) == (("ann",), ["ben"])


@pytest.mark.scenario("C35")
@virtual
async def test_a_member_that_is_stopped_alone_fails_the_team_and_says_so() -> None:
    """Nobody has asked the team to stop; nobody else speaks after it."""
    handles = []

    @runnable(name="ben")
    async def waits(ctx: Any, input: Any) -> None:
        handles.append(ctx.run)
        await asyncio.sleep(100)

    run = RoundRobin([waits, agent("ann", "never")], until=MaxMessages(9)).run("Count.").start()
    await asyncio.sleep(1)
    handles[0].cancel("only ben")
    result = await run.finished()
    assert result.status is RunStatus.FAILED
    assert isinstance(result.error, RunCancelled)
    assert "only ben" in str(result.error)
    assert result.error.cancellation is not None
    assert result.error.cancellation.reason is CancelReason.USER_STOP
    assert len([event for event in await log_of(run) if isinstance(event, events.Started)]) == 2


# --- what it is made of -------------------------------------------------------------------------------------

WRONG: dict[str, Any] = {
    "nobody": lambda: RoundRobin([], until=MaxMessages(1)),
    "two of one name": lambda: RoundRobin([agent("ann", "x"), agent("ann", "y")], until=MaxMessages(1)),
    "not a runnable": lambda: RoundRobin(["ann"], until=MaxMessages(1)),  # pyright: ignore
    "not a list": lambda: RoundRobin("ann", until=MaxMessages(1)),  # pyright: ignore
    "no name": lambda: RoundRobin({"": agent("ann", "x")}, until=MaxMessages(1)),
    "no end": lambda: RoundRobin([agent("ann", "x")]),
    "no termination": lambda: RoundRobin([agent("ann", "x")], until=3),  # pyright: ignore
    "a model, and no end": lambda: Selector([agent("ann", "x")], choose="scripted:ann"),
    "nobody to choose": lambda: Selector([agent("ann", "x")], choose=3),  # pyright: ignore
    "hands over to a stranger": lambda: Swarm([agent("ann", "x")], handoffs={"ann": ["zoe"]}),
    "begins with a stranger": lambda: Swarm([agent("ann", "x")], start="zoe"),
    "outside and inside": lambda: Swarm([agent("ann", "x")], outside=["ann"]),
    "a team that hands over": lambda: Swarm({"a": pair(), "b": agent("b", "x")}, handoffs={"a": ["b"]}),
}


@pytest.mark.parametrize("what", WRONG)
def test_a_team_that_cannot_work_is_refused_where_it_is_made(what: str) -> None:
    with pytest.raises(ConfigurationError):
        WRONG[what]()


def test_two_of_one_name_may_be_given_others() -> None:
    team = RoundRobin({"first": agent("ann", "x"), "second": agent("ann", "y")}, until=MaxMessages(1), name="twins")
    assert repr(team) == "RoundRobin([first, second], name='twins')"


@pytest.mark.scenario("E57")
@virtual
async def test_running_changes_nothing_of_the_definition() -> None:
    team = Swarm([agent("ann", "one"), agent("ben", "two")])
    before = {name: (id(member), vars(member).copy()) for name, member in team.members.items()}
    whole = vars(team).copy()
    await team.run("go")
    assert vars(team) == whole
    assert {name: (id(member), vars(member)) for name, member in team.members.items()} == before
