"""Programs in the background that belong to a session: its runs share them, nobody else sees them, they end with it."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from halter import Agent, RunContext, events, runnable
from halter.core import held
from halter.models.scripted import Scripted, calls
from halter.sessions import SessionRef, Sessions
from halter.tools.jobs import default_jobs, job_tools
from halter.tools.process import shell

from ..bounds import assert_within
from .processes import alive, new_name, until, wait_for, wait_until_gone

SOURCE = Path(__file__).parents[2] / "src"
pytestmark = pytest.mark.real_loop


@pytest.fixture
def name() -> Iterator[str]:
    name = new_name()
    yield name
    left = alive(name)
    for pid in left:
        os.kill(pid, signal.SIGKILL)
    assert not left, "a program was left behind"


@pytest.fixture
def chats() -> Sessions:
    return Sessions("memory")


async def start(command: str, session: SessionRef | None) -> None:
    """A run that leaves a program running."""
    model = Scripted(*[calls("shell", command=command, background=True), "done"] * 9)
    result = await Agent(model, tools=[shell(approval="never", background=True)]).run("go", session=session).finished()
    assert result.messages[-2].parts[0].content.startswith("job-"), result.messages


async def seen(session: SessionRef | None) -> str:
    """What a run's own tool says that there is."""
    (looking, *_) = job_tools()

    @runnable
    async def look(ctx: RunContext) -> Any:
        return await looking.call(looking.read("{}"), ctx)

    return (await look.run(session=session)).output


# --- whose they are -----------------------------------------------------------------------------------------


@pytest.mark.scenario(29)
async def test_a_program_outlives_a_stopped_turn_and_the_sessions_next_one_finds_it(name: str, chats: Sessions) -> None:
    mine = chats.session("mine")
    wait = calls("shell", command="echo ready; sleep 300")
    model = Scripted(calls("shell", command=f"trap '' TERM; setsid sleep {name} & sleep {name}", background=True), wait)
    tool = shell(approval="never", background=True, term_grace=0.2)
    run = Agent(model, tools=[tool]).run("go", session=mine).start()
    async for event in run.events():
        if isinstance(event, events.ToolProgress):
            break
    run.cancel()
    result = await run.finished()
    assert result.is_cancelled
    await until(lambda: len(alive(name)) == 3)
    assert (await seen(chats.session("mine"))).startswith("job-1: running")
    began = asyncio.get_running_loop().time()
    await chats.end("mine")
    assert alive(name) == []
    assert_within(2.0, asyncio.get_running_loop().time() - began)
    assert await seen(mine) == "There are none."


async def test_neither_another_session_nor_the_loop_sees_them(name: str, chats: Sessions) -> None:
    elsewhere = Sessions("memory")
    mine, other = chats.session("same"), elsewhere.session("same")
    await start(f"sleep {name}", mine)
    assert "job-1" in await seen(mine)
    for stranger in (chats.session("another"), other, None):
        assert await seen(stranger) == "There are none."
    assert len(default_jobs()) == 0
    await start(f"sleep {name}", other)
    await chats.end("same")
    assert await seen(mine) == "There are none."
    await until(lambda: len(alive(name)) == 1)
    await elsewhere.end("same")


async def test_a_run_under_the_sessions_run_has_them_too(name: str, chats: Sessions) -> None:
    mine = chats.session("mine")

    @runnable
    async def parent(ctx: RunContext) -> str:
        await start(f"sleep {name}", None)
        return await seen(None)

    assert "job-1: running" in (await parent.run(session=mine)).output
    assert "job-1: running" in await seen(mine)
    assert await seen(None) == "There are none."
    await chats.end("mine")


# --- how they end -------------------------------------------------------------------------------------------


async def test_an_ended_session_may_start_others(name: str, chats: Sessions) -> None:
    mine = chats.session("mine")
    for _ in range(2):
        await start(f"sleep {name}", mine)
        await until(lambda: len(alive(name)) == 1)
        await chats.end("mine")
        assert alive(name) == []
    await chats.end("mine")


