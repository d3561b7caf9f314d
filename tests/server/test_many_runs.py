"""Two hundred streams and a blocking tool hold up no status, list or stop."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from contextlib import ExitStack

import pytest

from halter import Agent, tool
from halter.models.scripted import Scripted, calls
from halter.testing.wire_probe import WireProbe

from .conftest import Serve

AgentOn = Callable[..., Agent]
RUNS = 200


@pytest.mark.scenario("G71")
def test_status_list_and_cancel_answer_at_once_while_200_runs_stream(
    serve: Serve, agent_on: AgentOn, wire: WireProbe
) -> None:
    free = threading.Event()

    @tool
    def block() -> str:
        """Blocks."""
        free.wait(60)
        return "late"

    blocked = Agent(Scripted(calls("block"), "Done."), name="blocked", tools=[block])
    served = serve([agent_on("steady(2000,200)"), blocked])
    with ExitStack() as streams:
        streams.callback(free.set)
        served.start("blocked", id="blocked")
        for number in range(RUNS):
            served.start(id=f"r{number}")
            reader = streams.enter_context(served.connect())
            reader.sendall(b"GET /v1/runs/r%d/events HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n" % number)
        wire.wait("token", count=RUNS, timeout=20)
        for request in (
            lambda number: served.client.get(f"/v1/runs/r{number}"),
            lambda number: served.client.get("/v1/runs?limit=20"),
            lambda number: served.cancel(f"r{number}", wait=0),
        ):
            assert min(_seconds(request, number) for number in range(5)) < 0.1


def _seconds(request: Callable[[int], object], number: int) -> float:
    before = time.monotonic()
    request(number)
    return time.monotonic() - before
