"""`/v1/approvals`: what somebody has answered, what is remembered of it, and that a tenant sees its own alone."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from halter import Agent, Policy, tool
from halter.client import Client
from halter.models.scripted import Scripted, calls
from halter.server.keys import KeyFile

from .conftest import Serve, Served


@tool(risk="changes")
async def save(name: str) -> str:
    """Saves a file."""
    return "saved"


@pytest.fixture
def keys(tmp_path: Path) -> KeyFile:
    return KeyFile(tmp_path / "keys.json")


def client_of(served: Served, keys: KeyFile, tenant: str, *scopes: str) -> Client:
    return Client(served.url, key=keys.add(f"ann of {tenant}", tenant=tenant, scopes=scopes or ("run", "read", "stop")))


def saved(client: Client, name: str, answer: str, **about: Any) -> str:
    run = client.run("clerk", name, **about)
    for event in run:
        if event.type == "input.requested":
            assert run.answer(event.request_id, answer, reason="So be it.").result(5)
    assert run.is_completed
    return run.id


def clerk(*names: str, policy: Policy | None = None) -> Agent:
    script = [each for name in names for each in (calls("save", name=name), "Done.")]
    return Agent(Scripted(*script), name="clerk", tools=[save], approvals=policy)


def test_a_tenant_lists_what_was_decided_and_what_is_remembered_and_forgets_it(
    serve: Serve, keys: KeyFile, tmp_path: Path
) -> None:
    policy = Policy(remember=tmp_path / "approvals.json")
    served = serve(clerk("a", "b", "c", "a", "a", policy=policy), auth=keys)
    with client_of(served, keys, "lime") as red, client_of(served, keys, "teal", "read", "run") as blue:
        first = saved(red, "a", "always", session="s", user="ann")
        saved(red, "b", "session", session="s", user="ann")
        saved(red, "c", "no", session="s", user="ann")
        newest, middle, oldest = red.approvals().result(5)["approvals"]
        assert [each["answer"] for each in (newest, middle, oldest)] == ["no", "session", "always"]
        assert [each["is_remembered"] for each in (newest, middle, oldest)] == [False, True, True]
        about = {"run": first, "session": "s", "user": "ann", "agent": "clerk", "tool": "save", "by": "ann of lime"}
        assert oldest.items() >= {**about, "pattern": {"name": "a"}, "reason": "So be it."}.items()
        page = red.approvals(limit=2).result(5)
        assert (page["approvals"], page["next"]) == ([newest, middle], f"{middle['at']!r}~{middle['id']}")
        assert red.approvals(limit=2, before=page["next"]).result(5) == {"approvals": [oldest], "next": None}
        assert red.approvals(remembered=True).result(5)["approvals"] == [middle, oldest]

        assert blue.approvals().result(5) == {"approvals": [], "next": None}
        for each in (middle, oldest):
            assert blue.forget_approval(each["id"]).result(5) is False
            assert red.forget_approval(each["id"]).result(5) is True
            assert red.forget_approval(each["id"]).result(5) is False
        assert policy.allowed() == ()
        assert red.approvals(remembered=True).result(5)["approvals"] == []
        assert len(red.approvals().result(5)["approvals"]) == 3
        saved(red, "a", "no", session="s", user="ann")
        assert len(red.approvals().result(5)["approvals"]) == 4, "it is asked again"


def test_what_an_earlier_process_has_stored_is_listed_for_its_tenant_alone(
    serve: Serve, keys: KeyFile, tmp_path: Path
) -> None:
    file = tmp_path / "approvals.json"
    about = {"id": "1", "at": 5.0, "agent": "clerk", "tool": "save", "pattern": {"name": "a"}}
    stored = [{**about, "user": f"{tenant}/ann", "tenant": tenant} for tenant in ("lime", "teal")]
    file.write_text(json.dumps({"version": 1, "allowed": stored}))
    policy = Policy(remember=file)
    served = serve(clerk("a", policy=policy), auth=keys)
    with client_of(served, keys, "lime") as red, client_of(served, keys, "teal", "run") as blue:
        (found,) = red.approvals(remembered=True).result(5)["approvals"]
        assert (found["user"], found["answer"], found["is_remembered"]) == ("ann", "always", True)
        with pytest.raises(Exception, match="lacks the scope 'read'"):
            blue.approvals().result(5)
        assert red.forget_approval("1").result(5) is True
    assert [each.tenant for each in policy.allowed()] == ["teal"]
    file.write_text("broken")
    with client_of(served, keys, "lime") as red:
        assert red.approvals(remembered=True).result(5)["approvals"] == []
        assert red.forget_approval("1").result(5) is False
