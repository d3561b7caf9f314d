"""The tool calls of a turn: when they begin, how each ends, and what the model and the receipt are told of it."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import pytest

from halter import Agent, Budget, CancelMode, Run, RunFailed, RunResult, RunStatus, events, tool
from halter.core.call import RETRY_DELAY
from halter.core.history import MAY_HAVE_RUN, NOT_RUN
from halter.hooks import Hooks
from halter.messages import Message, ToolCall, ToolResult
from halter.models.scripted import Answer, Scripted, calls
from halter.outcome import Ended
from halter.testing import Sweep, SweepOutcome, cancel_sweep
from halter.tools import ToolContext, ToolError

virtual = pytest.mark.virtual_time


@pytest.fixture(autouse=True)
def _quiet(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.CRITICAL, "halter")


def agent_of(*tools: Any, script: tuple[Answer, ...] = (), **options: Any) -> Agent[Any]:
    """An agent that calls each of its tools once, then says done."""
    names = [getattr(each, "name", None) or each.__name__ for each in tools]
    return Agent(Scripted(*(script or (tuple(calls(name) for name in names), "done"))), tools=tools, **options)


async def stopped(run: Run[Any], after: float, mode: CancelMode = CancelMode.IMMEDIATE) -> RunResult[Any]:
    run.start()
    await asyncio.sleep(after)
    assert run.cancel(mode=mode)
    return await run.finished()


def results_in(result: RunResult[Any]) -> list[str]:
    return [part.content for message in result.messages for part in message.parts if isinstance(part, ToolResult)]


async def ends_in(run: Run[Any]) -> list[tuple[str, str]]:
    """The name and the outcome of each call, as they ended."""
    return [(event.name, event.outcome) async for event in run.events() if isinstance(event, events.ToolFinished)]


def lines_of(result: RunResult[Any]) -> dict[str, Ended]:
    assert result.receipt is not None
    return {line.label: line.ended for line in result.receipt.resources}


def now() -> float:
    return asyncio.get_running_loop().time()


async def sleeper() -> str:
    await asyncio.sleep(100)
    return "slept"


# --- immediate ----------------------------------------------------------------------------------------------


@pytest.mark.scenario("C27")
@virtual
async def test_an_async_tool_is_told_of_a_stop_at_once_and_its_call_is_sealed() -> None:
    """It gets one `CancelledError`; the model will read that it may have run; the run does not wait for anything."""
    told: list[float] = []

    async def work() -> None:
        try:
            await asyncio.sleep(100)
        except asyncio.CancelledError:
            told.append(now())
            raise

    run = agent_of(work).run("hi")
    result = await stopped(run, 1)
    assert told == [1]
    assert now() == 1
    assert results_in(result) == [MAY_HAVE_RUN]
    assert result.messages[-1].interrupted
    assert await ends_in(run) == [("work", "cancelled")]
    assert lines_of(result) == {"agent": "cancelled", "work": "cancelled"}
    assert result.receipt is not None
    assert result.receipt.confirmed


@pytest.mark.scenario("C30")
@virtual
async def test_of_three_calls_in_a_row_a_stop_in_the_first_keeps_the_others_from_beginning() -> None:
    """They never run, and are told as such; the model is not asked again."""
    begun: list[str] = []

    def make(name: str) -> Any:
        async def work() -> None:
            begun.append(name)
            await asyncio.sleep(100)

        return tool(work, name=name)

    run = agent_of(make("a"), make("b"), make("c"), parallel_tools=False).run("hi")
    result = await stopped(run, 1)
    assert begun == ["a"]
    assert results_in(result) == [MAY_HAVE_RUN, NOT_RUN, NOT_RUN]
    log = [event async for event in run.events()]
    assert [event.type for event in log].count("model.requested") == 1
    assert [event.type for event in log].count("tool.started") == 1
    assert [event.outcome for event in log if isinstance(event, events.ToolFinished)] == ["cancelled"] * 3


@pytest.mark.scenario("C30")
@virtual
async def test_three_calls_at_once_have_all_ended_before_the_terminal_event() -> None:
    """Also those that clean up; nothing of them is left behind."""
    ended: list[float] = []

    def make(name: str, seconds: float) -> Any:
        async def work() -> None:
            try:
                await asyncio.sleep(100)
            finally:
                await asyncio.sleep(seconds)
                ended.append(now())

        return tool(work, name=name)

    run = agent_of(make("a", 0), make("b", 1), make("c", 2)).run("hi", grace=10)
    result = await stopped(run, 1)
    assert ended == [1, 2, 3]
    assert now() == 3
    assert await ends_in(run) == [("a", "cancelled"), ("b", "cancelled"), ("c", "cancelled")]
    assert result.receipt is not None
    assert result.receipt.confirmed


@pytest.mark.scenario("B18", "C27", "C30", "D41")
@pytest.mark.parametrize("in_order", [True, False])
@pytest.mark.parametrize("mode", CancelMode)
def test_a_stop_at_any_step_of_a_turn_gives_each_call_one_truthful_result(mode: CancelMode, in_order: bool) -> None:
    """At each step of the loop: what is told to have run has run, what is told not to, has not."""
    seen: set[str] = set()

    async def scenario(sweep: Sweep) -> Any:
        begun: list[str] = []
        returned: list[str] = []

        async def work(name: str) -> str:
            begun.append(name)
            await asyncio.sleep(1)
            returned.append(name)
            return name

        script = Scripted(tuple(calls("work", name=name) for name in "ab"), "done")
        run = Agent(script, tools=[work], parallel_tools=not in_order).run("hi")
        sweep.cancel = lambda: run.cancel(mode=mode)
        result = await run.finished()
        return result, begun, returned, [event async for event in run.events()]

    def check(outcome: SweepOutcome) -> None:
        result, begun, returned, log = outcome.result
        called = [event.call_id for event in log if isinstance(event, events.ToolCalled)]
        assert sorted(called) == sorted(event.call_id for event in log if isinstance(event, events.ToolFinished))
        told = results_in(result)
        assert len(told) == sum(len(message.tool_calls) for message in result.messages)
        for name, text in zip("ab", told, strict=False):
            assert (text == NOT_RUN) == (name not in begun)
            assert (text == name) == (name in returned)
        seen.update(told)

    assert cancel_sweep(scenario, check=check) > 10
    assert "a" in seen
    if mode.cuts:
        assert NOT_RUN in seen


@virtual
async def test_a_stop_between_the_answer_and_its_calls_ends_these_in_the_log_too() -> None:
    """Each `tool.called` has its `tool.finished`, also where a hook had the run wait before the calls were made."""

    class Slow(Hooks):
        async def after_model(self, ctx: Any, answer: Any) -> None:
            await asyncio.sleep(100)

    run = agent_of(sleeper, hooks=Slow()).run("hi")
    result = await stopped(run, 1)
    assert await ends_in(run) == [("sleeper", "cancelled")]
    assert results_in(result) == [NOT_RUN]


# --- calls that may finish ----------------------------------------------------------------------------------


@pytest.mark.scenario("C31")
@virtual
async def test_a_call_that_must_finish_finishes_within_the_grace_and_its_result_is_kept() -> None:
    """It is not cancelled at all, and its token is not either."""
    seen: list[bool] = []

    @tool(cancel="must_finish")
    async def save(ctx: ToolContext) -> str:
        await asyncio.sleep(3)
        seen.append(ctx.token.is_cancelled)
        return "saved"

    run = agent_of(save, sleeper).run("hi", grace=5)
    result = await stopped(run, 1)
    assert now() == 3
    assert seen == [False]
    assert results_in(result) == ["saved", MAY_HAVE_RUN]
    assert lines_of(result) == {"agent": "cancelled", "save": "finished", "sleeper": "cancelled"}
    assert result.is_cancelled


@pytest.mark.scenario("C31")
@virtual
async def test_a_call_that_must_finish_is_abandoned_and_named_when_the_grace_is_over() -> None:
    """With the place where it is."""

    @tool(cancel="must_finish")
    async def save() -> None:
        await asyncio.sleep(60)

    run = agent_of(save).run("hi", grace=2)
    result = await stopped(run, 1)
    assert now() == 3
    assert results_in(result) == [MAY_HAVE_RUN]
    assert await ends_in(run) == [("save", "abandoned")]
    (label,) = [label for label, ended in lines_of(result).items() if ended == "abandoned"]
    assert "test_calls.py:" in label
    assert result.receipt is not None
    assert not result.receipt.confirmed


@pytest.mark.scenario("C31")
@virtual
async def test_a_call_that_must_finish_and_has_not_begun_never_does() -> None:
    """It waits for somebody's yes, or for its place: a stop ends that."""
    begun: list[str] = []

    @tool(cancel="must_finish", approval="always")
    async def save() -> None:
        begun.append("save")

    run = agent_of(save).run("hi")
    result = await stopped(run, 1)
    assert now() == 1
    assert not begun
    assert results_in(result) == [NOT_RUN]


