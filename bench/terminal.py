"""From a key in a terminal, or a command line, to what the provider sees."""

from __future__ import annotations

import fcntl
import os
import pty
import subprocess
import sys
import tempfile
import termios
import threading
import time
from collections.abc import Generator
from contextlib import contextmanager

from bench.rounds import Options
from bench.table import Line, Table, percentile
from halter.proof.wire import Wire

KEYS = {"Ctrl-C": b"\x03", "Esc": b"\x1b"}
STOPS = 100
ASKED = 10
PATIENCE = 30.0  # seconds
TAG = "keys"
PROMPT = "›".encode()


def measure_terminal(options: Options) -> Table:
    """Stops by a key in `halter chat`, and how soon `halter ask` has sent its request."""
    count = 20 if options.quick else STOPS
    with Wire.start() as wire:
        url = wire.url("steady(100000,10)", tag=TAG)
        found = {name: _stops(wire, url, key, count) for name, key in KEYS.items()}
        asked = [_asked(wire, url) for _ in range(3 if options.quick else ASKED)]
    rows = [(f"{name} in halter chat to the close", *_figures(values)) for name, values in found.items()]
    rows.append(("halter ask to the first byte", *_figures(asked)))
    return Table(
        title="The terminal",
        about=f"{count} stops of a stream by each key, pressed through a pty, to the provider seeing its connection "
        "close; Esc waits 50 ms for what may follow it. A process for each `halter ask`, to the request's first byte.",
        columns=("", "ms p50", "ms p99", "ms max"),
        rows=rows,
        lines=(
            Line("Ctrl-C p99", percentile(found["Ctrl-C"], 99), 50, " ms"),
            Line("Esc p99", percentile(found["Esc"], 99), 100, " ms"),
            Line("halter ask", percentile(asked, 50), 400, " ms"),
        ),
    )


def _figures(values: list[float]) -> tuple[str, str, str]:
    return f"{percentile(values, 50):.1f}", f"{percentile(values, 99):.1f}", f"{max(values):.1f}"


def _command(*arguments: str) -> list[str]:
    return [sys.executable, "-m", "halter", *arguments]


def _asked(wire: Wire, url: str) -> float:
    """Milliseconds from the start of a process to the request."""
    wire.clear()
    at = time.monotonic()
    process = subprocess.Popen(
        _command("ask", "--model", "m", "--base-url", url, "Hi"), stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL
    )
    started = wire.wait("started", tag=TAG, timeout=PATIENCE)[0].started
    process.kill()
    process.wait()
    return (started - at) * 1e3


def _stops(wire: Wire, url: str, key: bytes, count: int) -> list[float]:
    """Milliseconds from each key to the close, in one chat."""
    wire.clear()
    found: list[float] = []
    with _chat(url) as keyboard:
        for number in range(1, count + 1):
            os.write(keyboard, b"Hi\r")
            wire.wait("token", tag=TAG, count=number, timeout=PATIENCE)
            at = time.monotonic()
            os.write(keyboard, key)
            closed = wire.wait("closed", tag=TAG, count=number, timeout=PATIENCE)[-1].closed_at
            found.append(((closed or at) - at) * 1e3)
            time.sleep(0.25)  # the turn ends, and the prompt is back
    return found


@contextmanager
def _chat(url: str) -> Generator[int]:
    """A chat in a terminal of its own; where its keys are pressed."""
    master, slave = pty.openpty()
    with tempfile.TemporaryDirectory() as home:
        environment = {**os.environ, "HOME": home, "XDG_DATA_HOME": home, "TERM": "xterm-256color"}
        process = subprocess.Popen(
            _command("chat", "--no-tools", "--model", "m", "--base-url", url),
            stdin=slave,
            stdout=slave,
            stderr=slave,
            env=environment,
            start_new_session=True,
            preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0),  # noqa: PLW1509 - it is one system call
        )
        os.close(slave)
        is_ready = threading.Event()
        threading.Thread(target=_read_all, args=(master, is_ready), daemon=True).start()
        try:
            assert is_ready.wait(PATIENCE), "the prompt never came"
            yield master
        finally:
            process.kill()
            process.wait()
            os.close(master)


def _read_all(master: int, is_ready: threading.Event) -> None:
    """Somebody looks at the screen: a program whose output nobody takes is blocked."""
    try:
        while data := os.read(master, 65_536):
            if PROMPT in data:
                is_ready.set()
    except OSError:
        pass
