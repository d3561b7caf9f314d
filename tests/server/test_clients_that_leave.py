"""A client that left is noticed within a second, on every way in, and its run is stopped or not, as it said."""

from __future__ import annotations

import json
import socket
import time
from collections.abc import Callable
from typing import Any

import pytest
from fastapi import FastAPI, Request

from halter import Agent, runtime
from halter.server import EventStream
from halter.testing.wire_probe import WireProbe

from .conftest import Serve, Served

AgentOn = Callable[..., Agent]
NOTICED = 1.0


def leave(served: Served, body: dict[str, Any], wire: WireProbe, *, query: str = "", after: str = "token") -> float:
    """Starts a run on a bare connection, waits until the provider is where `after` says, and closes it."""
    data = json.dumps({"agent": "agent", "input": "Go.", **body}).encode()
    head = f"POST /v1/runs{query} HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n"
    with served.connect() as connection:
        connection.sendall(head.encode() + b"Content-Length: %d\r\n\r\n" % len(data) + data)
        wire.wait(after)
        if after == "token":
            time.sleep(0.05)  # the client has read something
    return time.monotonic()


@pytest.mark.scenario("G66")
@pytest.mark.parametrize("mode", ["steady(1000,10)", "stall", "no-headers"])
@pytest.mark.parametrize("way", ["stream", "wait"])
def test_a_client_that_left_stops_its_run(
    serve: Serve, agent_on: AgentOn, wire: WireProbe, mode: str, way: str
) -> None:
    served = serve(agent_on(mode))
    body, query = ({"id": "r", "stream": True}, "") if way == "stream" else ({"id": "r"}, "?wait=30")
    left = leave(served, body, wire, query=query, after="started" if mode == "no-headers" else "token")
    wire.assert_closed(NOTICED, since=left)
    assert served.until("r", "cancelled")["cancellation"]["reason"] == "client_disconnect"


@pytest.mark.scenario("G66")
def test_a_detached_run_outlives_its_client(serve: Serve, agent_on: AgentOn, wire: WireProbe) -> None:
    served = serve(agent_on("steady(60,10)"))
    leave(served, {"id": "r", "stream": True, "on_disconnect": "detach"}, wire)
    assert served.until("r", "completed")["text"].split() == [f"t{number}" for number in range(60)]
    with served.events("r", **{"Last-Event-ID": "0"}) as frames:
        text = "".join(frame.data["text"] for frame in frames if frame.event == "text.delta")
    assert text.split() == [f"t{number}" for number in range(60)]


@pytest.mark.scenario("G66", "J84")
def test_a_page_that_is_reloaded_in_time_keeps_its_run_and_misses_nothing(
    serve: Serve, agent_on: AgentOn, wire: WireProbe
) -> None:
    served = serve(agent_on("steady(150,10)"))
    seen: list[Any] = []
    with served.stream(id="r", linger=5) as frames:
        for frame in frames:
            seen.append(frame)
            if len(seen) == 20:
                break
    with served.events("r", **{"Last-Event-ID": seen[-1].id}) as frames:
        rest = list(frames)
    text = "".join(frame.data["text"] for frame in [*seen, *rest] if frame.event == "text.delta")
    assert text.split() == [f"t{number}" for number in range(150)]
    assert rest[-1].event == "run.completed"
    assert len(wire.requests()) == 1


@pytest.mark.scenario("J84")
def test_a_page_that_does_not_come_back_stops_its_run_once(serve: Serve, agent_on: AgentOn, wire: WireProbe) -> None:
    served = serve(agent_on("stall"))
    left = leave(served, {"id": "r", "stream": True, "linger": 0.3}, wire)
    assert served.run("r")["status"] == "running"
    wire.assert_closed(0.3 + NOTICED, since=left)
    with served.events("r", **{"Last-Event-ID": "0"}) as frames:
        ends = [frame.event for frame in frames if frame.event and frame.event.startswith("run.cancel")]
    assert ends == ["run.cancelling", "run.cancelled"]


@pytest.mark.scenario("G68")
def test_nine_of_ten_readers_leave_one_never_reads_and_the_run_goes_on(
    serve: Serve, agent_on: AgentOn, wire: WireProbe
) -> None:
    served = serve(agent_on("steady(300,5)"))
    served.start(id="r", on_disconnect="cancel")
    ask = b"GET /v1/runs/r/events HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n"
    readers = [served.connect() for _ in range(10)]
    for reader in readers:
        reader.sendall(ask)
    wire.wait("token")
    for reader in readers[1:]:
        reader.recv(100)
        reader.close()
    began = time.monotonic()
    assert served.until("r", "completed", within=10)["text"].split()[-1] == "t299"
    assert time.monotonic() - began < 6
    readers[0].close()


def test_a_wait_that_is_over_before_the_run_leaves_the_run_alone(
    serve: Serve, agent_on: AgentOn, wire: WireProbe
) -> None:
    served = serve(agent_on("steady(60,10)"))
    answer = served.client.post("/v1/runs?wait=0.1", json={"agent": "agent", "input": "Go.", "id": "r"})
    assert (answer.status_code, answer.json()["status"]) == (202, "running")
    assert served.until("r", "completed")["status"] == "completed"


@pytest.mark.scenario("G66")
def test_a_run_with_the_id_of_an_earlier_one_stops_with_its_own_client(
    serve: Serve, agent_on: AgentOn, wire: WireProbe
) -> None:
    agents = {"long": agent_on("steady(20000,0)"), "live": agent_on("stall")}
    app = FastAPI()

    @app.post("/ask/{which}")
    async def ask(which: str, request: Request) -> EventStream:  # pyright: ignore[reportUnusedFunction]
        return EventStream(agents[which].run("Go.", id="chat"), request)

    served = serve.app(app)  # type: ignore[attr-defined]

    def post(which: str) -> socket.socket:
        connection = served.connect()
        connection.sendall(f"POST /ask/{which} HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 0\r\n\r\n".encode())
        return connection

    with post("long"):  # it never reads, so its response outlives its run
        wire.wait("finished")
        while runtime().find("chat") is not None:
            time.sleep(0.01)
        with post("live"):
            wire.wait("token", count=2)
        wire.assert_closed(NOTICED, since=time.monotonic())