@pytest.mark.scenario("C31", "C34")
@virtual
async def test_what_a_call_that_must_finish_has_started_goes_on_with_it() -> None:
    """A child run and a resource of the call are left alone until it has ended."""
    closed: list[float] = []
    child = Agent(Scripted("one two three", pace=1), name="child")

    @tool(cancel="must_finish")
    async def save(ctx: ToolContext) -> str:
        ctx.resource("thing", "its thing", lambda: closed.append(now()))
        return (await ctx.start(child, "go")).text

    result = await stopped(agent_of(save).run("hi", grace=10), 1)
    assert now() == 3
    assert closed == [3]
    assert results_in(result) == ["one two three"]


@pytest.mark.scenario("C31", "J89")
@virtual
async def test_a_spared_child_that_is_stopped_in_the_moment_it_is_given_up_announces_its_stop() -> None:
    """Each `run.cancelled` has its `run.cancelling`, though the grace was over before the loop heard of the stop."""
    child = Agent(Scripted("one two three", pace=10), name="child")

    @tool(cancel="must_finish")
    async def save(ctx: ToolContext) -> None:
        inner = ctx.start(child, "go")
        asyncio.get_running_loop().call_at(2, inner.cancel, "its own")
        await inner

    run = agent_of(save).run("hi", grace=1)
    await stopped(run, 1)
    log = [event async for event in run.events()]
    announced = [event.run_id for event in log if isinstance(event, events.Cancelling)]
    ended = [event.run_id for event in log if isinstance(event, events.Cancelled)]
    assert len(ended) == 2
    assert sorted(announced) == sorted(ended)


