"""Ways to lose a stop, or to take other runs along, that were tried and found."""

from __future__ import annotations

import asyncio
import time
from typing import Any

import pytest

from halter import Agent, CancellationToken, RunCancelled, RunContext, runnable
from halter.models import Scripted
from halter.outcome import CancelMode, CancelReason

from ..bounds import assert_within

SLOW = Agent(Scripted("word " * 2_000, pace=0.01))
SHORT = Agent(Scripted("a b c d e", pace=0.02))


@pytest.mark.parametrize("mode", ["kill", "after_turn", "nonsense", None])
def test_a_mode_given_as_text_or_wrongly_never_raises_and_stops(mode: Any) -> None:
    """`cancel` never raises; what is no mode stops at once; a correct call afterwards is in force."""
    run = SLOW.run("x").start()
    assert run.cancel("first", mode=mode, reason="admin")  # type: ignore[arg-type]
    assert run.cancel("second")
    with pytest.raises(RunCancelled) as caught:
        run.result(timeout=5)
    assert caught.value.cancellation is not None
    assert caught.value.cancellation.reason is CancelReason.ADMIN
    assert isinstance(caught.value.cancellation.mode, CancelMode)


@pytest.mark.scenario("B26")
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.parametrize("place", ["subtask", "on_cancel", "close"])
def test_a_system_exit_beside_the_body_does_not_end_other_blocking_runs(
    place: str, caplog: pytest.LogCaptureFixture
) -> None:
    """In a sub-task, a callback, or a resource's close: the background loop goes on, and so do the runs on it."""

    def leave() -> None:
        raise SystemExit("bye")

    @runnable
    async def leaves(ctx: RunContext) -> None:
        async def sub() -> None:
            leave()

        if place == "subtask":
            await asyncio.gather(sub())
        elif place == "on_cancel":
            token = CancellationToken()
            token.on_cancel(leave)
            token.cancel()
            await asyncio.sleep(0.02)
        else:
            ctx.resource("thing", "that leaves", leave)

    other = SHORT.run("x").start()
    if place == "subtask":
        with pytest.raises(SystemExit):
            leaves.run().result(timeout=5)
    else:
        assert leaves.run().result(timeout=5).is_completed
    assert other.result(timeout=5).text == "a b c d e"
    assert "SystemExit" in caplog.text


def test_a_thread_that_hammers_cancel_takes_nothing_from_other_runs() -> None:
    """Asking again for what is in force costs next to nothing: no list grows, no loop is woken."""
    run = SLOW.run("x").start()
    run.cancel()
    since = time.monotonic()
    while not run.is_done:
        run.cancel()
    assert_within(0.25, time.monotonic() - since)
    assert len(run._execution.requests) == 1
