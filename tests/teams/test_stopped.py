"""A team that is stopped: at once, whole, and fit to go on. Each was seen to fail in a framework in use."""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec
import pytest

from halter import Agent, CancellationToken, CancelMode, CancelReason, RunStatus, events, tool
from halter.crews import Crew, Task
from halter.errors import ConfigurationError
from halter.flows import Flow, listen, start
from halter.messages import Message, ToolResult
from halter.models.scripted import Scripted, calls
from halter.teams import Graph, RoundRobin, Selector, Swarm, Team
from halter.terminations import MaxMessages
from halter.testing import Sweep, SweepOutcome, cancel_sweep

from .parts import Notes, agent, log_of, now, said, spoken

virtual = pytest.mark.virtual_time


def in_order(messages: Any, names: tuple[str, ...]) -> str:
    """The next in order, by how much was said."""
    return names[0]


def teams(*members: Any, most: int = 4) -> dict[str, Team]:
    """Each kind, of the same two members, who speak in turn."""
    ann, ben = members
    return {
        "round_robin": RoundRobin([ann, ben], until=MaxMessages(most)),
        "selector": Selector([ann, ben], choose=in_order, until=MaxMessages(most)),
        "graph": Graph([ann, ben], [("ann", "ben"), ("ben", "ann")], start="ann", until=MaxMessages(most)),
    }


KINDS = pytest.mark.parametrize("kind", ["round_robin", "selector", "graph"])


def talkers(kind: str, most: int = 4) -> Team:
    """Three words in each turn, a second each."""
    ann, ben = agent("ann", "a1 a2 a3", "a4 a5 a6"), agent("ben", "b1 b2 b3", "b4 b5 b6")
    return teams(ann, ben, most=most)[kind]


# --- going on -----------------------------------------------------------------------------------------------


@pytest.mark.scenario("D39")
@KINDS
@virtual
async def test_after_a_stop_a_run_takes_all_its_turns(kind: str) -> None:
    """Not one of four; and it is as if there had been no stop."""
    team = talkers(kind)
    run = team.run("go").start()
    await asyncio.sleep(4.5)
    run.cancel()
    await run.finished()
    fresh = await team.run("go")
    assert fresh.state.turns == ("ann", "ben", "ann", "ben")
    assert said(fresh.messages) == said((await talkers(kind).run("go")).messages)


@pytest.mark.scenario("D39", "D40")
@KINDS
@virtual
async def test_the_state_of_a_stopped_one_goes_on_where_it_stopped(kind: str) -> None:
    """Whole turns are not repeated; who was cut off goes on; the turns of both runs count."""
    team = talkers(kind)
    run = team.run("go").start()
    await asyncio.sleep(4.5)
    run.cancel()
    stopped = await run.finished()
    assert (stopped.status, stopped.text) == (RunStatus.CANCELLED, "b1 ")
    assert said(stopped.messages) == [(None, "go"), ("ann", "a1 a2 a3"), ("ben", "b1 ")]
    assert stopped.messages[-1].interrupted
    assert (stopped.state.turns, stopped.state.stop_reason) == (("ann",), None)
    stored = msgspec.json.decode(msgspec.json.encode(stopped.state))
    result = await team.run(state=stored)
    assert result.state.turns == ("ann", "ben", "ann", "ben")
    assert said(result.messages)[:4] == [*said(stopped.messages), ("ben", "b4 b5 b6")]


@pytest.mark.scenario("D42")
@virtual
async def test_whoever_was_cut_off_is_told_so() -> None:
    """A marker before what it is told next, and its words as its own."""

    class Slow(Notes):
        async def respond(self, request: Any, ctx: Any) -> Message:
            self.told.append([(message.role, message.text) for message in request.messages])
            reply = ctx.reply()
            for word in ("one ", "two "):
                await asyncio.sleep(1)
                reply.text(word)
            return reply.finish()

    model = Slow()
    team = RoundRobin([Agent(model, name="ann")], until=MaxMessages(1))
    run = team.run("go").start()
    await asyncio.sleep(1.5)
    run.cancel()
    await team.run(state=(await run.finished()).state)
    assert [role for role, _ in model.told[1]] == ["user", "assistant", "user"]
    assert model.told[1][1] == ("assistant", "one ")
    assert "was stopped before it was complete" in model.told[1][2][1]


