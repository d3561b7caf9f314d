"""A key sees and answers its own tenant's chats, and no other's, on the fronts whose clients send chats."""

from __future__ import annotations

from typing import Any

import httpx
import pytest
from starlette.requests import HTTPConnection

from halter import Agent, tool
from halter.models.scripted import Scripted, calls
from halter.server import Principal

from ..server.conftest import Serve, Served


async def by_name(connection: HTTPConnection) -> Principal | None:
    """The key is the tenant's name; `reader` may only read."""
    name = connection.headers.get("authorization", "").removeprefix("Bearer ")
    if name == "reader":
        return Principal(tenant="anna", actor=name, scopes=frozenset({"read"}))
    return Principal(tenant=name, actor=name) if name else None


@tool(approval="always")
async def pay(to: str) -> str:
    """Pays."""
    return to


def as_(served: Served, name: str) -> httpx.Client:
    return httpx.Client(base_url=served.url, timeout=20, headers={"Authorization": f"Bearer {name}"} if name else {})


def who_answered(client: httpx.Client) -> list[tuple[str, str]]:
    entries = client.get("/v1/audit?action=run.input").json()["entries"]
    return [(entry["actor"], entry["target"]) for entry in entries]


@pytest.fixture
def served(serve: Serve) -> Served:
    return serve(Agent(Scripted(calls("pay", to="x"), "Paid."), name="agent", tools=[pay]), auth=by_name)


def chat(*messages: dict[str, Any]) -> dict[str, Any]:
    hello = {"id": "1", "role": "user", "parts": [{"type": "text", "text": "Pay."}]}
    return {"id": "chat", "messages": [hello, *messages]}


def test_nobody_else_resumes_or_answers_a_chat_of_use_chat(served: Served) -> None:
    with as_(served, "anna") as anna, as_(served, "ben") as ben, as_(served, "reader") as reader, as_(served, "") as no:
        assert no.post("/v1/ai-sdk/agent/chat", json=chat()).status_code == 401
        assert reader.post("/v1/ai-sdk/agent/chat", json=chat()).status_code == 403
        assert anna.post("/v1/ai-sdk/agent/chat", json=chat()).text.endswith("[DONE]\n\n")
        [run] = anna.get("/v1/runs").json()["runs"]
        [question] = run["inputs"]
        approval = {"id": question["request_id"], "approved": True}
        answer = chat({"id": run["id"], "role": "assistant", "parts": [{"type": "tool-pay", "approval": approval}]})
        assert ben.get("/v1/ai-sdk/agent/chat/chat/stream").status_code == 204
        assert ben.post("/v1/ai-sdk/agent/chat", json=answer).status_code == 404
        assert anna.post("/v1/ai-sdk/agent/chat", json={**answer, "id": "other"}).status_code == 404
        assert "Paid." in anna.post("/v1/ai-sdk/agent/chat", json=answer).text
        assert anna.post("/v1/ai-sdk/agent/chat", json=answer).status_code == 409
        assert who_answered(anna) == [("anna", run["id"])]
        assert ben.get("/v1/runs").json()["runs"] == []


def test_nobody_else_answers_an_interrupt_of_ag_ui(served: Served) -> None:
    body = {"threadId": "t", "runId": "r", "messages": [{"id": "1", "role": "user", "content": "Pay."}]}
    with as_(served, "anna") as anna, as_(served, "ben") as ben, as_(served, "reader") as reader, as_(served, "") as no:
        assert no.post("/v1/ag-ui/agent", json=body).status_code == 401
        assert reader.post("/v1/ag-ui/agent", json=body).status_code == 403
        assert '"type":"interrupt"' in anna.post("/v1/ag-ui/agent", json=body).text
        [question] = anna.get("/v1/runs/r").json()["inputs"]
        entry = {"interruptId": f"r:{question['request_id']}", "status": "resolved", "payload": True}
        answer = {**body, "runId": "r2", "resume": [entry]}
        assert ben.post("/v1/ag-ui/agent", json=answer).status_code == 404
        assert anna.post("/v1/ag-ui/agent", json={**answer, "threadId": "other"}).status_code == 404
        assert "Paid." in anna.post("/v1/ag-ui/agent", json=answer).text
        assert anna.post("/v1/ag-ui/agent", json=answer).status_code == 409
        assert who_answered(anna) == [("anna", "r")]
        late = {**body, "runId": "r3", "resume": [{"interruptId": "r:unknown", "status": "cancelled"}]}
        assert '"type":"RUN_FINISHED","threadId":"t","runId":"r3"' in anna.post("/v1/ag-ui/agent", json=late).text
        assert ben.get("/v1/runs").json()["runs"] == []


def test_nobody_continues_a_run_of_another_tenant_that_has_the_id_of_their_own(serve: Serve) -> None:
    served = serve(Agent(Scripted("One.", "Two.", "Three."), name="agent"), auth=by_name)
    with as_(served, "anna") as anna, as_(served, "ben") as ben:
        assert ben.post("/v1/runs?wait=5", json={"agent": "agent", "input": "Hello", "id": "r"}).status_code == 200
        start = {"agent": "agent", "input": "A secret", "id": "r", "session": "s"}
        assert anna.post("/v1/runs?wait=5", json=start).status_code == 200
        body = {"model": "agent", "input": "Repeat that.", "previous_response_id": "resp_r"}
        for store in (True, False):
            assert ben.post("/v1/responses", json={**body, "store": store}).status_code == 400
        assert ben.get("/v1/sessions").json()["sessions"] == []
        assert anna.post("/v1/responses", json=body).status_code == 200


@pytest.mark.parametrize("front", ["ag-ui", "ai-sdk"])
def test_nobody_takes_the_id_of_a_stored_run_of_another_tenant(serve: Serve, front: str) -> None:
    served = serve(Agent(Scripted("One.", "Two."), name="agent"), auth=by_name)
    with as_(served, "anna") as anna, as_(served, "ben") as ben:
        start = {"agent": "agent", "input": "Pay.", "id": "r", "session": "s"}
        assert anna.post("/v1/runs?wait=5", json=start).status_code == 200
        hello: dict[str, Any] = {"threadId": "t", "runId": "r", "messages": [{"role": "user", "content": "Pay."}]}
        path = "/v1/ag-ui/agent" if front == "ag-ui" else "/v1/ai-sdk/agent/chat"
        refused = ben.post(path, json=hello if front == "ag-ui" else {**chat(), "run_id": "r"})
        assert (refused.status_code, refused.json()["code"]) == (409, "id_taken")
