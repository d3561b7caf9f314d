"""The sandbox: what a program in it reaches, what it does not, and that it ends as any other."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from halter.errors import ConfigurationError
from halter.outcome import Ended
from halter.tools.process import program, shell
from halter.tools.sandbox import Bubblewrap, sandbox_of

from .processes import alive, begin, call, called, new_name


def may_make_namespaces() -> bool:
    """A container may forbid it: that is no missing service, and nothing can be installed for it."""
    argv = ["bwrap", "--ro-bind", "/", "/", "--unshare-all", "true"]
    return subprocess.run(argv, capture_output=True, check=False).returncode == 0


@pytest.fixture
def sandboxed(require: Callable[[str, bool], None], tmp_path: Path) -> Path:
    """A working directory for a sandbox that works."""
    require("bwrap", shutil.which("bwrap") is not None)
    if not may_make_namespaces():
        pytest.skip("nobody may make namespaces here")
    place = tmp_path / "work"
    place.mkdir()
    return place


@pytest.fixture
def bwrap(tmp_path: Path) -> str:
    """A stand-in, to look at arguments where there is no bwrap."""
    stand_in = tmp_path / "bwrap"
    stand_in.write_text("#!/bin/sh\n")
    stand_in.chmod(0o755)
    return str(stand_in)


# --- really -------------------------------------------------------------------------------------------------


@pytest.mark.real_loop
async def test_it_writes_its_directory_and_nothing_else(sandboxed: Path) -> None:
    tool = shell(approval="never", sandbox="bwrap", cwd=sandboxed)
    line = "pwd; echo x > here; cat here; touch /etc/halter-test 2>/dev/null || echo refused; touch /tmp/halter-test"
    after = await call(tool, command=line)
    assert after.text.splitlines()[:3] == [str(sandboxed), "x", "refused"]
    assert (sandboxed / "here").read_text() == "x\n"
    assert not {"halter-test"} & {*os.listdir("/etc"), *os.listdir("/tmp")}


@pytest.mark.real_loop
async def test_it_sees_neither_the_home_nor_sockets_nor_other_processes(sandboxed: Path) -> None:
    tool = shell(approval="never", sandbox="bwrap", cwd=sandboxed)
    after = await call(
        tool, command="ls -A ~ /run | grep -v ':$'; ps -e 2>/dev/null | wc -l; ls /proc | grep -c '^[0-9]'"
    )
    assert int(after.text.split()[-1]) < 8
    assert len(after.text.split()) == 2, "nothing in the home, and nothing in /run"


@pytest.mark.real_loop
@pytest.mark.parametrize("network", [False, True], ids=["without", "with"])
async def test_it_has_no_network_unless_it_is_given_one(network: bool, sandboxed: Path) -> None:
    tool = shell(approval="never", sandbox=Bubblewrap(network=network), cwd=sandboxed, shell="bash")
    with socket.create_server(("127.0.0.1", 0)) as server:
        place = f"/dev/tcp/127.0.0.1/{server.getsockname()[1]}"
        after = await call(tool, command=f"(: > {place}) 2>/dev/null && echo open || echo closed")
    assert after.text == ("open\n" if network else "closed\n")


@pytest.mark.real_loop
@pytest.mark.scenario(29)
@pytest.mark.parametrize("hiding", ["setsid", "env -i setsid"])
async def test_a_stop_ends_what_is_inside(hiding: str, sandboxed: Path) -> None:
    """Also what has cleared its environment, left the session and lost its parent: its world ends."""
    name = new_name()
    tool = shell(approval="never", sandbox="bwrap", cwd=sandboxed)
    run = await begin(tool, command=f"({hiding} sleep {name} &) ; echo ready; sleep {name}")
    run.cancel()
    after = await called(run)
    assert alive(name) == []
    assert after.line.ended is Ended.TERMINATED
    assert (await call(tool, command=f"({hiding} sleep {name} &) ; echo over")).text == "over\n"
    assert alive(name) == []


@pytest.mark.real_loop
async def test_a_program_may_be_in_it_too(sandboxed: Path) -> None:
    after = await call(program("touch", approval="never", sandbox="bwrap", cwd=sandboxed), arguments=["mine", "/etc/x"])
    assert "Read-only file system" in after.text
    assert (sandboxed / "mine").exists()


# --- as arguments -------------------------------------------------------------------------------------------


def test_the_options_come_in_an_order_in_which_the_later_shows_through_the_earlier(bwrap: str, tmp_path: Path) -> None:
    """The root first, then what hides parts of it, then what is shown and may be written; the directory last."""
    for folder in ("secret", "shown", "written", "work"):
        (tmp_path / folder).mkdir()
    box = Bubblewrap(
        program=bwrap,
        hidden=(f"{tmp_path}/secret",),
        readable=(f"{tmp_path}/shown",),
        writable=(f"{tmp_path}/written",),
    )
    argv = box.argv(["echo", "a"], f"{tmp_path}/work")
    joined = " ".join(argv)
    parts = (
        f"{bwrap} --unshare-all --die-with-parent --cap-drop ALL --ro-bind / /",
        "--tmpfs /tmp",
        f"--tmpfs {tmp_path}/secret",
        f"--ro-bind {tmp_path}/shown {tmp_path}/shown",
        f"--bind {tmp_path}/written {tmp_path}/written",
        f"--bind {tmp_path}/work {tmp_path}/work --chdir {tmp_path}/work",
    )
    places = [joined.index(part) for part in parts]
    assert places == sorted(places)
    assert argv[-3:] == ["--", "echo", "a"]
    assert "--share-net" not in argv
    assert "--share-net" in Bubblewrap(program=bwrap, network=True).argv([], str(tmp_path))


def test_a_directory_that_would_open_too_much_is_refused(
    bwrap: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = tmp_path / "home"
    (home / "work").mkdir(parents=True)
    monkeypatch.setenv("HOME", str(home))
    box = Bubblewrap(program=bwrap)
    for cwd in ("/", tmp_path, home, f"{home}/work/.."):
        with pytest.raises(ConfigurationError, match="could write the whole home"):
            shell(sandbox=box, cwd=str(cwd))
    shell(sandbox=box, cwd=home / "work")


def test_what_is_missing_is_said_where_the_tool_is_made(bwrap: str) -> None:
    with pytest.raises(ConfigurationError, match="needs bubblewrap"):
        Bubblewrap(program="/no/such/bwrap")
    for where in ("writable", "readable", "hidden"):
        with pytest.raises(ConfigurationError, match="no such path"):
            Bubblewrap(program=bwrap, **{where: ("/no/such/path",)})


def test_a_missing_bwrap_fails_the_short_form_too(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(ConfigurationError, match="needs bubblewrap"):
        sandbox_of("bwrap")
