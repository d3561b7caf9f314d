"""Programs that shed every mark: their environment, their session, their parent, and the right to be looked at."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from halter.children import proc, supervised
from halter.outcome import Ended
from halter.tools.process import shell

from ..bounds import assert_in_time
from .processes import alive, begin, call, called, new_name, patient_shell, wait_until_gone

SOURCE = Path(__file__).parents[2] / "src"
pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="supervisors need Linux")

# Without an environment, in a session of its own, without a parent, and not to be looked at (PR_SET_DUMPABLE).
HIDDEN = """
import ctypes, os, sys, time
if sys.argv[2] == "first":
    if os.fork() == 0:
        os.setsid()
        if os.fork() == 0:
            os.execve(sys.executable, [sys.executable, __file__, sys.argv[1], "then"], {})
    os._exit(0)
ctypes.CDLL(None).prctl(4, 0, 0, 0, 0)
open(sys.argv[1] + ".there", "w").close()
time.sleep(300)
"""
NGINX = "daemon on; pid {place}/nginx.pid; error_log {place}/error.log; events {{}}"
DAEMONS = {
    "nginx": "nginx -e {place}/error.log -p {place} -c {place}/nginx.conf",
    "redis-server": "cd {place} && redis-server --port 0 --save '' --pidfile {place}/redis.pid --daemonize yes",
    "ssh-agent": "ssh-agent -a {place}/ssh.socket",
    "gpg-agent": "gpg-agent --homedir {place}/gnupg --daemon",
    "hidden": "{python} {place}/hidden.py {place}/hidden first; "
    "while [ ! -e {place}/hidden.there ]; do sleep 0.01; done",
}
PROGRAM = """
import asyncio, json, sys
from halter import Agent, events
from halter.models.scripted import Scripted, calls
from halter.tools.process import shell

async def stopped(command):
    agent = Agent(Scripted(calls("shell", command=command), "done"), tools=[shell(approval="never", term_grace=0.3)])
    run = agent.run("go").start()
    async for event in run.events():
        if isinstance(event, events.ToolProgress) and "ready" in event.text:
            run.cancel()
    receipt = (await run.finished()).receipt
    return receipt.confirmed, [line.ended for line in receipt.resources if line.kind == "process"]

async def main():
    for command in json.loads(sys.argv[1]):
        print(json.dumps(await stopped(command)), flush=True)

