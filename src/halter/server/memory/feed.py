"""One reader's way through the log of a run of this process."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from halter.core.reader import EventReader
from halter.core.run import Run
from halter.events import Event
from halter.server.port import Opening
from halter.snapshot import Fold, Snapshot


class LocalFeed:
    """Reads a run of this process.

    Args:
        run: a handle that does not own it.
        epoch: part of each cursor.
        fold: the run's events so far, shared by all its readers; left out, the feed makes one.
    """

    def __init__(self, run: Run[Any], epoch: int, fold: Fold | None = None) -> None:
        self.epoch = epoch
        self._run = run
        self._fold = fold or Fold(run.id)
        self._reader: EventReader | None = None

    async def open(self, after: int | None) -> Opening:
        """See `EventFeed.open`."""
        catch_up(self._fold, self._run)
        head = self._fold.seq
        if after is not None and after > head:
            return self._from(None, head, gap=(head + 1, after))
        if after is not None and self._run.is_done and after >= head:
            return Opening(self._fold.snapshot(with_text=False), None, at_end=True)
        return self._from(after, head, gap=None)

    def _from(self, after: int | None, head: int, gap: tuple[int, int] | None) -> Opening:
        if after is None:
            snapshot = self._fold.snapshot()
            # Who comes after the end still gets the terminal event, which says that it is over.
            self._reader = self._run.events(after=head - 1 if self._run.is_done else head)
        else:
            snapshot = _as_of(self._run, after)
            self._reader = self._run.events(after=after)
        return Opening(snapshot, gap, at_end=False)

    async def next_batch(self) -> Sequence[Event]:
        """See `EventFeed.next_batch`."""
        assert self._reader is not None
        return await self._reader.next_batch()

    def close(self) -> None:
        """See `EventFeed.close`."""
        if self._reader is not None:
            self._reader.close()


def catch_up(fold: Fold, run: Run[Any]) -> None:
    """Folds what has been written since the last look. It reads the log of the run's tree; nobody notices."""
    reader = run.events(after=fold.seq)
    while batch := reader.ready():
        fold.apply(batch)


def _as_of(run: Run[Any], seq: int) -> Snapshot:
    """The state after the event `seq`, without texts: the client has them."""
    fold = Fold(run.id)
    reader = run.events(after=0)
    while fold.seq < seq and (batch := reader.ready()):
        # A merged delta may reach beyond `seq`: it changes nothing but text, which is not shown.
        fold.apply([event for event in batch if getattr(event, "first_seq", event.seq) <= seq])
        if batch[-1].seq >= seq:
            break
    fold.seq = seq
    return fold.snapshot(with_text=False)
