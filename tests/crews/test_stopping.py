"""A stop of a crew: where it is cut, what its state holds then, and how a next run goes on from that."""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec
import pytest

from halter import Agent, CancelMode, RunCancelled, RunContext, RunFailed, RunStatus, events, runnable, runtime
from halter.core.history import MARKER
from halter.crews import Crew, CrewState, Task
from halter.crews.state import GO_ON
from halter.models.scripted import Scripted, calls
from halter.testing import Sweep, SweepOutcome, cancel_sweep
from halter.tools import tool

from ..core.conftest import check_log as check_log
from .people import Asked, member, pair

virtual = pytest.mark.virtual_time


def now() -> float:
    return asyncio.get_running_loop().time()


def stored(state: CrewState) -> Any:
    """As it comes back from a store."""
    return msgspec.json.decode(msgspec.json.encode(state))


class Digging:
    """A task whose agent calls a tool, then says three words; a second for each; and a task after it."""

    def __init__(self) -> None:
        self.dug = 0
        self.model = Asked(calls("dig"), "one two three", pace=1)
        self.after = Asked("four five six", pace=1)

        @tool
        async def dig() -> str:
            self.dug += 1
            await asyncio.sleep(1)
            return "a stone"

        first = Task(description="Dig.", agent=member("ann", self.model, tools=[dig]), name="dig")
        self.crew = Crew([first, Task(description="Tell.", agent=member("bob", self.after), name="tell")])


# --- where it is cut ----------------------------------------------------------------------------------------


@pytest.mark.scenario("A10", "D40")
@virtual
async def test_stopped_in_the_first_task_no_other_begins_and_what_was_written_is_there() -> None:
    crew = Digging()
    run = crew.crew.run().start()
    await asyncio.sleep(3.5)
    assert run.cancel("enough")
    result = await run.finished()
    assert now() == 3.5
    await asyncio.sleep(100)
    assert crew.after.requests == []
    assert result.text == "one "
    assert result.state.outputs == {}
    assert [message.role for message in result.state.open["dig"]] == ["user", "assistant", "tool", "assistant"]
    assert result.state.open["dig"][-1].interrupted
    assert [(message.text, message.interrupted) for message in result.messages] == [("Dig.", False), ("one ", True)]
    assert result.receipt is not None
    assert result.receipt.confirmed


@pytest.mark.scenario("D42")
@virtual
async def test_a_next_run_goes_on_in_the_conversation_that_was_cut() -> None:
    """The tool is not called again; the model is told that it was stopped, and once."""
    crew = Digging()
    run = crew.crew.run().start()
    await asyncio.sleep(3.5)
    await run.aclose()
    assert run.outcome is not None
    result = await crew.crew.run(state=stored(run.outcome.state))
    assert (result.output, crew.dug) == ("four five six", 1)
    assert result.state == CrewState(outputs={"dig": "one two three", "tell": "four five six"})
    told = crew.model.requests[-1].messages
    assert [message.role for message in told] == ["system", "user", "assistant", "tool", "assistant", "user"]
    assert told[-1].text.startswith(MARKER)
    assert told[-1].text.endswith(GO_ON)
    assert "".join(message.text for message in told).count("Dig.") == 1


@pytest.mark.scenario("D41")
@virtual
async def test_stopped_within_a_tool_the_call_has_its_result_and_the_next_run_its_word() -> None:
    crew = Digging()
    run = crew.crew.run().start()
    await asyncio.sleep(1.5)
    await run.aclose()
    assert run.outcome is not None
    [_, called, answered] = run.outcome.state.open["dig"]
    assert [part.call_id for part in answered.parts] == [call.id for call in called.tool_calls]
    assert (await crew.crew.run(state=stored(run.outcome.state))).output == "four five six"


