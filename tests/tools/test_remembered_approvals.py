"""Answers to approvals: once, for the session, always, no and why; by policy, in trees of runs, and after a restart."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from halter import Agent, Policy, Run, events, runtime, tool
from halter.core.approvals import DECISIONS
from halter.errors import ConfigurationError, UsageError
from halter.messages import ToolResult
from halter.models.scripted import Scripted, calls
from halter.sessions import Sessions
from halter.tools import files
from halter.tools.process import program, shell

pytestmark = pytest.mark.real_loop
Answers = dict[str, Any]


def scripted(*made: Any) -> Scripted:
    """One turn for each call, and an answer."""
    return Scripted(*made, "done")


async def answered(run: Run[Any], *answers: Any, **said: Any) -> list[events.InputRequested]:
    """The run's questions, each with the next of these answers; no further question is answered."""
    left, asked = list(answers), list[events.InputRequested]()
    async for event in run:
        if isinstance(event, events.InputRequested):
            asked.append(event)
            assert left, f"nobody expected the question {event.prompt!r}"
            run.answer(event.request_id, left.pop(0), **said)
    return asked


def told(run: Run[Any]) -> list[str]:
    """What the model was told of its calls."""
    return [
        str(part.content) for message in run.outcome.messages for part in message.parts if isinstance(part, ToolResult)
    ]


@tool(risk="changes")
async def save(name: str, cents: int = 0, tags: tuple[str, ...] = ()) -> str:
    return f"saved {name} {cents}"


# --- what a policy asks -------------------------------------------------------------------------------------


@tool(risk="reads")
async def look() -> str:
    return "seen"


@tool(risk="destroys")
async def wipe() -> str:
    return "wiped"


@tool(risk=("reads", "network"))
async def fetch() -> str:
    return "fetched"


@tool
async def plain() -> str:
    return "plain"


@pytest.mark.parametrize(
    ("policy", "asking"),
    [
        (None, {"save", "wipe"}),
        (Policy(), {"save", "wipe"}),
        (Policy(reads="ask"), {"look", "save", "wipe", "fetch"}),
        (Policy(changes="never", network="ask"), {"wipe", "fetch"}),
        (Policy(changes="never", destroys="never", undeclared="always"), {"plain"}),
    ],
)
async def test_a_policy_chooses_by_risk_who_is_asked(policy: Policy | None, asking: set[str]) -> None:
    script = scripted(tuple(calls(name) if name != "save" else calls("save", name="a") for name in NAMES))
    run = Agent(script, tools=[look, save, wipe, fetch, plain], approvals=policy).run("hi")
    asked = await answered(run, *["yes"] * len(asking))
    by_id = {event.call_id: event.name async for event in run.events() if isinstance(event, events.ToolCalled)}
    assert {by_id[event.call_id] for event in asked if event.call_id} == asking


NAMES = ("look", "save", "wipe", "fetch", "plain")


async def test_an_approval_of_the_tools_own_comes_before_the_policy() -> None:
    quiet, loud = tool(wipe.fn, approval="never", risk="destroys"), tool(look.fn, approval="always", risk="reads")
    run = Agent(scripted((calls("wipe"), calls("look"))), tools=[quiet, loud], approvals=Policy(destroys="always")).run(
        "hi"
    )
    (asked,) = await answered(run, "yes")
    assert asked.prompt.startswith("May look")


async def test_where_a_policy_says_always_nothing_can_be_remembered() -> None:
    script = scripted(calls("wipe"), calls("wipe"))
    run = Agent(script, tools=[wipe], approvals=Policy(destroys="always")).run("hi")
    asked = await answered(run, "yes", "yes")
    assert [(event.options, event.pattern) for event in asked] == [(("yes", "no"), None)] * 2


@pytest.mark.parametrize("wrong", [{"reads": "sometimes"}, {"undeclared": None}, {"remember": 7}])
def test_a_policy_of_other_words_is_refused(wrong: Any) -> None:
    with pytest.raises(ConfigurationError):
        Policy(**wrong)
    with pytest.raises(ConfigurationError, match="approvals must be a Policy"):
        Agent(Scripted("a"), approvals="ask")  # pyright: ignore[reportCallIssue, reportArgumentType]


# --- once, for the session ----------------------------------------------------------------------------------


async def test_yes_counts_once_and_session_for_the_same_call_in_this_tree_of_runs() -> None:
    """Without a session, another run asks again."""
    call = calls("save", name="a*", cents=7)
    run = Agent(scripted(call, call, call), tools=[save]).run("hi")
    asked = await answered(run, "yes", "session", by="ann")
    assert asked[0].options == ("yes", "session", "no")
    assert asked[0].pattern == {"name": "a[*]", "cents": 7, "tags": []}
    assert [(each.tool, each.by) for each in run.allowed] == [("save", "ann")]
    assert len(await answered(Agent(scripted(call), tools=[save]).run("hi"), "no")) == 1


