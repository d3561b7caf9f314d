"""The handle: what it shows, what it starts, what it raises."""

from __future__ import annotations

import asyncio
import contextlib
import math
import threading
from typing import Any

import pytest

from halter import (
    Agent,
    CancellationToken,
    CancelMode,
    CancelReason,
    Message,
    Run,
    RunCancelled,
    RunFailed,
    RunResult,
    RunStatus,
    current_run,
    events,
    runnable,
    runtime,
)
from halter.core.asking import Answer
from halter.core.home import LIVE
from halter.errors import AlreadyAnswered, BlockingCallError, BusyError, ConfigurationError, NoCurrentRun, UsageError
from halter.testing import run as virtually

virtual = pytest.mark.virtual_time


@runnable
async def sleeper(ctx: Any) -> str:
    for _ in range(10):
        ctx.text("z")
        await asyncio.sleep(1)
    return "slept"


@runnable
async def failing(ctx: Any) -> None:
    ctx.text("so far")
    await asyncio.sleep(1)
    raise ValueError("a bug in the body")


# -- nothing starts by itself


@virtual
async def test_looking_at_a_run_starts_nothing() -> None:
    """Attributes, `repr`, `cancel` do not start it; it stays queued however long that takes."""
    handle = sleeper.run()
    await asyncio.sleep(10)
    assert handle.status is RunStatus.QUEUED
    assert (handle.text, handle.outcome, handle.parent_id) == ("", None, None)
    assert handle.root_id == handle.id
    assert not any((handle.is_cancelling, handle.is_done, handle.is_cancelled, handle.is_completed))
    assert handle.why() == "It is queued."
    assert repr(handle) == f"<Run 'sleeper' {handle.id} queued>"
    assert handle.id not in LIVE


@pytest.mark.parametrize("use", ["await", "wait", "finished", "start", "detach", "scope", "for", "events", "text"])
@virtual
async def test_whatever_waits_starts_it(use: str) -> None:
    """Each use begins the run; the clock shows that it ran to its end."""
    handle = sleeper.run()
    match use:
        case "await":
            await handle
        case "wait":
            await asyncio.create_task(handle.wait())
        case "finished":
            await handle.finished()
        case "start":
            assert handle.start() is handle
        case "detach":
            assert handle.detach() == handle.id
        case "scope":
            async with handle as entered:
                assert entered is handle
                await handle
        case "for":
            _ = [event async for event in handle]
        case "events":
            _ = [event async for event in handle.events()]
        case _:
            assert [text async for text in handle.text_stream()] == ["z"] * 10
    result = await handle
    assert (result.output, asyncio.get_running_loop().time()) == ("slept", 10.0)


@virtual
async def test_starting_twice_is_starting_once() -> None:
    """`start()` again, and every later use, find it running."""
    handle = sleeper.run()
    handle.start().start()
    await asyncio.gather(handle, handle.finished(), handle.wait())
    log = [event async for event in handle.events()]
    assert [event.type for event in log].count("run.started") == 1


# -- what it shows


@virtual
async def test_status_repr_and_why_tell_the_truth_from_beginning_to_end() -> None:
    """queued, running, cancelling, cancelled; `text` grows meanwhile."""
    handle = sleeper.run().start()
    await asyncio.sleep(2.5)
    assert (handle.status, handle.text, handle.why()) == (RunStatus.RUNNING, "zzz", "It is running.")
    assert handle.cancel("enough", actor="me") is True
    assert (handle.status, handle.is_cancelling, handle.is_done) == (RunStatus.CANCELLING, True, False)
    assert handle.why() == "It is being stopped: user_stop by me (enough)."
    assert repr(handle) == f"<Run 'sleeper' {handle.id} cancelling>"
    result = await handle.finished()
    assert (handle.status, handle.is_cancelling, handle.is_done) == (RunStatus.CANCELLED, False, True)
    assert handle.outcome is result
    assert handle.text == result.text == "zzz"
    assert handle.why().startswith("It was stopped: user_stop by me (enough), and everything had stopped ")
    assert (handle.is_cancelled, handle.is_completed) == (True, False)


