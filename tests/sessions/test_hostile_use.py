"""What went wrong when somebody who trusts nothing used sessions: each a sentence, so that it stays mended."""

from __future__ import annotations

import asyncio
import gc
import json
import sqlite3
import threading
import time
import weakref
from contextlib import closing
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from halter import Agent, Message, RunContext, RunStatus, configure, runnable
from halter.core.history import LOST
from halter.errors import BusyError, ConfigurationError, SessionNotFound, SessionsUnavailable
from halter.messages import Text, ToolCall
from halter.models import Scripted
from halter.sessions import RunRecord, Sessions, leases, repair
from halter.sessions.memory import MemoryStore
from halter.sessions.repair import recover
from halter.sessions.sql import open_sql

from .contract import GONE, HELLO, HERE, HI, WEATHER, Open, a_run, ended, loaded, taken, with_a_turn
from .places import memory_store as memory_store
from .places import open_store as open_store
from .talks import WORDS, asked, results, speaking, stored, talker, until
from .talks import chats as chats
from .troubled import Troubled

pytestmark = pytest.mark.real_loop
ELSEWHERE = "another-machine.1.1/1"  # nobody can say that it is dead
ASKED = Message("assistant", (Text("Let me see."), ToolCall("c1", "look", "{}")))


@runnable
async def waits(ctx: RunContext) -> None:
    await asyncio.Event().wait()


@runnable
async def is_given(ctx: RunContext, given: Any) -> str:
    return "ok"


# --- titles and records -------------------------------------------------------------------------------------


async def test_a_title_that_is_given_during_the_first_turn_stays(chats: Sessions) -> None:
    run = await speaking(talker().run("Hello there!", session=chats.session("s")))
    await chats.update("s", title="Greetings")
    await run
    assert (await chats.get("s")).title == "Greetings"


async def test_an_input_without_a_form_in_json_runs_on_a_session_as_anywhere() -> None:
    chats = Sessions()
    in_itself: list[Any] = []
    in_itself.append(in_itself)
    for given, shown in ((in_itself, "[[...]]"), ({"a": "\ud800"}, r"{'a': '\ud800'}")):
        run = is_given.run(given, session=chats.session("s"))
        assert (await run).output == "ok"
        record = await chats.run(run.id)
        assert record is not None
        assert record.input == shown


async def test_a_page_may_be_larger_than_any_number_of_a_database(chats: Sessions) -> None:
    await chats.create("s", messages="hi")
    assert [session.id for session in await chats.list(limit=2**70)] == ["s"]
    assert len(await chats.search("hi", limit=2**70)) == 1
    assert await chats.runs(limit=2**70, offset=2**70) == []


async def test_a_number_of_seconds_that_no_float_can_be_is_refused(chats: Sessions) -> None:
    endless = 10**400
    for wrong in (
        lambda: Sessions(keep_runs=endless),
        lambda: Sessions(patience=endless),
        lambda: configure(grace=endless),
        lambda: talker().run("hi", timeout=endless),
    ):
        with pytest.raises(ConfigurationError, match="seconds"):
            wrong()
    with pytest.raises(ConfigurationError, match="since"):
        await chats.runs(since=endless)


async def test_numbers_that_json_lacks_are_stored_as_they_are(chats: Sessions) -> None:
    numbers = {"best": float("-inf"), "worst": float("inf"), "none": None, "half": "\ud800"}
    made = await chats.create("s", metadata=numbers, state=numbers)
    assert (made.metadata, made.state) == (numbers, numbers)
    assert (await chats.update("s", state=[float("inf")])).state == [float("inf")]
    copy = await chats.import_(json.dumps(await chats.export("s")), id="copy")
    assert (copy.metadata, copy.state) == (numbers, [float("inf")])


