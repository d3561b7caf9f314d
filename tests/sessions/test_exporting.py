"""A session as JSON: what was exported comes back as it was, and nothing else is taken for it."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from typing import Any

import pytest

from halter.errors import ConfigurationError, SessionNotFound, UsageError
from halter.messages import Message
from halter.sessions import MemoryStore, Sessions
from halter.sessions.exporting import FORMAT
from halter.sessions.records import Checkpoint, Session

from ..agents.loops import in_real_time
from .contract import awkward_messages

SESSION = Session(
    id='it\'s "one"',
    user="alice",
    title="NUL \0, \ud83d, 🙂",
    tags=("a", "b"),
    metadata={"k": [1, 2.5, None, {"ä": "\ud83d"}]},
    state={"step": 3},
    created_at=100.25,
    updated_at=200.5,
)
SUMMARY = Checkpoint(upto=2, messages=(Message.user("Before."),), run_id="run-1")


async def of_a_session() -> Sessions:
    store = MemoryStore()
    await store.create(SESSION, awkward_messages(), SUMMARY)
    return Sessions(store)


@in_real_time
async def test_what_is_imported_is_what_was_exported() -> None:
    chats = await of_a_session()
    data = await chats.export(SESSION.id)
    text = json.dumps(data)
    for given in (data, text, text.encode()):
        other = Sessions()
        session = await other.import_(given)
        assert session == await chats.get(SESSION.id)
        for full in (True, False):
            assert await other.history(SESSION.id, full=full) == await chats.history(SESSION.id, full=full)
        assert await other.export(SESSION.id) == data
    copy = await chats.import_(data, id="another")
    assert (copy.id, copy.title, copy.state) == ("another", SESSION.title, SESSION.state)


@in_real_time
async def test_an_export_is_plain_json_with_a_form_and_a_version() -> None:
    chats = await of_a_session()
    data = await chats.export(SESSION.id)
    assert json.loads(json.dumps(data)) == data
    assert list(data) == ["format", "version", "session", "messages", "compaction"]
    assert (data["format"], data["version"]) == ("halter.session", 1)
    assert "holder" not in data["session"]
    with pytest.raises(SessionNotFound, match="nobody"):
        await chats.export("nobody")


@in_real_time
async def test_an_import_never_touches_a_session_that_is_there() -> None:
    chats = await of_a_session()
    data = await chats.export(SESSION.id)
    await chats.update(SESSION.id, title="mine")
    with pytest.raises(UsageError, match="there is a session"):
        await chats.import_(data)
    assert (await chats.get(SESSION.id)).title == "mine"


def without(*path: str) -> Callable[[Any], object]:
    def remove(data: Any) -> object:
        for key in path[:-1]:
            data = data[key]
        return data.pop(path[-1])

    return remove


DAMAGE: dict[str, Callable[[Any], object]] = {
    "another form": lambda data: data.update(format="something else"),
    "no form": without("format"),
    "a later version": lambda data: data.update(version=2),
    "no version": without("version"),
    "no messages": without("messages"),
    "no session": without("session"),
    "no id": without("session", "id"),
    "a field too many": lambda data: data.update(extra=1),
    "an empty id": lambda data: data["session"].update(id=""),
    "an id too long": lambda data: data["session"].update(id="x" * 257),
    "tags that are none": lambda data: data["session"].update(tags=[1]),
    "an empty tag": lambda data: data["session"].update(tags=[""]),
    "metadata that is none": lambda data: data["session"].update(metadata=[1]),
    "an unknown role": lambda data: data["messages"][0].update(role="nobody"),
    "an unknown part": lambda data: data["messages"][-1]["parts"].append({"type": "smell", "text": "x"}),
    "an image without data": lambda data: data["messages"][-1]["parts"].append({"type": "image"}),
    "bytes that are no base64": lambda data: data["messages"][-1]["parts"].append({"type": "image", "data": "?"}),
    "the last of many": lambda data: data["messages"].append({"role": "user"}),
    "a compaction of more than there is": lambda data: data["compaction"].update(upto=len(data["messages"]) + 1),
    "a time that is no number": lambda data: data["session"].update(created_at=float("nan")),
    "a time that is never": lambda data: data["session"].update(updated_at=float("inf")),
    "a compaction of less than nothing": lambda data: data["compaction"].update(upto=-1),
}


@pytest.mark.parametrize("damage", DAMAGE.values(), ids=DAMAGE.keys())
def test_what_is_damaged_is_refused_before_anything_is_written(damage: Callable[[Any], object]) -> None:
    async def body() -> None:
        chats = await of_a_session()
        data = await chats.export(SESSION.id)
        damage(data)
        other = Sessions()
        for given in (data, json.dumps(data)):
            with pytest.raises(ConfigurationError):
                await other.import_(given)
        assert await other.list() == []

    asyncio.run(body())


NO_EXPORT = ["", "{", b"\xff\xfe", "[]", "null", "[" * 100_000, 5, None, f'{{"format": "{FORMAT}"}}']


@pytest.mark.parametrize("given", NO_EXPORT, ids=range(len(NO_EXPORT)))
def test_what_is_no_export_at_all_is_refused(given: Any) -> None:
    with pytest.raises(ConfigurationError):
        asyncio.run(Sessions().import_(given))