@pytest.mark.scenario("C32")
@virtual
async def test_drain_tools_lets_running_calls_finish_and_nothing_new_begin() -> None:
    """The model of a child run stops now; the run ends when the last call has."""
    child = Agent(Scripted("one two three four", pace=1), name="child", description="Counts.")

    async def work() -> str:
        await asyncio.sleep(3)
        return "worked"

    begun: list[str] = []

    async def later() -> None:
        begun.append("later")

    script = ((calls("work"), calls("child", input="go")), calls("later"), "done")
    run = agent_of(work, child, later, script=script).run("hi", grace=10)
    result = await stopped(run, 1.5, CancelMode.DRAIN_TOOLS)
    assert now() == 3
    assert results_in(result)[0] == "worked"
    assert not begun
    log = [event async for event in run.events()]
    ended = {event.run_id: event for event in log if event.is_terminal}
    (of_the_child,) = [event for id, event in ended.items() if id != run.id]
    assert (of_the_child.type, of_the_child.text) == ("run.cancelled", "one ")  # pyright: ignore
    assert [event.type for event in log].count("model.requested") == 2


@pytest.mark.scenario("B25", "C32")
@virtual
async def test_a_stop_of_calls_escalates_from_drain_to_immediate_to_kill() -> None:
    """Drained, it goes on; cut, it is told, but must finish; killed, it is let go of at once."""
    told: list[float] = []

    async def work() -> None:
        try:
            await asyncio.sleep(100)
        except asyncio.CancelledError:
            told.append(now())
            raise

    @tool(cancel="must_finish")
    async def save() -> None:
        await asyncio.sleep(100)

    run = agent_of(work, save).run("hi", grace=60).start()
    for mode in (CancelMode.DRAIN_TOOLS, CancelMode.IMMEDIATE, CancelMode.KILL):
        await asyncio.sleep(1)
        assert not run.is_done
        run.cancel(f"by {mode}", mode=mode)
    result = await run.finished()
    assert (now(), told) == (3, [2])
    assert await ends_in(run) == [("work", "cancelled"), ("save", "cancelled")]
    assert result.cancellation is not None
    assert (result.cancellation.message, result.cancellation.mode) == ("by drain_tools", "kill")


