"""The log of one tree of runs, and its readers.

1. Only the home loop's thread appends; `seq` is dense. 2. Readers are cursors: they hold a number and share the
events. 3. The newest `RECENT` events are kept as they came, older deltas packed (`fold.py`). 4. Content is never
dropped. 5. A log that has ended never grows. 6. The log knows its readers weakly: a dropped reader is gone.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Sequence
from typing import Protocol
from weakref import ref

from halter.core.fold import Entry, last_seq, pack, unpack
from halter.core.lockfree import Wakers, snapshot
from halter.events import Event

RECENT = 4_096
PACKED_AT_ONCE = 1_024
LAG_LIMIT = 1_024

# Called with every event of every log, on the loop that appends it; see `observers.py`.
publish: Callable[[Event], None] | None = None


class Cursor(Protocol):
    """What back-pressure needs to know of a reader. `inside`: it is read by the tree itself."""

    is_active: bool
    inside: bool

    @property
    def at(self) -> int: ...


class Window:
    """The newest events; replaced as a whole, so that readers in other threads see one consistent pair."""

    __slots__ = ("base", "events")

    def __init__(self, base: int, events: list[Event]) -> None:
        self.base = base
        self.events = events


class Log:
    __slots__ = (
        "_archive",
        "_archived",
        "_lifts",
        "_look_again_at",
        "_readers",
        "arrived",
        "ended",
        "head",
        "resumed",
        "window",
    )

    def __init__(self) -> None:
        self.head = 0
        self.window = Window(1, [])
        self.ended = False
        self.arrived = Wakers()
        self.resumed = Wakers()
        self._lifts: dict[object, bool] = {}  # who waits for a run's end: inside the tree, or outside
        self._archive: list[Entry] = []
        self._archived: list[int] = []  # the last number in each entry of the archive
        self._readers: dict[int, ref[Cursor]] = {}
        self._look_again_at = LAG_LIMIT

    def append(self, event: Event) -> None:
        """Adds the event with the next number. Home loop only; never waits."""
        self.head = event.seq
        events = self.window.events
        events.append(event)
        if self.arrived.waiting:
            self.arrived.wake()
        if publish is not None:
            publish(event)
        if len(events) >= RECENT + PACKED_AT_ONCE:
            self._fold()

    def _fold(self) -> None:
        window = self.window
        for entry in pack(window.events[:PACKED_AT_ONCE]):
            self._archive.append(entry)
            self._archived.append(last_seq(entry))
        self.window = Window(window.base + PACKED_AT_ONCE, window.events[PACKED_AT_ONCE:])

    def read(self, after: int, most: int) -> Sequence[Event]:
        """What there is now after the number `after`: a batch of about `most`, empty if there is nothing yet."""
        window = self.window
        place = after + 1 - window.base
        if place >= 0:
            return window.events[place : place + most]
        place = bisect_right(self._archived, after)
        return unpack(self._archive[place], after)

    # --- back-pressure --------------------------------------------------------------------------------------

    def add_reader(self, reader: Cursor) -> None:
        key = id(reader)

        def dropped(_: ref[Cursor]) -> None:
            self._readers.pop(key, None)
            self.resumed.wake(threadsafe=True)

        self._readers[key] = ref(reader, dropped)
        self._look_again_at = 0

    def lift(self, *, inside: bool = False) -> Callable[[], None]:
        """From now on nothing is held back for readers, or for those `inside`, until what this returns is called."""
        key = object()
        self._lifts[key] = inside
        self.resumed.wake(threadsafe=True)

        def hold() -> None:
            self._lifts.pop(key, None)
            self._look_again_at = 0

        return hold

    def is_too_far_ahead(self) -> bool:
        """True if the readers outside, or those inside the tree, are all more than `LAG_LIMIT` behind."""
        if self.head < self._look_again_at:
            return False
        lag = self._lag()
        self._look_again_at = self.head + max(0, LAG_LIMIT - lag)
        return lag >= LAG_LIMIT

    def is_held(self) -> bool:
        """True while what was too far ahead should go on waiting."""
        return self._lag() > LAG_LIMIT // 2

    def _lag(self) -> int:
        lifts = snapshot(self._lifts)
        if False in lifts:
            return 0
        foremost: dict[bool, int] = {}
        for reference in snapshot(self._readers):
            reader = reference()
            if reader is not None and reader.is_active and not (reader.inside and lifts):
                foremost[reader.inside] = max(reader.at, foremost.get(reader.inside, 0))
        return max((self.head - at for at in foremost.values()), default=0)
