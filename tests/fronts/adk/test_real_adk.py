"""The package `google-adk` itself reads what is sent, and its own client talks to the server."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest
from websockets.sync.client import connect

from halter import Agent, RunContext, runnable, tool
from halter.compose import Sequential
from halter.models.scripted import Scripted, calls
from halter.server.fronts.adk.format import LINES, AdkFormat
from halter.server.names import Names

from ..random_runs import random_log
from .conftest import Adk, RealAdk
from .shapes import batches, seen_by_client, seen_in_run

MakeAdk = Callable[..., Adk]


@tool
async def work() -> dict[str, bool]:
    """Works."""
    return {"done": True}


@tool(approval="always")
async def confirm() -> str:
    """Asks first."""
    return "confirmed"


@pytest.mark.scenario("G74")
def test_each_event_is_one_of_adks_and_says_the_same_as_the_run(real_adk: RealAdk) -> None:
    runs = [random_log(seed) for seed in range(30)]
    lines: list[list[str]] = []
    for found in runs:
        format = AdkFormat(Names(), app="agent", streaming=True, wrapping=LINES)
        data = b"".join(format.batch(batch) for batch in batches(found, [1, 3, 7]))
        lines.append(data.decode().split("\n")[:-1])
    read = real_adk.ask("read_events", streams=lines)
    assert [seen_by_client(events) for events in read] == [seen_in_run(found) for found in runs]


@pytest.mark.scenario("G74")
@pytest.mark.parametrize("streaming", [False, True])
def test_adks_own_client_makes_a_session_runs_and_reads_the_conversation(
    adk: MakeAdk, real_adk: RealAdk, streaming: bool
) -> None:
    asked = adk(Agent(Scripted(("Let me see. ", calls("work")), "It is done."), name="agent", tools=[work]))
    found = real_adk.ask("converse", url=asked.served.url, text="Go.", streaming=streaming)
    assert (found["state"], found["error"]) == ({"city": "Paris", "day": 1}, None)
    whole = [event for event in found["events"] if not event.get("partial")]
    assert [sorted(event["content"]["parts"][-1]) for event in whole] == [
        ["functionCall"],
        ["functionResponse"],
        ["text"],
    ]
    assert bool(len(found["events"]) - len(whole)) is streaming
    assert whole[-1]["content"]["parts"] == [{"text": "It is done."}]
    assert [said[0] for said in found["said"]] == ["user", "agent", "agent", "agent"]
    assert found["version"]["language"] == "python"
    assert [each["id"] for each in asked.client.get(asked.path).json()] == ["s"]  # its own is deleted


def test_adks_own_client_raises_the_error_of_a_failed_run(adk: MakeAdk, real_adk: RealAdk) -> None:
    @runnable
    async def agent(ctx: RunContext, text: str) -> str:
        raise ValueError(f"{text} is wrong")

    found = real_adk.ask("converse", url=adk(agent).served.url, text="This", streaming=True)
    assert found["error"] == "ValueError: This is wrong"


@pytest.mark.scenario("G74")
@pytest.mark.parametrize("by_alias", [True, False])
def test_a_request_as_adk_writes_it_is_understood(adk: MakeAdk, real_adk: RealAdk, by_alias: bool) -> None:
    asked = adk(Agent(Scripted("Hello."), name="agent"))
    request = real_adk.ask("run_request", by_alias=by_alias, text="Hi.", streaming=False)
    assert ("appName" in request) is by_alias
    answer = asked.client.post("/run", json=request)
    assert answer.status_code == 200, answer.text
    [read] = real_adk.ask("read_events", streams=[[json.dumps(event) for event in answer.json()]])
    assert [event["content"]["parts"] for event in read] == [[{"text": "Hello."}]]
    assert real_adk.ask("read_session", data=asked.session())["state"] == {"a": 1}


@pytest.mark.scenario("G74")
def test_a_live_request_as_adk_writes_it_is_understood(adk: MakeAdk, real_adk: RealAdk) -> None:
    asked = adk(Agent(Scripted("Hello."), name="agent"))
    frames: list[str] = []
    with connect(asked.live_url) as socket:
        socket.send(real_adk.ask("live_request", text="Hi."))
        while not frames or not json.loads(frames[-1]).get("turnComplete"):
            frames.append(str(socket.recv(5)))
    [read] = real_adk.ask("read_events", streams=[frames])
    assert [event.get("partial") for event in read] == [True, None, None]


def test_what_adk_takes_for_the_final_answers_are_the_agents_answers(adk: MakeAdk, real_adk: RealAdk) -> None:
    crew = Sequential(
        Agent(Scripted(calls("work"), "First."), name="first", tools=[work]),
        Agent(Scripted("Second."), name="second"),
        name="agent",
    )
    lines = [json.dumps(event) for event in adk(crew).run().json()]
    assert real_adk.ask("final_responses", lines=lines) == ["First.", "Second."]


def test_a_question_is_one_that_adk_takes_for_a_long_running_call(adk: MakeAdk, real_adk: RealAdk) -> None:
    asked = adk(Agent(Scripted(calls("confirm"), "Done."), name="agent", tools=[confirm]))
    lines = [json.dumps(event) for event in asked.run().json()]
    [read] = real_adk.ask("read_events", streams=[lines])
    assert read[-1]["longRunningToolIds"] == [read[-1]["content"]["parts"][0]["functionCall"]["id"]]
