"""`halter doctor`: what it finds, with real sockets, and that it says what is bad."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest

from halter.terminal.config import load
from halter.terminal.doctor import judged, report
from halter.testing.wire_probe import WireProbe

pytestmark = pytest.mark.real_loop


async def test_a_machine_without_keys_is_told_how_to_choose_a_model(
    home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert await report(load())
    said = capsys.readouterr().out
    assert "note  no provider's key is set\n" in said
    assert "note  no model is chosen: give --model, or set a provider's key\n" in said
    assert "ok    conversations are kept" in said
    assert "BAD" not in said


async def test_a_model_server_that_does_not_answer_is_bad(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))  # nobody listens there
        port = unused.getsockname()[1]
        assert not await report(load({"model": "m", "base_url": f"http://127.0.0.1:{port}/v1"}))
    assert f"BAD   127.0.0.1:{port} cannot be reached" in capsys.readouterr().out


async def test_an_answer_that_streams_is_told_from_one_that_was_gathered(
    home: Path, wire: WireProbe, capsys: pytest.CaptureFixture[str]
) -> None:
    assert await report(load({"model": "m", "base_url": wire.url("steady(40,200)")}), is_online=True)
    assert "ok    tokens arrive as they are sent: 40 pieces" in capsys.readouterr().out
    assert judged([0.0, 3.0, 3.01, 3.02, 3.03, 3.04]).verdict == "bad"
    assert judged([0.0]).verdict == "bad"


async def test_a_misspelt_model_and_a_database_that_is_none_are_bad(
    home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (home / "notes.db").write_text("no database at all")
    assert not await report(load({"model": "opnai:gpt-5.2", "sessions": str(home / "notes.db")}))
    said = capsys.readouterr().out
    assert "BAD   model: " in said
    assert "opnai" in said
    assert "BAD   conversations" in said
