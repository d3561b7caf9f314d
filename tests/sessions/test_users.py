"""Who talks: sessions, runs and what is known of one user are never another's."""

from __future__ import annotations

import json
import time
from typing import Any

import pytest
import sqlalchemy as sa

from halter import Agent, RunContext, RunStatus, runnable, runtime
from halter.errors import ConfigurationError, SessionBusy, SessionDamaged, SessionNotFound
from halter.messages import Message
from halter.models import Scripted
from halter.sessions import Fact, FactScope, Session, Sessions
from halter.sessions.memory import MemoryStore
from halter.sessions.port import Store

from .contract import GONE, LONG, Open, a_run, on_a_loop
from .places import PLACES
from .places import memory_store as memory_store

HELLO = Agent(Scripted("Hello."))
SLOW = Agent(Scripted("word " * 1_000, pace=0.05))


@pytest.fixture(params=PLACES)
def store(request: pytest.FixtureRequest) -> Store:
    open_store: Open = request.getfixturevalue(f"{request.param}_store")
    return open_store()


@pytest.fixture
def chats(store: Store) -> Sessions:
    return Sessions(store)


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


# --- all of one user ----------------------------------------------------------------------------------------


@pytest.mark.scenario("K101")
@on_a_loop
async def test_a_user_is_exported_and_deleted_with_all_that_is_theirs_and_nobody_else_s(chats: Sessions) -> None:
    for user, session in (("ann", "a1"), ("ann", "a2"), ("Ann", "b"), (None, "ann")):
        await HELLO.run(f"I am {user}.", session=chats.session(session), user=user)
        if user is not None:
            await chats.facts.add(user, f"Is called {user}.")
    await chats.facts.add(FactScope("session", "ann"), "Is nobody.")
    whole = json.loads(json.dumps(await chats.export_user("ann")))
    assert {each["session"]["id"] for each in whole["sessions"]} == {"a1", "a2"}
    assert [fact["text"] for fact in whole["facts"]][:1] == ["Is called ann."]
    assert {record["session_id"] for record in whole["runs"]} == {"a1", "a2"}
    assert "Ann" not in json.dumps(whole)
    async with SLOW.run("hi", session=chats.session("a1"), user="ann") as run:
        await anext(run.text_stream())
        assert await chats.delete_user("ann") == 2
        assert run.status is RunStatus.CANCELLED
    assert await chats.delete_user("ann") == 0
    assert await chats.runs(user="ann") == []
    assert await chats.facts.list("ann") == []
    assert {session.id for session in await chats.list()} == {"b", "ann"}
    assert len(await chats.facts.list("Ann")) == len(await chats.facts.list(FactScope("session", "ann"))) == 1
    await chats.aclose()


@pytest.mark.scenario("K101")
@on_a_loop
async def test_a_user_is_exported_while_their_sessions_are_deleted_and_given_away(chats: Sessions) -> None:
    """What is gone, or another's, when its turn comes is not theirs."""
    for session in ("s1", "s2", "s3"):
        await chats.create(session, user="ann", messages="A secret.")
    store: Any = chats._store
    find = store.find

    async def found(query: Any) -> Any:
        there = await find(query)
        await store.delete("s1")
        await store.update("s2", {"user": "bob"})
        return there

    store.find = found
    whole = await chats.export_user("ann")
    assert [each["session"]["id"] for each in whole["sessions"]] == ["s3"]
    await chats.aclose()


@on_a_loop
async def test_a_user_is_not_half_deleted_by_a_run_on_one_of_their_sessions(chats: Sessions) -> None:
    for session in ("s1", "s2", "s3"):
        await chats.create(session, user="ann")

    @runnable
    async def body(ctx: RunContext) -> None:
        await chats.delete_user("ann")

    result = await body.run(session=chats.session("s2"), user="ann").finished()
    assert result.status is RunStatus.FAILED
    assert "cannot delete" in str(result.error)
    assert len(await chats.list(user="ann")) == 3
    await chats.aclose()


@pytest.mark.scenario("K102")
@on_a_loop
async def test_a_session_whose_id_is_damaged_does_not_keep_the_rest_of_a_user_from_being_deleted(
    sqlite_store: Open,
) -> None:
    store: Any = sqlite_store()
    chats = Sessions(store)
    for session in ("s1", "broken", "s3"):
        await chats.create(session, user="ann")
    await chats.facts.add("ann", "Likes tea.")
    statement = sa.text(r"UPDATE halter_sessions SET id = 'not \x ours' WHERE id = 'broken'")
    await store._database.write(lambda connection: connection.execute(statement) and None)
    with pytest.raises(SessionDamaged, match="could not be deleted"):
        await chats.delete_user("ann")
    assert len(await chats.list(user="ann")) == 1
    assert await chats.facts.list("ann") == []
    await chats.aclose()


@on_a_loop
async def test_sessions_are_kept_for_as_long_as_was_said(store: Store) -> None:
    chats = Sessions(store, keep_sessions_for=3600.0)
    learned = Fact(id="1", scope=FactScope("user", "u"), text="x", session_id="old 1")
    old = time.time() - 3601
    for number in range(105):
        await store.create(Session(id=f"old {number}", created_at=old, updated_at=old), [Message.user("tea")])
    await store.create(Session(id="in use", created_at=old, updated_at=old))
    await store.change_facts(learned.scope, put=[learned])
    async with SLOW.run("hi", session=chats.session("in use")) as run:
        await anext(run.text_stream())
        await chats.create("new")
        gone = await chats.prune()
        run.cancel()
    assert gone in (0, 105), "opening the place has pruned it already"
    assert {session.id for session in await chats.list()} == {"in use", "new"}
    assert await chats.search("tea") == []
    assert await chats.facts.list("u") == []
    await chats.aclose()


@on_a_loop
async def test_a_process_that_runs_on_deletes_old_sessions_every_hour(monkeypatch: pytest.MonkeyPatch) -> None:
    store = MemoryStore()
    chats = Sessions(store, keep_sessions_for=3600.0)
    old = time.time() - 3601
    await store.create(Session(id="old", created_at=old, updated_at=old))
    await HELLO.run("hi", session=chats.session("s"))
    assert len(await chats.list()) == 2
    monkeypatch.setattr("halter.sessions.place.PRUNED_EVERY", 0.0)
    await HELLO.run("hi", session=chats.session("s"))
    await chats.prune()
    assert [session.id for session in await chats.list()] == ["s"]
