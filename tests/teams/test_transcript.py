"""One conversation, as each member hears it: its own words as the assistant's, the others' as the user's, by name."""

from __future__ import annotations

from typing import Any

import pytest

from halter import Agent, Message, runnable, tool
from halter.errors import ConfigurationError
from halter.messages import Text
from halter.models.scripted import Scripted, calls
from halter.teams import RoundRobin
from halter.teams.transcript import CUT_OFF, YOUR_TURN, heard_by, split
from halter.terminations import MaxMessages

from .parts import Notes, agent, said

virtual = pytest.mark.virtual_time
pytestmark = pytest.mark.scenario("D40")


@virtual
async def test_each_member_hears_the_others_as_users_and_itself_as_the_assistant() -> None:
    """Roles alternate in a way that every provider takes; each turn adds only what is new."""
    ann, ben = Notes("one", "three"), Notes("two", "four")
    team = RoundRobin([Agent(ann, name="ann"), Agent(ben, name="ben")], until=MaxMessages(4))
    result = await team.run("Count.")
    assert ann.told == [
        [("user", "Count.")],
        [("user", "Count."), ("assistant", "one"), ("user", "ben: two")],
    ]
    assert ben.told == [
        [("user", "Count."), ("user", "ann: one")],
        [("user", "Count."), ("user", "ann: one"), ("assistant", "two"), ("user", "ann: three")],
    ]
    assert said(result.messages) == [
        (None, "Count."), ("ann", "one"), ("ben", "two"), ("ann", "three"), ("ben", "four"),
    ]  # fmt: skip


@virtual
async def test_a_member_keeps_its_own_tool_calls_and_the_others_do_not_hear_them() -> None:
    """A call and its result stay together, in the view of the one who made it."""

    @tool
    async def look(where: str) -> str:
        return f"nothing in {where}"

    finder = Agent(Scripted((calls("look", where="Ulm")), "Nothing.", "Still nothing."), name="finder", tools=[look])
    ben = Notes("Look again.")
    team = RoundRobin([finder, Agent(ben, name="ben")], until=MaxMessages(3))
    result = await team.run("Find it.")
    assert ben.told == [[("user", "Find it."), ("user", "finder: Nothing.")]]
    assert [message.role for message in heard_by("finder", result.messages, team.members)] == [
        "user", "assistant", "tool", "assistant", "user", "assistant",
    ]  # fmt: skip
    assert {message.name for message in result.messages if message.role == "tool"} == {"finder"}


@virtual
async def test_what_runs_and_is_no_agent_is_given_the_text_of_what_is_new() -> None:
    """It answers in text; any other value is told as JSON."""
    given: list[str] = []

    @runnable(name="counts")
    async def counts(ctx: Any, input: Any) -> Any:
        given.append(input)
        return {"letters": len(input)}

    team = RoundRobin([agent("ann", "one", "two"), counts], until=MaxMessages(4))
    result = await team.run("Count.")
    assert given == ["Count.\n\nann: one", "ann: two"]
    assert said(result.messages)[2] == ("counts", '{"letters":16}')
    assert result.output == {"letters": 8}


@virtual
async def test_a_team_in_a_team_goes_on_with_its_own_conversation() -> None:
    """Its members hear what it was told, and what they have said among themselves."""
    inner_model = Notes("draft", "better draft")
    inner = RoundRobin([Agent(inner_model, name="writer")], until=MaxMessages(1), name="desk")
    team = RoundRobin([inner, agent("editor", "again")], until=MaxMessages(3))
    result = await team.run("Write.")
    assert inner_model.told[1] == [("user", "Write."), ("assistant", "draft"), ("user", "editor: again")]
    assert said(result.messages) == [(None, "Write."), ("desk", "draft"), ("editor", "again"), ("desk", "better draft")]
    assert said(result.state.members["desk"].messages) == [
        (None, "Write."), ("writer", "draft"), (None, "editor: again"), ("writer", "better draft"),
    ]  # fmt: skip


@virtual
async def test_one_alone_is_told_that_it_is_its_turn_again() -> None:
    """A request never ends with the assistant's own words."""
    model = Notes("one", "two")
    await RoundRobin([Agent(model, name="ann")], until=MaxMessages(2)).run("Count.")
    assert model.told[1] == [("user", "Count."), ("assistant", "one"), ("user", YOUR_TURN)]


@virtual
async def test_what_one_was_told_then_it_is_told_again() -> None:
    """Each request begins with the one before it: a provider's prompt cache stays valid."""
    model = Notes("one", "two", "three")
    await RoundRobin([Agent(model, name="ann")], until=MaxMessages(3)).run("Count.")
    for before, then in zip(model.told, model.told[1:], strict=False):
        assert then[: len(before)] == before


def test_what_was_cut_off_is_heard_as_such() -> None:
    messages = [Message.user("hi"), Message("assistant", (Text("half a "),), name="ann", interrupted=True)]
    assert [message.text for message in heard_by("ben", messages, {"ann", "ben"})] == ["hi", f"ann: half a\n{CUT_OFF}"]


def test_answers_without_a_name_are_somebody_elses() -> None:
    """As in the history of a single agent; a user's name stays."""
    messages = [Message.user("hi", name="zoe"), Message.assistant("hello")]
    heard = heard_by("ann", messages, {"ann"})
    assert [(message.role, message.name, message.text) for message in heard] == [
        ("user", "zoe", "hi"), ("user", None, "assistant: hello"),
    ]  # fmt: skip
    assert split(heard) == ([], heard)


@virtual
async def test_the_history_before_the_input_is_heard_too() -> None:
    model = Notes("three")
    history = [Message.user("one"), Message.assistant("two")]
    await RoundRobin([Agent(model, name="ann")], until=MaxMessages(1)).run("go on", history=history)
    assert model.told == [[("user", "one"), ("user", "assistant: two"), ("user", "go on")]]


def test_nobody_outside_may_have_a_members_name() -> None:
    with pytest.raises(ConfigurationError, match="the name of a member, 'ann'"):
        RoundRobin([agent("ann", "one")], until=MaxMessages(1)).run(Message.user("hi", name="ann"))


@virtual
async def test_what_is_sent_while_it_runs_is_heard_by_the_next() -> None:
    """`run.send`: between two turns."""
    ben = Notes("two")
    run = RoundRobin([agent("ann", "one"), Agent(ben, name="ben")], until=MaxMessages(2)).run("Count.").start()
    assert run.send("In Latin.")
    result = await run
    assert ("user", "In Latin.") in ben.told[0]
    assert said(result.messages) == [(None, "Count."), (None, "In Latin."), ("ann", "one"), ("ben", "two")]
