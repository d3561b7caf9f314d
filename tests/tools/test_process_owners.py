"""Who owns a process, and what becomes of it when its owner ends: well, badly, or by a fork."""

from __future__ import annotations

import ctypes
import os
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from halter.children import proc

from ..bounds import assert_within
from .processes import alive, new_name, wait_for, wait_until_gone

SOURCE = Path(__file__).parents[2] / "src"
SERVER = Path(__file__).with_name("mcp_server.py")
BEGIN = """
import asyncio, os, sys, time, ctypes
from halter import Agent
from halter.children import supervised
from halter.models.scripted import Scripted, calls
from halter.tools.process import shell
name = sys.argv[1]
tool = shell(approval="never", background=True, term_grace=30.0)

def agent(command, **more):
    return Agent(Scripted(calls("shell", command=command, **more), "done"), tools=[tool])

def in_the_background(before="trap '' TERM;"):
    return agent(f"{before} setsid sleep {name} & while :; do sleep {name}; done", background=True)

async def main(before="trap '' TERM;"):
    await in_the_background(before).run("go")

def children():
    with open(f"/proc/self/task/{os.getpid()}/children") as mine:
        return mine.read()

def alive():
    return [pid for pid in filter(str.isdecimal, os.listdir("/proc")) if f"sleep {name}" in command(pid)]

def command(pid):
    try:
        with open(f"/proc/{pid}/cmdline") as file:
            return file.read().replace("\\0", " ")
    except OSError:
        return ""

def wait_for_it():
    while not alive():
        time.sleep(0.01)
"""

STAYS = """
loop = asyncio.new_event_loop()
loop.run_until_complete(main(before=""))
print("ready", flush=True)
input()
"""
NEXT = "from halter.children.orphans import end_orphans"
LATER = """
while alive():
    time.sleep(0.01)
"""


@pytest.fixture
def name() -> Iterator[str]:
    name = new_name()
    yield name
    left = alive(name)
    for pid in left:
        os.kill(pid, signal.SIGKILL)
    assert not left, "processes were left behind"


@pytest.fixture
def program(name: str) -> Iterator[Callable[..., subprocess.Popen[str]]]:
    """Starts a program of a few lines that has tools, and is given the name for what it starts."""
    started: list[subprocess.Popen[str]] = []

    def start(text: str, *, flags: tuple[str, ...] = ("-W", "error")) -> subprocess.Popen[str]:
        process = subprocess.Popen(
            [sys.executable, *flags, "-c", BEGIN + textwrap.dedent(text), name],
            env={**os.environ, "PYTHONPATH": str(SOURCE)},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        started.append(process)
        return process

    yield start
    for process in started:
        process.kill()
        process.communicate()


def quietly(process: subprocess.Popen[str]) -> str:
    """What it printed; it must have ended well, and said nothing else."""
    out, err = process.communicate(timeout=30)
    assert (process.returncode, err) == (0, "")
    return out


# --- it ends ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "ending",
    [
        "asyncio.new_event_loop().run_until_complete(main())",
        "in_the_background().run('go').result()",
        "run = agent(f'setsid sleep {name} & sleep {name}').run('go').start(); wait_for_it()",
    ],
    ids=["a-loop-never-closed", "the-background-loop", "in-the-middle-of-a-call"],
)
def test_nothing_outlives_the_process(ending: str, program: Callable[..., subprocess.Popen[str]], name: str) -> None:
    """Also what traps TERM and has been given much time for it: the end of the process does not wait so long."""
    process = program(f"{ending}\nprint(time.monotonic(), flush=True)", flags=("-W", "ignore"))
    out, err = process.communicate(timeout=30)
    assert (process.returncode, err) == (0, "")
    assert_within(4.0, time.monotonic() - float(out))
    assert alive(name) == []


@pytest.mark.scenario(29)
def test_what_a_killed_owner_without_supervisors_has_left_is_ended_where_the_next_one_starts(
    program: Callable[..., subprocess.Popen[str]], name: str
) -> None:
    owner = program("supervised.is_possible = False\n" + STAYS)
    assert owner.stdout.readline() == "ready\n"
    wait_for(name, 3)
    owner.kill()
    owner.wait()
    quietly(program(f"asyncio.run(agent('true').run('go').wait())\n{LATER}"))
    assert alive(name) == []


