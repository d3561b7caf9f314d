"""A call of a tool, and everything that it has started: ended, however it has hidden, and nobody else with it."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from halter import CancelMode
from halter.children import proc, supervised
from halter.children.marks import marked, new_mark
from halter.children.tree import Tree
from halter.core.history import MAY_HAVE_RUN
from halter.outcome import Ended
from halter.testing import leak_check
from halter.tools.process import shell

from ..bounds import T, assert_in_time, assert_within
from .processes import agent_calling, alive, begin, call, called, new_name, patient_shell, until, wait_until_gone

GONE = 2.0  # seconds, TERM and KILL together

# Its first thread ends, so that it looks like a zombie, and another one goes on.
HEADLESS = """
import ctypes, os, sys, threading, time
os.setsid()
threading.Thread(target=time.sleep, args=(float(sys.argv[1]),)).start()
print("ready", flush=True)
ctypes.CDLL(None).pthread_exit(None)
"""
# Leaves the session, forks, and the one in the middle ends: its parent is somebody else's then.
ESCAPED = """
import os, sys, time
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        time.sleep(float(sys.argv[1]))
    os._exit(0)
os.wait()
os._exit(0)
"""

HIDING = {
    "background": "sleep {n} & echo ready; sleep {n}",
    "nohup": "nohup sleep {n} >/dev/null 2>&1 & echo ready; wait",
    "setsid": "setsid sleep {n} & echo ready; sleep {n}",
    "subshells": "( ( sleep {n} & sleep {n} ) & ) ; echo ready; sleep {n}",
    "double-fork": "{python} -c '{escaped}' {n}; echo ready; sleep {n}",
    "clean-environment": "env -i sleep {n} & echo ready; sleep {n}",
    "clean-environment-and-session": "setsid env -i sleep {n} & echo ready; sleep {n}",
    "another-name": "(exec -a '[kworker/0:1]' setsid sleep {n}) & echo ready; sleep {n}",
    "no-stdout": "echo ready; exec >&- 2>&-; sleep {n}",
    "halted": "echo ready; sleep {n} & kill -STOP $$; sleep {n}",
    "spinning": "echo ready; while :; do :; done # {n}",
    "flooding": "echo ready; yes {n}",
    "headless": "{python} -c '{headless}' {n} & sleep {n}",
}
LEFT = ("background", "nohup", "setsid", "subshells", "double-fork", "another-name", "headless")


def command(hiding: str, name: str) -> str:
    return HIDING[hiding].format(n=name, python=sys.executable, escaped=ESCAPED, headless=HEADLESS)


@pytest.fixture
def name() -> Iterator[str]:
    """By which the processes of this test are found; whatever it leaves behind is ended, and fails it."""
    name = new_name()
    yield name
    left = alive(name)
    for pid in left:
        os.kill(pid, signal.SIGKILL)
    assert not left, "processes were left behind"


@pytest.fixture
def bystander() -> Iterator[Callable[..., int]]:
    """Starts processes that are nobody's call."""
    started: list[subprocess.Popen[bytes]] = []

    def start(*argv: str, env: dict[str, str] | None = None) -> int:
        started.append(subprocess.Popen(argv, env={**os.environ, **(env or {})}, start_new_session=True))
        return started[-1].pid

    yield start
    for process in started:
        process.kill()
        process.wait()


# --- the whole tree -----------------------------------------------------------------------------------------


@pytest.mark.real_loop
@pytest.mark.scenario(29)
@pytest.mark.parametrize("hiding", HIDING)
async def test_a_stop_ends_the_whole_tree_however_it_hides(hiding: str, name: str) -> None:
    run = await begin(patient_shell(), command=command(hiding, name))
    began = time.monotonic()
    run.cancel()
    after = await called(run)
    assert alive(name) == []
    assert_within(GONE, time.monotonic() - began)
    assert after.result.is_cancelled
    assert after.result.receipt.confirmed
    assert after.line.ended is Ended.TERMINATED
    assert after.shown.startswith("ready")