async def test_sessions_that_were_closed_leave_nothing_on_their_event_loop(open_store: Open) -> None:
    chats = Sessions(open_store())
    await talker("yes", pace=0).run("hi", session=chats.session("s"))
    place = weakref.ref(chats._place)
    await chats.aclose()
    del chats
    await until(lambda: (gc.collect(), place() is None)[1])


async def test_sessions_that_are_closed_while_they_are_used_can_be_closed_again(chats: Sessions) -> None:
    before = set(threading.enumerate())  # of other tests
    await chats.create("s")
    uses = [asyncio.create_task(chats.update("s", title=f"{number}")) for number in range(10)]
    for _ in uses:
        await chats.aclose()
    await asyncio.gather(*uses)
    await chats.aclose()
    await until(lambda: not [thread for thread in set(threading.enumerate()) - before if "sql" in thread.name])


# --- ids ----------------------------------------------------------------------------------------------------


@pytest.mark.scenario("D44")
@pytest.mark.parametrize("keep", ["partial", "rollback"])
async def test_a_lost_run_that_is_repeated_under_its_own_id_is_ended_first(keep: str, open_store: Open) -> None:
    store = open_store()
    chats = Sessions(store)
    await chats.list()  # what was lost before the first use was brought to an end then
    await with_a_turn(store, HI, HELLO)
    turn = await taken(store, a_run("job", owner=GONE, keep=keep))
    await store.write(turn.lease, 2, [WEATHER, ASKED])
    await talker("yes", pace=0).run("Once more", session=chats.session("s"), id="job")
    said = await stored(chats)
    assert asked(said) == ["hi", *([WEATHER.text] if keep == "partial" else []), "Once more"]
    assert results(said) == ([LOST] if keep == "partial" else [])
    record = await chats.run("job")
    assert record is not None
    assert (record.status, record.base) == (RunStatus.COMPLETED, 5 if keep == "partial" else 2)
    await chats.aclose()


@pytest.mark.parametrize("on_session", [True, False])
async def test_an_id_that_is_live_in_another_process_is_refused(on_session: bool) -> None:
    store: Any = Troubled()
    chats = Sessions(store)
    await taken(store, a_run("job", session_id="theirs", owner=ELSEWHERE))
    session = chats.session("ours") if on_session else chats.record()
    run = talker("yes", pace=0).run("hi", session=session, id="job")
    result = await run.finished()
    assert isinstance(result.error, BusyError)
    assert "another process" in str(result.error)
    record = await chats.run("job")
    assert record is not None
    assert (record.session_id, record.status) == ("theirs", RunStatus.RUNNING)


async def test_an_id_of_a_lost_run_on_another_session_is_free_once_that_was_ended() -> None:
    store: Any = Troubled()
    chats = Sessions(store)
    await chats.list()
    turn = await taken(store, a_run("job", session_id="theirs", owner=GONE))
    await store.write(turn.lease, 0, [WEATHER, ASKED])
    await talker("yes", pace=0).run("hi", session=chats.session("ours"), id="job")
    assert results(await stored(chats, "theirs")) == [LOST]
    assert asked(await stored(chats, "ours")) == ["hi"]


@pytest.mark.parametrize("on_busy", ["interrupt", "steer"])
async def test_a_run_that_only_has_the_holders_id_is_left_alone(on_busy: Any) -> None:
    store: Any = Troubled()
    chats = Sessions(store)
    await taken(store, a_run("job", owner=ELSEWHERE))
    async with waits.run(id="job") as unrelated:
        unrelated.start()
        result = await talker().run("hi", session=chats.session("s"), on_busy=on_busy, timeout=0.1).finished()
        assert result.is_cancelled
        assert not unrelated.is_cancelling
        assert not unrelated.is_done
        assert unrelated.send("for it")  # nothing else was sent to it: it would come back with this
    assert unrelated.outcome is not None
    assert [message.text for message in unrelated.outcome.undelivered] == ["for it"]


