"""C34, C35, D39, E51, E53, I81: parents and children, the same agent again, runs side by side, a reader that stops."""

from __future__ import annotations

import asyncio
import threading
import time
from typing import Any

import pytest

from halter import Agent, CancelReason, Run, RunContext, RunResult, RunStatus, events, runnable
from halter.testing.wire_probe import WireProbe

from ..bounds import T, assert_within
from .adapters import Adapter
from .descriptors import sockets_to
from .forms import AsyncForm, BlockingForm
from .shared import adapter as adapter

Form = AsyncForm | BlockingForm
WHOLE = "".join(f"t{index} " for index in range(20))


# --- C34, C35 -----------------------------------------------------------------------------------------------


def nested(agent: Agent, depth: int, width: int) -> Any:
    """A runnable that starts `width` of the next level at once; the innermost are agents."""

    @runnable(name=f"level-{depth}")
    async def level(ctx: RunContext) -> None:
        below = agent if depth == 1 else nested(agent, depth - 1, width)
        async with asyncio.TaskGroup() as group:
            for _ in range(width):
                group.create_task(ctx.start(below, "count").wait())

    return level


@pytest.mark.scenario("C34", "C35")
def test_a_parents_stop_reaches_the_innermost_sockets(wire: WireProbe, adapter: Adapter, form: Form, port: int) -> None:
    """Three levels of three in `TaskGroup`s, 27 streams: one stop, and the provider sees 27 closes within 250 ms."""
    agent = adapter.agent(wire.url("stall(1)"))
    whole = nested(agent, 3, 3)
    stopped = form.stop(whole.run, lambda _: wire.wait("token", 27), port)
    stopped.assert_real()
    assert len(wire.assert_closed(T, since=stopped.asked)) == 27
    assert stopped.result.error is None
    ends = [event for event in stopped.events if isinstance(event, events.Cancelled)]
    assert len(ends) == 1 + 3 + 9 + 27
    assert stopped.result.receipt is not None
    lines = stopped.result.receipt.resources
    assert sum(line.kind == "socket" and line.ended == "closed" for line in lines) == 27


@pytest.mark.scenario("C35")
@pytest.mark.loops
async def test_a_childs_stop_leaves_its_parent_and_siblings_alone(wire: WireProbe, adapter: Adapter) -> None:
    """One of three children is stopped: its socket is closed; the others complete, and so does the parent."""
    agent = adapter.agent(wire.url("steady(60,3)"))
    children: list[Run[Any]] = []

    @runnable
    async def parent(ctx: RunContext) -> list[str]:
        children.extend(ctx.start(agent, f"child {index}") for index in range(3))
        return [(await child.finished()).status for child in children]

    run = parent.run().start()
    await wire.awaited("token", 3)
    asked = time.monotonic()
    children[1].cancel()
    assert (await run).output == ["completed", "cancelled", "completed"]
    ends = {record.body.split("child ")[1][0]: record for record in wire.requests()}
    assert ends["1"].closed_at is not None
    assert_within(T, ends["1"].closed_at - asked)
    assert ends["1"].finished_at is None
    assert ends["0"].finished_at is not None
    assert ends["2"].finished_at is not None


@pytest.mark.scenario("C35")
@pytest.mark.loops
async def test_a_child_that_is_left_running_is_closed_at_its_parents_end(wire: WireProbe, adapter: Adapter) -> None:
    """The body returns while its child streams: the child is `parent_finished`, its socket is gone before the end."""
    agent = adapter.agent(wire.url("stall(1)"))
    left: list[Any] = []

    @runnable
    async def parent(ctx: RunContext) -> str:
        left.append(ctx.start(agent, "count"))
        await wire.awaited("token")
        return "done"

    before = set(sockets_to(wire.wire.port))
    assert (await parent.run()).output == "done"
    assert not set(sockets_to(wire.wire.port)) - before
    assert left[0].outcome.cancellation.reason is CancelReason.PARENT_FINISHED
    wire.assert_closed()


# --- D39 ----------------------------------------------------------------------------------------------------


def shape(log: list[events.Event]) -> list[tuple[str, Any]]:
    return [(event.type, getattr(event, "text", None)) for event in log]


@pytest.mark.scenario("D39")
@pytest.mark.loops
async def test_an_agent_that_was_stopped_runs_again_as_if_it_were_new(wire: WireProbe, adapter: Adapter) -> None:
    """Stopped five times in mid-stream; then the same object gives the events and requests of a fresh one."""
    url = wire.url("steady(10,20)")
    agent, fresh = adapter.agent(url), adapter.agent(url)
    ends: list[RunStatus] = []
    for index in range(5):
        run = agent.run("count").start()
        await wire.awaited("token", index + 1)
        run.cancel()
        ends.append((await run.finished()).status)
    assert RunStatus.CANCELLED in ends  # all five, but where the machine was asleep for as long as an answer takes
    logs: list[list[tuple[str, Any]]] = []
    for one in (agent, fresh):
        run = one.run("count")
        await run
        logs.append(shape([event async for event in run.events()]))
    assert [kind for kind, _ in logs[0] if kind != "text.delta"] == [
        kind for kind, _ in logs[1] if kind != "text.delta"
    ]
    again, new = wire.requests()[-2:]
    assert again.body == new.body