@pytest.mark.real_loop
@pytest.mark.scenario(29)
@pytest.mark.parametrize("hiding", LEFT)
async def test_a_call_that_ends_by_itself_leaves_nothing_behind(hiding: str, name: str, tmp_path: Path) -> None:
    gate = tmp_path / "gate"
    line = command(hiding, name).removesuffix(f" sleep {name}").removesuffix(" wait")
    run = await begin(patient_shell(), command=f"{line} while [ ! -e {gate} ]; do sleep 0.01; done")
    began = time.monotonic()
    gate.touch()
    after = await called(run)
    assert alive(name) == []
    assert after.finished.outcome == "ok"
    assert after.text == "ready\n(what it had left running was ended)"
    assert_within(GONE, time.monotonic() - began)


@pytest.mark.loops
@pytest.mark.scenario(29)
async def test_it_is_the_same_on_every_loop(name: str) -> None:
    run = await begin(patient_shell(), command=f"setsid sleep {name} & echo ready; sleep {name}")
    run.cancel()
    after = await called(run)
    assert alive(name) == []
    assert (after.line.kind, after.line.ended) == ("process", Ended.TERMINATED)


def test_it_is_the_same_from_blocking_code(name: str) -> None:
    """On the background loop, which runs in a thread: no watcher of children is needed there."""
    agent = agent_calling(shell(approval="never"), command=f"setsid sleep {name} & echo ready")
    assert agent.run("go").result(timeout=10).text == "done"
    assert alive(name) == []


def test_nothing_of_ours_is_left_either() -> None:
    """No task, thread, descriptor or zombie; the sweeper's thread ends when there is nothing more to sweep."""

    async def main() -> None:
        tool = shell(approval="never")
        await asyncio.gather(*(call(tool, command="sleep 300 & echo ready") for _ in range(5)))
        runs = [await begin(tool, command="echo ready; sleep 300") for _ in range(5)]
        for run in runs:
            run.cancel()
            await called(run)

    with leak_check(ignore_threads=("halter-watchdog", "halter-observers"), warmup=lambda: asyncio.run(main())):
        asyncio.run(main())


# --- TERM, the grace, KILL ----------------------------------------------------------------------------------


@pytest.mark.real_loop
@pytest.mark.scenario(29)
async def test_a_tree_that_traps_term_is_killed(name: str) -> None:
    line = f"trap '' TERM; setsid sleep {name} & echo ready; while :; do sleep {name}; done"
    run = await begin(shell(approval="never", term_grace=0.2), command=line)
    run.cancel()
    after = await called(run)
    assert alive(name) == []
    assert after.line.ended is Ended.KILLED
    assert after.line.ended_after_ms >= 200
    assert_within(2.0, after.line.ended_after_ms / 1000)


@pytest.mark.real_loop
async def test_a_process_is_asked_once_and_has_time_to_tidy_up(tmp_path: Path, name: str) -> None:
    """TERM comes once, and what it starts to tidy up is left alone; its last words are still shown."""
    notes = tmp_path / "notes"
    line = f"trap 'sleep 0.2; echo tidied >> {notes}; exit 0' TERM; echo ready; while :; do sleep 0.01; done # {name}"
    run = await begin(patient_shell(), command=line)
    run.cancel()
    after = await called(run)
    assert notes.read_text() == "tidied\n"
    assert after.line.ended is Ended.TERMINATED


@pytest.mark.real_loop
async def test_a_stop_takes_no_more_than_half_of_its_own_grace(name: str) -> None:
    line = f"trap '' TERM; echo ready; while :; do sleep {name}; done"
    run = await begin(shell(approval="never", term_grace=30.0), command=line, grace=1.0)
    run.cancel()
    after = await called(run)
    assert_in_time(after.result.receipt.confirmed, "the end of its tree")
    assert alive(name) == []
    assert after.line.ended is Ended.KILLED


@pytest.mark.real_loop
@pytest.mark.parametrize("first", [CancelMode.KILL, CancelMode.IMMEDIATE], ids=["at-once", "made-stronger"])
async def test_a_kill_does_not_wait_for_anything(first: CancelMode, name: str) -> None:
    """A stop that is made stronger meanwhile as well."""
    line = f"trap '' TERM; setsid sleep {name} & echo ready; while :; do sleep {name}; done"
    run = await begin(shell(approval="never", term_grace=30.0), command=line, grace=60.0)
    run.cancel(mode=first)
    await asyncio.sleep(0)
    run.cancel(mode=CancelMode.KILL)
    after = await called(run)
    assert_within(T, wait_until_gone(name))
    assert_in_time(after.result.receipt.confirmed, "the end of its tree")
    assert after.line.ended is Ended.KILLED


