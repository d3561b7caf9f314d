"""B18, I82: a stop at every step of a run on a session: its status, terminal event, result, record and history agree,
what was said before is untouched, and the session is free."""

from __future__ import annotations

import asyncio
import random
from functools import partial
from typing import Any

import pytest

from halter import Agent, CancelMode, Message, Run, RunStatus, tool
from halter.core.home import LIVE
from halter.core.options import Keep, OnBusy
from halter.models.scripted import Scripted, calls
from halter.sessions import Sessions
from halter.testing import Sweep, cancel_sweep, schedule_sweep

from ..agents.conversations import bodies_of, check_bodies, check_by_sdk, check_history
from .places import memory_store as memory_store
from .places import open_store as open_store
from .talks import asked, check_agrees, exported, stored, talker
from .talks import chats as chats
from .troubled import troubled

pytestmark = pytest.mark.scenario("B18")
BEFORE = (Message.user("before"), Message.assistant("Yes, before."))


@tool
async def quick() -> str:
    """Ends at once."""
    return "quick"


@tool
async def slow() -> str:
    """Takes a second."""
    await asyncio.sleep(1)
    return "slow"


def worker() -> Agent[str]:
    return Agent(Scripted("before", (calls("quick"), calls("slow")), "All done.", pace=0.01), tools=[quick, slow])


async def check_left(chats: Sessions, run: Run[Any], *, keep: Keep = "partial") -> None:
    """Whole, free, and as good as new."""
    await check_agrees(chats, run)
    result = run.outcome
    assert result is not None
    said = await stored(chats)
    assert said[:2] == BEFORE
    if keep == "rollback" and not result.is_completed:
        assert said == BEFORE
    check_history(said)
    assert asked(said).count("hello") <= 1
    assert (await chats.get("s")).holder is None
    bodies = bodies_of(said)
    check_bodies(bodies, sum(len(message.tool_calls) for message in said))
    assert not LIVE
    after = await talker("again").run("again", session=chats.session("s"))  # at once: nobody has its turn
    assert after.is_completed


@pytest.mark.scenario("I82")
@pytest.mark.parametrize(
    ("mode", "keep"),
    [*((mode, "partial") for mode in CancelMode), (None, "partial"), (CancelMode.IMMEDIATE, "rollback")],
)
def test_a_run_stopped_at_any_step(mode: CancelMode | None, keep: Keep) -> None:
    """`None`: whoever awaits it is cancelled."""

    async def scenario(sweep: Sweep) -> None:
        chats = troubled(0.001)
        await chats.create("s", messages=BEFORE)
        run = worker().run("hello", session=chats.session("s"), keep=keep, grace=0.5)
        if mode is not None:
            sweep.cancel = partial(run.cancel, mode=mode)
            await run.finished()
        else:
            waiting = asyncio.ensure_future(run.wait())
            sweep.cancel = waiting.cancel
            await asyncio.wait([waiting])
            if waiting.cancelled():  # before its first step, nobody has begun the run
                run.cancel()
            await run.finished()
        if await chats.run(run.id) is not None or run.outcome is None or not run.outcome.is_cancelled:
            await check_left(chats, run, keep=keep)
        assert (await stored(chats))[:2] == BEFORE

    assert cancel_sweep(scenario, settle=5) > 20


@pytest.mark.scenario("I82", "D47")
@pytest.mark.parametrize("on_busy", ["enqueue", "interrupt", "steer"])
def test_a_run_that_waits_stopped_at_any_step(on_busy: OnBusy) -> None:
    """The holder and whoever waits behind it have their turns, and its place in the queue is nobody's."""

    async def scenario(sweep: Sweep) -> None:
        chats = troubled(0.001)
        await chats.create("s", messages=BEFORE)
        holder = worker().run("first", session=chats.session("s")).start()
        await asyncio.sleep(0.05)
        run = worker().run("hello", session=chats.session("s"), on_busy=on_busy)
        behind = talker("behind").run("behind", session=chats.session("s"), on_busy="enqueue")
        sweep.cancel = run.cancel
        run.start()
        await asyncio.sleep(0)
        behind.start()
        for each in (holder, run, behind):
            await each.finished()
        assert behind.is_completed
        assert holder.is_completed or on_busy == "interrupt"
        said = await stored(chats)
        assert said[:2] == BEFORE
        check_history(said)
        assert asked(said).count("first") == asked(said).count("behind") == 1
        heard = asked(said).count("hello")
        assert heard <= 1
        assert heard == 1 or run.is_cancelled, "its message is lost"
        if heard == 0:
            assert run.outcome is not None
            assert run.outcome.text == ""
        assert (await chats.get("s")).holder is None
        assert not LIVE

    assert cancel_sweep(scenario, settle=5) > 20


@pytest.mark.scenario("D47")
@pytest.mark.parametrize("on_busy", ["enqueue", "interrupt", "steer"])
def test_in_any_order_of_tasks_no_message_is_lost(on_busy: OnBusy) -> None:
    async def scenario() -> None:
        chats = troubled(0.001)
        runs = [
            worker().run(f"number {n}", session=chats.session("s"), on_busy=on_busy if n else "enqueue").start()
            for n in range(4)
        ]
        for run in runs:
            await run.finished()
        said = await stored(chats)
        check_history(said)
        for n, run in enumerate(runs):
            heard = asked(said).count(f"number {n}")
            assert heard == 1 or (heard == 0 and run.is_cancelled and on_busy == "interrupt")
            assert run.is_completed or on_busy == "interrupt"
        assert (await chats.get("s")).holder is None

    schedule_sweep(scenario, seeds=range(12), settle=5)


@pytest.mark.real_loop
async def test_a_stop_at_a_random_time(chats: Sessions) -> None:
    """In real time, where the store takes some: as often as not, it comes while something is being stored."""
    source = random.Random(4)
    agent = Agent(Scripted("before", calls("quick"), "All done.", pace=0.001), tools=[quick])
    for n in range(12):
        id = f"s{n}"
        await chats.create(id, messages=BEFORE)
        run = agent.run("hello", session=chats.session(id), keep=source.choice(["partial", "rollback"])).start()
        await asyncio.sleep(source.random() * 0.03)
        run.cancel(mode=source.choice([CancelMode.IMMEDIATE, CancelMode.AFTER_TURN, CancelMode.KILL]))
        await run.finished()
        said = await stored(chats, id)
        assert said[:2] == BEFORE
        check_history(said)
        if len(said) > 2:
            await check_agrees(chats, run, id)
        assert (await chats.get(id)).holder is None


@pytest.mark.virtual_time
async def test_what_is_left_of_any_stop_is_what_any_provider_takes() -> None:
    """By the types of their own libraries."""
    chats = Sessions()
    agent = worker()
    for at in (0.005, 0.02, 0.5, 1.2):
        run = agent.run("hello", session=chats.session(f"s{at}")).start()
        await asyncio.sleep(at)
        run.cancel()
        await run.finished()
        check_by_sdk(bodies_of(await stored(chats, f"s{at}")))


@pytest.mark.virtual_time
async def test_a_stop_that_comes_too_late_changes_nothing() -> None:
    chats = Sessions()
    run = talker("yes").run("hello", session=chats.session("s"))
    await run
    before = await exported(chats)
    assert not run.cancel()
    assert run.status is RunStatus.COMPLETED
    await check_agrees(chats, run)
    assert await exported(chats) == before
