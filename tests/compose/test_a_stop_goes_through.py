"""A stop of whatever runs others reaches all that runs in it, however deep, and nothing begins after it."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Callable
from itertools import product
from typing import Any

import anyio
import pytest

from halter import Agent, Budget, CancellationToken, CancelMode, CancelReason, Run, RunStatus, events, runnable, runtime
from halter.models.scripted import Scripted
from halter.testing import MemorySource, Sweep, SweepOutcome, cancel_sweep, schedule_sweep

from .conftest import ANSWER
from .kinds import COMPOSITIONS, KINDS, NESTED_COMPOSITIONS, PAIRS, SOME_TRIPLES, TRIPLE_COMPOSITIONS, Kind, Leaf, each

virtual = pytest.mark.virtual_time


def now() -> float:
    return asyncio.get_running_loop().time()


async def log_of(run: Run[Any]) -> list[events.Event]:
    return [event async for event in run.events()]


def scripted(name: str) -> Agent:
    """Three words, a second each."""
    return Agent(Scripted("one two three", pace=1), name=name)


# --- the provider sees it -----------------------------------------------------------------------------------


@pytest.mark.scenario("A10", "C34", "J89")
@each([*KINDS, *PAIRS, *SOME_TRIPLES, *TRIPLE_COMPOSITIONS])
@virtual
async def test_a_stop_ends_every_open_request_at_once_and_no_other_is_ever_made(
    kind: Kind, leaf: Leaf, source: MemorySource, check_log: Any
) -> None:
    """In the first step, at any depth: the innermost are aborted in that very instant; the deepest runs end first."""
    run = kind.make(leaf).run("go").start()
    await asyncio.sleep(5.5)
    assert len(source.open_requests) == kind.at_once
    assert run.cancel("enough")
    result = await run.finished()
    assert now() == 5.5
    assert [request.aborted_at for request in source.requests] == [5.5] * kind.at_once
    assert result.is_cancelled
    assert result.receipt is not None
    assert result.receipt.confirmed, str(result.receipt)
    assert [line.kind for line in result.receipt.resources].count("socket") == kind.at_once
    await asyncio.sleep(100)
    assert len(source.requests) == kind.at_once
    log = await log_of(run)
    check_log(log)
    reasons = {event.run_id: event.reason for event in log if isinstance(event, events.Cancelled)}
    assert reasons.pop(run.id) is CancelReason.USER_STOP
    assert set(reasons.values()) == {CancelReason.PARENT_CANCELLED}


@each([*KINDS, *SOME_TRIPLES])
@virtual
async def test_left_alone_it_completes_and_asks_as_often_as_it_should(
    kind: Kind, leaf: Leaf, source: MemorySource, check_log: Any
) -> None:
    """What the stopped ones are measured by."""
    run = kind.make(leaf).run("go").start()
    result = await run
    assert len(source.requests) == kind.in_all
    assert source.open_requests == []
    assert ANSWER in str(result.output)
    check_log(await log_of(run))


@pytest.mark.scenario("A10")
@each(KINDS)
@virtual
async def test_a_stop_in_the_second_step_leaves_the_first_as_it_was(
    kind: Kind, leaf: Leaf, source: MemorySource
) -> None:
    """What is finished stays finished."""
    if kind.in_all == kind.at_once:
        return  # there is no second step
    run = kind.make(leaf).run("go").start()
    await asyncio.sleep(25.5)
    assert run.cancel()
    assert (await run.finished()).is_cancelled
    assert [request.ended for request in source.requests] == ["finished", "aborted"]


# --- before, after, and many at once ------------------------------------------------------------------------


@pytest.mark.scenario("B15")
@each([*KINDS, *SOME_TRIPLES])
@pytest.mark.parametrize("how", ["handle", "token"])
@virtual
async def test_stopped_before_its_first_use_it_asks_nobody(
    kind: Kind, leaf: Leaf, source: MemorySource, how: str
) -> None:
    """One event, an empty receipt, no request."""
    token = CancellationToken()
    run = kind.make(leaf).run("go", cancellation=token)
    if how == "handle":
        run.cancel()
    else:
        token.cancel()
    result = await run.finished()
    assert result.is_cancelled
    assert result.receipt is not None
    assert result.receipt.resources == ()
    assert [event.type for event in await log_of(run)] == ["run.cancelled"]
    assert source.requests == []


@pytest.mark.scenario("B16")
@each([*KINDS, *SOME_TRIPLES])
@virtual
async def test_after_its_end_a_stop_changes_nothing(kind: Kind) -> None:
    """`False`, and the same result."""
    run = kind.make(scripted).run("go")
    result = await run
    assert run.cancel() is False
    assert run.outcome is result
    assert (run.status, result.cancellation) == (RunStatus.COMPLETED, None)


@pytest.mark.scenario("B17")
@each([*KINDS, *SOME_TRIPLES])
@pytest.mark.real_loop("asyncio")
async def test_a_hundred_stops_from_ten_threads_are_one(kind: Kind, check_log: Any) -> None:
    """One terminal event, one reason; everybody is answered."""
    run = kind.make(lambda name: Agent(Scripted("word " * 500, pace=0.01), name=name)).run("go").start()
    await asyncio.sleep(0.02)
    answers: list[bool] = []

    def stop(number: int) -> None:
        answers.extend([run.cancel(f"by {number}") for _ in range(10)])

    threads = [threading.Thread(target=stop, args=(number,)) for number in range(10)]
    for thread in threads:
        thread.start()
    result = await run.finished()
    for thread in threads:
        thread.join()
    assert result.is_cancelled
    log = await log_of(run)
    check_log(log)
    announced = [event for event in log if isinstance(event, events.Cancelling) and event.run_id == run.id]
    assert len(announced) == 1
    assert len(answers) == 100
    assert answers[0]


@pytest.mark.scenario("B18", "D49")
@pytest.mark.parametrize(
    ("kind", "mode"),
    [
        *product(KINDS, (CancelMode.AFTER_TURN, CancelMode.KILL)),
        *product([*KINDS, *SOME_TRIPLES], [CancelMode.IMMEDIATE]),
    ],
    ids=str,
)
def test_stopped_at_any_step_all_that_tells_of_the_end_agrees(kind: Kind, mode: CancelMode, check_log: Any) -> None:
    """Status, terminal event, result, and what `cancel()` has said; no success in a run that was stopped."""

    def leaf(name: str) -> Agent:
        return Agent(Scripted("one", pace=1), name=name)

    async def scenario(sweep: Sweep) -> Any:
        run = kind.make(leaf).run("go")
        said: list[bool] = []
        sweep.cancel = lambda: said.append(run.cancel(mode=mode))
        result = await run.finished()
        return run, result, said, await log_of(run)

    def check(outcome: SweepOutcome) -> None:
        run, result, said, log = outcome.result
        if log[0].type == "run.started":
            check_log(log)
        assert log[-1].type == f"run.{result.status}" == f"run.{run.status}"
        assert log[-1].text == result.text
        assert (result.output is not None) == result.is_completed
        assert (result.receipt is None) == (result.cancellation is None) == (not result.is_cancelled)
        assert result.error is None
        if mode.cuts:
            assert said == [result.is_cancelled], "True promises that the outcome will be cancelled"

    assert cancel_sweep(scenario, check=check) > 5


@each([*KINDS, *SOME_TRIPLES])
def test_the_order_of_tasks_does_not_matter_to_a_stop(kind: Kind, check_log: Any) -> None:
    """Under many schedules: one end, confirmed."""

    async def scenario() -> None:
        run = kind.make(scripted).run("go").start()
        await asyncio.sleep(2)
        run.cancel()
        result = await run.finished()
        assert result.is_cancelled
        assert result.receipt is not None
        assert result.receipt.confirmed
        check_log(await log_of(run))

    assert schedule_sweep(scenario, seeds=range(10)) == 10


# --- who stops it -------------------------------------------------------------------------------------------


async def _by_wait_for(run: Run[Any]) -> None:
    await asyncio.wait_for(run, 5.5)


async def _by_asyncio_timeout(run: Run[Any]) -> None:
    async with asyncio.timeout(5.5), run:
        async for _ in run.text_stream():
            pass
        await asyncio.sleep(100)


async def _by_anyio(run: Run[Any]) -> None:
    with anyio.fail_after(5.5):
        await run


async def _by_a_task_group(run: Run[Any]) -> None:
    async def fails() -> None:
        await asyncio.sleep(5.5)
        raise TimeoutError("the sibling's own")

    try:
        async with asyncio.TaskGroup() as group:
            group.create_task(run.wait())
            group.create_task(fails())
    except ExceptionGroup as caught:
        (only,) = caught.exceptions
        raise only from None


async def _by_the_consumers_task(run: Run[Any]) -> None:
    async def consume() -> None:
        async for _ in run:
            pass

    task = asyncio.create_task(consume())
    await asyncio.sleep(5.5)
    task.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await task
    raise TimeoutError


@pytest.mark.scenario("B20", "B22")
@each([*KINDS, *SOME_TRIPLES])
@pytest.mark.parametrize(
    "scope", [_by_wait_for, _by_asyncio_timeout, _by_anyio, _by_a_task_group, _by_the_consumers_task]
)
@virtual
async def test_an_outer_scope_that_gives_up_ends_it_whole(
    kind: Kind, leaf: Leaf, source: MemorySource, scope: Callable[[Run[Any]], Any]
) -> None:
    """The scope's own exception, `caller_cancelled`, each request aborted, nothing begun after."""
    run = kind.make(leaf).run("go").start()
    with pytest.raises(TimeoutError) as caught:
        await scope(run)
    assert type(caught.value) is TimeoutError
    result = await run.finished()
    assert now() == 5.5
    assert result.cancellation is not None
    assert result.cancellation.reason is CancelReason.CALLER_CANCELLED
    assert [request.aborted_at for request in source.requests] == [5.5] * kind.at_once


