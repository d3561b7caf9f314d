"""Agents with tools and the provider's record: a stop closes the sockets that are open, and no request follows it."""

from __future__ import annotations

import asyncio
import multiprocessing
import threading
import time
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from halter import Agent, CancelMode, CancelReason, Run, events, runtime, tool
from halter.messages import ToolResult
from halter.models import OpenAIChat
from halter.models.scripted import Scripted, calls
from halter.testing.wire_probe import WireProbe
from halter.tools import ToolContext

from ..bounds import T, assert_within
from .loops import in_real_time

KEY = "sk-very-secret-0123456789"
LONG = "steady(2000,5)"


def writer(url: str, name: str = "writer") -> Agent[Any]:
    return Agent(OpenAIChat("test-model", base_url=url, api_key=KEY), name=name, description="Writes.")


def caller(url: str, *tools: Any, **options: Any) -> Agent[Any]:
    return Agent(OpenAIChat("test-model", base_url=url, api_key=KEY), tools=tools, **options)


async def seen(run: Run[Any], kind: type[events.Event], agent: str | None = None) -> None:
    async for event in run.events():
        if isinstance(event, kind) and (agent is None or getattr(event, "agent", None) == agent):
            return
    raise AssertionError(f"no {kind.__name__}")


@pytest.mark.scenario("B10", "C30")
@in_real_time
async def test_a_stop_in_a_tool_is_followed_by_no_request(wire: WireProbe) -> None:
    """The one that asked for the call is all that the provider ever sees."""

    async def look() -> None:
        await asyncio.sleep(60)

    run = caller(wire.url("tool-call(look)"), look).run("hi").start()
    await seen(run, events.ToolStarted)
    stopped_at = time.monotonic()
    run.cancel()
    await run.finished()
    assert_within(T, time.monotonic() - stopped_at, "the stop")
    await asyncio.sleep(0.1)
    assert len(wire.requests()) == 1


@pytest.mark.scenario("C32", "C34")
@in_real_time
async def test_drain_tools_closes_the_sockets_of_models_now_and_lets_the_tool_finish(wire: WireProbe) -> None:
    """A child agent streams beside a tool that works."""
    begun, go_on = asyncio.Event(), asyncio.Event()

    async def work() -> str:
        begun.set()
        await go_on.wait()
        return "worked"

    child = writer(wire.url(LONG))
    script = Scripted((calls("work"), calls("writer", input="go")), "done")
    run = Agent(script, tools=[work, child]).run("hi", grace=10).start()
    await asyncio.gather(begun.wait(), wire.awaited("token"))
    stopped_at = time.monotonic()
    run.cancel(mode=CancelMode.DRAIN_TOOLS)
    await wire.awaited("closed")
    assert not run.is_done
    go_on.set()
    result = await run.finished()
    wire.assert_closed(T, since=stopped_at)
    first, _ = (part.content for part in result.messages[-1].parts if isinstance(part, ToolResult))
    assert first == "worked"
    assert len(wire.requests()) == 1


@pytest.mark.scenario("C31", "C34")
@in_real_time
async def test_a_call_that_must_finish_keeps_the_sockets_of_its_child_runs(wire: WireProbe) -> None:
    """Beside it, another child's socket closes now."""

    @tool(cancel="must_finish")
    async def save(ctx: ToolContext) -> str:
        return (await ctx.start(writer(wire.url("steady(60,5)"), "keeper"), "go")).text

    other = writer(wire.url(LONG))
    script = Scripted((calls("save"), calls("writer", input="go")), "done")
    run = Agent(script, tools=[save, other]).run("hi", grace=10).start()
    await wire.awaited("token", count=2)
    run.cancel()
    result = await run.finished()
    kept, closed = sorted(wire.requests(), key=lambda record: record.mode != "steady(60,5)")
    assert kept.finished_at is not None
    assert closed.finished_at is None
    first, _ = (part.content for part in result.messages[-1].parts if isinstance(part, ToolResult))
    assert len(first.split()) >= 60


