"""`Sessions`, as users hold it, over every place where sessions can be kept."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Callable, Coroutine, Iterable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from halter import CancelReason, Message, RunContext, RunStatus, runnable
from halter.core.held import held
from halter.core.history import LOST, NOT_RUN, for_model
from halter.core.run import Run
from halter.errors import BusyError, ConfigurationError, SessionBusy, SessionNotFound, UsageError
from halter.messages import Text, ToolCall, ToolResult
from halter.sessions import MemoryStore, Session, Sessions
from halter.sessions.port import Lease, Store
from halter.sessions.records import Checkpoint, Fact, FactScope

from .contract import GONE, HELLO, HI, LONG, SUNNY, WEATHER, Open, a_run, ended, taken, taken_in_the_end, with_a_turn
from .places import PLACES
from .places import memory_store as memory_store

ASKED = Message("assistant", (Text("Let me see."), ToolCall("c1", "look", "{}"), ToolCall("c2", "look", "{}")))
ALICE, HER_WORK = FactScope("user", "alice"), FactScope("custom", "her work")
FOUND = Message("tool", (ToolResult("c1", "sun"), ToolResult("c2", "wind")))
TALK = [HI, HELLO, WEATHER, ASKED, FOUND, SUNNY]


def texts_of(messages: Iterable[Message]) -> list[str]:
    return [message.text for message in messages]


@runnable
async def says(ctx: RunContext, text: str) -> str:
    ctx.say(Message.user(text))
    ctx.say(Message.assistant(f"{text} to you too"))
    return text


@runnable
async def waits(ctx: RunContext, text: str) -> None:
    """Says it, and goes on until it is stopped."""
    ctx.say(Message.user(text))
    await ctx.committed()
    ctx.emit("said")
    await asyncio.Event().wait()


@asynccontextmanager
async def a_live_run(chats: Sessions, id: str = "s", **options: Any) -> AsyncIterator[Run[None]]:
    """A run that has the session's turn, and has said "wait"."""
    async with waits.run("wait", session=chats.session(id), **options) as run:
        async for event in run.events():
            if event.type == "custom":
                break
        yield run


@pytest.fixture(params=["memory", "sqlite"])
def open_store(request: pytest.FixtureRequest) -> Any:
    """Where most of these tests run: what the places have in common is in their contract."""
    return request.getfixturevalue(f"{request.param}_store")


everywhere = pytest.mark.parametrize("open_store", PLACES, indirect=True)


@pytest.fixture
def on_chats(open_store: Open) -> Callable[[Callable[[Sessions], Coroutine[Any, Any, None]]], None]:
    """Runs a test body on an event loop of its own, which closes what it has opened."""

    def run(body: Callable[[Sessions], Coroutine[Any, Any, None]]) -> None:
        async def main() -> None:
            async with Sessions(open_store()) as chats:
                await body(chats)

        asyncio.run(main())

    return run


OnChats = Callable[[Callable[[Sessions], Coroutine[Any, Any, None]]], None]


# --- making, finding, changing ------------------------------------------------------------------------------


@everywhere
def test_a_session_is_made_with_what_is_given(on_chats: OnChats) -> None:
    async def body(chats: Sessions) -> None:
        before = time.time()
        made = await chats.create(
            "s",
            user="alice",
            title="Rome",
            tags=["a", "b", "a"],
            metadata={"k": 1},
            state={"n": 1},
            messages=[HI, HELLO],
        )
        assert made == await chats.get("s")
        assert (made.user, made.title, made.tags, made.metadata) == ("alice", "Rome", ("a", "b"), {"k": 1})
        assert (made.state, made.messages, made.holder) == ({"n": 1}, 2, None)
        assert before - 5 < made.created_at == made.updated_at < time.time() + 5
        assert await chats.history("s") == (HI, HELLO)
        with pytest.raises(UsageError, match="there is a session 's'"):
            await chats.create("s")
        other = await chats.create()
        assert other.id not in ("", "s")
        assert await chats.history(other.id) == ()

    on_chats(body)


def test_what_is_not_there_is_an_error_that_names_it(on_chats: OnChats) -> None:
    async def body(chats: Sessions) -> None:
        for ask in (
            chats.get("nobody"),
            chats.history("nobody"),
            chats.update("nobody", title="x"),
            chats.export("nobody"),
            chats.fork("nobody"),
            chats.rewind("nobody", 0),
        ):
            with pytest.raises(SessionNotFound, match="'nobody'"):
                await ask
        assert not await chats.delete("nobody")
        assert await chats.run("nobody") is None
        assert await chats.list() == []

    on_chats(body)