@pytest.mark.scenario("B21")
@each([*KINDS, *SOME_TRIPLES])
@virtual
async def test_leaving_its_scope_stops_it(kind: Kind, leaf: Leaf, source: MemorySource) -> None:
    """`break` inside `async with`."""
    async with kind.make(leaf).run("go") as run:
        async for event in run:
            if isinstance(event, events.TextDelta):
                break
    assert run.is_cancelled
    assert source.open_requests == []
    assert len(source.requests) == kind.at_once


@pytest.mark.scenario("B24")
@each([*KINDS, *SOME_TRIPLES])
@virtual
async def test_a_time_out_is_its_own_and_reaches_all_of_it(kind: Kind, leaf: Leaf, source: MemorySource) -> None:
    """`timeout` for the one that it was given to, `parent_cancelled` for those under it."""
    run = kind.make(leaf).run("go", timeout=5.5)
    with pytest.raises(TimeoutError):
        await run
    assert run.outcome is not None
    assert run.outcome.cancellation is not None
    assert run.outcome.cancellation.reason is CancelReason.TIMEOUT
    assert [request.aborted_at for request in source.requests] == [5.5] * kind.at_once


@pytest.mark.scenario("B24")
@each([*KINDS, *SOME_TRIPLES])
@virtual
async def test_a_budget_covers_all_of_it_and_stops_the_whole(kind: Kind, leaf: Leaf, source: MemorySource) -> None:
    """Tokens run out within the stream; the outermost run is told so, and no request is left open."""
    run = kind.make(leaf).run("go", budget=Budget(tokens=30 * kind.at_once))
    result = await run.finished()
    assert result.cancellation is not None
    assert result.cancellation.reason is CancelReason.BUDGET_TOKENS
    assert source.open_requests == []
    asked = len(source.requests)
    await asyncio.sleep(100)
    assert len(source.requests) == asked <= kind.in_all