@virtual
async def test_stopped_in_the_second_task_the_first_is_not_done_again() -> None:
    crew = Digging()
    run = crew.crew.run().start()
    await asyncio.sleep(6.5)
    await run.aclose()
    assert run.outcome is not None
    assert run.outcome.text == "four "
    assert run.outcome.state.outputs == {"dig": "one two three"}
    asked = len(crew.model.requests)
    result = await crew.crew.run(state=stored(run.outcome.state))
    assert (result.output, len(crew.model.requests), crew.dug) == ("four five six", asked, 1)
    assert "one two three" in "".join(message.text for message in crew.after.requests[-1].messages)


@virtual
async def test_of_parallel_tasks_those_that_are_done_stay_done() -> None:
    models = Asked("one", pace=1), Asked("two three four", pace=1)
    sides = [
        Task(description="Side.", agent=member(f"m{at}", model), parallel=True, name=f"side {at}")
        for at, model in enumerate(models)
    ]
    crew = Crew([*sides, Task(description="Sum.", agent=member("bob", "done"), name="sum")])
    run = crew.run().start()
    await asyncio.sleep(1.5)
    await run.aclose()
    assert run.outcome is not None
    assert run.outcome.state.outputs == {"side 0": "one"}
    assert list(run.outcome.state.open) == ["side 1"]
    assert (await crew.run(state=stored(run.outcome.state))).output == "done"
    assert [len(model.requests) for model in models] == [1, 2]


@virtual
async def test_a_run_from_a_state_that_is_complete_asks_nobody() -> None:
    """Its output and text are there; an output can be given by hand as well."""
    crew = pair()
    done = CrewState(outputs={"research": "by hand", "write": "six"})
    result = await crew.run("rivers", state=done)
    assert (result.output, result.text, result.usage.total) == ("six", "six", 0)
    given = await crew.run("rivers", state={"outputs": {"research": "by hand"}})
    assert given.state.outputs == {"research": "by hand", "write": "four five six"}


@pytest.mark.scenario("D39")
@virtual
async def test_without_a_state_a_run_after_a_stop_is_as_fresh() -> None:
    crew = Digging()
    run = crew.crew.run().start()
    await asyncio.sleep(3.5)
    await run.aclose()
    asked = len(crew.model.requests)
    assert (await crew.crew.run()).output == "four five six"
    assert len(crew.model.requests) == asked + 2
    assert [message.text for message in crew.model.requests[asked].messages[1:]] == ["Dig."]


# --- how hard -----------------------------------------------------------------------------------------------


@pytest.mark.scenario("B25")
@virtual
async def test_after_turn_lets_the_turn_of_the_agent_end_not_its_task() -> None:
    """The tool of the turn has run; the next run goes on with its result."""
    crew = Digging()
    run = crew.crew.run().start()
    await asyncio.sleep(0.5)
    run.cancel(mode=CancelMode.AFTER_TURN)
    result = await run.finished()
    assert (now(), result.status) == (2, RunStatus.CANCELLED)
    assert [message.role for message in result.state.open["dig"] if message.parts] == ["user", "assistant", "tool"]
    result = await crew.crew.run(state=stored(result.state))
    assert (result.output, crew.dug) == ("four five six", 1)


@pytest.mark.scenario("B25")
@virtual
async def test_after_turn_in_a_task_s_last_turn_leaves_the_task_done() -> None:
    crew = pair(pace=1)
    run = crew.run("rivers").start()
    await asyncio.sleep(1.5)
    run.cancel(mode=CancelMode.AFTER_TURN)
    result = await run.finished()
    assert (now(), result.status) == (3, RunStatus.CANCELLED)
    assert result.state == CrewState(outputs={"research": "one two three"})


@pytest.mark.scenario("B25")
@virtual
async def test_after_turn_keeps_the_guardrail_s_word_for_the_next_run() -> None:
    """The answer was refused; nobody is asked again until the next run."""
    model = Asked("bad one", "good", pace=1)
    crew = Crew([Task(description="Go.", agent=member("ann", model), guardrail=lambda said: "bad" not in said)])
    run = crew.run().start()
    await asyncio.sleep(0.5)
    run.cancel(mode=CancelMode.AFTER_TURN)
    result = await run.finished()
    assert (now(), result.status) == (2, RunStatus.CANCELLED)
    assert result.state.open["task 1"][-1].text.startswith("Your answer was not accepted")
    assert (await crew.run(state=stored(result.state))).output == "good"
    assert [message.role for message in model.requests[-1].messages[1:]] == ["user", "assistant", "user"]


