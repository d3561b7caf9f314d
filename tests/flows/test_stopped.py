"""A flow that is stopped: no step begins any more, and a run that goes on from its state repeats nothing."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from typing import Any, Literal

import msgspec
import pytest

from halter import Agent, CancelMode, CancelReason, Run, RunStatus, events, runnable, tool
from halter.compose import Sequential
from halter.errors import BusyError
from halter.flows import Flow, FlowState, Pending, and_, listen, or_, router, start
from halter.models.scripted import Scripted, calls
from halter.testing import Sweep, SweepOutcome, cancel_sweep

from ..compose.parts import ends_of, log_of, speaker
from ..core.conftest import check_log as check_log

virtual = pytest.mark.virtual_time


def now() -> float:
    return asyncio.get_running_loop().time()


class Notes(msgspec.Struct):
    notes: list[str] = []
    rounds: int = 0


class Report(Flow[Notes]):
    """Two that prepare at once, then a circle of two rounds, then an end; each step takes a second."""

    writer = speaker("writer", "one")

    async def work(self, step: str) -> str:
        self.state.notes = [*self.state.notes, step]
        said = (await self.writer.run(step)).text
        return f"{step}: {said}"

    @start()
    async def look(self) -> str:
        return await self.work("look")

    @start()
    async def plan(self) -> str:
        self.state.rounds = 0
        await asyncio.sleep(1.5)
        return "plan"

    @listen(or_(and_(look, plan), "again"))
    async def write(self, ctx: Any, value: Any) -> str:
        return await self.work("write")

    @router(write)
    async def judge(self) -> Literal["again", "good"]:
        self.state.rounds += 1
        await asyncio.sleep(0)
        return "good" if self.state.rounds == 2 else "again"

    @listen("good")
    async def publish(self, ctx: Any, value: str) -> str:
        return f"published {await self.work('publish')}, {value}"


DONE = ("look", "plan", "write", "judge", "write", "judge", "publish")
OUTPUT = "published publish: one, write: one"
STATE = Notes(["look", "write", "write", "publish"], 2)


# --- going on -----------------------------------------------------------------------------------------------


def ended_steps(log: list[events.Event]) -> list[str]:
    kinds = {event.run_id: event for event in log if isinstance(event, events.Started)}
    done = [kinds[event.run_id] for event in log if isinstance(event, events.Completed) and event.run_id in kinds]
    return [started.name for started in done if started.kind == "step"]


@pytest.mark.scenario("D39", "B18")
@pytest.mark.parametrize("mode", [CancelMode.IMMEDIATE, CancelMode.AFTER_TURN, CancelMode.KILL])
@pytest.mark.parametrize("stored", [False, True], ids=["kept", "stored"])
def test_stopped_anywhere_it_goes_on_where_it_was_and_comes_to_the_same_end(mode: CancelMode, stored: bool) -> None:
    """At every step of the loop: the state tells exactly of the steps that have ended, and none is run again."""
    report = Report()

    async def scenario(sweep: Sweep) -> Any:
        run = report.run()
        sweep.cancel = lambda: run.cancel(mode=mode)
        first = await run.finished()
        before = ended_steps(await log_of(run))
        given = msgspec.json.decode(msgspec.json.encode(first.state)) if stored else first.state
        again = report.run(state=given)
        return first, before, await again, ended_steps(await log_of(again))

    def check(outcome: SweepOutcome) -> None:
        first, before, second, after = outcome.result
        if first.state is None:
            return  # it had not begun
        assert list(first.state.done) == before
        assert (second.output, second.state.state) == (OUTPUT, STATE)
        assert sorted([*before, *after]) == sorted(DONE)
        assert second.state.done == (*first.state.done, *after)

    assert cancel_sweep(scenario, check=check) > 50


@virtual
async def test_the_state_after_a_stop_is_that_of_whole_steps() -> None:
    """What was cut has changed nothing, and is pending with what it had got; the partial text is there."""
    run = Report().run().start()
    await asyncio.sleep(0)
    run.cancel()
    started = (Pending(step="look"), Pending(step="plan"))
    assert (await run.finished()).state == FlowState(state=Notes(), pending=started)

    class Slow(Report):
        writer = speaker("writer", "one two three")

    run = Slow().run({"notes": ["given"]}).start()
    await asyncio.sleep(4.5)
    run.cancel()
    result = await run.finished()
    assert result.state == FlowState(
        state=Notes(["given", "look"], 0),
        done=("plan", "look"),
        pending=(Pending(step="write", value=("look: one two three", "plan")),),
    )
    assert (result.text, result.output) == ("one ", None)
    assert [(message.text, message.interrupted) for message in result.messages] == [("one ", True)]


@virtual
async def test_a_state_of_a_flow_that_has_ended_gives_its_output_again() -> None:
    report = Report()
    first = await report.run()
    again = report.run(state=first.state)
    assert (await again).output == OUTPUT
    assert [event.type for event in await log_of(again)] == ["run.started", "run.completed"]


@virtual
async def test_what_has_come_for_a_step_that_waits_for_more_is_kept() -> None:
    """`and_`: one of two has ended before the stop, and does not run again."""
    run = Report().run().start()
    await asyncio.sleep(1.2)
    run.cancel()
    state = (await run.finished()).state
    assert (state.done, state.arrived) == (("look",), {"write": {"look": "look: one"}})
    assert [pending.step for pending in state.pending] == ["plan"]


@pytest.mark.scenario("D39")
@virtual
async def test_run_again_without_its_state_it_does_what_a_fresh_one_does() -> None:
    """A stop leaves nothing in the definition."""
    report = Report()
    run = report.run().start()
    await asyncio.sleep(2.2)
    run.cancel()
    await run.finished()
    results = await asyncio.gather(*(report.run() for _ in range(20)))
    assert {(result.output, result.state.done) for result in results} == {(OUTPUT, DONE)}
    assert all(result.state.state == STATE for result in results)


@pytest.mark.scenario("C31")
@virtual
async def test_a_step_that_returns_after_it_was_cut_has_not_ended() -> None:
    """It swallows its cancellation; what it has made of the state is not kept."""

    class Stubborn(Flow):
        @start()
        async def step(self) -> str:
            self.state["x"] = 1
            try:
                await asyncio.sleep(100)
            except asyncio.CancelledError:
                await asyncio.sleep(1)
            return "all the same"

        @listen(step)
        async def never(self) -> None:
            raise AssertionError("it has begun")

    run = Stubborn().run().start()
    await asyncio.sleep(1)
    run.cancel()
    result = await run.finished()
    assert (now(), result.status) == (2, RunStatus.CANCELLED)
    assert (result.state.state, result.state.done) == ({}, ())


@pytest.mark.real_loop("asyncio")
async def test_a_plain_step_that_polls_ends_in_time_and_one_that_does_not_is_named() -> None:
    """What a thread does to its copy of the state afterwards is nobody's."""
    begun, go_on, changed = threading.Event(), threading.Event(), threading.Event()

    class Blocking(Flow):
        @start()
        def polls(self, ctx: Any) -> None:
            while not begun.wait(0.01):
                pass
            while True:
                ctx.token.raise_if_cancelled()

        @start()
        def blocks(self) -> None:
            begun.set()
            go_on.wait(10)
            self.state["late"] = True
            changed.set()

    run = Blocking().run().start()
    assert await asyncio.to_thread(begun.wait, 5)
    run.cancel()
    result = await run.finished()
    go_on.set()
    assert await asyncio.to_thread(changed.wait, 5)
    assert result.receipt is not None
    assert not result.receipt.confirmed
    abandoned = [line.label for line in result.receipt.resources if line.ended == "abandoned"]
    assert len(abandoned) == 1
    assert ".blocks (" in abandoned[0]
    assert "test_stopped.py" in abandoned[0]
    assert result.state.state == {}


