"""The picture of the README: a real chat with three stops, as the screen shows it. `HALTER_PICTURES=1` writes it."""

from __future__ import annotations

import io
import os
import re
from pathlib import Path

import pytest
from rich.console import Console
from rich.text import Text

from halter.testing.wire_probe import WireProbe

from .conftest import Open

PICTURE = Path(__file__).parents[2] / "docs" / "terminal.svg"
pytestmark = [pytest.mark.soak, pytest.mark.timeout(240)]


@pytest.mark.skipif(os.environ.get("HALTER_PICTURES", "0") in ("", "0"), reason="only where pictures are wanted")
def test_the_picture_shows_three_stops(terminal: Open, wire: WireProbe) -> None:
    chat = terminal("chat", "--no-tools", "--model", "rivers", "--base-url", wire.url("text(30)"), rows=34)
    chat.until("rivers")
    questions = ("How is a river born?", "And where does it end?", "Once more, slowly.")
    for number, (question, key) in enumerate(zip(questions, ("\x1b", "\x03", "\x1b"), strict=True), 1):
        chat.press(question + "\r")
        chat.until(lambda number=number: len(wire.requests()) == number and wire.requests()[-1].tokens_sent > 25)  # type: ignore[misc]
        chat.press(key)
        chat.until(lambda number=number: chat.everything.count("■ stopped") == number)  # type: ignore[misc]
    wire.assert_closed(within=5.0)
    chat.press("/receipt\r")
    chat.until("open at the stop")
    console = Console(record=True, width=chat.screen.columns, file=io.StringIO())
    for line in chat.everything.rstrip().split("\n"):
        style = "yellow" if line.startswith("■") else "bold" if line.startswith("›") else ""
        console.print(Text(line, style=style))
    picture = console.export_svg(title="halter chat")
    PICTURE.write_text(re.sub(r"@font-face \{.*?\}", "", picture, flags=re.DOTALL))  # it loads nothing
