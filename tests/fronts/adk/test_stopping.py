"""Stops over ADK's routes reach the provider and the tools: by `:cancel`, and when the client goes."""

from __future__ import annotations

import asyncio
import json
import threading
import time
from collections.abc import Callable, Generator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

import pytest
from websockets.sync.client import connect

from halter import Agent, tool
from halter.models.scripted import Scripted, calls
from halter.server import create_app
from halter.server.fronts.adk.routes import adk_router
from halter.testing.wire_probe import WireProbe

from .conftest import Adk

AgentOn = Callable[..., Agent]
MakeAdk = Callable[..., Adk]
NOTICED = 1.0
WAYS = ("/run", "/run_sse", "/run_live")
Answer = list[Any]


@contextmanager
def running(asked: Adk, way: str) -> Generator[Answer]:
    """A live run that was started this way. What its client was sent is in the list once the block has ended."""
    found: Answer = []
    if way == "/run_live":
        with connect(asked.live_url) as socket:
            socket.send(json.dumps({"content": {"role": "user", "parts": [{"text": "Go."}]}}))
            yield found
            while not (found and found[-1].get("turnComplete")):
                found.append(json.loads(socket.recv(5)))
        return
    if way == "/run_sse":
        with asked.stream() as events:
            yield found
            found += events
        return
    with ThreadPoolExecutor(1) as pool:
        answer = pool.submit(asked.run)
        yield found
        assert answer.result(5).status_code == 200
        found += answer.result().json()


@pytest.mark.scenario("J85", "G66")
@pytest.mark.parametrize("way", WAYS)
def test_the_cancel_of_a_session_closes_the_provider_and_then_is_404(
    adk: MakeAdk, agent_on: AgentOn, wire: WireProbe, way: str
) -> None:
    asked = adk(agent_on("stall"))
    with running(asked, way) as found:
        wire.wait("token")
        before = time.monotonic()
        answer = asked.cancel()
        wire.assert_closed(since=before)
    [run] = asked.runs()
    assert (answer.status_code, answer.json()) == (200, {"status": "cancelled", "runIds": [run["id"]]})
    assert (run["status"], run["cancellation"]["reason"]) == ("cancelled", "user_stop")
    assert found[-1]["interrupted"]
    assert found[-1]["invocationId"] == run["id"]
    again = asked.cancel()
    assert (again.status_code, again.json()["detail"]) == (404, "Session s has no active run")
    assert len(wire.requests()) == 1


@pytest.mark.scenario("J85", "G66")
@pytest.mark.parametrize("mode", ["steady(1000,10)", "stall", "no-headers"])
@pytest.mark.parametrize("way", WAYS)
def test_a_client_that_left_stops_its_run(
    adk: MakeAdk, agent_on: AgentOn, wire: WireProbe, mode: str, way: str
) -> None:
    asked = adk(agent_on(mode))
    awaited = "started" if mode == "no-headers" else "token"
    message = {"role": "user", "parts": [{"text": "Go."}]}
    if way == "/run_live":
        with connect(asked.live_url) as socket:
            socket.send(json.dumps({"content": message}))
            wire.wait(awaited)
    else:
        data = json.dumps(asked.body(streaming=True)).encode()
        head = f"POST {way} HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n"
        with asked.served.connect() as connection:
            connection.sendall(head.encode() + b"Content-Length: %d\r\n\r\n" % len(data) + data)
            wire.wait(awaited)
    wire.assert_closed(NOTICED, since=time.monotonic())
    [run] = asked.runs()
    assert asked.served.until(run["id"], "cancelled")["cancellation"]["reason"] == "client_disconnect"
    assert asked.cancel().status_code == 404