@virtual
async def test_new_work_after_a_stop_begins_with_who_was_cut_off() -> None:
    """An input beside the state: its turns count anew."""
    team = talkers("round_robin")
    run = team.run("go").start()
    await asyncio.sleep(4.5)
    run.cancel()
    result = await team.run("Something else.", state=(await run.finished()).state)
    assert result.state.turns == ("ben", "ann", "ben", "ann")


@virtual
async def test_a_team_within_goes_on_where_it_stopped() -> None:
    """Its whole turns are not repeated either."""
    inner = RoundRobin([agent("x", "x1 x2"), agent("y", "y1 y2", "y3")], until=MaxMessages(2), name="desk")
    team = RoundRobin([inner, agent("editor", "fine")], until=MaxMessages(2))
    run = team.run("go").start()
    await asyncio.sleep(3.5)
    run.cancel()
    stopped = await run.finished()
    assert stopped.text == "y1 "
    result = await team.run(state=msgspec.json.decode(msgspec.json.encode(stopped.state)))
    assert result.state.turns == ("desk", "editor")
    assert said(result.state.members["desk"].messages) == [(None, "go"), ("x", "x1 x2"), ("y", "y1 "), ("y", "y3")]


@virtual
async def test_a_crew_within_goes_on_with_its_open_task() -> None:
    """It has what it was told in its own state, and needs its inputs once more."""
    tasks = [Task(description="{input}", agent=agent(name, "1 2"), name=name) for name in ("x", "y")]
    team = RoundRobin([Crew(tasks, name="crew"), agent("editor", "fine")], until=MaxMessages(2))
    run = team.run("go").start()
    await asyncio.sleep(3.5)
    run.cancel()
    stopped = await run.finished()
    assert (stopped.text, list(stopped.state.cut)) == ("1 ", ["crew"])
    resumed = team.run(state=msgspec.json.decode(msgspec.json.encode(stopped.state)))
    result = await resumed
    assert result.state.turns == ("crew", "editor")
    started = [event.name for event in await log_of(resumed) if isinstance(event, events.Started)]
    assert "x" not in started
    assert "y" in started
    assert result.state.members == {}


@virtual
async def test_a_flow_within_goes_on_with_its_open_step() -> None:
    """It takes no input beside its state."""
    begun: list[str] = []

    class Two(Flow, name="flow"):
        @start()
        async def one(self, ctx: Any, value: Any) -> str:
            begun.append("one")
            return "one"

        @listen(one)
        async def two(self, ctx: Any, value: Any) -> str:
            begun.append("two")
            await asyncio.sleep(2)
            return "two"

    team = RoundRobin([Two(), agent("editor", "fine")], until=MaxMessages(2))
    run = team.run("go").start()
    await asyncio.sleep(1)
    run.cancel()
    result = await team.run(state=msgspec.json.decode(msgspec.json.encode((await run.finished()).state)))
    assert begun == ["one", "two", "two"]
    assert said(result.messages) == [(None, "go"), ("flow", "two"), ("editor", "fine")]


@virtual
async def test_a_swarm_goes_on_with_whoever_had_the_floor() -> None:
    team = Swarm([agent("ann", calls("transfer_to_ben")), agent("ben", "b1 b2", "b3")])
    run = team.run("go").start()
    await asyncio.sleep(2.5)
    run.cancel()
    stopped = await run.finished()
    assert (stopped.text, stopped.state.floor, list(stopped.state.cut)) == ("b1 ", "ben", ["ben"])
    result = await team.run(state=stopped.state)
    assert (result.text, result.state.turns) == ("b3", ("ann", "ben"))


# --- in the middle of a tool call ---------------------------------------------------------------------------


def with_tool(function: Any) -> Team:
    caller = Agent(Scripted((calls(function.name), calls(function.name)), "done"), name="ann", tools=[function])
    return RoundRobin([caller, agent("ben", "fine")], until=MaxMessages(2))