@pytest.mark.scenario("K103")
@pytest.mark.parametrize(
    "other",
    [{"name": "ab", "cents": 7}, {"name": "a*", "cents": 8}, {"name": "a*"}, {"name": "a*", "cents": 7, "tags": ["x"]}],
    ids=str,
)
async def test_a_remembered_yes_never_widens(other: Answers) -> None:
    run = Agent(scripted(calls("save", name="a*", cents=7), calls("save", **other)), tools=[save]).run("hi")
    assert len(await answered(run, "session", "no")) == 2


async def test_session_holds_for_the_session_and_no_other() -> None:
    """The next run on it is not asked; another session, user or agent is."""
    sessions = Sessions("memory")
    script = Scripted(*[calls("save", name="a"), "done"] * 6)

    async def asks(session: str, *answers: str, name: str = "agent") -> int:
        run = Agent(script, tools=[save], name=name).run("hi", session=sessions.session(session))
        asked = await answered(run, *answers)
        assert len([each async for each in run.events() if isinstance(each, events.ToolFinished)]) == 1
        return len(asked)

    assert await asks("one", "session") == 1
    assert await asks("one") == 0
    assert await asks("two", "no") == 1
    assert await asks("one", "no", name="other") == 1
    await sessions.delete("one")
    assert await asks("one", "no") == 1


async def test_session_holds_for_later_children_of_the_same_tree() -> None:
    worker = Agent(scripted(calls("save", name="a")), tools=[save], name="worker")
    chief = Agent(scripted(calls("worker", input="1"), calls("worker", input="2")), tools=[worker])
    assert len(await answered(chief.run("hi"), "session")) == 1


async def test_a_child_without_a_policy_has_that_of_the_run_above_it() -> None:
    worker = Agent(scripted(calls("look")), tools=[look], name="worker")
    free = Agent(scripted(calls("look")), tools=[look], name="free", approvals=Policy())
    chief = Agent(
        scripted((calls("worker", input="1"), calls("free", input="1"))),
        tools=[worker, free],
        approvals=Policy(reads="always"),
    )
    (asked,) = await answered(chief.run("hi"), "yes")
    assert asked.agent == "worker"


# --- always -------------------------------------------------------------------------------------------------


async def test_always_is_stored_and_holds_in_another_process(tmp_path: Path) -> None:
    """Nothing but the file is shared; it says who allowed what, and it can be taken back."""
    path, call = tmp_path / "deep" / "approvals.json", calls("save", name="a")

    async def asks(*answers: str, user: str | None = None) -> int:
        agent = Agent(scripted(call), tools=[save], approvals=Policy(remember=path))
        return len(await answered(agent.run("hi", user=user), *answers, by="ann"))

    assert await asks("always") == 1
    assert await asks() == 0
    assert await asks("no", user="ben") == 1
    (stored,) = Policy(remember=path).allowed()
    assert (stored.agent, stored.tool, stored.pattern["name"], stored.by) == ("agent", "save", "a", "ann")
    assert path.stat().st_mode & 0o777 == 0o600
    assert json.loads(path.read_text())["version"] == 1
    assert Policy(remember=path).forget(stored.id)
    assert not Policy(remember=path).forget(stored.id)
    assert await asks("no") == 1


@pytest.mark.parametrize("content", ["{", '{"version": 2}', "[]", '{"allowed": [{"tool": "save"}]}'])
async def test_a_file_that_cannot_be_read_allows_nothing_and_is_not_replaced(tmp_path: Path, content: str) -> None:
    path = tmp_path / "approvals.json"
    path.write_text(content)
    agent = Agent(
        scripted(calls("save", name="a"), calls("save", name="a")), tools=[save], approvals=Policy(remember=path)
    )
    run = agent.run("hi")
    assert len(await answered(run, "always")) == 1  # it holds for this tree of runs
    assert path.read_text() == content


async def test_always_is_no_answer_where_nothing_says_where_to_store_it() -> None:
    run = Agent(scripted(calls("save", name="a")), tools=[save]).run("hi")
    with pytest.raises(UsageError, match="must be one of 'yes', 'session', 'no'"):
        await answered(run, "always")
    run.cancel()


# --- no and why ---------------------------------------------------------------------------------------------


