"""One run that this process carries or has carried."""

from __future__ import annotations

import time
from typing import Any

from msgspec.structs import asdict, replace

from halter.core.run import Run
from halter.events import failure_of
from halter.outcome import Cancellation
from halter.server.ended import EndedFeed
from halter.server.memory.feed import LocalFeed, catch_up
from halter.server.port import EventFeed, RunInfo, RunPlan
from halter.server.presence import Presence
from halter.snapshot import CancellingState, Fold, Snapshot

BYTES_PER_EVENT = 250  # about as much memory as one event takes in the log


class Entry:
    """A run, its log while that is kept, and its record afterwards."""

    def __init__(self, plan: RunPlan, run: Run[Any], epoch: int) -> None:
        self.plan = plan
        self._presence: Presence | None = Presence(run, plan.on_disconnect, plan.linger, plan.actor)
        self.ended_at: float | None = None
        self._epoch = epoch
        self._run: Run[Any] | None = run
        self._fold = Fold(run.id)
        self._final: tuple[RunInfo, Snapshot] | None = None

    @property
    def run(self) -> Run[Any] | None:
        """The handle; `None` once the log was let go of."""
        return self._run

    @property
    def presence(self) -> Presence | None:
        """Who is connected to it; `None` once the log was let go of."""
        return self._presence if self._run is not None else None

    @property
    def is_over(self) -> bool:
        return self._run is None or self._run.is_done

    @property
    def fold(self) -> Fold:
        """The state as of the newest event."""
        if self._run is not None:
            catch_up(self._fold, self._run)
        return self._fold

    def feed(self) -> EventFeed:
        """A new reader."""
        if self._run is not None:
            return LocalFeed(self._run, self._epoch, self._fold)
        assert self._final is not None
        terminal = self._fold.terminal
        assert terminal is not None
        return EndedFeed(self._epoch, self._final[1], terminal)

    def info(self) -> RunInfo:
        """The run as it is now."""
        if self._final is not None:
            return self._final[0]
        run, fold = self._run, self.fold
        assert run is not None
        result = run.outcome
        root = next(iter(fold.runs), None)
        stopping = fold.cancelling if result is None else None
        return RunInfo(
            plan=self.plan,
            epoch=self._epoch,
            status=run.status,
            seq=fold.seq,
            usage=result.usage if result else fold.usage,
            cost=result.cost if result else None,
            text=run.text,
            output=result.output if result else None,
            error=failure_of(result.error) if result and result.error is not None and result.is_failed else None,
            cancelling=_cancellation(stopping),
            cancellation=result.cancellation if result else None,
            receipt=result.receipt if result else None,
            started_at=root.started_at if root else None,
            ended_at=self.ended_at,
            runs=fold.runs,
            inputs=fold.inputs if result is None else (),
            is_live=result is None,
        )

    def end(self) -> None:
        """The run is over: notes when."""
        self.ended_at = time.time()

    def size(self) -> int:
        """About as many bytes of memory as its log takes."""
        return 0 if self._run is None else self.fold.seq * BYTES_PER_EVENT + len(self._run.text)

    def let_go(self) -> None:
        """Keeps the record and the last state, and lets the log go."""
        if self._run is not None and self._run.is_done:
            self._final = replace(self.info(), has_log=False), self._fold.snapshot(with_text=False)
            self._run = self._presence = None
            self._fold = _ended(self._fold)


def _ended(fold: Fold) -> Fold:
    """A fold that knows the terminal event and nothing else."""
    rest = Fold(fold.run_id)
    rest.seq, rest.terminal = fold.seq, fold.terminal
    return rest


def _cancellation(state: CancellingState | None) -> Cancellation | None:
    return None if state is None else Cancellation(**asdict(state))
