"""What an endpoint that cancels runs has to get right, point by point, over HTTP."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable

import pytest

from halter import Agent
from halter.core.runtime import runtime
from halter.models.scripted import Scripted, calls
from halter.testing.wire_probe import WireProbe
from halter.tools import tool

from .conftest import Serve

AgentOn = Callable[..., Agent]


@pytest.mark.scenario("G63")
def test_a_second_cancel_answers_like_the_first_and_changes_nothing(
    serve: Serve, agent_on: AgentOn, wire: WireProbe
) -> None:
    served = serve(agent_on("stall"))
    served.start(id="r", session="chat")
    wire.wait("token")
    first = served.cancel("r", message="enough").json()
    second = served.cancel("r", message="really", mode="kill").json()
    assert (first["status"], first["effective"], first["cancellation"]["message"]) == ("cancelled", True, "enough")
    assert second == first
    wire.assert_closed()


@pytest.mark.scenario("G64")
@pytest.mark.parametrize("by", ["id", "session"])
def test_a_cancel_after_completion_says_so_and_leaves_no_registry_entry(serve: Serve, by: str) -> None:
    served = serve(Agent(Scripted("Hi."), name="agent"))
    served.start(id="r", session="chat")
    served.until("r", "completed")
    if by == "id":
        late = served.cancel("r").json()
        assert (late["status"], late["effective"]) == ("completed", False)
    else:
        assert served.client.post("/v1/cancel", json={"session": "chat"}).json() == {"runs": []}
    assert runtime().runs() == []
    assert served.client.get("/healthz").json()["live_runs"] == 0
    served.start(id="next", session="chat", input="Again.")
    assert served.until("next", "completed")["cancellation"] is None


@pytest.mark.scenario("G64")
def test_a_cancel_of_an_unknown_session_or_run_creates_neither(serve: Serve) -> None:
    served = serve(Agent(Scripted("Hi."), name="agent"))
    assert served.client.post("/v1/cancel", json={"session": "nobody"}).json() == {"runs": []}
    assert served.cancel("nobody").status_code == 404
    assert served.client.get("/v1/sessions/nobody").status_code == 404
    assert served.client.get("/v1/sessions").json() == {"sessions": []}
    assert served.client.get("/v1/runs").json()["runs"] == []


def test_the_tool_in_flight_gets_its_cancelled_error_and_no_tool_is_checked_by_hand(serve: Serve) -> None:
    began, ended = threading.Event(), threading.Event()
    others: list[str] = []

    @tool
    async def wait() -> str:
        """Knows nothing of stops."""
        began.set()
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            ended.set()
            raise
        return "late"

    @tool
    async def later() -> str:
        """Comes after it."""
        others.append("ran")
        return "ran"

    model = Scripted(calls("wait"), calls("later"), "Done.")
    served = serve(Agent(model, name="agent", tools=[wait, later]))
    served.start(id="r", session="chat")
    assert began.wait(5)
    stopped = served.cancel("r").json()
    assert ended.wait(0)
    ends = {(line["kind"], line["ended"]) for line in stopped["receipt"]["resources"]}
    assert ("tool", "cancelled") in ends, ends
    assert stopped["receipt"]["confirmed"]
    assert (others, stopped["status"]) == ([], "cancelled")
    said = served.client.get("/v1/sessions/chat/messages").json()["messages"]
    assert [each["role"] for each in said][:3] == ["user", "assistant", "tool"]
