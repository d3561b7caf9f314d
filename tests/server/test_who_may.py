"""Keys, tenants, hosts and limits: what one may do, and that nobody sees another's."""

from __future__ import annotations

import stat
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from halter import Agent
from halter.models.scripted import Scripted
from halter.server.keys import KeyFile
from halter.server.limits import Limits
from halter.server.memory import store
from halter.testing.wire_probe import WireProbe

from .conftest import Serve

AgentOn = Callable[..., Agent]


@pytest.fixture
def keys(tmp_path: Path) -> KeyFile:
    return KeyFile(tmp_path / "keys.json")


def headers(keys: KeyFile, tenant: str, *scopes: str) -> dict[str, str]:
    key = keys.add(f"somebody at {tenant}", tenant=tenant, scopes=scopes or ("run", "read", "stop"))
    return {"Authorization": f"Bearer {key}"}


@pytest.mark.scenario("G69")
def test_the_same_session_under_two_tenants_is_two_sessions(
    serve: Serve, agent_on: AgentOn, wire: WireProbe, keys: KeyFile
) -> None:
    served = serve(agent_on("stall"), auth=keys)
    red, blue = headers(keys, "red"), headers(keys, "blue")
    for id, whose in (("a", red), ("b", blue)):
        body = {"agent": "agent", "input": f"from {id}", "session": "chat", "id": id}
        assert served.client.post("/v1/runs", json=body, headers=whose).status_code == 201
    wire.wait("token", count=2)
    stopped = served.client.post("/v1/cancel?wait=5", json={"session": "chat"}, headers=red).json()["runs"]
    assert [run["id"] for run in stopped] == ["a"]
    assert served.client.get("/v1/runs/b", headers=blue).json()["status"] == "running"
    messages = served.client.get("/v1/sessions/chat/messages", headers=red).json()["messages"]
    assert messages[0]["parts"][0]["text"] == "from a"
    assert [each["id"] for each in served.client.get("/v1/sessions", headers=blue).json()["sessions"]] == ["chat"]
    assert served.client.post("/v1/cancel?wait=5", json={"all": True}, headers=blue).json()["runs"][0]["id"] == "b"


@pytest.mark.scenario("G69")
def test_another_tenants_run_does_not_exist(serve: Serve, agent_on: AgentOn, wire: WireProbe, keys: KeyFile) -> None:
    served = serve(agent_on("stall"), auth=keys)
    red, blue = headers(keys, "red"), headers(keys, "blue")
    body = {"agent": "agent", "input": "secret", "id": "r", "session": "s"}
    served.client.post("/v1/runs", json=body, headers=red)
    wire.wait("token")
    for method, path in (
        ("GET", "/v1/runs/r"),
        ("GET", "/v1/runs/r/events"),
        ("POST", "/v1/runs/r/cancel"),
        ("GET", "/v1/sessions/s"),
        ("GET", "/v1/sessions/s/messages"),
        ("DELETE", "/v1/sessions/s"),
    ):
        answer = served.client.request(method, path, headers=blue)
        assert answer.status_code == 404, (method, path, answer.text)
    assert served.client.get("/v1/runs", headers=blue).json()["runs"] == []
    assert served.client.get("/v1/search?text=secret", headers=blue).json()["hits"] == []
    assert served.client.post("/v1/cancel", json={"all": True}, headers=blue).json()["runs"] == []
    assert served.client.get("/v1/runs/r", headers=red).json()["status"] == "running"
    served.client.post("/v1/runs/r/cancel?wait=5", headers=red)


def test_without_a_valid_key_nothing_is_answered_but_health(serve: Serve, keys: KeyFile) -> None:
    served = serve(Agent(Scripted("Hi."), name="agent"), auth=keys)
    good = headers(keys, "red")
    for bad in ({}, {"Authorization": "Bearer nonsense"}, {"Authorization": good["Authorization"][:-1] + "~"}):
        answer = served.client.get("/v1/runs", headers=bad)
        assert (answer.status_code, answer.headers["content-type"]) == (401, "application/problem+json")
    assert served.client.get("/healthz").status_code == 200
    assert served.client.get("/v1/runs", headers=good).status_code == 200
    token = good["Authorization"].split()[1]
    assert served.client.get("/v1/runs", headers={"X-API-Key": token}).status_code == 200
    keys.revoke(token.split("_")[1])
    assert served.client.get("/v1/runs", headers=good).status_code == 401


