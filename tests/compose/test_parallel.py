"""`Parallel`: all at once, and what becomes of the others when one fails."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from halter import RunCancelled, RunFailed, runnable, runtime
from halter.compose import Parallel
from halter.outcome import CancelReason, RunStatus

from .parts import Inputs, ends_of, fails, find, gives, log_of, speaker

pytestmark = pytest.mark.virtual_time


def now() -> float:
    return asyncio.get_running_loop().time()


async def test_all_get_the_same_input_at_once_and_the_outputs_come_in_order() -> None:
    """However long each takes; the text is theirs, with blank lines between."""
    inputs, run = Inputs("seen"), None
    run = Parallel(speaker("slow", "one two three"), gives(7), speaker("quick", "four"), inputs.part).run("go")
    result = await run
    assert now() == 3
    assert result.output == ("one two three", 7, "four", "seen")
    assert result.text == "one two three\n\nfour\n\nseen"
    assert inputs.given == ["go"]
    log = await log_of(run)
    first = next(place for place, event in enumerate(log) if event.type == "text.delta")
    assert [event.type for event in log[:first]].count("run.started") == 5


async def test_the_parts_own_texts_are_in_the_stream_live_and_the_whole_comes_at_the_end() -> None:
    run = Parallel(speaker("a", "one two"), speaker("b", "three four")).run("go")
    assert [text async for text in run.text_stream()] == ["one two\n\nthree four"]
    live = [(event.agent, event.text) for event in await log_of(run) if event.type == "text.delta"]
    assert live[:4] == [("a", "one "), ("b", "three "), ("a", "two"), ("b", "four")]
    assert live[4:] == [("parallel", "one two\n\nthree four")]


@pytest.mark.scenario("C34")
async def test_one_that_fails_stops_its_siblings() -> None:
    """At once, with the reason `sibling_failed`; it fails with that error."""
    error = ValueError("bad")
    run = Parallel(speaker("slow", "one two three"), fails(error, after=1.5), speaker("quick", "four")).run("go")
    with pytest.raises(RunFailed) as caught:
        await run
    assert now() == 1.5
    assert caught.value.__cause__ is error
    assert await ends_of(run) == {
        "quick": "run.completed",
        "fails": "run.failed",
        "slow": CancelReason.SIBLING_FAILED,
        "parallel": "run.failed",
    }


async def test_it_is_over_only_when_the_siblings_are() -> None:
    """Their clean-up is waited for, within the grace."""

    @runnable
    async def tidy(ctx: Any, input: Any) -> None:
        try:
            await asyncio.sleep(100)
        finally:
            await asyncio.sleep(2)

    result = await Parallel(tidy, fails(ValueError("bad"))).run("go").finished()
    assert result.is_failed
    assert now() == 3


async def test_a_sibling_has_the_grace_of_the_whole_for_its_clean_up() -> None:
    """Half of it passes before it is cancelled once more."""
    cleaned: list[float] = []

    @runnable
    async def tidy(ctx: Any, input: Any) -> None:
        try:
            await asyncio.sleep(100)
        finally:
            await asyncio.sleep(9)
            cleaned.append(now())

    await Parallel(tidy, fails(ValueError("bad"))).run("go", grace=20).finished()
    assert cleaned == [10]


async def test_with_wait_all_finish_and_the_first_error_tells_of_the_others() -> None:
    """First in time, not in order."""
    later, first = KeyError("later"), ValueError("first")
    parts = fails(later, after=2), fails(first, after=1), speaker("slow", "one two three")
    run = Parallel(*parts, on_failure="wait").run("go")
    result = await run.finished()
    assert now() == 3
    assert result.error is first
    assert first.__notes__ == ["and another part: KeyError: 'later'"]
    assert (await ends_of(run))["slow"] == "run.completed"
    await Parallel(*parts, on_failure="wait").run("go").finished()
    assert len(first.__notes__) == 1, "an error that is raised again and again does not grow"


async def test_with_collect_the_error_stands_in_its_place() -> None:
    """It completes; the text is that of those that have."""
    error = ValueError("bad")
    result = await Parallel(speaker("a", "one two"), fails(error), gives(3), on_failure="collect").run("go")
    assert result.output == ("one two", error, 3)
    assert result.text == "one two"


@pytest.mark.scenario("C35")
@pytest.mark.parametrize("policy", ["cancel", "wait", "collect"])
async def test_a_part_that_is_stopped_alone_counts_as_failed(policy: Any) -> None:
    """The stop is its error; the composition itself was not stopped."""
    run = Parallel(speaker("a", "one two three"), speaker("b", "four five six"), on_failure=policy).run("go").start()
    await asyncio.sleep(1.5)
    await runtime().cancel(find(run, "a"), "you alone")
    result = await run.finished()
    assert now() == (1.5 if policy == "cancel" else 3)
    stop = result.output[0] if result.output else result.error
    assert isinstance(stop, RunCancelled)
    assert stop.result is not None
    assert stop.result.text == "one "
    assert result.status == (RunStatus.COMPLETED if policy == "collect" else RunStatus.FAILED)
    assert (await ends_of(run))["b"] == (CancelReason.SIBLING_FAILED if policy == "cancel" else "run.completed")


@pytest.mark.scenario("B26")
@pytest.mark.parametrize("policy", ["cancel", "wait", "collect"])
async def test_an_exit_is_never_collected(policy: Any) -> None:
    """Somebody asked the process to end."""
    with pytest.raises(SystemExit):
        await Parallel(fails(ValueError("first")), fails(SystemExit(3), after=1), on_failure=policy).run("go")


async def test_a_cancelled_error_of_a_parts_own_is_a_failure_like_any_other() -> None:
    """It must not look like a stop of the composition."""
    error = asyncio.CancelledError("of its own")
    result = await Parallel(fails(error), speaker("a", "one two")).run("go").finished()
    assert (result.status, result.error) == (RunStatus.FAILED, error)
    collected = await Parallel(fails(error), speaker("a", "one two"), on_failure="collect").run("go")
    assert collected.output == (error, "one two")


async def test_a_hundred_parts_end_in_any_order() -> None:
    """As many as you like, all at once."""

    @runnable
    async def number(ctx: Any, n: int) -> int:
        await asyncio.sleep(n)
        return n

    def waits(n: int) -> Any:
        @runnable(name=f"part {n}")
        async def part(ctx: Any, input: Any) -> int:
            return (await ctx.start(number, (n * 37) % 100)).output

        return part

    result = await Parallel(*(waits(n) for n in range(100))).run("go")
    assert result.output == tuple((n * 37) % 100 for n in range(100))
    assert now() == 99
