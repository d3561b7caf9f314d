"""Users of tenants: who talks, what is known of them, and that all of it can be seen and deleted."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from websockets.sync.client import connect

from halter import Agent, RunContext, runnable
from halter.facts import Facts
from halter.models.scripted import Scripted
from halter.server.keys import KeyFile
from halter.sessions import FactScope, Sessions
from halter.testing.wire_probe import WireProbe

from .conftest import Serve, Served, frames_of

AgentOn = Callable[..., Agent]


@runnable
async def whoami(ctx: RunContext, input: str) -> str | None:
    """Says who talks."""
    return ctx.user


@pytest.fixture
def keys(tmp_path: Path) -> KeyFile:
    return KeyFile(tmp_path / "keys.json")


def headers(keys: KeyFile, tenant: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {keys.add('somebody', tenant=tenant)}"}


def ask(served: Served, whose: dict[str, str], agent: str = "agent", **fields: Any) -> Any:
    return served.client.post("/v1/runs?wait=10", json={"agent": agent, "input": "Go.", **fields}, headers=whose)


def test_a_run_knows_its_user_by_tenant_and_shows_the_name_that_the_client_gave(serve: Serve, keys: KeyFile) -> None:
    served = serve(whoami, auth=keys)
    red = headers(keys, "red")
    run = ask(served, red, "whoami", user="ann").json()
    assert (run["output"], run["user"]) == ("red/ann", "ann")
    assert [each["id"] for each in served.client.get("/v1/runs?user=ann", headers=red).json()["runs"]] == [run["id"]]
    assert served.client.get("/v1/runs?user=bob", headers=red).json()["runs"] == []


@pytest.mark.parametrize("on_busy", ["reject", "enqueue"])
def test_the_session_of_another_user_does_not_exist(serve: Serve, keys: KeyFile, on_busy: str) -> None:
    served = serve(Agent(Scripted("Hi."), name="agent"), auth=keys)
    red = headers(keys, "red")
    assert ask(served, red, session="chat", user="ann").json()["status"] == "completed"
    assert ask(served, red, session="chat", user="ann").json()["status"] == "completed"
    refused = ask(served, red, session="chat", user="bob", on_busy=on_busy)
    if on_busy == "reject":
        assert (refused.status_code, refused.json()["code"]) == (404, "session_not_found")
        assert refused.json()["detail"] == "there is no session 'chat'"
    else:
        assert refused.json()["error"]["message"] == "there is no session 'chat'"
    assert len(served.client.get("/v1/sessions/chat/messages", headers=red).json()["messages"]) == 4


def test_a_tenant_sees_its_own_names_alone_in_streams_sockets_errors_and_exports(
    serve: Serve, agent_on: AgentOn, wire: WireProbe, keys: KeyFile
) -> None:
    served = serve(agent_on("stall"), auth=keys)
    red = headers(keys, "red")
    assert (
        served.client.post(
            "/v1/runs",
            json={"agent": "agent", "input": "Go.", "id": "r", "session": "chat", "user": "ann"},
            headers=red,
        ).headers["location"]
        == "/v1/runs/r"
    )
    wire.wait("token")
    shown = [ask(served, red, session="chat").text, served.client.get("/v1/sessions/none", headers=red).text]
    with connect(served.url.replace("http", "ws") + "/v1/runs/r/live?after=0", additional_headers=red) as socket:
        shown += [str(socket.recv()), str(socket.recv())]
        socket.send('{"type": "cancel"}')
        shown += [str(frame) for frame in socket]
    with served.client.stream("GET", "/v1/runs/r/events?after=0", headers=red) as stream:
        shown += [json.dumps(frame.data) for frame in frames_of(stream)]
    for path in ("/v1/sessions/chat", "/v1/sessions/chat/export", "/v1/users/ann/export", "/v1/runs/r"):
        answer = served.client.get(path, headers=red)
        assert answer.status_code == 200
        shown.append(answer.text)
    assert "'chat' " in shown[0]
    assert [text for text in shown if "red/" in text] == []
    export = json.loads(shown[-2])
    assert (export["user"], export["sessions"][0]["session"]["id"]) == ("ann", "chat")


def test_another_tenants_sessions_are_neither_listed_nor_found_however_many_there_are(
    serve: Serve, keys: KeyFile
) -> None:
    sessions = Sessions()

    async def fill() -> None:
        await sessions.create("red/first", messages="wine")
        for number in range(300):
            await sessions.create(f"blue/{number}", messages="wine")

    asyncio.run(fill())
    served = serve(Agent(Scripted("Hi."), name="agent"), auth=keys, sessions=sessions)
    red = headers(keys, "red")
    assert [each["id"] for each in served.client.get("/v1/sessions", headers=red).json()["sessions"]] == ["first"]
    assert [each["session"] for each in served.client.get("/v1/search?text=wine", headers=red).json()["hits"]] == [
        "first"
    ]


# --- facts and deletion -------------------------------------------------------------------------------------


def test_facts_are_listed_and_deleted_for_the_user_of_the_tenant_alone(serve: Serve, keys: KeyFile) -> None:
    learned = Scripted('{"add": ["Ann likes tea."], "replace": [], "forget": []}')
    sessions = Sessions()
    served = serve(Agent(Scripted("Hi."), name="agent", memory=Facts(learned)), auth=keys, sessions=sessions)
    red, blue = headers(keys, "red"), headers(keys, "blue")
    assert ask(served, red, session="chat", user="ann").status_code == 200
    path, facts = "/v1/users/ann/facts", []
    tried = threading.Event()
    while not facts and not tried.wait(0.01):
        facts = served.client.get(path, headers=red).json()["facts"]
    assert [(fact["text"], fact["session"]) for fact in facts] == [("Ann likes tea.", "chat")]
    assert served.client.get(path, headers=blue).json() == {"facts": []}
    assert served.client.delete(f"{path}/{facts[0]['id']}", headers=blue).status_code == 404
    assert served.client.delete(path, headers=blue).json() == {"facts": 0}
    assert served.client.delete(f"{path}/{facts[0]['id']}", headers=red).status_code == 204
    asyncio.run(sessions.facts.add(FactScope("user", "red/ann"), "Ann works in a library."))
    assert served.client.delete(path, headers=red).json() == {"facts": 1}
    assert served.client.get(path, headers=red).json() == {"facts": []}


@pytest.mark.parametrize("where", ["memory", "sqlite"])
def test_a_deleted_user_is_stopped_and_forgotten_with_all_runs_and_nobody_else_is(
    serve: Serve, agent_on: AgentOn, wire: WireProbe, keys: KeyFile, where: str, tmp_path: Path
) -> None:
    sessions = Sessions(None if where == "memory" else tmp_path / "chats.db")
    served = serve([agent_on("stall"), Agent(Scripted("Hi."), name="quick")], auth=keys, sessions=sessions)
    red, blue = headers(keys, "red"), headers(keys, "blue")
    for whose, id in ((red, "over"), (blue, "over-too")):
        assert ask(served, whose, "quick", id=id, session="chat", user="ann").status_code == 200
    assert ask(served, red, "quick", id="unnamed", session="chat").status_code == 200
    assert ask(served, red, "quick", id="bob", user="bob").status_code == 200
    body = {"agent": "agent", "input": "Go.", "id": "live", "user": "ann"}
    assert served.client.post("/v1/runs", json=body, headers=red).status_code == 201
    wire.wait("token")
    assert served.client.delete("/v1/users/ann", headers=red).json() == {"sessions": 1}
    wire.assert_closed()
    for id, status in (("over", 404), ("unnamed", 404), ("live", 404), ("bob", 200)):
        assert served.client.get(f"/v1/runs/{id}", headers=red).status_code == status, id
    assert served.client.get("/v1/sessions/chat", headers=red).status_code == 404
    assert served.client.get("/v1/users/ann/export", headers=red).json()["sessions"] == []
    assert served.client.get("/v1/runs/over-too", headers=blue).json()["text"] == "Hi."
    assert served.client.delete("/v1/users/ann", headers=red).json() == {"sessions": 0}


def test_whoever_makes_or_changes_a_session_is_in_the_audit_log(serve: Serve, keys: KeyFile) -> None:
    served = serve(Agent(Scripted("Hi."), name="agent"), auth=keys)
    red = {"Authorization": f"Bearer {keys.add('root', tenant='red', scopes=('run', 'read', 'admin'))}"}

    def send(method: str, path: str, body: Any = None) -> Any:
        answer = served.client.request(method, path, json=body, headers=red)
        assert answer.is_success, answer.text
        return answer.json() if answer.content else None

    send("POST", "/v1/sessions", {"id": "chat", "user": "ann"})
    send("PATCH", "/v1/sessions/chat", {"title": "Tea", "tags": ["x"]})
    send("POST", "/v1/sessions/chat/fork", {"to": "fork"})
    send("POST", "/v1/sessions/chat/rewind", {"to": 0})
    export = send("GET", "/v1/sessions/chat/export")
    made = send("POST", "/v1/sessions/import", {"export": export, "id": "again"})
    send("DELETE", "/v1/sessions/chat")
    send("POST", "/v1/sessions/import", {"export": export})
    send("DELETE", "/v1/users/ann/facts")
    send("DELETE", "/v1/users/ann")
    entries = send("GET", "/v1/audit")["entries"]
    assert [(each["action"], each["target"], each["effect"]) for each in reversed(entries)] == [
        ("session.create", "chat", "created"),
        ("session.update", "chat", "changed: title, tags"),
        ("session.fork", "chat", "fork"),
        ("session.rewind", "chat", "0 messages left"),
        ("session.import", "again", "0 messages imported"),
        ("session.delete", "chat", "deleted"),
        ("session.import", "chat", "0 messages imported"),
        ("user.delete_facts", "ann", "0 facts deleted"),
        ("user.delete", "ann", "3 sessions deleted"),
    ]
    assert {each["actor"] for each in entries} == {"root"}
    assert (made["id"], made["user"], made["title"]) == ("again", "ann", "Tea")


@pytest.mark.parametrize(
    ("body", "status"),
    [
        ({"export": {}}, 422),
        ({"export": {"session": {"id": "../x"}}}, 422),
        ({"export": {"session": 7}, "id": "x"}, 422),
        ({"export": {"format": "halter.session", "version": 99, "session": {"id": "x"}, "messages": []}}, 422),
        ({"export": {"format": "halter.session", "version": 1, "session": {"id": "there"}, "messages": []}}, 409),
    ],
)
def test_an_export_that_cannot_be_imported_makes_nothing(serve: Serve, body: dict[str, Any], status: int) -> None:
    served = serve(Agent(Scripted("Hi."), name="agent"))
    assert served.client.post("/v1/sessions", json={"id": "there"}).status_code == 201
    answer = served.client.post("/v1/sessions/import", json=body)
    assert (answer.status_code, answer.headers["content-type"]) == (status, "application/problem+json"), answer.text
    assert [each["id"] for each in served.client.get("/v1/sessions").json()["sessions"]] == ["there"]


def test_a_deleted_session_takes_its_runs_and_their_events_along(serve: Serve) -> None:
    served = serve(Agent(Scripted("A secret."), name="agent"))
    assert ask(served, {}, id="r", session="chat").json()["text"] == "A secret."
    assert served.client.delete("/v1/sessions/chat").status_code == 204
    assert served.client.get("/v1/runs/r").status_code == 404
    assert served.client.get("/v1/runs/r/events?after=0").status_code == 404
