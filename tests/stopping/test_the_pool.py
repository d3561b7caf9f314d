"""A9, I80, and reuse: stops cost no slot, and never touch a connection that has become another's."""

from __future__ import annotations

import asyncio
import random
import threading
import time
from collections import Counter
from collections.abc import Callable
from queue import SimpleQueue
from typing import Any

import pytest

from halter import Agent, Run, RunResult, events
from halter.core.home import home_here
from halter.net.sockets import SocketSource
from halter.testing.wire_probe import WireProbe

from ..bounds import assert_within
from .adapters import ADAPTERS, Adapter
from .descriptors import sockets_to
from .shared import adapter as adapter

WHOLE = "".join(f"t{index} " for index in range(20))
Quiet = Callable[[], list[dict[str, Any]]]


async def stopped_after(agent: Agent, delay: float, prompt: str = "count") -> RunResult[Any]:
    run = agent.run(prompt).start()
    await asyncio.sleep(delay)
    run.cancel()
    return await run.finished()


async def complete(agent: Agent) -> RunResult[Any]:
    return await agent.run("count").finished()


def many(adapter: Adapter, number: int) -> int:
    """So many for one format; a fifth for the others, which share its pool."""
    return number if adapter.name == "openai-chat" else number // 5


def idle_connections() -> int:
    """The connections that this loop's pools keep, and may use again."""
    return sum(len(kept) for pool in home_here().kept.values() for kept in pool._connector._conns.values())


@pytest.mark.scenario("A9")
@pytest.mark.loops
@pytest.mark.parametrize("connections", [0, 5, 1])
async def test_many_stops_under_contention_cost_no_slot(
    wire: WireProbe, adapter: Adapter, connections: int, quiet_loop: Quiet
) -> None:
    """200 runs at once on one model object, each stopped at some point; then 20 more runs get all that there is.

    The pool is the same for each format: the others have 40.
    """
    reported = quiet_loop()
    source = SocketSource(connections=connections)
    steady = adapter.agent(wire.url("steady(2000,2)"), source=source)
    again = adapter.agent(wire.url("steady(20,1)"), source=source)
    pick = random.Random(connections)
    before = set(sockets_to(_port(wire)))
    results = await asyncio.gather(*(stopped_after(steady, pick.random() * 0.3) for _ in range(many(adapter, 200))))
    assert all(result.is_cancelled for result in results)
    assert all(result.receipt is not None and result.receipt.confirmed for result in results)
    assert not set(sockets_to(_port(wire))) - before
    began = time.monotonic()
    whole = await asyncio.gather(*(complete(again) for _ in range(20)))
    assert [result.text for result in whole] == [WHOLE] * 20
    assert_within((5.0 if connections == 1 else 2.5), time.monotonic() - began)
    assert reported == []


def _port(wire: WireProbe) -> int:
    return wire.wire.port


@pytest.mark.scenario("A9")
@pytest.mark.loops
async def test_a_slot_that_was_offered_to_a_stopped_run_goes_to_the_next(wire: WireProbe, adapter: Adapter) -> None:
    """One connection: its holder and the first in the queue are stopped at once; the second in the queue gets it."""
    source = SocketSource(connections=1)
    stalls = adapter.agent(wire.url("stall(1)"), source=source)
    whole = adapter.agent(wire.url("steady(20,0.1)"), source=source)
    for ticks in range(12):
        holder = stalls.run("holds").start()
        while not holder.text:  # noqa: ASYNC110 - a reader would be one more task
            await asyncio.sleep(0.002)
        first, second = stalls.run("first").start(), whole.run("second").start()
        await asyncio.sleep(0.01)
        holder.cancel()
        for _ in range(ticks):  # the slot is offered some ticks after the stop
            await asyncio.sleep(0)
        first.cancel()
        await asyncio.gather(holder.finished(), first.finished())
        assert (await asyncio.wait_for(second.finished(), 2.0)).text == WHOLE


@pytest.mark.scenario("A9", "E53")
@pytest.mark.loops
@pytest.mark.parametrize("over_tls", [False, True], ids=["plain", "tls"])
async def test_a_stop_that_races_the_natural_end_never_touches_the_next_run(
    wire: WireProbe, adapter: Adapter, over_tls: bool, quiet_loop: Quiet
) -> None:
    """One connection, 50 times: A is stopped as it ends, B waits for its connection. B is whole, at its first try."""
    reported = quiet_loop()
    source = SocketSource(connections=1, ca_file=wire.ca_file if over_tls else None)
    url = (wire.tls_url if over_tls else wire.url)("steady(3,1)")
    agent = adapter.agent(url, source=source)
    pick = random.Random(7)
    ends = {"completed": 0, "cancelled": 0}
    while sum(ends.values()) < 50 or min(ends.values()) < 3:  # until both sides of the race were met
        assert sum(ends.values()) < 500, ends
        a = agent.run("a").start()
        b = agent.run("b").start()
        seen = 0
        async for event in a.events():
            seen += isinstance(event, events.TextDelta)
            if seen == 3:
                break
        for _ in range(pick.randrange(6)):
            await asyncio.sleep(0)
        if pick.random() < 0.5:
            await asyncio.sleep(pick.random() * 0.0015)
        a.cancel()
        ended = await a.finished()
        ends[ended.status] += 1
        whole = await asyncio.wait_for(b.finished(), 5.0)
        assert whole.text == "t0 t1 t2 ", whole.why()
        assert not [event async for event in b.events() if isinstance(event, events.ModelRetry)]
    connections = [record.connection for record in wire.requests()]
    assert len(set(connections)) < len(connections)  # and connections were used again
    assert reported == []