@pytest.mark.real_loop
@pytest.mark.scenario(29)
async def test_what_a_stopped_program_had_said_is_in_the_history(name: str) -> None:
    run = await begin(shell(approval="never"), command=f"echo half of it; echo ready; sleep {name}")
    run.cancel()
    after = await called(run)
    assert after.finished.outcome == "cancelled"
    assert after.text.startswith(MAY_HAVE_RUN)
    assert "half of it\nready" in after.text


@pytest.mark.real_loop
async def test_tools_that_are_drained_may_finish() -> None:
    run = await begin(shell(approval="never"), command="echo ready; sleep 0.2; echo done")
    run.cancel(mode=CancelMode.DRAIN_TOOLS)
    after = await called(run)
    assert (after.finished.outcome, after.text) == ("ok", "ready\ndone\n")


@pytest.mark.real_loop
@pytest.mark.scenario(29)
async def test_one_that_starts_others_while_it_is_killed_loses(name: str) -> None:
    """Swept until nothing new appears: each new one has a session of its own."""
    line = f"trap '' TERM; echo ready; while :; do setsid sleep {name} & sleep 0.002; done"
    run = await begin(shell(approval="never", term_grace=0.1), command=line)
    run.cancel()
    after = await called(run)
    assert alive(name) == []
    assert after.line.ended is Ended.KILLED


@pytest.mark.real_loop
async def test_one_that_hands_itself_on_and_on_is_caught(tmp_path: Path, name: str) -> None:
    """Each lives for a moment, in a session of its own, whose parent has ended."""
    relay = tmp_path / "relay"
    relay.write_text(f"#!/bin/sh\nsleep 0.02\nsetsid {relay} {name} &\n")
    relay.chmod(0o755)
    after = await call(shell(approval="never"), command=f"{relay} {name}; sleep 0.1; echo over")
    assert after.text.startswith("over")
    assert alive(name) == []
    time.sleep(0.1)
    assert alive(name) == []


@pytest.mark.real_loop
async def test_the_holder_of_the_pipe_does_not_hold_up_the_call(name: str) -> None:
    """Who inherited it writes on, and does not read TERM: the call ends all the same."""
    line = f"(trap '' TERM; while :; do echo more; sleep 0.01; done) & sleep 0.1; echo over # {name}"
    after = await call(shell(approval="never", term_grace=0.2), command=line)
    assert alive(name) == []
    assert "over\n" in after.text
    assert_within(1.5, after.finished.elapsed)


def test_a_loop_that_does_not_answer_has_its_processes_killed(name: str) -> None:
    """Its run is ended by the watchdog, and its processes by the sweeper, while the loop still hangs."""

    async def main() -> float:
        run = await begin(shell(approval="never"), command=f"setsid sleep {name} & echo ready; sleep {name}", grace=0.2)
        run.cancel()
        await asyncio.sleep(0)
        began = time.monotonic()
        wait_until_gone(name)
        return time.monotonic() - began

    assert_within(4.0, asyncio.run(main()))


def table_of(*processes: proc.Process) -> proc.Table:
    return proc.Table({process.pid: process for process in processes}, has_gaps=False)


# --- nobody else --------------------------------------------------------------------------------------------


@pytest.mark.real_loop
@pytest.mark.scenario(29)
async def test_no_process_of_anybody_else_is_touched(bystander: Callable[..., int]) -> None:
    """Not one of the same name, not one of another call, not one that was started beside it."""
    name = new_name()
    others = [
        bystander("sleep", name),
        bystander("sleep", name, env=marked({}, new_mark())),
        bystander("sleep", name, env={"HALTER_CALL": "", "HALTER_OWNER": ""}),
    ]
    run = await begin(shell(approval="never"), command=f"setsid sleep {name} & echo ready; sleep {name}")
    run.cancel()
    await called(run)
    await until(lambda: sorted(alive(name)) == sorted(others))


def test_a_recycled_number_is_not_hit(bystander: Callable[..., int]) -> None:
    """A signal is for a number and a start time; and a session is ours while its leader is the one that we started."""
    pid = bystander("sleep", "300")
    found = proc.read(pid)
    before = proc.Process(found.pid, found.parent, found.group, found.session, found.started - 1, False)
    assert proc.send(before, signal.SIGKILL)
    assert not proc.is_alive(before)
    assert Tree(new_mark(), leader=before.key).members(table_of(found)) == []
    assert proc.is_alive(found)
    assert Tree(new_mark(), leader=found.key).members(table_of(found)) == [found]


