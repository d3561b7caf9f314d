"""Limits of a sandbox: which one ended a program is said; and the one sandbox that all kinds of programs take."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from halter import Agent
from halter.children import supervised
from halter.errors import ConfigurationError, SandboxUnavailable
from halter.models.scripted import Scripted, calls
from halter.tools.function import tool
from halter.tools.jobs import Jobs
from halter.tools.mcp import mcp_tools
from halter.tools.process import shell
from halter.tools.sandbox import Sandbox
from halter.tools.surroundings import Surroundings

from .processes import alive, call, new_name

SERVER = Path(__file__).with_name("mcp_server.py")


@pytest.fixture
def name() -> Iterator[str]:
    name = new_name()
    yield name
    left = alive(name)
    for pid in left:
        os.kill(pid, signal.SIGKILL)
    assert not left, "processes were left behind"


EXCEEDING = {
    "memory": (
        {"memory": 100_000_000},
        "{{ head -c 200000000 /dev/zero; sleep {n}; }} | tail",
        "ended: it used more than 100 MB of memory, which is its limit",
    ),
    "processes": (
        {"processes": 10},
        "for i in $(seq 30); do sleep {n} & done 2>/dev/null; wait",
        "ended: it ran more than 10 processes and threads at once, which is its limit",
    ),
    "cpu": (
        {"cpu_seconds": 0.3},
        "(while :; do :; done) & sleep {n}",
        "ended: it used more than 0.3 s of CPU time, which is its limit",
    ),
    "time": ({"seconds": 0.2}, "setsid sleep {n}", "ended: it ran for more than 0.2 s, which is its limit"),
}


@pytest.mark.real_loop
@pytest.mark.parametrize("limit", EXCEEDING)
async def test_a_program_that_exceeds_a_limit_is_ended_and_the_result_says_which(
    limit: str, sandboxed: Path, name: str
) -> None:
    options, line, said = EXCEEDING[limit]
    after = await call(
        shell(approval="never", cwd=sandboxed, sandbox=Sandbox(**options)), command=f"echo begun; {line.format(n=name)}"
    )
    assert alive(name) == []
    assert after.text.removeprefix("begun\n") == f"({said})"


@pytest.mark.real_loop
async def test_a_program_within_all_its_limits_is_left_alone(sandboxed: Path) -> None:
    """Also files in its empty directories have a size then, and so has what a process may map."""
    box = Sandbox(memory=400_000_000, processes=20, cpu_seconds=60, seconds=60)
    line = "for i in 1 2 3 4 5; do sleep 0.1 & done; wait; ulimit -d; df -k --output=size /tmp /dev/shm | tail -2"
    after = await call(shell(approval="never", cwd=sandboxed, sandbox=box), command=line)
    data, *sizes = map(int, after.text.split())
    assert data * 1024 > 400_000_000
    assert 0 < sum(sizes) * 1024 < 400_000_000


@pytest.mark.real_loop
async def test_limits_that_nobody_can_hold_are_refused_before_anything_runs(
    sandboxed: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(supervised, "is_possible", False)
    tool = shell(approval="never", cwd=sandboxed, sandbox=Sandbox(seconds=60))
    after = await call(tool, command="touch there")
    assert after.finished.outcome == "error"
    assert "the sandbox cannot hold its limits here" in after.text
    assert not (sandboxed / "there").exists()


def test_a_kernel_that_counts_the_processes_of_a_whole_user_is_refused(
    bwrap: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = os.uname()
    for release in ("5.10.0-30-amd64", "4.19.0", "odd"):
        given = os.uname_result((real.sysname, real.nodename, release, real.version, real.machine))
        monkeypatch.setattr(os, "uname", lambda given=given: given)
        with pytest.raises(SandboxUnavailable, match=r"it needs Linux 5\.14"):
            Sandbox(program=bwrap, processes=5)


@pytest.mark.parametrize("wrong", [{"memory": 1000}, {"processes": 0}, {"cpu_seconds": 0}, {"seconds": -1}])
def test_limits_that_are_none_are_refused_where_the_sandbox_is_made(wrong: dict[str, Any], bwrap: str) -> None:
    with pytest.raises(ConfigurationError, match=next(iter(wrong))):
        Sandbox(program=bwrap, **wrong)


# --- one sandbox for all ------------------------------------------------------------------------------------


@pytest.mark.real_loop
async def test_a_job_says_which_limit_has_ended_it(sandboxed: Path, name: str) -> None:
    where = Surroundings.of(sandboxed, None, Sandbox(seconds=0.2))
    async with Jobs() as jobs:
        job = await jobs.start(["sleep", name], "sleep", where, max_output=100, term_grace=1.0)
        await job.child.gone
        assert job.state == "ended: it ran for more than 0.2 s, which is its limit"


@pytest.fixture
def functions(monkeypatch: pytest.MonkeyPatch, sandboxed: Path) -> Iterator[ModuleType]:
    """The module of the functions, and the sandbox's directory as that of this process."""
    monkeypatch.syspath_prepend(str(Path(__file__).parent))
    monkeypatch.chdir(sandboxed)
    monkeypatch.setenv("HALTER_TEST_SECRET", "secret")
    import isolated_functions

    yield isolated_functions
    del sys.modules["isolated_functions"]


