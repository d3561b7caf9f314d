"""A request that comes again starts nothing: it is answered with the run that it has started before."""

from __future__ import annotations

import asyncio
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import pytest

from halter import Agent, Message
from halter.models.scripted import Scripted
from halter.server.limits import Limits
from halter.sessions import Sessions

from ..server.conftest import Serve, Served

SAID = [("user", "Hello"), ("assistant", "Hi"), ("user", "Go.")]
AG_UI: dict[str, Any] = {
    "threadId": "t",
    "runId": "r",
    "messages": [{"id": str(n), "role": role, "content": text} for n, (role, text) in enumerate(SAID)],
}
AI_SDK: dict[str, Any] = {
    "id": "t",
    "run_id": "r",
    "messages": [
        {"id": str(n), "role": role, "parts": [{"type": "text", "text": text}]} for n, (role, text) in enumerate(SAID)
    ],
}
FRONTS = [("/v1/ag-ui/agent", AG_UI), ("/v1/ai-sdk/agent/chat", AI_SDK)]


def texts(served: Served) -> list[str]:
    messages = served.client.get("/v1/sessions/t/messages").json()["messages"]
    return [part["text"] for message in messages for part in message["parts"]]


@pytest.mark.parametrize(("path", "body"), FRONTS)
def test_a_conversation_that_comes_again_with_its_id_starts_nothing(serve: Serve, path: str, body: Any) -> None:
    served = serve(Agent(Scripted("-", "One."), name="agent"))
    first, second = (served.client.post(path, json=body) for _ in range(2))
    assert second.status_code == 200, second.text
    assert second.text == first.text
    assert texts(served) == ["Hello", "Hi", "Go.", "One."]
    other = {**body, "messages": body["messages"][:1]}
    assert served.client.post(path, json=other).json()["code"] == "id_conflict"


@pytest.mark.parametrize(("path", "body"), FRONTS)
def test_after_a_restart_it_starts_nothing_either(serve: Serve, tmp_path: Path, path: str, body: Any) -> None:
    stored = str(tmp_path / "sessions.db")
    serve(Agent(Scripted("-", "One."), name="agent"), sessions=Sessions(stored)).client.post(path, json=body)
    served = serve(Agent(Scripted("-", "Two."), name="agent"), sessions=Sessions(stored))
    again = served.client.post(path, json=body)
    assert again.status_code == 200, again.text
    assert "One." in again.text
    assert texts(served) == ["Hello", "Hi", "Go.", "One."]


@pytest.mark.parametrize(("path", "body"), FRONTS)
def test_requests_of_one_id_at_one_instant_start_one_run(serve: Serve, tmp_path: Path, path: str, body: Any) -> None:
    """Each would take the session back to the question, and stop what another of them has begun."""
    model = Scripted("-", "One.")
    served = serve(Agent(model, name="agent"), sessions=Sessions(str(tmp_path / "sessions.db")))
    served.client.post(path, json={**body, "run_id": "q"} if "run_id" in body else {**body, "runId": "q"})
    body = {**body, "trigger": "regenerate-message"} if "run_id" in body else body
    together = threading.Barrier(4)

    def post(_: int) -> httpx.Response:
        with httpx.Client(base_url=served.url, timeout=20) as client:
            together.wait(20)
            return client.post(path, json=body)

    with ThreadPoolExecutor(4) as pool:
        answers = list(pool.map(post, range(4)))
    assert [answer.status_code for answer in answers] == [200] * 4
    assert len({answer.text for answer in answers}) == 1
    assert texts(served) == ["Hello", "Hi", "Go.", "One."]
    assert served.run("r")["status"] == "completed"
    assert {run["id"] for run in served.client.get("/v1/runs").json()["runs"]} == {"q", "r"}


@pytest.mark.parametrize("limits", [Limits(streams=0), Limits(runs=0)])
@pytest.mark.parametrize("changes", [{"trigger": "regenerate-message"}, {"messageId": "0"}])
def test_a_refused_start_takes_nothing_back(serve: Serve, limits: Limits, changes: Any) -> None:
    sessions = Sessions()
    asyncio.run(sessions.create("t", messages=[Message.user("Hello"), Message.assistant("Hi")]))
    served = serve(Agent(Scripted("One."), name="agent"), sessions=sessions, limits=limits)
    body = {**AI_SDK, "messages": AI_SDK["messages"][:1], **changes}
    assert served.client.post("/v1/ai-sdk/agent/chat", json=body).status_code == 429
    assert texts(served) == ["Hello", "Hi"]


def test_a_start_with_tags_that_cannot_be_takes_nothing_back(serve: Serve) -> None:
    served = serve(Agent(Scripted("One.", "Two."), name="agent"))
    path, body = FRONTS[1]
    body = {**body, "messages": body["messages"][:1]}
    served.client.post(path, json=body)
    again = {**body, "run_id": "s", "trigger": "regenerate-message", "tags": ["halter.tenant=x"]}
    assert served.client.post(path, json=again).status_code == 422
    assert texts(served) == ["Hello", "One."]
