"""A run's stream is its own, a definition is never changed, and an ended run is gone."""

from __future__ import annotations

import asyncio
import gc
import os
import threading
import time
import weakref
from typing import Any

import pytest

from halter import Agent, CancellationToken, CancelReason, Message, Run, current_run, events, runnable, runtime
from halter.core.context import RunContext
from halter.core.current import CURRENT
from halter.core.execution import Execution
from halter.core.home import LIVE, _homes
from halter.core.log import Log
from halter.errors import NoCurrentRun, RunLost
from halter.models.scripted import Scripted

virtual = pytest.mark.virtual_time


class Echo:
    """A model that says what it was asked, letter by letter, at its own pace."""

    name = "echo"

    async def respond(self, request: Any, ctx: RunContext) -> Message:
        reply = ctx.reply()
        for letter in request.messages[-1].text:
            await asyncio.sleep(0)
            reply.text(letter)
        return reply.finish()


echo = Agent(Echo())


async def read(handle: Run[Any], marker: str) -> None:
    """Asserts that the run's log is its own: dense, complete, and nothing foreign in it."""
    log = [event async for event in handle]
    assert {event.run_id for event in log} == {handle.id}
    assert [event.seq for event in log] == list(range(1, len(log) + 1))
    assert "".join(e.text for e in log if isinstance(e, events.TextDelta)) == marker
    assert (await handle).text == marker


@pytest.mark.scenario("E51", "D39")
@virtual
async def test_200_runs_at_once_on_one_loop_each_get_their_own_events() -> None:
    """0 foreign, 0 missing, order dense: one agent object for all of them."""
    markers = [f"<run {number}> " * 5 for number in range(200)]
    await asyncio.gather(*(read(echo.run(marker), marker) for marker in markers))
    assert not LIVE


@pytest.mark.scenario("E51", "E53")
def test_200_runs_on_8_loops_in_8_threads_each_get_their_own_events() -> None:
    """The same agent object on every loop."""
    failed: list[BaseException] = []

    async def main(thread: int) -> None:
        markers = [f"<thread {thread} run {number}> " * 3 for number in range(25)]
        await asyncio.gather(*(read(echo.run(marker), marker) for marker in markers))

    def work(thread: int) -> None:
        try:
            asyncio.run(main(thread))
        except BaseException as error:
            failed.append(error)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(20)
    assert not failed


@pytest.mark.scenario("D39")
@virtual
async def test_the_same_object_run_again_and_20_at_once_gives_what_a_fresh_one_gives() -> None:
    """Also after a run of it was stopped or has failed in between."""

    def agent() -> Agent:
        return Agent(Scripted("one two", "three four", pace=1), instructions="Be brief.")

    async def story(agent: Agent) -> list[Any]:
        handle = agent.run("hi")
        handle.send("and then?")
        return [(event.type, getattr(event, "text", None)) async for event in handle.events()]

    fresh, used = await story(agent()), agent()
    assert await story(used) == fresh
    stopped = used.run("hi").start()
    await asyncio.sleep(1.5)
    await stopped.aclose()
    assert await story(used) == fresh
    assert await asyncio.gather(*(story(used) for _ in range(20))) == [fresh] * 20


@pytest.mark.scenario("E53")
@virtual
async def test_stopping_one_run_leaves_another_as_it_is_without_it() -> None:
    """Byte for byte: the same events, but for ids and times."""

    def spelled(log: list[Any]) -> list[Any]:
        return [(event.type, event.seq, getattr(event, "text", None)) for event in log]

    agent = Agent(Scripted("the same words every time", pace=1))
    alone = spelled([event async for event in agent.run("hi").events()])
    victim, other = agent.run("hi").start(), agent.run("hi")
    log: list[Any] = []
    async for event in other.events():
        log.append(event)
        if len(log) == 5:
            victim.cancel()
    assert spelled(log) == alone
    assert victim.is_cancelled


@pytest.mark.scenario("E53")
def test_one_object_works_on_two_loops_in_turn_and_without_a_loop() -> None:
    """Two `asyncio.run`s, the background loop, and a forked child."""
    for _ in range(2):
        assert asyncio.run(echo.run("hello").wait()).text == "hello"
    assert echo.run("hello").result(5).text == "hello"


@pytest.mark.scenario("E53")
@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_one_object_works_in_a_forked_child() -> None:
    """As in a prefork server: the definition was made, and used, before the fork."""
    assert echo.run("before").result(5).text == "before"
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            code = 0 if echo.run("child").result(5).text == "child" else 2
        finally:
            os._exit(code)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0