# --- after this turn ----------------------------------------------------------------------------------------


@pytest.mark.scenario("B25")
@virtual
async def test_after_turn_lets_the_steps_that_run_end_and_begins_no_other(check_log: Callable[..., None]) -> None:
    """Both that run at once; what they have done counts."""
    run = Report().run().start()
    await asyncio.sleep(0.5)
    assert run.cancel(mode=CancelMode.AFTER_TURN)
    result = await run.finished()
    assert (now(), result.status) == (1.5, RunStatus.CANCELLED)
    assert (result.state.done, result.state.state.notes) == (("look", "plan"), ["look"])
    assert [pending.step for pending in result.state.pending] == ["write"]
    check_log(await log_of(run))


@pytest.mark.scenario("B25")
@virtual
async def test_after_turn_in_the_last_step_is_without_effect() -> None:
    run = Report().run().start()
    await asyncio.sleep(4)
    assert run.cancel(mode=CancelMode.AFTER_TURN)
    result = await run
    assert (result.output, result.cancellation) == (OUTPUT, None)


@pytest.mark.scenario("B25")
@virtual
async def test_after_turn_ends_a_step_whose_agent_has_more_turns_and_the_step_runs_anew() -> None:
    """Its turn ends with all of its text; the step has not ended."""
    steered = speaker("steered", "one two", "three")

    class Steers(Flow):
        @start()
        async def step(self, ctx: Any) -> str:
            run = ctx.start(steered, "hi")
            run.send("and then?")
            return (await run).text

        @start()
        async def beside(self) -> None:
            await asyncio.sleep(3)

    run = Steers().run().start()
    await asyncio.sleep(0.5)
    run.cancel(mode=CancelMode.AFTER_TURN)
    result = await run.finished()
    assert (now(), result.status, result.text) == (3, RunStatus.CANCELLED, "one two")
    assert [pending.step for pending in result.state.pending] == ["step"]
    assert await ends_of(run) == {
        "steered": CancelReason.PARENT_CANCELLED,
        "step": CancelReason.PARENT_CANCELLED,
        "beside": "run.completed",
        "Steers": CancelReason.USER_STOP,
    }


