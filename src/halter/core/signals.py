"""Signals that stop: the first asks, the second kills, the third is the old handler's."""

from __future__ import annotations

import signal
import threading
from collections.abc import Generator
from contextlib import contextmanager
from typing import Any

from halter.core.cancellation import Stoppable
from halter.errors import UsageError
from halter.outcome import CancelMode, CancelReason


@contextmanager
def cancel_on_signals(target: Stoppable, *signals: int) -> Generator[None, None, None]:
    """While the block runs, these signals (SIGINT and SIGTERM by default) stop `target`, a run or a token.

    The first cancels it with reason `signal`, the second with mode `kill`, a third goes to the handler that was there
    before. The old handlers are restored at the end. Raises `UsageError` outside the main thread, where Python cannot
    install handlers.
    """
    if threading.current_thread() is not threading.main_thread():
        raise UsageError("cancel_on_signals works in the main thread only: Python runs signal handlers there")
    counted = [0]
    before: dict[int, Any] = {}

    def handle(number: int, frame: Any) -> None:
        counted[0] += 1
        if counted[0] <= 2:
            mode = CancelMode.IMMEDIATE if counted[0] == 1 else CancelMode.KILL
            target.cancel(signal.Signals(number).name, reason=CancelReason.SIGNAL, mode=mode)
        else:
            _pass_to(before[number], number, frame)

    try:
        for number in signals or (signal.SIGINT, signal.SIGTERM):
            before[number] = signal.signal(number, handle)
        yield
    finally:
        for number, old in before.items():
            signal.signal(number, old if old is not None else signal.SIG_DFL)


def _pass_to(old: Any, number: int, frame: Any) -> None:
    if callable(old):
        old(number, frame)
    elif old != signal.SIG_IGN:
        signal.signal(number, signal.SIG_DFL)
        signal.raise_signal(number)
