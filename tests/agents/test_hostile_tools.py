"""Tools that do what no tool should: each stop still ends within its grace, and the receipt tells the truth.

In real time: threads, forked processes and loops that do not answer.
"""

from __future__ import annotations

import asyncio
import logging
import os
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from halter import Agent, CancelReason, Run, RunResult, current_run, events, runtime, tool
from halter.core.history import MAY_HAVE_RUN
from halter.errors import BlockingCallError, BusyError, UsageError
from halter.messages import ToolResult
from halter.models.scripted import Scripted, calls
from halter.outcome import Ended
from halter.tools import ToolContext

from ..bounds import T, assert_within
from .loops import in_real_time

pytestmark = pytest.mark.usefixtures("quiet")


def agent_of(*tools: Any, pace: float = 0.0, **options: Any) -> Agent[Any]:
    names = [getattr(each, "name", None) or each.__name__ for each in tools]
    return Agent(Scripted(tuple(calls(name) for name in names), "done and over", pace=pace), tools=tools, **options)


async def stopped(run: Run[Any], when: Callable[[], bool]) -> tuple[RunResult[Any], float]:
    """The result, and how long the stop took."""
    run.start()
    await until(when)
    began = time.monotonic()
    run.cancel("enough")
    result = await run.finished()
    return result, time.monotonic() - began


def told(result: RunResult[Any]) -> list[str]:
    return [part.content for message in result.messages for part in message.parts if isinstance(part, ToolResult)]


def line_of(result: RunResult[Any], kind: str) -> tuple[str, Ended]:
    assert result.receipt is not None
    (line,) = [line for line in result.receipt.resources if line.kind == kind]
    return line.label, line.ended


async def until(condition: Callable[[], bool], within: float = 5.0) -> None:
    end = time.monotonic() + within
    while not condition():
        assert time.monotonic() < end, "it has not happened"
        await asyncio.sleep(0.005)


# --- threads ------------------------------------------------------------------------------------------------


@pytest.mark.scenario("C28")
@in_real_time
async def test_a_blocking_tool_is_abandoned_and_named_and_its_late_result_is_told_to_observers_alone() -> None:
    """The loop answers all the while; the ended log and the history do not grow."""
    begun, go_on = threading.Event(), threading.Event()

    def block() -> str:
        begun.set()
        go_on.wait(10)
        return "at last"

    seen: list[events.Event] = []
    observing = runtime().observe(seen.append)
    delays: list[float] = []

    async def look_at_the_loop() -> None:
        while True:
            before = time.monotonic()
            await asyncio.sleep(0.005)
            delays.append(time.monotonic() - before)

    looking = asyncio.create_task(look_at_the_loop())
    run = agent_of(block).run("hi", grace=5)
    result, took = await stopped(run, begun.is_set)
    looking.cancel()
    assert_within(T, took, "the stop")
    assert_within(0.1, max(delays), "the loop's answer")
    label, ended = line_of(result, "tool")
    assert ended == "abandoned"
    assert "block (" in label
    assert "test_hostile_tools.py:" in label
    assert told(result) == [MAY_HAVE_RUN]
    log = [event async for event in run.events()]
    go_on.set()
    await until(lambda: any(isinstance(event, events.ToolLate) for event in seen))
    (late,) = [event for event in seen if isinstance(event, events.ToolLate)]
    assert (late.run_id, late.outcome, late.result) == (run.id, "ok", "at last")
    assert [event async for event in run.events()] == log
    observing.close()


@pytest.mark.scenario("C28")
@in_real_time
async def test_late_values_and_errors_of_a_thread_harm_nobody() -> None:
    """A value that is no JSON, an exception, an exit: told as late errors, reported to no loop."""
    go_on = threading.Event()
    begun: list[str] = []

    def make(name: str, end: Callable[[], Any]) -> Any:
        def block() -> Any:
            begun.append(name)
            go_on.wait(10)
            return end()

        return tool(block, name=name)

    def leave() -> None:
        raise SystemExit(1)

    def fail() -> None:
        raise OSError("disk full")

    reported: list[Any] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: reported.append(context))
    seen: list[events.Event] = []
    observing = runtime().observe(seen.append)
    run = agent_of(make("a", object), make("b", leave), make("c", fail)).run("hi", grace=5)
    await stopped(run, lambda: len(begun) == 3)
    go_on.set()

    def late() -> dict[str, tuple[str, str]]:
        return {event.name: (event.outcome, event.result[:12]) for event in seen if isinstance(event, events.ToolLate)}

    await until(lambda: len(late()) == 3)
    assert late() == {"a": ("error", "ToolError: T"), "b": ("error", "SystemExit: "), "c": ("error", "OSError: dis")}
    assert not reported
    observing.close()


