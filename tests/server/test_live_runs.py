"""`GET /v1/live`: all live runs of a tenant in one stream. And pages of the audit log."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx

from halter import Agent, tool
from halter.models.scripted import Scripted, calls
from halter.server import KeyFile, Limits
from halter.server.audit import AuditLog
from halter.testing.wire_probe import WireProbe

from .conftest import Serve, frames_of

AgentOn = Callable[..., Agent]


def rows_of(response: httpx.Response) -> Iterator[tuple[str, dict[str, Any]]]:
    """The frames, as their type and their rows by id."""
    for frame in frames_of(response):
        assert frame.data["type"] == frame.event
        yield frame.data["type"], {row["id"]: row for row in frame.data["runs"]}


def test_all_live_runs_come_first_then_what_changes_and_how_each_ends(
    serve: Serve, agent_on: AgentOn, wire: WireProbe
) -> None:
    served = serve(agent_on("steady(2000,10)"))
    for id in ("a", "b"):
        served.start(id=id, tags=["demo"], session=f"s{id}")
    wire.wait("token", 2)
    with served.client.stream("GET", "/v1/live") as response:
        frames = rows_of(response)
        type, rows = next(frames)
        assert (type, list(rows)) == ("live", ["a", "b"])
        assert (rows["a"]["tags"], rows["a"]["session"], rows["a"]["status"]) == (["demo"], "sa", "running")
        _, rows = next(frames)
        assert rows["b"]["tail"].split()[-1].startswith("t")
        assert len(rows["b"]["tail"]) <= 160
        served.cancel("a", message="enough")
        for type, rows in frames:
            assert type == "changed"
            if rows.get("a", {}).get("status") == "cancelled":
                break
        assert rows["a"]["cancellation"]["message"] == "enough"
        assert "closed" in [line["ended"] for line in rows["a"]["receipt"]["resources"]]
        assert "a" not in next(frames)[1]


def test_a_row_has_the_runs_below_it_and_says_how_many_questions_wait(serve: Serve) -> None:
    @tool(approval="always")
    async def send() -> str:
        """Sends."""
        return "sent"

    inner = Agent(Scripted(calls("send"), "Done."), name="inner", description="Sends.", tools=[send])
    served = serve(Agent(Scripted(calls("inner", input="Go."), "Done."), name="agent", tools=[inner]))
    served.start(id="r")
    with served.client.stream("GET", "/v1/live") as response:
        for _, rows in rows_of(response):
            if rows["r"]["questions"]:
                break
    [child] = rows["r"]["children"]
    assert (rows["r"]["questions"], rows["r"]["status"]) == (1, "running")
    assert (child["name"], child["parent_id"], child["ended_at"]) == ("inner", "r", None)
    assert child["started_at"] >= rows["r"]["started_at"]
    assert served.run("r")["children"][0]["started_at"] == child["started_at"]


def test_a_tenant_sees_its_own_live_runs_and_its_streams_are_limited(serve: Serve, tmp_path: Path) -> None:
    keys = KeyFile(tmp_path / "keys.json")
    ann, bob = (keys.add(name, tenant=name) for name in ("ann", "bob"))
    slow = Agent(Scripted("word " * 2_000, pace=0.05), name="agent")
    served = serve(slow, auth=keys, limits=Limits(streams=1))
    served.client.headers["Authorization"] = f"Bearer {ann}"
    served.start(id="r", session="s")
    with served.client.stream("GET", "/v1/live") as response:
        changes = rows_of(response)  # a stream whose reader is dropped is closed
        _, rows = next(changes)
        assert (list(rows), rows["r"]["session"]) == (["r"], "s")
        assert served.client.get("/v1/live").status_code == 429
        others = {"Authorization": f"Bearer {bob}"}
        with served.client.stream("GET", "/v1/live", headers=others) as response:
            none = rows_of(response)
            assert next(none) == ("live", {})
    served.cancel("r")
    assert httpx.get(f"{served.url}/v1/live").status_code == 401


def test_pages_of_the_audit_log_have_all_entries_once(serve: Serve) -> None:
    served = serve(Agent("scripted:Hi.", name="agent"))
    for number in range(5):
        served.client.post("/v1/runs?wait=5", json={"agent": "agent", "input": "Go.", "id": f"r{number}"})
    seen: list[dict[str, Any]] = []
    before: dict[str, Any] = {}
    while True:
        page = served.client.get("/v1/audit", params={"limit": 3, **before}).json()
        seen += page["entries"]
        if page["next"] is None:
            break
        before = {"before": page["next"]}
    assert len(seen) == len({entry["at"] for entry in seen}) == 10
    assert seen == served.client.get("/v1/audit").json()["entries"]


def test_no_two_entries_of_the_audit_log_have_the_same_time(monkeypatch: Any) -> None:
    monkeypatch.setattr("halter.server.audit.time.time", lambda: 1_790_000_000.0)
    log = AuditLog()
    for number in range(100):
        log.write("", "ann", "run.start", f"r{number}", "new")
    assert len({entry.at for entry in log.newest("", limit=100)}) == 100
