"""F60: server-sent events, however they are cut, ended and dressed."""

from __future__ import annotations

import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from halter.core import sse
from halter.core.sse import FrameSplitter, encode_frame
from halter.errors import MalformedStream
from halter.testing import split_sweep

pytestmark = pytest.mark.scenario("F60")


def split(chunks: list[bytes]) -> list[bytes]:
    splitter = FrameSplitter()
    frames = [frame for chunk in chunks for frame in splitter.feed(chunk)]
    return frames + splitter.close()


def one_by_one(data: bytes) -> list[bytes]:
    return [data[place : place + 1] for place in range(len(data))]


def test_a_four_byte_character_may_be_cut_at_each_offset() -> None:
    """The splitter works on bytes: half a character waits for the other half."""
    assert split_sweep(split, 'data: {"a":"😀é"}\n\ndata: 😀\n\n'.encode(), every=1) > 30


DRESSES = {
    "LF": b"data: one\n\ndata: two\n\n",
    "CRLF": b"data: one\r\n\r\ndata: two\r\n\r\n",
    "CR": b"data: one\r\rdata: two\r\r",
    "line ends mixed": b"data: one\r\n\ndata: two\n\r\n",
    "no space": b"data:one\n\ndata:two\n\n",
    "comments": b": hello\n\n:\ndata: one\n: between\n\n: ping\n\ndata: two\n\n",
    "other fields": b"event: a\nid: 7\ndata: one\n\nretry: 10\n\ndata: two\nevent: b\nunknown\n\n",
    "a BOM": b"\xef\xbb\xbfdata: one\n\ndata: two\n\n",
    "a BOM before CRLF": b"\xef\xbb\xbfdata: one\r\n\r\ndata: two\r\n\r\n",
    "more blank lines": b"\n\n\ndata: one\n\n\n\n\ndata: two\n\n\n",
    "no blank line at the end": b"data: one\n\ndata: two",
    "one line end at the end": b"data: one\n\ndata: two\n",
    "CR at the end": b"data: one\r\n\r\ndata: two\r",
}


@pytest.mark.parametrize("dress", DRESSES)
def test_the_frames_are_the_same_in_every_dress(dress: str) -> None:
    """Line ends, spaces, comments, other fields, a BOM and blank lines make no difference, wherever they are cut."""
    split_sweep(split, DRESSES[dress], every=1, expected=[b"one", b"two"])


def test_several_data_lines_are_one_frame_joined_with_line_feeds() -> None:
    """Also empty ones, and a field name alone, in their order (WHATWG HTML, 9.2.6)."""
    body = b"data: a\ndata:\ndata:  b\n\ndata\ndata: c\n\ndata:\n\ndata\ndata\n\n"
    split_sweep(split, body, every=1, expected=[b"a\n\n b", b"\nc", b"", b"\n"])


def test_a_field_whose_name_only_begins_with_data_is_not_data() -> None:
    """`dataset:` and ` data:` are unknown fields."""
    assert split([b"dataset: x\n data: y\n\ndata: z\n\n"]) == [b"z"]


def test_a_large_frame_that_comes_byte_by_byte_takes_linear_time() -> None:
    """2 MB in reads of one byte: less than two seconds."""
    data = b"x" * 2_000_000
    chunks = one_by_one(b"data: " + data + b"\n\n")
    began = time.process_time()
    frames = split(chunks)
    assert time.process_time() - began < 2
    assert frames == [data]


def test_ten_thousand_frames_in_one_read_are_ten_thousand_frames() -> None:
    """No frame of a large read is lost or merged."""
    wanted = [b"%d" % number for number in range(10_000)]
    assert split([b"".join(encode_frame(data) for data in wanted)]) == wanted


def test_a_frame_without_end_is_refused_before_it_fills_the_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    """More than `LARGEST_FRAME` bytes without a blank line: `MalformedStream`."""
    monkeypatch.setattr(sse, "LARGEST_FRAME", 1000)
    splitter = FrameSplitter()
    splitter.feed(b"data: " + b"x" * 900)
    with pytest.raises(MalformedStream, match="more than 1000 bytes"):
        splitter.feed(b"x" * 200)


def test_an_encoded_frame_is_split_into_its_data_again() -> None:
    """Event and id are dressed around it, and not kept."""
    assert split([encode_frame(b'{"a":1}', event="delta", id="7")]) == [b'{"a":1}']


LINES = st.sampled_from([b"data: a", b"data:b", b"data", b"", b": c", b"event: d", b"\xef\xbb\xbf", b"dat", b"\xff"])
ENDS = st.sampled_from([b"\n", b"\r\n", b"\r"])


@given(st.lists(st.tuples(LINES, ENDS), max_size=20), st.lists(st.integers(0, 200), max_size=10))
@settings(deadline=None)
def test_any_cut_of_any_lines_gives_the_same_frames(lines: list[tuple[bytes, bytes]], places: list[int]) -> None:
    """Cut into any parts, empty ones included, the frames are those of the whole."""
    body = b"".join(line + end for line, end in lines)
    cuts = sorted(min(place, len(body)) for place in places)
    chunks = [body[start:end] for start, end in zip([0, *cuts], [*cuts, len(body)], strict=True)]
    assert split(chunks) == split([body]) == split(one_by_one(body))