@pytest.mark.scenario("A9", "E53")
@pytest.mark.loops
async def test_stops_from_threads_that_race_the_end_never_touch_the_next_run(
    wire: WireProbe, quiet_loop: Quiet
) -> None:
    """Four threads stop runs as these end and as others take their connections: what is not stopped is whole."""
    reported = quiet_loop()
    agent = ADAPTERS[0].agent(wire.url("steady(3,0.2)"), source=SocketSource(connections=4))
    ready: SimpleQueue[Run[Any] | None] = SimpleQueue()

    def stop_them() -> None:
        while (run := ready.get()) is not None:
            run.cancel()

    threads = [threading.Thread(target=stop_them) for _ in range(4)]
    for thread in threads:
        thread.start()
    ended: Counter[str] = Counter()
    for _ in range(60):
        stopped = [agent.run("a").start() for _ in range(4)]
        whole = [agent.run("b").start() for _ in range(4)]
        async for event in stopped[0].events():
            if isinstance(event, events.TextDelta) and event.text.endswith("t2 "):
                break
        for run in stopped:
            ready.put(run)
        ended.update([(await run.finished()).status for run in stopped])
        for run in whole:
            assert (await asyncio.wait_for(run.finished(), 10)).text == "t0 t1 t2 "
            assert not [event async for event in run.events() if isinstance(event, events.ModelRetry)]
    for _ in threads:
        ready.put(None)
    for thread in threads:
        thread.join()
    assert ended["failed"] == 0
    assert min(ended["completed"], ended["cancelled"]) > 0, ended
    assert reported == []


@pytest.mark.loops
async def test_a_connection_is_used_again_after_a_whole_answer(wire: WireProbe, adapter: Adapter) -> None:
    """Ten answers, one after the other: one connection."""
    agent = adapter.agent(wire.url("steady(20,0.1)"))
    for _ in range(10):
        await agent.run("count")
    assert len({record.connection for record in wire.requests()}) == 1
    assert idle_connections() == 1


@pytest.mark.scenario("I80")
@pytest.mark.parametrize("over_tls", [False, True], ids=["plain", "tls"])
def test_many_stops_at_random_points_leave_nothing(
    wire: WireProbe, adapter: Adapter, no_leaks: Any, over_tls: bool
) -> None:
    """250 stops, 25 at a time, in connecting, waiting and streaming: tasks, threads, descriptors and slots are back.

    Of one format; of each other one 50.
    """
    source = SocketSource(connections=20, ca_file=wire.ca_file if over_tls else None)
    modes = ("steady(500,1)", "stall(2)", "no-headers", "rate-limit(9999,30)", "steady(3,0.1)", "one-byte(3)")
    pick = random.Random(80)

    async def some(agents: list[Agent], count: int) -> None:
        for _ in range(count):
            await stopped_after(pick.choice(agents), pick.random() ** 3 * 0.04)

    async def main() -> None:
        url = wire.tls_url if over_tls else wire.url
        agents = [adapter.agent(url(mode), source=source) for mode in modes]
        tasks = asyncio.all_tasks()
        await asyncio.gather(*(some(agents, many(adapter, 10)) for _ in range(25)))
        assert asyncio.all_tasks() == tasks
        (pool,) = home_here().kept.values()
        connector = pool._connector
        assert not connector._acquired
        assert not connector._serving
        assert not any(connector._waiters.values())
        whole = adapter.agent(url("steady(20,1)"), source=source)
        results = await asyncio.gather(*(complete(whole) for _ in range(20)))
        assert [result.text for result in results] == [WHOLE] * 20

    asyncio.run(main())


@pytest.mark.scenario("E58")
@pytest.mark.loops
async def test_a_kept_connection_does_not_keep_the_run_that_made_it(wire: WireProbe, adapter: Adapter) -> None:
    """The pool's timers and transports remember the context in which they were made; the run in it is gone."""
    import gc
    import weakref

    agent = adapter.agent(wire.url("steady(3,0.1)"))

    async def one() -> weakref.ref[Any]:
        run: Run[Any] = agent.run("count")
        await run
        return weakref.ref(run._execution)

    gone = await one()
    await asyncio.sleep(0)
    gc.collect()
    assert idle_connections() == 1
    assert gone() is None


@pytest.mark.loops
async def test_a_large_body_is_sent_whole_and_without_a_warning(wire: WireProbe, adapter: Adapter) -> None:
    """3 MB of prompt arrive as they are; aiohttp's own way with large bodies would warn."""
    await adapter.agent(wire.url("steady(3,0.1)")).run("é" * 1_500_000)
    (record,) = wire.requests()
    assert record.body_bytes > 3_000_000
    assert int(record.headers["content-length"]) == record.body_bytes


@pytest.mark.scenario("A2")
@pytest.mark.loops
@pytest.mark.parametrize("over_tls", [False, True], ids=["plain", "tls"])
async def test_whatever_ends_an_attempt_ends_its_socket_at_once(
    wire: WireProbe, adapter: Adapter, over_tls: bool
) -> None:
    """A time-out in an upload that nobody reads: the same abort as by a stop, not a close that waits for a flush."""
    from halter.models.http import Timeouts

    source = SocketSource(ca_file=wire.ca_file if over_tls else None)
    url = (wire.tls_url if over_tls else wire.url)("no-read")
    port = wire.wire.tls_port if over_tls else wire.wire.port
    before = set(sockets_to(port))
    agent = adapter.agent(url, source=source, timeouts=Timeouts(first_token=0.15))
    result = await agent.run("x" * 11_000_000).finished()
    assert result.is_failed, result.why()
    assert not set(sockets_to(port)) - before