async def test_what_was_sent_to_another_process_stands_in_no_mail_afterwards(tmp_path: Path) -> None:
    store = open_sql(tmp_path / "s.db")
    chats = Sessions(store)
    await chats.list()
    record = a_run("theirs", owner=ELSEWHERE)
    turn = await taken(store, record)
    read = await store.send("theirs", [HELLO])
    await store.asked(ELSEWHERE)
    await store.sort_mail(taken=[read])
    run = talker("yes", pace=0).run("hi", session=chats.session("s"), on_busy="steer").start()
    async for event in run:
        if event.type == "custom":
            break
    await store.close(turn.lease, ended(record), 0, [])
    await run
    with closing(sqlite3.connect(tmp_path / "s.db")) as database:
        assert database.execute("SELECT state, data FROM halter_mail").fetchall() == [("taken", b""), ("returned", b"")]
    await chats.aclose()


# --- what a lost process has left ---------------------------------------------------------------------------


@pytest.mark.scenario("D43")
async def test_forks_and_exports_of_a_lost_turn_are_what_the_history_shows(open_store: Open) -> None:
    store = open_store()
    chats = Sessions(store)
    await chats.list()
    for id, keep in (("rolled", "rollback"), ("sealed", "partial")):
        await chats.create(id, messages=[HI, HELLO])
        turn = await taken(store, a_run(f"lost-{id}", session_id=id, owner=GONE, keep=keep))
        await store.write(turn.lease, 2, [WEATHER, ASKED])
        shown = await chats.history(id, full=True)
        assert len(shown) == (2 if keep == "rollback" else 5)
        fork = await chats.fork(id, at=len(shown))
        copy = await chats.import_(await chats.export(id), id=f"copy of {id}")
        for made in (fork, copy):
            assert made.messages == len(shown)
            assert await chats.history(made.id, full=True) == shown
        assert (await chats.rewind(id, len(shown))).messages == len(shown)
    await chats.aclose()


async def test_of_several_lost_turns_all_are_shown_as_they_will_be_ended(open_store: Open) -> None:
    """Whoever took the second one died before it had repaired the first."""
    store = open_store()
    chats = Sessions(store)
    await chats.list()
    await with_a_turn(store, HI, HELLO)
    turn = await taken(store, a_run("first", owner=GONE, keep="rollback"))
    await store.write(turn.lease, 2, [WEATHER, ASKED])
    await taken(store, a_run("second", owner=GONE))
    assert await chats.history("s") == (HI, HELLO)
    assert await chats.history("s", full=True) == (HI, HELLO)
    await chats.recover()
    assert await stored(chats) == (HI, HELLO)
    await chats.aclose()


async def test_of_several_lost_turns_the_last_is_ended_first_in_whatever_order_they_are_found() -> None:
    """Else what the first was sealed with is rolled back with the second."""

    class Backwards(MemoryStore):
        async def lost(self) -> list[RunRecord]:
            return (await super().lost())[::-1]

    store = Backwards()
    chats = Sessions(store)
    turn = await taken(store, a_run("first", owner=GONE))
    await store.write(turn.lease, 0, [WEATHER, ASKED])
    await taken(store, a_run("second", owner=GONE, keep="rollback"))
    await chats.recover()
    assert results(await stored(chats)) == [LOST]


@pytest.mark.parametrize("step", ["take", "load", "write", "close"])
async def test_what_is_deleted_while_it_is_recovered_stays_deleted_and_others_are_recovered(step: str) -> None:
    store: Any = Troubled()
    chats = Sessions(store)
    await chats.list()
    for id in ("deleted", "kept"):
        turn = await taken(store, a_run(f"lost-{id}", session_id=id, owner=GONE, input="a secret"))
        await store.write(turn.lease, 0, [WEATHER, ASKED])
    store.troubles[step] = lambda: store.inner.delete("deleted")
    assert [record.session_id for record in await chats.recover()] == ["kept"]
    assert [session.id for session in await chats.list()] == ["kept"]
    assert [record.session_id for record in await chats.runs()] == ["kept"]


