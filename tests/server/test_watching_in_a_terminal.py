"""`halter runs watch` shows what models and clients say, and lets none of it steer the terminal."""

from __future__ import annotations

import pytest

from halter import Agent
from halter.cli.main import run_command
from halter.models.scripted import Scripted

from .conftest import Serve


@pytest.mark.scenario("K104")
def test_watch_prints_text_and_the_reason_of_a_stop_in_visible_characters(
    serve: Serve, capsys: pytest.CaptureFixture[str]
) -> None:
    slow = Agent(Scripted("One. Two.", pace=60.0), name="slow")
    served = serve([Agent(Scripted("A red\x1b[31m line.\nÄ second"), name="agent"), slow])
    served.start(id="r")
    served.until("r", "completed")
    assert run_command(["runs", "watch", "r", "--url", served.url]) == 0
    shown = capsys.readouterr().out
    assert "A red\\u001b[31m line.\nÄ second" in shown
    assert "\x1b" not in shown

    served.start("slow", id="s")
    served.cancel("s", message="\x1b]0;owned\x07")
    assert run_command(["runs", "watch", "s", "--url", served.url]) == 0
    assert "\\u001b]0;owned\\u0007" in capsys.readouterr().out