async def test_a_session_that_is_deleted_has_its_programs_ended_and_its_runs_stopped(
    name: str, chats: Sessions
) -> None:
    """Also the one that is about to start another."""
    await start(f"sleep {name}", chats.session("mine"))
    wait = calls("shell", command=f"sleep {name}")
    tool = shell(approval="never", background=True)
    run = Agent(Scripted("a", "b", wait), tools=[tool]).run("go", session=chats.session("mine")).start()
    await until(lambda: len(alive(name)) == 2)
    assert await chats.delete("mine")
    assert alive(name) == []
    assert (await run.finished()).is_cancelled


async def test_ending_a_session_that_is_cancelled_goes_on(name: str, chats: Sessions, tmp_path: Path) -> None:
    mine = chats.session("mine")
    await start(f"trap '' TERM; touch {tmp_path}/there; while :; do sleep {name}; done", mine)
    await until((tmp_path / "there").exists)
    ending = asyncio.create_task(chats.end("mine"))
    await asyncio.sleep(0.02)
    ending.cancel()
    with pytest.raises(asyncio.CancelledError):
        await ending
    await asyncio.to_thread(wait_until_gone, name)


def test_they_end_with_their_loop_all_at_once(name: str, chats: Sessions, tmp_path: Path) -> None:
    """Each may trap TERM for a while: the loop's end waits for the slowest, not for their sum."""

    async def main() -> float:
        tool = shell(approval="never", background=True, term_grace=0.4)
        line = f"trap '' TERM; touch {tmp_path}/$$; while :; do sleep {name}; done"
        agent = Agent(Scripted(calls("shell", command=line, background=True), "done"), tools=[tool])
        for number in range(5):
            await agent.run("go", session=chats.session(f"s-{number}")).finished()
        await until(lambda: len(os.listdir(tmp_path)) == 5 and len(alive(name)) == 10)  # a shell and a sleep each
        return asyncio.get_running_loop().time()

    loop = asyncio.new_event_loop()
    with asyncio.Runner(loop_factory=lambda: loop) as runner:
        began = runner.run(main())
        clock = loop.time
    assert alive(name) == []
    assert_within(1.6, clock() - began)


class _Elsewhere:
    """Another event loop, in a thread."""

    def __init__(self) -> None:
        self.loop = asyncio.new_event_loop()
        self.thread = threading.Thread(target=self.loop.run_forever)
        self.thread.start()

    def call(self, coroutine: Any) -> Any:
        return asyncio.run_coroutine_threadsafe(coroutine, self.loop).result(10)

    def pause(self) -> None:
        self.loop.call_soon_threadsafe(self.loop.stop)
        self.thread.join()

    def close(self) -> None:
        self.loop.run_until_complete(self.loop.shutdown_asyncgens())
        self.loop.close()


@pytest.mark.parametrize("is_running", [True, False], ids=["that runs", "that stands still"])
async def test_a_session_ends_what_it_has_on_another_loop(name: str, chats: Sessions, *, is_running: bool) -> None:
    mine, there = chats.session("mine"), _Elsewhere()
    with ThreadPoolExecutor(1) as thread:
        await asyncio.get_running_loop().run_in_executor(thread, there.call, start(f"sleep {name}", mine))
        await start(f"sleep {name}", mine)
        await until(lambda: len(alive(name)) == 2)
        if not is_running:
            there.pause()
        await chats.end("mine")
        await asyncio.to_thread(wait_until_gone, name)
        if is_running:
            there.pause()
        await asyncio.get_running_loop().run_in_executor(thread, there.close)


