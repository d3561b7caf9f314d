"""What is read of a session while others work on it: one moment of it, in a form that every provider accepts."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import msgspec
import pytest

from halter.core.history import for_model
from halter.core.owner import Owner
from halter.messages import Message, ToolCall, ToolResult
from halter.outcome import RunStatus
from halter.sessions import Sessions

from .contract import BESIDE, HELLO, HI, Open, a_run, ended, taken, with_a_turn
from .places import memory_store as memory_store
from .places import open_store as open_store

TWO_CALLS = Message("assistant", (ToolCall("c1", "look", "{}"), ToolCall("c2", "dig", "{}")))


@pytest.mark.parametrize("results", [("c1",), ("c2",), ()])
def test_the_history_of_a_live_run_has_a_result_for_each_call(results: tuple[str, ...], open_store: Open) -> None:
    async def scenario() -> None:
        store = open_store()
        turn = await taken(store, a_run())
        there = [Message("tool", tuple(ToolResult(each, "gold") for each in results))] if results else []
        await store.write(turn.lease, 0, [HI, TWO_CALLS, *there])
        said = await Sessions(store).history("s")
        assert [message.parts for message in for_model(said)] == [message.parts for message in said]
        assert [message.role for message in said] == ["user", "assistant", "tool"]
        told = {part.call_id: part.content for part in said[-1].parts if isinstance(part, ToolResult)}
        assert list(told) == ["c1", "c2"]
        assert [id for id, text in told.items() if text == "gold"] == list(results)
        assert all("no result yet" in text for id, text in told.items() if id not in results)
        assert (await Sessions(store).history("s", full=True)) == said
        await store.aclose()

    asyncio.run(scenario())


@pytest.mark.parametrize("place", ["sqlite_store", "postgres_store"])
@pytest.mark.parametrize("looks", [0, 1, 2])
def test_a_process_that_dies_while_a_session_is_exported_leaves_no_half_turn_in_it(
    looks: int, place: str, request: pytest.FixtureRequest
) -> None:
    """Whichever look at it is the first to see that."""

    open_place: Open = request.getfixturevalue(place)

    def answers() -> Iterator[bool]:
        yield from [False] * looks
        while True:
            yield True

    async def scenario() -> None:
        store: Any = open_place()
        await with_a_turn(store, HI, HELLO, run_id="run-0")
        turn = await taken(store, a_run(owner=BESIDE))
        await store.write(turn.lease, 2, [HI, TWO_CALLS])
        chats = Sessions(store)
        await chats.list()
        is_dead = answers()
        store._is_dead = lambda _: next(is_dead)
        exported = await chats.export("s")
        said = msgspec.convert(exported["messages"], tuple[Message, ...])
        assert [message.parts for message in for_model(said)] == [message.parts for message in said]
        is_dead = answers()
        await chats.fork("s", to="t")
        forked = await chats.history("t")
        assert [message.parts for message in for_model(forked)] == [message.parts for message in forked]
        await store.aclose()

    asyncio.run(scenario())


def test_a_snapshot_names_the_run_that_has_the_turn_and_those_that_are_lost(open_store: Open) -> None:
    async def scenario() -> None:
        store = open_store()
        assert await store.snapshot("s") is None
        first = await taken(store, a_run("run-1"))
        await store.write(first.lease, 0, [HI])
        seen = await store.snapshot("s")
        assert seen is not None
        assert (seen.conversation.messages, seen.live and seen.live.run_id, seen.lost) == ((HI,), "run-1", ())
        await store.close(first.lease, ended(a_run("run-1"), RunStatus.COMPLETED), 1, [HELLO])
        seen = await store.snapshot("s")
        assert seen is not None
        assert (seen.conversation.messages, seen.live, seen.lost) == ((HI, HELLO), None, ())
        await taken(store, a_run("run-2", owner=f"{Owner.here()}/gone"), lease_for=0.0)
        seen = await store.snapshot("s")
        assert seen is not None
        assert (seen.live, [record.run_id for record in seen.lost]) == (None, ["run-2"])
        assert [record.run_id for record in await store.lost("s")] == ["run-2"]
        assert await store.lost("t") == []
        await store.aclose()

    asyncio.run(scenario())
