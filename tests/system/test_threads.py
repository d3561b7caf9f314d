"""Runs and threads: every event goes to its own run; blocking functions carry their run, and are abandoned in time."""

from __future__ import annotations

import asyncio
import contextvars
import logging
import os
import threading
import time
from collections.abc import Callable
from typing import Any

import pytest
import uvloop

from halter import Agent, CancelMode, RunCancelled, RunContext, RunFailed, current_run, runnable
from halter.core import home
from halter.errors import BlockingCallError, BusyError, NoCurrentRun
from halter.events import Custom
from halter.outcome import Ended

from ..bounds import T, assert_within

Thread = Callable[..., threading.Thread]


# --- E51 ----------------------------------------------------------------------------------------------------


@runnable
async def marked(ctx: RunContext, marker: str) -> str:
    """Shows its marker 20 times, from its coroutine and from a thread, with a child that does the same."""
    if not marker.endswith("child"):
        child = ctx.start(marked, f"{marker}/child")
    for i in range(10):
        ctx.text(f"{marker} ")
        ctx.emit("mark", marker)
        await asyncio.sleep(0 if i % 3 else 0.001)
    await ctx.in_thread(lambda: [ctx.emit("mark", marker) for _ in range(10)])
    if not marker.endswith("child"):
        await child
    return marker


def check_tree(marker: str, run: Any, events: list[Any]) -> None:
    """Each event bears an id of this tree, and what it holds is that run's own; none is missing; dense."""
    child_id = next(event.run_id for event in events if event.parent_id == run.id)
    owner = {run.id: marker, child_id: f"{marker}/child"}
    assert {event.run_id for event in events} == set(owner)
    assert {event.root_id for event in events} == {run.id}
    for id, text in owner.items():
        marks = [event.data for event in events if isinstance(event, Custom) and event.run_id == id]
        assert marks == [text] * 20
        shown = "".join(event.text for event in events if event.type == "text.delta" and event.run_id == id)
        assert shown == f"{text} " * 10
    assert [event.seq for event in events] == list(range(1, len(events) + 1))
    assert events[-1].type == "run.completed"
    assert run.outcome.output == marker


@pytest.mark.scenario("E51")
def test_runs_on_eight_threads_with_loops_of_their_own_see_their_own_events_only(thread: Thread) -> None:
    """8 threads, each with its own loop (asyncio and uvloop), 25 trees each: 0 foreign, 0 missing, order dense."""
    failures: list[BaseException] = []

    async def one(marker: str) -> None:
        run = marked.run(marker)
        check_tree(marker, run, [event async for event in run])

    async def main(name: str) -> None:
        async with asyncio.TaskGroup() as group:
            for i in range(25):
                group.create_task(one(f"{name}-{i}"))

    def work(name: str, run_on: Callable[[Any], Any]) -> None:
        try:
            run_on(main(name))
        except BaseException as error:
            failures.append(error)

    for one_thread in [thread(work, f"t{i}", (asyncio.run, uvloop.run)[i % 2]) for i in range(8)]:
        one_thread.join(30)
    assert not failures, failures


@pytest.mark.scenario("E51")
def test_blocking_readers_on_eight_threads_see_their_own_events_only(thread: Thread) -> None:
    """8 threads with blocking loops over trees of the one background loop: 0 foreign, 0 missing, order dense."""
    failures: list[BaseException] = []

    def work(name: str) -> None:
        try:
            for i in range(12):
                run = marked.run(f"{name}-{i}")
                check_tree(f"{name}-{i}", run, list(run))
        except BaseException as error:
            failures.append(error)

    for one in [thread(work, f"t{i}") for i in range(8)]:
        one.join(30)
    assert not failures, failures


# --- E52 ----------------------------------------------------------------------------------------------------


def in_raw_thread(fn: Callable[[], object]) -> list[object]:
    """What `fn` returns or raises in a thread that carries nothing."""
    got: list[object] = []

    def work() -> None:
        try:
            got.append(fn())
        except BaseException as error:
            got.append(error)

    one = threading.Thread(target=work)
    one.start()
    one.join(5)
    return got


