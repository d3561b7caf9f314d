"""The sandbox: what a program in it reaches, what it does not, and that it ends as any other."""

from __future__ import annotations

import os
import socket
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from halter.errors import ConfigurationError, SandboxUnavailable
from halter.outcome import Ended
from halter.tools.process import program, shell
from halter.tools.sandbox import Sandbox, sandbox_of
from halter.tools.sandbox_box import Box
from halter.tools.sandbox_exposed import MOST_DIRECTORIES, repositories, unix_sockets
from halter.tools.sandbox_start import NOBODY

from .processes import alive, begin, call, called, new_name, patient_shell

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
    tool = shell(approval="never", sandbox=Sandbox(network=network), cwd=sandboxed, shell="bash")
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
    tool = patient_shell(sandbox="bwrap", cwd=sandboxed)
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


# --- as root, and as an ordinary user -----------------------------------------------------------------------


@dataclass
class Inside:
    """A directory to work in, and programs in a sandbox around it; run by root or by an ordinary user."""

    place: Path
    is_root: bool

    def runs(self, line: str, **options: Any) -> str:
        """What a command line says, and its error output."""
        box = Box(Sandbox(**options), str(self.place))
        who: dict[str, Any] = (
            {} if self.is_root or REALLY != 0 else {"user": NOBODY, "group": NOBODY, "extra_groups": ()}
        )
        done = subprocess.run(
            box.argv(["sh", "-c", line]), capture_output=True, text=True, timeout=30, check=False, env=os.environ, **who
        )
        return done.stdout + done.stderr


REALLY = os.geteuid()


@pytest.fixture(params=["root", "user"])
def inside(request: pytest.FixtureRequest, namespaces: None, monkeypatch: pytest.MonkeyPatch) -> Iterator[Inside]:
    if request.param == "root" and REALLY != 0:
        pytest.skip("these tests are not run by root")
    with tempfile.TemporaryDirectory(dir="/var/tmp") as top:  # a parent that everybody may enter
        place = Path(top) / "work"
        place.mkdir()
        if REALLY == 0 and request.param == "user":
            monkeypatch.setattr(os, "geteuid", lambda: NOBODY)
            os.chown(place, NOBODY, NOBODY)
        os.chmod(top, 0o755)
        yield Inside(place, request.param == "root")


def test_it_is_an_ordinary_user_who_writes_the_directory_as_its_owner(inside: Inside) -> None:
    owner = inside.place.stat().st_uid
    said = inside.runs("id -u; grep CapEff /proc/self/status; echo x > new; mkdir -p a/b; stat -c %U . | tail -1")
    assert said.split()[:3] == [str(NOBODY if REALLY == 0 else REALLY), "CapEff:", "0" * 16]
    assert {(inside.place / name).stat().st_uid for name in ("new", "a/b")} == {owner}


def test_what_only_root_may_read_and_the_kernels_settings_are_out_of_reach(inside: Inside) -> None:
    before = Path("/proc/sys/vm/swappiness").read_text()
    said = inside.runs(
        "cat /etc/shadow; cat /etc/gshadow; for name in /proc/sys/vm/swappiness /proc/sys/kernel/core_pattern; do"
        " (cat $name > $name) 2>/dev/null && echo written; done; echo x > /proc/sysrq-trigger; ls /root; echo over"
    )
    assert "Permission denied" in said
    assert "root:" not in said
    assert "written" not in said
    assert "over" in said
    assert Path("/proc/sys/vm/swappiness").read_text() == before