def test_what_comes_while_the_others_are_looked_at_is_in_the_table(monkeypatch: pytest.MonkeyPatch) -> None:
    def read_and_start(pid: int, *, with_marks: bool = False) -> proc.Process | None:
        if not started:
            started.append(subprocess.Popen(["sleep", "60"]))
        return read(pid, with_marks=with_marks)

    read, started = proc.read, list[subprocess.Popen[bytes]]()
    monkeypatch.setattr(proc, "read", read_and_start)
    table = proc.look()
    [child] = started
    child.kill()
    child.wait()
    assert child.pid in table.processes


def test_a_recycled_parent_proves_nothing() -> None:
    """Its child is ours only if that very parent still lives when it is looked at again."""
    mark = new_mark()
    parent = proc.Process(10, 1, 10, 10, 100, False, (mark,))
    child = proc.Process(11, 10, 11, 11, 101, False)
    table = table_of(parent, child)
    assert Tree(mark).members(table, is_alive=lambda _: True) == [parent, child]
    assert Tree(mark).members(table, is_alive=lambda _: False) == [parent]


def test_the_process_that_sweeps_is_never_part_of_a_tree() -> None:
    me = proc.Process(os.getpid(), 10, 10, 10, 100, False, ("mark",))
    assert Tree("mark").members(table_of(me)) == []


def test_a_call_within_a_call_belongs_to_both(monkeypatch: pytest.MonkeyPatch) -> None:
    """A program of a tool may run Halter itself."""
    monkeypatch.setenv("HALTER_CALL", "outer")
    environment = marked({}, "inner")
    assert environment["HALTER_CALL"] == "outer/inner"
    process = proc.Process(10, 1, 10, 10, 100, False, tuple(environment["HALTER_CALL"].split("/")))
    assert Tree("outer").members(table_of(process)) == Tree("inner").members(table_of(process)) == [process]
    assert Tree("other").members(table_of(process)) == []


# --- poorer systems -----------------------------------------------------------------------------------------


@pytest.mark.loops
async def test_a_kernel_without_pidfds_is_enough(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    def missing(pid: int) -> int:
        raise OSError(38, "Function not implemented")

    monkeypatch.setattr(os, "pidfd_open", missing)
    tool = patient_shell()
    assert (await call(tool, command=f"setsid sleep {name} & echo hello; exit 3")).text.startswith(
        "hello\n(exit code 3"
    )
    run = await begin(tool, command=f"setsid sleep {name} & echo ready; sleep {name}")
    run.cancel()
    assert (await called(run)).line.ended is Ended.TERMINATED


@pytest.mark.real_loop
async def test_without_proc_the_process_group_is_ended(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    monkeypatch.setattr(proc, "HAS_PROC", False)
    tool = shell(approval="never", term_grace=0.2)
    assert (await call(tool, command="echo hello; exit 3")).text == "hello\n(exit code 3)"
    traps = f"trap '' TERM; sleep {name} & echo ready; sleep {name}"
    for line in (f"echo ready; exec sleep {name}", traps):
        run = await begin(tool, command=line)
        run.cancel()
        after = await called(run)
        assert after.line.ended is Ended.UNKNOWN
        assert not after.result.receipt.confirmed
        assert alive(name) == []


@pytest.mark.real_loop
@pytest.mark.parametrize(("is_supervised", "told"), [(True, "exit code 3"), (False, "exit code unknown")])
async def test_a_program_that_has_children_waited_for_by_the_kernel_loses_at_most_exit_codes(
    is_supervised: bool, told: str, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """`signal(SIGCHLD, SIG_IGN)`, as some programs do: without a supervisor, nobody can ask how a child ended."""
    monkeypatch.setattr(supervised, "is_possible", is_supervised)
    before = signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    try:
        after = await call(shell(approval="never"), command=f"setsid sleep {name} & echo hello; exit 3")
        assert after.text.startswith(f"hello\n({told}")
        assert alive(name) == []
    finally:
        signal.signal(signal.SIGCHLD, before)