@pytest.mark.scenario("E53")
@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_a_child_run_that_was_given_to_its_loop_and_not_looked_at_is_over_in_a_forked_process() -> None:
    """It stands in no tree yet: whoever waits for it there would wait for ever."""

    @runnable
    async def parent(ctx: Any) -> int:
        child = echo.run("late", parent=ctx.run)
        thread = threading.Thread(target=child.start)
        thread.start()
        thread.join()
        pid = os.fork()
        if pid == 0:
            os._exit(0 if child.outcome is not None and isinstance(child.outcome.error, RunLost) else 2)
        await child
        return pid

    pid = asyncio.run(parent.run().wait()).output
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0


@pytest.mark.scenario("E52")
def test_an_emit_from_a_thread_is_delivered_if_bound_and_loud_if_not() -> None:
    """Bound: in that run's log, in order. Unbound: `NoCurrentRun`. Afterwards too."""
    heard: dict[str, Any] = {}

    def emit_some() -> None:
        for number in range(100):
            RunContext.current().emit("from a thread", number)

    def unbound() -> None:
        try:
            RunContext.current().emit("lost?")
        except NoCurrentRun as error:
            heard["unbound"] = error

    @runnable
    async def body(ctx: Any) -> None:
        for fn in (ctx.run.bind(emit_some), unbound):
            thread = threading.Thread(target=fn)
            thread.start()
            await ctx.in_thread(thread.join)
        heard["late"] = ctx.run.bind(emit_some)

    async def main() -> list[Any]:
        handle, other = body.run(), echo.run("x")
        log = [event async for event in handle]
        assert not [event async for event in other if isinstance(event, events.Custom)]
        return log

    log = asyncio.run(main())
    assert [event.data for event in log if isinstance(event, events.Custom)] == list(range(100))
    assert isinstance(heard["unbound"], NoCurrentRun)
    with pytest.raises(NoCurrentRun):
        heard["late"]()


@pytest.mark.scenario("E56")
@virtual
async def test_work_that_outlives_its_run_is_a_new_root_and_not_born_cancelled() -> None:
    """A task that a body has left behind: no run is current there any more."""
    seen: dict[str, Any] = {}

    @runnable
    async def later(ctx: Any) -> str:
        return "ran"

    async def background() -> None:
        await asyncio.sleep(5)
        with pytest.raises(NoCurrentRun):
            current_run()
        seen["run"] = later.run()
        await seen["run"]

    @runnable
    async def body(ctx: Any) -> None:
        assert current_run().id == ctx.run_id
        seen["task"] = asyncio.create_task(background())

    handle = body.run().start()
    handle_stopped = body.run().start()
    handle_stopped.cancel()
    await asyncio.gather(handle.finished(), handle_stopped.finished())
    await seen["task"]
    assert (seen["run"].parent_id, seen["run"].root_id) == (None, seen["run"].id)
    assert seen["run"].is_completed


@virtual
async def test_a_run_started_in_a_body_is_its_child_and_parent_none_makes_it_a_root() -> None:
    """The parent is taken when `run()` is called."""
    made: dict[str, Any] = {}

    @runnable
    async def child(ctx: Any) -> None:
        await asyncio.sleep(1)

    @runnable
    async def body(ctx: Any) -> None:
        made["child"], made["root"] = child.run(), child.run(parent=None)
        await asyncio.gather(made["child"], made["root"])

    outside = child.run()
    handle = body.run()
    log = [event async for event in handle]
    assert (made["child"].parent_id, made["child"].root_id) == (handle.id, handle.id)
    assert (made["root"].parent_id, outside.parent_id) == (None, None)
    assert {event.run_id for event in log} == {handle.id, made["child"].id}
    assert CURRENT.get() is None


@pytest.mark.scenario("E57")
@virtual
async def test_running_never_changes_a_definition() -> None:
    """All that is reachable from it is as it was; completed, stopped, failed."""

    def spelled(thing: Any) -> str:
        return repr({name: repr(value) for name, value in sorted(vars(thing).items())})

    @runnable
    async def fails(ctx: Any) -> None:
        raise ValueError

    agent = Agent(Scripted("one two three", pace=1), instructions="Be brief.", name="bob", max_turns=3)
    for definition in (agent, fails):
        before = spelled(definition), spelled(getattr(definition, "model", definition))
        for how in ("completes", "stopped", "times out"):
            handle = definition.run("hi", timeout=2 if how == "times out" else None).start()
            handle.send("more")
            await asyncio.sleep(1.5)
            if how == "stopped":
                handle.cancel()
            await handle.finished()
        assert (spelled(definition), spelled(getattr(definition, "model", definition))) == before


# -- nothing is retained


def count(*kinds: type) -> dict[str, int]:
    gc.collect()
    things = gc.get_objects()
    return {kind.__name__: sum(type(thing) is kind for thing in things) for kind in kinds}


