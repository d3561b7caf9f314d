"""Random compositions of parts that speak, fail, swallow and linger, stopped at random: always one true end."""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Callable
from typing import Any

import pytest

from halter import Agent, CancelMode, CancelReason, Run, events, runnable, runtime
from halter.compose import Loop, Parallel, Race, Sequential
from halter.core.home import LIVE
from halter.core.runnable import Runnable
from halter.models.scripted import Scripted
from halter.testing import run
from halter.tools import as_tool

from .kinds import Asks
from .parts import log_of

SEEDS = 400
PACES = (0.0, 0.5, 1.0, 1.5)


class Bug(Exception):
    pass


def plant(dice: random.Random, depth: int) -> Runnable[Any]:
    """A random tree."""
    if depth == 0 or dice.random() < 0.2:
        return dice.choice(LEAVES)(dice)
    parts = [plant(dice, depth - 1) for _ in range(dice.randint(1, 3))]
    return dice.choice(WHOLES)(dice, parts)


def _speaks(dice: random.Random) -> Runnable[Any]:
    return Agent(Scripted(" ".join("word" for _ in range(dice.randint(1, 4))), pace=dice.choice(PACES)), name="speaks")


def _fails(dice: random.Random) -> Runnable[Any]:
    after = dice.choice(PACES)

    @runnable
    async def fails(ctx: Any, input: Any) -> None:
        await asyncio.sleep(after)
        raise Bug("scripted")

    return fails


def _lingers(dice: random.Random) -> Runnable[Any]:
    seconds, cleaning = dice.choice(PACES), dice.choice((0.0, 1.0, 4.0))

    @runnable
    async def lingers(ctx: Any, input: Any) -> Any:
        try:
            await asyncio.sleep(seconds)
        finally:
            await asyncio.sleep(cleaning)
        return {"lingered": cleaning}

    return lingers


def _swallows(dice: random.Random) -> Runnable[Any]:
    again = dice.choice((1.0, 20.0))

    @runnable
    async def swallows(ctx: Any, input: Any) -> str:
        try:
            await asyncio.sleep(2)
        except asyncio.CancelledError:
            await asyncio.sleep(again)
        return "went on"

    return swallows


def _silent(dice: random.Random) -> Runnable[Any]:
    @runnable
    async def silent(ctx: Any, input: Any) -> Any:
        return "text" if dice.random() < 0.8 else None

    return silent


LEAVES: list[Callable[[random.Random], Runnable[Any]]] = [_speaks, _speaks, _fails, _lingers, _swallows, _silent]
WHOLES: list[Callable[[random.Random, list[Runnable[Any]]], Runnable[Any]]] = [
    lambda dice, parts: Sequential(*parts),
    lambda dice, parts: Parallel(*parts, on_failure=dice.choice(("cancel", "wait", "collect"))),
    lambda dice, parts: Race(*parts),
    lambda dice, parts: Loop(parts[0], max_iterations=dice.randint(1, 3)),
    lambda dice, parts: Agent(Asks(), name="asks", tools=[as_tool(parts[0], name="part")]),
]


async def harass(dice: random.Random, root: Run[Any]) -> None:
    """Stops the root, or one of its runs alone, in some mode, once or more."""
    for _ in range(dice.randint(0, 3)):
        await asyncio.sleep(dice.choice((0.0, 0.3, 1.0, 1.5)))
        victims = [found for found in runtime().runs() if found.root_id == root.id]
        if victims:
            dice.choice([root, *victims]).cancel("at random", mode=dice.choice(list(CancelMode)))


def check(root: Run[Any], log: list[events.Event], check_log: Any) -> None:
    result = root.outcome
    assert result is not None
    if log[0].type == "run.started":
        check_log(log)
    assert log[-1].type == f"run.{result.status}" == f"run.{root.status}"
    assert log[-1].text == result.text  # pyright: ignore
    assert (result.cancellation is None) == (not result.is_cancelled)
    if result.is_completed:
        assert result.error is None
    if result.is_failed:
        assert result.error is not None
    stopped = {event.run_id: event.reason for event in log if isinstance(event, events.Cancelled)}
    kinds = {event.run_id: event.kind for event in log if isinstance(event, events.Started)}
    for event in log:
        if event.run_id in stopped and event.parent_id is not None:
            above = kinds[event.parent_id]
            assert stopped[event.run_id] is not CancelReason.LOST_RACE or above == "race"
            assert stopped[event.run_id] is not CancelReason.SIBLING_FAILED or above == "parallel"


@pytest.mark.scenario("B18", "D49", "J89")
@pytest.mark.parametrize("part", range(4))
def test_random_trees_stopped_at_random_have_one_true_end(
    part: int, check_log: Any, caplog: pytest.LogCaptureFixture
) -> None:
    """Nothing is alive afterwards: no run, no task."""
    caplog.set_level(logging.CRITICAL, "halter")

    async def scenario(seed: int) -> None:
        dice = random.Random(seed)
        root = plant(dice, 3).run("go", grace=dice.choice((0.0, 2.0, 5.0)), timeout=dice.choice((None, None, 3.0)))
        root.start()
        await harass(dice, root)
        await root.finished()
        check(root, await log_of(root), check_log)
        assert not LIVE
        await asyncio.sleep(100)  # what was given up ends by itself
        assert len(asyncio.all_tasks()) == 1

    for seed in range(part, SEEDS, 4):
        try:
            run(scenario(seed), seed=seed, timeout=1_000)
        except BaseException as error:
            error.add_note(f"seed {seed}")
            raise