@pytest.mark.scenario("B25")
@pytest.mark.parametrize(("mode", "grace"), [(CancelMode.KILL, 5.0), (CancelMode.IMMEDIATE, 0.0)])
@virtual
async def test_a_stop_without_any_grace_ends_it_cleanly_too(mode: CancelMode, grace: float) -> None:
    """Its state has what was done by then, and how far the rest had come."""
    crew = Digging()
    run = crew.crew.run(grace=grace).start()
    await asyncio.sleep(6.5)
    run.cancel(mode=mode)
    result = await run.finished()
    assert now() == 6.5
    assert result.receipt is not None
    assert result.receipt.confirmed, str(result.receipt)
    assert result.state.outputs == {"dig": "one two three"}
    assert result.state.open["tell"][-1].text == "four "
    assert (await crew.crew.run(state=stored(result.state))).output == "four five six"


@pytest.mark.scenario("C31", "C32")
@pytest.mark.parametrize("mode", [CancelMode.IMMEDIATE, CancelMode.DRAIN_TOOLS])
@pytest.mark.parametrize("takes", [1.0, 4.5])
@virtual
async def test_a_tool_that_must_finish_does_and_the_state_knows(takes: float, mode: CancelMode) -> None:
    """A payment that has begun is made once, also if it takes nearly the whole grace."""
    paid: list[str] = []

    @tool(cancel="must_finish")
    async def pay() -> str:
        await asyncio.sleep(takes)
        paid.append("R-17")
        return "paid"

    model = Asked(calls("pay"), "It is paid.", pace=1)
    crew = Crew([Task(description="Pay.", agent=member("ann", model, tools=[pay]), name="pay")])
    run = crew.run().start()
    await asyncio.sleep(1.5)
    run.cancel(mode=mode)
    result = await run.finished()
    assert (now(), paid, len(model.requests)) == (1 + takes, ["R-17"], 1)
    assert "paid" in result.state.open["pay"][-1].parts[0].content
    assert (await crew.run(state=stored(result.state))).output == "It is paid."
    assert paid == ["R-17"]


@pytest.mark.scenario("C33")
@virtual
async def test_a_member_that_will_not_end_is_abandoned_and_named() -> None:
    holds_on = [True]

    @runnable(name="stubborn")
    async def stubborn(ctx: RunContext, input: str) -> None:
        while holds_on:
            try:
                await asyncio.sleep(100)
            except asyncio.CancelledError:
                pass

    run = Crew([Task(description="Go.", agent=stubborn)]).run(grace=2).start()
    await asyncio.sleep(1)
    await run.aclose()
    assert now() == 3
    assert run.outcome is not None
    assert run.outcome.receipt is not None
    assert not run.outcome.receipt.confirmed
    assert "test_stopping.py" in str(run.outcome.receipt)
    holds_on.clear()


# --- a part of it alone -------------------------------------------------------------------------------------


@pytest.mark.parametrize("whose", ["research", "ann"])
@virtual
async def test_a_task_or_an_agent_that_is_stopped_alone_fails_the_crew(whose: str) -> None:
    """It was not the crew that somebody stopped; the cause says who it was."""
    run = pair(pace=1).run("rivers").start()
    await asyncio.sleep(1.5)
    log = run._execution.log.read(0, 1000)
    victim = next(event.run_id for event in log if isinstance(event, events.Started) and event.name == whose)
    assert await runtime().cancel(victim, "you alone")
    with pytest.raises(RunFailed) as caught:
        await run
    assert isinstance(caught.value.__cause__, RunCancelled)
    assert "you alone" in str(caught.value.__cause__)
    assert caught.value.result is not None
    assert caught.value.result.state.outputs == {}


