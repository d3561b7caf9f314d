"""Questions: the stream ends with one, and the answer comes in a request of its own, as in ADK."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from websockets.sync.client import connect

from halter import Agent, RunContext, runnable, tool
from halter.models.scripted import Scripted, calls
from halter.server import stream
from halter.server.fronts.adk import runs

from .conftest import Adk

MakeAdk = Callable[..., Adk]


@tool(approval="always")
async def pay(cents: int) -> str:
    """Pays."""
    return f"{cents} cents are paid"


def payer() -> Agent:
    return Agent(Scripted(calls("pay", cents=5), "That is all."), name="agent", tools=[pay])


def asked_in(events: list[Any]) -> Any:
    """The call by which the last of the events asks."""
    [id] = events[-1]["longRunningToolIds"]
    [call] = [part["functionCall"] for part in events[-1]["content"]["parts"]]
    assert call["id"] == id
    return call


def answer(call: Any, **response: Any) -> Any:
    part = {"functionResponse": {"id": call["id"], "name": call["name"], "response": response}}
    return {"role": "user", "parts": [part]}


def responses_in(events: list[Any]) -> list[Any]:
    parts = [part for event in events for part in event.get("content", {}).get("parts", [])]
    return [part["functionResponse"]["response"] for part in parts if "functionResponse" in part]


@pytest.mark.parametrize("way", ["/run", "/run_sse"])
@pytest.mark.parametrize("response", [{"confirmed": True}, {"response": '{"confirmed": true}'}])
def test_an_approval_is_answered_by_a_function_response_and_the_run_goes_on(
    adk: MakeAdk, way: str, response: Any
) -> None:
    asked = adk(payer())

    def send(**fields: Any) -> list[Any]:
        if way == "/run":
            found = asked.run(**fields)
            assert found.status_code == 200, found.text
            return found.json()
        return asked.events(**fields)

    before = send()
    call = asked_in(before)
    assert call["name"] == "adk_request_confirmation"
    assert call["args"]["originalFunctionCall"]["args"] == {"cents": 5}
    [run] = asked.runs()
    assert run["status"] == "waiting"
    after = send(newMessage=answer(call, **response), functionCallEventId=before[-1]["id"])
    assert responses_in(after) == [{"result": "5 cents are paid"}]
    assert after[-1]["content"]["parts"] == [{"text": "That is all."}]
    assert {event["invocationId"] for event in after} == {run["id"]}
    assert not {event["id"] for event in before} & {event["id"] for event in after}
    again = asked.run(newMessage=answer(call, **response))
    assert again.status_code == 400


def test_a_no_is_a_no(adk: MakeAdk) -> None:
    asked = adk(payer())
    call = asked_in(asked.events())
    [response] = responses_in(asked.events(newMessage=answer(call, confirmed=False)))
    assert "not allowed" in response["error"]


def test_a_question_of_the_runs_own_is_answered_with_a_result(adk: MakeAdk) -> None:
    @runnable
    async def agent(ctx: RunContext, text: str) -> str:
        return "Hello " + await ctx.ask("Who are you?")

    asked = adk(agent)
    call = asked_in(asked.events())
    assert (call["name"], call["args"]["message"]) == ("adk_request_input", "Who are you?")
    [end] = asked.events(newMessage=answer(call, result="Anna"))
    assert end["content"]["parts"] == [{"text": "Hello Anna"}]


def test_a_run_that_waits_for_an_answer_gives_way_to_a_new_message(adk: MakeAdk) -> None:
    asked = adk(payer())
    asked_in(asked.events())
    assert asked.events("Never mind.")[-1]["content"]["parts"] == [{"text": "That is all."}]
    newest, first = asked.runs()
    assert (first["status"], first["cancellation"]["reason"]) == ("cancelled", "superseded")
    assert newest["status"] == "completed"


@pytest.mark.scenario("J85")
def test_a_run_that_waits_for_an_answer_is_cancelled_as_any_other(adk: MakeAdk) -> None:
    asked = adk(payer())
    call = asked_in(asked.run().json())
    assert asked.cancel().json()["status"] == "cancelled"
    assert asked.run(newMessage=answer(call, confirmed=True)).status_code == 400
    assert asked.cancel().status_code == 404


def test_questions_of_two_tools_at_once_are_answered_one_after_the_other(adk: MakeAdk) -> None:
    agent = Agent(Scripted((calls("pay", cents=1), calls("pay", cents=2)), "Done."), name="agent", tools=[pay])
    asked = adk(agent)
    seen = asked.events()
    asked_for = [event["longRunningToolIds"][0] for event in seen if "longRunningToolIds" in event]
    results: list[Any] = []
    while "longRunningToolIds" in seen[-1]:
        call = seen[-1]["content"]["parts"][0]["functionCall"]
        assert call["args"]["originalFunctionCall"]["name"] == "pay"
        seen = asked.events(newMessage=answer(call, confirmed=True))
        results += responses_in(seen)
        asked_for += [event["longRunningToolIds"][0] for event in seen if "longRunningToolIds" in event]
    assert sorted(each["result"] for each in results) == ["1 cents are paid", "2 cents are paid"]
    assert seen[-1]["content"]["parts"] == [{"text": "Done."}]
    assert len(set(asked_for)) == 2


def test_a_live_client_answers_on_its_socket(adk: MakeAdk) -> None:
    asked = adk(payer())
    with connect(asked.live_url) as socket:
        socket.send(json.dumps({"content": {"parts": [{"text": "Go."}]}}))
        found: list[Any] = []
        while not (found and found[-1].get("longRunningToolIds")):
            found.append(json.loads(socket.recv(5)))
        socket.send(json.dumps({"content": answer(asked_in(found), confirmed=True)}))
        while not found[-1].get("turnComplete"):
            found.append(json.loads(socket.recv(5)))
    assert responses_in(found) == [{"result": "5 cents are paid"}]


@pytest.mark.parametrize("way", ["/run", "/run_sse"])
def test_a_question_that_nobody_answers_ends_the_run_in_the_end(
    adk: MakeAdk, monkeypatch: pytest.MonkeyPatch, way: str
) -> None:
    for module in (runs, stream):
        monkeypatch.setattr(module, "ANSWERED_WITHIN", 0.2)
    asked = adk(payer())
    assert asked.client.post(way, json=asked.body()).status_code == 200
    [run] = asked.runs()
    assert run["status"] == "waiting"
    assert asked.served.until(run["id"], "cancelled")["cancellation"]["reason"] == "client_disconnect"
