"""`runtime().cancel` and `cancel_all`: by id, handle, tag and session; a mistake is an error, not a stop of nothing."""

from __future__ import annotations

import asyncio
import gc
from typing import Any

import pytest

from halter import RunCancelled, runnable, runtime
from halter.core.execution import unstarted
from halter.errors import ConfigurationError
from halter.sessions import Sessions

virtual = pytest.mark.virtual_time


@runnable
async def sleeper(ctx: Any, _: Any = None) -> None:
    await asyncio.sleep(1_000)


@virtual
async def test_a_run_that_is_made_and_not_started_is_stopped_by_its_id() -> None:
    run = sleeper.run(id="mine")
    assert await runtime().cancel("mine", "no more") is True
    with pytest.raises(RunCancelled, match="no more"):
        await run


@virtual
@pytest.mark.parametrize("is_one_live", [False, True])
async def test_all_runs_with_an_id_are_stopped_by_it(is_one_live: bool) -> None:
    """As a job that is repeated under its own id: one of them may be live, the others are made."""
    runs = [sleeper.run(id="mine") for _ in range(3)]
    if is_one_live:
        runs[1].start()
        await asyncio.sleep(0.1)
    assert await runtime().cancel("mine", wait=True) is True
    assert [run.is_cancelled for run in runs] == [True] * 3


@virtual
async def test_a_run_that_is_made_and_not_started_is_stopped_by_its_tag() -> None:
    run, other = sleeper.run(tags=["mine"]), sleeper.run(tags=["other"])
    assert await runtime().cancel_all(tag="mine") == [run.id]
    assert run.is_cancelled
    assert not other.is_done


@virtual
async def test_runs_that_are_started_ended_or_dropped_are_not_kept_as_unstarted() -> None:
    gc.collect()
    before = len(unstarted())
    started, ended = sleeper.run().start(), sleeper.run()
    sleeper.run()
    ended.cancel()
    gc.collect()
    assert len(unstarted()) == before
    await started.aclose()


@virtual
async def test_a_run_that_is_made_is_found_by_its_tag_and_its_session_together() -> None:
    place = Sessions("memory")
    mine, other = (sleeper.run("hi", session=place.session(id), tags="t") for id in ("mine", "other"))
    assert await runtime().cancel_all(tag="t", session=place.session("mine"), wait=True) == [mine.id]
    assert mine.is_cancelled
    assert not other.is_cancelling


@virtual
async def test_a_handle_is_as_good_as_its_id() -> None:
    run = sleeper.run().start()
    assert await runtime().cancel(run, wait=True) is True
    assert run.is_cancelled


@virtual
async def test_stops_by_session_id_never_cross_places() -> None:
    here, there = Sessions("memory"), Sessions("memory")
    runs = [sleeper.run("hi", session=each).start() for each in (here.session("s"), there.session("s"), "s")]
    await asyncio.sleep(1)
    assert await runtime().cancel_all(session=here.session("s"), wait=True) == [runs[0].id]
    assert [run.is_cancelled for run in runs] == [True, False, False]
    assert [run.id for run in runtime().runs(session=there.session("s"))] == [runs[1].id]
    assert await runtime().cancel_all(session="s", wait=True) == [runs[2].id]
    assert [run.is_cancelled for run in runs] == [True, False, True]
    await runs[1].aclose()


@virtual
@pytest.mark.parametrize("wrong", [{"tag": ["mine"]}, {"session": 7}, {"session": object()}, {"tag": 3}])
async def test_an_argument_that_cannot_be_understood_raises_and_stops_nothing(wrong: dict[str, Any]) -> None:
    run = sleeper.run(tags=["mine"]).start()
    with pytest.raises(ConfigurationError):
        await runtime().cancel_all(**wrong)
    with pytest.raises(ConfigurationError):
        runtime().runs(**wrong)
    with pytest.raises(ConfigurationError):
        await runtime().cancel(7)  # pyright: ignore[reportArgumentType]
    with pytest.raises(ConfigurationError):
        runtime().runs(status="runing")  # pyright: ignore[reportArgumentType]
    assert not run.is_cancelling
    await run.aclose()
