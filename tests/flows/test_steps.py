"""How the steps of a flow follow one another, and what is handed on."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from typing import Any, Literal

import pytest

from halter import Agent, Message, RunFailed, current_run, events, runnable, runtime
from halter.compose import Sequential
from halter.errors import StepsExhausted, UsageError
from halter.flows import Flow, and_, listen, or_, router, start
from halter.models.scripted import Scripted
from halter.outcome import CancelReason
from halter.tools import as_tool

from ..compose.parts import ends_of, find, log_of
from ..core.conftest import check_log as check_log

virtual = pytest.mark.virtual_time


def now() -> float:
    return asyncio.get_running_loop().time()


class Trace(Flow):
    """What its steps were given is kept here."""

    def __init__(self) -> None:
        self.given: list[tuple[str, Any]] = []

    def note(self, step: str, value: Any) -> str:
        self.given.append((step, value))
        return step.upper()


# --- one after another --------------------------------------------------------------------------------------


class Chain(Trace):
    @start()
    async def a(self, ctx: Any, value: Any) -> str:
        await asyncio.sleep(1)
        return self.note("a", value)

    @listen(a)
    async def b(self, ctx: Any, value: Any) -> str:
        await asyncio.sleep(1)
        return self.note("b", value)

    @listen(b)
    async def c(self) -> str:
        return self.note("c", None)


@virtual
async def test_each_step_gets_what_the_one_before_has_returned_and_the_last_value_is_the_output(
    check_log: Callable[..., None],
) -> None:
    chain = Chain()
    run = chain.run("go")
    result = await run
    assert chain.given == [("a", "go"), ("b", "A"), ("c", None)]
    assert (result.output, result.text, now()) == ("C", "C", 2)
    assert result.state.done == ("a", "b", "c")
    log = await log_of(run)
    check_log(log)
    started = [event for event in log if isinstance(event, events.Started)]
    assert [(event.name, event.kind) for event in started] == [
        ("Chain", "flow"), ("a", "step"), ("b", "step"), ("c", "step"),
    ]  # fmt: skip


@virtual
async def test_what_begins_with_a_state_has_no_value() -> None:
    chain = Chain()
    await chain.run({"x": 1})
    assert chain.given[0] == ("a", None)


class Fork(Trace):
    @start()
    async def a(self) -> int:
        await asyncio.sleep(1)
        return 1

    @start()
    async def b(self) -> int:
        await asyncio.sleep(3)
        return 2

    @listen(and_(b, a))
    async def both(self, ctx: Any, value: Any) -> str:
        return self.note(f"both at {now():g}", value)

    @listen(or_(a, b))
    async def each(self, ctx: Any, value: Any) -> str:
        return self.note(f"each at {now():g}", value)

    @listen(and_(both, or_(a, each)))
    async def last(self, ctx: Any, value: Any) -> Any:
        return value


@virtual
async def test_steps_that_are_due_together_run_at_once_and_conditions_are_met_as_values_come() -> None:
    fork = Fork()
    result = await fork.run()
    assert fork.given == [("each at 1", 1), ("both at 3", (2, 1)), ("each at 3", 2)]
    assert result.output == ("BOTH AT 3", 1)
    assert (now(), sorted(result.state.done)) == (3, ["a", "b", "both", "each", "each", "last"])


class Circle(Trace, max_steps=9):
    """Three rounds, then out."""

    @start()
    async def begin(self) -> str:
        return "draft"

    @listen(or_(begin, "again"))
    async def improve(self, ctx: Any, draft: str) -> str:
        self.note("improve", draft)
        return f"{draft}+"

    @router(improve)
    async def judge(self, ctx: Any, draft: str) -> Literal["again", "good", "hopeless"]:
        self.note("judge", draft)
        return "good" if draft.endswith("+++") else "again"

    @listen("good")
    async def publish(self, ctx: Any, draft: str) -> str:
        return f"published: {draft}"


@virtual
async def test_a_router_chooses_and_a_label_hands_on_what_the_router_was_given() -> None:
    circle = Circle()
    result = await circle.run()
    assert result.output == "published: draft+++"
    assert [draft for step, draft in circle.given if step == "judge"] == ["draft+", "draft++", "draft+++"]
    assert result.state.done == ("begin", *("improve", "judge") * 3, "publish")


@virtual
async def test_a_label_that_nobody_listens_to_is_an_end() -> None:
    """The output is what the router was given."""

    class Gate(Circle):
        @router(Circle.improve)
        async def judge(self, ctx: Any, draft: str) -> Literal["again", "good", "hopeless"]:
            return "hopeless"

    result = await Gate().run()
    assert (result.output, result.state.done) == ("draft+", ("begin", "improve", "judge"))


@virtual
async def test_a_flow_that_goes_round_too_often_fails_with_what_it_has() -> None:
    """Nine steps are allowed, and a tenth would begin; a run that goes on has as many again."""

    class Stuck(Circle, max_steps=4):
        @router(Circle.improve)
        async def judge(self, ctx: Any, draft: str) -> Literal["again", "good", "hopeless"]:
            return "good" if len(draft) > 8 else "again"

    stuck = Stuck()
    with pytest.raises(RunFailed, match="'Stuck' has run 4 steps, its max_steps") as caught:
        await stuck.run()
    result = caught.value.result
    assert result is not None
    assert isinstance(result.error, StepsExhausted)
    assert result.state.done == ("begin", "improve", "judge", "improve")
    again = await stuck.run(state=result.state).finished()
    assert again.state.done[4:] == ("judge", "improve", "judge", "improve")
    assert (await stuck.run(state=again.state)).output == "published: draft++++"


@virtual
async def test_a_step_may_listen_to_a_router_itself() -> None:
    """It gets the label."""

    class Listens(Circle):
        @listen("judge")
        async def log(self, ctx: Any, label: str) -> None:
            self.note("log", label)

    flow = Listens()
    await flow.run().finished()
    assert [label for step, label in flow.given if step == "log"][:2] == ["again", "again"]


# --- where they run -----------------------------------------------------------------------------------------


@pytest.mark.loops
async def test_a_plain_step_runs_in_a_thread_and_what_it_starts_is_under_it() -> None:
    """The loop is free meanwhile; a blocking run in it is a child of the step."""
    writer = Agent(Scripted("one two"), name="writer")
    threads: list[int] = []
    ready = threading.Event()

    class Blocking(Flow):
        @start
        def slow(self, ctx: Any) -> str:
            threads.append(threading.get_ident())
            assert ready.wait(5)
            ctx.emit("working")
            return writer.run("hi").result().text

        @start
        async def quick(self) -> None:
            ready.set()

    run = Blocking().run()
    result = await run
    assert result.output == "one two"
    assert threads != [threading.get_ident()]
    log = await log_of(run)
    names = {event.run_id: event.name for event in log if isinstance(event, events.Started)}
    parents = {names[event.run_id]: names.get(event.parent_id or "") for event in log if event.is_terminal}
    assert parents == {"Blocking": None, "slow": "Blocking", "quick": "Blocking", "writer": "slow"}
    assert [(event.agent, event.task) for event in log if isinstance(event, events.Custom)] == [("slow", "slow")]


@virtual
async def test_what_runs_in_a_step_is_marked_with_it_and_is_under_it() -> None:
    """Agents, compositions and flows; as deep as they are."""
    writer = Agent(Scripted("one two", pace=1), name="writer")

    class Inner(Flow):
        @start()
        async def inside(self, ctx: Any, value: str) -> str:
            return (await writer.run(value)).text

    class Outer(Flow):
        inner = Inner()

        @start()
        async def alone(self) -> str:
            return (await writer.run("hi")).text

        @listen(alone)
        async def together(self, ctx: Any, value: str) -> Any:
            assert current_run().id == ctx.run_id
            return (await Sequential(writer, self.inner).run(value)).output

    run = Outer().run()
    assert (await run).output == "one two"
    log = await log_of(run)
    marks = [(event.agent, event.task) for event in log if isinstance(event, events.TextDelta)]
    assert marks == [("writer", mark) for mark in ("alone", "together", "inside") for _ in range(2)]
    assert list(await ends_of(run)) == ["writer", "alone", "inside", "Inner", "sequential", "together", "Outer"]


@virtual
async def test_a_flow_is_a_tool_of_an_agent_and_a_part_of_a_composition() -> None:
    """What is said to it goes to its first steps."""
    chain = Chain()
    result = await Sequential(Agent(Scripted("from before")), chain).run("hi")
    assert result.output == "C"
    assert chain.given[0] == ("a", "from before")
    assert as_tool(chain).name == "Chain"


@virtual
async def test_the_context_and_what_was_said_are_the_runs() -> None:
    """`context=` reaches the steps; the conversation is what was said to it, and its answer."""

    class Sees(Flow):
        @start()
        async def look(self, ctx: Any, value: str) -> str:
            ctx.text("I see.")
            return ctx.context

    result = await Sees().run("look here", context="mine")
    assert result.output == "mine"
    assert [(message.role, message.text) for message in result.messages] == [
        ("user", "look here"), ("assistant", "I see."),
    ]  # fmt: skip
    assert (await Sees().run(Message.user("look here"), context="mine")).messages[0].text == "look here"


# --- what goes wrong ----------------------------------------------------------------------------------------


class Broken(Flow):
    @start()
    async def fails(self) -> None:
        await asyncio.sleep(1)
        raise LookupError("nothing there")

    @start()
    async def slow(self) -> None:
        await asyncio.sleep(100)

    @start()
    async def quick(self) -> None:
        self.state["quick"] = True

    @listen(slow)
    async def never(self) -> None:
        raise AssertionError("it has begun")


@virtual
async def test_a_step_that_fails_fails_the_flow_and_stops_the_others(check_log: Callable[..., None]) -> None:
    """With that very error; what had ended before is in the state, and a run that goes on begins the others anew."""
    run = Broken().run()
    with pytest.raises(RunFailed) as caught:
        await run
    assert now() == 1
    assert isinstance(caught.value.__cause__, LookupError)
    assert await ends_of(run) == {
        "quick": "run.completed",
        "fails": "run.failed",
        "slow": CancelReason.SIBLING_FAILED,
        "Broken": "run.failed",
    }
    check_log(await log_of(run))
    assert run.outcome is not None
    state = run.outcome.state
    assert (state.state, state.done) == ({"quick": True}, ("quick",))
    assert [pending.step for pending in state.pending] == ["fails", "slow"]


@virtual
async def test_a_step_that_somebody_stops_alone_fails_the_flow() -> None:
    """It was not the flow that was stopped."""

    class Alone(Broken):
        @start()
        async def fails(self) -> None:
            await asyncio.sleep(100)

    run = Alone().run().start()
    await asyncio.sleep(1)
    assert await runtime().cancel(find(run, "slow"), "you alone", wait=True)
    result = await run.finished()
    assert (result.status, type(result.error).__name__, now()) == ("failed", "RunCancelled", 1)
    assert (await ends_of(run))["fails"] is CancelReason.SIBLING_FAILED


@virtual
@pytest.mark.parametrize("exit", [SystemExit, KeyboardInterrupt])
async def test_an_exit_in_a_step_surfaces_in_whoever_waits(exit: type[BaseException]) -> None:
    class Exits(Flow):
        @start()
        async def step(self) -> None:
            raise exit("now")

    run = Exits().run()
    with pytest.raises(exit):
        await run
    assert run.is_failed


@virtual
async def test_a_router_that_chooses_what_it_has_not_said_fails_clearly() -> None:
    class Lies(Flow):
        @router()
        async def choose(self) -> Literal["left", "right"]:
            return "up"  # pyright: ignore

    result = await Lies().run().finished()
    assert isinstance(result.error, UsageError)
    assert str(result.error) == "router 'choose' has chosen 'up'; its labels are 'left', 'right'"
    assert result.state.done == ()


@pytest.mark.loops
async def test_what_nobody_has_awaited_is_no_value() -> None:
    """A run that a plain step returns would never start."""

    class Forgets(Flow):
        @start()
        def step(self) -> Any:
            return Agent(Scripted("never")).run("hi")

    result = await Forgets().run().finished()
    assert isinstance(result.error, UsageError)
    assert "which nobody has awaited" in str(result.error)


@virtual
async def test_a_child_left_running_ends_with_its_step() -> None:
    """The next step begins when nothing of the one before is left."""
    slow = Agent(Scripted("one two three", pace=1), name="slow")

    @runnable
    async def told(ctx: Any) -> None:
        ctx.emit("told")

    class Leaves(Flow):
        @start()
        async def a(self, ctx: Any) -> None:
            ctx.start(slow, "hi")
            await asyncio.sleep(1.5)

        @listen(a)
        async def b(self) -> None:
            await told.run()

    run = Leaves().run()
    await run
    assert list((await ends_of(run)).items())[:3] == [
        ("slow", CancelReason.PARENT_FINISHED),
        ("a", "run.completed"),
        ("told", "run.completed"),
    ]
