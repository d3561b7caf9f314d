"""A row that cannot be read spoils one run, one session or one fact: everything else in the database works on."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa

from halter.cli.main import run_command
from halter.errors import SessionDamaged
from halter.messages import Message, Text, ToolCall, ToolResult
from halter.outcome import Cancellation, CancelReason, RunStatus
from halter.sessions import Sessions
from halter.sessions.port import Query, RunQuery, Taken
from halter.sessions.records import Checkpoint, Session
from halter.sessions.sql import open_sql
from halter.sessions.sql.schema import number_of

from .contract import GONE, HELLO, HERE, HI, Open, a_run, said, taken, with_a_turn

pytestmark = pytest.mark.scenario("K102")

GARBAGE = b'{"run_id": \xff\xfe'
CALL = Message("assistant", (ToolCall("c1", "look", "{}"),))
FOUND = Message("tool", (ToolResult("c1", "rain"),))


@pytest.fixture(params=["sqlite", "postgres"])
def open_store(request: pytest.FixtureRequest) -> Any:
    return request.getfixturevalue(f"{request.param}_store")


Scenario = Callable[[Any], Awaitable[None]]


def run(open_store: Open, scenario: Scenario) -> None:
    async def carried_out() -> None:
        store = open_store()
        try:
            await scenario(store)
        finally:
            await store.aclose()

    asyncio.run(carried_out())


async def damage(store: Any, table: str, where: str, column: str = "data") -> None:
    """Puts bytes into rows that nothing can read."""
    statement = sa.text(f"UPDATE halter_{table} SET {column} = :garbage WHERE {where}")

    def change(connection: sa.Connection) -> None:
        assert connection.execute(statement, {"garbage": GARBAGE}).rowcount > 0

    await store._database.write(change)


async def damage_message(store: Any, session_key: int, position: int) -> None:
    await damage(store, "messages", f"key = {number_of(session_key, position)}")


def test_a_live_record_that_cannot_be_read_is_ended_by_name_and_every_other_session_works(open_store: Open) -> None:
    async def scenario(store: Any) -> None:
        await with_a_turn(store, HI, HELLO, session_id="well")
        lost = await taken(store, a_run("broken", "s", owner=GONE))
        await store.write(lost.lease, 0, [HI, CALL])
        await damage(store, "runs", "run_id = 'broken'")
        chats = Sessions(store)
        assert [message.text for message in await chats.history("well")] == ["hi", "hello"]
        record = await chats.run("broken")
        assert record is not None
        assert (record.status, record.session_id) == (RunStatus.CANCELLED, "s")
        assert record.cancellation is not None
        assert record.cancellation.reason is CancelReason.OWNER_LOST
        assert record.error is not None
        assert record.error.type == "SessionDamaged"
        assert "c1" in str((await chats.history("s"))[-1].parts)  # sealed, as a turn that was lost is
        turn = await taken(store, a_run("next"))
        assert turn.lost == ()

    run(open_store, scenario)


def test_a_live_record_without_a_session_that_cannot_be_read_is_ended(open_store: Open) -> None:
    async def scenario(store: Any) -> None:
        await store.record(a_run("broken", None, owner=GONE))
        await damage(store, "runs", "run_id = 'broken'")
        [ended] = await Sessions(store).recover()
        assert (ended.run_id, ended.status) == ("broken", RunStatus.CANCELLED)
        assert await store.lost() == []

    run(open_store, scenario)


def test_the_records_of_other_runs_are_found_beside_one_that_cannot_be_read(open_store: Open) -> None:
    async def scenario(store: Any) -> None:
        await with_a_turn(store, HI, run_id="run-1")
        await with_a_turn(store, HI, run_id="run-2")
        await damage(store, "runs", "run_id = 'run-1'")
        found = {record.run_id: record for record in await store.runs(RunQuery(session_id="s"))}
        assert found["run-2"].error is None
        assert found["run-1"].status is RunStatus.COMPLETED
        assert found["run-1"].error is not None

    run(open_store, scenario)


def test_a_message_that_cannot_be_read_is_named_with_its_session_and_its_place(open_store: Open) -> None:
    async def scenario(store: Any) -> None:
        await with_a_turn(store, HI, HELLO, session_id="s")
        await with_a_turn(store, HI, HELLO, session_id="well", run_id="run-2")
        await damage_message(store, 1, 1)
        with pytest.raises(SessionDamaged, match=r"session 's'.*message 1.*halter sessions check") as raised:
            await store.load("s")
        assert raised.value.session_id == "s"
        assert not raised.value.retryable
        assert await said(store, "well") == [HI, HELLO]
        assert [hit.session_id for hit in await store.search("hello")] == ["well"]
        assert {session.id for session in await store.find(Query())} == {"s", "well"}
        assert await store.delete("s")

    run(open_store, scenario)


def test_a_lost_run_whose_conversation_cannot_be_read_does_not_keep_others_from_being_recovered(
    open_store: Open,
) -> None:
    async def scenario(store: Any) -> None:
        for name in ("one", "two"):
            turn = await taken(store, a_run(name, name, owner=GONE))
            await store.write(turn.lease, 0, [HI])
        await damage_message(store, 1, 0)
        chats = Sessions(store)
        assert {record.run_id for record in await chats.recover()} == {"one", "two"}
        assert await store.lost() == []
        assert (await chats.history("two"))[0] == HI
        with pytest.raises(SessionDamaged):
            await chats.history("one")

    run(open_store, scenario)


def test_a_compaction_that_cannot_be_read_is_left_out(open_store: Open) -> None:
    async def scenario(store: Any) -> None:
        turn = await taken(store, a_run())
        await store.write(turn.lease, 0, [HI, HELLO])
        await store.compact(turn.lease, Checkpoint(upto=1, messages=(HI,), run_id="run-1"))
        await store.compact(turn.lease, Checkpoint(upto=2, messages=(HI,), run_id="run-1"))
        await damage(store, "checkpoints", "upto = 2")
        found = await store.load("s")
        assert found.checkpoint.upto == 1
        assert found.messages == (HELLO,)

    run(open_store, scenario)


@pytest.mark.parametrize("column", ["metadata", "state"])
def test_a_session_whose_data_cannot_be_read_is_listed_and_refused_by_name(column: str, open_store: Open) -> None:
    async def scenario(store: Any) -> None:
        await store.create(Session(id="s", title="Rome"), [HI])
        await store.create(Session(id="well"), [HI])
        await damage(store, "sessions", "id = 's'", column)
        assert {session.id: session.title for session in await store.find(Query())} == {"s": "Rome", "well": ""}
        for refused in (store.load("s"), store.session("s"), store.snapshot("s"), store.take(a_run(), lease_for=60.0)):
            with pytest.raises(SessionDamaged, match=f"session 's'.*{column}"):
                await refused
        assert await said(store, "well") == [HI]

    run(open_store, scenario)


def test_mail_and_stops_that_cannot_be_read_do_not_keep_others_from_arriving(open_store: Open) -> None:
    async def scenario(store: Any) -> None:
        stop = Cancellation(reason=CancelReason.USER_STOP, at=time.time())
        for name in ("one", "two"):
            await taken(store, a_run(name, name))
            await store.ask_to_stop(name, stop)
        letters = [await store.send("one", [HI]), await store.send("two", [HELLO])]
        await damage(store, "mail", f"key = {letters[0]}")
        await damage(store, "runs", "run_id = 'one'", "stop")
        asked = await store.asked(HERE)
        assert set(asked.stops) == {"one", "two"}
        assert asked.stops["two"] == stop
        assert [mail.messages for mail in asked.mail] == [(HELLO,)]
        assert await store.mail_state(letters[0]) == "returned"

    run(open_store, scenario)


# --- `check` ------------------------------------------------------------------------------------------------


def test_a_check_lists_what_cannot_be_read_and_a_repair_leaves_nothing_to_list(open_store: Open) -> None:
    async def scenario(store: Any) -> None:
        answer = Message("assistant", (Text("It rains."),), finish_reason="stop")
        await with_a_turn(store, HI, CALL, FOUND, answer)
        await with_a_turn(store, HI, HELLO, session_id="well", run_id="run-2")
        await damage_message(store, 1, 0)
        await damage_message(store, 1, 2)
        await damage(store, "runs", "run_id = 'run-1'")
        await damage(store, "sessions", "id = 's'", "metadata")
        chats = Sessions(store)
        found = await chats.check()
        assert [(each.kind, each.session_id, each.is_repaired) for each in found] == [
            ("session", "s", False),
            ("message", "s", False),
            ("message", "s", False),
            ("run", "s", False),
        ]
        assert await chats.check() == found  # looking changes nothing
        assert all(each.is_repaired for each in await chats.check(repair=True))
        assert await chats.check() == []
        [asked, call, result, end] = await chats.history("s")
        assert (asked.role, call, result.role, end) == ("user", CALL, "tool", answer)
        assert [part.call_id for part in result.parts if isinstance(part, ToolResult)] == ["c1"]
        assert "could not be read" in f"{asked.text}{result.parts}"
        assert await said(store, "well") == [HI, HELLO]

    run(open_store, scenario)


def test_a_check_finds_messages_that_are_missing(open_store: Open) -> None:
    async def scenario(store: Any) -> None:
        await with_a_turn(store, HI, HELLO, HI)
        gone = sa.text(f"DELETE FROM halter_messages WHERE key = {number_of(1, 1)}")

        def delete(connection: sa.Connection) -> None:
            connection.execute(gone)

        await store._database.write(delete)
        chats = Sessions(store)
        [damage] = await chats.check(repair=True)
        assert (damage.kind, damage.id, damage.is_repaired) == ("message", "s/1", True)
        assert [message.role for message in await chats.history("s")] == ["user", "assistant", "user"]
        assert await chats.check() == []

    run(open_store, scenario)


@pytest.mark.parametrize("place", ["sqlite", "postgres"])
def test_the_command_lists_what_cannot_be_read_and_repairs_it(
    place: str, request: pytest.FixtureRequest, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    where = str(tmp_path / "a.db") if place == "sqlite" else request.getfixturevalue("postgres_url")

    async def scenario(store: Any) -> None:
        await with_a_turn(store, HI, HELLO)
        await damage_message(store, 1, 1)
        await damage(store, "sessions", "id = 's'", "known")

    run(lambda: open_sql(where), scenario)
    assert run_command(["sessions", "check", where]) == 1
    said = capsys.readouterr().out
    assert "session s: " in said
    assert "message s/1: it is no Message" in said
    assert "2 rows cannot be read" in said
    assert run_command(["sessions", "check", where, "--repair"]) == 0
    assert capsys.readouterr().out.count("repaired: ") == 2
    assert run_command(["sessions", "check", where]) == 0
    assert "every row can be read" in capsys.readouterr().out


def test_a_check_of_sessions_in_memory_finds_nothing() -> None:
    assert asyncio.run(Sessions().check()) == []


@pytest.mark.parametrize(
    ("column", "value"),
    [
        ("user_id", b"\xff\xfe"),
        ("title", b"\xff\xfe"),
        ("tags", b"\xff\xfe"),
        ("holder", b"\xff\xfe"),
        ("messages", b"\xff\xfe"),
        ("messages", "many"),
        ("messages", 2**62),
        ("messages", -5),
        ("state", b"[" * 100_000),
        ("metadata", b"[" * 100_000),
        ("generation", "many"),
        ("generation", b"\xff\xfe"),
        ("expires_at", "soon"),
        ("expires_at", b"\xff\xfe"),
        ("created_at", "long ago"),
        ("updated_at", b"\xff\xfe"),
    ],
    ids=str,
)
def test_whatever_a_column_of_a_session_holds_others_are_found_and_it_is_repaired(
    column: str, value: Any, sqlite_store: Open
) -> None:
    """SQLite keeps values of any type in any column, and JSON may be too deep to be read."""

    async def scenario(store: Any) -> None:
        await with_a_turn(store, HI, HELLO, session_id="well")
        await with_a_turn(store, HI, HELLO, session_id="broken")
        statement = sa.text(f"UPDATE halter_sessions SET {column} = :value WHERE id = 'broken'")
        await store._database.write(lambda connection: connection.execute(statement, {"value": value}) and None)
        chats = Sessions(store)
        assert {session.id for session in await chats.list()} == {"well", "broken"}
        assert {hit.session_id for hit in await chats.search("hello")} == {"well", "broken"}
        if column in ("messages", "state", "metadata", "created_at", "updated_at"):
            with pytest.raises(SessionDamaged):
                await chats.get("broken")
        if column == "generation":
            with pytest.raises(SessionDamaged, match=r"the number of its turns.*halter sessions check"):
                await store.take(a_run("next", "broken"), lease_for=60.0)
        assert [record.run_id for record in await store.lost()] == []
        assert [(found.kind, found.id) for found in await chats.check(repair=True)] == [("session", "broken")]
        assert await chats.check() == []
        assert isinstance(await store.take(a_run("after", "broken"), lease_for=60.0), Taken)
        assert [message.text for message in await chats.history("broken")] == ["hi", "hello"]
        assert await chats.delete("broken")

    run(sqlite_store, scenario)


@pytest.mark.parametrize("column", ["generation", "expires_at"])
def test_a_damaged_turn_of_one_session_does_not_keep_lost_runs_of_others_from_being_found(
    column: str, sqlite_store: Open
) -> None:
    async def scenario(store: Any) -> None:
        for name in ("broken", "well"):
            await taken(store, a_run(name, name, owner=GONE))
        statement = sa.text(f"UPDATE halter_sessions SET {column} = 'x' WHERE id = 'broken'")
        await store._database.write(lambda connection: connection.execute(statement) and None)
        assert {record.run_id for record in await store.lost()} == {"broken", "well"}
        assert {record.run_id for record in await Sessions(store).recover()} == {"broken", "well"}
        assert await store.lost() == []

    run(sqlite_store, scenario)


@pytest.mark.parametrize(
    "value",
    [
        "CAST(X'6EFF6F' AS TEXT)",  # text that is not UTF-8: SQLite's driver refuses it
        "X'FFFE'",
        r"'not \x ours'",
    ],
)
def test_a_session_whose_id_cannot_be_read_is_listed_and_repaired_to_what_is_shown(
    value: str, sqlite_store: Open
) -> None:
    async def scenario(store: Any) -> None:
        chats = Sessions(store)
        for name in ("well", "broken"):
            await chats.create(name, user="ann", messages="hello")
        statement = sa.text(f"UPDATE halter_sessions SET id = {value} WHERE id = 'broken'")
        await store._database.write(lambda connection: connection.execute(statement) and None)
        [shown] = {session.id for session in await chats.list()} - {"well"}
        whole = await chats.export_user("ann")
        assert [each["session"]["id"] for each in whole["sessions"]] == ["well"]
        assert [each["id"] for each in whole["damaged"]] == [shown]
        assert "stored id" in whole["damaged"][0]["why"]
        assert [(found.kind, found.id) for found in await chats.check(repair=True)] == [("session", shown)]
        assert await chats.check() == []
        assert [message.text for message in await chats.history(shown)] == ["hello"]
        assert await chats.delete_user("ann") == 2

    run(sqlite_store, scenario)


def test_a_session_that_cannot_be_read_is_named_in_its_users_export_and_the_rest_is_there(open_store: Open) -> None:
    async def scenario(store: Any) -> None:
        chats = Sessions(store)
        for name in ("one", "two", "three"):
            await chats.create(name, user="ann", messages="hello")
        await chats.facts.add("ann", "Likes tea.")
        await damage(store, "sessions", "id = 'two'", "metadata")
        whole = await chats.export_user("ann")
        assert {each["session"]["id"] for each in whole["sessions"]} == {"one", "three"}
        assert [fact["text"] for fact in whole["facts"]] == ["Likes tea."]
        [lacking] = whole["damaged"]
        assert lacking["id"] == "two"
        assert "halter sessions check" in lacking["why"]

    run(open_store, scenario)


@pytest.mark.parametrize("column", ["started_at", "ended_at"])
def test_a_run_whose_times_cannot_be_read_is_found_by_a_check_and_repaired(column: str, sqlite_store: Open) -> None:
    async def scenario(store: Any) -> None:
        await with_a_turn(store, HI, HELLO)
        statement = sa.text(f"UPDATE halter_runs SET {column} = 'x'")
        await store._database.write(lambda connection: connection.execute(statement) and None)
        chats = Sessions(store)
        before = await chats.run("run-1")
        assert [(found.kind, found.id) for found in await chats.check(repair=True)] == [("run", "run-1")]
        assert await chats.check() == []
        assert await chats.run("run-1") == before

    run(sqlite_store, scenario)
