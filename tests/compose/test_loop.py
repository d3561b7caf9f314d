"""`Loop`: again and again, until it is enough."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from halter import CancelMode, RunCancelled, runnable, runtime
from halter.compose import Loop
from halter.outcome import CancelReason

from .parts import ends_of, fails, find, log_of, speaker

pytestmark = pytest.mark.virtual_time


@runnable
async def double(ctx: Any, n: int) -> int:
    await asyncio.sleep(1)
    return 2 * n


async def test_an_output_is_the_next_input_until_it_is_enough() -> None:
    """`until` gets the output and the number of iterations so far."""
    asked: list[tuple[int, int]] = []

    def enough(output: int, number: int) -> bool:
        asked.append((output, number))
        return output > 20

    result = await Loop(double, until=enough).run(3)
    assert result.output == 24
    assert asked == [(6, 1), (12, 2), (24, 3)]


async def test_until_may_be_async() -> None:
    async def enough(output: int, number: int) -> bool:
        await asyncio.sleep(10)
        return number == 2

    assert (await Loop(double, until=enough).run(1)).output == 4
    assert asyncio.get_running_loop().time() == 22


async def test_it_ends_at_max_iterations_in_any_case() -> None:
    """And completes with the last output: whether that is enough is for whoever asked."""
    assert (await Loop(double, until=lambda output, number: False, max_iterations=3).run(1)).output == 8
    assert (await Loop(double, max_iterations=1).run(1)).output == 2
    assert (await Loop(double).run(1)).output == 2**10


async def test_each_iteration_speaks_live_and_the_last_has_the_last_word() -> None:
    """`text` is one iteration's; the stream has all of them."""
    run = Loop(speaker("a", "one two"), max_iterations=2).run("go")
    seen = [(text, run.text) async for text in run.text_stream()]
    assert seen == [("one ", "one "), ("two", "one two"), ("one ", "one "), ("two", "one two")]
    result = await run
    assert result.text == "one two"
    assert [message.text for message in result.messages] == ["go", "one two"]
    steps = [event.step for event in await log_of(run) if event.type == "step.started" and event.run_id == run.id]
    assert steps == [1, 2]


async def test_an_until_that_raises_fails_it() -> None:
    def enough(output: int, number: int) -> bool:
        raise LookupError("no idea")

    result = await Loop(double, until=enough).run(1).finished()
    assert isinstance(result.error, LookupError)


async def test_an_iteration_that_fails_fails_it() -> None:
    error = ValueError("bad")
    assert (await Loop(fails(error)).run(1).finished()).error is error


@pytest.mark.scenario("C35")
async def test_an_iteration_that_is_stopped_alone_fails_it() -> None:
    """Nobody knows what would have come of it; no other begins."""
    run = Loop(speaker("a", "one two three")).run("go").start()
    await asyncio.sleep(1.5)
    await runtime().cancel(find(run, "a"))
    result = await run.finished()
    assert isinstance(result.error, RunCancelled)
    assert (result.text, result.messages[-1].interrupted) == ("one ", True)
    assert await ends_of(run) == {"a": CancelReason.USER_STOP, "loop": "run.failed"}


@pytest.mark.scenario("B25")
async def test_after_turn_in_an_iteration_that_is_enough_is_without_effect() -> None:
    """It had completed by itself."""
    run = Loop(double, until=lambda output, number: True).run(1).start()
    await asyncio.sleep(0.5)
    assert run.cancel(mode=CancelMode.AFTER_TURN)
    assert (await run).output == 2


async def test_a_stop_while_until_is_asked_ends_it_at_once() -> None:
    async def enough(output: int, number: int) -> bool:
        await asyncio.sleep(100)
        return True

    run = Loop(double, until=enough).run(1).start()
    await asyncio.sleep(50)
    run.cancel()
    assert (await run.finished()).is_cancelled
    assert asyncio.get_running_loop().time() == 50
