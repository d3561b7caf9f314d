"""Responses through OpenAI's own client: answers, events, conversations, the background, resuming and stopping."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from typing import Any

import openai
import pytest
from pydantic import BaseModel

from halter import Agent
from halter.models.scripted import Scripted
from halter.sessions import Sessions
from halter.testing.wire_probe import WireProbe

from ...server.conftest import Serve
from .conftest import (
    WEATHER,
    async_client_of,
    check_event,
    check_response,
    client_of,
    forecaster,
    poet,
    raw_events,
)

AgentOn = Callable[..., Agent[Any]]
pytestmark = pytest.mark.scenario("G74")


class City(BaseModel):
    name: str


def counting() -> Agent[Any]:
    """Says which answer of the conversation it is."""
    return Agent(Scripted("One.", "Two.", "Three."), name="counter")


def words(count: int) -> list[str]:
    return [f"t{number}" for number in range(count)]


def test_the_client_reads_a_response(serve: Serve) -> None:
    served = serve(poet())
    response = client_of(served).responses.create(
        model="poet", input="Hello", metadata={"a": "b"}, instructions="Short"
    )
    assert (response.output_text, response.status) == ("Slowly the river turns.", "completed")
    assert (response.metadata, response.instructions) == ({"a": "b"}, "Short")
    assert response.usage is not None
    again = client_of(served).responses.retrieve(response.id)
    assert again == response
    check_response(served.client.get(f"/v1/responses/{response.id}").json())


def test_every_event_of_a_stream_fits_the_clients_types_and_is_numbered(serve: Serve) -> None:
    body = {"model": "forecaster", "input": "Nara?", "stream": True, "tools": [WEATHER]}
    with raw_events(serve(forecaster()), "POST", "/v1/responses", json=body) as found:
        events = [check_event(each) for each in found]
    assert [event.sequence_number for event in events] == list(range(len(events)))
    assert [event.type.removeprefix("response.") for event in events] == [
        "created",
        "in_progress",
        "output_item.added",
        "content_part.added",
        *["output_text.delta"] * 3,
        "output_text.done",
        "content_part.done",
        "output_item.done",
        "output_item.added",
        "function_call_arguments.delta",
        "function_call_arguments.done",
        "output_item.done",
        "completed",
    ]


def test_the_stream_helpers_accumulate_the_response(serve: Serve) -> None:
    served = serve(poet())
    with client_of(served).responses.stream(model="poet", input="Hello") as stream:
        pieces = [event.delta for event in stream if event.type == "response.output_text.delta"]
        assert "".join(pieces) == stream.get_final_response().output_text == "Slowly the river turns."

    async def through_the_async_client() -> str:
        async with async_client_of(served) as client, client.responses.stream(model="poet", input="Hello") as stream:
            return (await stream.get_final_response()).output_text

    assert asyncio.run(through_the_async_client()) == "Slowly the river turns."


def test_parse_reads_a_value_of_a_type(serve: Serve) -> None:
    client = client_of(serve(Agent('scripted:{"name": "Nara"}', name="geographer")))
    assert client.responses.parse(model="geographer", input="Where?", text_format=City).output_parsed == City(
        name="Nara"
    )


def test_the_client_answers_a_call_of_its_own_tool(serve: Serve) -> None:
    client = client_of(serve(forecaster()))
    tools: Any = [WEATHER]
    first = client.responses.create(model="forecaster", input="Nara?", tools=tools)
    call: Any = first.output[-1]
    assert (call.type, call.name, json.loads(call.arguments)) == ("function_call", "get_weather", {"location": "Nara"})
    result: Any = [{"type": "function_call_output", "call_id": call.call_id, "output": "Sunny."}]
    second = client.responses.create(model="forecaster", previous_response_id=first.id, input=result, tools=tools)
    assert second.output_text == "It is sunny in Nara."
    assert second.previous_response_id == first.id


def test_a_whole_conversation_can_be_sent_as_items(serve: Serve, agent_on: AgentOn, wire: WireProbe) -> None:
    items: Any = [
        {"role": "user", "content": "Nara?"},
        {"type": "reasoning", "id": "rs_1", "summary": []},
        {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "Let me see."}]},
        {"type": "function_call", "call_id": "c", "name": "get_weather", "arguments": "{}"},
        {"type": "function_call_output", "call_id": "c", "output": [{"type": "input_text", "text": "Sunny."}]},
    ]
    client = client_of(serve(agent_on("steady(2,1)")))
    client.responses.create(model="agent", input=items, store=False)
    client.responses.create(model="agent", input=items)
    for request in wire.requests():
        asked = json.loads(request.body)["messages"]
        assert [each["role"] for each in asked] == ["user", "assistant", "tool"]
        assert asked[1]["tool_calls"][0]["id"] == asked[2]["tool_call_id"] == "c"


# --- conversations ------------------------------------------------------------------------------------------


def test_a_response_continues_the_one_before(serve: Serve) -> None:
    served = serve(counting())
    client = client_of(served)
    first = client.responses.create(model="counter", input="a")
    second = client.responses.create(model="counter", input="b", previous_response_id=first.id)
    third = client.responses.create(model="counter", input="c", previous_response_id=second.id)
    assert [each.output_text for each in (first, second, third)] == ["One.", "Two.", "Three."]
    assert len(served.client.get("/v1/sessions").json()["sessions"]) == 1


def test_a_response_that_is_asked_for_again_continues_as_before(serve: Serve) -> None:
    served = serve(counting())
    client = client_of(served)
    first = client.responses.create(model="counter", input="a")
    for id in ("second", "second", "branch", "branch"):
        headers = {"Halter-Run-Id": id}
        again = client.responses.create(
            model="counter", input="b", previous_response_id=first.id, extra_headers=headers
        )
        assert (again.id, again.output_text) == (f"resp_{id}", "Two.")
    assert len(served.client.get("/v1/sessions").json()["sessions"]) == 2
    assert len(served.client.get("/v1/runs").json()["runs"]) == 3


def test_a_response_that_continues_an_earlier_one_has_a_session_of_its_own(serve: Serve) -> None:
    served = serve(forecaster())
    client = client_of(served)
    tools: Any = [WEATHER]
    first = client.responses.create(model="forecaster", input="Nara?", tools=tools)
    call: Any = first.output[-1]
    result: Any = [{"type": "function_call_output", "call_id": call.call_id, "output": "Sunny."}]
    for _ in range(2):
        again = client.responses.create(model="forecaster", previous_response_id=first.id, input=result, tools=tools)
        assert again.output_text == "It is sunny in Nara."
    assert sorted(each["messages"] for each in served.client.get("/v1/sessions").json()["sessions"]) == [4, 4]


def test_a_conversation_is_a_session(serve: Serve) -> None:
    served = serve(counting())
    client = client_of(served)
    items: Any = [{"type": "message", "role": "user", "content": "Earlier."}]
    conversation = client.conversations.create(items=items, metadata={"topic": "rivers"})
    for expected in ("One.", "Two."):
        response = client.responses.create(model="counter", input="x", conversation=conversation.id)
        assert response.output_text == expected
        assert response.conversation is not None
        assert response.conversation.id == conversation.id
    said = [each.type for each in client.conversations.items.list(conversation.id, order="asc")]
    assert said == ["message"] * 5
    assert client.conversations.retrieve(conversation.id).metadata == {"topic": "rivers"}
    assert client.conversations.update(conversation.id, metadata={"topic": "seas"}).metadata == {"topic": "seas"}
    assert client.conversations.delete(conversation.id).deleted
    with pytest.raises(openai.NotFoundError):
        client.responses.create(model="counter", input="x", conversation=conversation.id)


def test_a_response_that_is_not_stored_cannot_be_continued(serve: Serve) -> None:
    served = serve(counting())
    client = client_of(served)
    first = client.responses.create(model="counter", input="a")
    aside = client.responses.create(model="counter", input="b", previous_response_id=first.id, store=False)
    assert aside.output_text == "Two."
    with pytest.raises(openai.BadRequestError, match="was not stored"):
        client.responses.create(model="counter", input="c", previous_response_id=aside.id)
    assert served.client.get("/v1/sessions").json()["sessions"][0]["messages"] == 2


def test_input_items_are_listed_page_by_page(serve: Serve) -> None:
    client = client_of(serve(poet()))
    items: Any = [{"role": "user", "content": text} for text in ("a", "b", "c")]
    response = client.responses.create(model="poet", input=items)
    pages = client.responses.input_items.list(response.id, limit=2, order="asc")
    assert [each.content[0].text for each in pages] == ["a", "b", "c"]  # pyright: ignore


def test_a_deleted_response_is_gone_with_its_session(serve: Serve, tmp_path: Any) -> None:
    served = serve(poet(), sessions=Sessions(str(tmp_path / "sessions.db")))
    client = client_of(served)
    response = client.responses.create(model="poet", input="Hello")
    client.responses.delete(response.id)
    with pytest.raises(openai.NotFoundError):
        client.responses.retrieve(response.id)
    assert served.client.get("/v1/sessions").json()["sessions"] == []


# --- the background, resuming, stopping -----------------------------------------------------------------------


def test_a_response_in_the_background_is_polled(serve: Serve, agent_on: AgentOn) -> None:
    client = client_of(serve(agent_on("steady(20,5)")))
    response = client.responses.create(model="agent", input="Go.", background=True)
    assert response.status in ("queued", "in_progress")
    while response.status in ("queued", "in_progress"):
        response = client.responses.retrieve(response.id)
    assert (response.status, response.output_text.split()) == ("completed", words(20))
    assert response.background


def test_a_response_in_the_background_is_cancelled(serve: Serve, agent_on: AgentOn, wire: WireProbe) -> None:
    client = client_of(serve(agent_on("stall")))
    response = client.responses.create(model="agent", input="Go.", background=True)
    wire.wait("token")
    stopped = client.responses.cancel(response.id)
    wire.assert_closed()
    assert stopped.status == "cancelled"
    assert stopped.output[0].status == "incomplete"  # type: ignore[union-attr]
    assert client.responses.cancel(response.id).status == "cancelled"


@pytest.mark.scenario("G67")
def test_a_stream_is_resumed_after_every_event(serve: Serve) -> None:
    served = serve(forecaster())
    body = {"model": "forecaster", "input": "Nara?", "stream": True, "tools": [WEATHER], "background": True}
    with raw_events(served, "POST", "/v1/responses", json=body) as found:
        events = list(found)
    id = events[-1]["response"]["id"]
    for cut in range(-1, len(events) - 1):
        with raw_events(served, "GET", f"/v1/responses/{id}?stream=true&starting_after={cut}") as found:
            assert joined(found) == joined(events[cut + 1 :]), cut


@pytest.mark.scenario("G67")
def test_a_stream_is_resumed_inside_of_merged_deltas(serve: Serve) -> None:
    told = " ".join(f"w{number}" for number in range(600))
    served = serve(Agent(Scripted(told), name="teller"))
    body = {"model": "teller", "input": "Go.", "stream": True}
    with raw_events(served, "POST", "/v1/responses", json=body) as found:
        events = list(found)
    id, last = events[-1]["response"]["id"], events[-1]["sequence_number"]
    assert last == 600 + 7
    for cut in (3, 4, 5, 130, 257, 601, 603, 604, last - 1):
        with raw_events(served, "GET", f"/v1/responses/{id}?stream=true&starting_after={cut}") as found:
            rest = list(found)
        assert rest[0]["sequence_number"] > cut
        text = "".join(each["delta"] for each in rest if each["type"] == "response.output_text.delta")
        assert text.split() == told.split()[max(0, cut - 3) :]
        assert rest[-1] == events[-1]


def joined(events: Any) -> list[Any]:
    """The events, with the neighbouring deltas of a slow or late reader as one."""
    found: list[Any] = []
    for event in events:
        if found and event["type"].endswith("_text.delta") and found[-1]["type"] == event["type"]:
            event = {**event, "delta": found.pop()["delta"] + event["delta"]}
        found.append(event)
    return found


@pytest.mark.scenario("G67")
def test_the_client_resumes_a_live_stream(serve: Serve, agent_on: AgentOn, wire: WireProbe) -> None:
    client = client_of(serve(agent_on("steady(100,3)")))
    pieces: list[str] = []
    last = -1
    with client.responses.create(model="agent", input="Go.", stream=True, background=True) as stream:
        for event in stream:
            last = event.sequence_number
            if event.type == "response.created":
                id = event.response.id
            if event.type == "response.output_text.delta":
                pieces.append(event.delta)
            if len(pieces) == 10:
                break
    with client.responses.retrieve(id, stream=True, starting_after=last) as stream:
        for event in stream:
            assert event.sequence_number > last
            last = event.sequence_number
            if event.type == "response.output_text.delta":
                pieces.append(event.delta)
    assert event.type == "response.completed"
    assert "".join(pieces).split() == words(100)
    assert len(wire.requests()) == 1
    with client.responses.stream(response_id=id, starting_after=last - 5) as helped:
        assert helped.get_final_response().output_text.split() == words(100)


def test_a_stopped_stream_ends_with_an_incomplete_response(serve: Serve, agent_on: AgentOn, wire: WireProbe) -> None:
    served = serve(agent_on("stall"))
    body = {"model": "agent", "input": "Go.", "stream": True}
    with raw_events(served, "POST", "/v1/responses", json=body, headers={"Halter-Run-Id": "r"}) as found:
        wire.wait("token")
        served.cancel("r", message="enough")
        events = [check_event(each) for each in found]
    assert events[-1].type == "response.incomplete"
    assert events[-1].response.status == "cancelled"
    assert events[-1].response.model_extra["halter"]["reason"] == "user_stop"


def test_responses_of_an_earlier_process_are_known(serve: Serve, tmp_path: Any) -> None:
    place = str(tmp_path / "sessions.db")
    first = client_of(serve(counting(), sessions=Sessions(place))).responses.create(model="counter", input="a")
    client = client_of(serve(counting(), sessions=Sessions(place)))
    assert client.responses.retrieve(first.id).output_text == "One."
    headers = {"Halter-Run-Id": first.id.removeprefix("resp_")}
    again = client.responses.create(model="counter", input="a", extra_headers=headers)
    assert (again.id, again.output_text) == (first.id, "One.")
    assert client.responses.create(model="counter", input="b", previous_response_id=first.id).output_text == "Two."
