"""A run over a WebSocket: a frame that cannot be read changes nothing, and the next stop works."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from typing import Any

import pytest
from websockets.sync.client import connect

from halter import Agent
from halter.testing.wire_probe import WireProbe

from .conftest import Serve, Served

AgentOn = Callable[..., Agent]
MALFORMED = [
    "{",
    "[]",
    '"cancel"',
    '{"type": "explode"}',
    '{"type": "cancel", "actor": "root"}',
    '{"type":"cancel","mode":7}',
]


def live(served: Served, id: str) -> Any:
    return connect(served.url.replace("http", "ws") + f"/v1/runs/{id}/live")


@pytest.mark.scenario("G72")
def test_malformed_frames_are_answered_and_the_next_cancel_works(
    serve: Serve, agent_on: AgentOn, wire: WireProbe
) -> None:
    served = serve(agent_on("stall"))
    served.start(id="r")
    wire.wait("token")
    with live(served, "r") as socket:
        assert json.loads(socket.recv())["type"] == "snapshot"
        for frame in [*MALFORMED, b"\xff\xfe"]:
            socket.send(frame)
            answer = json.loads(socket.recv(5))
            assert (answer["type"], answer["status"]) == ("error", 422), frame
        assert served.run("r")["status"] == "running"
        before = time.monotonic()
        socket.send('{"type": "cancel", "message": "enough"}')
        rest = [json.loads(frame) for frame in socket]
    wire.assert_closed(since=before)
    assert rest[-1]["type"] == "run.cancelled"
    assert served.run("r")["cancellation"]["message"] == "enough"


@pytest.mark.scenario("G66")
def test_a_client_that_leaves_its_socket_stops_its_run(serve: Serve, agent_on: AgentOn, wire: WireProbe) -> None:
    served = serve(agent_on("stall"))
    served.start(id="r", on_disconnect="cancel")
    wire.wait("token")
    with live(served, "r") as socket:
        socket.recv()
    wire.assert_closed(1.0)
    assert served.until("r", "cancelled")["cancellation"]["reason"] == "client_disconnect"


def test_a_socket_shows_the_whole_run_and_ends_with_it(serve: Serve, agent_on: AgentOn) -> None:
    served = serve(agent_on("steady(20,5)"))
    served.start(id="r")
    with connect(served.url.replace("http", "ws") + "/v1/runs/r/live?after=0") as socket:
        found = [json.loads(frame) for frame in socket]
    assert [each["seq"] for each in found[1:]] == list(range(1, len(found)))
    assert "".join(each["text"] for each in found if each["type"] == "text.delta").split()[-1] == "t19"


def test_a_socket_to_an_unknown_run_says_so(serve: Serve, agent_on: AgentOn) -> None:
    served = serve(agent_on())
    with live(served, "nobody") as socket:
        assert json.loads(socket.recv())["status"] == 404
