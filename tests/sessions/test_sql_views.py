"""The views through which people query what they own."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
import sqlalchemy as sa

from halter import Agent
from halter.messages import Image, Message, Text, ToolCall, ToolResult
from halter.sessions import Sessions
from halter.sessions.sql.views import NAMES

from .contract import Open

TALK = [
    Message("user", (Text("Which "), Image(url="https://example.org/a.png"), Text("tea?"))),
    Message("assistant", (ToolCall("c", "look", "{}"),)),
    Message("tool", (ToolResult("c", "half a sign: \ud83d, and none: \0"),)),
    Message("assistant", (Text("Green\0 \\u0000 \ud83d 🙂"),)),
]


async def rows(store: Any, query: str) -> list[dict[str, Any]]:
    def fn(connection: sa.Connection) -> list[dict[str, Any]]:
        return [dict(row) for row in connection.execute(sa.text(query)).mappings()]

    return await store._database.read(fn)


@pytest.mark.parametrize("place", ["sqlite", "postgres"])
def test_everybody_finds_what_is_theirs_through_the_views(place: str, request: pytest.FixtureRequest) -> None:
    open_store: Open = request.getfixturevalue(f"{place}_store")

    async def scenario() -> None:
        store: Any = open_store()
        chats = Sessions(store)
        await chats.create("s", user="ann", title="Tea", metadata={"plan": "free"}, messages=TALK)
        await chats.create("t", user="bob", messages="hello")
        await Agent("scripted:Hi.", name="greeter").run("hello", session=chats.session("t"))
        await chats.facts.add("ann", "Likes tea.")
        said = await rows(store, "SELECT * FROM halter_messages_view WHERE user_id = 'ann' ORDER BY position")
        assert [row["role"] for row in said] == ["user", "assistant", "tool", "assistant"]
        assert [row["session_id"] for row in said] == ["s"] * 4
        assert said[0]["text"] == "Which tea?"
        assert not said[1]["text"]
        assert said[3]["text"].startswith("Green")
        [session] = await rows(store, "SELECT * FROM halter_sessions_view WHERE user_id = 'ann'")
        assert (session["title"], session["messages"], session["holder"]) == ("Tea", 4, None)
        assert str(session["created_at"]).startswith("20")
        [run] = await rows(store, "SELECT * FROM halter_runs_view WHERE user_id = 'bob'")
        assert (run["name"], run["kind"], run["status"], run["session_id"]) == ("greeter", "agent", "completed", "t")
        assert run["output_tokens"] >= 1
        [fact] = await rows(store, "SELECT * FROM halter_facts_view WHERE user_id = 'ann'")
        assert (fact["text"], fact["kind"], fact["name"]) == ("Likes tea.", "user", "ann")
        await chats.aclose()

    asyncio.run(scenario())


@pytest.mark.scenario("K102")
@pytest.mark.parametrize("place", ["sqlite", "postgres"])
def test_a_damaged_row_spoils_no_query(place: str, request: pytest.FixtureRequest) -> None:
    open_store: Open = request.getfixturevalue(f"{place}_store")

    async def scenario() -> None:
        store: Any = open_store()
        chats = Sessions(store)
        await chats.create("s", user="ann", messages=[Message.user(text) for text in ("one", "two", "three")])
        for at, data in enumerate((b"no JSON \xff", b'{"role": "user", "parts": 5}')):
            changed = sa.text("UPDATE halter_messages SET data = :d WHERE key & 3 = :at")
            values = {"d": data, "at": at}
            await store._database.write(lambda connection: connection.execute(changed, values))  # noqa: B023
        said = await rows(store, "SELECT * FROM halter_messages_view ORDER BY position")
        assert [row["role"] for row in said] == [None, "user", "user"]
        assert said[2]["text"] == "three"
        for name in NAMES:
            await rows(store, f"SELECT * FROM {name}")
        await chats.aclose()

    asyncio.run(scenario())
