"""`cancel` never raises and loses no stop, whatever it is given and whatever it governs; handles are not copied."""

from __future__ import annotations

import asyncio
import copy
import gc
import logging
import pickle
import threading
from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from halter import CancellationToken, CancelMode, RunContext, runnable
from halter.errors import ConfigurationError, UsageError

virtual = pytest.mark.virtual_time


@runnable
async def waits(ctx: RunContext) -> None:
    await asyncio.sleep(100)


@virtual
@pytest.mark.parametrize("given", [[1], {}, 5, None, "nonsense"], ids=repr)
@pytest.mark.parametrize("name", ["message", "reason", "mode", "actor"])
async def test_cancel_takes_any_value_and_stops(name: str, given: Any) -> None:
    run, token = waits.run().start(), CancellationToken()
    await asyncio.sleep(1)
    assert run.cancel(**{name: given})
    assert token.cancel(**{name: given})
    assert (await run.finished()).is_cancelled
    assert token.cancellation is not None


class Breaks:
    def cancel(self, message: Any = None, **options: Any) -> bool:
        raise OSError("it cannot be cancelled")


@virtual
async def test_a_governed_target_whose_cancel_raises_keeps_the_stop_from_nobody(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Neither from the run that is governed after it, nor from the canceller; it is logged."""
    caplog.set_level(logging.ERROR, "halter")
    token = CancellationToken()
    token.govern(Breaks())
    run = waits.run(cancellation=token.child()).start()
    await asyncio.sleep(1)
    assert token.cancel()
    assert (await run.finished()).is_cancelled
    assert CancellationToken.any(token).govern(Breaks()) is not None
    assert [record.exc_info[0] for record in caplog.records if record.exc_info] == [OSError, OSError]


@pytest.mark.loops
@pytest.mark.parametrize("from_a_thread", [False, True])
async def test_a_token_governs_an_asyncio_task(from_a_thread: bool) -> None:
    token = CancellationToken()
    task = asyncio.create_task(asyncio.sleep(100))
    token.govern(task)
    run = waits.run(cancellation=token).start()
    await asyncio.sleep(0)
    assert await asyncio.to_thread(token.cancel, "enough") if from_a_thread else token.cancel("enough")
    with pytest.raises(asyncio.CancelledError, match="enough"):
        await asyncio.wait_for(task, 5)
    assert (await run.finished()).is_cancelled


@pytest.mark.parametrize("target", [object(), threading.Timer(1, print), print], ids=["none", "timer", "print"])
def test_a_target_that_cannot_take_a_request_is_refused_where_it_is_given(target: Any) -> None:
    with pytest.raises(ConfigurationError, match="govern"):
        CancellationToken().govern(target)


@virtual
@pytest.mark.parametrize("copied", [copy.copy, copy.deepcopy, pickle.dumps])
async def test_handles_and_tokens_are_not_copied(copied: Callable[[Any], object]) -> None:
    """A copy that is dropped would stop the run; a copy of a token would not hear of its cancel."""
    run, token = waits.run().start(), CancellationToken()
    await asyncio.sleep(1)
    with pytest.raises(UsageError, match="handle cannot be copied"):
        copied(run)
    with pytest.raises(UsageError, match="token cannot be copied"):
        copied(token)
    gc.collect()
    assert not run.is_cancelling
    await run.aclose()


class Hostile(str):
    """Text that raises wherever it is looked at."""

    def __str__(self) -> str:
        raise RuntimeError("no text")

    def __eq__(self, other: object) -> bool:
        raise RuntimeError("not comparable")

    __hash__ = str.__hash__


@pytest.mark.virtual_time
@pytest.mark.parametrize("given", [Hostile("kill"), "half a \ud83d pair"], ids=["hostile", "surrogate"])
@pytest.mark.parametrize("field", ["message", "actor", "reason", "mode"])
@pytest.mark.parametrize("by", ["run", "token"])
async def test_the_record_of_a_stop_can_be_written_down_whatever_was_given(by: str, field: str, given: str) -> None:
    @runnable
    async def sleeps(ctx: Any) -> None:
        await asyncio.sleep(1_000)

    token = CancellationToken()
    run = sleeps.run(cancellation=token).start()
    target: Any = run if by == "run" else token
    assert target.cancel(**{field: given}) is True
    result = await run.finished()
    assert result.is_cancelled
    assert result.why()
    assert [msgspec.json.encode(event) for event in [event async for event in run.events()]]


def test_a_token_that_is_cancelled_again_and_again_holds_each_strength_once() -> None:
    """A look at it costs no more than before, and a stronger mode still counts."""
    token = CancellationToken()
    for _ in range(1_000):
        assert token.cancel("first", mode=CancelMode.AFTER_TURN)
        assert token.cancel("second", mode=CancelMode.KILL)
    assert len(token._own_requests()) == 2
    assert token.cancellation is not None
    assert (token.cancellation.message, token.cancellation.mode) == ("first", CancelMode.KILL)