@pytest.mark.scenario("C27", "D41")
@virtual
async def test_a_stop_in_a_tool_call_ends_it_and_the_team_is_as_before() -> None:
    """No deadlock; each call has its result beside it; the next run works."""
    ended = []

    @tool
    async def wait() -> str:
        try:
            await asyncio.sleep(100)
        finally:
            ended.append(now())
        return "never"

    team = with_tool(wait)
    run = team.run("go").start()
    await asyncio.sleep(1)
    run.cancel()
    result = await run.finished()
    assert ended == [1, 1]
    assert now() == 1
    assert result.receipt is not None
    assert result.receipt.confirmed
    assert [message.role for message in result.messages] == ["user", "assistant", "tool"]
    results = [part.call_id for part in result.messages[-1].parts if isinstance(part, ToolResult)]
    assert results == [call.id for call in result.messages[-2].tool_calls]
    again = await team.run(state=result.state)
    assert (again.state.turns, again.text) == (("ann", "ben"), "fine")


@pytest.mark.scenario("C31")
@virtual
async def test_what_must_finish_is_in_the_conversation_with_its_result() -> None:
    """Longer than half of the grace: else it would be done again by the next run."""

    @tool(cancel="must_finish")
    async def pay() -> str:
        await asyncio.sleep(4)
        return "paid"

    team = with_tool(pay)
    run = team.run("go").start()
    await asyncio.sleep(1.5)
    run.cancel()
    result = await run.finished()
    assert now() < 6
    assert result.receipt is not None
    assert result.receipt.confirmed, str(result.receipt)
    results = [part.content for part in result.messages[-1].parts if isinstance(part, ToolResult)]
    assert results == ["paid", "paid"]
    assert result.state.messages == result.messages


@pytest.mark.parametrize("mode", [CancelMode.KILL, CancelMode.IMMEDIATE])
@virtual
async def test_a_tool_that_refuses_to_end_holds_the_team_no_longer_than_it_should(mode: CancelMode) -> None:
    """The tool alone is abandoned and named; what was said is kept."""
    let_go = asyncio.Event()

    @tool
    async def refuse() -> str:
        while not let_go.is_set():
            try:
                await let_go.wait()
            except asyncio.CancelledError:
                pass
        return "late"

    run = with_tool(refuse).run("go", grace=2).start()
    await asyncio.sleep(1)
    run.cancel(mode=mode)
    result = await run.finished()
    assert now() == (1 if mode is CancelMode.KILL else 3)
    let_go.set()
    assert result.receipt is not None
    abandoned = {line.kind for line in result.receipt.resources if line.ended == "abandoned"}
    assert abandoned == {"tool"}
    assert list(result.state.cut) == ["ann"]
    assert (await with_tool(refuse).run(state=result.state)).state.turns == ("ann", "ben")


# --- how ----------------------------------------------------------------------------------------------------


@pytest.mark.scenario("B25")
@KINDS
@virtual
async def test_after_turn_ends_after_the_members_turn(kind: str) -> None:
    """The turn is whole and counts; nobody is next; its state goes on."""
    team = talkers(kind)
    run = team.run("go").start()
    await asyncio.sleep(4.5)
    run.cancel(mode=CancelMode.AFTER_TURN)
    result = await run.finished()
    assert (now(), result.status, result.text) == (6, RunStatus.CANCELLED, "b1 b2 b3")
    assert (result.state.turns, result.state.cut) == (("ann", "ben"), {})
    assert (await team.run(state=result.state)).state.turns == ("ann", "ben", "ann", "ben")


@virtual
async def test_after_turn_in_the_last_turn_is_without_effect() -> None:
    run = talkers("round_robin", most=2).run("go").start()
    await asyncio.sleep(4.5)
    run.cancel(mode=CancelMode.AFTER_TURN)
    assert (await run.finished()).status is RunStatus.COMPLETED


@virtual
async def test_after_turn_lets_each_branch_end_and_keeps_who_was_to_be_next() -> None:
    """Those who begin later begin in the next run."""
    graph = Graph([agent("a", "a"), agent("b", "b b b"), agent("c", "c")], [("a", "c")])
    run = graph.run("go").start()
    await asyncio.sleep(0.5)
    run.cancel(mode=CancelMode.AFTER_TURN)
    result = await run.finished()
    assert (now(), result.state.turns, result.state.arrived) == (3, ("a", "b"), {"c": ("a",)})
    assert (await graph.run(state=result.state)).state.turns == ("a", "b", "c")


