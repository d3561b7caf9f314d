"""What goes on within parts (tools, questions, clean-up) is theirs, and the whole waits for it as it should."""

from __future__ import annotations

import asyncio
import gc
import time
import weakref
from typing import Any

import pytest

from halter import Agent, CancelMode, CancelReason, Run, RunContext, RunStatus, events, runnable, tool
from halter.compose import Parallel, Race, Sequential
from halter.models.scripted import Scripted, calls

from .kinds import COMPOSITIONS, KINDS, SOME_TRIPLES, Kind, each
from .parts import log_of, speaker

virtual = pytest.mark.virtual_time


def now() -> float:
    return asyncio.get_running_loop().time()


def caller(name: str, made: Any) -> Agent:
    """An agent that calls its one tool, and then says that it is done."""
    return Agent(Scripted(calls(made.name), "all is done"), name=name, tools=[made])


# --- tools --------------------------------------------------------------------------------------------------


@pytest.mark.scenario("C31")
@virtual
async def test_what_a_loser_must_finish_is_finished_before_the_race_is_over() -> None:
    """A payment that has begun is not cut in two; its result is recorded."""
    paid: list[float] = []

    @tool(cancel="must_finish")
    async def pay() -> str:
        await asyncio.sleep(3)
        paid.append(now())
        return "paid"

    run = Race(caller("payer", pay), speaker("quick", "I won")).run("go")
    result = await run
    assert (result.text, paid, now()) == ("I won", [3], 3)
    finished = [event for event in await log_of(run) if isinstance(event, events.ToolFinished)]
    assert [(event.outcome, event.result) for event in finished] == [("ok", "paid")]


@pytest.mark.scenario("C32")
@virtual
async def test_drain_tools_ends_what_is_said_and_waits_for_what_is_done(check_log: Any) -> None:
    """Over all parts; nothing new begins."""

    @tool
    async def work() -> str:
        await asyncio.sleep(3)
        return "worked"

    talker = speaker("talker", "one two three four five six")
    run = Sequential(Parallel(caller("worker", work), talker), speaker("never", "never")).run("go").start()
    await asyncio.sleep(1.5)
    run.cancel(mode=CancelMode.DRAIN_TOOLS)
    result = await run.finished()
    assert (result.status, now()) == (RunStatus.CANCELLED, 3)
    log = await log_of(run)
    check_log(log)
    assert [event.outcome for event in log if isinstance(event, events.ToolFinished)] == ["ok"]
    assert [event.text for event in log if event.type == "text.delta"] == ["one "]


@pytest.mark.scenario("C36", "C38")
@each(COMPOSITIONS)
@pytest.mark.parametrize("answer", ["yes", "no", None])
@virtual
async def test_a_question_within_a_part_is_answered_on_the_whole(kind: Kind, answer: str | None) -> None:
    """And resolved as cancelled if the whole is stopped instead: then its tool never ran."""
    ran: list[float] = []

    @tool(approval="always")
    async def delete() -> str:
        ran.append(now())
        return "deleted"

    run = kind.make(lambda name: caller(name, delete)).run("go").start()
    outcomes = []
    async for event in run.events():
        if isinstance(event, events.InputRequested) and answer is None:
            run.cancel()
        elif isinstance(event, events.InputRequested):
            run.answer(event.request_id, answer)
        elif isinstance(event, events.InputReceived):
            outcomes.append(event.outcome)
    if answer is None:
        assert run.is_cancelled
        assert set(outcomes) == {"cancelled"}
        assert len(outcomes) == kind.at_once
    else:
        assert run.is_completed
        assert set(outcomes[:1]) == {"answered"}
    assert bool(ran) == (answer == "yes")


@virtual
async def test_what_is_sent_to_a_composition_is_not_lost() -> None:
    """No part takes it: it is in `undelivered`."""
    run = Sequential(speaker("a", "one two")).run("go").start()
    assert run.send("and then?")
    assert [message.text for message in (await run).undelivered] == ["and then?"]