asyncio.run(main())
"""
# A user that may not look into other processes; the right to read files is for a Python that lies in root's home.
AS_NOBODY = ("setpriv", "--reuid=65534", "--regid=65534", "--clear-groups")
READS = ("--inh-caps=+dac_read_search", "--ambient-caps=+dac_read_search")


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Path]:
    """A directory for daemons, which is in their arguments; whatever works in it at the end is ended, and fails."""
    place = tmp_path / new_name()
    place.mkdir()
    (place / "nginx.conf").write_text(NGINX.format(place=place))
    (place / "hidden.py").write_text(HIDDEN)
    (place / "gnupg").mkdir(mode=0o700)
    yield place
    left = _at_work_in(place)
    for pid in left:
        os.kill(pid, signal.SIGKILL)
    assert not left, "processes were left behind"


def _at_work_in(place: Path) -> list[int]:
    """Those that have an argument, a working directory or a pid file there."""
    found = set(alive(str(place)))
    for file in place.glob("*.pid"):
        found |= {int(pid) for pid in file.read_text().split() if proc.read(int(pid)) is not None}
    for pid in map(int, filter(str.isdecimal, os.listdir("/proc"))):
        try:
            if str(place) in os.readlink(f"/proc/{pid}/cwd"):
                found.add(pid)
        except OSError:
            pass
    return sorted(found)


@pytest.fixture
def name() -> Iterator[str]:
    name = new_name()
    yield name
    left = alive(name)
    for pid in left:
        os.kill(pid, signal.SIGKILL)
    assert not left, "processes were left behind"


@pytest.mark.scenario("K99")
@pytest.mark.parametrize("user", ["this-user", "ordinary-user"])
def test_daemons_that_nothing_marks_are_ended_before_the_receipt_says_so(
    user: str, place: Path, require: Callable[[str, bool], None]
) -> None:
    """Two of them overwrite their environment, two may not be looked at, one has got rid of everything."""
    for daemon in DAEMONS:
        require(daemon, daemon == "hidden" or shutil.which(daemon, path=os.defpath + ":/usr/sbin:/sbin") is not None)
    before: tuple[str, ...] = ()
    if user == "ordinary-user":
        if os.geteuid() != 0:
            pytest.skip("this user is one")
        before = (*AS_NOBODY, *READS, "--")
        _give_to_nobody(place)
    commands = [
        line.format(place=place, python=sys.executable) + "; sleep 0.2; echo ready; sleep 300"
        for line in DAEMONS.values()
    ]
    done = subprocess.run(
        [*before, sys.executable, "-c", PROGRAM, json.dumps(commands)],
        env={**os.environ, "PYTHONPATH": str(SOURCE), "PATH": f"{os.environ['PATH']}:/usr/sbin:/sbin"},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    outcomes = dict(zip(DAEMONS, map(json.loads, done.stdout.splitlines()), strict=True))
    assert all(confirmed for confirmed, _ in outcomes.values()), outcomes
    assert all(ended in (["terminated"], ["killed"]) for _, ended in outcomes.values()), outcomes
    assert _at_work_in(place) == []


def _give_to_nobody(place: Path) -> None:
    for path in (place, *place.rglob("*")):
        os.chown(path, 65534, 65534)
    for parent in place.parents:
        if parent.stat().st_uid == os.geteuid() and parent.is_relative_to("/tmp") and parent != Path("/tmp"):
            parent.chmod(0o755)


# --- the supervisor is attacked -----------------------------------------------------------------------------


@pytest.mark.real_loop
@pytest.mark.scenario("K99")
async def test_a_program_that_kills_its_supervisor_is_ended_by_the_one_above(name: str) -> None:
    run = await begin(shell(approval="never"), command=f"env -i setsid sleep {name} & echo ready; sleep {name}")
    supervisor = _parent_of(name)
    os.kill(supervisor, signal.SIGKILL)
    wait_until_gone(name)
    run.cancel()
    after = await called(run)
    assert_in_time(after.result.is_completed or after.result.receipt.confirmed, "the end of its tree")


@pytest.mark.real_loop
@pytest.mark.scenario("K99")
async def test_a_program_that_kills_all_above_it_leaves_a_receipt_that_does_not_know(name: str) -> None:
    """What carries the mark is ended all the same."""
    line = f"setsid sleep {name} & echo ready; sleep {name}"
    run = await begin(shell(approval="never", term_grace=0.1), command=f"trap '' HUP; {line}")
    supervisor = _parent_of(name)
    found = proc.read(supervisor)
    assert found is not None
    run.cancel()
    os.kill(found.parent, signal.SIGSTOP)
    os.kill(supervisor, signal.SIGKILL)
    os.kill(found.parent, signal.SIGKILL)
    after = await called(run)
    wait_until_gone(name)
    assert after.line.ended is Ended.UNKNOWN
    assert after.line.ended_after_ms is None
    assert not after.result.receipt.confirmed
    assert "unknown: a part of it may still run" in str(after.result.receipt)
    assert (await call(shell(approval="never"), command="echo on")).text == "on\n", "the next one has new ones"


@pytest.mark.real_loop
@pytest.mark.scenario("K99")
async def test_a_halted_supervisor_goes_on_when_it_is_needed(name: str) -> None:
    run = await begin(shell(approval="never", term_grace=0.1), command=f"echo ready; exec sleep {name}")
    os.kill(_parent_of(name), signal.SIGSTOP)
    run.cancel()
    after = await called(run)
    assert after.result.receipt.confirmed
    assert alive(name) == []


@pytest.mark.real_loop
@pytest.mark.scenario("K99")
async def test_a_program_that_halts_the_helper_and_kills_its_supervisor_is_ended(name: str) -> None:
    """The helper goes on when it is needed; nobody else has what hides."""
    run = await begin(
        shell(approval="never", term_grace=0.1), command=f"(env -i setsid sleep {name} &) ; echo ready; sleep {name}"
    )
    supervisor = proc.read(_parent_of(name))
    assert supervisor is not None
    os.kill(supervisor.parent, signal.SIGSTOP)
    os.kill(supervisor.pid, signal.SIGKILL)
    run.cancel()
    after = await called(run)
    assert alive(name) == []
    assert after.result.receipt.confirmed


@pytest.mark.real_loop
@pytest.mark.scenario("K99")
async def test_without_supervisors_no_receipt_with_processes_is_confirmed(
    monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.setattr(supervised, "is_possible", False)
    run = await begin(shell(approval="never"), command=f"echo ready; sleep {name}")
    run.cancel()
    after = await called(run)
    assert alive(name) == []
    assert (after.line.ended, after.result.receipt.confirmed) == (Ended.UNKNOWN, False)


@pytest.mark.real_loop
async def test_a_helper_that_cannot_run_is_told_in_the_log_and_in_the_receipt(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, name: str
) -> None:
    """Programs run all the same; it is tried once if it has never worked."""
    monkeypatch.setattr(supervised, "_helper", None)
    monkeypatch.setattr(supervised, "_has_worked", False)
    monkeypatch.setattr(supervised, "is_possible", True)
    monkeypatch.setattr(sys, "executable", shutil.which("false"))
    tool = shell(approval="never")
    run = await begin(tool, command=f"echo ready; sleep {name}")
    run.cancel()
    assert (await called(run)).line.ended is Ended.UNKNOWN
    assert (await call(tool, command="echo on")).text == "on\n"
    ours = [record.message.split(" (")[0] for record in caplog.records if record.name == "halter"]
    assert ours == ["programs run without a supervisor"]
    assert supervised.is_possible is False


@pytest.mark.real_loop
async def test_a_helper_that_was_killed_is_replaced(name: str) -> None:
    tool = patient_shell()
    run = await begin(tool, command=f"echo ready; exec sleep {name}")
    helper = proc.read(_parent_of(name))
    assert helper is not None
    os.kill(helper.parent, signal.SIGKILL)
    assert (await call(tool, command="echo on")).text == "on\n"
    run.cancel()
    after = await called(run)
    assert (after.line.ended, after.result.receipt.confirmed) == (Ended.TERMINATED, True), "its supervisor lived on"


def _parent_of(name: str) -> int:
    """The supervisor: who has the shell, whose child the program is. It is awaited: one that is loaded has no name."""
    until = time.monotonic() + 10
    while time.monotonic() < until:
        parents = {found.parent for pid in alive(name) if (found := proc.read(pid)) is not None}
        supervisors = parents & set(alive("supervisor.py"))
        if supervisors:
            (supervisor,) = supervisors
            return supervisor
        time.sleep(0.005)
    raise AssertionError(f"nobody above {name} is a supervisor")


# --- what programs inherit ----------------------------------------------------------------------------------


@pytest.mark.real_loop
async def test_a_program_inherits_nothing_of_its_supervisor(tmp_path: Path) -> None:
    """It blocks and ignores what a child of this process does, and it has three descriptors."""
    look = "grep -E '^Sig(Blk|Ign|Cgt)' /proc/self/status; ls /proc/self/fd | wc -l; umask; pwd"
    before = os.umask(0o027)
    try:
        text = (await call(shell(approval="never", cwd=tmp_path), command=look)).text
    finally:
        os.umask(before)
    *masks, descriptors, umask, where = text.splitlines()
    plain = subprocess.run(look, shell=True, check=True, capture_output=True, text=True).stdout
    assert masks[:2] == plain.splitlines()[:2]
    assert (descriptors, umask, where) == ("4", "0027", str(tmp_path))  # the fourth is the directory that ls reads


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become somebody else")
def test_a_process_that_gives_up_its_rights_starts_no_program_with_them() -> None:
    done = subprocess.run(
        [sys.executable, "-c", BECOMES_NOBODY],
        env={**os.environ, "PYTHONPATH": str(SOURCE)},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (done.returncode, done.stdout.split()) == (0, ["0", "65534"]), done.stderr


BECOMES_NOBODY = """
import asyncio, os
from halter import Agent, events
from halter.models.scripted import Scripted, calls
from halter.tools.process import shell

async def main():
    model = Scripted(calls("shell", command="id -u"), "done", calls("shell", command="id -u"), "done")
    agent = Agent(model, tools=[shell(approval="never", cwd="/")])
    for uid in (0, 65534):
        os.setuid(uid)
        run = agent.run("go")
        print(*[event.result async for event in run.start().events() if isinstance(event, events.ToolFinished)])

asyncio.run(main())
"""