@pytest.mark.scenario("B25")
@pytest.mark.parametrize("in_order", [True, False])
@virtual
async def test_after_turn_lets_all_calls_of_the_turn_run_and_asks_no_model_again(in_order: bool) -> None:
    """Also those that had not begun: they belong to the turn. Their results are no interrupted ones."""

    async def work() -> str:
        await asyncio.sleep(2)
        return "worked"

    script = ((calls("work"), calls("work")), "done")
    run = agent_of(work, script=script, parallel_tools=not in_order).run("hi")
    result = await stopped(run, 1, CancelMode.AFTER_TURN)
    assert now() == (4 if in_order else 2)
    assert results_in(result) == ["worked", "worked"]
    assert not any(message.interrupted for message in result.messages[:-1])
    assert result.messages[-1] == Message("assistant", (), interrupted=True)  # the model is to know of the stop
    assert result.is_cancelled
    assert [event.type async for event in run.events()].count("model.requested") == 1


# --- calls that do not end ----------------------------------------------------------------------------------


@pytest.mark.scenario("C33")
@virtual
async def test_clean_up_that_awaits_completes_within_half_the_grace() -> None:
    """A rollback in `finally` is not cut short."""
    rolled_back: list[float] = []

    async def work() -> None:
        try:
            await asyncio.sleep(100)
        finally:
            await asyncio.sleep(1.9)
            rolled_back.append(now())

    result = await stopped(agent_of(work).run("hi", grace=4), 1)
    assert rolled_back == [2.9]
    assert now() == 2.9
    assert result.receipt is not None
    assert result.receipt.confirmed


@pytest.mark.scenario("C33")
@virtual
async def test_a_tool_that_swallows_its_cancellation_is_named_at_the_end_of_the_grace() -> None:
    """It gets one, ten more from half the grace on, and one at its end; then the run is over without it."""
    told: list[float] = []

    async def deaf() -> str:
        while now() < 30:
            try:
                await asyncio.sleep(100)
            except asyncio.CancelledError:
                told.append(now())
        return "too late"

    run = agent_of(deaf).run("hi", grace=4)
    result = await stopped(run, 1)
    assert now() == 5
    assert await ends_in(run) == [("deaf", "abandoned")]
    (label,) = [label for label, ended in lines_of(result).items() if ended == "abandoned"]
    assert "deaf (" in label
    assert "test_calls.py:" in label
    await asyncio.sleep(1)
    assert told == pytest.approx([1, *(3 + 0.2 * number for number in range(10)), 5])
    log = [event async for event in run.events()]
    for task in asyncio.all_tasks() - {asyncio.current_task()}:
        while not task.done():
            await asyncio.sleep(10)
            task.cancel()
    assert [event async for event in run.events()] == log, "an ended log never grows"


# --- time-outs, attempts, places ----------------------------------------------------------------------------


@virtual
async def test_a_call_that_takes_too_long_is_ended_and_the_run_goes_on() -> None:
    """The model is told; the time-out is the call's alone."""

    @tool(timeout=2)
    async def slow(ctx: ToolContext) -> None:
        assert ctx.timeout == 2
        await asyncio.sleep(100)

    run = agent_of(slow).run("hi")
    result = await run
    assert now() == 2
    assert results_in(result) == ["This call took too long and was ended: part of it may have taken effect."]
    assert await ends_in(run) == [("slow", "error")]
    assert result.text == "done"


