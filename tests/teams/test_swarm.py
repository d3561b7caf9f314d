"""Whoever has the conversation hands it over, or ends it by answering."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from halter import Agent, events, runnable, tool
from halter.errors import ConfigurationError
from halter.hooks import Hooks
from halter.messages import Message, ToolCall
from halter.models.scripted import Scripted, calls
from halter.teams import Swarm
from halter.terminations import HandoffTo, MaxMessages

from .parts import Notes, agent, log_of, now, said

virtual = pytest.mark.virtual_time


def to(name: str) -> ToolCall:
    return calls(f"transfer_to_{name}")


@virtual
async def test_a_handoff_gives_the_floor_and_an_answer_ends_the_work() -> None:
    """Each turn is a run of its own; the handoff is an event, and the next one hears of it."""
    ben = Notes("Hello, I am Ben.")
    team = Swarm([agent("ann", ("One moment.", to("ben"))), Agent(ben, name="ben")])
    run = team.run("hi")
    result = await run
    assert (result.text, result.state.turns, result.state.floor) == ("Hello, I am Ben.", ("ann", "ben"), "ben")
    assert result.state.stop_reason == "ben has answered"
    assert ben.told == [[("user", "hi"), ("user", "ann: One moment.\n[hands over to ben]")]]
    handoffs = [event for event in await log_of(run) if isinstance(event, events.Handoff)]
    assert [(event.from_agent, event.to_agent) for event in handoffs] == [("ann", "ben")]


@virtual
async def test_handing_over_ends_the_turn_without_another_request() -> None:
    """The call and its result are in the member's own view, whole."""
    team = Swarm([agent("ann", to("ben"), "It is mine again."), agent("ben", to("ann"), "never")])
    result = await team.run("hi")
    assert result.state.turns == ("ann", "ben", "ann")
    assert [message.role for message in result.messages] == ["user", *["assistant", "tool"] * 2, "assistant"]
    assert result.text == "It is mine again."


@virtual
async def test_the_tool_tells_what_the_other_is_for() -> None:
    team = Swarm([agent("ann", "x"), agent("ben b", "y", description="Knows bees.")])
    ann = team.members["ann"]
    assert isinstance(ann, Agent)
    (spec,) = ann.toolbox.specs
    assert spec.name == "transfer_to_ben_b"
    assert "Knows bees." in spec.description


@virtual
async def test_who_may_hand_over_to_whom_can_be_said() -> None:
    """And who begins."""
    team = Swarm([agent(name, "x") for name in "abc"], start="b", handoffs={"a": ["b"], "b": ["a", "c"]})
    offered = {name: [*member.toolbox.exits.values()] for name, member in team.members.items()}  # pyright: ignore
    assert offered == {"a": ["b"], "b": ["a", "c"], "c": []}
    assert (await team.run("hi")).state.turns == ("b",)


@virtual
async def test_of_two_handoffs_in_one_answer_the_first_counts() -> None:
    team = Swarm([agent("a", (to("b"), to("c"))), agent("b", "I am b."), agent("c", "I am c.")])
    result = await team.run("hi")
    assert (result.text, result.state.handoffs) == ("I am b.", ("b",))


@virtual
async def test_other_tools_of_the_answer_run_before_it_is_handed_over() -> None:
    done: list[str] = []

    @tool
    async def note(text: str) -> str:
        await asyncio.sleep(2)
        done.append(text)
        return "noted"

    front = agent("front", (calls("note", text="hi"), to("ben")), tools=[note])
    assert (await Swarm([front, agent("ben", "Yes?")]).run("hi")).text == "Yes?"
    assert done == ["hi"]


@virtual
async def test_handing_over_to_somebody_outside_ends_the_work() -> None:
    """A human, for instance; with their answer the one who asked goes on."""
    model = Scripted(("What is your name?", to("user")), "Hello, Zoe.")
    team = Swarm([agent("front", to("desk")), Agent(model, name="desk")], outside=["user"])
    first = await team.run("hi")
    assert (first.text, first.state.floor) == ("What is your name?", "user")
    assert first.state.stop_reason == "handed over to user"
    second = await team.run("Zoe.", state=first.state)
    assert (second.text, second.state.turns) == ("Hello, Zoe.", ("desk",))


