"""Real threads, signals, processes and loops: what the system tests share."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import Callable, Coroutine, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import uvloop

SOURCE = Path(__file__).parents[2] / "src"
LOOPS: dict[str, Callable[[Coroutine[Any, Any, Any]], Any]] = {"asyncio": asyncio.run, "uvloop": uvloop.run}


@dataclass(frozen=True)
class Finished:
    """How a process ended. `code`: negative for a signal. `took`: seconds from its word `ready`, or its start."""

    code: int
    out: str
    err: str
    took: float

    def quietly(self) -> str:
        """What it printed; it must have ended well, with nothing on stderr."""
        # In development mode asyncio tells of each callback that took 100 ms: that is the machine's business.
        # So is a stop that had to wait for a loop which was not given a processor for a second.
        lines = self.err.splitlines()
        noise = [line for line in lines if not line.startswith("Executing <")]
        if len(noise) < len(lines):
            noise = [line for line in noise if "cannot stop: its loop is held up" not in line]
        assert (self.code, noise) == (0, []), f"exit code {self.code}\n{self.out}\n{self.err}"
        return self.out.replace("ready\n", "")


class Script:
    """Runs a text as a Python program of its own, with Halter to import and a limit to its time."""

    def __call__(
        self,
        text: str,
        *arguments: str,
        flags: tuple[str, ...] = (),
        python: str = sys.executable,
        interrupt: int = 0,
        limit: float = 15.0,
        **environment: str,
    ) -> Finished:
        """`interrupt`: so many real SIGINTs, each sent when the program prints `ready`."""
        process = subprocess.Popen(
            [python, "-W", "default", *flags, "-c", textwrap.dedent(text), *arguments],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env={**os.environ, "PYTHONPATH": str(SOURCE), **environment},
            start_new_session=True,
        )
        killer = threading.Timer(limit, process.kill)
        killer.start()
        try:
            return self._follow(process, interrupt)
        finally:
            killer.cancel()
            process.kill()
            process.wait()
            process.stdout.close()
            process.stderr.close()
            killer.join()

    @staticmethod
    def _follow(process: subprocess.Popen[str], interrupt: int) -> Finished:
        lines: list[str] = []
        began = time.monotonic()
        errors: list[str] = []
        reading = threading.Thread(target=lambda: errors.append(process.stderr.read()))
        reading.start()
        for line in process.stdout:
            lines.append(line)
            if line == "ready\n":
                began = time.monotonic()
                if interrupt:
                    interrupt -= 1
                    process.send_signal(signal.SIGINT)
        process.wait()
        took = time.monotonic() - began
        reading.join()
        return Finished(process.returncode, "".join(lines), errors[0], took)


@pytest.fixture
def script() -> Script:
    return Script()


@pytest.fixture(params=LOOPS)
def run_on(request: pytest.FixtureRequest) -> Callable[[Coroutine[Any, Any, Any]], Any]:
    """`asyncio.run`, and `uvloop.run`."""
    return LOOPS[request.param]


@pytest.fixture(params=LOOPS)
def loop_name(request: pytest.FixtureRequest) -> str:
    """The module whose `run` a script uses."""
    return request.param


@pytest.fixture
def thread() -> Iterator[Callable[..., threading.Thread]]:
    """Starts threads, and joins them at the end of the test."""
    started: list[threading.Thread] = []

    def start(target: Callable[..., object], *arguments: object) -> threading.Thread:
        one = threading.Thread(target=target, args=arguments)
        started.append(one)
        one.start()
        return one

    yield start
    for one in started:
        one.join(10)
        assert not one.is_alive(), f"{one} is still there"


@pytest.fixture
def newer() -> Callable[[str], str]:
    """The interpreter of a newer Python with Halter's dependencies: this one, or what `HALTER_PYTHON_3_12` names."""

    def find(version: str) -> str:
        if sys.version_info[:2] == tuple(map(int, version.split("."))):
            return sys.executable
        python = os.environ.get(f"HALTER_PYTHON_{version.replace('.', '_')}")
        if python is None or not Path(python).exists():
            pytest.skip(f"no Python {version} with Halter's dependencies here")
        return python

    return find
