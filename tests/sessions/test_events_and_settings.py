"""What a run on a session shows, and where sessions are kept by default."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
from collections.abc import Generator
from pathlib import Path
from typing import Any

import pytest

import halter
from halter import Agent, Run, events, runtime, tool
from halter.compose import Sequential
from halter.core import settings as core_settings
from halter.core.history import MARKER
from halter.core.settings import configure, default_sessions, settings
from halter.errors import ConfigurationError
from halter.facts import Facts
from halter.models.scripted import Scripted, calls
from halter.sessions import FactScope, Sessions

from ..teams.parts import Notes
from .talks import asked, speaking, stored, talker

pytestmark = pytest.mark.virtual_time


@pytest.fixture
def as_before() -> Generator[None]:
    """The settings of this process are what they were."""
    kept = list(core_settings._settings), list(core_settings._sessions)
    yield
    core_settings._settings[:], core_settings._sessions[:] = kept


async def log_of(run: Run[Any]) -> list[events.Event]:
    return [event async for event in run.events()]


# --- events -------------------------------------------------------------------------------------------------


@tool
async def work() -> str:
    return "worked"


async def test_the_order_of_events() -> None:
    chats = Sessions()
    run = Agent(Scripted(calls("work"), "done"), tools=[work]).run("hello", session=chats.session("s"))
    await run
    log = await log_of(run)
    assert [event.seq for event in log] == list(range(1, len(log) + 1))
    queued, started = log[0], log[1]
    assert isinstance(queued, events.Queued)
    assert isinstance(started, events.Started)
    assert queued.session_id == started.session_id == "s"
    assert log[-1].type == "run.completed"
    assert sum(event.is_terminal for event in log) == 1
    assert isinstance(log[-1], events.Completed)
    assert run.outcome is not None
    assert log[-1].usage == run.outcome.usage
    record = await chats.run(run.id)
    assert record is not None
    assert record.usage == run.outcome.usage
    assert (record.cost, record.name, record.kind, record.input) == (0.0, "agent", "agent", "hello")


async def test_without_a_session_a_run_has_no_queue() -> None:
    run = talker("yes").run("hello")
    await run
    assert [event.type for event in await log_of(run)][:2] == ["run.started", "step.started"]
    started = (await log_of(run))[0]
    assert isinstance(started, events.Started)
    assert started.session_id is None


async def test_the_events_of_a_stopped_run_end_with_its_end() -> None:
    chats = Sessions()
    run = await speaking(talker().run("hello", session=chats.session("s")))
    run.cancel()
    await run.finished()
    await asyncio.sleep(1)
    types = [event.type for event in await log_of(run)]
    assert types[:2] == ["run.queued", "run.started"]
    assert types[-1] == "run.cancelled"
    assert types.index("run.cancelling") < types.index("message.finished")


# --- arguments ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "why"),
    [
        ({"session": ""}, "characters"),
        ({"session": 7}, "session"),
        ({"session": "s", "on_busy": "wait"}, "on_busy"),
        ({"session": "s", "keep": "all"}, "keep"),
        ({"session": "s", "history": [halter.Message.user("x")]}, "history"),
    ],
)
async def test_what_does_not_go_together_is_refused_before_anything_runs(options: dict[str, Any], why: str) -> None:
    with pytest.raises(ConfigurationError, match=why):
        talker("yes").run("hello", **options)


# --- settings -----------------------------------------------------------------------------------------------


async def test_an_id_names_a_session_of_the_configured_place(as_before: None) -> None:
    chats = Sessions()
    configure(sessions=chats)
    assert default_sessions() is chats
    await talker("yes").run("hello", session="s")
    assert asked(await stored(chats)) == ["hello"]


async def test_by_default_sessions_last_as_long_as_the_process(as_before: None) -> None:
    core_settings._sessions.clear()
    await talker("yes").run("hello", session="by default")
    again = await talker("yes").run("again", session="by default")
    assert asked(again.messages) == ["hello", "again"]
    assert settings().sessions == "memory"


async def test_a_place_that_cannot_be_is_refused_and_changes_nothing(as_before: None) -> None:
    before = settings()
    with pytest.raises(ConfigurationError):
        configure(sessions="ftp://nowhere")
    assert settings() == before


async def test_runs_without_a_session_have_records_where_that_is_wished(as_before: None) -> None:
    chats = Sessions()
    configure(sessions=chats, record_runs=True)
    run = talker("yes").run("hello", tags=["noted"])
    await run
    stopped = await speaking(talker().run("hello"))
    stopped.cancel("enough")
    await stopped.finished()
    records = await chats.runs()
    assert [(record.run_id, record.status) for record in records] == [(stopped.id, "cancelled"), (run.id, "completed")]
    assert [record.session_id for record in records] == [None, None]
    assert records[1].text == "yes"
    assert records[1].tags == ("noted",)
    assert await chats.list() == []


async def test_runs_under_others_are_in_their_record(as_before: None) -> None:
    chats = Sessions()
    configure(sessions=chats, record_runs=True)
    await Sequential(talker("a"), talker("b")).run("hello")
    assert len(await chats.runs()) == 1


async def test_records_without_content_have_no_words(as_before: None) -> None:
    chats = Sessions(store_content=False)
    run = await speaking(talker().run("a secret", session=chats.session("s")))
    run.cancel("because of a secret")
    await run.finished()
    record = await chats.run(run.id)
    assert record is not None
    assert record.status == "cancelled"
    assert "secret" not in repr(record)
    assert "one" not in repr(record.text)
    assert asked(await stored(chats)) == ["a secret"]


async def test_what_is_learned_is_in_no_record(as_before: None) -> None:
    """A fact that somebody has forgotten must not live on there."""
    chats = Sessions()
    configure(sessions=chats, record_runs=True)
    learner = Scripted(json.dumps({"add": ["Ann has a secret."], "replace": [], "forget": []}))
    await Agent(Scripted("yes"), memory=Facts(learner)).run("hello", session=chats.session("s"))
    for run in runtime().runs(tag="memory"):
        await run.finished()
    [record] = await chats.runs(tag="memory")
    assert [fact.text for fact in await chats.facts.list(FactScope("session", "s"))] == ["Ann has a secret."]
    assert (record.status, record.text) == ("completed", "")
    assert record.usage.total > 0


async def test_the_words_that_tell_of_a_stop_are_the_users_own(as_before: None) -> None:
    configure(stop_marker="[CUT]")
    chats, notes = Sessions(), Notes("yes")
    run = await speaking(talker().run("hello", session=chats.session("s")))
    run.cancel()
    await run.finished()
    await Agent(notes).run("next", session=chats.session("s"))
    told = json.dumps(notes.told)
    assert told.count("[CUT]") == 1
    assert MARKER not in told
    assert "[CUT]" not in repr(await stored(chats))


PROGRAM = """
import asyncio
from halter import Agent
from halter.core.settings import default_sessions
print(Agent("scripted:yes").run("hello", session="s").result())
async def main():
    print([m.text for m in await default_sessions().history("s")])
asyncio.run(main())
"""


def test_the_environment_says_where_sessions_are_kept(tmp_path: Path) -> None:
    """In two processes, one after the other."""
    for times in (1, 2):
        done = subprocess.run(
            [sys.executable, "-W", "error", "-c", PROGRAM],
            env={**os.environ, "HALTER_SESSIONS": str(tmp_path / "chats.db")},
            capture_output=True,
            text=True,
            timeout=50,
            check=False,
        )
        assert done.stderr == ""
        assert done.stdout.splitlines()[-1] == repr(["hello", "yes"] * times)
