"""A run whose client is to bring an answer waits for it, and not for ever."""

from __future__ import annotations

import pytest

from halter import Agent, tool
from halter.models.scripted import Scripted, calls
from halter.server import stream

from ..server.conftest import Serve

BODY = {"threadId": "t", "runId": "r", "messages": [{"id": "1", "role": "user", "content": "Pay."}]}


@tool(approval="always")
async def pay(to: str) -> str:
    """Pays."""
    return to


@pytest.mark.scenario("G66")
@pytest.mark.parametrize("on_disconnect", ["cancel", "detach"])
def test_a_paused_run_whose_client_never_comes_back_is_stopped_unless_it_is_detached(
    serve: Serve, monkeypatch: pytest.MonkeyPatch, on_disconnect: str
) -> None:
    monkeypatch.setattr(stream, "ANSWERED_WITHIN", 0.2)
    served = serve(Agent(Scripted(calls("pay", to="x"), "Paid."), name="agent", tools=[pay]))
    body = {**BODY, "forwardedProps": {"halter": {"on_disconnect": on_disconnect}}}
    assert '"type":"interrupt"' in served.client.post("/v1/ag-ui/agent", json=body).text
    assert served.run("r")["status"] == "waiting"
    if on_disconnect == "cancel":
        assert served.until("r", "cancelled")["cancellation"]["reason"] == "client_disconnect"
    else:
        [question] = served.run("r")["inputs"]
        served.client.post("/v1/runs/r/input", json={"request_id": question["request_id"], "answer": "yes"})
        assert served.until("r", "completed")["text"] == "Paid."
