"""One scenario, three forms: a run is awaited on asyncio, on uvloop, or read by blocking code; somebody stops it."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field
from typing import Any

from halter import Run, RunResult, events

from ..bounds import T, assert_within
from .descriptors import OpenSocket, sockets_to


@dataclass
class Stopped:
    """What came of it. `in_force`: what `cancel()` said; `asked`, `returned`: monotonic; `left`: sockets and tasks.

    `events`: the whole log; `shown`: what the run's owner has read, to whom a stop shows at once.
    """

    in_force: bool
    result: RunResult[Any]
    events: list[events.Event]
    shown: list[events.Event]
    asked: float
    returned: float
    left: list[OpenSocket | asyncio.Task[Any]] = field(default_factory=list)

    @property
    def took(self) -> float:
        return self.returned - self.asked

    @property
    def requests_asked(self) -> int:
        return sum(isinstance(event, events.ModelRequested) for event in self.events)

    def assert_real(self) -> None:
        """Within T, as cancelled, with one terminal event, and nothing left behind."""
        assert self.in_force
        assert_within(T, self.took)
        assert self.result.is_cancelled
        assert self.result.receipt is not None
        assert self.result.receipt.confirmed, str(self.result.receipt)
        assert [event.type for event in self.events if event.is_terminal and event.parent_id is None] == [
            "run.cancelled"
        ]
        assert self.events[-1].is_terminal
        assert self.shown[-1] is self.events[-1]
        assert self.left == []


When = Callable[[Run[Any]], object]
"""Blocks until the run has come as far as the scenario wants."""


def after_tokens(count: int) -> When:
    """When the run has shown so many tokens."""

    def wait(run: Run[Any]) -> None:
        seen = 0
        for event in run.events():
            seen += isinstance(event, events.TextDelta)
            if seen >= count:
                return
        raise AssertionError(f"it ended after {seen} tokens: {run.why()}")

    return wait


class AsyncForm:
    """The run is awaited on a loop of its own; a helper thread waits for the moment, then it is stopped on the loop."""

    def __init__(self, name: str, factory: Callable[[], asyncio.AbstractEventLoop]) -> None:
        self.name = name
        self._factory = factory

    def stop(self, make: Callable[[], Run[Any]], when: When, port: int) -> Stopped:
        """Starts the run that `make` makes, stops it when `when` returns, looks what is left while the loop lives."""

        async def main() -> Stopped:
            before, tasks = set(sockets_to(port)), asyncio.all_tasks()
            run = make()
            seen: list[events.Event] = []
            reading = asyncio.create_task(_read(run, seen))
            await asyncio.sleep(0)
            await asyncio.to_thread(when, run)
            asked = time.monotonic()
            in_force = run.cancel()
            result = await run.finished()
            returned = time.monotonic()
            left: list[Any] = [one for inode, one in sockets_to(port).items() if inode not in before]
            await reading
            log = [event async for event in run.events()]
            left += [task for task in asyncio.all_tasks() if task not in tasks]
            return Stopped(in_force, result, log, seen, asked, returned, left)

        return self.drive(main())

    def drive(self, main: Coroutine[Any, Any, Any]) -> Any:
        with asyncio.Runner(loop_factory=self._factory) as runner:
            return runner.run(main)

    def __repr__(self) -> str:
        return self.name


async def _read(run: Run[Any], seen: list[events.Event]) -> None:
    async for event in run:
        seen.append(event)


class BlockingForm:
    """The run is read by a plain `for` in this thread; another thread waits for the moment, then stops it."""

    name = "blocking"

    def stop(self, make: Callable[[], Run[Any]], when: When, port: int) -> Stopped:
        before = set(sockets_to(port))
        run = make().start()
        asked: list[float] = []
        in_force: list[bool] = []
        problems: list[BaseException] = []

        def stop() -> None:
            try:
                when(run)
            except BaseException as error:
                problems.append(error)
            finally:
                asked.append(time.monotonic())
                in_force.append(run.cancel())

        stopper = threading.Thread(target=stop)
        stopper.start()
        seen = list(run)
        returned = time.monotonic()
        left: list[Any] = [one for inode, one in sockets_to(port).items() if inode not in before]
        stopper.join()
        if problems:
            raise problems[0]
        assert run.outcome is not None
        return Stopped(in_force[0], run.outcome, list(run.events()), seen, asked[0], returned, left)

    def __repr__(self) -> str:
        return self.name


def forms() -> list[AsyncForm | BlockingForm]:
    found: list[AsyncForm | BlockingForm] = [AsyncForm("asyncio", asyncio.new_event_loop)]
    try:
        import uvloop
    except ImportError:
        pass
    else:
        found.append(AsyncForm("uvloop", uvloop.new_event_loop))
    return [*found, BlockingForm()]