@pytest.mark.scenario("C34")
@pytest.mark.parametrize("mode", [CancelMode.IMMEDIATE, CancelMode.KILL])
@in_real_time
async def test_a_stop_reaches_the_sockets_of_agents_in_agents(wire: WireProbe, mode: CancelMode) -> None:
    """Two levels down, two at once."""
    left, right = writer(wire.url(LONG), "left"), writer(wire.url(LONG), "right")
    script = Scripted((calls("left", input="go"), calls("right", input="go")), "done")
    middle = Agent(script, name="middle", tools=[left, right])
    run = Agent(Scripted(calls("middle", input="go"), "done"), tools=[middle]).run("hi").start()
    await wire.awaited("token", count=2)
    stopped_at = time.monotonic()
    run.cancel(mode=mode)
    await run.finished()
    assert len(wire.assert_closed(T, since=stopped_at)) == 2


@pytest.mark.scenario("B20")
@pytest.mark.parametrize("how", ["wait_for", "timeout", "task group"])
@in_real_time
async def test_an_outer_scope_that_ends_stops_the_tools_and_their_sockets(wire: WireProbe, how: str) -> None:
    """With the scope's own exception; nothing starts after it."""
    script = Scripted(calls("writer", input="go"), "done")
    agent = Agent(script, tools=[writer(wire.url(LONG))])
    runs: list[Run[Any]] = []

    def begin() -> Run[Any]:
        runs.append(agent.run("hi"))
        return runs[0]

    async def fail() -> None:
        await wire.awaited("token")
        raise LookupError("a sibling")

    async def in_a_group() -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(begin().wait())
            group.create_task(fail())

    async def in_a_scope() -> None:
        async with asyncio.timeout(0.3):
            await begin()

    began = time.monotonic()
    if how == "task group":
        with pytest.raises(ExceptionGroup) as caught:
            await in_a_group()
        assert [type(error) for error in caught.value.exceptions] == [LookupError]
    else:
        with pytest.raises(TimeoutError):
            await (asyncio.wait_for(begin(), 0.3) if how == "wait_for" else in_a_scope())
        assert_within(0.3 + T, time.monotonic() - began, "the scope")
    result = await runs[0].finished()
    assert result.cancellation is not None
    assert result.cancellation.reason is CancelReason.CALLER_CANCELLED
    wire.assert_closed(T)
    assert len(wire.requests()) == 1


# --- isolation ----------------------------------------------------------------------------------------------


def marked(mark: str) -> Agent[Any]:
    async def echo(text: str) -> str:
        await asyncio.sleep(0)
        return text

    return Agent(Scripted(calls("echo", text=mark), f"{mark} and {mark}"), name=mark, tools=[echo])


def check_marks(mark: str, log: list[events.Event], run_id: str) -> None:
    assert {event.run_id for event in log} == {run_id}
    assert [event.seq for event in log] == list(range(1, len(log) + 1))
    texts = "".join(event.text for event in log if isinstance(event, events.TextDelta))
    assert texts == f"{mark} and {mark}"
    assert [event.result for event in log if isinstance(event, events.ToolFinished)] == [mark]