def test_what_it_is_shown_of_a_closed_home_can_be_read_and_not_written(
    inside: Inside, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Root's home is closed to the ordinary user that the program is."""
    if not inside.is_root:
        pytest.skip("an ordinary user's own home is open to it")
    home = tmp_path / "home"
    (home / "shown").mkdir(parents=True)
    (home / "shown" / "file").write_text("shown\n")
    (home / "shown" / "file").chmod(0o600)
    (home / "secret").write_text("secret\n")
    home.chmod(0o700)
    monkeypatch.setenv("HOME", str(home))
    said = inside.runs("cat ~/shown/file; cat ~/secret; touch ~/shown/new", readable=("~/shown",))
    assert said.startswith("shown\n")
    assert "secret\n" not in said
    assert "Read-only file system" in said


def test_unix_sockets_of_this_machine_are_covered_unless_they_are_named(inside: Inside) -> None:
    """With a path, wherever it is shown; without one, there is no network to find it in."""
    shown = inside.place.parent / "shown"
    shown.mkdir()
    names = [f"{shown}/a b.sock", f"{inside.place}/own.sock"]
    with ExitStack() as stack:
        for name in (*names, f"\0halter-{os.getpid()}"):
            listening = stack.enter_context(socket.socket(socket.AF_UNIX))
            listening.bind(name)
            listening.listen()
        for name in names:
            os.chmod(name, 0o777)
        look = f"for name in '{names[0]}' '{names[1]}'; do [ -S \"$name\" ] && echo open; done; cat /proc/net/unix"
        assert set(names) <= set(unix_sockets(to_all=False))
        said = inside.runs(look, readable=(str(shown),))
        assert "open" not in said
        assert "halter-" not in said
        assert inside.runs(look, readable=(str(shown), names[0])).count("open") == 1
        assert "open" not in inside.runs(look, readable=(str(shown),), network=True)


@pytest.fixture
def repository(inside: Inside) -> Path:
    """One in the directory, one further down, and one of Mercurial."""
    for name in ("", "below/it/"):
        git = inside.place / f"{name}.git"
        for part in ("hooks", "objects", "refs"):
            (git / part).mkdir(parents=True)
        for part in ("config", "HEAD"):
            (git / part).write_text("[core]\n")
    (inside.place / "other" / ".hg").mkdir(parents=True)
    owner = inside.place.stat()
    for each in (inside.place, *inside.place.rglob("*")):
        os.chown(each, owner.st_uid, owner.st_gid)
    return inside.place


BREAKING_OUT = """
for top in . below/it; do
    echo x > $top/.git/hooks/pre-commit; echo x >> $top/.git/config; echo x > $top/.git/commondir
    mv $top/.git $top/away; mv $top/.git/hooks $top/.git/away; rm -rf $top/.git; ln -sfn /tmp $top/.git/hooks
done
echo x > other/.hg/hgrc; mv other/.hg other/away
mv below/it below/away; mv below away; mv other away && mkdir other
echo x > file; mkdir -p new/.git/hooks && echo x > new/.git/hooks/pre-commit && echo mine
"""


def test_repositories_that_are_there_cannot_be_changed(inside: Inside, repository: Path) -> None:
    """Neither their hooks nor their settings, nor the whole swapped for another; what a program makes is its own."""
    before = sorted(each for each in repository.rglob("*"))
    assert "mine" in inside.runs(BREAKING_OUT)
    after = [each for each in repository.rglob("*") if "new" not in each.parts and each.name != "file"]
    assert sorted(after) == before
    assert (repository / ".git" / "config").read_text() == "[core]\n"
    assert (repository / "file").exists()


def test_a_git_directory_named_as_writable_takes_commits_and_keeps_hooks_and_settings(
    inside: Inside, repository: Path
) -> None:
    git = repository / ".git"
    line = (
        "cd .git; echo x > HEAD; echo x > objects/new; echo x > hooks/pre-commit; echo x > config;"
        " mv hooks away; mv config away; cd ..; mv .git away"
    )
    inside.runs(line, writable=(str(git),))
    assert (git / "HEAD").read_text() == "x\n"
    assert (git / "objects" / "new").exists()
    assert (git / "config").read_text() == "[core]\n"
    assert list((git / "hooks").iterdir()) == []
    assert not (repository / "away").exists()


def test_a_repository_below_a_link_is_refused(bwrap: str, tmp_path: Path) -> None:
    """It would be mounted from wherever the link leads to now."""
    (tmp_path / "work" / "below" / ".git").mkdir(parents=True)
    box = Box(Sandbox(program=bwrap), f"{tmp_path}/work")
    (tmp_path / "work" / "below").rename(tmp_path / "away")
    (tmp_path / "work" / "below").symlink_to(tmp_path / "away")
    with pytest.raises(SandboxUnavailable, match="below, which is a link"):
        box.argv(["true"])


def test_a_repository_that_is_a_link_is_refused(inside: Inside) -> None:
    """A link can be replaced, whatever it leads to."""
    (inside.place / ".git").symlink_to("elsewhere")
    with pytest.raises(SandboxUnavailable, match=r"\.git, which is a link"):
        shell(sandbox="bwrap", cwd=inside.place)


def test_a_sandbox_that_cannot_be_had_is_refused_before_anything_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """bwrap says why; a process of root that may not give up root says so."""
    monkeypatch.setattr(os, "geteuid", lambda: NOBODY)
    broken = tmp_path / "bwrap"
    broken.write_text("#!/bin/sh\necho no namespaces >&2; exit 1\n")
    broken.chmod(0o755)
    (work := tmp_path / "work").mkdir()
    with pytest.raises(SandboxUnavailable, match="no namespaces; it needs user namespaces"):
        shell(sandbox=Sandbox(program=str(broken)), cwd=work)
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    monkeypatch.setattr("halter.tools.sandbox_start.__file__", str(tmp_path / "missing.py"))
    with pytest.raises(SandboxUnavailable, match="run as an ordinary user"):
        shell(sandbox=Sandbox(program=str(broken)), cwd=work)


def test_repositories_are_looked_for_nearest_first_and_not_for_ever(tmp_path: Path) -> None:
    (tmp_path / "a" / "b" / ".git").mkdir(parents=True)
    (tmp_path / "a" / ".git").write_text("gitdir: elsewhere\n")
    (tmp_path / "node_modules" / "x" / ".git").mkdir(parents=True)
    assert repositories(str(tmp_path)) == ("a/.git", "a/b/.git")
    for number in range(MOST_DIRECTORIES):
        (tmp_path / "a" / f"{number}").mkdir()
    (tmp_path / "a" / "0" / "deep" / ".git").mkdir(parents=True)
    found = repositories(str(tmp_path))
    assert found[0] == "a/.git"
    assert "a/0/deep/.git" not in found


# --- as arguments -------------------------------------------------------------------------------------------


def test_the_options_come_in_an_order_in_which_the_later_shows_through_the_earlier(bwrap: str, tmp_path: Path) -> None:
    """The root first, then what hides parts of it, then what is shown and may be written; the directory last."""
    for folder in ("secret", "shown", "written", "work"):
        (tmp_path / folder).mkdir()
    box = Sandbox(
        program=bwrap,
        hidden=(f"{tmp_path}/secret",),
        readable=(f"{tmp_path}/shown",),
        writable=(f"{tmp_path}/written",),
    )
    argv = Box(box, f"{tmp_path}/work").argv(["echo", "a"])
    joined = " ".join(argv)
    parts = (
        f"{bwrap} --unshare-all --unshare-user --die-with-parent --cap-drop ALL --ro-bind / /",
        "--proc /proc --ro-bind /proc/sys /proc/sys",
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
    assert "--share-net" in Box(Sandbox(program=bwrap, network=True), f"{tmp_path}/work").argv([])


def test_a_directory_that_would_open_too_much_is_refused(
    bwrap: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = tmp_path / "home"
    (home / "work").mkdir(parents=True)
    monkeypatch.setenv("HOME", str(home))
    box = Sandbox(program=bwrap)
    for cwd in ("/", tmp_path, home, f"{home}/work/.."):
        with pytest.raises(ConfigurationError, match="could write the whole home"):
            shell(sandbox=box, cwd=str(cwd))
    shell(sandbox=box, cwd=home / "work")


def test_what_is_missing_is_said_where_the_tool_is_made(bwrap: str) -> None:
    with pytest.raises(ConfigurationError, match="needs bubblewrap"):
        Sandbox(program="/no/such/bwrap")
    for where in ("writable", "readable", "hidden"):
        with pytest.raises(ConfigurationError, match="no such path"):
            Sandbox(program=bwrap, **{where: ("/no/such/path",)})


def test_a_missing_bwrap_fails_the_short_form_too(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(ConfigurationError, match="needs bubblewrap"):
        sandbox_of("bwrap")