def test_a_key_does_only_what_its_scopes_say(serve: Serve, keys: KeyFile) -> None:
    served = serve(Agent(Scripted("Hi."), name="agent"), auth=keys)
    reader, stopper = headers(keys, "red", "read"), headers(keys, "red", "stop")
    body = {"agent": "agent", "input": "Go."}
    assert served.client.post("/v1/runs", json=body, headers=reader).status_code == 403
    assert served.client.get("/v1/runs", headers=reader).status_code == 200
    assert served.client.get("/v1/runs", headers=stopper).status_code == 403
    assert served.client.post("/v1/runs/x/cancel", headers=stopper).status_code == 404


@pytest.mark.parametrize("path", ["/v1/sessions/chat", "/v1/conversations/chat", "/v1/users/ann", "/v1/responses/r"])
def test_without_the_scope_stop_nothing_is_deleted_that_still_runs(
    serve: Serve, agent_on: AgentOn, wire: WireProbe, keys: KeyFile, path: str
) -> None:
    served = serve(agent_on("stall"), auth=keys)
    runner, stopper = headers(keys, "red", "run", "read"), headers(keys, "red", "stop", "read")
    body = {"agent": "agent", "input": "Go.", "id": "r", "session": "chat", "user": "ann"}
    assert served.client.post("/v1/runs", json=body, headers=runner).status_code == 201
    wire.wait("token")
    refused = served.client.delete(path, headers=runner)
    assert refused.status_code == 403
    assert "lacks the scope 'stop'" in refused.text
    assert served.client.get("/v1/runs/r", headers=runner).json()["status"] == "running"
    served.client.post("/v1/runs/r/cancel?wait=5", headers=stopper)
    assert served.client.delete(path, headers=runner).status_code in (200, 204)


def test_a_file_of_keys_holds_no_key_and_is_its_owners(keys: KeyFile, tmp_path: Path) -> None:
    key = keys.add("anna", tenant="red")
    path = tmp_path / "keys.json"
    assert key.rpartition("_")[2] not in path.read_text()
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    found = keys.principal(key)
    assert found is not None
    assert (found.tenant, found.actor) == ("red", "anna")


@pytest.mark.parametrize(
    ("sent", "status"),
    [
        ({"Host": "evil.example"}, 421),
        ({"Host": "localhost:9"}, 200),
        ({"Host": "LocalHost:9"}, 200),
        ({"Host": "agents.example.com"}, 200),
        ({"Host": "Agents.example.com", "Origin": "https://agents.example.com"}, 200),
        ({"Origin": "https://evil.example"}, 403),
        ({"Origin": "null"}, 403),
    ],
)
def test_foreign_hosts_and_pages_are_refused(serve: Serve, sent: dict[str, str], status: int) -> None:
    hosts = ("localhost", "127.0.0.1", "Agents.Example.com:443")
    served = serve(Agent(Scripted("Hi."), name="agent"), allowed_hosts=hosts)
    answer = served.client.post("/v1/cancel", json={"all": True}, headers=sent)
    assert answer.status_code == status
    assert "access-control-allow-origin" not in answer.headers