@pytest.mark.scenario("D39", "E51")
def test_a_hundred_runs_of_one_agent_at_once_get_each_its_own_marker(
    wire: WireProbe, adapter: Adapter, form: Form
) -> None:
    """100 marked prompts, echoed by the provider: each log holds its own marker in order, its own id, nothing else."""
    agent = adapter.agent(wire.url("echo(30,2)"))
    markers = [f"m{index:03}x" for index in range(100)]

    def check(marker: str, run: Run[Any], log: list[events.Event]) -> None:
        assert {event.run_id for event in log} == {run.id}
        assert [event.seq for event in log] == list(range(1, len(log) + 1))
        said = "".join(event.text for event in log if isinstance(event, events.TextDelta))
        assert said == "".join(f"{marker}#{index} " for index in range(30))
        assert run.outcome is not None
        assert run.outcome.text == said

    if isinstance(form, BlockingForm):
        runs = [agent.run(marker) for marker in markers]
        logs: dict[int, list[events.Event]] = {}
        threads = [threading.Thread(target=_read_into, args=(logs, index, run)) for index, run in enumerate(runs)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        for index, (marker, run) in enumerate(zip(markers, runs, strict=True)):
            check(marker, run, logs[index])
        return

    async def one(marker: str) -> None:
        run = agent.run(marker)
        check(marker, run, [event async for event in run])

    async def main() -> None:
        await asyncio.gather(*map(one, markers))

    form.drive(main())


def _read_into(logs: dict[int, list[events.Event]], index: int, run: Run[Any]) -> None:
    logs[index] = list(run)


# --- E53 ----------------------------------------------------------------------------------------------------


@pytest.mark.scenario("E53")
@pytest.mark.loops
async def test_stopping_twenty_runs_changes_no_byte_of_the_others(wire: WireProbe, adapter: Adapter) -> None:
    """20 of 30 runs on one agent are stopped in between: the other 10 have every token, in one request each."""
    agent = adapter.agent(wire.url("echo(160,5)"))
    runs = [agent.run(f"r{index:02}").start() for index in range(30)]
    await wire.awaited("token", 30)
    stopped = [False] * 30  # on a busy machine an answer may be over before its turn comes
    for index, run in enumerate(runs[:20]):
        stopped[index] = run.cancel()
        await asyncio.sleep(0.003)
    results: list[RunResult[Any]] = [await run.finished() for run in runs]
    assert any(stopped)
    assert [result.is_cancelled for result in results] == stopped
    for index, result in enumerate(results):
        if not stopped[index]:
            assert result.text == "".join(f"r{index:02}#{token} " for token in range(160))
    assert len(wire.requests()) == 30


@pytest.mark.scenario("E53")
def test_one_agent_serves_two_loops_and_four_threads_at_once(wire: WireProbe, adapter: Adapter) -> None:
    """The same object in two `asyncio.run`s, one after the other, and in four threads, two with loops of their own."""
    agent = adapter.agent(wire.url("steady(20,2)"))
    texts: list[str] = []

    async def main() -> None:
        texts.append((await agent.run("count")).text)

    asyncio.run(main())
    asyncio.run(main())
    threads = [threading.Thread(target=lambda: asyncio.run(main())) for _ in range(2)]
    threads += [threading.Thread(target=lambda: texts.append(agent.run("count").result().text)) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert texts == [WHOLE] * 6


# --- I81 ----------------------------------------------------------------------------------------------------


@pytest.mark.scenario("I81")
@pytest.mark.loops
@pytest.mark.parametrize("over_tls", [False, True], ids=["plain", "tls"])
async def test_a_reader_that_stops_reading_holds_the_provider_up(
    wire: WireProbe, adapter: Adapter, over_tls: bool
) -> None:
    """A flood and a reader that sleeps: what the provider could write comes to rest before 2 MB; then it is stopped."""
    from halter.net.sockets import SocketSource

    url = (wire.tls_url if over_tls else wire.url)("steady(2000000,0)")
    agent = adapter.agent(url, source=SocketSource(ca_file=wire.ca_file if over_tls else None))
    run = agent.run("flood")
    seen = 0
    texts = run.text_stream()  # kept: a reader that is dropped holds nothing up
    async for _ in texts:
        seen += 1
        if seen == 100:
            break
    sizes: list[int] = []
    while len(sizes) < 3 or sizes[-3] != sizes[-1]:
        await asyncio.sleep(0.06)
        sizes.append(wire.requests()[0].bytes_sent)
        assert len(sizes) < 100, sizes
    assert sizes[-1] < 2_000_000
    # It goes on as soon as it is read again, and where it was.
    async for text in texts:
        assert text == f"t{seen} "
        seen += 1
        if seen == 5000:
            break
    asked = time.monotonic()
    run.cancel()
    result = await run.finished()
    assert result.is_cancelled
    wire.assert_closed(T, since=asked)


@pytest.mark.scenario("I81")
@pytest.mark.loops
async def test_a_stop_wakes_a_stream_that_its_reader_has_paused(wire: WireProbe, adapter: Adapter) -> None:
    """The reader sleeps, the source is paused, and nobody reads again: the stop is as quick as ever."""
    run = adapter.agent(wire.url("steady(2000000,0)")).run("flood")
    texts = run.text_stream()
    async for _ in texts:
        break
    await asyncio.sleep(0.2)
    asked = time.monotonic()
    run.cancel()
    await run.finished()
    assert_within(T, time.monotonic() - asked)
    wire.assert_closed(T, since=asked)
