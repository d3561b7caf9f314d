"""What the tests of processes share: calls of one tool, and a way to find what a call has started."""

from __future__ import annotations

import asyncio
import os
import random
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from halter import Agent, Run, RunResult, events
from halter.models.scripted import Scripted, calls
from halter.outcome import ReceiptLine
from halter.tools.process import shell


def new_name() -> str:
    """A number of seconds to sleep that no other test uses: a program is found by it in /proc."""
    return f"{random.randrange(300, 400)}.{random.randrange(10**12):012}"


def alive(name: str) -> list[int]:
    """The processes that have this in their command line, and have not ended."""
    return [int(pid) for pid in filter(str.isdecimal, os.listdir("/proc")) if name in _command(pid)]


def _command(pid: str) -> str:
    try:
        return Path(f"/proc/{pid}/cmdline").read_text(errors="replace")
    except OSError:
        return ""


def wait_for(name: str, count: int = 1, limit: float = 10.0) -> list[int]:
    """Blocks until so many processes at least have this in their command line; returns them. Fails after `limit`.

    A program that is just being loaded has no command line, so that whoever looks once may see fewer than there are.
    """
    until = time.monotonic() + limit
    while len(found := alive(name)) < count:
        assert time.monotonic() < until, f"only {found} of {count}"
        time.sleep(0.005)
    return found


def wait_until_gone(name: str, limit: float = 20.0) -> float:
    """Seconds until none of them was left. Fails after `limit`."""
    began = time.monotonic()
    while left := alive(name):
        assert time.monotonic() - began < limit, f"still there: {left}"
        time.sleep(0.005)
    return time.monotonic() - began


async def until(look: Callable[[], object], limit: float = 10.0) -> None:
    """Waits for something that nobody tells of: what other processes do."""
    async with asyncio.timeout(limit):
        while not look():  # noqa: ASYNC110
            await asyncio.sleep(0.005)


@dataclass(frozen=True)
class Called:
    """How one call of a tool went, and the run around it."""

    result: RunResult[Any]
    finished: events.ToolFinished
    shown: str
    pieces: int

    @property
    def text(self) -> str:
        return self.finished.result

    @property
    def line(self) -> ReceiptLine:
        """The process's line in the receipt."""
        assert self.result.receipt is not None
        (line,) = (line for line in self.result.receipt.resources if line.kind == "process")
        return line


def patient_shell(**more: Any) -> Any:
    """A shell that nobody is asked for, with so much time after TERM that only what ignores it is killed."""
    return shell(approval="never", term_grace=20.0, **more)


def agent_calling(tool: Any, **arguments: Any) -> Agent[str]:
    return Agent(Scripted(calls(tool.name, **arguments), "done"), tools=[tool])


async def call(tool: Any, **arguments: Any) -> Called:
    """A run whose model calls the tool once."""
    return await called(agent_calling(tool, **arguments).run("go").start())


async def called(run: Run[Any]) -> Called:
    """Waits for the end of a run with one call."""
    result = await run.finished()
    log = [event async for event in run.events()]
    (finished,) = (event for event in log if isinstance(event, events.ToolFinished))
    pieces = [event.text for event in log if isinstance(event, events.ToolProgress)]
    return Called(result, finished, "".join(pieces), len(pieces))


async def begin(tool: Any, *, until: str = "ready", grace: float = 60.0, **arguments: Any) -> Run[Any]:
    """A run whose model calls the tool, once the tool has said `until`."""
    run = agent_calling(tool, **arguments).run("go", grace=grace).start()
    said = ""
    async with asyncio.timeout(30):
        async for event in run.events():
            said += event.text if isinstance(event, events.ToolProgress) else ""
            assert not isinstance(event, events.ToolFinished), event
            if until in said:
                return run
    raise AssertionError(f"it ended before it said {until!r}")