@pytest.mark.scenario("B24")
@virtual
async def test_a_budget_of_one_call_ends_two_steps_after_the_first(leaf: Leaf, source: MemorySource) -> None:
    """The second request is never made."""
    run = COMPOSITIONS[0].make(leaf).run("go", budget=Budget(model_calls=1))
    result = await run.finished()
    assert result.cancellation is not None
    assert result.cancellation.reason is CancelReason.BUDGET_CALLS
    assert [request.ended for request in source.requests] == ["finished"]


@pytest.mark.scenario("B23")
@each([*KINDS, *SOME_TRIPLES])
def test_a_blocking_reader_ends_when_another_thread_stops_it(kind: Kind) -> None:
    """No loop in sight: the run lives on the background loop."""
    run = kind.make(lambda name: Agent(Scripted("word " * 500, pace=0.01), name=name)).run("go")
    threading.Timer(0.03, run.cancel).start()
    assert list(run)[-1].type == "run.cancelled"


# --- how hard -----------------------------------------------------------------------------------------------


@pytest.mark.scenario("B25")
@each([*KINDS, *NESTED_COMPOSITIONS])
@virtual
async def test_after_turn_lets_each_answer_end_and_begins_nothing_new(
    kind: Kind, leaf: Leaf, source: MemorySource
) -> None:
    """All of the text is there. Where nothing would have followed, it completes."""
    run = kind.make(leaf).run("go").start()
    await asyncio.sleep(5.5)
    assert run.cancel(mode=CancelMode.AFTER_TURN)
    result = await run.finished()
    assert now() == 20
    assert [request.finished_at for request in source.requests] == [20] * kind.at_once
    assert result.status == (RunStatus.CANCELLED if kind.goes_on else RunStatus.COMPLETED)
    said = [event.message for event in await log_of(run) if isinstance(event, events.MessageFinished)]
    assert [message.text for message in said if message.text == ANSWER][: kind.at_once] == [ANSWER] * kind.at_once
    assert not any(message.interrupted for message in said)
    assert not any(message.interrupted for message in result.messages if message.role == "assistant" and message.parts)


