"""Loops over a run that are left, tasks that leave them, and text that is asked for after a stop."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from halter import runnable
from halter.core.log import LAG_LIMIT

virtual = pytest.mark.virtual_time
MANY = LAG_LIMIT * 4


@runnable
async def talker(ctx: Any) -> None:
    for number in range(MANY):
        ctx.text(f"{number} ")
        await ctx.drain()
        await asyncio.sleep(0)


@runnable
async def slow_talker(ctx: Any) -> str:
    for _ in range(10):
        ctx.text("z")
        await asyncio.sleep(1)
    return "slept"


@virtual
@pytest.mark.parametrize("form", ["events", "text"])
async def test_a_run_whose_loop_was_left_by_break_runs_on_while_its_handle_is_kept(form: str) -> None:
    run = talker.run()
    async for _ in run if form == "events" else run.text_stream():
        break
    await asyncio.sleep(1_000)
    assert run.is_completed, f"{len(run.text.split())} of {MANY}"


@virtual
async def test_a_loop_that_is_taken_up_again_slows_the_run_down_again_and_misses_nothing() -> None:
    run = talker.run()
    seen = 0
    while not run.is_done:
        async for event in run.text_stream():
            seen += event.count(" ")
            if seen % 100 == 0:
                break
    async for event in run.text_stream():
        seen += event.count(" ")
    assert seen == MANY


@virtual
async def test_a_task_that_has_left_its_loop_and_is_cancelled_later_stops_nothing() -> None:
    run = slow_talker.run()

    async def leaves() -> None:
        async for _ in run:
            break
        await asyncio.sleep(1_000)

    left = asyncio.ensure_future(leaves())
    reading = asyncio.ensure_future(asyncio.wait_for(_texts(run), 100))
    await asyncio.sleep(2)
    left.cancel()
    await asyncio.wait([left])
    assert (await reading)[-1:] == ["z"]
    assert run.is_completed


@virtual
async def test_a_task_that_is_cancelled_in_the_body_of_its_loop_stops_the_run() -> None:
    run = slow_talker.run()

    async def reads() -> None:
        async for _ in run:
            await asyncio.sleep(100)

    reader = asyncio.ensure_future(reads())
    await asyncio.sleep(2)
    reader.cancel()
    await asyncio.wait([reader])
    await asyncio.sleep(1)
    assert run.is_cancelled


@virtual
async def test_the_text_of_a_stopped_run_is_the_same_by_text_stream_as_by_its_events() -> None:
    run = slow_talker.run().start()
    await asyncio.sleep(3.5)
    run.cancel()
    assert await _texts(run) == []
    await run.finished()
    assert await _texts(run) == []
    assert run.text == "zzzz"


async def _texts(run: Any) -> list[str]:
    return [text async for text in run.text_stream()]
