"""Merging: reading after any number gives exactly the rest, whatever was streamed side by side."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from halter import events
from halter.core.fold import Stretch, is_delta, last_seq, pack, unpack

STAMP: dict[str, Any] = {"run_id": "r", "parent_id": None, "root_id": "r", "at": 1.0, "agent": "a", "task": None}
TEXTS = st.text(max_size=4)


def delta(seq: int, stream: int, text: str) -> Any:
    """A delta of one of six streams that may be interleaved: two of each kind, and two of progress."""
    stamp = {**STAMP, "seq": seq, "first_seq": seq}
    match stream:
        case 0 | 1:
            return events.TextDelta(text=text, message_id=f"m{stream}", **stamp)
        case 2 | 3:
            return events.ReasoningDelta(text=text, message_id=f"m{stream - 2}", **stamp)
        case 4:
            # Two runs of a tree may have calls with the same id: some providers count from 0 in each answer.
            return events.ToolArgumentsDelta(fragment=text, call_id="c", **{**stamp, "run_id": f"r{seq % 2}"})
        case _:
            return events.ToolProgress(text=text, call_id="c", **stamp)


def spelled(event: Any) -> list[tuple[str, ...]]:
    """What an event says, letter by letter, each with the stream it belongs to."""
    of = getattr(event, "message_id", None) or event.call_id
    text = event.fragment if isinstance(event, events.ToolArgumentsDelta) else event.text
    return [(event.type, event.run_id, of, letter) for letter in text]


def letters(read: Any) -> list[tuple[str, ...]]:
    return [letter for event in read for letter in spelled(event)]


@st.composite
def stretches(draw: Any) -> list[Any]:
    first = draw(st.integers(1, 1000))
    parts = draw(st.lists(st.tuples(st.integers(0, 5), TEXTS), min_size=1, max_size=30))
    return [delta(first + place, stream, text) for place, (stream, text) in enumerate(parts)]


@given(stretches(), st.data())
def test_reading_after_any_number_gives_exactly_the_rest(deltas: list[Any], data: st.DataObject) -> None:
    """No letter is lost, none comes twice, and they keep their order, also across interleaved messages."""
    first, last = deltas[0].seq, deltas[-1].seq
    after = data.draw(st.integers(first - 1, last))
    read = Stretch(deltas).read(after)
    assert letters(read) == letters(d for d in deltas if d.seq > after)
    assert Stretch(deltas).last_seq == last


@given(stretches(), st.data())
def test_merged_events_cover_the_rest_without_a_hole(deltas: list[Any], data: st.DataObject) -> None:
    """`first_seq … seq` of what is read back: dense from `after + 1` to the end."""
    first, last = deltas[0].seq, deltas[-1].seq
    after = data.draw(st.integers(first - 1, last))
    read: list[Any] = Stretch(deltas).read(after)
    covered = [number for event in read for number in range(event.first_seq, event.seq + 1)]
    assert covered == list(range(after + 1, last + 1))


@given(stretches())
def test_neighbours_of_one_message_come_back_as_one_event(deltas: list[Any]) -> None:
    """There are as many events as there are changes from one stream to another."""
    streams = [(type(d), d.run_id, getattr(d, "message_id", None) or d.call_id) for d in deltas]
    changes = 1 + sum(here != before for before, here in pairwise(streams))
    read = Stretch(deltas).read(0)
    assert len(read) == changes
    assert all(event.agent == "a" and event.root_id == "r" for event in read)  # pyright: ignore


@given(st.lists(st.tuples(st.integers(0, 7), TEXTS), max_size=40), st.data())
def test_packing_keeps_everything_else_as_it_is_and_in_its_place(
    parts: list[tuple[int, str]], data: st.DataObject
) -> None:
    """Structural events come back the very same; progress with data is never merged."""
    log: list[Any] = []
    for seq, (stream, text) in enumerate(parts, 1):
        if stream == 6:
            log.append(events.Custom(seq=seq, name="x", data=text, **STAMP))
        elif stream == 7:
            stamp = {**STAMP, "seq": seq, "first_seq": seq}
            log.append(events.ToolProgress(text=text, call_id="c", data={"n": seq}, **stamp))
        else:
            log.append(delta(seq, stream, text))
    packed = pack(log)
    assert [last_seq(entry) for entry in packed] == sorted({last_seq(entry) for entry in packed})
    after = data.draw(st.integers(0, len(log)))
    read = [event for entry in packed if last_seq(entry) > after for event in unpack(entry, after)]
    rest = log[after:]
    assert [e for e in read if not is_delta(e)] == [e for e in rest if not is_delta(e)]
    assert letters(e for e in read if is_delta(e)) == letters(e for e in rest if is_delta(e))
    assert [e.seq for e in read] == sorted(e.seq for e in read)


def test_a_calls_name_is_on_every_piece_from_the_first_that_had_it() -> None:
    """Some providers say the name after the first piece of the arguments."""
    stamps = [{**STAMP, "seq": seq, "first_seq": seq, "call_id": "c"} for seq in range(1, 6)]
    pieces = zip("abcde", ("", "", "look", "look", "look"), stamps, strict=True)
    stretch = Stretch([events.ToolArgumentsDelta(fragment=text, name=name, **stamp) for text, name, stamp in pieces])
    for after, told in ((0, [("ab", ""), ("cde", "look")]), (1, [("b", ""), ("cde", "look")]), (3, [("de", "look")])):
        assert [(event.fragment, event.name) for event in stretch.read(after)] == told  # pyright: ignore


def test_reading_a_merged_stretch_does_not_change_it() -> None:
    """Any number of readers, at any time, get the same."""
    stretch = Stretch([delta(seq, 0, str(seq)) for seq in range(1, 6)])
    assert stretch.read(2) == stretch.read(2)
    assert letters(stretch.read(0)) == [("text.delta", "r", "m0", letter) for letter in "12345"]