@virtual
async def test_a_call_that_ignores_its_time_out_is_abandoned_and_what_it_comes_to_is_late() -> None:
    """Told once, as `tool.late`, while the run goes on; the conversation keeps what it was told first."""

    @tool(timeout=1)
    async def deaf() -> str:
        while now() < 6:  # from 2 on
            with suppress(asyncio.CancelledError):
                await asyncio.sleep(6 - now())
        return "at last"

    run = Agent(Scripted(calls("deaf"), "one two three four five six", pace=2), tools=[deaf]).run("hi", grace=2)
    result = await run
    late = [event async for event in run.events() if isinstance(event, events.ToolLate)]
    assert [(event.outcome, event.result) for event in late] == [("ok", "at last")]
    assert results_in(result) == [MAY_HAVE_RUN]


@virtual
async def test_a_call_that_swallows_its_time_out_twice_is_told_again() -> None:
    """In the second half of the grace, until it ends: it is not abandoned."""
    swallowed: list[float] = []

    @tool(timeout=1)
    async def stubborn() -> str:
        """Goes on twice."""
        while True:
            try:
                await asyncio.sleep(1000)
            except asyncio.CancelledError:
                if len(swallowed) == 2:
                    raise
                swallowed.append(now())

    run = agent_of(stubborn).run("hi", grace=4)
    assert (await run).text == "done"
    assert swallowed == [1, 3]
    assert now() == pytest.approx(3.2)


@virtual
async def test_the_runs_that_a_call_has_started_end_at_its_time_out() -> None:
    """As timed out; the call's tasks too."""
    child = Agent(Scripted("one two three four", pace=10), name="child")
    ended: list[float] = []

    async def watch() -> None:
        try:
            await asyncio.sleep(100)
        finally:
            ended.append(now())

    @tool(timeout=1)
    async def slow(ctx: ToolContext) -> None:
        ctx.spawn(watch())
        await ctx.start(child, "go")

    run = agent_of(slow).run("hi")
    await run
    assert ended == [1]
    reasons = [event.reason async for event in run.events() if isinstance(event, events.Cancelled)]
    assert reasons == ["timeout"]


@virtual
async def test_a_call_that_raises_is_tried_again_after_growing_delays() -> None:
    """As often as its tool allows; `ToolError` says that trying again is of no use."""
    tried: list[float] = []

    @tool(retries=2)
    async def flaky() -> str:
        tried.append(now())
        if len(tried) < 3:
            raise ConnectionError("gone")
        return "here"

    assert results_in(await agent_of(flaky).run("hi")) == ["here"]
    assert tried == [0, pytest.approx(RETRY_DELAY), pytest.approx(3 * RETRY_DELAY)]

    attempts: list[int] = []

    @tool(retries=2)
    async def refuses() -> str:
        attempts.append(1)
        raise ToolError("there is no such city")

    assert results_in(await agent_of(refuses).run("hi")) == ["there is no such city"]
    assert len(attempts) == 1


@virtual
async def test_a_stop_ends_the_wait_for_another_attempt() -> None:
    """A stop causes no attempt."""
    tried: list[float] = []

    @tool(retries=5)
    async def flaky() -> str:
        tried.append(now())
        raise ConnectionError("gone")

    result = await stopped(agent_of(flaky).run("hi"), RETRY_DELAY / 2)
    await asyncio.sleep(10)
    assert tried == [0]
    assert results_in(result) == [MAY_HAVE_RUN]


@virtual
async def test_as_many_calls_run_at_once_as_their_tool_allows_over_all_runs() -> None:
    """Waiting ones have not begun: a stop of their run takes them out of the row, and the others come to theirs."""
    running: list[int] = [0, 0]

    @tool(max_concurrency=2)
    async def narrow() -> str:
        running[0] += 1
        running[1] = max(running)
        await asyncio.sleep(1)
        running[0] -= 1
        return "ok"

    agent = agent_of(narrow, script=((calls("narrow"), calls("narrow"), calls("narrow")), "done"))
    first, second = agent.run("hi").start(), agent.run("hi").start()
    await asyncio.sleep(0.5)
    second.cancel()
    assert results_in(await second.finished()) == [NOT_RUN] * 3
    assert results_in(await first) == ["ok"] * 3
    assert now() == 2
    assert running == [0, 2]