def emit_here() -> str:
    RunContext.current().emit("from a thread", threading.current_thread().name)
    return current_run().id


@pytest.mark.scenario("E52")
def test_an_emit_from_a_raw_thread_needs_the_run_bound(run_on: Callable[[Any], Any]) -> None:
    """Bound: delivered to that run. Unbound: `NoCurrentRun`, and nothing is delivered anywhere."""

    @runnable
    async def body(ctx: RunContext) -> list[object]:
        unbound = await asyncio.to_thread(in_raw_thread, emit_here)
        bound = await asyncio.to_thread(in_raw_thread, ctx.run.bind(emit_here))
        explicit = await asyncio.to_thread(in_raw_thread, lambda: ctx.emit("explicit", 1))
        return [*unbound, *bound, *explicit]

    async def main() -> None:
        other = body.run()
        run = body.run()
        events = [event async for event in run]
        unbound, bound, explicit = run.outcome.output
        assert isinstance(unbound, NoCurrentRun)
        assert (bound, explicit) == (run.id, None)
        assert [event.name for event in events if isinstance(event, Custom)] == ["from a thread", "explicit"]
        assert {event.run_id for event in events} == {run.id}
        assert not other.is_done

    run_on(main())


@pytest.mark.scenario("E52")
def test_what_a_thread_emitted_before_the_body_returned_is_never_lost() -> None:
    """Many threads emit, then the body returns at once: each event is in the log, before the terminal one."""

    @runnable
    async def body(ctx: RunContext) -> None:
        def emit_some(k: int) -> None:
            for i in range(20):
                ctx.emit("note", (k, i))

        await asyncio.gather(*(ctx.in_thread(emit_some, k) for k in range(8)))

    for _ in range(30):
        notes = [event.data for event in body.run() if isinstance(event, Custom)]
        assert sorted(notes) == [(k, i) for k in range(8) for i in range(20)]
        for k in range(8):
            assert [i for who, i in notes if who == k] == list(range(20))


