"""Bodies that no client means: refused with the reason, in the front's own shape, and never an error of the server."""

from __future__ import annotations

import time
from collections.abc import Generator
from typing import Any

import pytest
from fastapi.testclient import TestClient

from halter import Agent
from halter.models.scripted import Scripted
from halter.request import ToolSpec
from halter.server import create_app
from halter.sessions import Sessions

DEEP = b"[" * 50_000 + b"]" * 50_000
CHAT = b'{"model":"agent","messages":[{"role":"user","content":%s}]}'
RESPONSE = b'{"model":"agent","input":[{"role":"user","content":%s}]}'
HOSTILE = [
    DEEP,
    b"[" * 200 + b"]" * 200,
    b'"\\ud800"',
    b'[{"type":[]}]',
    b'[{"type":{}}]',
    b'[{"type":"file","file":"x"}]',
    b'[{"type":"input_file","file_data":1}]',
    b'[{"type":"image_url","image_url":[1]}]',
    b'[{"type":"input_image","image_url":"file:///etc/passwd"}]',
    b'[{"type":"input_file","file_url":"FILE:///etc/passwd"}]',
]


@pytest.fixture(scope="module")
def client() -> Generator[TestClient]:
    app = create_app(Agent(Scripted("One.", "Two.", "Three."), name="agent"), sessions=Sessions())
    headers = {"Content-Type": "application/json"}
    with TestClient(app, "http://localhost", raise_server_exceptions=False, headers=headers) as client:
        yield client


@pytest.mark.parametrize("content", HOSTILE, ids=lambda given: given[:20].decode())
@pytest.mark.parametrize(("path", "body"), [("/v1/chat/completions", CHAT), ("/v1/responses", RESPONSE)])
def test_content_that_cannot_be_is_refused_in_openais_shape(
    client: TestClient, path: str, body: bytes, content: bytes
) -> None:
    response = client.post(path, content=body % content)
    assert response.status_code == 400, response.text
    assert response.json()["error"]["type"] == "invalid_request_error"


@pytest.mark.parametrize("format", [b"1", b'"x"', b"[]", b'{"type":1}'])
def test_a_format_that_cannot_be_is_refused(client: TestClient, format: bytes) -> None:
    body = b'{"model":"agent","input":"x","text":{"format":%s}}' % format
    response = client.post("/v1/responses", content=body)
    assert response.status_code == 400, response.text


def test_a_run_id_that_cannot_be_makes_no_session(client: TestClient) -> None:
    said: dict[str, Any] = {"model": "agent", "input": "x"}
    said["previous_response_id"] = client.post("/v1/responses", json=said).json()["id"]
    client.post("/v1/responses", json=said)
    before = client.get("/v1/sessions").json()
    refused = client.post("/v1/responses", json=said, headers={"Halter-Run-Id": "a b"})
    assert refused.json()["error"]["param"] == "Halter-Run-Id"
    assert client.get("/v1/sessions").json() == before


def test_an_attachment_that_is_no_base64_is_refused(client: TestClient) -> None:
    image = b'{"type":"image","source":{"type":"data","value":"\\u00e9","mimeType":"image/png"}}'
    body = b'{"threadId":"t","runId":"r","messages":[{"role":"user","content":[%s]}]}' % image
    assert client.post("/v1/ag-ui/agent", content=body).status_code == 422


def test_a_file_of_the_models_machine_is_no_attachment_for_adk(client: TestClient) -> None:
    client.post("/apps/agent/users/u/sessions/s")
    asked = {"appName": "agent", "userId": "u", "sessionId": "s"}
    for uri, status in (("file:///etc/passwd", 400), ("gs://bucket/a.pdf", 200)):
        message = {"role": "user", "parts": [{"fileData": {"fileUri": uri}}]}
        assert client.post("/run", json={**asked, "newMessage": message}).status_code == status


def test_tens_of_thousands_of_tools_are_read_in_no_time() -> None:
    tools = [ToolSpec(name=f"tool_{n}", description="") for n in range(30_000)]
    began = time.monotonic()
    Agent(Scripted("Yes."), name="agent").for_request(tools=tools)
    assert time.monotonic() - began < 5  # each compared with each takes longer


def test_what_was_asked_counts_among_the_bytes_that_are_kept_of_ended_runs() -> None:
    app = create_app(Agent(Scripted("One."), name="agent"), sessions=Sessions(), retain_bytes=50_000)
    with TestClient(app, "http://localhost") as client:
        for length, kept in ((10_000, 10_000), (60_000, 0)):
            asked = {"model": "agent", "input": "x", "instructions": "y" * length}
            id = client.post("/v1/responses", json=asked).json()["id"]
            response = client.get(f"/v1/responses/{id}").json()
            assert response["output"][0]["content"][0]["text"] == "One."
            assert len(response["instructions"] or "") == kept