@pytest.mark.scenario("B24")
@virtual
async def test_a_budget_of_tool_calls_stops_the_run_and_what_it_kept_from_running_is_told_as_such() -> None:
    """Three of six run; the others have not begun, and their compensation is not asked to undo anything."""
    begun: list[int] = []
    undone: list[int] = []

    async def undo(x: int) -> None:
        undone.append(x)

    @tool(compensate=undo)
    async def work(x: int) -> str:
        begun.append(x)
        return "worked"

    script = Scripted(tuple(calls("work", x=x) for x in range(6)), "done")
    run = Agent(script, tools=[work]).run("hi", budget=Budget(tool_calls=3))
    result = await run.finished()
    assert result.cancellation is not None
    assert result.cancellation.reason == "budget_calls"
    assert begun == [0, 1, 2]
    assert not undone
    assert results_in(result) == ["worked"] * 3 + [NOT_RUN] * 3


# --- undoing ------------------------------------------------------------------------------------------------


def undoable(seconds: float, undone: list[float], **options: Any) -> Any:
    async def undo(x: int = 0) -> None:
        await asyncio.sleep(seconds)
        undone.append(now())

    async def work(x: int = 0) -> None:
        await asyncio.sleep(100)

    return tool(work, compensate=undo, **options)


@virtual
async def test_a_call_that_was_cut_short_is_undone_with_the_whole_grace() -> None:
    """Past half the grace, and past the call's own time-out; the model is told."""
    undone: list[float] = []
    run = agent_of(undoable(4, undone, timeout=2)).run("hi", grace=5)
    result = await stopped(run, 1)
    assert undone == [5]
    assert results_in(result) == [f"{MAY_HAVE_RUN} What it had done was undone."]
    assert await ends_in(run) == [("work", "cancelled")]
    assert result.receipt is not None
    assert result.receipt.confirmed


@virtual
async def test_a_call_that_took_too_long_is_undone_and_the_run_goes_on() -> None:
    """The same at its time-out."""
    undone: list[float] = []
    result = await agent_of(undoable(3, undone, timeout=1)).run("hi", grace=5)
    assert undone == [4]
    assert results_in(result)[0].endswith("What it had done was undone.")


@virtual
async def test_an_undoing_that_does_not_end_is_abandoned_and_one_that_fails_is_told() -> None:
    """Neither holds up a stop for longer than the grace, or the run for longer than that."""
    run = agent_of(undoable(100, [])).run("hi", grace=5)
    result = await stopped(run, 1)
    assert now() == 6
    assert await ends_in(run) == [("work", "abandoned")]
    assert results_in(result) == [MAY_HAVE_RUN]

    async def undo() -> None:
        raise OSError("disk full")

    async def work() -> None:
        await asyncio.sleep(100)

    result = await stopped(agent_of(tool(work, compensate=undo)).run("hi"), 1)
    assert results_in(result) == [f"{MAY_HAVE_RUN} Undoing it failed: disk full"]


@virtual
async def test_a_call_that_ended_by_itself_is_not_undone() -> None:
    """Done is done, and what failed is the tool's own business."""
    undone: list[str] = []

    async def work() -> str:
        return "worked"

    async def fails() -> None:
        raise OSError("disk full")

    tools = [tool(fn, compensate=lambda: undone.append("undone")) for fn in (work, fails)]
    assert results_in(await agent_of(*tools).run("hi")) == ["worked", "OSError: disk full"]
    assert not undone


# --- what goes wrong ----------------------------------------------------------------------------------------


@virtual
async def test_whatever_a_tool_raises_goes_to_the_model_and_the_run_goes_on() -> None:
    """Also a `CancelledError` of its own; without a traceback, and bounded."""

    async def by_hand() -> None:
        raise asyncio.CancelledError

    async def bug() -> None:
        raise KeyError("city")

    async def long() -> None:
        raise ValueError("x" * 1_000_000)

    result = await agent_of(by_hand, bug, long).run("hi")
    by_hand_told, bug_told, long_told = results_in(result)
    assert (by_hand_told, bug_told) == ("CancelledError", "KeyError: 'city'")
    assert long_told.startswith("ValueError: xxx")
    assert len(long_told) < 101_000
    assert result.text == "done"