@pytest.mark.real_loop
async def test_an_isolated_function_runs_in_a_sandbox(functions: ModuleType, sandboxed: Path, name: str) -> None:
    """It writes this directory alone, has no secret of this environment, and is held to the limits."""
    box = Sandbox(seconds=20)
    look = tool(functions.look_around.fn, isolation="process", sandbox=box)
    assert (await call(look)).text == '["Read-only file system","no secret","written"]'
    assert (sandboxed / "here").exists()
    slow = tool(functions.sleep.fn, isolation="process", sandbox=Sandbox(seconds=0.5))
    after = await call(slow, seconds=300, name=name)
    assert after.text == (
        "ProcessDied: the process of sleep died: ended: it ran for more than 0.5 s, which is its limit"
    )


def test_a_sandbox_for_a_function_in_a_thread_is_refused(bwrap: str) -> None:
    with pytest.raises(ConfigurationError, match='add isolation="process"'):
        tool(lambda: None, name="nothing", sandbox=Sandbox(program=bwrap))


@pytest.mark.real_loop
@pytest.mark.filterwarnings("ignore::ResourceWarning")
async def test_an_mcp_server_runs_in_a_sandbox(sandboxed: Path) -> None:
    box = Sandbox(readable=(sys.prefix, sys.base_prefix, str(SERVER)), seconds=60)
    command = [sys.executable, str(SERVER), str(sandboxed / "log")]
    async with mcp_tools(command, cwd=str(sandboxed), sandbox=box) as tools:
        result = await Agent(Scripted(calls("greet"), "done"), tools=tools).run("go")
    assert [part.content for message in result.messages if message.role == "tool" for part in message.parts] == [
        "Hello, you"
    ]
    with pytest.raises(SandboxUnavailable, match="no 'no-such-bwrap'"):
        async with mcp_tools(command, sandbox=Sandbox(program="no-such-bwrap")):
            await asyncio.sleep(0)
    with pytest.raises(ConfigurationError, match="is a command"):
        async with mcp_tools("http://localhost:1/", sandbox=box):
            await asyncio.sleep(0)


@pytest.mark.real_loop
@pytest.mark.filterwarnings("ignore::ResourceWarning")
async def test_the_log_says_which_limit_has_ended_an_mcp_server(
    sandboxed: Path, name: str, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING, "halter"), suppress(Exception):
        async with mcp_tools(["sleep", name], cwd=str(sandboxed), sandbox=Sandbox(seconds=0.2)):
            await asyncio.sleep(0)
    assert any("ended: it ran for more than 0.2 s" in record.getMessage() for record in caplog.records)
