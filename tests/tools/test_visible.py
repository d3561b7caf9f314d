"""What a person is asked, in characters that can be seen."""

from __future__ import annotations

import sys
import unicodedata

import pytest

from halter.visible import HIDDEN, visible, visible_line


def is_hidden(character: str) -> bool:
    return any(first <= ord(character) <= last for first, last in HIDDEN)


@pytest.mark.scenario("K104")
def test_the_table_has_every_control_and_format_character_that_this_python_knows() -> None:
    """Whatever category hides a character, newer versions of Unicode included."""
    hiding = ("Cc", "Cf", "Cs", "Zl", "Zp")
    codes = [*range(0x30000), *range(0xE0000, 0xE1000)]
    missing = [hex(code) for code in codes if unicodedata.category(chr(code)) in hiding and not is_hidden(chr(code))]
    assert missing == ["0x9", "0xa"]
    assert all(first <= last <= sys.maxunicode for first, last in HIDDEN)


@pytest.mark.scenario("K104")
@pytest.mark.parametrize(
    "hidden",
    [
        *("\u200b", "\u200d", "\u2060", "\u2065", "\u00ad", "\ufeff", "\u2028", "\u2029", "\u115f", "\u3164", "\uffa0"),
        *("\ufe0f", "\ufff0", "\u180f", "\u2800", "\U0001bca0", "\U0001d173", "\U0001d159", "\U00016fe4"),
        *("\U000e0000", "\U000e0041", "\U000e0101", "\U000e0fff", "\u202e", "\u2066", "\u061c", "\r", "\x1b", "\x9b"),
    ],
    ids=ascii,
)
def test_characters_that_show_nothing_are_written_out(hidden: str) -> None:
    """Fillers, joiners, tags, selectors and marks of direction as well as control characters."""
    shown = visible(f"a{hidden}b")
    assert shown == (f"a\\u{ord(hidden):04x}b" if ord(hidden) < 0x10000 else f"a\\U{ord(hidden):08x}b")
    assert visible(shown) == shown


def test_what_can_be_seen_stays() -> None:
    """Tabs and line feeds in a text as well; in a name that has to stay one line they are written out."""
    assert visible("Grüße, 日本語 😀\t\n") == "Grüße, 日本語 😀\t\n"
    assert visible_line("a\n+++ b\tc") == "a\\u000a+++ b\\u0009c"
    assert visible_line("Grüße") == "Grüße"
