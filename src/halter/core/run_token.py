"""The token of one run, or of one of its tool calls (`ctx.token`): the run's own cell, seen as a cancellation token."""

from __future__ import annotations

from typing import TYPE_CHECKING

from halter.core.cancellation import CancellationToken
from halter.errors import RunCancelled
from halter.outcome import Cancellation, CancelMode, CancelReason

if TYPE_CHECKING:
    from halter.core.call import Call
    from halter.core.execution import Execution


class RunToken(CancellationToken):
    """A run's own token: cancelled at the cut; cancelling it cancels the run."""

    __slots__ = ("_execution",)

    def __init__(self, execution: Execution) -> None:
        super().__init__()
        self._execution = execution

    def cancel(
        self,
        message: str | None = None,
        *,
        reason: CancelReason = CancelReason.USER_STOP,
        mode: CancelMode = CancelMode.IMMEDIATE,
        actor: str | None = None,
    ) -> bool:
        return self._execution.cancel(message, reason=reason, mode=mode, actor=actor)

    @property
    def is_cancelled(self) -> bool:
        return self._execution.is_cut

    @property
    def _is_asked(self) -> bool:
        return self.is_cancelled

    def raise_if_cancelled(self) -> None:
        if self._execution.is_cut:
            super().raise_if_cancelled()
            raise RunCancelled("stopped", cancellation=self.cancellation)

    def notify(self) -> None:
        """Tells the listeners; on the home loop, at the cut."""
        request = self.cancellation
        if request is not None:
            self._pass_on(request)

    def _own_requests(self) -> list[Cancellation]:
        request = self._execution.request() if self._execution.is_cut else None
        return [request] if request else []


class CallToken(RunToken):
    """One call's token: cancelled when the call has to end; cancelling it cancels the run."""

    __slots__ = ("_call",)

    def __init__(self, call: Call) -> None:
        super().__init__(call.execution)
        self._call = call

    @property
    def is_cancelled(self) -> bool:
        return self._call.is_cut

    def raise_if_cancelled(self) -> None:
        if self._call.is_cut:
            raise RunCancelled(f"stopped: {self.cancellation}", cancellation=self.cancellation)

    def _own_requests(self) -> list[Cancellation]:
        if not self._call.is_cut:
            return []
        timed_out = Cancellation(reason=CancelReason.TIMEOUT, message=f"the call of {self._call.request.name}")
        return [timed_out] if self._call.is_timed_out else super()._own_requests()