async def test_what_another_loop_does_not_end_in_time_is_let_go_of(
    chats: Sessions, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever ends or deletes a session does not wait for ever."""
    monkeypatch.setattr(held, "PATIENCE", 0.01)
    is_over, was_lost = asyncio.Event(), threading.Event()

    class Hanging:
        async def close(self) -> None:
            await is_over.wait()

        def lose(self) -> None:
            was_lost.set()

    async def hold() -> None:
        held.held(mine.key, Hanging)

    mine, there = chats.session("mine"), _Elsewhere()
    await asyncio.to_thread(there.call, hold())
    try:
        await chats.end("mine")
    finally:
        there.loop.call_soon_threadsafe(is_over.set)
        there.pause()
        await asyncio.to_thread(there.close)
    assert was_lost.is_set()


async def test_one_thing_that_does_not_end_well_keeps_nothing_else_from_ending(
    name: str, chats: Sessions, caplog: pytest.LogCaptureFixture
) -> None:
    class Broken:
        async def close(self) -> None:
            raise OSError("it is stuck")

        def lose(self) -> None:
            raise AssertionError("its loop runs")

    mine = chats.session("mine")
    held.held(mine.key, Broken)
    await start(f"sleep {name}", mine)
    await chats.end("mine")
    assert alive(name) == []
    (record,) = (record for record in caplog.records if record.levelname == "ERROR")  # ours, and none of asyncio's
    assert (record.name, str(record.exc_info[1])) == ("halter", "it is stuck")


# --- the process that has them ------------------------------------------------------------------------------

COMMON = """
import asyncio, os, sys
from halter import Agent, events
from halter.children import supervised
from halter.models.scripted import Scripted, calls
from halter.sessions import Sessions
from halter.tools.process import shell

chats, name = Sessions(sys.argv[1]), os.environ["NAME"]
tools = [shell(approval="never", background=True)]
line = f"trap '' TERM; setsid sleep {name} & while :; do sleep {name}; done"

supervised.is_possible = False  # else a supervisor ends what is left at once

async def say(text, session):
    await Agent(f"scripted:{text}").run("go", session=chats.session(session))

async def hang():
    print("ready", flush=True)
    await asyncio.sleep(300)
"""
LEAVES_A_PROGRAM = """
async def main():
    await Agent(Scripted(calls("shell", command=line, background=True), "done"), tools=tools).run(
        "go", session=chats.session("mine"))
    await hang()

asyncio.run(main())
"""
IN_THE_MIDDLE_OF_A_CALL = """
async def main():
    model = Scripted(calls("shell", command=line, background=True), calls("shell", command=f"echo on; sleep {name}"))
    async for event in Agent(model, tools=tools).run("go", session=chats.session("mine")).events():
        if isinstance(event, events.ToolProgress):
            print("ready", flush=True)

asyncio.run(main())
"""
COMES_NEXT = """
async def main():
    await say("I have no tools.", "another")
    await hang()

asyncio.run(main())
"""
IS_THERE_ALREADY = """
async def main():
    await say("I have no tools.", "another")
    print("ready", flush=True)
    await asyncio.to_thread(sys.stdin.readline)
    await say("I go on.", "mine")
    await hang()

asyncio.run(main())
"""


@pytest.fixture
def process(name: str, tmp_path: Path) -> Iterator[Callable[[str], subprocess.Popen[str]]]:
    """Starts a program of a few lines on one database for all; returns when it says that it is ready."""
    started: list[subprocess.Popen[str]] = []

    def start(text: str) -> subprocess.Popen[str]:
        process = subprocess.Popen(
            [sys.executable, "-W", "error", "-c", COMMON + text, str(tmp_path / "chat.db")],
            env={**os.environ, "PYTHONPATH": str(SOURCE), "NAME": name},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        started.append(process)
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        return process

    yield start
    for process in started:
        process.kill()
        process.communicate()


@pytest.mark.scenario(29)
def test_what_a_killed_process_has_left_is_ended_where_sessions_are_used_next(
    name: str, process: Callable[[str], subprocess.Popen[str]]
) -> None:
    """By a process that has no tools, and goes on with another session."""
    owner = process(LEAVES_A_PROGRAM)
    wait_for(name, 3)
    owner.kill()
    owner.wait()
    wait_for(name, 3)
    process(COMES_NEXT)
    wait_until_gone(name)


@pytest.mark.scenario(29)
def test_whoever_finds_a_turn_that_was_lost_with_its_process_ends_what_that_has_left(
    name: str, process: Callable[[str], subprocess.Popen[str]]
) -> None:
    """Also one that had looked before the other was killed."""
    follower, owner = process(IS_THERE_ALREADY), process(IN_THE_MIDDLE_OF_A_CALL)
    owner.kill()
    owner.wait()
    wait_for(name, 4)
    assert follower.stdin is not None
    follower.stdin.write("go on\n")
    follower.stdin.flush()
    wait_until_gone(name)
