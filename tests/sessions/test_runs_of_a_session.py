"""`runtime().runs(session=…)` and `cancel_all(session=…)`: all runs of one session, and nobody else's."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from halter import Run, RunContext, runnable, runtime
from halter.outcome import CancelReason, RunStatus
from halter.sessions import Sessions

pytestmark = pytest.mark.virtual_time


@runnable
async def waits(ctx: RunContext) -> None:
    """For ever."""
    await asyncio.Event().wait()


@runnable
async def parent(ctx: RunContext) -> None:
    await ctx.start(waits)


async def begun(*runs: Run[Any]) -> None:
    for run in runs:
        run.start()
    await asyncio.sleep(0.01)


def ids(runs: list[Run[Any]]) -> set[str]:
    return {run.id for run in runs}


async def test_the_runs_of_a_session_are_found_with_those_under_them() -> None:
    chats = Sessions("memory")
    mine = parent.run(session=chats.session("a"), tags=["x"])
    waiting = waits.run(session=chats.session("a"), on_busy="enqueue", id="waiting")
    other, none = waits.run(session=chats.session("b")), waits.run()
    await begun(mine, waiting, other, none)
    found = runtime().runs(session=chats.session("a"))
    assert {run.id for run in found if run.parent_id is None} == {mine.id, "waiting"}
    assert [run.parent_id for run in found if run.parent_id is not None] == [mine.id]
    assert ids(runtime().runs(session=chats.session("a"), tag="x")) == {mine.id}
    assert ids(runtime().runs(session=chats.session("a"), status=RunStatus.QUEUED)) == {"waiting"}
    assert ids(runtime().runs(session=chats.session("b"))) == {other.id}
    assert runtime().runs(session=chats.session("nobody's")) == []
    await runtime().cancel_all(wait=True)


async def test_all_runs_of_a_session_are_stopped_and_no_others() -> None:
    chats = Sessions("memory")
    mine, waiting = (
        parent.run(session=chats.session("a")),
        waits.run(session=chats.session("a"), on_busy="enqueue"),
    )
    other, none = waits.run(session=chats.session("b")), waits.run()
    await begun(mine, waiting, other, none)
    stopped = await runtime().cancel_all("enough", session=chats.session("a"), actor="anna", wait=True)
    assert set(stopped) == {mine.id, waiting.id}
    for run in (mine, waiting):
        cancellation = (await run.finished()).cancellation
        assert (cancellation.reason, cancellation.actor) == (CancelReason.USER_STOP, "anna")
    assert ids(runtime().runs()) == {other.id, none.id}
    assert await runtime().cancel_all(session=chats.session("a")) == []
    await runtime().cancel_all(wait=True)


async def test_a_run_on_a_session_of_its_own_is_stopped_without_the_one_above_it() -> None:
    chats = Sessions("memory")

    @runnable
    async def above(ctx: RunContext) -> str:
        inner = ctx.start(parent, session=chats.session("inner"))
        return (await inner.finished()).status

    run = above.run(session=chats.session("outer"))
    await begun(run)
    (inner,) = [each for each in runtime().runs(session=chats.session("inner")) if each.parent_id == run.id]
    assert await runtime().cancel_all(session=chats.session("inner"), wait=True) == [inner.id]
    assert (await run.finished()).output == "cancelled"


async def test_what_runs_in_the_background_is_stopped_by_its_id_alone() -> None:
    @runnable
    async def begins(ctx: RunContext) -> str:
        return ctx.start_in_background(parent, tags=["learning"])

    learning = (await begins.run()).output
    await asyncio.sleep(0.01)
    for options in ({}, {"tag": "learning"}):
        assert await runtime().cancel_all(**options, wait=True) == []
    assert learning in ids(runtime().runs(tag="learning"))
    assert await runtime().cancel(learning, wait=True)
    assert runtime().runs() == []
