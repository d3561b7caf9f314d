"""A program in a terminal: real keys through a pty, its screen kept by an emulator, its tty looked at."""

from __future__ import annotations

import fcntl
import os
import pty
import signal
import struct
import subprocess
import sys
import termios
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import pyte

WAIT = 60.0  # seconds; the machine may be busy


class Terminal:
    """One program under a pty of its own, in a session of its own, as ssh starts one."""

    def __init__(
        self, command: Sequence[str], *, cwd: Path, env: dict[str, str], columns: int = 80, rows: int = 24
    ) -> None:
        self.raw = bytearray()
        self.screen = pyte.HistoryScreen(columns, rows, history=5_000, ratio=0.5)
        self._stream = pyte.ByteStream(self.screen)
        self._changed = threading.Condition()
        self._master, slave = pty.openpty()
        self.slave = os.dup(slave)  # so that its modes can be looked at when the program is gone
        self.modes = termios.tcgetattr(slave)
        self._set_size(columns, rows)
        self.process = subprocess.Popen(
            command,
            cwd=cwd,
            env=env,
            stdin=slave,
            stdout=slave,
            stderr=slave,
            start_new_session=True,
            preexec_fn=_take_terminal,  # noqa: PLW1509 - it is one system call
        )
        os.close(slave)
        self._is_open = True
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    # --- keys and sizes -------------------------------------------------------------------------------------

    def press(self, keys: str | bytes) -> float:
        """Presses keys, in one write; the instant, of `time.monotonic()`."""
        at = time.monotonic()
        os.write(self._master, keys.encode() if isinstance(keys, str) else keys)
        return at

    def resize(self, columns: int, rows: int) -> None:
        """As when somebody draws at the window's corner."""
        with self._changed:
            self.screen.resize(rows, columns)
        self._set_size(columns, rows)

    def _set_size(self, columns: int, rows: int) -> None:
        fcntl.ioctl(self._master, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))

    # --- what is shown --------------------------------------------------------------------------------------

    @property
    def lines(self) -> list[str]:
        """The lines that are on the screen."""
        with self._changed:
            return [line.rstrip() for line in self.screen.display]

    @property
    def text(self) -> str:
        return "\n".join(self.lines)

    @property
    def everything(self) -> str:
        """The screen, and what has scrolled out of it."""
        with self._changed:
            above = ["".join(row[x].data for x in range(self.screen.columns)) for row in self.screen.history.top]
        return "\n".join([*(line.rstrip() for line in above), self.text])

    def until(self, is_so: Callable[[], bool] | str, what: str = "") -> None:
        """Waits until this is so, or until the screen shows this text."""
        shows = (lambda: is_so in self.text) if isinstance(is_so, str) else is_so
        until = time.monotonic() + WAIT
        while not shows():
            is_over = self.process.poll() is not None and not self._reader.is_alive()
            if is_over or time.monotonic() > until:
                raise AssertionError(f"{what or is_so} never came; \n{self.text}\n{bytes(self.raw[-600:])!r}")
            with self._changed:
                self._changed.wait(0.02)

    # --- its end --------------------------------------------------------------------------------------------

    @property
    def is_restored(self) -> bool:
        """Whether the terminal's modes are as they were before the program."""
        return termios.tcgetattr(self.slave)[:4] == self.modes[:4]

    def exit_code(self) -> int:
        """Waits for the end of the program."""
        return self.process.wait(WAIT)

    def hang_up(self) -> None:
        """The window is closed: the kernel sends SIGHUP."""
        self._is_open = False
        os.close(self.slave)
        self.slave = -1
        os.close(self._master)
        self._master = -1

    def close(self) -> None:
        if self.process.poll() is None:
            os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait()
        self._is_open = False
        for fd in (self.slave, self._master):
            if fd >= 0:
                os.close(fd)
        self._reader.join(5.0)

    def _read(self) -> None:
        master = self._master
        while self._is_open:
            try:
                data = os.read(master, 65_536)
            except OSError:
                return
            if not data:
                return
            with self._changed:
                self.raw += data
                self._stream.feed(data)
                self._changed.notify_all()


def _take_terminal() -> None:
    fcntl.ioctl(0, termios.TIOCSCTTY, 0)


def halter(*arguments: str) -> list[str]:
    """The `halter` command."""
    return [sys.executable, "-m", "halter", *arguments]
