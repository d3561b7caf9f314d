"""What stops a run from outside of a terminal: signals, and an output that nobody reads any more.

1. The first signal stops, a second one kills. 2. Each of them also ends a write that is blocked, so that a reader who
does not read cannot hold up a stop. 3. A reader who is gone is noticed while nothing is written, too.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
from collections.abc import Generator
from types import TracebackType
from typing import Any, Protocol, Self

from halter.core.threads import spawn
from halter.outcome import CancelMode, CancelReason

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class Stoppable(Protocol):
    """A run, here or on a server."""

    def cancel(self, message: str | None = None, *, reason: CancelReason = ..., mode: CancelMode = ...) -> bool:
        """Asks it to stop."""
        ...


class Interrupted(Exception):
    """A signal came while output was blocked, or an answer was waited for."""


class StopSignals:
    """Within the block, SIGINT, SIGTERM, SIGHUP, and an output that was closed, stop the run. Main thread only.

    `number`: the first signal that came, or `None`.
    """

    def __init__(self, run: Stoppable, output: int) -> None:
        self.number: int | None = None
        self.is_output_gone = False
        self._run = run
        self._output = output
        self._is_blocked = False
        self._before: dict[int, Any] = {}
        self._over = -1  # closing it ends the watch

    def __enter__(self) -> Self:
        for number in SIGNALS:
            if signal.getsignal(number) is not signal.SIG_IGN:  # as under nohup
                self._before[number] = signal.signal(number, self._handle)
        over, self._over = os.pipe()
        spawn("output-watch", self._watch, self._output, over)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for number, old in self._before.items():
            signal.signal(number, old)
        os.close(self._over)

    @contextlib.contextmanager
    def blocking(self) -> Generator[None]:
        """Within it, a signal raises `Interrupted`."""
        self._is_blocked = True
        try:
            if self.number is not None:
                raise Interrupted
            yield
        finally:
            self._is_blocked = False

    def output_gone(self) -> None:
        """Nobody reads the output any more; from any thread."""
        self.is_output_gone = True
        self._run.cancel("nobody reads the output any more", reason=CancelReason.CLIENT_DISCONNECT)

    def _handle(self, number: int, frame: object) -> None:
        mode = CancelMode.IMMEDIATE if self.number is None else CancelMode.KILL
        self.number = self.number or number
        self._run.cancel(signal.Signals(number).name, reason=CancelReason.SIGNAL, mode=mode)
        if self._is_blocked:
            self._is_blocked = False
            raise Interrupted

    def _watch(self, output: int, over: int) -> None:
        """Waits for the reader to leave, or for the end of the block. A file's reader never leaves."""
        poll = select.poll()
        poll.register(over, 0)
        try:
            poll.register(output, 0)
            gone = [fd for fd, _ in poll.poll()]
        finally:
            os.close(over)
        if over not in gone:
            self.output_gone()


def discard_output(output: int) -> None:
    """What is still buffered goes nowhere: the interpreter would complain of it at its end."""
    with contextlib.suppress(OSError):
        null = os.open(os.devnull, os.O_WRONLY)
        os.dup2(null, output)
        os.close(null)