@virtual
async def test_a_short_bound_of_results_does_not_hide_what_went_wrong() -> None:
    """`max_result` is for results; what is wrong with a call is told whole."""

    @tool(max_result=10)
    async def look(city: str) -> None:
        raise ToolError("there is no such city, but there is another one")

    script = Scripted((calls("look"), calls("look", city="X")), "done")
    missing, raised = results_in(await Agent(script, tools=[look]).run("hi"))
    assert missing == "The call was not made, its arguments are wrong: the argument 'city' is missing."
    assert raised == "there is no such city, but there is another one"


@pytest.mark.scenario("B26")
@pytest.mark.parametrize("kind", [SystemExit, KeyboardInterrupt], ids=lambda kind: kind.__name__)
@pytest.mark.parametrize("place", ["tool", "before_tool", "after_tool", "spawned", "closed"])
@virtual
async def test_an_exit_in_a_tool_surfaces_in_whoever_waits_and_never_in_the_loop(
    kind: type[BaseException], place: str
) -> None:
    """From wherever it is raised around a call; another run goes on; the history is whole."""

    class Exiting(Hooks):
        def before_tool(self, ctx: Any, call: Any) -> None:
            if place == "before_tool":
                raise kind("out")

        def after_tool(self, ctx: Any, call: Any, result: Any) -> None:
            if place == "after_tool":
                raise kind("out")

    async def out() -> None:
        raise kind("out")

    async def work(ctx: ToolContext) -> str:
        if place == "tool":
            raise kind("out")
        if place == "spawned":
            ctx.spawn(out())
        if place == "closed":
            ctx.resource("thing", "thing", out)
        await asyncio.sleep(1)
        return "worked"

    other = Agent(Scripted("one two three", pace=1)).run("hi").start()
    run = agent_of(work, hooks=Exiting()).run("hi")
    if place == "closed":
        assert (await run).text == "done"  # what is closed behind a call is logged, and harms nobody
    else:
        with pytest.raises(kind, match="out"):
            await run
        assert run.outcome is not None
        assert run.outcome.is_failed
        assert len(results_in(run.outcome)) == 1
    assert (await other).text == "one two three"


@pytest.mark.parametrize("place", ["tool", "thread", "before_tool", "after_tool", "compensate"])
@virtual
async def test_an_exception_of_an_unusual_kind_is_told_to_the_model_and_the_run_goes_on(place: str) -> None:
    """As `pytest.fail` and some libraries' cancellations are: no `Exception`, and no wish to end the process."""

    class Unusual(BaseException):
        pass

    class Raising(Hooks):
        def before_tool(self, ctx: Any, call: Any) -> None:
            if place == "before_tool":
                raise Unusual("odd")

        def after_tool(self, ctx: Any, call: Any, result: Any) -> None:
            if place == "after_tool":
                raise Unusual("odd")

    async def raising() -> str:
        if place == "compensate":
            await asyncio.sleep(60)
        if place == "tool":
            raise Unusual("odd")
        return "worked"

    def in_thread() -> str:
        raise Unusual("odd")

    def undo() -> None:
        raise Unusual("odd")

    work = tool(in_thread if place == "thread" else raising, name="work", compensate=undo, timeout=1)
    result = await agent_of(work, hooks=Raising()).run("hi")
    assert result.text == "done"
    [told] = results_in(result)
    expected = "Undoing it failed: odd" if place == "compensate" else "Unusual: odd"
    assert expected in told


@virtual
async def test_an_exit_in_a_group_of_exceptions_ends_the_run() -> None:
    async def work() -> None:
        raise BaseExceptionGroup("several", [ValueError("one"), BaseExceptionGroup("more", [SystemExit(3)])])

    with pytest.raises(BaseExceptionGroup, match="several"):
        await agent_of(work).run("hi")