# --- its stream is closed, by whom and when soever -----------------------------------------------------------


class Deep(Flow):
    """What a flow may hold: an agent, a composition, another flow."""

    def __init__(self) -> None:
        words = Agent(Scripted("word " * 16, pace=0.003), name="words")
        self.parts = (words, Sequential(words, words), Inner(words))

    @start()
    async def alone(self) -> None:
        await self.parts[0].run("hi")

    @listen(alone)
    async def composed(self) -> None:
        await self.parts[1].run("hi")

    @listen(composed)
    async def nested(self) -> None:
        await self.parts[2].run("hi")


class Inner(Flow):
    def __init__(self, words: Agent) -> None:
        self.words = words

    @start()
    async def inside(self) -> None:
        await self.words.run("hi")


async def nothing(run: Run[Any]) -> None:
    """Before its stream is read."""


async def some(run: Run[Any]) -> None:
    seen = 0
    async for _ in run.text_stream():
        seen += 1
        if seen == 20:
            return


async def everything(run: Run[Any]) -> None:
    async for _ in run:
        pass


async def from_the_consumer(close: Callable[[], Any]) -> None:
    await close()


async def from_another_task(close: Callable[[], Any]) -> None:
    await asyncio.create_task(close())


async def from_another_thread(close: Callable[[], Any]) -> None:
    await asyncio.to_thread(asyncio.run, close())


@pytest.mark.scenario("B11", "B12", "B15", "B16", "B17")
@pytest.mark.parametrize("when", [nothing, some, everything], ids=["before", "during", "after"])
@pytest.mark.parametrize("where", [from_the_consumer, from_another_task, from_another_thread])
@pytest.mark.parametrize("how", ["aclose", "cancel"])
@pytest.mark.loops
async def test_its_stream_is_closed_by_anyone_at_any_time_and_again(
    when: Callable[[Run[Any]], Any], where: Callable[[Any], Any], how: str, check_log: Callable[..., None]
) -> None:
    """No step begins after it, the partial text is there, and closing it twice is once."""
    run = Deep().run("go")
    await when(run)
    answers: list[Any] = []

    async def close() -> None:
        if how == "cancel":
            answers.append(run.cancel())
        else:
            await run.aclose()

    for _ in range(2):
        await where(close)
    result = await run.finished()
    assert result.status == ("completed" if when is everything else "cancelled")
    assert set(answers) <= ({False} if when is everything else {True, False})
    log = await log_of(run)
    if when is nothing:
        assert [event.type for event in log] == ["run.cancelled"]
        return
    check_log(log)
    cut = next((event.seq for event in log if isinstance(event, events.Cancelling)), log[-1].seq)
    assert [event for event in log[cut:] if isinstance(event, events.Started | events.TextDelta)] == []
    assert all(event.agent == "words" and event.task for event in log if isinstance(event, events.TextDelta))
    if when is some:
        assert result.text == log[-1].text  # pyright: ignore
        assert 0 < len(result.text.split()) < 16
        assert result.state.done == ("alone",)
        assert [pending.step for pending in result.state.pending] == ["composed"]


