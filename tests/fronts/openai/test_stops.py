"""Whoever stops a run that OpenAI's API has started, and however, its provider sees the close."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Callable
from typing import Any

import pytest

from halter import Agent
from halter.testing.wire_probe import WireProbe

from ...server.conftest import Serve, Served
from .conftest import async_client_of, check_chunk, client_of, raw_events

AgentOn = Callable[..., Agent[Any]]
NOTICED = 1.0  # seconds
HELLO: list[Any] = [{"role": "user", "content": "Go."}]
CHAT = ("/v1/chat/completions", {"model": "agent", "messages": HELLO})
RESPONSES = ("/v1/responses", {"model": "agent", "input": "Go."})
WAYS = {"chat": CHAT, "responses": RESPONSES}


def leave(
    served: Served, way: str, wire: WireProbe, *, headers: str = "", state: str = "token", **fields: Any
) -> float:
    """Starts the run `r` on a bare connection, waits until the provider is at `state`, and closes it."""
    path, body = WAYS[way]
    data = json.dumps({**body, **fields}).encode()
    head = f"POST {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nHalter-Run-Id: r\r\n{headers}"
    with served.connect() as connection:
        connection.sendall(head.encode() + b"Content-Length: %d\r\n\r\n" % len(data) + data)
        wire.wait(state)
    return time.monotonic()


@pytest.mark.scenario("G66")
@pytest.mark.parametrize("mode", ["steady(1000,10)", "stall", "no-headers"])
@pytest.mark.parametrize("is_streamed", [True, False])
@pytest.mark.parametrize("way", WAYS)
def test_a_client_that_left_stops_its_run(
    serve: Serve, agent_on: AgentOn, wire: WireProbe, way: str, is_streamed: bool, mode: str
) -> None:
    served = serve(agent_on(mode))
    state = "started" if mode == "no-headers" else "token"
    left = leave(served, way, wire, state=state, stream=is_streamed)
    wire.assert_closed(NOTICED, since=left)
    assert served.until("r", "cancelled")["cancellation"]["reason"] == "client_disconnect"


@pytest.mark.scenario("G66")
def test_a_response_in_the_background_outlives_its_client(serve: Serve, agent_on: AgentOn, wire: WireProbe) -> None:
    served = serve(agent_on("steady(30,10)"))
    leave(served, "responses", wire, stream=True, background=True)
    assert served.until("r", "completed")["text"].split() == [f"t{number}" for number in range(30)]


@pytest.mark.scenario("G66", "J84")
def test_a_client_that_comes_back_in_time_keeps_its_run_and_misses_nothing(
    serve: Serve, agent_on: AgentOn, wire: WireProbe
) -> None:
    served = serve(agent_on("steady(60,5)"))
    leave(served, "responses", wire, headers="Halter-Linger: 5\r\n", stream=True)
    with client_of(served).responses.retrieve("resp_r", stream=True, starting_after=-1) as stream:
        deltas = [event.delta for event in stream if event.type == "response.output_text.delta"]
    assert "".join(deltas).split() == [f"t{number}" for number in range(60)]
    assert len(wire.requests()) == 1


@pytest.mark.scenario("J84")
def test_a_client_that_does_not_come_back_stops_its_run_once(serve: Serve, agent_on: AgentOn, wire: WireProbe) -> None:
    served = serve(agent_on("stall"))
    left = leave(served, "responses", wire, headers="Halter-Linger: 0.2\r\n", stream=True)
    assert served.run("r")["status"] == "running"
    wire.assert_closed(0.2 + NOTICED, since=left)
    assert len(wire.requests()) == 1


@pytest.mark.scenario("G66", "G74")
def test_closing_the_clients_stream_stops_the_run(serve: Serve, agent_on: AgentOn, wire: WireProbe) -> None:
    client = client_of(serve(agent_on("stall")))
    with client.chat.completions.create(model="agent", messages=HELLO, stream=True) as stream:
        next(stream)
        wire.wait("token")
    wire.assert_closed(NOTICED)


@pytest.mark.scenario("G66", "G74")
@pytest.mark.parametrize("way", WAYS)
def test_cancelling_the_async_clients_request_stops_the_run(
    serve: Serve, agent_on: AgentOn, wire: WireProbe, way: str
) -> None:
    served = serve(agent_on("no-headers"))

    async def ask_and_cancel() -> None:
        async with async_client_of(served) as client:
            asked: Any = (
                client.chat.completions.create(model="agent", messages=HELLO)
                if way == "chat"
                else client.responses.create(model="agent", input="Go.")
            )
            task = asyncio.ensure_future(asked)
            await wire.awaited("started")
            task.cancel()
            await asyncio.wait([task])

    asyncio.run(ask_and_cancel())
    wire.assert_closed(NOTICED)


@pytest.mark.scenario("G74")
def test_a_chat_is_stopped_by_its_own_id(serve: Serve, agent_on: AgentOn, wire: WireProbe) -> None:
    served = serve(agent_on("stall"))
    body = {**CHAT[1], "stream": True}
    with raw_events(served, "POST", CHAT[0], json=body, headers={"Halter-Run-Id": "mine"}) as found:
        wire.wait("token")
        served.cancel("mine")
        wire.assert_closed()
        chunks = [check_chunk(each) for each in found]
    assert chunks[-1].choices[0].finish_reason == "length"
    assert chunks[-1].model_extra is not None
    assert chunks[-1].model_extra["halter"]["reason"] == "user_stop"


@pytest.mark.scenario("G74")
def test_a_stopped_completion_says_that_it_is_not_whole(serve: Serve, agent_on: AgentOn, wire: WireProbe) -> None:
    served = serve(agent_on("stall"))

    async def ask_and_stop() -> Any:
        async with async_client_of(served) as client:
            headers = {"Halter-Run-Id": "mine"}
            asked = client.chat.completions.create(model="agent", messages=HELLO, extra_headers=headers)
            task = asyncio.ensure_future(asked)
            await wire.awaited("token")
            await asyncio.to_thread(served.cancel, "mine")
            return await task

    completion = asyncio.run(ask_and_stop())
    assert completion.choices[0].finish_reason == "length"
    assert completion.choices[0].message.content == "t0 "
    assert completion.model_extra["halter"]["status"] == "cancelled"


@pytest.mark.scenario("G74")
def test_a_request_that_comes_again_with_its_id_starts_nothing_new(
    serve: Serve, agent_on: AgentOn, wire: WireProbe
) -> None:
    client = client_of(serve(agent_on("steady(3,1)")))
    headers = {"Halter-Run-Id": "mine"}
    for _ in range(2):
        completion = client.chat.completions.create(model="agent", messages=HELLO, extra_headers=headers)
        assert completion.choices[0].message.content == "t0 t1 t2 "
        response = client.responses.create(model="agent", input="Go.", extra_headers={"Halter-Run-Id": "other"})
        assert response.output_text == "t0 t1 t2 "
    assert len(wire.requests()) == 2