@pytest.mark.parametrize("step", ["take", "cut", "close"])
async def test_what_is_deleted_while_it_is_rewound_is_not_found_and_stays_deleted(step: str) -> None:
    store: Any = Troubled()
    chats = Sessions(store)
    await chats.create("s", messages=[HI, HELLO])
    store.troubles[step] = lambda: store.inner.delete("s")
    with pytest.raises(SessionNotFound):
        await chats.rewind("s", 0)
    assert await chats.list() == []
    assert await chats.runs() == []


async def test_a_session_whose_holder_was_lost_is_deleted_though_no_run_may_be_stopped() -> None:
    chats = Sessions(store := MemoryStore())
    await taken(store, a_run("lost", owner=GONE))
    assert await chats.delete("s", stop=False)


# --- between processes --------------------------------------------------------------------------------------


async def test_what_steers_and_is_stopped_while_it_is_sent_is_taken_back() -> None:
    arrived, may_go = asyncio.Event(), asyncio.Event()

    async def slowly() -> None:
        arrived.set()
        await may_go.wait()

    store: Any = Troubled(send=slowly)
    chats = Sessions(store)
    await taken(store, a_run("theirs", owner=ELSEWHERE))
    run = talker().run("hi", session=chats.session("s"), on_busy="steer").start()
    await arrived.wait()
    run.cancel()
    assert (await run.finished()).is_cancelled
    may_go.set()
    await until(lambda: "sort_mail" in store.done)
    assert await store.mail_state(1) == "returned"


async def test_those_who_wait_for_a_database_with_many_connections_keep_their_order(chats: Sessions) -> None:
    run = await speaking(talker("one two three four five six").run("first", session=chats.session("s")))
    agent = talker("yes", pace=0)
    waiting = [agent.run(f"number {n}", session=chats.session("s"), on_busy="enqueue").start() for n in range(8)]
    for each in (run, *waiting):
        await each
    assert asked(await stored(chats)) == ["first", *(f"number {n}" for n in range(8))]


async def test_turns_are_looked_after_whatever_fails_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Else all turns of the process would run out, and nobody could stop its runs."""
    monkeypatch.setattr("halter.sessions.leases.LOOKED_EVERY", 0.01)
    failed: list[str] = []

    async def once() -> None:
        if not failed:
            failed.append("asked")
            raise RuntimeError("a driver's own error")

    store: Any = Troubled(asked=once)
    chats = Sessions(store)
    run = await speaking(talker().run("hi", session=chats.session("s")))
    await until(lambda: "asked" in store.done)
    assert failed
    await run.aclose()


@pytest.mark.parametrize("seconds", [3600.0, -3600.0])
async def test_turns_are_renewed_when_the_clock_has_jumped(seconds: float, monkeypatch: pytest.MonkeyPatch) -> None:
    """As when a machine wakes up: leases run out by clocks that went on, and the next run would take them."""
    monkeypatch.setattr("halter.sessions.leases.LOOKED_EVERY", 0.01)
    off = [0.0]
    monkeypatch.setattr("halter.sessions.leases.time", SimpleNamespace(monotonic=lambda: 0.0))
    monkeypatch.setattr("halter.sessions.leases.boot_clock", SimpleNamespace(now=lambda: off[0]))
    store: Any = Troubled()
    run = await speaking(talker().run("hi", session=Sessions(store).session("s")))
    await asyncio.sleep(0.05)
    assert "renew" not in store.done
    off[0] = seconds
    await until(lambda: "renew" in store.done)
    assert (await run).is_completed
    assert store.done.count("renew") == 1


# --- places -------------------------------------------------------------------------------------------------


async def test_a_turn_is_renewed_for_as_long_as_it_lasts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(leases, "RENEWED_EVERY", 0.0)
    monkeypatch.setattr(leases, "LOOKED_EVERY", 0.01)
    store: Any = Troubled()
    run = await speaking(talker(WORDS * 30).run("hi", session=Sessions(store).session("s")))
    for _ in range(2):
        turn = store.inner._sessions["s"].turn
        turn.until = 0.0  # by now it would have run out
        await until(lambda turn=turn: turn.until > time.monotonic() + 0.5 * leases.LEASE)
    run.cancel()
    assert (await run.finished()).error is None


async def test_what_others_have_ended_meanwhile_is_left_as_it_is() -> None:
    """Between the look at what was lost and the turn that it takes to end it."""
    store, lost = MemoryStore(), a_run("lost", owner=GONE)
    first = await taken(store, lost)
    await store.write(first.lease, 0, [HI, ASKED])
    by_others = ended(lost, RunStatus.CANCELLED, text="by others")

    async def others() -> None:
        turn = await taken(store, a_run("other"))
        await store.record(by_others)
        await store.close(turn.lease, ended(a_run("other")), 2, [WEATHER])

    troubled: Any = Troubled(take=others)
    troubled.inner = store
    assert await recover(troubled, HERE) == []
    assert await store.run("lost") == by_others
    assert (await loaded(store)).messages == (HI, ASKED, WEATHER)
    assert (await loaded(store)).session.holder is None


async def test_who_finds_a_lost_turn_also_ends_what_its_process_has_left_running(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Whenever that is: at its own first use of sessions it may have lived."""
    looked: list[bool] = []
    monkeypatch.setattr(repair, "look_again", lambda: looked.append(True))
    store = MemoryStore()
    await taken(store, a_run("lost", owner=GONE))
    await talker("yes", pace=0).run("hi", session=Sessions(store).session("s"))
    assert looked == [True]