def test_what_a_living_owner_has_is_left_alone(program: Callable[..., subprocess.Popen[str]], name: str) -> None:
    owner = program(STAYS)
    assert owner.stdout.readline() == "ready\n"
    before = set(wait_for(name, 4))  # the owner, its shell, and two that this one has started
    quietly(program(f"{NEXT}; print(len(end_orphans()))\ntime.sleep(0.2)"))
    assert before == set(wait_for(name, 4))
    owner.terminate()
    owner.wait()
    quietly(program(f"{NEXT}; end_orphans()\n{LATER}"))
    assert alive(name) == []


def test_an_isolated_function_does_not_outlive_its_owner(
    program: Callable[..., subprocess.Popen[str]], tmp_path: Path, name: str
) -> None:
    """Its supervisor ends it, at once."""
    began = tmp_path / "began"
    text = f"""
import os, time
def wait(seconds: float) -> None:
    with open({str(began)!r}, "w") as file:
        file.write(str(os.getpid()))
    time.sleep(seconds)
"""
    (tmp_path / "elsewhere.py").write_text(text)
    owner = program(f"""
        sys.path.insert(0, {str(tmp_path)!r})
        import elsewhere
        from halter.tools.function import tool
        wait = tool(elsewhere.wait, isolation="process")
        run = Agent(Scripted(calls("wait", seconds=300), "done"), tools=[wait]).run("go").start()
        print("ready", flush=True)
        input()
    """)
    assert owner.stdout.readline() == "ready\n"
    while not (began.exists() and began.read_text()):
        time.sleep(0.005)
    child = int(began.read_text())
    killed_at = time.monotonic()
    owner.kill()
    owner.wait()
    while (found := proc.read(child)) is not None and not found.is_over:
        assert time.monotonic() - killed_at < 20, found
        time.sleep(0.005)
    assert_within(2.0, time.monotonic() - killed_at)


# --- it is ended by a signal --------------------------------------------------------------------------------

ALL_KINDS = f"""
from halter.tools.mcp import mcp_tools
hidden = f"trap '' TERM HUP; env -i setsid sleep {{name}} & (exec >&-; setsid sleep {{name}} &) ; sleep {{name}}"

async def all_kinds():
    await agent(hidden, background=True).run("go")
    async with mcp_tools([sys.executable, {str(SERVER)!r}, "/dev/null", name]):
        async for event in agent("echo ready;" + hidden).run("go").start().events():
            if event.type == "tool.progress":
                print("ready", flush=True)
asyncio.run(all_kinds())
"""


@pytest.mark.scenario("K100")
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP, signal.SIGKILL])
def test_nothing_that_a_tool_has_started_outlives_a_killed_host(
    number: signal.Signals, program: Callable[..., subprocess.Popen[str]], name: str
) -> None:
    """Programs in the middle of a call and in the background, and MCP servers, whatever they ignore and hide."""
    owner = program(ALL_KINDS)
    assert owner.stdout.readline() == "ready\n"
    while len(alive(f"sleep\0{name}")) < 6 or len(alive(f"/dev/null\0{name}")) < 1:
        time.sleep(0.005)
    owner.send_signal(number)
    owner.wait()
    assert_within(1.0, wait_until_gone(name))
    wait_until_gone(f"supervisor.py\0{owner.pid}\0")


@pytest.mark.scenario("K100")
@pytest.mark.parametrize("halted", ["$PPID", "$(ps -o ppid= $PPID)"], ids=["supervisor", "helper"])
def test_a_program_that_halts_what_is_above_it_does_not_outlive_a_killed_host(
    halted: str, program: Callable[..., subprocess.Popen[str]], name: str
) -> None:
    owner = program(f"""
    async def calling():
        command = f"kill -STOP {halted}; (env -i setsid sleep {{name}} &) ; echo ready; sleep {{name}}"
        async for event in agent(command).run("go").start().events():
            if event.type == "tool.progress":
                print("ready", flush=True)
    asyncio.run(calling())
    """)
    assert owner.stdout.readline() == "ready\n"
    owner.kill()
    owner.wait()
    assert_within(1.0, wait_until_gone(name))
    wait_until_gone(f"supervisor.py\0{owner.pid}\0")


