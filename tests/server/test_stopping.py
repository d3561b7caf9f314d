"""A stop over HTTP reaches the provider, is answered truthfully, and creates nothing."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from fastapi import FastAPI

from halter import Agent, tool
from halter.models.scripted import Scripted, calls
from halter.server import mount
from halter.sessions import Sessions
from halter.testing.wire_probe import WireProbe

from .conftest import Serve, Served

AgentOn = Callable[..., Agent]


@pytest.mark.scenario("G63")
def test_a_cancel_closes_the_provider_and_ends_the_stream_with_one_terminal_event(
    serve: Serve, agent_on: AgentOn, wire: WireProbe
) -> None:
    served = serve(agent_on("steady(1000,10)"))
    with served.stream(id="r") as frames:
        for frame in frames:
            if frame.event == "text.delta":
                break
        before = time.monotonic()
        answer = served.cancel("r", wait=0, message="enough")
        wire.assert_closed(since=before)
        rest = list(frames)
    assert answer.status_code in (200, 202)
    assert [frame.event for frame in rest if frame.event.startswith("run.")] == ["run.cancelling", "run.cancelled"]
    assert rest[-1].event == "run.cancelled"
    run = served.run("r")
    assert (run["status"], run["cancellation"]["message"]) == ("cancelled", "enough")
    assert run["receipt"]["confirmed"]
    assert len(wire.requests()) == 1


@pytest.mark.scenario("G63")
def test_a_hundred_cancels_at_once_are_all_answered_alike(serve: Serve, agent_on: AgentOn, wire: WireProbe) -> None:
    served = serve(agent_on("stall"))
    assert served.start(id="r").status_code == 201
    wire.wait("token")
    with ThreadPoolExecutor(10) as pool:
        answers = list(pool.map(lambda number: served.cancel("r", message=f"number {number}"), range(100)))
    assert {answer.status_code for answer in answers} == {200}
    assert {answer.json()["effective"] for answer in answers} == {True}
    assert len({answer.json()["cancellation"]["message"] for answer in answers}) == 1
    wire.assert_closed()


@pytest.mark.scenario("G64")
def test_a_cancel_of_a_finished_run_says_how_it_really_ended(serve: Serve) -> None:
    served = serve(Agent(Scripted("Done."), name="agent"))
    assert served.start(id="r").status_code == 201
    served.until("r", "completed")
    answer = served.cancel("r")
    assert answer.status_code == 200
    assert (answer.json()["status"], answer.json()["effective"]) == ("completed", False)
    assert answer.json()["cancellation"] is None


@pytest.mark.scenario("G64")
def test_a_cancel_of_an_unknown_run_is_404_and_creates_nothing(serve: Serve) -> None:
    served = serve(Agent(Scripted("Done."), name="agent"))
    answer = served.cancel("nobody")
    assert answer.status_code == 404
    assert answer.headers["content-type"] == "application/problem+json"
    assert served.client.get("/v1/runs/nobody").status_code == 404
    assert served.client.get("/v1/runs").json()["runs"] == []
    assert served.client.get("/v1/sessions").json()["sessions"] == []
    assert served.start(id="nobody").json()["status"] != "cancelled"
    served.until("nobody", "completed")


@pytest.mark.scenario("G65")
def test_a_run_whose_cancel_came_first_never_starts(serve: Serve, agent_on: AgentOn, wire: WireProbe) -> None:
    served = serve(agent_on())
    assert served.client.post("/v1/runs/r/cancel?tombstone=1").status_code == 202
    assert served.client.get("/v1/runs/r").status_code == 404
    answer = served.start(id="r")
    assert (answer.status_code, answer.json()["status"]) == (200, "cancelled")
    assert wire.requests() == []


def test_a_child_run_is_cancelled_by_its_own_id(serve: Serve, agent_on: AgentOn, wire: WireProbe) -> None:
    inner = agent_on("stall", name="inner")
    outer = Agent(Scripted(calls("inner", input="go"), "It was stopped."), name="agent", tools=[inner.as_tool()])
    served = serve(outer)
    served.start(id="r")
    wire.wait("token")
    [child] = served.run("r")["children"]
    assert served.cancel(child["id"], wait=0).status_code in (200, 202)
    wire.assert_closed()
    assert served.until("r", "completed")["text"] == "It was stopped."


def test_a_stop_with_another_epoch_stops_nothing(serve: Serve, agent_on: AgentOn, wire: WireProbe) -> None:
    served = serve(agent_on("stall"))
    epoch = served.start(id="r").json()["epoch"]
    wire.wait("token")
    assert served.cancel("r", if_epoch=epoch - 1).status_code == 412
    assert served.run("r")["status"] == "running"
    assert served.cancel("r", if_epoch=epoch).status_code == 200


def test_a_bulk_cancel_stops_what_fits_and_lists_it(serve: Serve, agent_on: AgentOn, wire: WireProbe) -> None:
    served = serve(agent_on("stall"))
    for id, tags in (("a", ["red"]), ("b", ["red", "blue"]), ("c", ["blue"])):
        served.start(id=id, tags=tags)
    wire.wait("token", count=3)
    stopped = served.client.post("/v1/cancel?wait=5", json={"tag": "red"}).json()["runs"]
    assert sorted(run["id"] for run in stopped) == ["a", "b"]
    assert {run["status"] for run in stopped} == {"cancelled"}
    assert served.run("c")["status"] == "running"
    assert served.client.post("/v1/cancel", json={}).status_code == 422
    assert [run["id"] for run in served.client.post("/v1/cancel", json={"all": True}).json()["runs"]] == ["c"]


@pytest.mark.scenario("J88")
def test_an_actor_or_a_privileged_reason_in_a_body_is_refused_and_the_audit_names_who_did_what(
    serve: Serve, agent_on: AgentOn, wire: WireProbe, tmp_path: Any
) -> None:
    from halter.server.keys import KeyFile

    keys = KeyFile(tmp_path / "keys.json")
    anna, root = (
        {"Authorization": f"Bearer {keys.add(name, tenant='t', scopes=scopes)}"}
        for name, scopes in (("anna", ("run", "read", "stop")), ("root", ("stop", "admin")))
    )
    served = serve(agent_on("stall"), auth=keys)
    for id in ("r", "s"):
        body = {"agent": "agent", "input": "Go.", "id": id}
        assert served.client.post("/v1/runs", json=body, headers=anna).status_code == 201
    wire.wait("token", count=2)
    for body in ({"actor": "root"}, {"reason": "timeout"}, {"reason": "shutdown"}):
        assert served.client.post("/v1/runs/r/cancel", json=body, headers=anna).status_code == 422
    assert served.client.post("/v1/runs/r/cancel", json={"reason": "admin"}, headers=anna).status_code == 403
    assert served.client.get("/v1/runs/r", headers=anna).json()["status"] == "running"
    assert served.client.post("/v1/runs/r/cancel?wait=5", headers=anna).json()["cancellation"]["actor"] == "anna"
    stopped = served.client.post("/v1/runs/s/cancel?wait=5", json={"reason": "admin"}, headers=root).json()
    assert (stopped["cancellation"]["actor"], stopped["cancellation"]["reason"]) == ("root", "admin")
    assert served.client.get("/v1/audit", headers=anna).status_code == 403
    entries = served.client.get("/v1/audit", headers=root).json()["entries"]
    found = {(entry["actor"], entry["action"], entry["target"], entry["effect"]) for entry in entries}
    assert {("anna", "run.start", "r", "new"), ("anna", "run.ended", "r", "cancelled")} <= found
    assert any(actor == "root" and action == "run.cancel" and target == "s" for actor, action, target, _ in found)


def _seconds_for_a_health_check(served: Served) -> float:
    before = time.monotonic()
    assert served.client.get("/healthz").status_code == 200
    return time.monotonic() - before


@pytest.mark.scenario("C28")
def test_a_blocking_tool_keeps_no_health_check_waiting_and_is_abandoned(serve: Serve) -> None:
    began, release = threading.Event(), threading.Event()

    @tool
    def block() -> str:
        """Blocks."""
        began.set()
        release.wait(10)
        return "late"

    served = serve(Agent(Scripted(calls("block"), "Done."), name="agent", tools=[block]))
    try:
        served.start(id="r")
        assert began.wait(5)
        assert min(_seconds_for_a_health_check(served) for _ in range(5)) < 0.1
        stopped = served.cancel("r").json()
    finally:
        release.set()
    assert stopped["status"] == "cancelled"
    assert [line["ended"] for line in stopped["receipt"]["resources"] if line["kind"] == "tool"] == ["abandoned"]
    assert not stopped["receipt"]["confirmed"]


@pytest.mark.scenario("C38")
def test_an_approval_is_asked_over_http_and_never_given_by_itself(serve: Serve) -> None:
    ran: list[str] = []

    @tool(approval="always")
    async def pay(to: str) -> str:
        """Pays."""
        ran.append(to)
        return "paid"

    served = serve(Agent(Scripted(calls("pay", to="anna"), "Done."), name="agent", tools=[pay]))
    for id, answer in (("yes", "yes"), ("no", "no")):
        served.start(id=id)
        run = served.until(id, "waiting")
        [question] = run["inputs"]
        assert question["kind"] == "approval"
        assert served.client.post(f"/v1/runs/{id}/input", json={"request_id": "other"}).status_code == 409
        body = {"request_id": question["request_id"], "answer": answer}
        assert served.client.post(f"/v1/runs/{id}/input", json={**body, "answer": 7}).status_code == 422
        assert served.client.post(f"/v1/runs/{id}/input", json=body).status_code == 200
        served.until(id, "completed")
    assert ran == ["anna"]


def test_an_answer_over_http_may_hold_for_the_session_or_say_why_not(serve: Serve) -> None:
    """The model is told the reason; the record and the audit log name who has answered."""
    ran: list[str] = []

    @tool(risk="changes")
    async def pay(to: str) -> str:
        """Pays."""
        ran.append(to)
        return "paid"

    script = Scripted(*(calls("pay", to="anna"), "Done.") * 2, calls("pay", to="ben"), "Done.")
    served = serve(Agent(script, name="agent", tools=[pay]))
    for id, said in (("1", {"answer": "session"}), ("2", None), ("3", {"answer": "no", "reason": "Ben is on leave."})):
        served.start(id=id, session="s")
        if said is not None:
            [question] = served.until(id, "waiting")["inputs"]
            assert question["options"] == ["yes", "session", "no"]
            assert question["pattern"] == {"to": "anna" if id == "1" else "ben"}
            body = {"request_id": question["request_id"], **said}
            assert served.client.post(f"/v1/runs/{id}/input", json=body).status_code == 200
        served.until(id, "completed")
    assert ran == ["anna", "anna"]
    newest = served.client.get("/v1/audit?action=run.input").json()["entries"][0]
    assert newest["reason"] == "Ben is on leave."
    told = served.client.get("/v1/runs/3/events").text
    assert "This call was not allowed. The reason given: Ben is on leave." in told


def test_a_message_steers_a_live_run_and_is_refused_by_one_that_is_over(
    serve: Serve, agent_on: AgentOn, wire: WireProbe
) -> None:
    served = serve(agent_on("steady(40,10)"))
    served.start(id="r")
    wire.wait("token")
    assert served.client.post("/v1/runs/r/messages", json={"text": "Shorter."}).status_code == 202
    served.until("r", "completed")
    assert len(wire.requests()) == 2  # a turn more, for what was said
    assert served.client.post("/v1/runs/r/messages", json={"text": "Too late."}).status_code == 409
    assert served.client.post("/v1/runs/nobody/messages", json={"text": "?"}).status_code == 404


def test_a_start_says_where_its_run_is_also_under_a_prefix(serve: Serve, agent_on: AgentOn, wire: WireProbe) -> None:
    app = FastAPI()
    mount(app, agent_on("stall"), prefix="/agents", sessions=Sessions(), grace=0.0)
    served = serve.app(app)  # type: ignore[attr-defined]
    started = served.client.post("/agents/v1/runs", json={"agent": "agent", "input": "Go."})
    where = started.headers["location"]
    assert where == f"/agents/v1/runs/{started.json()['id']}"
    wire.wait("token")
    assert served.client.post(f"{where}/cancel?wait=5").json()["effective"] is True


def test_a_bulk_stop_says_of_each_run_that_it_was_stopped(serve: Serve, agent_on: AgentOn, wire: WireProbe) -> None:
    served = serve(agent_on("stall"))
    served.start(id="r")
    wire.wait("token")
    [stopped] = served.client.post("/v1/cancel?wait=5", json={"all": True}).json()["runs"]
    assert (stopped["id"], stopped["status"], stopped["effective"]) == ("r", "cancelled", True)


def test_the_wait_of_a_bulk_stop_is_for_all_runs_together(serve: Serve, agent_on: AgentOn, wire: WireProbe) -> None:
    served = serve(agent_on("stall"))
    for number in range(10):
        served.start(id=f"r{number}")
    wire.wait("token", count=10)
    began = time.monotonic()
    answer = served.client.post("/v1/cancel?wait=0.2", json={"all": True, "mode": "after_turn"})
    assert time.monotonic() - began < 1.5  # 2 s if it were for each
    assert [run["status"] for run in answer.json()["runs"]] == ["cancelling"] * 10
