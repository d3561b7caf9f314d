"""Hostile text: nothing of it reaches a terminal as anything but letters."""

from __future__ import annotations

import json
from unicodedata import category

import pytest
from hypothesis import given
from hypothesis import strategies as st

from halter.terminal.safe import safe, safe_json, safe_line

HIDING = {"Cc", "Cf", "Cs", "Zl", "Zp"}
HOSTILE = [
    "\x1b]0;title\x07",  # the window's title
    "\x1b]2;title\x1b\\",
    "\x1b]52;c;ZXZpbA==\x07",  # the clipboard
    "\x1b]8;;http://evil\x07link\x1b]8;;\x07",  # a link that shows another text
    "\x1b[2J\x1b[H",  # clears the screen
    "\x1b[10A\x1b[K",  # overwrites lines above
    "\x1b[?1049h",  # the other screen
    "\x1b[6n\x1b[c\x1b[21t",  # makes the terminal type an answer
    '\x1bP$q"p\x1b\\',
    "\x9b31m\x9d0;t\x9c",  # the same in one byte
    "\x1bc",  # a reset
    "\x0e\x0f\x08\x08\x7f",
    "visible\rhidden",
    "\u202ereversed\u2066",
    "\u200bzero\ufeff",
    "\U000e0041tag",
    "\ud800",
]


@pytest.mark.scenario("K104")
@pytest.mark.parametrize("text", HOSTILE)
def test_hostile_sequences_become_letters(text: str) -> None:
    for shown in (safe(text), safe_line(text)):
        assert shown.replace("\n", "").isprintable()


@given(st.text(st.characters(exclude_categories=["Cs"])))
def test_any_text_is_printable_and_its_json_keeps_its_value(text: str) -> None:
    assert not {category(character) for character in safe(text).replace("\t", "").replace("\n", "")} & HIDING
    coded = safe_json(json.dumps(text, ensure_ascii=False))
    assert json.loads(coded) == text
    assert not set(coded) & {"\x1b", "\x9b", "\u202e", "\x07"}


def test_ordinary_text_stays_as_it_is() -> None:
    text = "Grüße, 你好, مرحبا\n\tcode 👍"
    assert safe(text) == text
    assert safe("❤️ 👨‍👩‍👧") == "❤ 👨👩👧"
