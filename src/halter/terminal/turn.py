"""One turn: what you said, the run that answers, and the stop that belongs to this turn alone.

Each turn has a token of its own: a key that is pressed now can never stop the turn before, or the next one. What runs
in the background for a session, such as learning of facts, hangs on no turn.
"""

from __future__ import annotations

import time
from typing import Any, TypeAlias

from halter.client.run import RemoteRun
from halter.core.cancellation import CancellationToken
from halter.core.run import Run
from halter.messages import Message
from halter.outcome import CancelMode, CancelReason

AnyRun: TypeAlias = Run[Any] | RemoteRun[Any]
KEYBOARD = "keyboard"


class Turn:
    """`said`: what it begins with. `run`: its run, once it is made."""

    def __init__(self, said: str, message: Message) -> None:
        self.said = said
        self.message = message
        self.token = CancellationToken()
        self.run: AnyRun | None = None
        self.began = time.monotonic()
        self._stops = 0

    @property
    def is_stopping(self) -> bool:
        return self._stops > 0

    @property
    def elapsed(self) -> float:
        """Seconds since it began."""
        return time.monotonic() - self.began

    def stop(
        self,
        message: str,
        *,
        mode: CancelMode = CancelMode.IMMEDIATE,
        reason: CancelReason = CancelReason.USER_STOP,
    ) -> CancelMode:
        """Stops it; asked again, kills it. From the terminal's own thread. Returns the mode that is in force now."""
        if mode is CancelMode.IMMEDIATE and self._stops:
            mode = CancelMode.KILL
        if mode.cuts:
            self._stops += 1
        run = self.run
        if isinstance(run, RemoteRun):
            run.cancel(message, reason=reason, mode=mode)
        elif run is not None:
            run.cancel(message, reason=reason, mode=mode, actor=KEYBOARD)
        else:
            self.token.cancel(message, reason=reason, mode=mode, actor=KEYBOARD)
        return mode