@pytest.mark.scenario("K100")
def test_a_fork_of_the_host_does_not_keep_its_programs_alive(
    program: Callable[..., subprocess.Popen[str]], name: str
) -> None:
    """It holds copies of all descriptors."""
    owner = program(
        """
        async def hang():
            run = agent(f"echo ready; setsid sleep {name} & sleep {name}").run("go").start()
            async for event in run.events():
                if event.type == "tool.progress":
                    pid = ctypes.CDLL(None).fork()  # Python is not told, so that nothing is closed
                    if pid == 0:
                        os.close(0), os.close(1), os.close(2)
                        time.sleep(300)
                        os._exit(0)
                    print("ready", pid, flush=True)
        asyncio.run(hang())
        """
    )
    ready, fork = owner.stdout.readline().split()
    assert ready == "ready"
    programs = f"sleep\0{name}"
    while len(alive(programs)) < 2:
        time.sleep(0.01)
    owner.kill()
    owner.wait()
    try:
        assert_within(1.0, wait_until_gone(programs))
    finally:
        os.kill(int(fork), signal.SIGKILL)
    wait_until_gone(name)  # the fork


# --- it forks -----------------------------------------------------------------------------------------------


def test_a_forked_child_leaves_the_parents_processes_alone_and_has_its_own(
    program: Callable[..., subprocess.Popen[str]], name: str
) -> None:
    out = quietly(
        program(
            """
            tool = shell(approval="never", background=True, term_grace=0.2)
            async def parent():
                await main()
                while len(alive()) < 3:  # the shell, and two that it has started
                    await asyncio.sleep(0.01)
                before = alive()
                pid = os.fork()
                if pid == 0:
                    os._exit(child())
                while os.waitpid(pid, os.WNOHANG)[0] == 0:
                    await asyncio.sleep(0.01)
                for _ in range(1000):  # one that is just being loaded has no name
                    if alive() == before:
                        break
                    await asyncio.sleep(0.01)
                print(alive() == before)

            def child():
                asyncio._set_running_loop(None)
                run = agent("setsid sleep 300 & echo hello").run("go")
                print(run.result().text, flush=True)
                sys.stdout.flush()
                return 0

            asyncio.run(parent())
            """,
            flags=("-W", "ignore"),
        )
    )
    assert out == "done\nTrue\n"
    wait_until_gone(name)


# --- it is the first process of a container -----------------------------------------------------------------


def test_orphans_that_become_our_children_are_waited_for(program: Callable[..., subprocess.Popen[str]]) -> None:
    """As they do with the first process of a container, or with `PR_SET_CHILD_SUBREAPER`: no zombie is left."""
    out = quietly(
        program(
            """
            ctypes.CDLL(None).prctl(36, 1, 0, 0, 0)
            supervised.is_possible = False
            hidden = f"( ( sleep {name} & sleep {name} ) & ) ; setsid sleep {name} & sleep"
            async def both():
                await agent(f"{hidden} 0.2").run("go")
                run = agent(f"{hidden} {name}").run("go").start()
                await asyncio.sleep(0.3)
                run.cancel()
                await run.finished()
            asyncio.run(both())
            print(children())
            """
        )
    )
    assert out == "\n"


# --- the mark -----------------------------------------------------------------------------------------------


def test_the_mark_is_read_from_the_environment_of_this_user_only() -> None:
    marked = subprocess.Popen(["sleep", "300"], env={"HALTER_CALL": "outer/inner", "HALTER_OWNER": "a.1.2"})
    try:
        found = _read_when_loaded(marked.pid)
        assert (found.calls, found.owner) == (("outer", "inner"), "a.1.2")
        if os.geteuid() == 0:
            assert _as_another_user(lambda: proc.read(marked.pid, with_marks=True).calls == ())
    finally:
        marked.kill()
        marked.wait()


def _read_when_loaded(pid: int) -> proc.Process:
    until = time.monotonic() + 10
    while (found := proc.read(pid, with_marks=True)) is None or found.is_loading:
        assert time.monotonic() < until, found
    return found


def _as_another_user(check: Callable[[], bool]) -> bool:
    before = os.geteuid()
    os.seteuid(65534)
    try:
        return check()
    finally:
        os.seteuid(before)
        ctypes.CDLL(None).prctl(4, 1, 0, 0, 0)  # changing the user takes the right to be looked at