@virtual
async def test_a_failed_run_can_be_gone_on_with_too() -> None:
    """The provider broke in the second task; the first is not done again."""
    fails = [True]

    class Breaks(Scripted):
        async def respond(self, request: Any, ctx: RunContext) -> Any:
            if fails:
                fails.clear()
                raise ConnectionError("gone")
            return await super().respond(request, ctx)

    first = Asked("one")
    crew = Crew([
        Task(description="First.", agent=member("ann", first)),
        Task(description="Second.", agent=member("bob", Breaks("two"))),
    ])  # fmt: skip
    result = await crew.run().finished()
    assert repr(result.error) == "ConnectionError('gone')"
    assert (await crew.run(state=stored(result.state))).output == "two"
    assert len(first.requests) == 1


@pytest.mark.scenario("B26")
@virtual
async def test_an_exit_in_a_member_s_tool_surfaces_in_whoever_waits() -> None:
    @tool
    async def leave() -> None:
        raise SystemExit(3)

    crew = Crew([Task(description="Go.", agent=member("ann", calls("leave"), tools=[leave]))])
    other = pair(pace=1).run("rivers").start()
    with pytest.raises(SystemExit):
        await crew.run()
    assert (await other).is_completed


# --- under a manager ----------------------------------------------------------------------------------------


@pytest.mark.scenario("C34")
@virtual
async def test_a_stop_reaches_the_coworker_and_the_manager_goes_on_in_the_next_run() -> None:
    boss = Asked(calls("ann", input="Find."), "They found it.", pace=1)
    worker = Asked("one two three", pace=1)
    crew = Crew(
        [Task(description="Find.", name="find")],
        agents=[member("ann", worker)],
        process="hierarchical",
        manager=boss,  # pyright: ignore
    )
    run = crew.run().start()
    await asyncio.sleep(2.5)
    await run.aclose()
    assert now() == 2.5
    await asyncio.sleep(100)
    assert (len(boss.requests), len(worker.requests)) == (1, 1)
    assert run.outcome is not None
    assert [message.role for message in run.outcome.state.open["find"]] == ["user", "assistant", "tool"]
    assert (await crew.run(state=stored(run.outcome.state))).output == "They found it."
    assert len(worker.requests) == 1


# --- everywhere ---------------------------------------------------------------------------------------------


@pytest.mark.scenario("I82", "B18")
@pytest.mark.parametrize("mode", [CancelMode.IMMEDIATE, CancelMode.AFTER_TURN, CancelMode.KILL])
def test_stopped_at_any_step_a_next_run_goes_on_and_repeats_nothing(mode: CancelMode, check_log: Any) -> None:
    """What the state says is done is not asked for again; in the end all is there."""

    async def scenario(sweep: Sweep) -> Any:
        finished: list[str] = []

        @runnable(name="check")
        async def check(ctx: RunContext, input: str) -> str:
            said = (await ctx.start(Agent(Scripted("one")), input)).output or ""
            finished.append(input)
            return said

        sides = [Task(description=f"Side {at}", agent=check, parallel=True, name=f"side {at}") for at in (1, 2)]
        last = Task(description="Last", agent=member("ann", "three"), context=(), name="last")
        crew = Crew([*sides, last])
        run = crew.run()
        sweep.cancel = lambda: run.cancel(mode=mode)
        result = await run.finished()
        done = set(result.state.outputs) if result.state else set[str]()
        before = list(finished)
        whole = await crew.run(state=stored(result.state) if result.state else None)
        return run, result, done, before, finished, whole, [event async for event in run.events()]

    def check(outcome: SweepOutcome) -> None:
        _, result, done, before, finished, whole, log = outcome.result
        if log[0].type == "run.started":
            check_log(log)
        assert whole.state.outputs == {"side 1": "one", "side 2": "one", "last": "three"}
        assert {f"side {text[-1]}" for text in before} >= done - {"last"}
        assert not {f"side {text[-1]}" for text in finished[len(before) :]} & done
        assert result.is_completed == ("last" in done and not result.is_cancelled)
        if result.is_cancelled and result.receipt.resources:
            assert result.receipt.confirmed, str(result.receipt)

    assert cancel_sweep(scenario, check=check) > 20
