"""What is known of a run on a server: its events so far, the state folded from them, and how it ended.

1. Only the background loop writes. 2. Readers hold a place in the list of events; the list only grows. 3. Wakers are
told after each change.
"""

from __future__ import annotations

from typing import Any, TypeAlias

from halter import events
from halter.core.lockfree import Wakers
from halter.errors import RemoteError
from halter.messages import Message
from halter.outcome import Cancellation, RunResult, RunStatus
from halter.snapshot import Fold

Terminal: TypeAlias = events.Completed | events.Failed | events.Cancelled


class RemoteState:
    """One run, as far as its stream has told."""

    def __init__(self, run_id: str) -> None:
        self.run_id = run_id
        self.events: list[events.AnyEvent] = []
        self.changed = Wakers()
        self.result: RunResult[Any] | None = None
        self.error: BaseException | None = None  # why it can be followed no longer
        self.gaps: list[tuple[int, int | None]] = []
        self.epoch: str | None = None
        self.seq = 0
        self._fold = Fold(run_id)
        self._text: list[str] = []
        self._shown_before = ""  # text that a snapshot told, whose events are lost
        self._stop: events.Cancelling | None = None

    @property
    def is_over(self) -> bool:
        """It ended, or nothing more can be known of it."""
        return self.result is not None or self.error is not None

    @property
    def status(self) -> RunStatus:
        """Where the run is, as far as is known."""
        return self.result.status if self.result is not None else self._fold.status

    @property
    def text(self) -> str:
        """The run's own answer so far."""
        return self.result.text if self.result is not None else self._shown_before + "".join(self._text)

    @property
    def cursor(self) -> str | None:
        """What to resume with; `None` before the first frame."""
        return None if self.epoch is None else f"{self.epoch}.{self.seq}"

    # --- told by the stream ---------------------------------------------------------------------------------

    def place(self, snapshot: dict[str, Any], gap: tuple[int, int | None] | None) -> None:
        """A connection begins. After a gap, the text so far is the snapshot's."""
        self.epoch, _, seq = str(snapshot["cursor"]).rpartition(".")
        if gap is not None:
            self.gaps.append(gap)
            self.seq = int(seq)
            self._text.clear()
            own = [each for each in snapshot["messages"] if each["run_id"] == self.run_id]
            self._shown_before = own[-1]["text"] if own else ""

    def take(self, found: list[events.AnyEvent]) -> None:
        """The next events; those that are known already are passed over."""
        new = [event for event in found if event.seq > self.seq or self._is_the_end(event)]
        if not new:
            return
        self.seq = new[-1].seq
        self._fold.apply(new)
        self.events.extend(new)
        for event in new:
            self._note(event)
        self.changed.wake(threadsafe=True)

    def _is_the_end(self, event: events.AnyEvent) -> bool:
        """The terminal event, which a server sends behind the snapshot of a run that is over."""
        return event.is_terminal and event.run_id == self.run_id and self.result is None

    def _note(self, event: events.AnyEvent) -> None:
        if event.run_id != self.run_id:
            return
        if type(event) is events.TextDelta:
            self._text.append(event.text)
        elif type(event) is events.Cancelling:
            self._stop = self._stop or event
        elif isinstance(event, events.Completed | events.Failed | events.Cancelled):
            self._end(event)

    def _end(self, event: Terminal) -> None:
        is_failed = isinstance(event, events.Failed)
        self.result = RunResult(
            run_id=self.run_id,
            status=self._fold.status,
            output=event.output if isinstance(event, events.Completed) else None,
            text=event.text,
            messages=self._messages(),
            usage=event.usage,
            cost=None,
            error=RemoteError(event.error.message, kind=event.error.type) if is_failed else None,
            cancellation=self._cancellation(event) if isinstance(event, events.Cancelled) else None,
            receipt=event.receipt if isinstance(event, events.Cancelled) else None,
        )

    def _cancellation(self, event: events.Cancelled) -> Cancellation:
        stop = self._stop
        return Cancellation(
            reason=event.reason,
            mode=event.mode,
            actor=stop.actor if stop else None,
            message=stop.message if stop else None,
            at=event.receipt.requested_at,
        )

    def _messages(self) -> tuple[Message, ...]:
        return tuple(
            event.message
            for event in self.events
            if isinstance(event, events.MessageFinished) and event.run_id == self.run_id
        )

    def fail(self, error: BaseException) -> None:
        """Nothing more can be known of it."""
        if not self.is_over:
            self.error = error
            self.changed.wake(threadsafe=True)
