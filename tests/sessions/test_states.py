"""What has a state goes on from its session: teams, crews, flows; and everything that runs may have one."""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec
import pytest

from halter import Agent, Message, Run, RunContext, runnable
from halter.compose import Loop, Parallel, Race, Sequential
from halter.core.history import for_model
from halter.core.runnable import Runnable
from halter.crews import Crew, Task
from halter.errors import ConfigurationError, RunFailed
from halter.flows import Flow, listen, start
from halter.models.scripted import Scripted
from halter.sessions import Sessions
from halter.teams import RoundRobin, Swarm
from halter.terminations import MaxMessages
from halter.testing import Sweep, cancel_sweep

from .places import memory_store as memory_store
from .places import open_store as open_store
from .talks import answered, asked, check_agrees, exported, state_of, stored, talker, until
from .talks import chats as chats

pytestmark = [pytest.mark.real_loop, pytest.mark.scenario("D39", "D40")]
BEFORE = (Message.user("before"), Message.assistant("Yes, before."))


def team(pace: float = 0.002, most: int = 4) -> RoundRobin:
    members = {name: Agent(Scripted(f"{name} says a few words", pace=pace), name=name) for name in ("ann", "bob")}
    return RoundRobin(members, until=MaxMessages(most))


async def stopped_after(run: Run[Any], turns: int) -> Run[Any]:
    """Stopped in the turn after so many whole ones."""
    run.start()
    await until(lambda: len(getattr(run._execution.state, "turns", ())) >= turns)
    await until(lambda: any(child.text for child in run._execution.children.values()))
    run.cancel()
    await run.finished()
    return run


# --- teams --------------------------------------------------------------------------------------------------


async def test_a_team_goes_on_from_its_session(chats: Sessions) -> None:
    """Whole turns stay, the one that was cut is taken on; at its completion nothing is left to go on from."""
    await chats.create("s", messages=BEFORE)
    first = await stopped_after(team().run("Talk.", session=chats.session("s")), 1)
    await check_agrees(chats, first)
    said = await stored(chats)
    assert said[:2] == BEFORE
    assert (await state_of(chats))["turns"] == ["ann"]
    second = team().run(session=chats.session("s"))
    result = await second
    await check_agrees(chats, second)
    now = await stored(chats)
    assert now[: len(said)] == said
    assert result.messages == now
    assert asked(now) == ["before", "Talk."]
    assert [message.name for message in now if message.role == "assistant" and not message.interrupted][1:] == [
        "ann",
        "bob",
        "ann",
        "bob",
    ]
    assert await state_of(chats) is None
    with pytest.raises(RunFailed, match="needs an input"):
        await team().run(session=chats.session("s"))
    assert await stored(chats) == now


async def test_a_team_with_an_input_begins_anew_behind_what_was_said(chats: Sessions) -> None:
    await stopped_after(team().run("Talk.", session=chats.session("s")), 1)
    before = await stored(chats)
    result = await team(most=2).run("Something else.", session=chats.session("s"))
    assert (await stored(chats))[: len(before)] == before
    assert result.state.turns == ("ann", "bob")
    assert asked(await stored(chats)) == ["Talk.", "Something else."]


@pytest.mark.virtual_time
async def test_what_was_stopped_before_other_work_began_is_not_gone_on_with() -> None:
    """The newest work counts, also where that has no state."""
    chats = Sessions()
    await stopped_after(team().run("Talk.", session=chats.session("s")), 1)
    await talker("yes").run("Leave that.", session=chats.session("s"))
    assert await state_of(chats) is None
    with pytest.raises(RunFailed, match="needs an input"):
        await team().run(session=chats.session("s"))


def test_a_team_that_goes_on_stopped_at_any_step() -> None:
    """Nothing of what it goes on from is ever lost: neither what was said nor where it was."""

    async def scenario(sweep: Sweep) -> None:
        chats = Sessions()
        await chats.create("s", messages=BEFORE)
        await stopped_after(team().run("Talk.", session=chats.session("s")), 1)
        before = await stored(chats)
        run = team().run(session=chats.session("s"))
        sweep.cancel = run.cancel
        await run.finished()
        now = await stored(chats)
        assert now[: len(before)] == before
        if await chats.run(run.id) is not None:
            await check_agrees(chats, run)
        if not run.is_completed:
            assert (await state_of(chats))["turns"][:1] == ["ann"]
            await team().run(session=chats.session("s"))
        assert await state_of(chats) is None
        assert asked(await stored(chats)) == ["before", "Talk."]

    assert cancel_sweep(scenario, settle=5) > 20


def test_a_rolled_back_team_that_goes_on_is_where_it_was() -> None:
    """Its state with it, which would tell of turns that were undone."""

    async def scenario(sweep: Sweep) -> None:
        chats = Sessions()
        await stopped_after(team().run("Talk.", session=chats.session("s")), 1)
        before = await exported(chats)
        run = team().run(session=chats.session("s"), keep="rollback")
        sweep.cancel = run.cancel
        await run.finished()
        if not run.is_completed:
            assert await exported(chats) == before
        if await chats.run(run.id) is not None:
            await check_agrees(chats, run)

    assert cancel_sweep(scenario, settle=5) > 20


@pytest.mark.virtual_time
async def test_a_rolled_back_team_without_a_session_is_where_it_was() -> None:
    first = await stopped_after(team().run("Talk."), 1)
    assert first.outcome is not None
    run = await stopped_after(team().run(state=first.outcome.state, keep="rollback"), 2)
    assert run.outcome is not None
    assert run.outcome.messages == first.outcome.state.messages
    assert run.outcome.state == first.outcome.state


# --- flows --------------------------------------------------------------------------------------------------


class Count(msgspec.Struct):
    steps: int = 0