def test_a_session_is_changed_in_what_is_given(on_chats: OnChats) -> None:
    async def body(chats: Sessions) -> None:
        await chats.create("s", user="alice", title="old", tags=["a"], metadata={"k": 1}, state=1)
        changed = await chats.update("s", title="new", tags=["b"])
        assert (changed.user, changed.title, changed.tags, changed.metadata) == ("alice", "new", ("b",), {"k": 1})
        changed = await chats.update("s", user=None, metadata={"z": 2}, state=None)
        assert (changed.user, changed.metadata, changed.state) == (None, {"z": 2}, None)
        assert changed == await chats.get("s")
        assert await chats.update("s") == await chats.get("s")

    on_chats(body)


@everywhere
def test_sessions_and_messages_are_found_by_their_words(on_chats: OnChats) -> None:
    async def body(chats: Sessions) -> None:
        await chats.create("s", user="alice", tags=["x"], messages="Where is the Colosseum?")
        await chats.create("t", user="bob", title="Rome", tags=["x", "y"])
        assert [found.id for found in await chats.list()] == ["t", "s"]
        assert [found.id for found in await chats.list(text="colosseum")] == ["s"]
        assert [found.id for found in await chats.list(text="ROME", tag="y", user="bob")] == ["t"]
        assert [found.id for found in await chats.list(limit=1, offset=1)] == ["s"]
        [hit] = await chats.search("the colosseum", user="alice", session="s")
        assert (hit.session_id, hit.position, hit.role) == ("s", 0, "user")
        assert await chats.search("colosseum", user="bob") == []
        assert await chats.search("colosseum", limit=0) == []

    on_chats(body)


def test_a_session_without_a_title_is_called_by_its_first_words(on_chats: OnChats) -> None:
    async def body(chats: Sessions) -> None:
        await chats.create("s", messages=[HELLO, WEATHER])
        await says.run("Good   morning\nto all", session=chats.session("t"))
        await says.run("Another time", session=chats.session("t"))
        await chats.create("u", title="mine")
        await says.run("Good morning", session=chats.session("u"))
        titles = {session.id: session.title for session in await chats.list()}
        assert titles == {"s": "And the weather?", "t": "Good morning to all", "u": "mine"}

    on_chats(body)


# --- reading ------------------------------------------------------------------------------------------------


def test_a_run_goes_on_from_what_was_said(on_chats: OnChats) -> None:
    async def body(chats: Sessions) -> None:
        await chats.create("s", messages=[HI, HELLO])
        result = await says.run("Good evening", session=chats.session("s"))
        assert await chats.history("s") == result.messages
        assert texts_of(result.messages) == [
            "hi",
            "hello",
            "Good evening",
            "Good evening to you too",
        ]

    on_chats(body)


def test_calls_at_the_end_that_nobody_carries_on_have_results(on_chats: OnChats) -> None:
    """An import may end with them."""

    async def body(chats: Sessions) -> None:
        await chats.create("s", messages=TALK[:4])
        *said, sealed = await chats.history("s")
        assert said == TALK[:4]
        assert sealed.interrupted
        assert [part.content for part in sealed.parts if isinstance(part, ToolResult)] == [NOT_RUN, NOT_RUN]
        assert (await chats.get("s")).messages == 4

    on_chats(body)


def test_what_a_live_run_says_is_shown_as_far_as_it_has_come(on_chats: OnChats) -> None:
    async def body(chats: Sessions) -> None:
        await chats.create("s", messages=[HI, HELLO])
        async with a_live_run(chats) as run:
            assert (await chats.get("s")).holder == run.id
            assert await chats.history("s") == (HI, HELLO, Message.user("wait"))
        assert (await chats.get("s")).holder is None

    on_chats(body)


def test_a_compacted_conversation_is_shown_as_a_model_sees_it_and_in_full(on_chats: OnChats, open_store: Open) -> None:
    async def body(chats: Sessions) -> None:
        summary = Message.user("Before: greetings.")
        await open_store().create(Session(id="s"), TALK, Checkpoint(upto=2, messages=(summary,), run_id="r"))
        assert await chats.history("s") == (summary, *TALK[2:])
        assert await chats.history("s", full=True) == tuple(TALK)

    on_chats(body)