@virtual
async def test_a_termination_may_end_it_earlier() -> None:
    """`HandoffTo` names a member too; loops end by default after a hundred turns."""
    loop = [agent("a", to("b"), pace=0), agent("b", to("a"), pace=0)]
    assert (await Swarm(loop, until=HandoffTo("b")).run("hi")).state.turns == ("a",)
    assert (await Swarm(loop, until=MaxMessages(7)).run("hi")).state.stop_reason == "7 messages"
    assert len((await Swarm(loop).run("hi")).state.turns) == 100


@virtual
async def test_whoever_cannot_hand_over_may_be_handed_to() -> None:
    @runnable(name="clock")
    async def clock(ctx: Any, input: Any) -> str:
        return f"It is {now():g}."

    assert (await Swarm([agent("front", ("Wait.", to("clock"))), clock]).run("What time is it?")).text == "It is 2."


def test_a_name_that_a_tool_has_already_is_refused() -> None:
    @tool
    async def transfer_to_ben() -> str:
        return "no"

    with pytest.raises(ConfigurationError, match="two tools are called 'transfer_to_ben'"):
        Swarm([agent("ann", "x", tools=[transfer_to_ben]), agent("ben", "y")])


@virtual
async def test_an_agent_of_a_swarm_is_as_it_was_elsewhere() -> None:
    """The swarm has copies with more tools."""
    ann, ben = agent("ann", "x"), agent("ben", "y")
    Swarm([ann, ben])
    assert ann.toolbox.specs == ()


@virtual
async def test_a_handoff_within_a_members_own_run_stays_there() -> None:
    """An agent's `handoffs` are its own business: the turn is still the member's."""
    helper = agent("helper", "never", "Helped.")
    team = Swarm([Agent(Scripted(to("helper")), name="ann", handoffs=[helper]), agent("ben", "y")])
    result = await team.run("hi")
    assert said(message for message in result.messages if message.text and message.role == "assistant") == [
        ("ann", "Helped.")
    ]
    assert result.state.turns == ("ann",)


@virtual
async def test_a_refused_handoff_is_none() -> None:
    """The model is told, and goes on."""

    class Refuses(Hooks):
        def before_tool(self, ctx: Any, call: Any) -> str:
            return "Not now."

    ann = Agent(Scripted(to("ben"), "Then I answer."), name="ann", hooks=Refuses())
    result = await Swarm([ann, agent("ben", "never")]).run("hi")
    assert (result.text, result.state.turns) == ("Then I answer.", ("ann",))
    assert isinstance(result.messages[-1], Message)


@virtual
async def test_a_handoff_that_went_through_before_a_stop_is_kept() -> None:
    """Beside it a payment was under way, which must finish: nothing of that answer is left to do."""

    @tool(cancel="must_finish")
    async def pay() -> str:
        await asyncio.sleep(2)
        return "paid"

    both = ("One moment.", calls("pay"), to("ben"))
    team = Swarm([agent("ann", both, "I have paid.", tools=[pay]), agent("ben", "Hello.")])
    run = team.run("hi").start()
    await asyncio.sleep(4.5)
    run.cancel()
    stopped = await run.finished()
    assert stopped.is_cancelled
    assert (stopped.state.turns, stopped.state.floor, stopped.state.cut) == (("ann",), "ben", {})
    result = await team.run(state=stopped.state)
    assert (result.text, result.state.turns) == ("Hello.", ("ann", "ben"))


def test_one_name_may_be_given_as_it_is() -> None:
    swarm = Swarm([agent("ann", "one"), agent("ben", "two")], handoffs={"ann": "user"}, outside="user")
    assert (swarm.outside, swarm.handoffs) == (("user",), {"ann": ("user",)})