@pytest.mark.scenario("B25")
@virtual
async def test_after_turn_reaches_what_the_turn_has_yet_to_start() -> None:
    """A part begun in the turn that may end knows of the request above it, and is no failed sibling."""
    two_turns = Agent(Scripted("one two", "three four", pace=1), name="two turns")
    quick = Agent(Scripted("one", pace=1), name="quick")

    @runnable
    async def turn(ctx: Any, input: Any) -> Any:
        ctx.begin_step()
        await asyncio.sleep(1)
        steered = ctx.start(two_turns, "hi")
        steered.send("and then?")
        inner = ctx.start(COMPOSITIONS[2].make(lambda name: two_turns if name == "a" else quick), "hi")
        await inner.finished()
        ctx.end_step()
        ctx.before_next_step()

    run = turn.run("hi").start()
    await asyncio.sleep(0.5)
    run.cancel(mode=CancelMode.AFTER_TURN)
    assert (await run.finished()).is_cancelled
    ends = [event for event in await log_of(run) if isinstance(event, events.Cancelled)]
    assert CancelReason.SIBLING_FAILED not in {event.reason for event in ends}


@pytest.mark.scenario("B25")
@each([*KINDS, *SOME_TRIPLES])
@virtual
async def test_a_stop_only_becomes_stronger(kind: Kind, leaf: Leaf, source: MemorySource) -> None:
    """`after_turn`, then `immediate`; the first reason stays."""
    run = kind.make(leaf).run("go").start()
    await asyncio.sleep(5.5)
    run.cancel("first", mode=CancelMode.AFTER_TURN, reason=CancelReason.POLICY)
    await asyncio.sleep(1)
    assert not run.is_done
    run.cancel("second", mode=CancelMode.IMMEDIATE)
    result = await run.finished()
    assert now() == 6.5
    assert result.cancellation is not None
    assert (result.cancellation.message, result.cancellation.reason) == ("first", CancelReason.POLICY)
    assert [request.aborted_at for request in source.requests] == [6.5] * kind.at_once


@pytest.mark.scenario("B25")
@each([*KINDS, *SOME_TRIPLES])
@virtual
async def test_kill_waits_for_nobody(kind: Kind) -> None:
    """Clean-up that would take an hour is abandoned and named."""

    @runnable(name="stubborn")
    async def stubborn(ctx: Any, input: Any) -> None:
        while True:
            try:
                await asyncio.sleep(3_600)
            except asyncio.CancelledError:
                if now() > 100:
                    raise

    run = kind.make(lambda name: stubborn).run("go").start()
    await asyncio.sleep(1)
    run.cancel(mode=CancelMode.KILL)
    result = await run.finished()
    assert now() == 1
    assert result.receipt is not None
    assert not result.receipt.confirmed
    abandoned = [line.label for line in result.receipt.resources if line.ended == "abandoned"]
    assert len([label for label in abandoned if label.startswith("stubborn (")]) == kind.at_once
    await asyncio.sleep(4_000)  # what was abandoned goes by itself