@everywhere
@pytest.mark.scenario("D44")
@pytest.mark.parametrize("keep", ["partial", "rollback"])
@pytest.mark.parametrize("full", [True, False])
def test_what_a_lost_process_has_left_reads_as_the_next_run_will_find_it(
    keep: str, full: bool, open_store: Open
) -> None:
    async def main() -> None:
        store = open_store()
        async with Sessions(store) as chats:
            await chats.list()  # what was lost before the first use was brought to an end then
            await with_a_turn(store, HI, HELLO)
            turn = await taken(store, a_run("lost", owner=GONE, keep=keep))
            await store.write(turn.lease, 2, [WEATHER, ASKED])
            await store.compact(turn.lease, Checkpoint(upto=1, messages=(SUNNY,), run_id="lost"))
            shown = await chats.history("s", full=full)
            if keep == "rollback":
                assert shown == (HI, HELLO)
            else:
                *said, results = shown
                assert said == ([HI, HELLO, WEATHER, ASKED] if full else [SUNNY, HELLO, WEATHER, ASKED])
                assert [part.content for part in results.parts if isinstance(part, ToolResult)] == [LOST, LOST]
            assert [message.parts for message in for_model(shown)] == [message.parts for message in shown]
            assert (await chats.get("s")).holder == "lost"  # reading changes nothing
            [record] = await chats.recover()
            assert (record.run_id, record.status) == ("lost", RunStatus.CANCELLED)
            assert record.cancellation is not None
            assert record.cancellation.reason is CancelReason.OWNER_LOST
            assert await chats.run("lost") == record
            assert (await chats.get("s")).holder is None
            assert await chats.history("s", full=full) == shown

    asyncio.run(main())


# --- forks --------------------------------------------------------------------------------------------------


@everywhere
def test_a_fork_goes_its_own_way(on_chats: OnChats) -> None:
    async def body(chats: Sessions) -> None:
        made = await chats.create("s", user="alice", title="t", tags=["a"], metadata={"k": 1}, state=5, messages=TALK)
        fork = await chats.fork("s", at=2, to="f")
        assert (fork.id, fork.user, fork.title, fork.tags, fork.metadata) == ("f", "alice", "t", ("a",), {"k": 1})
        assert (fork.messages, fork.state) == (2, None)  # the state came of more than that
        assert fork.created_at >= made.created_at
        await says.run("Bye", session=chats.session("f"))
        assert texts_of(await chats.history("f")) == ["hi", "hello", "Bye", "Bye to you too"]
        assert await chats.history("s") == tuple(TALK)
        whole = await chats.fork("s")
        assert (await chats.history(whole.id), whole.state) == (tuple(TALK), 5)
        assert (await chats.fork("s", at=0)).messages == 0

    on_chats(body)


def test_what_was_learned_of_its_user_is_not_learned_again_from_a_fork(on_chats: OnChats, open_store: Open) -> None:
    async def body(chats: Sessions) -> None:
        await chats.create("s", user="alice", messages=TALK)
        await chats.create("nobody's", messages=TALK)
        store = open_store()
        for id, scope in (("s", ALICE), ("s", HER_WORK), ("nobody's", FactScope("session", "nobody's"))):
            await store.change_facts(scope, session_id=id, known_upto=3)
        for at, known in ((None, 3), (2, 2)):
            assert await store.known((await chats.fork("s", at=at)).id) == {ALICE: known, HER_WORK: known}
        assert await store.known((await chats.fork("nobody's")).id) == {}  # its facts are its own

    on_chats(body)


def test_a_fork_between_calls_and_results_begins_before_the_answer(on_chats: OnChats) -> None:
    async def body(chats: Sessions) -> None:
        await chats.create("s", messages=TALK)
        fork = await chats.fork("s", at=4)
        assert await chats.history(fork.id) == tuple(TALK[:3])

    on_chats(body)


def test_a_fork_to_where_nothing_can_be_is_refused(on_chats: OnChats) -> None:
    async def body(chats: Sessions) -> None:
        await chats.create("s", messages=TALK)
        with pytest.raises(UsageError, match="there is a session 's'"):
            await chats.fork("s", to="s")
        with pytest.raises(UsageError, match="6 messages, and no 7"):
            await chats.fork("s", at=7)
        assert [found.id for found in await chats.list()] == ["s"]

    on_chats(body)


