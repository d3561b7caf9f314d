"""Requests that cannot be: refused in OpenAI's shape, with its statuses, before anything starts."""

from __future__ import annotations

import json
from typing import Any

import openai
import pytest

from halter import Agent, RunContext, runnable
from halter.models.openai import OpenAIChat
from halter.server import KeyFile
from halter.server.limits import Limits
from halter.testing.wire_probe import WireProbe

from ...server.conftest import Serve, Served
from .conftest import CHAT_WEATHER, WEATHER, client_of, poet

HELLO: list[Any] = [{"role": "user", "content": "Hello"}]


@runnable
async def echo(ctx: RunContext, input: str) -> str:
    return input


@pytest.fixture
def served(serve: Serve) -> Served:
    model = OpenAIChat("o3", base_url="http://127.0.0.1:9/v1", api_key="")
    return serve([poet(), echo, Agent(model, name="picky")])


CHATS: list[tuple[dict[str, Any], str | None, str | None]] = [
    ({"model": "poet"}, "messages", None),
    ({"messages": []}, "messages", None),
    ({"messages": [{"role": "assistant", "content": "Hi"}]}, None, None),
    ({"messages": [{"role": "wizard", "content": "Hi"}]}, "messages[0].role", None),
    ({"messages": [{"role": "user", "content": [{"type": "input_audio"}]}]}, "messages[0].content[0]", None),
    ({"messages": [{"role": "tool", "content": "x"}]}, "messages[0].tool_call_id", None),
    (
        {"messages": [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "data:x"}}]}]},
        "messages[0].content[0]",
        None,
    ),
    ({"temperature": 7}, "temperature", None),
    ({"temperature": "warm"}, "temperature", None),
    ({"n": 2}, "n", "unsupported_parameter"),
    ({"logprobs": True}, "logprobs", "unsupported_parameter"),
    ({"functions": [{"name": "f"}]}, "functions", "unsupported_parameter"),
    ({"colour": "red"}, "colour", "unknown_parameter"),
    ({"tools": [{"type": "web_search"}]}, "tools[0]", None),
    ({"tools": [CHAT_WEATHER, CHAT_WEATHER]}, None, "unsupported"),
    ({"tool_choice": "sometimes"}, "tool_choice", None),
    ({"response_format": {"type": "yaml"}}, "response_format", None),
    ({"user": "ann@example.com"}, "user", None),
    ({"model": "echo", "tools": [CHAT_WEATHER]}, None, "unsupported"),
    ({"model": "echo", "temperature": 0.5}, None, "unsupported"),
    ({"model": "echo", "response_format": {"type": "json_object"}}, None, "unsupported"),
    ({"model": "picky", "top_k": 3}, None, "unsupported"),
]
RESPONSES: list[tuple[dict[str, Any], str | None, str | None]] = [
    ({"input": None}, "input", None),
    ({"input": " "}, "input", None),
    ({"input": [{"type": "item_reference", "id": "x"}]}, "input[0].type", None),
    ({"input": [{"type": "function_call_output", "output": "x"}]}, "input[0].call_id", None),
    ({"max_tool_calls": 3}, "max_tool_calls", "unsupported_parameter"),
    ({"prompt": {"id": "x"}}, "prompt", "unsupported_parameter"),
    ({"text": {"format": {"type": "yaml"}}}, "text.format", None),
    ({"text": {"verbosity": "high"}}, "text.verbosity", None),
    ({"background": True, "store": False}, "store", None),
    ({"previous_response_id": "resp_x", "conversation": "y"}, "previous_response_id", None),
    ({"model": "echo", "tools": [WEATHER]}, None, "unsupported"),
    ({"model": "echo", "instructions": "Be short."}, None, "unsupported"),
]


@pytest.mark.scenario("G74")
def test_a_bad_request_is_refused_in_openais_shape_and_starts_nothing(served: Served) -> None:
    asked = [("/v1/chat/completions", {"model": "poet", "messages": HELLO}, each) for each in CHATS]
    asked += [("/v1/responses", {"model": "poet", "input": "Hello"}, each) for each in RESPONSES]
    for path, base, (fields, param, code) in asked:
        body = fields if fields == {"model": "poet"} else {**base, **fields}
        response = served.client.post(path, json=body)
        assert response.status_code == 400, (body, response.text)
        error = response.json()["error"]
        assert error["type"] == "invalid_request_error"
        assert (error["param"], error["code"]) == (param, code), (body, error)
        assert error["message"]
    assert served.client.get("/v1/runs").json()["runs"] == []
    assert served.client.get("/v1/sessions").json()["sessions"] == []


@pytest.mark.parametrize("data", [b"{", b"[]", b"\xff"])
def test_a_body_that_is_no_json_object_is_refused(served: Served, data: bytes) -> None:
    response = served.client.post("/v1/chat/completions", content=data)
    assert (response.status_code, response.json()["error"]["type"]) == (400, "invalid_request_error")


def test_values_that_change_nothing_are_taken(served: Served) -> None:
    body = {
        "messages": HELLO,
        "temperature": 1,
        "top_p": 1.0,
        "presence_penalty": 0,
        "frequency_penalty": 0,
        "n": 1,
        "logprobs": False,
        "logit_bias": None,
        "store": True,
        "service_tier": "auto",
        "prompt_cache_key": "x",
        "parallel_tool_calls": True,
        "tool_choice": "auto",
    }
    for model in ("poet", "echo"):
        response = served.client.post("/v1/chat/completions", json={"model": model, **body})
        assert response.status_code == 200, response.text