@virtual
async def test_after_turn_lets_a_slow_branch_end_when_a_quick_one_would_have_gone_on() -> None:
    """An agent between two answers ends there; the other's answer becomes whole."""

    @tool
    async def look() -> str:
        return "seen"

    quick = agent("quick", calls("look"), "never", tools=[look])
    graph = Graph([quick, agent("slow", "1 2 3")], [])
    run = graph.run("go").start()
    await asyncio.sleep(0.5)
    run.cancel(mode=CancelMode.AFTER_TURN)
    result = await run.finished()
    assert (now(), result.status) == (3, RunStatus.CANCELLED)
    assert (result.state.turns, list(result.state.cut)) == (("slow",), ["quick"])
    assert not any(message.interrupted for message in spoken(result.messages))
    assert (await graph.run(state=result.state)).state.turns == ("slow", "quick")


@pytest.mark.scenario("B15")
@virtual
async def test_a_token_that_is_cancelled_already_lets_nobody_speak() -> None:
    token = CancellationToken()
    token.cancel()
    result = await talkers("round_robin").run("go", cancellation=token).finished()
    assert result.is_cancelled
    assert result.state is None
    assert result.messages == ()


@pytest.mark.scenario("B18", "D49")
@KINDS
def test_stopped_at_any_step_the_state_is_whole(kind: str) -> None:
    """Conversation, state and text agree; each whole turn is there once; it can go on from there."""

    async def scenario(sweep: Sweep) -> Any:
        run = teams(agent("ann", "one"), agent("ben", "two"), most=2)[kind].run("go")
        sweep.cancel = run.cancel
        result = await run.finished()
        again = None
        if result.is_cancelled and result.state is not None:
            again = await teams(agent("ann", "one"), agent("ben", "two"), most=2)[kind].run(state=result.state)
        return result, again

    def check(outcome: SweepOutcome) -> None:
        result, again = outcome.result
        if result.state is None:
            assert result.messages == ()
            return
        assert spoken(result.state.messages) == spoken(result.messages)
        whole = [message.name for message in result.messages[1:] if not message.interrupted]
        assert whole == list(result.state.turns)
        assert set(result.state.cut) <= {"ann", "ben"}
        if again is not None:
            assert again.state.turns == ("ann", "ben")

    assert cancel_sweep(scenario, check=check) > 10


# --- many at once -------------------------------------------------------------------------------------------


@pytest.mark.scenario("D39", "E51", "E53")
@virtual
async def test_one_object_runs_twenty_times_at_once() -> None:
    """Each has its own words; every third is stopped, and the others do not notice."""

    class Echo:
        name = "echo"

        async def respond(self, request: Any, ctx: Any) -> Message:
            reply = ctx.reply()
            for word in (request.messages[0].text, "said", "so"):
                await asyncio.sleep(1)
                reply.text(f"{word} ")
            return reply.finish()

    team = RoundRobin([Agent(Echo(), name="ann"), Agent(Echo(), name="ben")], until=MaxMessages(4))
    runs = [team.run(f"<{number}>").start() for number in range(20)]
    await asyncio.sleep(4.5)
    for run in runs[::3]:
        run.cancel()
    results = [await run.finished() for run in runs]
    for number, (run, result) in enumerate(zip(runs, results, strict=True)):
        assert all(f"<{number}>" in message.text for message in result.messages)
        assert result.is_cancelled == (number % 3 == 0)
        assert len(result.messages) == (3 if result.is_cancelled else 5)
        log = await log_of(run)
        assert {event.root_id for event in log} == {run.id}
        assert [event.seq for event in log] == list(range(1, len(log) + 1))


@pytest.mark.scenario("E54")
@virtual
async def test_each_event_names_its_member() -> None:
    run = talkers("round_robin").run("go", task="t")
    deltas = [event async for event in run if isinstance(event, events.TextDelta)]
    assert {(event.agent, event.task) for event in deltas} == {("ann", "t"), ("ben", "t")}


@virtual
async def test_a_time_out_of_the_run_is_a_stop_and_no_end() -> None:
    """Its own reason; unlike the termination `Timeout`, which completes."""
    result = await talkers("round_robin").run("go", timeout=4.5).finished()
    assert result.cancellation is not None
    assert (now(), result.cancellation.reason) == (4.5, CancelReason.TIMEOUT)


@pytest.mark.parametrize("state", [7, {"turns": ["nobody"]}, {"outputs": {"research": "x"}}, {}], ids=str)
def test_a_state_that_is_none_of_this_team_is_refused(state: Any) -> None:
    """Also one of a crew, and one in which nothing was said; else it would begin with nothing to speak of."""
    with pytest.raises(ConfigurationError):
        talkers("round_robin").run(state=state)