@pytest.mark.scenario("D39", "E51", "E53")
def test_one_agent_with_tools_works_on_eight_threads_and_two_loops_one_after_the_other() -> None:
    """Each run has its own events and results, whole and in order."""
    agent = marked("mark")
    problems: list[BaseException] = []

    async def many(number: int) -> None:
        runs = [agent.run("hi").start() for _ in range(number)]
        for run in runs:
            await run
            check_marks("mark", [event async for event in run.events()], run.id)

    def work(begin: Callable[[Coroutine[Any, Any, None]], None]) -> None:
        try:
            begin(many(10))
        except BaseException as error:
            problems.append(error)

    threads = [threading.Thread(target=work, args=(asyncio.run,)) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    work(asyncio.run)
    work(asyncio.run)
    assert not problems


def _in_a_child(agent: Agent[Any], answer: Any) -> None:
    answer.put(agent.run("hi").result(timeout=10).text)


@pytest.mark.scenario("E53")
@pytest.mark.filterwarnings("ignore:.*multi-threaded.*:DeprecationWarning")
def test_one_agent_with_tools_works_in_a_forked_child_too() -> None:
    """As in a server that forks its workers; and afterwards still here."""
    agent = marked("mark")
    assert agent.run("hi").result(timeout=10).text == "mark and mark"
    forking = multiprocessing.get_context("fork")
    answer = forking.SimpleQueue()
    child = forking.Process(target=_in_a_child, args=(agent, answer))
    child.start()
    child.join(20)
    assert child.exitcode == 0
    assert answer.get() == "mark and mark"
    assert agent.run("hi").result(timeout=10).text == "mark and mark"


@pytest.mark.scenario("E53")
@pytest.mark.virtual_time
async def test_stopping_one_run_leaves_another_of_the_same_agent_as_it_would_have_been() -> None:
    """The same events, but for their ids and times."""

    async def work() -> str:
        await asyncio.sleep(1)
        return "worked"

    agent = Agent(Scripted(("so ", calls("work")), "all done", pace=0.1), tools=[work])

    async def shape(run: Run[Any]) -> list[tuple[Any, ...]]:
        log = [event async for event in run.events()]
        return [(event.seq, event.type, getattr(event, "text", ""), getattr(event, "result", "")) for event in log]

    alone = await shape(agent.run("hi").start())
    first, second = agent.run("hi").start(), agent.run("hi").start()
    await asyncio.sleep(0.5)
    first.cancel()
    assert await shape(second) == alone
    assert first.is_cancelled


@pytest.mark.scenario("E54", "E55")
@pytest.mark.virtual_time
async def test_two_readers_each_get_all_of_a_tree_with_tools_and_a_later_one_the_same() -> None:
    """The child's events are there once, with their parent's id; a sibling does not see them."""
    kid = marked("kid")
    outer = Agent(Scripted((calls("kid", input="go"), calls("kid", input="go")), "done"), name="outer", tools=[kid])
    run = outer.run("hi").start()

    async def read() -> list[events.Event]:
        return [event async for event in run.events()]

    first, second = await asyncio.gather(read(), read())
    assert first == second == await read()
    children = {event.run_id for event in first if event.parent_id == run.id}
    assert len(children) == 2
    for child in children:
        check = [event for event in first if event.run_id == child]
        assert [event.type for event in check].count("run.completed") == 1
        assert "".join(event.text for event in check if isinstance(event, events.TextDelta)) == "kid and kid"


@pytest.mark.scenario("E56")
@in_real_time
async def test_a_failing_and_a_blocking_observer_change_nothing_of_a_run_with_tools(quiet: None) -> None:
    """Neither its events nor its time."""
    go_on = threading.Event()

    def fail(event: events.Event) -> None:
        raise LookupError("an observer")

    observing = [runtime().observe(fail), runtime().observe(lambda _: go_on.wait(5))]
    began = time.monotonic()
    run = marked("mark").run("hi")
    await run
    assert_within(1.0, time.monotonic() - began, "the run")
    check_marks("mark", [event async for event in run.events()], run.id)
    go_on.set()
    for each in observing:
        each.close()


@pytest.mark.scenario("E56")
@in_real_time
async def test_work_that_outlives_its_call_and_its_run_begins_a_new_root() -> None:
    """Its run is nobody's child, and is not born cancelled."""
    later: list[asyncio.Task[Any]] = []
    go_on = asyncio.Event()
    inner = marked("later")

    async def begin_later() -> Any:
        await go_on.wait()
        run = inner.run("hi")
        return run.parent_id, (await run).text

    async def leave() -> str:
        later.append(asyncio.create_task(begin_later()))
        return "left"

    run = Agent(Scripted(calls("leave"), "done"), tools=[leave]).run("hi")
    await run
    go_on.set()
    assert await later[0] == (None, "later and later")
