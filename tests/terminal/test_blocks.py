"""Markdown in the making: blocks are whole, nothing is lost, and no block grows without end."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from halter.terminal.blocks import LONGEST_LINES, Blocks

PIECES = st.lists(
    st.sampled_from(
        ["word ", "\n", "\n\n", "- item", "1. one", "```py\n", "```\n", "# head\n", "| a | b |\n", "  deep", "~~~\n"]
    ),
    max_size=60,
)


def blocks_of(*pieces: str) -> list[str]:
    blocks = Blocks()
    return [block for piece in pieces for block in blocks.feed(piece)] + blocks.end()


def words(text: str) -> list[str]:
    return [word for word in text.split() if not word.startswith(("```", "~~~", "|"))]


@given(PIECES)
def test_no_word_is_lost_or_told_twice_however_the_text_is_cut(pieces: list[str]) -> None:
    text = "".join(pieces)
    assert words("\n".join(blocks_of(*pieces))) == words(text)
    assert blocks_of(text) == blocks_of(*text)


def test_a_block_is_complete_when_the_next_one_begins() -> None:
    blocks = Blocks()
    assert blocks.feed("One.\n\nTw") == []
    assert blocks.feed("o.\n") == ["One."]
    assert blocks.tail.strip() == "Two."
    assert blocks.feed("# Head\n- a\n- b\n\n  still b\n\nEnd") == ["Two.", "# Head"]
    assert blocks.feed(".\n\n") == ["- a\n- b\n\n  still b"]
    assert blocks.end() == ["End.\n\n"]


def test_code_is_one_block_and_a_half_of_it_is_shown_as_code() -> None:
    blocks = Blocks()
    assert blocks.feed("```py\na = 1\n\nb") == []
    assert blocks.tail == "```py\na = 1\n\nb\n```"
    assert blocks.feed(" = 2\n```\n") == ["```py\na = 1\n\nb = 2\n```"]


def test_long_code_tables_lists_and_paragraphs_are_cut() -> None:
    code = blocks_of("```py\n" + "x = 1\n" * 200 + "```\n")
    assert all(block.startswith("```py\n") and block.endswith("```") for block in code)
    assert sum(block.count("x = 1") for block in code) == 200
    table = blocks_of("| a |\n|---|\n" + "| 1 |\n" * 200)
    assert all(block.startswith("| a |\n|---|") for block in table)
    assert sum(block.count("| 1 |") for block in table) == 200
    for text in ("- item\n" * 200, "A line of a paragraph.\n" * 200, "A sentence. " * 2_000):
        found = blocks_of(text)
        assert len(found) >= 4
        assert all(block.count("\n") <= LONGEST_LINES for block in found)