@pytest.mark.parametrize("keep", ["partial", "rollback"])
def test_a_turn_that_is_under_way_is_neither_forked_nor_exported(
    on_chats: OnChats, open_store: Open, keep: str
) -> None:
    """Half of it would pass for all of it."""

    async def body(chats: Sessions) -> None:
        store = open_store()
        await chats.create("s", messages=TALK[:2])
        turn = await taken(store, a_run(keep=keep))
        await store.write(turn.lease, 2, TALK[2:4], state=7)
        await store.compact(turn.lease, Checkpoint(upto=2, messages=(Message.user("Before."),), run_id="run-1"))
        for at in (None, 2, 3, 4):
            fork = await chats.fork("s", at=at)
            assert await chats.history(fork.id) == tuple(TALK[:2])
            assert (fork.holder, fork.state) == (None, None)
        copy = await chats.import_(await chats.export("s"), id="copy")
        assert (await chats.history("copy"), copy.state) == (tuple(TALK[:2]), None)
        assert len(await chats.history("s", full=True)) == 5  # with a result for the call that still runs

    on_chats(body)


def test_a_fork_keeps_the_compaction_that_it_reaches(on_chats: OnChats, open_store: Open) -> None:
    async def body(chats: Sessions) -> None:
        summary = Message.user("Before: greetings.")
        await open_store().create(Session(id="s"), TALK, Checkpoint(upto=3, messages=(summary,), run_id="r"))
        after, before = await chats.fork("s", at=3), await chats.fork("s", at=2)
        assert await chats.history(after.id) == (summary,)
        assert await chats.history(after.id, full=True) == tuple(TALK[:3])
        assert await chats.history(before.id) == tuple(TALK[:2])

    on_chats(body)


# --- going back ---------------------------------------------------------------------------------------------


@everywhere
def test_a_rewound_session_goes_on_from_there(on_chats: OnChats) -> None:
    async def body(chats: Sessions) -> None:
        await chats.create("s", state={"n": 1}, messages=TALK)
        assert (await chats.rewind("s", 6)).state == {"n": 1}  # nothing was taken back
        rewound = await chats.rewind("s", 4)
        assert (rewound.messages, rewound.state, rewound.holder) == (3, None, None)
        assert await chats.history("s") == tuple(TALK[:3])
        result = await says.run("Bye", session=chats.session("s"))
        assert texts_of(result.messages) == [
            "hi",
            "hello",
            "And the weather?",
            "Bye",
            "Bye to you too",
        ]
        assert (await chats.rewind("s", 0)).messages == 0
        with pytest.raises(UsageError, match="0 messages, and no 1"):
            await chats.rewind("s", 1)
        kinds = [record.kind for record in await chats.runs(session="s")]
        assert kinds == ["rewind", "runnable", "rewind", "rewind"]
        assert {record.status for record in await chats.runs()} == {RunStatus.COMPLETED}

    on_chats(body)


def test_a_session_is_not_rewound_under_a_run(on_chats: OnChats, open_store: Open) -> None:
    async def body(chats: Sessions) -> None:
        await chats.create("s", messages=[HI, HELLO])
        async with a_live_run(chats) as run:
            with pytest.raises(SessionBusy) as caught:
                await chats.rewind("s", 0)
            assert (caught.value.session_id, caught.value.holder) == ("s", run.id)
        ticket = await open_store().queue("s", "waits", "somebody/1", lease_for=LONG, first=False)
        with pytest.raises(SessionBusy, match="others wait"):
            await chats.rewind("s", 0)
        await open_store().leave(ticket)
        assert texts_of(await chats.history("s"))[:3] == ["hi", "hello", "wait"]

    on_chats(body)


