"""Merging: a stretch of deltas packed into columns, and read back from any point.

1. Nothing but the cut points fades: the text of every delta is kept, and so is its number. 2. Reading after any
number gives exactly what came after it. 3. Neighbouring deltas of one message come back as one event that covers
`first_seq … seq`; those of messages that were streamed side by side keep their order.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby
from typing import TypeAlias

import msgspec

from halter.events import Event, ReasoningDelta, TextDelta, ToolArgumentsDelta, ToolProgress

Delta: TypeAlias = TextDelta | ReasoningDelta | ToolArgumentsDelta | ToolProgress
DELTAS = (TextDelta, ReasoningDelta, ToolArgumentsDelta, ToolProgress)


def is_delta(event: Event) -> bool:
    """True if it may be merged with its neighbours."""
    return isinstance(event, DELTAS) and getattr(event, "data", None) is None


def _text(delta: Delta) -> str:
    return delta.fragment if isinstance(delta, ToolArgumentsDelta) else delta.text


def _stream(delta: Delta) -> tuple[type, str, str]:
    """What a delta belongs to: deltas of one stream may be merged."""
    of = delta.message_id if isinstance(delta, TextDelta | ReasoningDelta) else delta.call_id
    return type(delta), delta.run_id, of


class Stretch:
    """Deltas with consecutive numbers, packed: their text, and 6 bytes for each."""

    __slots__ = ("_ends", "_first_seq", "_samples", "_text", "_which", "last_seq")

    def __init__(self, deltas: Sequence[Delta]) -> None:
        self._first_seq = deltas[0].first_seq
        self.last_seq = deltas[-1].seq
        self._samples: list[Delta] = []
        self._which = array("H")
        self._ends = array("I")
        self._text = "".join(self._columns(deltas))

    def _columns(self, deltas: Sequence[Delta]) -> Iterator[str]:
        places: dict[tuple[type, str, str], int] = {}
        end = 0
        for delta in deltas:
            place = places.setdefault(_stream(delta), len(places))
            if place == len(self._samples):
                self._samples.append(delta)
            text = _text(delta)
            end += len(text)
            self._which.append(place)
            self._ends.append(end)
            yield text

    def read(self, after: int) -> list[Event]:
        """What came after the number `after`, merged where neighbours belong to one message."""
        skip = max(0, after + 1 - self._first_seq)
        places = range(skip, len(self._which))
        return [self._merged(list(group)) for _, group in groupby(places, self._which.__getitem__)]

    def _merged(self, places: list[int]) -> Event:
        first, last = places[0], places[-1]
        text = self._text[self._ends[first - 1] if first else 0 : self._ends[last]]
        sample = self._samples[self._which[first]]
        field = "fragment" if isinstance(sample, ToolArgumentsDelta) else "text"
        numbers = {"first_seq": self._first_seq + first, "seq": self._first_seq + last}
        return msgspec.structs.replace(sample, **numbers, **{field: text})


Entry: TypeAlias = Event | Stretch


def last_seq(entry: Entry) -> int:
    """The number of the newest event in it."""
    return entry.last_seq if isinstance(entry, Stretch) else entry.seq


def pack(events: Iterable[Event]) -> list[Entry]:
    """The events with each run of deltas packed; everything else as it is, in the same order."""
    packed: list[Entry] = []
    for mergeable, group in groupby(events, is_delta):
        members = list(group)
        if mergeable and len(members) > 1:
            packed.append(Stretch(members))  # pyright: ignore[reportArgumentType]  # groupby loses the type
        else:
            packed.extend(members)
    return packed


def unpack(entry: Entry, after: int) -> Sequence[Event]:
    """What the entry holds after the number `after`."""
    return entry.read(after) if isinstance(entry, Stretch) else (entry,)
