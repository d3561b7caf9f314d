"""Small parts, to be composed: they speak, take their time, fail."""

from __future__ import annotations

import asyncio
from typing import Any

from halter import Agent, Run, events, runnable
from halter.core.runnable import Runnable
from halter.models.scripted import Scripted
from halter.outcome import CancelReason


def speaker(name: str, *answers: str, pace: float = 1.0) -> Agent:
    """An agent that says this, a word a second."""
    return Agent(Scripted(*answers, pace=pace), name=name)


def gives(value: Any, name: str = "gives") -> Runnable[Any]:
    """Takes anything, shows nothing, and returns `value` after a second."""

    @runnable(name=name)
    async def part(ctx: Any, input: Any) -> Any:
        await asyncio.sleep(1)
        return value

    return part


def fails(error: BaseException, after: float = 1.0, name: str = "fails") -> Runnable[Any]:
    @runnable(name=name)
    async def part(ctx: Any, input: Any) -> Any:
        await asyncio.sleep(after)
        raise error

    return part


class Inputs:
    """A part that keeps what it was given; its output is the number of times."""

    def __init__(self, output: Any = None) -> None:
        self.given: list[Any] = []

        @runnable(name="inputs")
        async def part(ctx: Any, input: Any) -> Any:
            self.given.append(input)
            return len(self.given) if output is None else output

        self.part = part


async def log_of(run: Run[Any]) -> list[events.Event]:
    return [event async for event in run.events()]


async def ends_of(run: Run[Any]) -> dict[str, str | CancelReason]:
    """The name of each run in the tree, with its reason if it was stopped, else the type of its end."""
    log = await log_of(run)
    names = {event.run_id: event.name for event in log if isinstance(event, events.Started)}
    return {
        names[event.run_id]: event.reason if isinstance(event, events.Cancelled) else event.type
        for event in log
        if event.is_terminal
    }


def find(run: Run[Any], name: str) -> str:
    """The id of the part called `name`, of what has started so far."""
    log = run._execution.log.read(0, 10_000)
    return next(event.run_id for event in log if isinstance(event, events.Started) and event.name == name)