def test_a_tenant_has_as_many_runs_and_streams_as_it_may(
    serve: Serve, agent_on: AgentOn, wire: WireProbe, keys: KeyFile
) -> None:
    served = serve(agent_on("stall"), auth=keys, limits=Limits(runs=1, streams=1))
    red, blue = headers(keys, "red"), headers(keys, "blue")
    body: dict[str, Any] = {"agent": "agent", "input": "Go."}
    assert served.client.post("/v1/runs", json={**body, "id": "r"}, headers=red).status_code == 201
    refused = served.client.post("/v1/runs", json=body, headers=red)
    assert (refused.status_code, int(refused.headers["retry-after"]) > 0) == (429, True)
    assert served.client.post("/v1/runs", json={**body, "id": "b"}, headers=blue).status_code == 201
    with served.client.stream("GET", "/v1/runs/r/events", headers=red) as stream:
        lines = stream.iter_lines()  # kept: an iterator that is collected closes its connection
        assert next(lines)
        assert served.client.get("/v1/runs/r/events", headers=red).status_code == 429
    for whose in (red, blue):
        served.client.post("/v1/cancel?wait=5", json={"all": True}, headers=whose)
    assert served.client.post("/v1/runs", json={**body, "id": "r2"}, headers=red).status_code == 201
    served.client.post("/v1/cancel?wait=5", json={"all": True}, headers=red)


def test_what_a_tenant_may_spend_is_spent_once(serve: Serve) -> None:
    served = serve(Agent(Scripted("word " * 300), name="agent"), limits=Limits(tokens=60))
    served.start(id="r")
    assert served.until("r", "cancelled")["cancellation"]["reason"] == "budget_tokens"
    answer = served.start(id="s")
    assert (answer.status_code, answer.json()["code"]) == (429, "budget_spent")


@pytest.mark.scenario("G69", "K101")
def test_a_start_with_the_id_of_another_tenants_run_changes_nothing_of_it(
    serve: Serve, keys: KeyFile, tmp_path: Path
) -> None:
    agent = Agent(Scripted("Hi."), name="agent")
    served = serve(agent, auth=keys, sessions=str(tmp_path / "chat.db"), keep_runs=0)
    red, blue = headers(keys, "red"), headers(keys, "blue")
    body = {"agent": "agent", "input": "Go.", "id": "r"}
    assert served.client.post("/v1/runs?wait=5", json=body, headers=red).json()["id"] == "r"
    for _ in range(2):
        answer = served.client.post("/v1/runs?wait=5", json=body, headers=blue)
        assert (answer.status_code, answer.json()["code"]) == (409, "id_taken")
    assert served.client.get("/v1/runs/r", headers=red).json()["text"] == "Hi."
    assert served.client.get("/v1/runs/r", headers=blue).status_code == 404


def test_keys_that_are_made_at_once_are_all_kept(tmp_path: Path) -> None:
    path = tmp_path / "keys.json"
    with ThreadPoolExecutor(8) as threads:
        made = list(threads.map(lambda number: KeyFile(path).add(f"n{number}", tenant="t"), range(24)))
    assert all(KeyFile(path).principal(key) is not None for key in made)


@pytest.mark.scenario("G65")
def test_a_tenants_early_stops_push_out_no_other_tenants(
    serve: Serve, keys: KeyFile, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(store, "MOST_TOMBSTONES", 3)
    served = serve(Agent(Scripted("Hi."), name="agent"), auth=keys)
    red, blue = headers(keys, "red"), headers(keys, "blue")
    served.client.post("/v1/runs/r/cancel?tombstone=1", headers=red)
    for number in range(9):
        served.client.post(f"/v1/runs/{number}/cancel?tombstone=1", headers=blue)
    body = {"agent": "agent", "input": "Go."}
    assert served.client.post("/v1/runs", json={**body, "id": "r"}, headers=red).json()["status"] == "cancelled"
    assert served.client.post("/v1/runs?wait=5", json={**body, "id": "1"}, headers=blue).json()["status"] == "completed"


def test_a_damaged_file_of_keys_lets_nobody_in_and_tells_nothing(serve: Serve, keys: KeyFile, tmp_path: Path) -> None:
    served = serve(Agent(Scripted("Hi."), name="agent"), auth=keys)
    allowed = headers(keys, "red")
    assert served.client.get("/v1/runs", headers=allowed).status_code == 200
    (tmp_path / "keys.json").write_text("{")
    answer = served.client.get("/v1/runs", headers=allowed)
    assert (answer.status_code, "keys.json" in answer.text) == (503, False)