async def test_after_a_file_was_removed_the_next_use_begins_a_new_one(tmp_path: Path) -> None:
    path = tmp_path / "a.db"
    chats = Sessions(path)
    await chats.create("old")
    for end in ("", "-wal", "-shm"):
        path.with_name(path.name + end).unlink()
    with pytest.raises(SessionsUnavailable, match="removed or replaced"):
        await chats.create("lost")
    await chats.create("new")
    assert [session.id for session in await chats.list()] == ["new"]
    await chats.aclose()


@pytest.mark.parametrize(
    "where",
    ["postgresql:me:secret@host/chats", "host=db.example password=secret dbname=chats", "PASSWORD = secret host=x"],
)
def test_no_file_is_named_after_a_password(where: str) -> None:
    with pytest.raises(ConfigurationError, match=r"postgresql://user:password@host/name") as raised:
        open_sql(where)
    assert "secret" not in str(raised.value)


async def test_a_parameter_that_no_server_knows_is_said_at_once() -> None:
    chats = Sessions("postgresql://me:secret@127.0.0.1:1/chats?sslmode=bogus")
    with pytest.raises(ConfigurationError, match=r"its URL is wrong: .*sslmode") as raised:
        await chats.list()
    assert "secret" not in str(raised.value)
    await chats.aclose()


async def test_a_store_of_ones_own_that_is_in_memory_needs_no_other_process() -> None:
    chats = Sessions(MemoryStore())
    agent = Agent(Scripted("yes"))
    for _ in range(2):
        assert (await agent.run("hi", session=chats.session("s"), id="job")).text == "yes"


async def test_an_end_that_is_not_stored_in_time_is_told_where_nobody_waits(caplog: pytest.LogCaptureFixture) -> None:
    may_go = asyncio.Event()
    store: Any = Troubled(close=may_go.wait)
    run = talker().run("hi", session=Sessions(store).session("s"), grace=0.01)
    async with await speaking(run):
        pass
    assert isinstance(run.outcome and run.outcome.error, SessionsUnavailable)
    assert f"the end of run {run.id} was not stored within 1 s" in caplog.text
    may_go.set()
    await until(lambda: "close" in store.done)