@pytest.mark.scenario("J85")
@pytest.mark.parametrize("way", WAYS)
def test_a_cancel_after_the_end_finds_nothing_and_leaves_nothing(adk: MakeAdk, way: str) -> None:
    asked = adk(Agent(Scripted("Hello."), name="agent"))
    with running(asked, way):
        pass
    assert asked.cancel().status_code == 404
    [run] = asked.runs()
    assert run["status"] == "completed"
    assert run["cancellation"] is None
    assert asked.run().status_code == 200  # the next turn is not stopped by it


def test_a_cancel_of_an_unknown_session_app_or_user_creates_nothing(adk: MakeAdk) -> None:
    asked = adk(Agent(Scripted("Hello."), name="agent"))
    for name in ({"session": "t"}, {"user": "ben"}, {"app": "nobody"}, {"session": "a%3Acancel"}):
        answer = asked.cancel(**name)
        assert answer.status_code == 404, name
        assert answer.json()["detail"]
    assert [each["id"] for each in asked.client.get(asked.path).json()] == ["s"]
    assert len(asked.client.get("/v1/sessions").json()["sessions"]) == 1
    assert asked.runs() == []


def test_many_cancels_at_once_are_all_answered_and_stop_one_run(
    adk: MakeAdk, agent_on: AgentOn, wire: WireProbe
) -> None:
    asked = adk(agent_on("stall"))
    with running(asked, "/run_sse"):
        wire.wait("token")
        with ThreadPoolExecutor(8) as pool:
            answers = list(pool.map(lambda _: asked.cancel(), range(20)))
    assert {answer.status_code for answer in answers} <= {200, 404}
    assert {tuple(each.json()["runIds"]) for each in answers if each.status_code == 200} == {(asked.runs()[0]["id"],)}
    wire.assert_closed()


def test_a_cancel_reaches_the_tool_in_flight_which_checks_nothing_itself(adk: MakeAdk) -> None:
    is_working, was_cancelled = threading.Event(), threading.Event()

    @tool
    async def work() -> str:
        """Works for an hour."""
        is_working.set()
        try:
            await asyncio.sleep(3600)
        except asyncio.CancelledError:
            was_cancelled.set()
            raise
        return "done"

    asked = adk(Agent(Scripted(calls("work"), "Done."), name="agent", tools=[work]))
    with running(asked, "/run_sse") as found:
        assert is_working.wait(5)
        assert asked.cancel().json()["status"] == "cancelled"
        assert was_cancelled.wait(1)
    [response] = [
        part for event in found for part in event.get("content", {}).get("parts", []) if "functionResponse" in part
    ]
    assert "error" in response["functionResponse"]["response"]
    assert found[-1]["interrupted"]


def test_a_cancel_stops_the_run_that_has_the_turn_and_those_that_wait_for_it(
    adk: MakeAdk, agent_on: AgentOn, wire: WireProbe
) -> None:
    asked = adk(agent_on("stall"))
    with running(asked, "/run_sse"), running(asked, "/run_sse") as second:
        wire.wait("token")
        assert len(asked.cancel().json()["runIds"]) == 2
    assert second[-1]["interrupted"]
    assert len(wire.requests()) == 1


def test_a_message_that_follows_a_stop_is_answered(adk: MakeAdk, agent_on: AgentOn, wire: WireProbe) -> None:
    asked = adk(agent_on("steady(120,5)"))
    with asked.stream() as found:
        next(found)  # the client goes, as the stop button of ADK's web page does
    events = asked.events()
    assert events[-1]["content"]["parts"][0]["text"].split()[-1] == "t119"
    assert asked.session()["events"][1]["interrupted"]


def test_each_route_has_one_handler() -> None:
    app = create_app(Agent(Scripted("Hi."), name="agent"))

    seen = [
        (method, route.path)
        for route in adk_router(app.state.halter).routes
        for method in getattr(route, "methods", None) or ("WEBSOCKET",)
    ]
    assert len(seen) == len(set(seen))
    paths = [path for _, path in seen]
    cancel = "/apps/{app}/users/{user}/sessions/{session}:cancel"
    assert paths.index(cancel) < paths.index(cancel.removesuffix(":cancel"))