async def test_the_model_is_told_why_it_was_not_allowed() -> None:
    run = Agent(scripted(calls("save", name="a")), tools=[save]).run("hi")
    await answered(run, "no", reason="Not on a Friday.", by="ann")
    assert told(run) == ["This call was not allowed. The reason given: Not on a Friday."]
    (heard,) = [event async for event in run.events() if isinstance(event, events.InputReceived)]
    assert (heard.answer, heard.reason, heard.by) == ("no", "Not on a Friday.", "ann")


async def test_what_was_decided_and_by_whom_is_listed_in_one_place() -> None:
    DECISIONS.clear()
    run = Agent(scripted(calls("save", name="a"), calls("save", name="b")), tools=[save]).run("hi")
    await answered(run, "session", "no", by="ann", reason="why")
    found = runtime().decisions()
    assert [(each.run_id, each.tool, each.answer, each.by, each.reason) for each in found] == [
        (run.id, "save", "session", "ann", "why"),
        (run.id, "save", "no", "ann", "why"),
    ]
    assert runtime().decisions(session="x") == []


@pytest.mark.parametrize("wrong", [{"reason": 7}, {"by": "x" * 3_000}])
async def test_a_reason_or_name_of_another_kind_is_refused(wrong: Answers) -> None:
    run = Agent(scripted(calls("save", name="a")), tools=[save]).run("hi")
    with pytest.raises(UsageError, match="must be a text of at most 2,000 characters"):
        await answered(run, "yes", **wrong)
    run.cancel()


# --- what exactly is remembered -----------------------------------------------------------------------------


@pytest.mark.scenario("K103")
async def test_a_file_is_remembered_by_its_real_path(tmp_path: Path) -> None:
    """A link to it is the same file; one that leads elsewhere now is another."""
    (tmp_path / "a.md").write_text("1")
    (tmp_path / "b.md").write_text("1")
    (tmp_path / "link.md").symlink_to("a.md")
    first, second = (calls("write_file", path=name, content="2") for name in ("a.md", "link.md"))

    @tool
    async def turn() -> str:
        (tmp_path / "link.md").unlink()
        (tmp_path / "link.md").symlink_to("b.md")
        return "turned"

    run = Agent(scripted(first, second, calls("turn"), second), tools=[files(tmp_path, write=True), turn]).run("hi")
    asked = await answered(run, "session", "no")
    assert [event.pattern for event in asked] == [{"path": str(tmp_path / name)} for name in ("a.md", "b.md")]


@pytest.mark.scenario("K103")
async def test_a_command_is_remembered_with_its_directory_and_only_if_it_is_plain(tmp_path: Path) -> None:
    script = scripted(
        calls("shell", command="echo a*"), calls("shell", command="echo a*"), calls("shell", command="echo a; echo b")
    )
    run = Agent(script, tools=[shell(cwd=tmp_path)]).run("hi")
    asked = await answered(run, "session", "no")
    assert asked[0].pattern == {"command": "echo a[*]", "directory": str(tmp_path)}
    assert (asked[1].pattern, asked[1].options) == (None, ("yes", "no"))


async def test_a_program_is_remembered_with_its_path_and_all_arguments(tmp_path: Path) -> None:
    once, more = calls("echo", arguments=["a"]), calls("echo", arguments=["a", "b"])
    run = Agent(scripted(once, once, more), tools=[program("echo", cwd=tmp_path)]).run("hi")
    first, second = await answered(run, "session", "no")
    assert first.pattern is not None
    assert (first.pattern["arguments"], second.pattern and second.pattern["arguments"]) == (["a"], ["a", "b"])
    reading = Agent(scripted(once), tools=[program("echo", risk="reads")]).run("hi")
    assert await answered(reading) == []


@pytest.mark.scenario("K104")
@pytest.mark.parametrize("name", ["a\u202eb", "\U000e0041", "x" * 20_000], ids=["bidi", "tag", "long"])
async def test_what_cannot_be_shown_in_a_pattern_cannot_be_remembered(name: str) -> None:
    run = Agent(scripted(calls("save", name=name)), tools=[save]).run("hi")
    (asked,) = await answered(run, "no")
    assert (asked.pattern, asked.options) == (None, ("yes", "no"))


async def test_a_predicate_and_patterns_ask_for_what_may_be_remembered() -> None:
    def is_much(cents: int, **_: object) -> bool:
        return cents > 10

    much = tool(save.fn, approval=is_much)
    run = Agent(scripted(calls("save", name="a", cents=20), calls("save", name="a", cents=20)), tools=[much]).run("hi")
    assert len(await answered(run, "session")) == 1
    named = tool(save.fn, approval={"name": "b*"})
    run = Agent(
        scripted(calls("save", name="a"), calls("save", name="a"), calls("save", name="b1")), tools=[named]
    ).run("hi")
    assert len(await answered(run, "session")) == 1