@virtual
async def test_a_completed_run_says_so() -> None:
    """Its result is the body's output, its text what was shown."""
    handle = sleeper.run()
    result = await handle
    assert result == RunResult(
        run_id=handle.id,
        status=RunStatus.COMPLETED,
        output="slept",
        text="z" * 10,
        messages=(Message.assistant("z" * 10),),
    )
    assert (handle.is_completed, handle.is_done, handle.why()) == (True, True, "It completed.")
    assert repr(handle) == f"<Run 'sleeper' {handle.id} completed>"


@virtual
async def test_a_failed_run_raises_run_failed_with_its_cause_and_its_result() -> None:
    """What arrived before is kept; `finished()` raises nothing."""
    handle = failing.run()
    with pytest.raises(RunFailed, match="ValueError: a bug in the body") as caught:
        await handle
    assert isinstance(caught.value.__cause__, ValueError)
    assert caught.value.result is await handle.finished()
    assert handle.outcome is not None
    assert (handle.outcome.text, handle.why()) == ("so far", "It failed: ValueError: a bug in the body.")
    assert [message.interrupted for message in handle.outcome.messages] == [True]
    assert caught.value.run_id == handle.id


@virtual
async def test_a_stopped_run_raises_run_cancelled_to_all_who_wait() -> None:
    """Each of many waiters is answered; the exception carries the record of the stop."""
    handle = sleeper.run()
    waits = [asyncio.ensure_future(handle.wait()) for _ in range(10)]
    await asyncio.sleep(1)
    handle.cancel("enough")
    ended = await asyncio.gather(*waits, return_exceptions=True)
    assert all(isinstance(error, RunCancelled) and error.result is handle.outcome for error in ended)
    with pytest.raises(RunCancelled, match=r"was stopped: user_stop \(enough\)") as caught:
        await handle  # later too
    assert caught.value.cancellation is not None
    assert caught.value.cancellation.message == "enough"


@virtual
async def test_an_exception_whose_text_cannot_be_made_ends_the_run_all_the_same() -> None:
    """A `__str__` that raises must not keep the terminal event from being written."""

    class Unspeakable(Exception):
        def __str__(self) -> str:
            raise RuntimeError("no text")

    @runnable
    async def body(ctx: Any) -> None:
        raise Unspeakable

    handle = body.run()
    result = await handle.finished()
    assert result.is_failed
    *_, last = [event async for event in handle.events()]
    assert isinstance(last, events.Failed)
    assert last.error.type == "Unspeakable"


@virtual
async def test_a_cancelled_future_in_a_body_is_a_failure_and_cancels_nobody_else() -> None:
    """A `CancelledError` that nobody asked for must not look like a cancel of whoever waits."""

    @runnable
    async def body(ctx: Any) -> None:
        future = asyncio.get_running_loop().create_future()
        future.cancel()
        await future

    handle = body.run()
    with pytest.raises(RunFailed, match="CancelledError"):
        await handle
    *_, last = [event async for event in body.run()]
    assert last.type == "run.failed"


# -- waiting for input


@virtual
async def test_a_run_that_asks_is_waiting_until_it_is_answered() -> None:
    """`waiting` and back to `running`; the answer is in the log."""

    @runnable
    async def body(ctx: Any) -> Any:
        return await ctx.ask("Really?", kind="approval", options=("yes", "no"))

    handle = body.run().start()
    async for event in handle:
        if isinstance(event, events.InputRequested):
            await asyncio.sleep(5)
            assert handle.status is RunStatus.WAITING
            assert (event.prompt, event.kind, event.options) == ("Really?", "approval", ("yes", "no"))
            handle.answer(event.request_id, "yes")
            with pytest.raises(AlreadyAnswered, match="this one changes nothing"):
                handle.answer(event.request_id, "no")  # it is open until the loop has seen the first
            await asyncio.sleep(0.1)
            with pytest.raises(UsageError, match="no open request"):
                handle.answer(event.request_id, "too late")
    assert (await handle).output == "yes"
    received = [event async for event in handle.events() if isinstance(event, events.InputReceived)]
    assert [(event.outcome, event.answer) for event in received] == [("answered", "yes")]