@virtual
async def test_calls_with_equal_ids_without_ids_and_without_sense_have_one_result_each() -> None:
    """Fifty of one id in one answer; arguments that are no JSON, no object, too deep; a tool that is not there."""
    seen: list[int] = []

    async def work(x: int) -> str:
        seen.append(x)
        return f"r{x}"

    same = tuple(ToolCall("same", "work", f'{{"x": {x}}}') for x in range(50))
    result = await Agent(Scripted(same, "done"), tools=[work]).run("hi")
    assert results_in(result) == [f"r{x}" for x in range(50)]
    assert sorted(seen) == list(range(50))

    wrong = ('{"x": 1', "[1]", "null", '{"x": "1"}', '{"y": 1}', "[" * 100_000, "\x00")
    senseless = (*(ToolCall("", "work", text) for text in wrong), ToolCall("", "nowhere", "{}"), ToolCall("", "", ""))
    seen.clear()
    run = Agent(Scripted(senseless, "done"), tools=[work]).run("hi")
    result = await run
    assert not seen
    assert len({part.call_id for part in result.messages[2].parts if isinstance(part, ToolResult)}) == len(senseless)
    assert [outcome for _, outcome in await ends_in(run)] == ["error"] * len(senseless)
    assert "There is no tool 'nowhere'. There are: work." in results_in(result)


# --- hooks around a call ------------------------------------------------------------------------------------


def hooked(**methods: Callable[..., Any]) -> Hooks:
    return type("Hooked", (Hooks,), {name: staticmethod(fn) for name, fn in methods.items()})()


@virtual
async def test_the_rules_of_a_call_are_those_of_the_tool_that_a_hook_has_chosen() -> None:
    """It must finish, so it does; what it shows and gives is under the id that the model knows."""

    async def look() -> str:
        return "looked"

    @tool(cancel="must_finish")
    async def save() -> str:
        await asyncio.sleep(2)
        return "saved"

    def choose(ctx: ToolContext, call: ToolCall) -> ToolCall:
        return ToolCall(call.id, "save", "{}")

    agent = agent_of(look, save, script=(calls("look"), "done"), hooks=hooked(before_tool=choose))
    result = await stopped(agent.run("hi"), 1)
    assert results_in(result) == ["saved"]


@virtual
@pytest.mark.parametrize(
    ("raised", "told"),
    [(ValueError("v"), "ValueError: v"), (ToolError("refused"), "refused"), (OSError("x" * 500_000), "OSError: xx")],
    ids=["ValueError", "ToolError", "long"],
)
@pytest.mark.parametrize("name", ["before_tool", "after_tool"])
async def test_a_hook_that_raises_fails_the_call_and_the_model_is_told(
    name: str, raised: Exception, told: str, caplog: pytest.LogCaptureFixture
) -> None:
    """The run goes on; nobody is asked to report a failure of the machinery."""
    caplog.set_level(logging.ERROR, "halter")

    def fail(*_: Any) -> None:
        raise raised

    async def work() -> str:
        return "worked"

    run = agent_of(work, hooks=hooked(**{name: fail})).run("hi")
    result = await run
    assert results_in(result)[0].startswith(told)
    assert await ends_in(run) == [("work", "error")]
    assert not caplog.records


@virtual
@pytest.mark.parametrize("name", ["before_tool", "after_tool"])
async def test_a_hook_that_returns_nonsense_fails_the_call_and_says_so(name: str) -> None:
    """A number is neither a call nor a text: it never gets into the conversation."""

    async def work() -> str:
        return "worked"

    def nonsense(*_: Any) -> int:
        return 7

    result = await agent_of(work, hooks=hooked(**{name: nonsense})).run("hi")
    assert f"UsageError: {name} returns" in results_in(result)[0]


@virtual
async def test_a_run_with_a_failing_child_tool_tells_its_model_and_fails_nothing() -> None:
    """An agent as a tool that fails or is stopped alone is one error among others."""
    broken = Agent(Scripted(calls("nothing")), name="broken", max_turns=1)
    result = await agent_of(broken, script=(calls("broken", input="go"), "done")).run("hi")
    assert results_in(result)[0].startswith("TurnsExhausted: ")
    assert result.status is RunStatus.COMPLETED


@virtual
async def test_the_answer_that_calls_tools_in_the_last_turn_fails_the_run_when_they_have_run() -> None:
    """`TurnsExhausted`; the calls have their results."""

    async def work() -> str:
        return "worked"

    with pytest.raises(RunFailed, match="after 2 turns") as caught:
        await agent_of(work, script=(calls("work"),), max_turns=2).run("hi")
    assert caught.value.result is not None
    assert results_in(caught.value.result) == ["worked", "worked"]