@pytest.mark.scenario("B25")
@each([*KINDS, *SOME_TRIPLES])
@virtual
async def test_clean_up_deep_inside_has_half_the_grace_of_the_whole(kind: Kind) -> None:
    """The grace given to the outermost run is that of its parts."""
    cleaned: list[float] = []

    @runnable(name="tidy")
    async def tidy(ctx: Any, input: Any) -> None:
        try:
            await asyncio.sleep(3_600)
        finally:
            await asyncio.sleep(9)
            cleaned.append(now())

    run = kind.make(lambda name: tidy).run("go", grace=20).start()
    await asyncio.sleep(1)
    run.cancel()
    result = await run.finished()
    assert cleaned == [10] * kind.at_once
    assert result.receipt is not None
    assert result.receipt.confirmed


@pytest.mark.scenario("B26")
@each([*KINDS, *SOME_TRIPLES])
@pytest.mark.parametrize("exit", [SystemExit, KeyboardInterrupt])
@virtual
async def test_an_exit_inside_surfaces_in_whoever_waits(kind: Kind, exit: type[BaseException]) -> None:
    """It is no clean end, and other runs go on."""

    @runnable(name="exits")
    async def exits(ctx: Any, input: Any) -> None:
        await asyncio.sleep(1)
        raise exit("somebody asked for it")

    neighbour = scripted("neighbour").run("hi").start()
    run = kind.make(lambda name: exits).run("go")
    with pytest.raises(exit):
        await run
    assert run.is_failed
    assert (await neighbour).text == "one two three"


# --- a part alone -------------------------------------------------------------------------------------------


@pytest.mark.scenario("C35")
@each([*KINDS, *PAIRS])
@virtual
async def test_a_leaf_that_is_stopped_alone_does_not_stop_the_whole(
    kind: Kind, leaf: Leaf, source: MemorySource, check_log: Any
) -> None:
    """The whole goes on or fails, as its kind has it; it is not cancelled. The stop is the leaf's."""
    run = kind.make(leaf).run("go").start()
    await asyncio.sleep(5.5)
    leaves = [event.run_id for event in await so_far(run) if isinstance(event, events.ModelRequested)]
    models = {event.run_id: event.model for event in await so_far(run) if isinstance(event, events.ModelRequested)}
    victim = next(run_id for run_id in leaves if models[run_id] != "asks")
    assert await runtime().cancel(victim, "you alone", wait=True)
    assert now() == 5.5
    result = await run.finished()
    assert not result.is_cancelled
    log = await log_of(run)
    check_log(log)
    stopped = [event for event in log if isinstance(event, events.Cancelled) and event.run_id == victim]
    assert [event.reason for event in stopped] == [CancelReason.USER_STOP]
    assert source.open_requests == []


async def so_far(run: Run[Any]) -> list[events.Event]:
    """What is in the log at this moment."""
    return list(run._execution.log.read(0, 10_000))


@pytest.mark.scenario("C35")
@each([*KINDS, *SOME_TRIPLES])
@virtual
async def test_what_is_started_under_a_stopped_part_is_born_cancelled(
    kind: Kind, leaf: Leaf, source: MemorySource
) -> None:
    """A part that swallows its stop and starts the next one: that asks nobody."""
    asks = leaf("late")
    ends: list[Any] = []

    @runnable(name="swallows")
    async def swallows(ctx: Any, input: Any) -> None:
        try:
            await asyncio.sleep(100)
        except asyncio.CancelledError:
            ends.append(await ctx.start(asks, "hi").finished())
            raise

    run = kind.make(lambda name: swallows).run("go").start()
    await asyncio.sleep(1)
    run.cancel()
    assert (await run.finished()).is_cancelled
    assert [(end.status, end.cancellation.reason) for end in ends] == [
        (RunStatus.CANCELLED, CancelReason.PARENT_CANCELLED)
    ] * kind.at_once
    assert source.requests == []
