"""The keyboard's bytes, in whatever pieces they come: what is the Esc key, and what is not."""

from __future__ import annotations

import os
import pty
import tty
from collections.abc import Generator

import pytest
from hypothesis import given
from hypothesis import strategies as st

pytest.importorskip("prompt_toolkit")

from prompt_toolkit.input.vt100_parser import Vt100Parser
from prompt_toolkit.key_binding import KeyPress
from prompt_toolkit.keys import Keys

from halter.terminal.keys import ESCAPE_KEY, Reports, TerminalInput

LEFT = "\x1b[D"


@pytest.fixture
def keyboard() -> Generator[tuple[int, TerminalInput]]:
    master, slave = pty.openpty()
    tty.setraw(slave)
    with os.fdopen(slave, encoding="utf-8") as stdin:
        yield master, TerminalInput(stdin)
    os.close(master)


def names(keys: list[KeyPress]) -> list[str]:
    return [str(key.key.value if isinstance(key.key, Keys) else key.key) for key in keys]


def test_a_lone_escape_byte_is_the_key_only_after_the_wait(keyboard: tuple[int, TerminalInput]) -> None:
    master, typed = keyboard
    os.write(master, b"\x1b")
    assert typed.read_keys() == []
    os.write(master, b"[")
    assert typed.flush_keys() == []  # the rest is there already: we are late, not the sequence
    assert typed.read_keys() == []
    os.write(master, b"D")
    assert names(typed.read_keys()) == ["left"]
    os.write(master, b"\x1b")
    assert typed.read_keys() == []
    assert [key.key for key in typed.flush_keys()] == [ESCAPE_KEY]
    os.write(master, b"\x1b\x1b")
    assert typed.read_keys() == []
    assert [key.key for key in typed.flush_keys()] == [ESCAPE_KEY, ESCAPE_KEY]


@pytest.mark.parametrize(
    "report",
    ["\x1b[I", "\x1b[O", "\x1b[?1;2c", "\x1b]11;rgb:0000/0000/0000\x07", "\x1b]52;c;aGk=\x1b\\", "\x1bP1+r\x1b\\"],
)
def test_reports_of_the_terminal_are_no_text_wherever_they_are_cut(report: str) -> None:
    for at in range(1, len(report)):
        found: list[KeyPress] = []
        parser, reports = Vt100Parser(found.append), Reports()
        kept: list[KeyPress] = []
        for piece in (report[:at], report[at:], "x" + LEFT):
            parser.feed(piece)
            kept += reports.without(found)
            found.clear()
        if at > 1:  # cut behind its first byte, the parser has given Alt and a key: that is what it is, too
            assert names(kept) == ["x", "left"], at


def test_alt_keys_stay_what_they_are() -> None:
    found: list[KeyPress] = []
    parser, reports = Vt100Parser(found.append), Reports()
    parser.feed("\x1bf")
    assert names(reports.without(found)) == ["escape", "f"]


@given(st.lists(st.sampled_from(["a", "\x1b", "[", "D", "]", "\\", "\x07", "O", "1", ";", "~"]), max_size=40))
def test_no_bytes_are_lost_for_ever(pieces: list[str]) -> None:
    """Whatever came before: after the wait, a key is a key."""
    found: list[KeyPress] = []
    parser, reports = Vt100Parser(found.append), Reports()
    for piece in pieces:
        parser.feed(piece)
        reports.without(found)
        found.clear()
    parser.flush()
    reports.rest(reports.without(found))
    found.clear()
    parser.feed("q")
    assert names(reports.without(found)) == ["q"]
