"""A server whose database is away starts nothing, says so, and is itself again when the database is back."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

import pytest

from halter import Agent
from halter.sessions import Sessions
from halter.testing.wire_probe import WireProbe

from .conftest import Serve

AgentOn = Callable[..., Agent]


@pytest.mark.parametrize("fields", [{}, {"session": "s"}], ids=["alone", "on a session"])
def test_while_the_database_is_away_a_start_is_refused_and_nothing_is_asked_of_a_model(
    serve: Serve, agent_on: AgentOn, wire: WireProbe, tmp_path: Path, fields: dict[str, str]
) -> None:
    place = tmp_path / "later" / "chat.db"
    served = serve(agent_on("steady(3,5)"), sessions=Sessions(str(place)))
    assert served.client.get("/readyz").status_code == 503
    refused = served.start(id="r", **fields)
    assert (refused.status_code, refused.json()["code"]) == (503, "sessions_unavailable")
    assert "retry-after" in refused.headers
    assert served.client.get("/healthz").json()["live_runs"] == 0
    assert wire.requests() == []

    place.parent.mkdir()
    _until_ready(served.client.get)
    assert served.start(id="r", **fields).status_code == 201
    assert served.until("r", "completed")["session"] == fields.get("session")


def _until_ready(get: Callable[[str], object]) -> None:
    until = time.monotonic() + 10
    while getattr(get("/readyz"), "status_code", None) != 200:
        assert time.monotonic() < until
        time.sleep(0.05)