@virtual
async def test_of_answers_from_many_threads_at_once_one_is_taken_and_the_others_are_told() -> None:
    @runnable
    async def body(ctx: Any) -> Any:
        return await ctx.ask("Which?")

    handle = body.run().start()
    event = await anext(event async for event in handle.events() if isinstance(event, events.InputRequested))
    together = threading.Barrier(8)
    taken: list[int] = []

    def answer(mine: int) -> None:
        together.wait(10)
        with contextlib.suppress(AlreadyAnswered):
            handle.answer(event.request_id, mine)
            taken.append(mine)

    threads = [threading.Thread(target=answer, args=(mine,)) for mine in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:  # the loop sees none of it meanwhile
        thread.join(10)
    assert [(await handle).output] == taken


@virtual
async def test_an_answer_that_was_taken_counts_also_if_the_time_ends_before_the_loop_sees_it() -> None:
    @runnable
    async def body(ctx: Any) -> Any:
        return await ctx.ask("Which?", timeout=5)

    handle = body.run().start()
    event = await anext(event async for event in handle.events() if isinstance(event, events.InputRequested))
    asked = handle._execution.inputs[event.request_id]
    assert asked.claim(Answer("red"))  # as a thread that has not come to wake the loop
    assert (await handle).output == "red"
    received = [event async for event in handle.events() if isinstance(event, events.InputReceived)]
    assert [(event.outcome, event.answer) for event in received] == [("answered", "red")]


@virtual
async def test_a_run_with_two_open_questions_waits_until_both_are_answered() -> None:
    """One answer does not make it `running`."""

    @runnable
    async def body(ctx: Any) -> list[Any]:
        return await asyncio.gather(ctx.ask("one"), ctx.ask("two"))

    handle = body.run().start()
    asked = []
    async for event in handle.events():
        if isinstance(event, events.InputRequested):
            asked.append(event.request_id)
        if len(asked) == 2:
            break
    handle.answer(asked[0], 1)
    await asyncio.sleep(1)
    assert handle.status is RunStatus.WAITING
    handle.answer(asked[1], 2)
    assert (await handle).output == [1, 2]


@virtual
async def test_a_question_that_nobody_answers_in_time_expires() -> None:
    """`TimeoutError` in the body, `expired` in the log, and the run goes on."""

    @runnable
    async def body(ctx: Any) -> str:
        with pytest.raises(TimeoutError):
            await ctx.ask("Anybody?", timeout=5)
        assert ctx.run.status is RunStatus.RUNNING
        return "nobody"

    handle = body.run()
    assert (await handle).output == "nobody"
    assert asyncio.get_running_loop().time() == 5
    received = [event async for event in handle.events() if isinstance(event, events.InputReceived)]
    assert [event.outcome for event in received] == ["expired"]


@virtual
async def test_a_question_given_up_within_the_body_is_resolved_as_cancelled() -> None:
    """A scope of the body's own around `ask`: the run goes on, and the request is not open any more."""

    @runnable
    async def body(ctx: Any) -> str:
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(2):
                await ctx.ask("Anybody?")
        await asyncio.sleep(1)
        return ctx.run.status

    handle = body.run()
    assert (await handle).output == "running"
    received = [event async for event in handle.events() if isinstance(event, events.InputReceived)]
    assert [event.outcome for event in received] == ["cancelled"]


@pytest.mark.scenario("C36")
@virtual
async def test_a_pending_question_is_resolved_as_cancelled_by_a_stop() -> None:
    """Before the terminal event; answering it later is an error."""
    reached = []

    @runnable
    async def body(ctx: Any) -> None:
        await ctx.ask("Delete everything?")
        reached.append("the tool ran")

    handle = body.run().start()
    await asyncio.sleep(1)
    handle.cancel()
    await handle.finished()
    log = [event async for event in handle.events()]
    assert [event.type for event in log[-3:]] == ["run.cancelling", "input.received", "run.cancelled"]
    assert log[-2].outcome == "cancelled"  # pyright: ignore
    with pytest.raises(UsageError):
        handle.answer(log[-2].request_id, "yes")  # pyright: ignore
    assert not reached


@virtual
async def test_nobody_can_be_asked_after_the_cut() -> None:
    """A body that swallows its cancellation and asks gets `RunCancelled`, not a wait for ever."""
    seen = []

    @runnable
    async def body(ctx: Any) -> None:
        try:
            await asyncio.sleep(100)
        except asyncio.CancelledError:
            with pytest.raises(RunCancelled):
                await ctx.ask("May I go on?")
            with pytest.raises(RunCancelled):
                await ctx.in_thread(lambda: seen.append("a thread ran"))
            seen.append("refused")

    handle = body.run().start()
    await asyncio.sleep(1)
    await handle.aclose()
    assert seen == ["refused"]


# -- steering


@virtual
async def test_sending_to_a_run_that_is_over_or_being_stopped_is_false() -> None:
    """Whatever the mode of the stop: after it there is no turn that could hear it."""
    agent = Agent("scripted:one two three")
    done = agent.run("hi")
    await done
    assert done.send("more") is False
    for mode in CancelMode:
        handle = agent.run("hi").start()
        await asyncio.sleep(0)
        assert handle.send("more") is True
        handle.cancel(mode=mode)
        assert handle.send("even more") is False, mode
        await handle.finished()
    pending = agent.run("hi")
    pending.cancel()
    assert pending.send("more") is False


@virtual
async def test_what_is_sent_is_heard_at_the_next_turn_by_this_run_alone() -> None:
    """Also before the start; text or a message."""
    agent = Agent("scripted:answer")
    handle, other = agent.run("first"), agent.run("first")
    assert handle.send("second") is True
    assert handle.send(Message.user("third", name="bob"))
    result, untouched = await asyncio.gather(handle, other)
    assert [message.text for message in result.messages] == ["first", "answer", "second", "third", "answer"]
    assert [message.text for message in untouched.messages] == ["first", "answer"]


# -- mistakes


@virtual
async def test_two_readers_on_one_cursor_at_once_is_busy_error() -> None:
    """The second is told of `run.events()`, and the first goes on undisturbed."""
    handle = sleeper.run()
    reader = aiter(handle)
    await anext(reader)
    await anext(reader)
    first = asyncio.ensure_future(anext(reader))
    await asyncio.sleep(0.5)
    with pytest.raises(BusyError, match=r"run\.events\(\)"):
        async for _ in handle:
            pass
    with pytest.raises(BusyError):
        await anext(handle.text_stream())
    assert (await first).type == "text.delta"
    assert len([event async for event in handle.events()]) == 13
    await handle


@virtual
async def test_a_run_cannot_wait_for_its_own_end() -> None:
    """`BusyError`, for itself and for an ancestor, whichever way it waits; it can stop itself."""

    @runnable
    async def child(ctx: Any, parent: Run[Any]) -> None:
        for wait in (parent.wait, parent.finished, parent.aclose):
            with pytest.raises(BusyError, match="own end"):
                await wait()

    @runnable
    async def body(ctx: Any) -> None:
        for wait in (ctx.run.wait, ctx.run.finished, current_run().wait):
            with pytest.raises(BusyError, match="own end"):
                await wait()
        await child.run(ctx.run)

    handle = body.run()
    result = await handle.finished()
    assert result.is_cancelled  # the child's `aclose` has asked, as it says
    assert result.error is None


@virtual
async def test_blocking_forms_in_a_running_loop_raise_and_name_what_to_await() -> None:
    """And start nothing."""
    handle = sleeper.run()
    for use, instead in (
        (handle.result, "await run"),
        (lambda: next(iter(handle)), "async for event in run"),
        (lambda: next(iter(handle.text_stream())), "async for text in run.text_stream()"),
        (lambda: next(iter(handle.events())), "async for event in run"),
        (handle.__enter__, "async with agent.run"),
    ):
        with pytest.raises(BlockingCallError, match="use `") as caught:
            use()
        assert instead in str(caught.value)
    assert handle.status is RunStatus.QUEUED


BAD: list[tuple[dict[str, Any], str]] = [
    ({"timeout": -1}, "timeout"),
    ({"timeout": math.nan}, "timeout"),
    ({"timeout": "1"}, "timeout"),
    ({"timeout": True}, "timeout"),
    ({"grace": -0.1}, "grace"),
    ({"grace": "soon"}, "grace"),
    ({"id": ""}, "id"),
    ({"id": " "}, "id"),
    ({"id": 7}, "id"),
    ({"id": "x" * 257}, "id"),
    ({"cancellation": "stop"}, "CancellationToken"),
    ({"tags": [1]}, "tags"),
    ({"history": [1]}, "Message"),
]


@pytest.mark.parametrize(("options", "names"), BAD, ids=repr)
@virtual
async def test_a_bad_argument_is_a_configuration_error_and_starts_nothing(options: dict[str, Any], names: str) -> None:
    """Raised by `run()` itself, and it names the argument."""
    before = dict(LIVE)
    for thing in (sleeper, Agent("scripted:x")):
        with pytest.raises(ConfigurationError, match=names):
            thing.run("hi", **options)
    assert before == LIVE
    assert not runtime().runs()


@virtual
async def test_an_agent_needs_an_input_and_a_runnable_a_body() -> None:
    """Mistakes in definitions are found before anything runs."""
    for bad in (None, "", [], [1], 7, [Message.user("x"), "y"]):
        with pytest.raises(ConfigurationError):
            Agent("scripted:x").run(bad)
    for wrong in ("nobody:model", "scripted", "scripted:"):
        with pytest.raises(ConfigurationError, match="scripted"):
            Agent(wrong)
    with pytest.raises(ConfigurationError, match="async function"):
        runnable(lambda ctx: None)  # type: ignore[arg-type]
    with pytest.raises(ConfigurationError, match="must take"):

        @runnable
        async def no_context() -> None: ...


@virtual
async def test_an_unstarted_run_cannot_be_a_parent() -> None:
    """It has no place in a tree yet."""
    with pytest.raises(ConfigurationError, match="has not started"):
        sleeper.run(parent=sleeper.run())


@virtual
async def test_an_id_is_unique_among_live_runs_whenever_they_start() -> None:
    """Two handles with one id: the second to start is refused, and the first is not harmed."""
    first, second = sleeper.run(id="mine"), sleeper.run(id="mine")
    first.start()
    with pytest.raises(BusyError, match="mine"):
        sleeper.run(id="mine")
    with pytest.raises(BusyError, match="mine"):
        second.start()
    assert runtime().find("mine") is not None
    await first
    assert runtime().find("mine") is None
    assert (await sleeper.run(id="mine")).is_completed
    assert (await second).is_completed


# -- the cursor


@virtual
async def test_a_second_loop_goes_on_where_the_first_stopped() -> None:
    """The handle has one cursor: whatever loop is used, each event comes once."""
    handle = sleeper.run()
    seen: list[Any] = []
    async for event in handle:
        seen.append(event)
        if len(seen) == 4:
            break
    texts = []
    async for text in handle.text_stream():
        texts.append(text)
        if len(texts) == 2:
            break
    seen += [event async for event in handle]
    assert len(seen) + 2 == len([event async for event in handle.events()])
    assert len({event.seq for event in seen}) == len(seen)
    assert seen[-1].is_terminal
    assert [event async for event in handle] == []  # and behind the end there is nothing


# -- context


@virtual
async def test_a_body_gets_what_the_caller_gave_it() -> None:
    """Input, history, context, id, tags; the context object is the very same and is never copied."""
    marker = object()

    @runnable
    async def body(ctx: Any, input: Any) -> Any:
        assert ctx.context is marker
        assert ctx.run_id == ctx.run.id == current_run().id == "my-id"
        assert [message.text for message in ctx.messages] == ["before"]
        assert ctx.deadline == 8.0
        return input

    handle = body.run(
        {"a": 1}, context=marker, history=[Message.user("before")], id="my-id", tags=("x", "y"), timeout=8
    )
    assert (await handle).output == {"a": 1}
    started = await anext(handle.events())
    assert isinstance(started, events.Started)
    assert (started.name, started.kind, started.tags, started.timeout) == ("body", "runnable", ("x", "y"), 8.0)


def test_current_run_outside_of_a_run_says_what_to_do() -> None:
    """`NoCurrentRun`, loudly: never an event lost in silence."""
    with pytest.raises(NoCurrentRun, match=r"run\.bind"):
        current_run()


@virtual
async def test_generators_show_what_they_yield() -> None:
    """Text is the answer, anything else a `custom` event."""

    @runnable(name="speaker")
    async def body(ctx: Any, input: str) -> Any:
        yield f"hello {input}, "
        yield {"n": 1}
        yield "bye"

    handle = body.run("bob")
    result = await handle
    assert (result.output, result.text, body.name) == ("hello bob, bye", "hello bob, bye", "speaker")
    custom = [event async for event in handle.events() if isinstance(event, events.Custom)]
    assert [(event.name, event.data) for event in custom] == [("item", {"n": 1})]


# -- before the start, after the end


@pytest.mark.scenario("B15")
@pytest.mark.parametrize("use", ["await", "finished", "for", "text", "scope", "events"])
@pytest.mark.parametrize("how", ["handle", "token", "aclose"])
@virtual
async def test_a_stop_before_the_first_use_is_one_event_and_no_request(use: str, how: str) -> None:
    """The body never runs; using it later ends at once, as cancelled; the receipt is empty."""
    ran = []

    @runnable
    async def body(ctx: Any) -> None:
        ran.append(1)

    token = CancellationToken()
    handle = body.run(cancellation=token)
    match how:
        case "handle":
            assert handle.cancel("no") is True
        case "aclose":
            await handle.aclose()
        case _:
            token.cancel("no")
    match use:
        case "await":
            with pytest.raises(RunCancelled):
                await handle
        case "finished":
            await handle.finished()
        case "for":
            assert [event.type async for event in handle] == ["run.cancelled"]
        case "text":
            assert [text async for text in handle.text_stream()] == []
        case "scope":
            async with handle:
                pass
        case _:
            assert [event.type async for event in handle.events()] == ["run.cancelled"]
    result = await handle.finished()
    log = [event async for event in handle.events()]
    assert not ran
    assert [event.type for event in log] == ["run.cancelled"]
    assert [event.seq for event in log] == [1]
    assert result.is_cancelled
    assert result.receipt is not None
    assert (result.receipt.resources, result.receipt.confirmed) == ((), True)
    assert handle.cancel() is False
    assert asyncio.get_running_loop().time() == 0


@pytest.mark.scenario("B15")
@virtual
async def test_an_agent_stopped_before_its_start_asks_no_model() -> None:
    """Zero requests, with a token that was cancelled before the run was made."""
    asked = []

    class Model:
        name = "counting"

        async def respond(self, request: Any, ctx: Any) -> Message:
            asked.append(request)
            return Message.assistant("x")

    token = CancellationToken()
    token.cancel("never", reason=CancelReason.POLICY)
    handle = Agent(Model()).run("hi", cancellation=token)
    with pytest.raises(RunCancelled, match="policy"):
        await handle
    assert not asked
    assert not token._listeners


@pytest.mark.scenario("B16", "D49")
@virtual
async def test_a_stop_after_completion_changes_nothing() -> None:
    """It returns False; the result is the same object, and nothing says cancelled."""
    token = CancellationToken()
    handle = sleeper.run(cancellation=token)
    result = await handle
    log = [event async for event in handle.events()]
    for mode in CancelMode:
        assert handle.cancel("late", mode=mode) is False
    token.cancel("late")
    await handle.aclose()
    await asyncio.sleep(10)
    assert handle.outcome is result
    assert (handle.status, handle.is_cancelled, handle.is_cancelling) == (RunStatus.COMPLETED, False, False)
    assert handle.why() == "It completed."
    assert [event async for event in handle.events()] == log
    assert (await handle) is result


@virtual
async def test_a_run_that_winds_down_after_its_body_cannot_be_stopped_any_more_and_says_so() -> None:
    """Its end is decided: `cancel` is False, the status is not `cancelling`, and `why()` agrees."""

    @runnable
    async def lingering(ctx: Any) -> None:
        try:
            await asyncio.sleep(100)
        finally:
            await asyncio.sleep(1)

    @runnable
    async def body(ctx: Any) -> str:
        ctx.start(lingering)
        await asyncio.sleep(1)
        return "done"

    handle = body.run().start()
    await asyncio.sleep(1.5)
    assert handle.cancel("too late") is False
    assert (handle.status, handle.is_cancelling) == (RunStatus.RUNNING, False)
    assert handle.why() == "It is running."
    assert (await handle).output == "done"


def test_virtual_runs_do_not_outlive_their_loop() -> None:
    """What a loop leaves alive at its end is stopped with it, sealed, and has its terminal event."""
    kept: list[Run[Any]] = []

    async def main() -> None:
        kept.append(sleeper.run().start())
        await asyncio.sleep(2.5)

    virtually(main)
    (handle,) = kept
    assert handle.outcome is not None
    assert handle.outcome.cancellation is not None
    assert handle.outcome.cancellation.reason is CancelReason.SHUTDOWN
    assert handle.outcome.text == "zzz"
    assert not LIVE
