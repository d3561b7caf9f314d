"""ADK's sessions: made, listed, read, changed and deleted; two users with the same session id have two sessions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from halter import Agent
from halter.messages import Message
from halter.models.scripted import Scripted, calls
from halter.server.fronts.adk.session_ids import AdkSession, client_id, prefix_of, user_id
from halter.server.keys import KeyFile
from halter.sessions import Sessions
from halter.testing.wire_probe import WireProbe

from .conftest import Adk

MakeAdk = Callable[..., Adk]
NAMES = st.text("a.~/%7EÀ -", min_size=1, max_size=3)


def poet() -> Agent:
    return Agent(Scripted("Hello there."), name="agent")


@given(st.tuples(NAMES, NAMES, NAMES), st.tuples(NAMES, NAMES, NAMES))
def test_other_names_never_mean_the_same_session(one: Any, other: Any) -> None:
    first, second = AdkSession(*one), AdkSession(*other)
    assert (first.stored == second.stored) == (one == other)
    assert client_id(f"tenant/{first.stored}") == first.id
    assert first.stored.startswith(prefix_of(second.app, second.user)) == (one[:2] == other[:2])


@given(NAMES, NAMES)
def test_other_names_never_mean_the_same_user(one: str, other: str) -> None:
    assert (user_id(one) == user_id(other)) == (one == other)


def test_users_are_named_as_on_the_other_routes_where_that_is_possible() -> None:
    assert user_id("anna.b-1_2") == "anna.b-1_2"
    assert user_id("anna@example.com") == "anna~40example.com"


def test_a_session_is_made_with_and_without_an_id(adk: MakeAdk) -> None:
    asked = adk(poet())
    made = asked.client.post(asked.path).json()
    assert made == {
        **made,
        "appName": "agent",
        "userId": "anna",
        "state": {},
        "events": [],
    }
    assert made["id"]
    assert made["lastUpdateTime"] > 1_700_000_000
    for body in ({"sessionId": "t", "state": {"a": 1}}, {"session_id": "u", "state": {"a": 1}}):
        found = asked.client.post(asked.path, json=body).json()
        assert (found["id"], found["state"]) == (next(iter(body.values())), {"a": 1})
    named = asked.client.post(f"{asked.path}/v", json={"a": 1, "temp:b": 2})
    assert (named.json()["id"], named.json()["state"]) == ("v", {"a": 1})
    again = asked.client.post(f"{asked.path}/v")
    assert (again.status_code, again.json()["detail"]) == (409, "Session already exists: v")
    listed = asked.client.get(asked.path).json()
    assert {each["id"] for each in listed} == {made["id"], "s", "t", "u", "v"}
    assert all(each["events"] == [] for each in listed)


def test_a_conversation_is_read_as_events(adk: MakeAdk) -> None:
    def add(a: int, b: int) -> int:
        """Adds."""
        return a + b

    asked = adk(Agent(Scripted(calls("add", a=1, b=2), "It is 3."), name="agent", tools=[add]))
    assert asked.run("What is 1 + 2?").status_code == 200
    found = asked.session()
    events = found["events"]
    [call] = [part["functionCall"] for part in events[1]["content"]["parts"]]
    assert (call["name"], call["args"]) == ("add", {"a": 1, "b": 2})
    response = {"id": call["id"], "name": "add", "response": {"result": "3"}}
    assert [event["content"] for event in events] == [
        {"parts": [{"text": "What is 1 + 2?"}], "role": "user"},
        {"parts": [{"functionCall": call}], "role": "model"},
        {"parts": [{"functionResponse": response}], "role": "user"},
        {"parts": [{"text": "It is 3."}], "role": "model"},
    ]
    assert [event["author"] for event in events] == ["user", "agent", "agent", "agent"]
    assert {event["invocationId"] for event in events} == {asked.runs()[0]["id"]}
    assert len({event["id"] for event in events}) == 4
    assert all(event["timestamp"] > 1_700_000_000 for event in events)


def test_a_state_is_changed_by_what_is_given_in_both_spellings(adk: MakeAdk) -> None:
    asked = adk(poet())
    for body in ({"stateDelta": {"a": 1, "b": 2}}, {"state_delta": {"b": None, "temp:c": 3}}):
        assert asked.client.patch(f"{asked.path}/s", json=body).status_code == 200
    assert asked.run(stateDelta={"d": 4}).status_code == 200
    assert asked.session()["state"] == {"a": 1, "b": None, "d": 4}
    assert asked.client.patch(f"{asked.path}/nobody", json={"stateDelta": {}}).status_code == 404


def test_a_conversation_that_a_client_brings_along_is_gone_on_with(adk: MakeAdk) -> None:
    told: list[Any] = []

    class Listening(Scripted):
        async def respond(self, request: Any, ctx: Any) -> Message:
            told.extend(request.messages)
            return await super().respond(request, ctx)

    asked = adk(Agent(Listening("I know."), name="agent"))
    call = {"functionCall": {"id": "c", "name": "add", "args": {"a": 1}}}
    result = {"functionResponse": {"id": "c", "name": "add", "response": {"result": 3}}}
    events = [
        {"author": "user", "content": {"role": "user", "parts": [{"text": "I am Anna."}]}},
        {"author": "agent", "content": {"role": "model", "parts": [{"text": "Hm.", "thought": True}, call]}},
        {"author": "agent", "content": {"role": "user", "parts": [result]}},
        {"author": "agent", "content": {"role": "model", "parts": [{"text": "It "}]}, "partial": True},
        {
            "author": "agent",
            "content": {"role": "model", "parts": [{"text": "It is 3."}]},
            "actions": {"stateDelta": {}},
        },
    ]
    made = asked.client.post(asked.path, json={"sessionId": "old", "events": events})
    assert made.status_code == 200, made.text
    assert [event["author"] for event in made.json()["events"]] == ["user", "agent", "agent", "agent"]
    assert asked.run("Who am I?", sessionId="old").status_code == 200
    assert [message.role for message in told] == ["user", "assistant", "tool", "assistant", "user"]
    assert told[1].tool_calls[0].arguments == '{"a":1}'
    assert told[3].text == "It is 3."
    for claimed in ({"actions": {"stateDelta": {"a": 1}}}, {"longRunningToolIds": ["c"]}):
        refused = asked.client.post(asked.path, json={"events": [{**events[0], **claimed}]})
        assert refused.status_code == 400
        assert "event 0" in refused.json()["detail"]


def test_a_deleted_session_is_gone_and_its_live_run_is_stopped(
    adk: MakeAdk, agent_on: Callable[..., Agent], wire: WireProbe
) -> None:
    asked = adk(agent_on("stall"))
    with asked.stream() as found:
        wire.wait("token")
        assert asked.client.delete(f"{asked.path}/s").json() is None
        wire.assert_closed(1.0)
        assert list(found)[-1]["interrupted"]
    assert asked.client.get(f"{asked.path}/s").status_code == 404
    assert asked.client.delete(f"{asked.path}/s").status_code == 200
    assert asked.client.get(asked.path).json() == []


@pytest.mark.scenario("G69")
def test_the_same_session_id_of_two_users_and_two_apps_are_separate_sessions(
    serve: Any, agent_on: Callable[..., Agent], wire: WireProbe
) -> None:
    asked = Adk(serve([agent_on("stall"), agent_on("stall", name="other")]))
    for app, user in (("agent", "ben"), ("other", "anna")):
        assert asked.client.post(f"/apps/{app}/users/{user}/sessions/s").status_code == 200
    with asked.stream(), asked.stream(userId="ben"), asked.stream(appName="other"):
        wire.wait("token", count=3)
        assert asked.cancel(user="ben").json()["status"] == "cancelled"
        live = [run["session"] for run in asked.runs() if run["status"] == "running"]
        assert sorted(live) == ["adk.agent.anna.s", "adk.other.anna.s"]
        assert asked.cancel(user="ben").status_code == 404
    said = [event["content"]["parts"][0]["text"] for event in asked.session()["events"][:1]]
    assert said == ["Go."]


@pytest.mark.scenario("G69")
def test_another_tenants_session_is_not_there(
    serve: Any, agent_on: Callable[..., Agent], wire: WireProbe, tmp_path: Any
) -> None:
    keys = KeyFile(tmp_path / "keys.json")
    anna, ben = ({"Authorization": f"Bearer {keys.add(name, tenant=name)}"} for name in ("anna", "ben"))
    served = serve(agent_on("stall"), auth=keys, sessions=Sessions())
    path = "/apps/agent/users/u/sessions"
    assert served.client.post(f"{path}/s").status_code == 401
    assert served.client.post(f"{path}/s", headers=anna).status_code == 200
    body = {"appName": "agent", "userId": "u", "sessionId": "s", "newMessage": {"parts": [{"text": "Go."}]}}
    with served.client.stream("POST", "/run_sse", json=body, headers=anna) as response:
        assert response.status_code == 200
        wire.wait("token")
        for method, where in (("GET", f"{path}/s"), ("POST", f"{path}/s:cancel")):
            assert served.client.request(method, where, headers=ben).status_code == 404
        assert served.client.get(path, headers=ben).json() == []
        assert served.client.post("/run", json=body, headers=ben).status_code == 404
        assert served.client.post(f"{path}/s", headers=ben).status_code == 200
        assert served.client.post(f"{path}/s:cancel", headers=ben).status_code == 404
        assert [each["id"] for each in served.client.get(path, headers=anna).json()] == ["s"]
        wire.wait("token")
        assert served.client.post(f"{path}/s:cancel", headers=anna).status_code == 200


def test_keys_need_the_scope_of_what_they_do(serve: Any, tmp_path: Any) -> None:
    keys = KeyFile(tmp_path / "keys.json")
    read, run = ({"Authorization": f"Bearer {keys.add(name, tenant='t', scopes=(name,))}"} for name in ("read", "run"))
    served = serve(poet(), auth=keys)
    path = "/apps/agent/users/u/sessions"
    asked: list[tuple[str, str, Any, Any]] = [
        ("POST", f"{path}/s", read, run),
        ("GET", path, run, read),
        ("GET", f"{path}/s", run, read),
        ("GET", "/list-apps", run, read),
        ("PATCH", f"{path}/s", read, run),
    ]
    for method, where, forbidden, allowed in asked:
        body = {"stateDelta": {}} if method == "PATCH" else None
        refused = served.client.request(method, where, headers=forbidden, json=body)
        assert (refused.status_code, "scope" in refused.json()["detail"]) == (403, True), where
        assert served.client.request(method, where, headers=allowed, json=body).status_code == 200, where
    assert served.client.post(f"{path}/s:cancel", headers=run).status_code == 403
    assert served.client.post("/run", json={}, headers=read).status_code in (403, 422)