# --- ends ---------------------------------------------------------------------------------------------------


@pytest.mark.scenario("J91")
@each([*KINDS, *SOME_TRIPLES])
def test_the_end_of_its_loop_ends_it_in_order(kind: Kind, check_log: Any) -> None:
    """`asyncio.run` returns with it in flight: sealed, every run of it."""
    runs: list[Run[Any]] = []

    async def main() -> None:
        runs.append(kind.make(lambda name: speaker(name, "word " * 100, pace=0.01)).run("go").start())
        await asyncio.sleep(0.01)

    asyncio.run(main())
    (run,) = runs
    assert run.outcome is not None
    assert run.outcome.cancellation is not None
    assert run.outcome.cancellation.reason is CancelReason.SHUTDOWN
    check_log(list(run.events()))


@pytest.mark.scenario("E58")
@each(COMPOSITIONS)
def test_nothing_of_an_ended_one_is_kept(kind: Kind) -> None:
    """Completed, failed and stopped: its parts' runs go with its handle."""
    gone: list[weakref.ref[Any]] = []

    @runnable
    async def part(ctx: RunContext, how: Any) -> str:
        gone.append(weakref.ref(ctx._execution))
        await asyncio.sleep(0.01)
        if how == "fail":
            raise ValueError("bad")
        return str(how)

    async def main() -> None:
        whole = kind.make(lambda name: part)
        await whole.run("complete")
        assert (await whole.run("fail").finished()).is_failed
        stopped = whole.run("stop").start()
        await asyncio.sleep(0)
        stopped.cancel()
        await stopped.finished()

    asyncio.run(main())
    until = time.monotonic() + 2
    while any(thing() for thing in gone) and time.monotonic() < until:  # the watchdog lets go when it looks next
        time.sleep(0.02)
        gc.collect()
    assert len(gone) >= 3
    assert [thing() for thing in gone] == [None] * len(gone)


# --- waiting for children -----------------------------------------------------------------------------------


@virtual
async def test_children_are_waited_for_in_the_order_of_their_ends() -> None:
    """`ctx.wait_for_children`: all of them, or as many as are enough; those that are over already count."""
    seen: dict[str, Any] = {}

    @runnable
    async def waits(ctx: Any, seconds: float) -> float:
        await asyncio.sleep(seconds)
        return seconds

    @runnable
    async def body(ctx: RunContext) -> None:
        runs = [ctx.start(waits, seconds) for seconds in (3, 1, 2)]
        await asyncio.sleep(1.5)
        seen["first"] = await ctx.wait_for_children(runs, lambda over: True)
        seen["at"] = now()
        seen["two"] = await ctx.wait_for_children(runs, lambda over: len(over) == 2)
        seen["all"] = await ctx.wait_for_children(runs)
        seen["none"] = await ctx.wait_for_children([])

    await body.run()
    outputs = {name: [run.outcome.output for run in seen[name]] for name in ("first", "two", "all", "none")}
    assert outputs == {"first": [1], "two": [1, 2], "all": [1, 2, 3], "none": []}
    assert (seen["at"], now()) == (1.5, 3)


@virtual
async def test_giving_up_on_children_leaves_them_alone() -> None:
    """Observing: a scope around the wait ends the wait, and nothing waits on."""
    seen: dict[str, Any] = {}

    @runnable
    async def child(ctx: Any) -> str:
        await asyncio.sleep(3)
        return "ended by itself"

    @runnable
    async def body(ctx: RunContext) -> Any:
        run = ctx.start(child)
        try:
            async with asyncio.timeout(1):
                await ctx.wait_for_children([run])
        except TimeoutError:
            seen["waiting"] = len(ctx._execution.changed.waiting), dict(ctx._execution.log._lifts)
        return (await run).output

    assert (await body.run()).output == "ended by itself"
    assert seen["waiting"][0] == 0
