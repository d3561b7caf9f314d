"""What is kept and shown of a program's output: any bytes, in any pieces, in bounded memory."""

from __future__ import annotations

import asyncio
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from halter.tools.bounds import head_and_tail
from halter.tools.output import SHOWN_EVERY, Output, Showing

TEXT = st.text(alphabet="ab\n€😀é", max_size=80)


def pieces(data: bytes, cuts: list[int]) -> list[bytes]:
    edges = [0, *sorted(cut % (len(data) + 1) for cut in cuts), len(data)]
    return [data[start:end] for start, end in pairwise(edges)]


@given(TEXT, st.lists(st.integers(0, 1000), max_size=20), st.integers(1, 50))
def test_however_it_comes_the_head_and_the_tail_are_kept(text: str, cuts: list[int], limit: int) -> None:
    """Characters of several bytes are cut anywhere; looking in between changes nothing."""
    output = Output(limit)
    shown = ""
    for piece in pieces(text.encode(), cuts):
        shown += output.feed(piece)
        assert output.total == len(shown)
        assert len(output.text) <= limit + 60
    shown += output.finish()
    assert shown == text
    assert output.text == head_and_tail(text, limit)


@given(st.binary(max_size=200), st.lists(st.integers(0, 1000), max_size=20))
def test_any_bytes_are_some_text(data: bytes, cuts: list[int]) -> None:
    output = Output(1000)
    for piece in pieces(data, cuts):
        output.feed(piece)
    output.finish()
    assert output.text == data.decode("utf-8", "replace")


def test_the_next_output_begins_with_the_half_character_of_the_last() -> None:
    output = Output(10)
    output.feed("a€".encode()[:3])
    next = output.successor()
    next.feed("€".encode()[2:])
    assert (output.text, next.text) == ("a", "€")


def showing(limit: int = 1000) -> tuple[Showing, list[str]]:
    shown: list[str] = []
    return Showing(shown.append, limit, asyncio.get_running_loop().call_later), shown


@pytest.mark.virtual_time
async def test_the_first_piece_is_shown_at_once_and_the_next_ones_together() -> None:
    it, shown = showing()
    for word in ("a", "b", "c"):
        it.add(word)
    assert shown == ["a"]
    await asyncio.sleep(SHOWN_EVERY * 1.5)
    assert shown == ["a", "bc"]
    await asyncio.sleep(SHOWN_EVERY * 2)
    it.add("d")
    assert shown == ["a", "bc", "d"], "it had been quiet"


@pytest.mark.virtual_time
async def test_there_are_twenty_pieces_a_second_at_most() -> None:
    it, shown = showing()
    for _ in range(500):
        it.add(".")
        await asyncio.sleep(0.002)
    it.flush()
    assert "".join(shown) == "." * 500
    assert len(shown) <= 22


@pytest.mark.virtual_time
async def test_beyond_the_limit_it_is_said_once_that_there_is_more() -> None:
    it, shown = showing(limit=5)
    for word in ("abc", "def", "ghi", ""):
        it.add(word)
        await asyncio.sleep(1)
    it.flush()
    assert "".join(shown) == "abcde\n… the rest is not shown as it comes …\n"


@pytest.mark.virtual_time
async def test_what_waits_is_shown_at_the_end() -> None:
    it, shown = showing()
    it.add("a")
    it.add("b")
    it.flush()
    it.flush()
    assert shown == ["a", "b"]