@pytest.mark.scenario("B23")
@pytest.mark.parametrize("when", ["before", "during", "after"])
@pytest.mark.parametrize("how", ["close", "cancel"])
def test_a_blocking_stream_is_closed_by_anyone_at_any_time(when: str, how: str) -> None:
    """From the consumer's own thread, and from another."""
    for in_thread in (False, True):
        run = Deep().run("go")
        seen: list[str] = []

        def close(run: Run[Any] = run) -> None:
            run.close() if how == "close" else run.cancel()

        def stop(in_thread: bool = in_thread, close: Callable[[], None] = close) -> None:
            for _ in range(2):
                if in_thread:
                    thread = threading.Thread(target=close)
                    thread.start()
                    thread.join()
                else:
                    close()

        if when == "before":
            stop()
        for text in run.text_stream():
            seen.append(text)
            if when == "during" and len(seen) == 20:
                stop()
        if when == "after":
            stop()
        assert run.outcome is not None or run.result(5)
        assert run.status == ("completed" if when == "after" else "cancelled")
        assert len(seen) == {"before": 0, "during": 20, "after": 3 * 16}[when]


@virtual
async def test_a_step_cannot_wait_for_the_flow_that_it_is_in() -> None:
    """It may ask it to stop."""

    class Asks(Flow):
        @start()
        async def step(self, ctx: Any) -> None:
            above = next(iter(runs))
            with pytest.raises(BusyError):
                await above.aclose()
            await asyncio.sleep(100)

    runs: list[Run[Any]] = [Asks().run("go")]
    result = await runs[0].finished()
    assert (result.status, now()) == (RunStatus.CANCELLED, 0)


@pytest.mark.scenario("C33", "J89")
@virtual
async def test_clean_up_in_a_step_has_half_the_grace() -> None:
    cleaned: list[float] = []

    @runnable
    async def tidy(ctx: Any, input: Any) -> None:
        try:
            await asyncio.sleep(100)
        finally:
            await asyncio.sleep(1)
            cleaned.append(now())

    class Tidies(Flow):
        @start()
        async def step(self) -> None:
            try:
                await tidy.run()
            finally:
                await asyncio.sleep(2)
                cleaned.append(now())

    run = Tidies().run(grace=10).start()
    await asyncio.sleep(1)
    run.cancel()
    result = await run.finished()
    assert cleaned == [2, 3.25]  # whoever owns a run waits for its teardown first, a quarter of a second at most
    assert result.receipt is not None
    assert result.receipt.confirmed


@pytest.mark.scenario("C31", "D40")
@virtual
async def test_what_was_said_before_a_tool_that_must_finish_is_kept_however_late_it_ends() -> None:
    """The tool ends after half of the grace, when the bodies above it have long been cancelled a second time."""

    @tool(cancel="must_finish")
    async def pay() -> str:
        await asyncio.sleep(4)
        return "paid"

    payer = Agent(Scripted(("I pay.", calls("pay")), "done"), tools=[pay], name="payer")

    class Paying(Flow[dict[str, Any]]):
        @start()
        async def begin(self) -> Any:
            return (await payer.run("go")).output

    run = Paying().run(grace=5).start()
    await asyncio.sleep(0.5)
    run.cancel()
    result = await run.finished()
    assert asyncio.get_running_loop().time() == 4
    assert result.receipt.confirmed
    assert [message.text for message in result.messages] == ["I pay."]
