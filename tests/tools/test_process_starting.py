"""Starting takes a fork, a helper process and a disk: the loop goes on meanwhile, and a stop finds what is starting."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest

from halter import events
from halter.children import child, proc, supervised
from halter.outcome import Ended
from halter.tools.jobs import Jobs
from halter.tools.process import shell
from halter.tools.surroundings import Surroundings

from ..bounds import assert_in_time
from .processes import agent_calling, alive, call, called, new_name, until

HERE = Surroundings.of(None, None, None)
pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="processes of tools need a POSIX system")


@pytest.fixture
def name() -> Iterator[str]:
    name = new_name()
    yield name
    left = alive(name)
    for pid in left:
        os.kill(pid, signal.SIGKILL)
    assert left == [], "processes were left behind"


class Gate:
    """Holds programs up where they are started."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.arrived = threading.Event()
        self.opened = threading.Event()
        self._start = child.start
        monkeypatch.setattr(child, "start", self._wait)

    def _wait(self, *given: Any) -> Any:
        self.arrived.set()
        assert self.opened.wait(20)
        return self._start(*given)


@pytest.mark.skipif(sys.platform != "linux", reason="supervisors need Linux")
@pytest.mark.real_loop
async def test_a_halted_helper_process_stops_neither_the_loop_nor_programs() -> None:
    tool = shell(approval="never")
    await call(tool, command="true")
    helper = supervised._helper
    assert helper is not None
    await until(lambda: not proc.below(helper._server).processes)  # a supervisor that ends lets it go on
    os.kill(helper._server[0], signal.SIGSTOP)
    beats: list[float] = []

    async def beat() -> None:
        while True:
            beats.append(time.monotonic())
            await asyncio.sleep(0.005)

    beating = asyncio.create_task(beat())
    assert (await call(tool, command="echo on")).text == "on\n"
    beating.cancel()
    assert_in_time(len(beats) > 10, "the loop: it takes a quarter of a second until the helper is told to go on")


@pytest.mark.real_loop
@pytest.mark.scenario(29)
async def test_a_stop_waits_for_a_program_that_is_being_started_and_ends_it(
    monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    gate = Gate(monkeypatch)
    run = agent_calling(shell(approval="never"), command=f"setsid sleep {name} & sleep {name}").run("go").start()
    await until(gate.arrived.is_set)
    run.cancel()
    await asyncio.sleep(0.05)
    assert run.outcome is None, "what becomes of the program is not known yet"
    gate.opened.set()
    after = await called(run)
    assert after.line.ended in (Ended.TERMINATED, Ended.KILLED)
    assert after.result.receipt.confirmed
    assert alive(name) == []


@pytest.mark.real_loop
async def test_a_program_that_starts_after_its_run_was_given_up_is_ended(
    monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    gate = Gate(monkeypatch)
    started = threading.Event()
    tool = shell(approval="never")
    run = agent_calling(tool, command=f"echo >/dev/null; sleep {name}").run("go", grace=0.05).start()
    await until(gate.arrived.is_set)
    run.cancel()
    result = await run.finished()
    assert not result.receipt.confirmed
    monkeypatch.setattr(child.Child, "_on_over", lambda *_: started.set())
    gate.opened.set()
    await until(started.is_set)
    assert alive(name) == []


def test_a_program_whose_loop_was_closed_while_it_started_is_ended(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    gate = Gate(monkeypatch)
    over = threading.Event()
    forget = child.Child.forget

    def forgotten(self: child.Child) -> None:
        forget(self)
        over.set()

    monkeypatch.setattr(child.Child, "forget", forgotten)

    async def main() -> None:
        begun = child.Child(lambda data: None)
        starting = asyncio.create_task(HERE.start(begun, ["sleep", name]))
        await until(gate.arrived.is_set)
        starting.cancel()

    asyncio.run(main())
    gate.opened.set()
    assert over.wait(10)
    assert alive(name) == []


@pytest.mark.real_loop
async def test_jobs_that_are_closed_while_one_starts_end_it(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    gate = Gate(monkeypatch)
    jobs = Jobs()
    starting = asyncio.create_task(jobs.start(["sleep", name], "sleep", HERE, max_output=100, term_grace=0.1))
    await until(gate.arrived.is_set)
    closing = asyncio.create_task(jobs.close())
    await asyncio.sleep(0.02)
    assert not closing.done()
    gate.opened.set()
    await closing
    assert alive(name) == []
    assert not (await starting).is_running


@pytest.mark.real_loop
async def test_a_job_whose_start_is_cancelled_is_gone_when_it_says_so(
    monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    gate = Gate(monkeypatch)
    async with Jobs() as jobs:
        starting = asyncio.create_task(jobs.start(["sleep", name], "sleep", HERE, max_output=100, term_grace=0.1))
        await until(gate.arrived.is_set)
        starting.cancel()
        gate.opened.set()
        with pytest.raises(asyncio.CancelledError):
            await starting
        assert alive(name) == []
        assert len(jobs) == 0


@pytest.mark.real_loop
async def test_a_program_that_cannot_be_watched_is_ended(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    """No descriptor may be left to watch it by."""

    def fail(self: object, *_: object) -> None:
        raise OSError(24, "Too many open files")

    monkeypatch.setattr(supervised.SupervisedLeader, "watch", fail)
    monkeypatch.setattr(child.Leader, "watch", fail)
    before = len(os.listdir("/proc/self/fd"))
    after = await call(shell(approval="never"), command=f"sleep {name}")
    assert "Too many open files" in after.text
    assert alive(name) == []
    assert len(os.listdir("/proc/self/fd")) <= before + 1, "the helper's"


@pytest.mark.real_loop
async def test_the_timeout_of_a_call_counts_while_its_program_is_started(
    monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    gate = Gate(monkeypatch)
    run = agent_calling(shell(approval="never", timeout=0.05), command=f"sleep {name}").run("go").start()
    await until(gate.arrived.is_set)
    await asyncio.sleep(0.1)
    gate.opened.set()
    after = await called(run)
    assert isinstance(after.finished, events.ToolFinished)
    assert "not done after 0.05 s" in after.text
    assert alive(name) == []