@pytest.mark.scenario("E52")
def test_what_a_thread_emitted_comes_before_what_it_returned(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also when the wake-up that another thread was about to give comes late: `emit`s first, then the result."""

    def late(self: home.Home, fn: Callable[[], object]) -> bool:
        if getattr(fn, "__name__", "") == "_read_some":
            self.loop.call_soon_threadsafe(self.loop.call_later, 0.05, fn)
        else:
            self.loop.call_soon_threadsafe(fn)
        return True

    @runnable
    async def body(ctx: RunContext) -> None:
        await ctx.in_thread(ctx.emit, "in the thread")
        ctx.emit("after it")
        # A thread that the body does not wait for by `in_thread`, and that is done when the body returns.
        await asyncio.to_thread(ctx.emit, "in another thread")

    monkeypatch.setattr(home.Home, "wake", late)
    names = [event.name for event in body.run() if isinstance(event, Custom)]
    assert names == ["in the thread", "after it", "in another thread"]


@pytest.mark.scenario("E52")
def test_a_bad_emit_in_a_thread_does_not_hold_up_the_good_ones(caplog: pytest.LogCaptureFixture) -> None:
    """An event that cannot be made is reported; those that other calls emitted behind it are delivered all the same."""

    @runnable
    async def body(ctx: RunContext) -> None:
        def emit_some() -> None:
            ctx.emit("first")
            ctx.write(Custom, no_such_field=1)
            ctx.emit("second")

        emitting = threading.Thread(target=emit_some)
        emitting.start()
        emitting.join()  # the loop is blocked meanwhile: all three are read at once
        await asyncio.sleep(0.01)

    with caplog.at_level(logging.ERROR):
        names = [event.name for event in body.run() if isinstance(event, Custom)]
    assert names == ["first", "second"]
    assert "no_such_field" in caplog.text


@pytest.mark.scenario("E52")
def test_after_the_cut_an_emit_in_a_thread_raises_run_cancelled(thread: Thread) -> None:
    """Its chance to stop: `RunCancelled` in the thread, nothing in the log, and the thread has ended in time."""
    raised: list[BaseException] = []

    @runnable
    async def body(ctx: RunContext) -> None:
        await ctx.in_thread(work, ctx)

    def work(ctx: RunContext) -> None:
        try:
            while True:
                ctx.emit("tick")
                time.sleep(0.002)
        except BaseException as error:
            raised.append(error)
            raise

    run = body.run()
    seen = []
    for event in run.events():
        seen.append(event)
        if len(seen) == 5:
            run.cancel("enough")
    cut = next(i for i, event in enumerate(seen) if event.type == "run.cancelling")
    assert [event.type for event in seen[cut:]] == ["run.cancelling", "run.cancelled"]
    assert isinstance(raised[0], RunCancelled)
    assert raised[0].cancellation.message == "enough"
    lines = {line.kind: line for line in run.outcome.receipt.resources}
    assert lines["thread"].ended is Ended.FINISHED
    assert run.outcome.receipt.confirmed


@pytest.mark.scenario("E52")
def test_after_the_run_an_emit_in_a_thread_raises_no_current_run() -> None:
    """A thread that outlives a completed run is told so; the ended log does not grow."""
    contexts: list[RunContext] = []

    @runnable
    async def body(ctx: RunContext) -> None:
        contexts.append(ctx)

    run = body.run()
    before = list(run)
    assert isinstance(in_raw_thread(lambda: contexts[0].emit("late"))[0], NoCurrentRun)
    assert isinstance(in_raw_thread(lambda: contexts[0].text("late"))[0], NoCurrentRun)
    assert list(run.events()) == before


@pytest.mark.scenario("E52")
def test_a_child_started_in_a_bound_thread_runs_on_the_home_loop_of_its_parent(run_on: Callable[[Any], Any]) -> None:
    """A blocking `run()` in a thread that carries a run: its child, on that run's loop, in its log."""
    agent = Agent("scripted:a child's answer")

    @runnable
    async def child(ctx: RunContext) -> int:
        return threading.get_ident()

    @runnable
    async def body(ctx: RunContext) -> list[Any]:
        def blocking() -> list[Any]:
            first = child.run()
            texts = "".join(agent.run("?").text_stream())
            return [first.result().output, first.parent_id, first.root_id, texts, [e.type for e in child.run()]]

        in_thread = await ctx.in_thread(blocking)
        raw = await asyncio.to_thread(in_raw_thread, ctx.run.bind(blocking))
        return [in_thread, raw[0]]

    async def main() -> None:
        run = body.run()
        events = [event async for event in run]
        for thread_id, parent, root, text, types in run.outcome.output:
            assert thread_id == threading.get_ident()
            assert parent == root == run.id
            assert text == "a child's answer"
            assert types == ["run.started", "run.completed"]
        assert sum(event.type == "run.started" for event in events) == 7
        assert [event.seq for event in events] == list(range(1, len(events) + 1))

    run_on(main())


@pytest.mark.scenario("E52")
def test_a_blocking_wait_in_a_thread_for_its_own_run_is_refused() -> None:
    """It would wait for itself: `BusyError`. And on a loop, the blocking forms say what to `await`."""

    @runnable
    async def body(ctx: RunContext) -> list[str]:
        def wait_for_me() -> str:
            try:
                ctx.run.result()
            except BusyError as error:
                return type(error).__name__
            return "waited"

        answers = [await ctx.in_thread(wait_for_me)]
        for blocking in (ctx.run.result, ctx.run.close, ctx.run.__iter__, ctx.run.__enter__):
            try:
                blocking()
            except BlockingCallError as error:
                answers.append("await" if "a" in str(error) else str(error))
            if blocking == ctx.run.result:
                continue
        return answers

    run = body.run()
    try:
        assert run.result(timeout=5).output == ["BusyError", "await", "await", "await", "await"]
    except RunCancelled:
        pass  # close() asks for the stop before it refuses to wait
    assert run.is_done


# --- E53, second half ---------------------------------------------------------------------------------------

AGENT = Agent("scripted:one object, used everywhere", name="shared")
ANSWER = "one object, used everywhere"


@pytest.mark.scenario("E53")
def test_one_agent_object_works_on_two_loops_at_once_and_two_runs_of_asyncio(thread: Thread) -> None:
    """Two `asyncio.run`s one after the other, two loops at once, and 8 blocking threads: all get the answer."""

    async def ask() -> str:
        return (await AGENT.run("?")).text

    async def many() -> list[str]:
        return await asyncio.gather(*(ask() for _ in range(20)))

    assert asyncio.run(ask()) == asyncio.run(ask()) == uvloop.run(ask()) == ANSWER
    answers: list[str] = []
    threads = [thread(lambda: answers.extend(asyncio.run(many()))) for _ in range(2)]
    threads += [thread(lambda: answers.append(AGENT.run("?").result().text)) for _ in range(8)]
    for one in threads:
        one.join(10)
    assert answers == [ANSWER] * 48


@pytest.mark.scenario("E53")
def test_one_agent_object_works_in_a_prefork_child(script: Any) -> None:
    """Used in the parent first, then in children by `os.fork` and by `multiprocessing`, blocking and async."""
    ended = script(
        """
        import asyncio, multiprocessing, os, sys, warnings
        warnings.filterwarnings("ignore", "This process .* is multi-threaded", DeprecationWarning)
        from halter import Agent

        agent = Agent("scripted:everywhere")

        async def ask():
            return (await agent.run("?")).text

        def work():
            for _ in range(3):
                print(agent.run("?").result(timeout=5).text, asyncio.run(ask()), flush=True)

        work()
        for _ in range(2):
            if (pid := os.fork()) == 0:
                work()
                sys.exit()
            assert os.waitpid(pid, 0)[1] == 0
        child = multiprocessing.get_context("fork").Process(target=work)
        child.start()
        child.join()
        assert child.exitcode == 0
        work()
        """
    )
    assert ended.quietly() == "everywhere everywhere\n" * 15


# --- in_thread ----------------------------------------------------------------------------------------------

COLOUR: contextvars.ContextVar[str] = contextvars.ContextVar("colour", default="none")


def test_a_function_in_a_thread_gives_its_result_and_sees_the_callers_context(run_on: Callable[[Any], Any]) -> None:
    """`ctx.in_thread(fn, …)`: arguments and result, a daemon thread, the context variables, the current run."""

    def work(a: int, *, b: int) -> list[Any]:
        me = threading.current_thread()
        return [a + b, COLOUR.get(), current_run().id, me.daemon, me.name, threading.get_ident()]

    @runnable
    async def body(ctx: RunContext) -> list[Any]:
        COLOUR.set("blue")
        return await ctx.in_thread(work, 1, b=2)

    async def main() -> None:
        COLOUR.set("red")
        run = body.run()
        total, colour, id, daemon, name, ident = (await run).output
        assert (total, colour, id, daemon) == (3, "blue", run.id, True)
        assert name == "halter-call-work"
        assert ident != threading.get_ident()
        assert COLOUR.get() == "red"

    run_on(main())


@pytest.mark.parametrize("error", [ValueError("no"), KeyError("k"), StopIteration(1)])
def test_an_exception_in_a_thread_is_raised_in_the_body(error: Exception) -> None:
    """As it is; only `StopIteration`, which a coroutine cannot raise, comes as `RuntimeError`."""

    def fails() -> None:
        raise error

    @runnable
    async def body(ctx: RunContext) -> None:
        await ctx.in_thread(fails)

    with pytest.raises(RunFailed) as caught:
        body.run().result(timeout=5)
    if isinstance(error, StopIteration):
        assert isinstance(caught.value.__cause__, RuntimeError)
    else:
        assert caught.value.__cause__ is error


def test_a_thread_that_does_not_look_is_abandoned_after_100_ms_and_named(caplog: pytest.LogCaptureFixture) -> None:
    """Its line in the receipt says `abandoned`, the stop is not confirmed, and nothing waits for it."""
    release = threading.Event()

    @runnable
    async def body(ctx: RunContext) -> None:
        ctx.emit("begun")
        await ctx.in_thread(release.wait, 10)

    run = body.run()
    for event in run.events():
        if isinstance(event, Custom):
            began = time.monotonic()
            run.cancel()
    took = time.monotonic() - began
    release.set()
    assert took > 0.09
    assert_within(0.1 + T, took)
    lines = {line.kind: line for line in run.outcome.receipt.resources}
    assert lines["thread"].ended is Ended.ABANDONED
    assert lines["thread"].ended_after_ms is None
    assert lines["thread"].label.startswith("Event.wait (")
    assert lines["task"].ended is Ended.CANCELLED
    assert not run.outcome.receipt.confirmed
    assert "abandoned" in caplog.text


def test_a_kill_abandons_a_thread_without_patience(run_on: Callable[[Any], Any]) -> None:
    """`kill` gives nothing any grace: the run is over well before the 100 ms that a stop would give."""
    release = threading.Event()

    @runnable
    async def body(ctx: RunContext) -> None:
        ctx.emit("begun")
        await ctx.in_thread(release.wait, 10)

    async def main() -> None:
        run = body.run()
        async for event in run.events():
            if isinstance(event, Custom):
                began = time.monotonic()
                run.cancel(mode=CancelMode.KILL)
        assert_within(0.09, time.monotonic() - began)
        lines = {line.kind: line.ended for line in run.outcome.receipt.resources}
        assert lines == {"task": Ended.CANCELLED, "thread": Ended.ABANDONED}

    try:
        run_on(main())
    finally:
        release.set()


def test_a_late_failure_of_an_abandoned_thread_is_no_noise(script: Any) -> None:
    """A thread that raises after its run is over, as `emit` makes it do, leaves nothing on stderr."""
    ended = script(
        """
        import asyncio, gc, logging, threading, time
        from halter import runnable
        logging.getLogger("halter").setLevel(logging.CRITICAL)   # "abandoned" is told, and is not meant here

        late = threading.Event()

        def work(ctx):
            try:
                time.sleep(0.2)
                ctx.emit("too late")
            finally:
                late.set()

        def polls(ctx):
            while True:
                ctx.emit("tick")

        @runnable
        async def body(ctx, work):
            await ctx.in_thread(work, ctx)

        async def main():
            for function in (work, polls):
                run = body.run(function).start()
                await asyncio.sleep(0.02)
                run.cancel()
                await run.finished()
            while not late.is_set():
                await asyncio.sleep(0.01)
            await asyncio.sleep(0.02)
            del run
            gc.collect()

        asyncio.run(main())
        gc.collect()
        """,
        flags=("-X", "dev"),
    )
    ended.quietly()


def test_descriptors_of_the_main_thread_are_as_before_a_blocking_wait() -> None:
    """A blocking wait in the main thread keeps at most its one pipe, however often it waits."""
    AGENT.run("?").result(timeout=5)
    before = len(os.listdir("/proc/self/fd"))
    for _ in range(20):
        AGENT.run("?").result(timeout=5)
    assert len(os.listdir("/proc/self/fd")) == before


def test_a_flood_from_a_thread_starves_no_stop_and_no_neighbour(run_on: Callable[[Any], Any]) -> None:
    """A thread emits as fast as it can: its own run is stopped within 250 ms, and another task keeps its pace."""

    @runnable
    async def floods(ctx: RunContext) -> None:
        def work() -> None:
            while True:
                ctx.emit("tick")

        await ctx.in_thread(work)

    async def seconds_to_stop() -> float:
        run = floods.run().start()
        for _ in range(10):
            await asyncio.sleep(0.005)  # the neighbour
        began = time.monotonic()
        await run.aclose()
        assert run.outcome.receipt.confirmed
        return time.monotonic() - began

    async def main() -> None:
        began = time.monotonic()
        stops = [await seconds_to_stop() for _ in range(3)]
        assert_within(T, min(stops))  # the best of three: the thread itself keeps a core busy
        assert_within(30 * T, time.monotonic() - began)

    run_on(main())