@pytest.mark.scenario("C28")
@in_real_time
async def test_a_blocking_tool_that_polls_its_token_ends_itself() -> None:
    """Within the 100 ms that a thread has; nothing is abandoned."""
    begun = threading.Event()

    def poll(ctx: ToolContext) -> None:
        begun.set()
        while True:
            ctx.token.raise_if_cancelled()
            time.sleep(0.005)

    result, took = await stopped(agent_of(poll).run("hi", grace=5), begun.is_set)
    assert_within(T, took, "the stop")
    assert line_of(result, "tool") == ("poll", "cancelled")
    assert result.receipt is not None
    assert result.receipt.confirmed


@in_real_time
async def test_what_a_thread_had_done_is_undone_with_the_whole_grace() -> None:
    """The short patience with threads is for the thread; what undoes it, blocking too, takes longer than that."""
    begun = threading.Event()
    undone: list[str] = []

    def undo() -> None:
        time.sleep(0.25)
        undone.append("undone")

    @tool(compensate=undo)
    def poll(ctx: ToolContext) -> None:
        begun.set()
        while not ctx.token.is_cancelled:
            time.sleep(0.005)
        ctx.token.raise_if_cancelled()

    result, _ = await stopped(agent_of(poll).run("hi", grace=5), begun.is_set)
    assert undone == ["undone"]
    assert told(result) == [f"{MAY_HAVE_RUN} What it had done was undone."]
    assert line_of(result, "tool") == ("poll", "cancelled")


@pytest.mark.scenario("C31")
@in_real_time
async def test_a_blocking_tool_that_must_finish_has_the_grace_and_its_result_is_kept() -> None:
    """Longer than the patience with other threads."""
    begun = threading.Event()

    @tool(cancel="must_finish")
    def save() -> str:
        begun.set()
        time.sleep(0.25)
        return "saved"

    result, _ = await stopped(agent_of(save).run("hi", grace=5), begun.is_set)
    assert told(result) == ["saved"]
    assert line_of(result, "tool") == ("save", "finished")


@in_real_time
async def test_a_thread_that_spins_is_abandoned() -> None:
    """It holds the interpreter as much as it can, and the stop is over all the same."""
    begun, over = threading.Event(), threading.Event()

    def spin() -> None:
        begun.set()
        while not over.is_set():
            pass

    result, took = await stopped(agent_of(spin).run("hi", grace=5), begun.is_set)
    over.set()
    assert_within(1.0, took, "the stop")
    assert line_of(result, "tool")[1] == "abandoned"


@in_real_time
async def test_a_flood_of_progress_from_a_thread_does_not_starve_a_stop() -> None:
    """A hundred thousand events; the flooding thread ends by the exception that `progress` raises after the cut."""
    begun = threading.Event()
    raised: list[BaseException] = []

    def flood(ctx: ToolContext) -> None:
        try:
            for number in range(100_000):
                ctx.progress(str(number))
                begun.set()
        except BaseException as error:
            raised.append(error)
            raise

    run = agent_of(flood).run("hi", grace=5)
    result, took = await stopped(run, begun.is_set)
    assert_within(1.0, took, "the stop")
    await until(lambda: bool(raised))
    assert type(raised[0]).__name__ == "RunCancelled"
    log = [event async for event in run.events()]
    cut = next(place for place, event in enumerate(log) if isinstance(event, events.Cancelling))
    assert not any(isinstance(event, events.ToolProgress) for event in log[cut:])
    assert result.is_cancelled


