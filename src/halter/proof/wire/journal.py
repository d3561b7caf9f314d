"""All records, and those who wait for them.

A request enters each state at most once, so a waiter only counts down: an arrival costs
O(waiters), not O(records).
"""

from collections.abc import Callable, Iterator

import msgspec

from halter.proof.wire.records import Record, State


class Waiter(msgspec.Struct, eq=False):
    """Somebody who wants `missing` more requests with `tag` (None: any) to reach `state`."""

    state: State
    tag: str | None
    missing: int
    done: Callable[[], None]

    def wants(self, record: Record, state: State) -> bool:
        return state == self.state and self.tag in (None, record.tag)


class Journal:
    """The records since the start or the last `clear()`, by arrival."""

    def __init__(self) -> None:
        self.total = 0
        self._records: list[Record] = []
        self._waiters: list[Waiter] = []
        self._last_id = 0
        self._forgotten = 0

    def __repr__(self) -> str:
        return f"<Journal of {len(self._records)} requests, {len(self._waiters)} waiting>"

    def next_id(self) -> int:
        self._last_id += 1
        return self._last_id

    def add(self, record: Record) -> None:
        self.total += 1
        self._records.append(record)
        self.entered(record, "started")

    def entered(self, record: Record, state: State) -> None:
        """Tell the waiters that `record` has just entered `state`."""
        if record.id <= self._forgotten:
            return
        for waiter in [w for w in self._waiters if w.wants(record, state)]:
            waiter.missing -= 1
            if waiter.missing == 0:
                self._waiters.remove(waiter)
                waiter.done()

    def select(self, tag: str | None = None, after: int = 0) -> list[Record]:
        return list(self._matching(tag, after))

    def wait(self, state: State, tag: str | None, count: int, done: Callable[[], None]) -> Waiter | None:
        """Call `done` once `count` requests have reached `state`; None (and no call) if they have already."""
        reached = sum(record.has_reached(state) for record in self._matching(tag))
        if reached >= count:
            return None
        waiter = Waiter(state, tag, count - reached, done)
        self._waiters.append(waiter)
        return waiter

    def forget(self, waiter: Waiter) -> None:
        if waiter in self._waiters:
            self._waiters.remove(waiter)

    def clear(self) -> None:
        """Drop all records. Requests in flight go on, but are neither listed nor waited for any more."""
        self._forgotten = self._last_id
        self._records.clear()

    def _matching(self, tag: str | None, after: int = 0) -> Iterator[Record]:
        return (r for r in self._records if r.id > after and tag in (None, r.tag))