def test_unknown_models_and_responses_are_not_found(served: Served) -> None:
    client = client_of(served)
    with pytest.raises(openai.NotFoundError) as error:
        client.chat.completions.create(model="gpt-9", messages=HELLO)
    assert error.value.code == "model_not_found"
    for ask in (client.responses.retrieve, client.responses.cancel, client.responses.delete):
        with pytest.raises(openai.NotFoundError):
            ask("resp_none")
    with pytest.raises(openai.NotFoundError):
        client.responses.create(model="poet", input="Hi", previous_response_id="resp_none")
    with pytest.raises(openai.NotFoundError):
        client.responses.create(model="poet", input="Hi", conversation="none")
    with pytest.raises(openai.NotFoundError):
        client.models.retrieve("gpt-9")


def test_an_id_that_another_request_has_taken_is_a_conflict(served: Served) -> None:
    client = client_of(served)
    headers = {"Halter-Run-Id": "mine"}
    client.chat.completions.create(model="poet", messages=HELLO, extra_headers=headers)
    with pytest.raises(openai.ConflictError):
        client.chat.completions.create(model="poet", messages=[*HELLO, *HELLO], extra_headers=headers)
    with pytest.raises(openai.BadRequestError, match="Halter-Run-Id"):
        client.chat.completions.create(model="poet", messages=HELLO, extra_headers={"Halter-Run-Id": "a/b"})


def test_a_busy_conversation_is_a_conflict(serve: Serve, agent_on: Any, wire: WireProbe) -> None:
    client = client_of(serve(agent_on("stall")))
    conversation = client.conversations.create()
    first = client.responses.create(model="agent", input="Go.", conversation=conversation.id, background=True)
    wire.wait("token")
    with pytest.raises(openai.ConflictError) as error:
        client.responses.create(model="agent", input="Go.", conversation=conversation.id)
    assert error.value.response.headers["x-should-retry"] == "true"
    client.responses.cancel(first.id)


@pytest.mark.parametrize("is_streamed", [True, False])
def test_a_failed_run_is_an_error_of_the_client(serve: Serve, agent_on: Any, is_streamed: bool) -> None:
    client = client_of(serve(agent_on("error-frame")))
    ask: Any = client.chat.completions.create
    with pytest.raises(openai.APIError):
        list(ask(model="agent", messages=HELLO, stream=is_streamed))
    if is_streamed:
        events = list(client.responses.create(model="agent", input="Go.", stream=True))
        assert events[-1].type == "response.failed"
    else:
        response = client.responses.create(model="agent", input="Go.")
        assert response.status == "failed"
        assert response.error is not None


# --- keys and tenants ---------------------------------------------------------------------------------------


def test_keys_scopes_and_tenants_hold_as_everywhere(serve: Serve, tmp_path: Any) -> None:
    keys = KeyFile(tmp_path / "keys.json")
    ann = keys.add("ann", tenant="a", scopes=("run", "read", "stop"))
    bob = keys.add("bob", tenant="b", scopes=("run", "read", "stop"))
    eve = keys.add("eve", tenant="a", scopes=("read",))
    served = serve(poet(), auth=keys)
    with pytest.raises(openai.AuthenticationError) as error:
        client_of(served).models.list()
    assert error.value.code == "invalid_api_key"
    keys_of = {"a": ann, "b": bob, "e": eve}
    of = {name: client_of(served, key) for name, key in keys_of.items()}
    response = of["a"].responses.create(model="poet", input="Hello")
    conversation = of["a"].conversations.create()
    assert of["e"].responses.retrieve(response.id).output_text
    with pytest.raises(openai.PermissionDeniedError):
        of["e"].responses.create(model="poet", input="Hello")
    for ask in (of["b"].responses.retrieve, of["b"].responses.cancel, of["b"].responses.delete):
        with pytest.raises(openai.NotFoundError):
            ask(response.id)
    with pytest.raises(openai.NotFoundError):
        of["b"].responses.create(model="poet", input="Hi", previous_response_id=response.id)
    with pytest.raises(openai.NotFoundError):
        of["b"].conversations.retrieve(conversation.id)
    with pytest.raises(openai.NotFoundError):
        of["b"].responses.create(model="poet", input="Hi", conversation=conversation.id)
    again = of["a"].responses.create(model="poet", input="Hi", previous_response_id=response.id)
    assert "a/" not in json.dumps(again.to_dict())


def test_a_stream_too_many_is_refused_before_its_run_starts(serve: Serve) -> None:
    served = serve(poet(), limits=Limits(streams=0))
    ask: Any = client_of(served).chat.completions.create
    with pytest.raises(openai.RateLimitError):
        ask(model="poet", messages=HELLO, stream=True)
    assert served.start("poet", stream=True).status_code == 429
    assert served.client.get("/v1/runs").json()["runs"] == []


def test_pages_of_other_sites_are_refused(served: Served) -> None:
    headers = {"Origin": "https://evil.example"}
    response = served.client.post("/v1/chat/completions", json={"model": "poet", "messages": HELLO}, headers=headers)
    assert response.status_code == 403