@in_real_time
async def test_all_of_a_flood_is_in_the_log_where_nobody_stops_it() -> None:
    """In order, before the call's end; neighbours may be merged, no content is lost."""

    def flood(ctx: ToolContext) -> str:
        for number in range(20_000):
            ctx.progress(f"{number} ")
        return "done"

    run = agent_of(flood).run("hi")
    await run
    log = [event async for event in run.events()]
    shown = "".join(event.text for event in log if isinstance(event, events.ToolProgress))
    assert shown.split() == [str(number) for number in range(20_000)]


@pytest.mark.scenario("J90")
@in_real_time
async def test_a_tool_that_forks_is_stopped_like_any_other() -> None:
    """The child has copies of all that is ours, and ends without touching it; the other calls go on."""
    forked = threading.Event()
    children: list[int] = []

    def forks() -> None:
        child = os.fork()
        if child == 0:
            time.sleep(1)
            os._exit(0)
        children.append(child)
        forked.set()
        os.waitpid(child, 0)

    result, took = await stopped(agent_of(forks).run("hi", grace=5), forked.is_set)
    assert_within(T, took, "the stop")
    assert line_of(result, "tool")[1] == "abandoned"
    assert (await Agent(Scripted("still here")).run("hi")).text == "still here"
    await until(lambda: not Path(f"/proc/{children[0]}").exists())


# --- a loop that does not answer ----------------------------------------------------------------------------


