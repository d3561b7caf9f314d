"""What the tests of runs on sessions share: who talks, and what is stored of it."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from typing import Any

import pytest

from halter import Agent, Message, Run
from halter.errors import SessionNotFound
from halter.messages import ToolResult
from halter.models.scripted import Answer, Scripted
from halter.sessions import RunRecord, Sessions

from .contract import Open

WORDS = "one two three four five six seven eight nine ten"
PACE = 0.02  # seconds between two words


@pytest.fixture
def chats(open_store: Open) -> Sessions:
    """Sessions in each place where they can be kept."""
    return Sessions(open_store())


def talker(*answers: Answer, pace: float = PACE, **options: Any) -> Agent[str]:
    """An agent that takes its time."""
    return Agent(Scripted(*(answers or (WORDS,)), pace=pace), **options)


async def stored(chats: Sessions, id: str = "s") -> tuple[Message, ...]:
    """All that is stored of the conversation, as it stands; nothing if there is no such session."""
    try:
        return await chats.history(id, full=True)
    except SessionNotFound:
        return ()


async def state_of(chats: Sessions, id: str = "s") -> Any:
    """Where the next run goes on, as JSON has it."""
    return json.loads(json.dumps((await chats.get(id)).state))


async def exported(chats: Sessions, id: str = "s") -> dict[str, Any]:
    """What the session holds, without when it was used."""
    found = dict(await chats.export(id))
    found.pop("exported_at", None)
    found["session"] = {key: value for key, value in found["session"].items() if key != "updated_at"}
    return found


def asked(messages: tuple[Message, ...]) -> list[str]:
    """What users have said."""
    return [message.text for message in messages if message.role == "user"]


def answered(messages: tuple[Message, ...]) -> list[str]:
    return [message.text for message in messages if message.role == "assistant"]


def results(messages: tuple[Message, ...]) -> list[str]:
    """Of tool calls."""
    return [part.content for message in messages for part in message.parts if isinstance(part, ToolResult)]


async def until(ready: Callable[[], Any], patience: float = 20.0) -> None:
    """Waits for something that tells nobody; in virtual time too."""
    loop = asyncio.get_running_loop()
    last = loop.time() + patience
    while not ready():
        assert loop.time() < last, "it did not come to this"
        await asyncio.sleep(0.002)


async def speaking(run: Run[Any], words: int = 3) -> Run[Any]:
    """The run, when it has said so many words."""
    run.start()
    await until(lambda: len(run.text.split()) >= words or run.is_done)
    assert not run.is_done, run.why()
    return run


async def record_of(chats: Sessions, run: Run[Any]) -> RunRecord:
    found = await chats.run(run.id)
    assert found is not None, f"run {run.id} has no record"
    return found


async def check_agrees(chats: Sessions, run: Run[Any], id: str = "s") -> None:
    """Status, terminal event, result, record and history tell the same."""
    result = run.outcome
    assert result is not None
    events = [event async for event in run.events() if event.run_id == run.id]
    assert events[0].type == "run.queued" or len(events) == 1
    assert [event.is_terminal for event in events] == [False] * (len(events) - 1) + [True]
    assert events[-1].type == f"run.{result.status}"
    assert run.status is result.status
    record = await chats.run(run.id)
    if record is not None:
        assert (record.status, record.text, record.usage) == (result.status, result.text, result.usage)
        assert record.cancellation == result.cancellation
        assert record.ended_at is not None
        said = await stored(chats, id)
        assert said[: len(result.messages)] == result.messages, "the history is another than the result's"