@pytest.mark.scenario("E58")
@virtual
async def test_a_thousand_unstarted_runs_that_are_dropped_leave_nothing() -> None:
    """Nobody is told of them: not the token, not the parent, not the loop. And no warning: nothing had begun."""
    token = CancellationToken()
    agent = Agent("scripted:x")
    await settle_watchdog()
    before = count(Execution, Run, Log)
    sizes = len(asyncio.all_tasks()), len(_homes), len(LIVE)
    for number in range(1_000):
        handle = agent.run("hi", cancellation=token, timeout=100, id=f"unstarted {number}")
        handle.send("more")
        if number % 2:
            handle.cancel()
        if number % 3 == 0:
            handle.events()
            aiter(handle)
    del handle
    assert count(Execution, Run, Log) == before
    assert (len(asyncio.all_tasks()), len(_homes), len(LIVE)) == sizes
    assert not token._listeners


@pytest.mark.scenario("E58")
@virtual
async def test_a_thousand_ended_runs_leave_nothing() -> None:
    """Completed, failed, stopped, timed out, with children, tokens, readers and timers: all gone."""
    token = CancellationToken()
    loop: Any = asyncio.get_running_loop()

    @runnable
    async def child(ctx: Any) -> None:
        await asyncio.sleep(10)

    @runnable
    async def body(ctx: Any, number: int) -> str:
        ctx.text("x")
        ctx.start(child)
        ctx.token.on_cancel(lambda: None)
        await asyncio.sleep(1)
        if number % 4 == 1:
            raise ValueError("one of four")
        return "y"

    async def one(number: int) -> None:
        handle = body.run(number, cancellation=token, timeout=0.5 if number % 4 == 2 else 50)
        if number % 4 == 3:
            loop.call_later(0.5, handle.cancel)
        async for _ in handle.events():
            pass
        await handle.finished()

    await one(0)
    await settle_watchdog()
    before = count(Execution, Run, Log, RunContext)
    await asyncio.gather(*(one(number) for number in range(1_000)))
    await settle_watchdog()
    assert count(Execution, Run, Log, RunContext) == before
    assert not token._listeners
    assert not LIVE
    assert len(asyncio.all_tasks()) == 1
    assert [timer for timer in loop._scheduled if not timer.cancelled()] == []


async def settle_watchdog() -> None:
    """The watchdog's thread lets go of ended runs when it looks next: within a quarter of a second."""
    until = time.monotonic() + 2
    gc.collect()
    while time.monotonic() < until and any(type(thing) is Execution for thing in gc.get_objects()):
        time.sleep(0.01)
        gc.collect()


@pytest.mark.scenario("E58")
def test_what_a_run_leaves_on_its_loop_does_not_keep_it_alive() -> None:
    """A pool kept for the loop and a timer made in a run copy its context, and hold a small cell only."""
    gone: list[weakref.ref[Any]] = []

    @runnable
    async def body(ctx: Any, big: Any) -> None:
        asyncio.get_running_loop().call_later(1_000, lambda: None)
        gone.append(weakref.ref(ctx._execution))
        gone.append(weakref.ref(big))

    class Big:
        pass

    async def main() -> None:
        await body.run(Big())
        until = time.monotonic() + 2
        while any(thing() is not None for thing in gone) and time.monotonic() < until:  # a thread may just look at it
            await asyncio.sleep(0.01)
            gc.collect()
        assert [thing() for thing in gone] == [None, None]

    asyncio.run(main())


@pytest.mark.scenario("E58")
def test_a_loop_that_has_ended_is_forgotten() -> None:
    """100 times `asyncio.run`: no home, no loop is kept."""
    loops: list[weakref.ref[Any]] = []

    async def main() -> None:
        loops.append(weakref.ref(asyncio.get_running_loop()))
        await echo.run("x")
        runtime()

    before = len(_homes)
    for _ in range(100):
        asyncio.run(main())
    gc.collect()
    assert len(_homes) <= before  # fewer, if another test has left a loop that it closed by hand
    assert sum(loop() is not None for loop in loops) == 0


@virtual
async def test_an_observing_handle_does_not_keep_an_ended_run_in_the_index() -> None:
    """`find` knows live runs only; the reason of a stop is on the handle."""
    handle = echo.run("x" * 50).start()
    found = runtime().find(handle.id)
    assert found is not None
    await runtime().cancel(handle.id, reason=CancelReason.ADMIN, wait=True)
    assert runtime().find(handle.id) is None
    assert found.outcome is not None
    assert found.outcome.cancellation is not None
    assert found.outcome.cancellation.reason is CancelReason.ADMIN


@pytest.mark.virtual_time
async def test_a_root_that_has_had_many_children_remembers_none_of_them() -> None:
    """A supervisor lives for months."""

    @runnable
    async def supervisor(ctx: Any) -> int:
        for _ in range(20):
            await echo.run("x", parent=ctx.run)
        return len(ctx.run._execution.family)

    handle = supervisor.run()
    assert (await handle).output == 1
    assert len({event.run_id async for event in handle.events()}) == 21
