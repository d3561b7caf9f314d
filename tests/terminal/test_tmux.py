"""The same chat in tmux and screen, terminals that wrap their lines anew, or do not, when they are resized."""

from __future__ import annotations

import os
import shutil
import subprocess
import time
from collections.abc import Callable, Generator
from pathlib import Path

import pytest

from .pty import WAIT, Terminal, halter

LONG = "scripted:One paragraph that is long enough to be wrapped at eighty columns, and at forty once more.\n\n- a\n- b"

pytestmark = pytest.mark.timeout(240)


class Tmux:
    """A tmux server of one's own with one window, in which the chat runs."""

    def __init__(self, directory: Path) -> None:
        self._name = str(directory / "tmux.sock")
        self._cwd = directory / "work"

    def __call__(self, *arguments: str) -> str:
        done = subprocess.run(["tmux", "-S", self._name, *arguments], capture_output=True, text=True, check=True)
        return done.stdout

    def start(self, *command: str) -> None:
        self("-f", "/dev/null", "new-session", "-d", "-x", "80", "-y", "24", "-c", str(self._cwd), *command)
        self("set-option", "-g", "escape-time", "10")

    @property
    def lines(self) -> list[str]:
        return self("capture-pane", "-p").rstrip("\n").split("\n")

    def until(self, is_so: Callable[[list[str]], bool], what: str) -> None:
        until = time.monotonic() + WAIT
        while not is_so(self.lines):
            assert time.monotonic() < until, f"{what} never came:\n" + "\n".join(self.lines)
            time.sleep(0.05)


@pytest.fixture
def tmux(home: Path, require: Callable[[str, bool], None]) -> Generator[Tmux]:
    require("tmux", shutil.which("tmux") is not None)
    server = Tmux(home)
    yield server
    subprocess.run(["tmux", "-S", str(home / "tmux.sock"), "kill-server"], capture_output=True, check=False)


@pytest.mark.scenario("H75", "H77")
def test_in_tmux_a_resize_leaves_nothing_behind_and_escape_stops(tmux: Tmux) -> None:
    tmux.start(*halter("chat", "--no-tools", "--model", LONG))
    tmux.until(lambda lines: any(line.startswith("›") for line in lines), "the prompt")
    tmux("send-keys", "-l", "Tell me")
    tmux("send-keys", "Enter")
    tmux.until(lambda lines: any("─ " in line for line in lines), "the end of the turn")
    assert any(line.startswith("One paragraph") for line in tmux.lines)  # no staircase
    tmux("send-keys", "-l", "a draft that I am typing")
    for columns, rows in ((40, 20), (100, 30), (50, 15), (80, 24)):
        tmux("resize-window", "-x", str(columns), "-y", str(rows))
        tmux.until(
            lambda lines: (
                sum("that I am typing" in line for line in lines) == 1
                and sum(line.startswith("assistant · scripted") for line in lines if "Esc stops" not in line) == 1
            ),
            f"one prompt and one status line at {columns} columns",
        )


def test_in_screen_it_runs_and_leaves(home: Path, require: Callable[[str, bool], None]) -> None:
    require("screen", shutil.which("screen") is not None)
    (home / "sockets").mkdir(mode=0o700)
    environment = {**os.environ, "SCREENDIR": str(home / "sockets"), "SHELL": "/bin/sh"}
    command = ["screen", "-c", "/dev/null", "-U", *halter("chat", "--no-tools", "--model", "scripted:Hello there.")]
    terminal = Terminal(command, cwd=home / "work", env=environment)
    try:
        terminal.until(lambda: any(line.startswith("›") for line in terminal.lines), "the prompt")
        terminal.press("Hi\r")
        terminal.until("─ ")
        assert "Hello there." in terminal.lines
        terminal.press("\x04")
        assert terminal.exit_code() == 0
    finally:
        terminal.close()
