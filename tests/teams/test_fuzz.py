"""Teams of all kinds, stopped at any moment in any way, and gone on with: nothing is lost or repeated."""

from __future__ import annotations

import asyncio
import random
from itertools import pairwise
from typing import Any

import msgspec
import pytest

from halter import Agent, CancelMode, tool
from halter.core.history import for_model
from halter.messages import Message
from halter.models.scripted import Scripted, calls
from halter.teams import Graph, RoundRobin, Selector, Swarm, Team
from halter.teams.transcript import heard_by
from halter.terminations import MaxMessages, TextMention, TokenUsage
from halter.testing import run

from .parts import spoken

WHOLE = "one two three"


@tool
async def look() -> str:
    await asyncio.sleep(0.7)
    return "seen"


@tool(cancel="must_finish")
async def pay() -> str:
    await asyncio.sleep(0.4)
    return "paid"


class Talks:
    """Says three words; at random, it calls a tool first."""

    name = "talks"

    def __init__(self, chance: random.Random) -> None:
        self._chance = chance

    async def respond(self, request: Any, ctx: Any) -> Message:
        check_valid(request.messages)
        called = request.messages[-1].role == "tool"
        script = () if called else self._chance.choice([(), (), (calls("look"),), (calls("pay"), calls("look"))])
        return await Scripted((*script, *(() if script else (WHOLE,))), pace=0.3).respond(request, ctx)


def check_valid(messages: tuple[Message, ...]) -> None:
    """What every provider takes: a user last, or a tool; each call with its result behind it, and once."""
    assert messages[-1].role in ("user", "tool"), messages
    for message, then in pairwise(messages):
        if message.tool_calls:
            assert [part.call_id for part in then.parts] == [call.id for call in message.tool_calls]  # pyright: ignore
        assert (then.role == "tool") == bool(message.tool_calls)
        assert not (message.role == then.role == "assistant")


def team_by(chance: random.Random) -> tuple[Team, int]:
    """One of any kind, and how many turns its work takes."""

    def member(name: str) -> Agent:
        return Agent(Talks(chance), name=name, tools=[look, pay])

    ends = MaxMessages(4) | TextMention("never") | TokenUsage(10**6) if chance.random() < 0.5 else MaxMessages(4)
    members = [member(name) for name in "abc"]
    match chance.randrange(5):
        case 0:
            return RoundRobin(members, until=ends), 4
        case 1:
            return Selector(members, choose=lambda messages, names: names[-1], until=ends), 4
        case 2:
            return Graph(members, [("a", "c"), ("b", "c")]), 3
        case 3:
            inner = RoundRobin([member("x"), member("y")], until=MaxMessages(2), name="desk")
            return RoundRobin([inner, member("b")], until=ends), 4
        case _:
            front = Agent(Scripted((calls("transfer_to_b"),), pace=0.3), name="a")
            return Swarm([front, member("b")]), 2


async def work(seed: int) -> None:
    chance = random.Random(seed)
    team, turns = team_by(chance)
    state: Any = None
    for _ in range(12):
        handle = team.run(None if state else "go", state=state, grace=2.0).start()
        if chance.random() < 0.85:
            mode = chance.choice([*CancelMode])
            asyncio.get_running_loop().call_later(chance.uniform(0, 4), lambda: handle.cancel(mode=mode))  # noqa: B023
        result = await handle.finished()
        assert result.error is None
        if result.receipt is not None:
            assert result.receipt.confirmed, str(result.receipt)
        check_kept(team, result, state)
        state = result.state and msgspec.json.decode(msgspec.json.encode(result.state), type=type(result.state))
        if result.is_completed:
            assert len(result.state.turns) == turns
            return
    result = await team.run(None if state else "go", state=state)
    assert len(result.state.turns) == turns


def check_kept(team: Team, result: Any, before: Any) -> None:
    """The state is the conversation; it begins with what there was; each member can be told it."""
    if result.state is None:
        return
    assert spoken(result.state.messages) == spoken(result.messages)
    if before is not None:
        assert msgspec.json.encode(result.messages[: len(before.messages)]) == msgspec.json.encode(before.messages)
        assert result.state.turns[: len(before.turns)] == before.turns
    for name in team.members:
        check_valid((*for_model(heard_by(name, result.messages, team.members)), Message.user("and?")))


@pytest.mark.scenario("D40", "D41")
@pytest.mark.parametrize("hundred", range(3))
def test_stopped_and_gone_on_with_it_does_all_of_its_work_once(hundred: int) -> None:
    for seed in range(100 * hundred, 100 * hundred + 100):
        try:
            run(lambda: work(seed), seed=seed)  # noqa: B023
        except BaseException as error:
            error.add_note(f"seed {seed}")
            raise
