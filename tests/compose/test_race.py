"""`Race`: the first that completes wins."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from halter import CancelMode, RunFailed, runnable, runtime
from halter.compose import Race
from halter.outcome import CancelReason

from .parts import ends_of, fails, find, log_of, speaker

pytestmark = pytest.mark.virtual_time


def now() -> float:
    return asyncio.get_running_loop().time()


@pytest.mark.scenario("C34")
async def test_the_first_to_complete_wins_and_the_losers_are_stopped_at_once() -> None:
    """`lost_race`, in the middle of their sentence; the answer is the winner's."""
    run = Race(speaker("slow", "one two three"), speaker("quick", "four five")).run("go")
    result = await run
    assert now() == 2
    assert (result.output, result.text) == ("four five", "four five")
    assert await ends_of(run) == {"quick": "run.completed", "slow": CancelReason.LOST_RACE, "race": "run.completed"}
    assert [(m.role, m.text) for m in result.messages] == [("user", "go"), ("assistant", "four five")]


async def test_its_text_comes_with_the_winner() -> None:
    """Whole, for every reader, also for one that is far behind."""
    run = Race(speaker("slow", "one two three"), speaker("quick", "four five")).run("go")
    await run.start().finished()
    assert [text async for text in run.text_stream()] == ["four five"]
    log = await log_of(run)
    assert [(event.agent, event.text) for event in log if event.type == "text.delta"][-1] == ("race", "four five")


async def test_one_that_fails_or_is_stopped_alone_is_out() -> None:
    """The others race on."""
    parts = fails(ValueError("bad")), speaker("stopped", "one two three"), speaker("slow", "four five six seven")
    run = Race(*parts).run("go").start()
    await asyncio.sleep(1.5)
    await runtime().cancel(find(run, "stopped"))
    assert (await run).output == "four five six seven"
    assert now() == 4


async def test_if_none_is_left_it_fails_with_the_first_error_which_tells_of_the_others() -> None:
    """First in time."""
    first = ValueError("first")
    run = Race(fails(KeyError("later"), after=2), fails(first, after=1), speaker("stopped", "one two three")).run("go")
    run.start()
    await asyncio.sleep(1.5)
    await runtime().cancel(find(run, "stopped"), "you alone")
    with pytest.raises(RunFailed) as caught:
        await run
    assert caught.value.__cause__ is first
    assert len(first.__notes__) == 2
    assert "you alone" in first.__notes__[0]
    assert first.__notes__[1] == "and another part: KeyError: 'later'"


async def test_of_several_that_complete_in_one_instant_the_first_in_the_log_wins() -> None:
    """What readers see first is what counts."""
    run = Race(*(speaker(name, f"{name} wins") for name in "abc")).run("go")
    result = await run
    log = await log_of(run)
    first = next(event for event in log if event.type == "run.completed")
    assert result.output == first.output


async def test_it_is_over_when_nothing_of_the_losers_is_left() -> None:
    """What they have to clean up is waited for, within the race's grace."""

    @runnable
    async def tidy(ctx: Any, input: Any) -> None:
        try:
            await asyncio.sleep(100)
        finally:
            await asyncio.sleep(2)

    assert (await Race(tidy, speaker("quick", "done")).run("go")).output == "done"
    assert now() == 3


async def test_a_loser_that_swallows_its_stop_is_given_up_at_the_end_of_the_grace(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """The winner's output is not lost to it."""

    @runnable
    async def stubborn(ctx: Any, input: Any) -> None:
        while now() < 100:
            try:
                await asyncio.sleep(100)
            except asyncio.CancelledError:
                pass

    result = await Race(stubborn, speaker("quick", "done")).run("go", grace=2)
    assert (result.output, now()) == ("done", 3)
    assert "abandoned after the grace: task stubborn" in caplog.text
    await asyncio.sleep(200)


@pytest.mark.scenario("B25")
async def test_a_race_whose_last_parts_a_stop_has_ended_is_stopped_and_has_not_failed() -> None:
    """They might have won."""
    two_turns = speaker("two turns", "one two", "three four")

    @runnable
    async def steered(ctx: Any, input: Any) -> Any:
        inner = ctx.start(two_turns, "hi")
        inner.send("and then?")
        return (await inner).output

    run = Race(fails(ValueError("bad")), steered).run("go").start()
    await asyncio.sleep(0.5)
    run.cancel(mode=CancelMode.AFTER_TURN)
    result = await run.finished()
    assert result.is_cancelled
    assert now() == 2