class Held:
    """A store in which nothing is cut before it is let go."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self.is_cutting, self.may_cut = asyncio.Event(), asyncio.Event()

    async def cut(self, lease: Lease, to: int) -> None:
        self.is_cutting.set()
        await self.may_cut.wait()
        await self._store.cut(lease, to)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)


def test_a_run_that_waits_goes_on_once_it_was_rewound(open_store: Open) -> None:
    async def main() -> None:
        store = Held(open_store())
        async with Sessions(store) as chats:
            await chats.create("s", messages=[HI, HELLO])
            rewound = asyncio.create_task(chats.rewind("s", 1))
            await store.is_cutting.wait()
            with pytest.raises(SessionBusy):
                await says.run("Bye", session=chats.session("s"))
            run = says.run("Bye", session=chats.session("s"), on_busy="enqueue").start()
            store.may_cut.set()
            result = await run
            assert (await rewound).messages >= 1
            assert texts_of(result.messages) == ["hi", "Bye", "Bye to you too"]

    asyncio.run(main())


def test_whoever_awaits_a_rewind_may_be_cancelled_and_the_session_is_free_again(
    on_chats: OnChats, open_store: Open
) -> None:
    """At any of its steps: it goes on to its end."""

    async def body(chats: Sessions) -> None:
        for steps in range(12):
            id = f"s-{steps}"
            await chats.create(id, messages=TALK)
            task = asyncio.create_task(chats.rewind(id, 2))
            for _ in range(steps):
                await asyncio.sleep(0)
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
            await taken_in_the_end(open_store(), a_run(f"run-{steps}", id))
            assert len(await chats.history(id)) in (2, 6)

    on_chats(body)


def test_a_rewind_first_ends_what_a_lost_process_has_left(on_chats: OnChats, open_store: Open) -> None:
    async def body(chats: Sessions) -> None:
        store = open_store()
        await chats.list()
        turn = await taken(store, a_run("lost", owner=GONE))
        await store.write(turn.lease, 0, [HI, HELLO, WEATHER])
        assert (await chats.rewind("s", 2)).messages == 2
        lost = await chats.run("lost")
        assert lost is not None
        assert lost.status is RunStatus.CANCELLED

    on_chats(body)


# --- deleting -----------------------------------------------------------------------------------------------


class Thing:
    """Something that a session holds in this process."""

    def __init__(self) -> None:
        self.is_closed = False

    async def close(self) -> None:
        await asyncio.sleep(0)
        self.is_closed = True

    def lose(self) -> None:
        self.is_closed = True


@everywhere
def test_a_deleted_session_is_gone_with_its_runs_records_facts_and_what_it_held(
    on_chats: OnChats, open_store: Open
) -> None:
    async def body(chats: Sessions) -> None:
        for id in ("s", "t"):
            await says.run("hello", session=chats.session(id), id=f"run-{id}")
            fact = Fact(id=f"fact-{id}", scope=ALICE, text="likes tea", session_id=id)
            await open_store().change_facts(ALICE, put=[fact])
        thing, other = held(chats.session("s").key, Thing), held(chats.session("t").key, Thing)
        async with a_live_run(chats) as run, a_live_run(chats, "t") as beside:
            waiting = waits.run("never said", session=chats.session("s"), on_busy="enqueue").start()
            assert await chats.delete("s")
            for stopped in (run, waiting):
                assert stopped.outcome is not None
                assert stopped.outcome.cancellation is not None
                assert stopped.outcome.cancellation.reason is CancelReason.ADMIN
            assert not beside.is_done
            assert (thing.is_closed, other.is_closed) == (True, False)
            assert [found.id for found in await chats.list()] == ["t"]
            assert {record.session_id for record in await chats.runs()} == {"t"}
            assert [fact.id for fact in await chats.facts.list("alice")] == ["fact-t"]
        with pytest.raises(SessionNotFound):
            await chats.get("s")

    on_chats(body)


def test_a_session_of_the_same_id_elsewhere_is_another_one(on_chats: OnChats) -> None:
    async def body(chats: Sessions) -> None:
        elsewhere = Sessions()
        await chats.create("s")
        thing = held(elsewhere.session("s").key, Thing)
        async with a_live_run(elsewhere) as run:
            assert await chats.delete("s")
            await chats.end("s")
            assert not run.is_done
            assert not thing.is_closed
        assert (await elsewhere.get("s")).messages > 0

    on_chats(body)


def test_a_session_that_is_busy_is_not_deleted_if_nothing_may_be_stopped(on_chats: OnChats) -> None:
    async def body(chats: Sessions) -> None:
        async with a_live_run(chats) as run:
            with pytest.raises(SessionBusy) as caught:
                await chats.delete("s", stop=False)
            assert caught.value.holder == run.id
        assert await chats.delete("s", stop=False)

    on_chats(body)


def test_a_run_cannot_delete_the_session_that_it_runs_on(on_chats: OnChats) -> None:
    """It would wait for its own end."""

    async def body(chats: Sessions) -> None:
        @runnable
        async def inner(ctx: RunContext, _: str) -> None:
            with pytest.raises(BusyError):
                await chats.delete("s")

        @runnable
        async def outer(ctx: RunContext, _: str) -> None:
            await ctx.start(inner, "x")
            await inner.run("x", session=chats.session("its own"))
            with pytest.raises(BusyError):
                await chats.delete("s")
            assert not await chats.delete("t")

        assert (await outer.run("x", session=chats.session("s"))).is_completed
        assert await chats.delete("s")

    on_chats(body)


def test_what_a_session_holds_can_be_ended_alone(on_chats: OnChats) -> None:
    async def body(chats: Sessions) -> None:
        await chats.create("s", messages=[HI])
        thing = held(chats.session("s").key, Thing)
        await chats.end("s")
        assert thing.is_closed
        assert await chats.history("s") == (HI,)

    on_chats(body)


# --- runs ---------------------------------------------------------------------------------------------------


@everywhere
def test_runs_are_found_by_what_is_asked(on_chats: OnChats) -> None:
    async def body(chats: Sessions) -> None:
        before = time.time()
        await says.run("a", session=chats.session("s"), tags=["x"], id="run-1")
        async with a_live_run(chats, id="t"):
            pass
        assert [record.status for record in await chats.runs()] == [RunStatus.CANCELLED, RunStatus.COMPLETED]
        assert [record.run_id for record in await chats.runs(session="s")] == ["run-1"]
        assert [record.session_id for record in await chats.runs(status="cancelled")] == ["t"]
        assert [record.run_id for record in await chats.runs(tag="x", since=before - 5, until=time.time() + 5)] == [
            "run-1"
        ]
        assert await chats.runs(since=time.time() + 5) == []
        assert [record.run_id for record in await chats.runs(limit=1, offset=1)] == ["run-1"]
        record = await chats.run("run-1")
        assert record is not None
        assert (record.input, record.text) == ("a", "a")

    on_chats(body)


def test_records_that_are_too_old_are_deleted(open_store: Open) -> None:
    async def main() -> None:
        store = open_store()
        now = time.time()
        await store.record(ended(a_run("old", None), ended_at=now - 100))
        await store.record(ended(a_run("new", None), ended_at=now - 20))
        await store.record(a_run("lives", None, started_at=now - 100))
        async with Sessions(store, keep_runs=None) as chats:
            assert await chats.prune() == 0
        async with Sessions(store, keep_runs=60) as chats:
            await chats.prune()
            assert {record.run_id for record in await chats.runs()} == {"new", "lives"}

    asyncio.run(main())


def test_records_hold_no_words_where_none_are_to_be_stored(open_store: Open) -> None:
    async def main() -> None:
        async with Sessions(open_store(), store_content=False) as chats:
            await says.run("a secret", session=chats.session("s"), id="run-1")
            record = await chats.run("run-1")
            assert record is not None
            assert (record.input, record.text, record.status) == ("", "", RunStatus.COMPLETED)

    asyncio.run(main())


# --- what it was given --------------------------------------------------------------------------------------


NO_ID = ["", "x" * 257, 5, None, b"s", "a\0b", "\ud83d"]


@pytest.mark.parametrize("id", NO_ID, ids=["empty", "long", "number", "none", "bytes", "nul", "surrogate"])
def test_what_is_no_id_is_refused_before_anything_happens(id: Any) -> None:
    chats = Sessions()
    with pytest.raises(ConfigurationError, match="the id of a session"):
        chats.session(id)

    async def body() -> None:
        for ask in (chats.get, chats.history, chats.export, chats.fork, chats.delete, chats.end, chats.update):
            with pytest.raises(ConfigurationError):
                await ask(id)
        with pytest.raises(ConfigurationError):
            await chats.rewind(id, 0)
        if id is not None:
            with pytest.raises(ConfigurationError):
                await chats.create(id)

    asyncio.run(body())


@pytest.mark.parametrize(
    "given",
    [
        {"user": ""},
        {"user": 5},
        {"title": None},
        {"tags": "abc"},
        {"tags": [""]},
        {"tags": 5},
        {"metadata": [1]},
        {"metadata": {"k": object()}},
        {"state": object()},
    ],
    ids=lambda given: next(iter(given)),
)
def test_what_cannot_be_stored_is_refused_before_anything_happens(given: dict[str, Any]) -> None:
    async def body() -> None:
        chats = Sessions()
        with pytest.raises(ConfigurationError):
            await chats.create("s", **given)
        assert await chats.list() == []
        await chats.create("s")
        before = await chats.get("s")
        with pytest.raises(ConfigurationError):
            await chats.update("s", title="new", **given) if "title" not in given else await chats.update("s", **given)
        assert await chats.get("s") == before

    asyncio.run(body())


def test_what_refers_to_itself_has_no_form_in_json() -> None:
    loop: list[Any] = []
    loop.append(loop)
    with pytest.raises(ConfigurationError, match="no form in JSON"):
        asyncio.run(Sessions().create("s", state=loop))


@pytest.mark.parametrize("number", [-1, 1.5, "1", True, None], ids=repr)
def test_what_is_no_number_of_messages_is_refused(number: Any) -> None:
    async def body() -> None:
        chats = Sessions()
        await chats.create("s")
        for ask in (chats.rewind("s", number), chats.list(limit=number), chats.runs(offset=number)):
            with pytest.raises(ConfigurationError):
                await ask
        with pytest.raises(ConfigurationError):
            await (chats.fork("s", at=number) if number is not None else chats.search("x", limit=number))

    asyncio.run(body())


@pytest.mark.parametrize(
    "ask",
    [
        lambda chats: chats.list(user=5),
        lambda chats: chats.list(tag=b"x"),
        lambda chats: chats.list(text=5),
        lambda chats: chats.search(None),
        lambda chats: chats.search("x", user=5),
        lambda chats: chats.search("x", session=5),
        lambda chats: chats.runs(session=5),
        lambda chats: chats.runs(status="gone"),
        lambda chats: chats.runs(tag=5),
        lambda chats: chats.runs(since="yesterday"),
        lambda chats: chats.runs(until=-1),
        lambda chats: chats.run(None),
    ],
    ids=range(12),
)
def test_what_cannot_be_looked_for_is_refused(ask: Callable[[Sessions], Coroutine[Any, Any, object]]) -> None:
    with pytest.raises(ConfigurationError):
        asyncio.run(ask(Sessions()))


@pytest.mark.parametrize(
    "where",
    ["", " ", ":memory:", "sqlite:///:memory:", "mysql://host/name", 5, b"chat.db", object, "a\0b", ["memory"]],
    ids=str,
)
def test_where_sessions_cannot_be_kept_is_refused(where: Any) -> None:
    with pytest.raises(ConfigurationError):
        Sessions(where)


@pytest.mark.parametrize(
    "options", [{"store_content": 1.5}, {"keep_runs": -1}, {"patience": -1}, {"patience": None}], ids=str
)
def test_options_that_cannot_be_are_refused(options: dict[str, Any]) -> None:
    with pytest.raises(ConfigurationError):
        Sessions(**options)


def test_what_it_shows_of_itself_is_true_and_holds_no_password() -> None:
    store = MemoryStore()
    assert repr(Sessions()) == repr(Sessions("memory")) == "<Sessions in <MemoryStore, 0 sessions>>"
    assert repr(Sessions(store)) == f"<Sessions in {store!r}>"
    shown = repr(Sessions("postgresql://alice:se%40cret@db.example:5433/chats?password=se%40cret"))
    assert "se%40cret" not in shown
    assert "se@cret" not in shown
    assert "db.example:5433/chats" in shown
    assert repr(Sessions().session("it's")) == '<session "it\'s">'


def test_nothing_is_opened_before_it_is_used(tmp_path: Path) -> None:
    path = tmp_path / "chat.db"

    async def main() -> None:
        async with Sessions(path) as chats:
            assert str(path) in repr(chats)
            with pytest.raises(ConfigurationError):
                await chats.get("")
            chats.session("s")
            assert not path.exists()
            await chats.create("s", messages=[HI])
            assert path.exists()
        async with Sessions(f"sqlite:///{path}") as again:
            assert await again.history("s") == (HI,)

    asyncio.run(main())


def test_it_may_be_closed_and_used_again(on_chats: OnChats) -> None:
    async def body(chats: Sessions) -> None:
        await chats.create("s", messages=[HI])
        await chats.aclose()
        assert await chats.history("s") == (HI,)

    on_chats(body)


def test_in_memory_nothing_is_loaded_that_a_database_needs() -> None:
    code = "import sys; from halter.sessions import Sessions; Sessions(); assert 'sqlalchemy' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)
