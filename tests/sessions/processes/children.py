"""The processes of these tests, as the tests hold them: started at once, listened to, stopped, killed."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

import msgspec

from .mother import Job, Told

SOURCE = Path(__file__).parents[3] / "src"
_decoder = msgspec.json.Decoder(Told)


class Child:
    """One process that carries one run. `told`: what it has told so far."""

    def __init__(self, job: Job, pid: int, pipe: BinaryIO) -> None:
        self.job = job
        self.pid = pid
        self.told: list[Told] = []
        self._pipe = pipe
        self._has_ended = False
        self._is_buried = False

    def listen(self) -> Iterator[Told]:
        """What it tells, as it comes; ends with the process."""
        for line in self._pipe:
            if line.endswith(b"\n"):  # else it was killed while it wrote
                self.told.append(_decoder.decode(line))
                yield self.told[-1]
        self._has_ended = True

    def until(self, what: str, times: int = 1) -> Told:
        """Waits until it has told this so often."""
        for told in self.listen():
            if told.what == what:
                times -= 1
            if times == 0:
                return told
            if told.what == "ended":
                break
        raise AssertionError(f"it ended before it told {what!r}; it told {[told.what for told in self.told]}")

    def signal(self, number: int) -> None:
        os.kill(self.pid, number)  # it lives for as long as it is not killed: the number is its own

    def cancel(self) -> None:
        """Its run, as its user would."""
        self.signal(signal.SIGUSR1)

    def open_gate(self) -> None:
        """Work that waits for it ends."""
        self.signal(signal.SIGUSR2)

    def stop(self) -> None:
        """With SIGSTOP, until `go_on`."""
        self.signal(signal.SIGSTOP)

    def go_on(self) -> None:
        self.signal(signal.SIGCONT)

    def kill(self) -> None:
        """With SIGKILL; returns when it is gone, and all that it has told is read."""
        if not self._is_buried:
            self._is_buried = True
            if not self._has_ended:  # of itself: its number may be another's by now
                self.signal(signal.SIGKILL)
            for _ in self.listen():
                pass
            self._pipe.close()
            _wait_until_gone(self.pid)


def _wait_until_gone(pid: int) -> None:
    until = time.monotonic() + 10
    while True:
        try:
            os.kill(pid, 0)
        except ProcessLookupError:
            return
        assert time.monotonic() < until, f"process {pid} was killed, and is still there"
        time.sleep(0.001)


class Mother:
    """Where they come from. Any thread may start one."""

    def __init__(self) -> None:
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._jobs = ours
        self._lock = threading.Lock()
        self._children: list[Child] = []
        program = Path(__file__).with_name("mother.py")
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, program, str(theirs.fileno())],
                pass_fds=[theirs.fileno()],
                env={**os.environ, "PYTHONPATH": str(SOURCE)},
                start_new_session=True,
            )

    def start(self, job: Job) -> Child:
        """A process that does this; it is running."""
        reading, writing = os.pipe()
        pipe = os.fdopen(reading, "rb")
        try:
            with self._lock:
                socket.send_fds(self._jobs, [msgspec.json.encode(job)], [writing])
                pid = int(self._jobs.recv(100))
        finally:
            os.close(writing)
        child = Child(job, pid, pipe)
        self._children.append(child)
        return child

    def end_all(self) -> None:
        """Kills those that are left."""
        while self._children:
            self._children.pop().kill()

    def close(self) -> None:
        self.end_all()
        self._jobs.close()
        self._process.wait(10)
