"""`halter runs watch` shows what models and clients say, and lets none of it steer the terminal."""

from __future__ import annotations

import pytest

from halter import Agent
from halter.cli.main import main
from halter.models.scripted import Scripted

from .conftest import Serve


@pytest.mark.scenario("K104")
def test_watch_prints_text_and_the_reason_of_a_stop_in_visible_characters(
    serve: Serve, capsys: pytest.CaptureFixture[str]
) -> None:
    served = serve(Agent(Scripted("A red\x1b[31m line.\nÄ second", pace=0.01), name="agent"))
    served.start(id="r")
    served.until("r", "completed")
    assert main(["runs", "watch", "r", "--url", served.url]) == 0
    shown = capsys.readouterr().out
    assert "A red\\u001b[31m line.\nÄ second" in shown
    assert "\x1b" not in shown

    served.client.post("/v1/runs/s/cancel?tombstone=1", json={"message": "\x1b]0;owned\x07"})
    served.start(id="s")
    assert main(["runs", "watch", "s", "--url", served.url]) == 0
    assert "\\u001b]0;owned\\u0007" in capsys.readouterr().out
