"""One run that this process carries or has carried."""

from __future__ import annotations

import time
from typing import Any

from msgspec.structs import asdict, replace

from halter.core.run import Run
from halter.events import failure_of
from halter.outcome import Cancellation, RunStatus
from halter.server.ended import feed_of
from halter.server.memory.feed import LocalFeed, catch_up
from halter.server.memory.kept import KeptRun
from halter.server.port import EventFeed, RunInfo, RunPlan
from halter.server.presence import Presence
from halter.snapshot import CancellingState, Fold, InputState

BYTES_PER_EVENT = 250  # about as much memory as one event takes in the log


class Entry:
    """A run with its log while that is kept, and a small record of it afterwards."""

    __slots__ = ("_epoch", "_fold", "_kept", "_presence", "_run", "ended_at", "plan")

    def __init__(self, plan: RunPlan, run: Run[Any], epoch: int) -> None:
        self.plan = plan
        self.ended_at: float | None = None
        self._epoch = epoch
        self._run: Run[Any] | None = run
        self._presence: Presence | None = Presence(run, plan.on_disconnect, plan.linger, plan.actor)
        self._fold: Fold | None = Fold(run.id)
        self._kept: KeptRun | None = None

    @property
    def run(self) -> Run[Any] | None:
        """The handle; `None` once the log was let go of."""
        return self._run

    @property
    def presence(self) -> Presence | None:
        """Who is connected to it; `None` once the log was let go of."""
        return self._presence

    @property
    def is_over(self) -> bool:
        return self._run is None or self._run.is_done

    @property
    def status(self) -> RunStatus:
        """Where the run is."""
        if self._run is not None:
            return self._run.status
        assert self._kept is not None
        return self._kept.status

    @property
    def inputs(self) -> tuple[InputState, ...]:
        """The questions of the run that are open."""
        return () if self.is_over else self._caught_up().inputs

    def feed(self) -> EventFeed:
        """A new reader."""
        if self._run is not None:
            return LocalFeed(self._run, self._epoch, self._fold)
        return feed_of(self.info())

    def info(self) -> RunInfo:
        """The run as it is now."""
        if self._kept is not None:
            return self._kept.info(self.plan)
        run, fold = self._run, self._caught_up()
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
        """About as many bytes of memory as its log takes, with what was asked."""
        if self._run is None:
            return 0
        return self._caught_up().seq * BYTES_PER_EVENT + len(self._run.text) + self.plan.size

    def let_go(self) -> None:
        """Keeps a small record of a run that is over, and lets its log go."""
        if self._run is not None and self._run.is_done:
            self._kept = KeptRun(self.info())
            self.plan = replace(self.plan, metadata={})  # as large as its client likes
            self._run = self._presence = self._fold = None

    def _caught_up(self) -> Fold:
        """The state as of the newest event."""
        assert self._run is not None
        assert self._fold is not None
        catch_up(self._fold, self._run)
        return self._fold


def _cancellation(state: CancellingState | None) -> Cancellation | None:
    return None if state is None else Cancellation(**asdict(state))
