"""Who talks: sessions, runs and what is known of one user are never another's."""

from __future__ import annotations

from typing import Any

import pytest

from halter import Agent, RunContext, RunStatus, runnable, runtime
from halter.errors import ConfigurationError, SessionBusy, SessionNotFound
from halter.messages import Message
from halter.models import Scripted
from halter.sessions import Sessions
from halter.sessions.memory import MemoryStore

from .contract import GONE, LONG, Open, a_run, on_a_loop
from .places import PLACES
from .places import memory_store as memory_store

HELLO = Agent(Scripted("Hello."))
SLOW = Agent(Scripted("word " * 1_000, pace=0.05))


@pytest.fixture(params=PLACES)
def chats(request: pytest.FixtureRequest) -> Sessions:
    open_store: Open = request.getfixturevalue(f"{request.param}_store")
    return Sessions(open_store())


@pytest.mark.scenario("K101")
@on_a_loop
async def test_a_session_is_made_for_who_talks_and_is_nobody_else_s(chats: Sessions) -> None:
    await HELLO.run("hi", session=chats.session("s"), user="ann")
    await HELLO.run("hi", session=chats.session("s"), user="ann")
    await HELLO.run("from the program itself", session=chats.session("s"))
    assert (await chats.get("s")).user == "ann"
    for other in ("bob", "Ann", "ann "):
        for on_busy in ("reject", "enqueue", "interrupt", "steer"):
            with pytest.raises(SessionNotFound, match="there is no session 's'"):
                await HELLO.run("mine", session=chats.session("s"), user=other, on_busy=on_busy)
    assert len(await chats.history("s")) == 6
    assert [record.user for record in await chats.runs()] == ["ann"] * 3
    await chats.aclose()


@pytest.mark.scenario("K101")
@on_a_loop
async def test_a_session_of_nobody_is_not_taken_over_by_who_comes_with_a_name(chats: Sessions) -> None:
    await HELLO.run("a secret", session=chats.session("s"))
    with pytest.raises(SessionNotFound):
        await HELLO.run("hi", session=chats.session("s"), user="ann")
    await chats.update("s", user="ann")
    await HELLO.run("hi", session=chats.session("s"), user="ann")
    assert [record.user for record in await chats.runs()] == ["ann", None]
    await chats.aclose()


@pytest.mark.scenario("K101")
@pytest.mark.parametrize("on_busy", ["reject", "enqueue", "interrupt", "steer"])
@on_a_loop
async def test_a_live_run_of_another_user_is_neither_told_nor_stopped_nor_seen(chats: Sessions, on_busy: Any) -> None:
    async with SLOW.run("hi", session=chats.session("s"), user="ann") as run:
        await anext(run.text_stream())
        with pytest.raises(SessionNotFound) as raised:
            await HELLO.run("stop that", session=chats.session("s"), user="bob", on_busy=on_busy, timeout=5)
        assert run.id not in str(raised.value)
        with pytest.raises(SessionBusy):
            await HELLO.run("mine", session=chats.session("s"), user="ann")
        assert run.status is RunStatus.RUNNING
        run.cancel()
    assert [message.text for message in await chats.history("s") if message.role == "user"] == ["hi"]
    await chats.aclose()


@on_a_loop
async def test_a_tool_knows_who_talks() -> None:
    chats, seen = Sessions(MemoryStore()), list[str | None]()

    @runnable
    async def child(ctx: RunContext) -> None:
        seen.append(ctx.user)

    @runnable
    async def body(ctx: RunContext) -> None:
        seen.append(ctx.user)
        await child.run()

    await body.run(user="ann")
    await body.run(Message.user("hi"), session=chats.session("s"), user="ann")
    await body.run(Message.user("hi"), session=chats.session("s"))
    await body.run()
    assert seen == ["ann"] * 6 + [None] * 2


@on_a_loop
async def test_a_lost_run_of_a_session_that_was_given_to_somebody_else_is_ended_all_the_same() -> None:
    store = MemoryStore()
    chats = Sessions(store)
    await store.take(a_run("lost", owner=GONE, user="ann"), lease_for=LONG)
    await store.update("s", {"user": "bob"})
    [record] = await chats.recover()
    assert (record.status, record.user) == (RunStatus.CANCELLED, "ann")
    assert (await chats.get("s")).holder is None


@pytest.mark.parametrize("user", ["", "x" * 257, 5, b"ann", "a\0b", "\ud83d"])
def test_what_is_no_name_is_refused_where_it_is_given(user: Any) -> None:
    with pytest.raises(ConfigurationError, match="user"):
        HELLO.run("hi", user=user)


@on_a_loop
async def test_a_run_whose_own_code_misses_a_session_has_failed() -> None:
    chats = Sessions(MemoryStore())

    @runnable
    async def body(ctx: RunContext) -> None:
        await chats.get("nowhere")

    result = await body.run(session=chats.session("s"), user="ann").finished()
    assert result.status is RunStatus.FAILED
    assert runtime().runs() == []
