"""Programs in a terminal and in pipes, with a home of their own and without anybody's keys."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Generator
from contextlib import ExitStack
from pathlib import Path

import pytest

from halter.testing.wire_probe import WireProbe

from ..bounds import TimedProbe
from ..server.conftest import serve as serve
from .pty import Terminal, halter

KEEP = ("PATH", "TMPDIR", "COVERAGE_PROCESS_START")
ProbeOf = Callable[[str], WireProbe]


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A user's directory without files, in an environment without keys; the current directory is in it."""
    for name in list(os.environ):
        if name not in KEEP:
            monkeypatch.delenv(name)
    work = tmp_path / "work"
    work.mkdir()
    for name, value in {"HOME": str(tmp_path), "LANG": "C.UTF-8", "TERM": "xterm-256color"}.items():
        monkeypatch.setenv(name, value)
    monkeypatch.chdir(work)
    return tmp_path


@pytest.fixture
def probe(wire: WireProbe) -> ProbeOf:
    """`probe("word")`: the provider, as one of several programs of a test sees it."""
    return lambda word: TimedProbe(wire.wire, f"{wire.tag}-{word}")


Start = Callable[..., "subprocess.Popen[bytes]"]


@pytest.fixture
def start(home: Path) -> Generator[Start]:
    """`start("ask", …)`: the `halter` command as a process with pipes; killed at the end of the test."""
    with ExitStack() as stack:

        def started(*arguments: str, **options: object) -> subprocess.Popen[bytes]:
            pipes = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE, **options}
            command = [sys.executable, "-m", "halter", *arguments]
            process: subprocess.Popen[bytes] = subprocess.Popen(command, cwd=home / "work", **pipes)  # type: ignore[call-overload]
            stack.enter_context(process)
            stack.callback(process.kill)
            return process

        yield started


Open = Callable[..., Terminal]


@pytest.fixture
def terminal(home: Path) -> Generator[Open]:
    """`terminal("chat", …)`: the `halter` command in a terminal."""
    with ExitStack() as stack:

        def opened(*arguments: str, columns: int = 80, rows: int = 24, **environment: str) -> Terminal:
            env = {**os.environ, **environment}
            found = Terminal(halter(*arguments), cwd=home / "work", env=env, columns=columns, rows=rows)
            stack.callback(found.close)
            return found

        yield opened
