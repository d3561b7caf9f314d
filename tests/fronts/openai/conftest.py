"""OpenAI's own Python client against a server, and what every event of a stream must be by its types."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import httpx
import pytest
from openai import AsyncOpenAI, OpenAI
from openai.types.chat import ChatCompletionChunk
from openai.types.responses import Response, ResponseStreamEvent
from pydantic import TypeAdapter

from halter import Agent
from halter.models.scripted import Scripted, calls

from ...server.conftest import Served, agent_on, serve

__all__ = ["agent_on", "serve"]

EVENT: TypeAdapter[Any] = TypeAdapter(ResponseStreamEvent)
WEATHER: dict[str, Any] = {
    "type": "function",
    "name": "get_weather",
    "description": "Get the current weather for a location",
    "parameters": {"type": "object", "properties": {"location": {"type": "string"}}, "required": ["location"]},
}
CHAT_WEATHER: dict[str, Any] = {
    "type": "function",
    "function": {name: value for name, value in WEATHER.items() if name != "type"},
}


def poet(name: str = "poet", **options: Any) -> Agent[Any]:
    return Agent("scripted:Slowly the river turns.", name=name, **options)


def forecaster() -> Agent[Any]:
    """Asks its caller for the weather, and then tells it."""
    answers = Scripted(("Let me see.", calls("get_weather", location="Nara")), "It is sunny in Nara.")
    return Agent(answers, name="forecaster")


_clients: list[OpenAI] = []


@pytest.fixture(autouse=True)
def clients_are_closed() -> Iterator[None]:
    """Closes the clients of the test."""
    yield
    while _clients:
        _clients.pop().close()


def client_of(served: Served, key: str = "none") -> OpenAI:
    """A client of the server, until the end of the test."""
    without_certificates = httpx.Client(verify=False)  # reading them takes longer than most tests
    url = f"{served.url}/v1"
    client = OpenAI(base_url=url, api_key=key, max_retries=0, timeout=20, http_client=without_certificates)
    _clients.append(client)
    return client


def async_client_of(served: Served) -> AsyncOpenAI:
    return AsyncOpenAI(base_url=f"{served.url}/v1", api_key="none", max_retries=0, timeout=20)


def check_chunk(data: dict[str, Any]) -> ChatCompletionChunk:
    """The chunk, if it is one by the client's types."""
    return ChatCompletionChunk.model_validate(data)


def check_event(data: dict[str, Any]) -> Any:
    """The event, if it is one by the client's types."""
    event = EVENT.validate_python(data)
    assert event.type == data["type"]
    return event


def check_response(data: dict[str, Any]) -> Response:
    """The response, if it is one by the client's types."""
    return Response.model_validate(data)


@contextmanager
def raw_events(served: Served, method: str, path: str, **options: Any) -> Iterator[Iterator[dict[str, Any]]]:
    """The data of each frame of a stream, up to `[DONE]`."""

    def read(response: httpx.Response) -> Iterator[dict[str, Any]]:
        for line in response.iter_lines():
            if line == "data: [DONE]":
                return
            if line.startswith("data: "):
                yield httpx.Response(200, content=line.removeprefix("data: ")).json()

    with served.client.stream(method, path, **options) as response:
        assert response.status_code == 200, response.read()
        yield read(response)
