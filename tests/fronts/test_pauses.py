"""A run whose client is to bring an answer waits for it, and not for ever."""

from __future__ import annotations

import asyncio

import pytest

from halter import Agent, tool
from halter.models.scripted import Scripted, calls
from halter.server import stream
from halter.server.presence import Presence

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


CHAT = {"id": "t", "messages": [{"id": "1", "role": "user", "parts": [{"type": "text", "text": "Pay."}]}]}


def test_a_pause_that_is_over_is_passed_when_the_answer_is_resumed(serve: Serve) -> None:
    served = serve(Agent(Scripted(calls("pay", to="x"), calls("pay", to="y"), "Paid."), name="agent", tools=[pay]))
    path, resumed = "/v1/ai-sdk/agent/chat", []
    served.client.post(path, json={**CHAT, "run_id": "r"})
    for _ in range(2):
        [question] = served.run("r")["inputs"]
        resumed.append(served.client.get(f"{path}/t/stream").text.count("tool-approval-request"))
        approval = {"id": question["request_id"], "approved": True}
        last = {"id": "r", "role": "assistant", "parts": [{"type": "tool-pay", "approval": approval}]}
        answer = served.client.post(path, json={**CHAT, "messages": [*CHAT["messages"], last]})
        assert answer.status_code == 200
    assert resumed == [1, 2]
    assert "Paid." in answer.text


def test_an_answer_that_ends_before_its_page_has_loaded_is_not_lost(serve: Serve) -> None:
    served = serve(Agent(Scripted("One two three four.", pace=0.1), name="agent"))
    chat = "/v1/ai-sdk/agent/chat/t"
    served.start(id="r", session="t")
    loaded = served.client.get(f"{chat}/messages")
    assert (loaded.headers["halter-run-id"], [each["role"] for each in loaded.json()]) == ("r", ["user"])
    served.until("r", "completed")
    assert served.client.get(f"{chat}/stream").status_code == 204, "a page that has the answer must not get it twice"
    replayed = served.client.get(f"{chat}/stream?run=r").text
    assert "four." in replayed
    assert replayed.endswith("data: [DONE]\n\n")
    assert served.client.get("/v1/ai-sdk/agent/chat/other/stream?run=r").status_code == 404
    assert "halter-run-id" not in served.client.get(f"{chat}/messages").headers


@pytest.mark.parametrize("who_asks", ["the run", "a run under it"])
def test_who_looks_at_a_paused_run_and_goes_neither_stops_it_nor_lets_it_wait_for_ever(who_asks: str) -> None:
    asyncio.run(_looked_at(who_asks))


async def _looked_at(who_asks: str) -> None:
    clerk = Agent(Scripted(calls("pay", to="x"), "Paid."), name="clerk", tools=[pay])
    boss = Agent(Scripted(calls("clerk", input="Pay."), "Done."), name="boss", tools=[clerk])
    run = (clerk if who_asks == "the run" else boss).run("Pay.")
    async for event in run.events():
        if event.type == "input.requested":
            break
    presence = Presence(run, "cancel", linger=0.0)
    with presence.connected() as client:
        client.keep(0.05)
    with presence.connected():
        pass
    with presence.connected() as waiting:
        waiting.keep()
    assert not run.is_cancelling
    result = await run.finished()
    assert result.is_cancelled
    assert result.cancellation is not None
    assert result.cancellation.reason == "client_disconnect"


def test_who_leaves_once_the_pause_is_over_stops_the_run() -> None:
    asyncio.run(_left_after_the_pause())


async def _left_after_the_pause() -> None:
    run = Agent(Scripted(calls("pay", to="x"), "Paid.", pace=0.05), name="clerk", tools=[pay]).run("Pay.")
    presence = Presence(run, "cancel", linger=0.0)
    async for event in run.events():
        if event.type == "input.requested":
            with presence.connected() as client:
                client.keep(3_600)
            run.answer(event.request_id, "yes")
        if event.type == "input.received":
            break
    with presence.connected():
        pass
    assert (await run.finished()).is_cancelled