@pytest.mark.scenario("J90")
@in_real_time
async def test_a_coroutine_that_never_awaits_is_named_and_its_run_given_up_with_all_that_it_has(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Its tasks and resources are left to the loop: they are ended there when it answers again, and nowhere else."""
    caplog.set_level(logging.WARNING, "halter")
    here = threading.get_ident()
    over: list[bool] = []
    closed_in: list[int] = []
    ended: list[str] = []
    spinning = threading.Event()

    async def lie_low() -> None:
        try:
            await asyncio.sleep(60)
        finally:
            ended.append("task")

    async def spin(ctx: ToolContext) -> str:
        ctx.spawn(lie_low())
        ctx.resource("thing", "its thing", lambda: closed_in.append(threading.get_ident()))
        await asyncio.sleep(0)
        spinning.set()
        while not over:
            pass
        return "dizzy"

    run = agent_of(spin).run("hi", grace=0.3)
    seen: list[bool] = []

    def stop() -> None:
        assert spinning.wait(5)
        run.cancel("enough")
        end = time.monotonic() + 4
        while not run.is_done and time.monotonic() < end:
            time.sleep(0.01)
        seen.append(run.is_done)
        over.append(True)

    stopper = threading.Thread(target=stop)
    stopper.start()
    result = await run.finished()
    stopper.join()
    assert seen == [True], "the run must end while its loop does not answer"
    assert result.receipt is not None
    assert not result.receipt.confirmed
    assert {line.ended for line in result.receipt.resources} == {Ended.ABANDONED}
    assert told(result) == [MAY_HAVE_RUN]
    assert any("spin" in told and "test_hostile_tools.py" in told for told in caplog.messages)
    await until(lambda: bool(closed_in and ended))
    assert closed_in == [here]


def test_a_loop_closed_under_a_running_call_ends_the_run_where_that_is_noticed() -> None:
    """Not confirmed; blocking code that waits for it gets an answer, and the call is told to have maybe run."""
    loop = asyncio.new_event_loop()
    begun = asyncio.Event()

    async def work(ctx: ToolContext) -> None:
        ctx.resource("thing", "its thing", lambda: None)
        begun.set()
        await asyncio.sleep(60)

    async def begin() -> Run[Any]:
        run = agent_of(work).run("hi").start()
        await begun.wait()
        return run

    run = loop.run_until_complete(begin())
    tasks = asyncio.all_tasks(loop)
    loop.close()
    run.close(timeout=5)
    assert run.outcome is not None
    assert run.outcome.cancellation is not None
    assert told(run.outcome) == [MAY_HAVE_RUN]
    assert run.outcome.receipt is not None
    assert not run.outcome.receipt.confirmed
    for task in tasks:
        task._log_destroy_pending = False  # pyright: ignore[reportAttributeAccessIssue]


# --- calling back into the run ------------------------------------------------------------------------------


@in_real_time
async def test_a_tool_that_calls_back_into_its_run_gets_clear_errors_and_blocks_nothing() -> None:
    """Waiting for one's own end is refused in every form; looking, sending and stopping work."""
    raised: dict[str, type[BaseException] | None] = {}

    async def call_back(ctx: ToolContext) -> str:
        run = ctx.run
        attempts: dict[str, Callable[[], Any]] = {
            "wait": run.wait,
            "finished": run.finished,
            "result": run.result,
            "iterate": lambda: list(run),
            "answer": lambda: run.answer("nothing", True),
            "text": lambda: ctx.text("mine"),
            "progress": lambda: ctx.progress(7),  # type: ignore[arg-type]
            "current": current_run().wait,
            "aclose": run.aclose,
            "close": run.close,
        }
        for name, attempt in attempts.items():
            try:
                value = attempt()
                if asyncio.iscoroutine(value):
                    await value
                raised[name] = None
            except Exception as error:
                raised[name] = type(error)
        assert ctx.run.send("more") is False, "it is being stopped: by aclose and close"
        return "back"

    run = agent_of(call_back).run("hi", grace=2)
    result = await asyncio.wait_for(run.finished(), 5)
    busy, blocking = BusyError, BlockingCallError
    assert raised == {
        "wait": busy, "finished": busy, "current": busy, "aclose": busy, "result": blocking, "iterate": blocking,
        "close": blocking, "answer": UsageError, "text": UsageError, "progress": UsageError,
    }  # fmt: skip
    assert result.is_cancelled, "closing it from inside asks for its stop"


def test_a_blocking_tool_cannot_wait_for_its_own_run_and_the_blocking_caller_gets_its_result() -> None:
    """The same from a thread, and nobody hangs."""
    raised: list[type[BaseException]] = []

    def call_back(ctx: ToolContext) -> str:
        for attempt in (ctx.run.result, ctx.run.wait, lambda: ctx.run.answer("nothing", True)):
            try:
                pending = attempt()
                if asyncio.iscoroutine(pending):
                    pending.send(None)
            except Exception as error:
                raised.append(type(error))
        assert ctx.run.send("and this") is True
        return "back"

    result = agent_of(call_back).run("hi").result(timeout=10)
    assert raised == [BusyError, BusyError, UsageError]
    assert [message.text for message in result.messages][3:] == ["and this", "done and over"]


@pytest.mark.scenario("J89")
@in_real_time
async def test_children_that_a_tool_leaves_behind_end_with_the_run() -> None:
    """They outlive the call, as they may, and not the run."""
    child = Agent(Scripted("one two three four five", pace=1), name="child")

    async def leave(ctx: ToolContext) -> str:
        ctx.start(child, "go")
        return "left"

    run = agent_of(leave).run("hi")
    await run
    ended = [event async for event in run.events() if event.is_terminal]
    assert [event.type for event in ended] == ["run.cancelled", "run.completed"]
    assert isinstance(ended[0], events.Cancelled)
    assert ended[0].reason is CancelReason.PARENT_FINISHED


# --- exits --------------------------------------------------------------------------------------------------


@pytest.mark.scenario("B26")
@pytest.mark.parametrize("kind", [SystemExit, KeyboardInterrupt], ids=lambda kind: kind.__name__)
@pytest.mark.parametrize("blocking", [True, False], ids=["thread", "coroutine"])
def test_an_exit_in_a_tool_surfaces_in_the_blocking_caller_and_other_blocking_runs_go_on(
    kind: type[BaseException], blocking: bool
) -> None:
    """The background loop carries them all, and lives."""

    def leave() -> None:
        raise kind(3)

    async def leave_async() -> None:
        raise kind(3)

    other = Agent(Scripted("one two three", pace=0.02)).run("hi").start()
    run = agent_of(tool(leave if blocking else leave_async, name="leave")).run("hi")
    with pytest.raises(kind):
        run.result(timeout=10)
    assert run.is_failed
    assert other.result(timeout=10).text == "one two three"


@pytest.mark.parametrize("kind", [GeneratorExit, BaseException], ids=lambda kind: kind.__name__)
@in_real_time
async def test_any_other_base_exception_is_told_to_the_model(kind: type[BaseException]) -> None:
    """The run goes on, with the history whole."""

    async def leave() -> None:
        raise kind("out")

    run = agent_of(leave).run("hi")
    result = await run.finished()
    assert result.is_completed
    assert told(result) == [f"{kind.__name__}: out"]
