"""Merging: a stretch of deltas packed into columns, and read back from any point.

1. Nothing but the cut points fades: the text of every delta is kept, and so is its number. 2. Reading after any
number gives exactly what came after it. 3. Neighbouring deltas of one message come back as one event that covers
`first_seq … seq`; those of messages that were streamed side by side keep their order. 4. A call's pieces from before
its name was known come back apart from those that have it.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Sequence
from itertools import accumulate, groupby
from typing import Any, TypeAlias

import msgspec

from halter.events import Event, ReasoningDelta, TextDelta, ToolArgumentsDelta, ToolProgress

Delta: TypeAlias = TextDelta | ReasoningDelta | ToolArgumentsDelta | ToolProgress
PLAIN_DELTAS = frozenset((TextDelta, ReasoningDelta, ToolArgumentsDelta))


def is_delta(event: Event) -> bool:
    """True if it may be merged with its neighbours: what carries data beside its text may not."""
    return type(event) in PLAIN_DELTAS or (isinstance(event, ToolProgress) and event.data is None)


class Stretch:
    """Deltas with consecutive numbers, packed: their text, and 6 bytes for each."""

    __slots__ = ("_ends", "_first_seq", "_samples", "_text", "_which", "last_seq")

    def __init__(self, deltas: Sequence[Delta]) -> None:
        self._first_seq = deltas[0].first_seq
        self.last_seq = deltas[-1].seq
        self._samples: list[Delta] = []  # one delta of each stream; `_which` says whose each one is
        self._which = array("H")
        texts = self._sorted_into_streams(deltas)
        self._ends = array("I", accumulate(map(len, texts)))
        self._text = "".join(texts)

    def _sorted_into_streams(self, deltas: Sequence[Any]) -> list[str]:
        """Notes for each delta which stream it belongs to; returns the texts. Every token passes here: one loop."""
        places: dict[tuple[type, str | tuple[str, ...]], int] = {}
        texts: list[str] = []
        place = 0
        last_kind: type | None = None
        last_of: str | tuple[str, ...] | None = None
        for delta in deltas:
            kind: type = type(delta)  # pyright: ignore[reportUnknownVariableType]
            # A message's id is our own; a call's is the provider's, and another run of the tree may have the same.
            of: str | tuple[str, ...]
            if kind is TextDelta or kind is ReasoningDelta:
                of = delta.message_id
            elif kind is ToolArgumentsDelta:
                of = (delta.run_id, delta.call_id, delta.name)
            else:
                of = (delta.run_id, delta.call_id)
            if of is not last_of or kind is not last_kind:
                place = places.setdefault((kind, of), len(places))
                if place == len(self._samples):
                    self._samples.append(delta)
                last_kind, last_of = kind, of
            self._which.append(place)
            texts.append(delta.fragment if kind is ToolArgumentsDelta else delta.text)
        return texts

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
    deltas: list[Any] = []
    for event in events:
        if is_delta(event):
            deltas.append(event)
        else:
            packed.extend((*_packed(deltas), event))
            deltas = []
    return [*packed, *_packed(deltas)]


def _packed(deltas: list[Any]) -> list[Entry]:
    return [Stretch(deltas)] if len(deltas) > 1 else deltas


def unpack(entry: Entry, after: int) -> Sequence[Event]:
    """What the entry holds after the number `after`."""
    return entry.read(after) if isinstance(entry, Stretch) else (entry,)