class Counting(Flow[Count]):
    """Two steps; the second takes its time."""

    @start()
    async def begin(self) -> str:
        self.state.steps += 1
        return "begun"

    @listen(begin)
    async def go_on(self, ctx: RunContext, value: str) -> str:
        await asyncio.sleep(0.3)
        self.state.steps += 1
        return f"{value}, and went on"


async def test_a_flow_goes_on_from_its_session_and_begins_anew_after_that(chats: Sessions) -> None:
    flow = Counting()
    run = flow.run(session=chats.session("s")).start()
    await until(lambda: "begin" in getattr(run._execution.state, "done", ()))
    run.cancel()
    await run.finished()
    await check_agrees(chats, run)
    assert (await state_of(chats))["done"] == ["begin"]
    result = await flow.run(session=chats.session("s"))
    assert result.output == "begun, and went on"
    assert result.state.state.steps == 2
    assert result.state.done == ("begin", "go_on")
    assert await state_of(chats) is None
    assert (await flow.run(session=chats.session("s"))).state.state.steps == 2


@pytest.mark.virtual_time
async def test_a_state_is_stored_while_the_run_goes_on() -> None:
    chats = Sessions()
    run = Counting().run(session=chats.session("s")).start()
    await asyncio.sleep(0.1)
    assert (await state_of(chats))["done"] == ["begin"]
    assert (await state_of(chats))["state"] == {"steps": 1}
    await run
    assert await state_of(chats) is None


@pytest.mark.virtual_time
async def test_the_state_of_something_else_is_refused_and_stays() -> None:
    chats = Sessions()
    await stopped_after(team().run("Talk.", session=chats.session("s")), 1)
    before = await exported(chats)
    with pytest.raises(RunFailed) as caught:
        await Counting().run(session=chats.session("s"))
    assert isinstance(caught.value.__cause__, ConfigurationError)
    assert await exported(chats) == before


@pytest.mark.virtual_time
async def test_a_state_that_has_no_form_in_json_fails_the_run_and_frees_the_session() -> None:
    class Odd(Flow):
        @start()
        async def begin(self) -> None:
            self.state["what"] = object()

        @listen(begin)
        async def go_on(self) -> None:
            await asyncio.sleep(1)

    chats = Sessions()
    with pytest.raises(RunFailed, match="JSON"):
        await Odd().run(session=chats.session("s"))
    assert (await chats.get("s")).holder is None
    await talker("yes").run("Still here?", session=chats.session("s"))


# --- crews --------------------------------------------------------------------------------------------------


def crew(pace: float = 0.002) -> Crew:
    agents = {name: Agent(Scripted(f"{name} has done it", pace=pace), name=name) for name in ("ann", "bob")}
    return Crew([Task(description=f"Do {name}'s part.", agent=agent, name=name) for name, agent in agents.items()])


async def test_a_crew_goes_on_from_its_session(chats: Sessions) -> None:
    run = crew(0.02).run(session=chats.session("s")).start()
    await until(lambda: "ann" in getattr(run._execution.state, "outputs", {}))
    run.cancel()
    await run.finished()
    await check_agrees(chats, run)
    assert (await state_of(chats))["outputs"] == {"ann": "ann has done it"}
    result = await crew().run(session=chats.session("s"))
    assert result.output == "bob has done it"
    assert await state_of(chats) is None
    assert answered(await stored(chats)).count("ann has done it") == 1


# --- everything that runs -----------------------------------------------------------------------------------


@runnable
async def echo(ctx: RunContext, input: str) -> str:
    """Says what it was told."""
    ctx.say(Message.user(input))
    ctx.text(f"{input}, {input}")
    ctx.close_reply()
    return input


def named(name: str, *answers: str) -> Agent[str]:
    return talker(*(answers or (f"{name} says yes",)), pace=0.001, name=name)


KINDS: dict[str, Runnable[Any]] = {
    "runnable": echo,
    "agent": named("ann"),
    "sequential": Sequential(named("ann"), named("bob")),
    "parallel": Parallel(named("ann"), named("bob")),
    "race": Race(named("ann"), named("bob")),
    "loop": Loop(named("ann"), max_iterations=2),
    "team": RoundRobin([named("ann"), named("bob")], until=MaxMessages(2)),
    "swarm": Swarm([named("ann"), named("bob")]),
}


@pytest.mark.virtual_time
@pytest.mark.parametrize("kind", KINDS)
async def test_each_kind_has_a_conversation_that_goes_on(kind: str) -> None:
    """The second turn begins with what was said in the first; the members' own runs have no session of their own."""
    chats = Sessions()
    first = KINDS[kind].run("hello", session=chats.session("s"))
    await first
    await check_agrees(chats, first)
    before = await stored(chats)
    assert asked(before)[:1] == ["hello"]
    second = KINDS[kind].run("once more", session=chats.session("s"))
    await second
    await check_agrees(chats, second)
    now = await stored(chats)
    assert now[: len(before)] == before
    assert asked(now)[-1:] == ["once more"] or kind == "loop"
    assert [record.run_id for record in await chats.runs(session="s")] == [second.id, first.id]
    for_model(now)


@pytest.mark.virtual_time
async def test_a_member_of_a_team_may_have_a_session_of_its_own() -> None:
    chats = Sessions()
    inner = named("inner")

    @runnable(name="member")
    async def member(ctx: RunContext, input: Any) -> str:
        return (await ctx.start(inner, "noted", session=chats.session("notes"))).text

    await RoundRobin([member], until=MaxMessages(2)).run("Talk.", session=chats.session("s"))
    assert asked(await stored(chats)) == ["Talk."]
    assert asked(await stored(chats, "notes")) == ["noted", "noted"]
