"""What every place where sessions are kept must do: `halter.sessions.port.Store`, a sentence a function.

`Open`: each call gives a `Store` on one and the same place, as another process would have one; an empty place for each
function. `CONTRACT` has them all.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from dataclasses import replace
from functools import wraps
from typing import Any, TypeAlias, get_args

import msgspec
import pytest

from halter.core.owner import Owner
from halter.errors import SessionNotFound, TurnLost
from halter.messages import File, Image, Message, Opaque, Reasoning, Refusal, Text, ToolCall, ToolResult, Usage
from halter.outcome import Cancellation, CancelMode, CancelReason, CancelReceipt, Ended, ReceiptLine, RunStatus
from halter.sessions.port import Busy, Conversation, Lease, Query, RunQuery, Store, Taken, Which
from halter.sessions.records import Checkpoint, Fact, FactScope, LateResult, RunRecord, ScopeKind, Session

Open: TypeAlias = Callable[[], Store]
Check: TypeAlias = Callable[[Open], Awaitable[None]]

CONTRACT: list[Check] = []

# Event loops of this process that no other test has: one whose loop is closed is retired for good.
HERE = f"{Owner.here()}/here"
BESIDE = f"{Owner.here()}/beside"
GONE = f"{replace(Owner.here(), started=Owner.here().started + 1)}/1"  # the number lives, and is another process

LONG = 60.0  # seconds: nobody's lease runs out while a test lasts
BRIEF = 0.02
PATIENCE = 10.0

ANN, BOB = FactScope("user", "ann"), FactScope("user", "bob")

HI, HELLO = Message.user("hi"), Message.assistant("hello")
WEATHER, SUNNY = Message.user("And the weather?"), Message.assistant("It is sunny.")

HUNDRED = [Message.user(f"number {number}") for number in range(100)]

AWKWARD_IDS = [
    'it\'s "quoted"',
    "100% _of_ them",
    "../a/b\\c",
    "𝓪𝓵𝓲𝓬𝓮 🙂",
    " ",
    "x" * 256,
    "'; DROP TABLE sessions; --",
    ":name ?1 $1 {x} %s",
]


def part_of_the_contract(check: Check) -> Check:
    CONTRACT.append(check)
    return check


def on_a_loop(test: Callable[..., Awaitable[None]]) -> Callable[..., None]:
    """An async test on a loop of its own, in real time."""

    @wraps(test)
    def run(*args: Any, **given: Any) -> None:
        async def scenario() -> None:
            await test(*args, **given)

        asyncio.run(scenario())

    return run


# --- what the functions are made of -------------------------------------------------------------------------


def a_run(run_id: str = "run-1", session_id: str | None = "s", owner: str = HERE, **more: Any) -> RunRecord:
    return RunRecord(**{"run_id": run_id, "session_id": session_id, "owner": owner, "started_at": time.time(), **more})


def ended(record: RunRecord, status: RunStatus = RunStatus.COMPLETED, **more: Any) -> RunRecord:
    return msgspec.structs.replace(record, **{"status": status, "ended_at": time.time(), **more})


async def taken(store: Store, record: RunRecord, lease_for: float = LONG, ticket: int | None = None) -> Taken:
    """The turn, which must be free."""
    got = await store.take(record, lease_for=lease_for, ticket=ticket)
    assert isinstance(got, Taken), got
    return got


async def taken_in_the_end(store: Store, record: RunRecord, ticket: int | None = None) -> Taken:
    """The turn, once somebody's lease has run out."""
    until = time.monotonic() + PATIENCE
    while time.monotonic() < until:
        got = await store.take(record, lease_for=LONG, ticket=ticket)
        if isinstance(got, Taken):
            return got
        await asyncio.sleep(BRIEF)
    raise AssertionError("it was never free")


async def refused(store: Store, record: RunRecord, ticket: int | None = None) -> Busy:
    got = await store.take(record, lease_for=LONG, ticket=ticket)
    assert isinstance(got, Busy), got
    return got


async def said(store: Store, session_id: str = "s", *, full: bool = False) -> list[Message]:
    return list((await loaded(store, session_id, full=full)).messages)


async def loaded(store: Store, session_id: str = "s", *, full: bool = False) -> Conversation:
    conversation = await store.load(session_id, full=full)
    assert conversation is not None
    return conversation


async def with_a_turn(store: Store, *messages: Message, run_id: str = "run-1", session_id: str = "s") -> None:
    """Somebody says this, in a whole turn."""
    turn = await taken(store, a_run(run_id, session_id))
    record = await store.run(run_id)
    assert record is not None
    await store.close(turn.lease, ended(record), turn.conversation.session.messages, messages)


# --- turns --------------------------------------------------------------------------------------------------


@part_of_the_contract
async def a_turn_makes_the_session_if_there_is_none(open: Open) -> None:
    store = open()
    before = time.time()
    turn = await taken(store, a_run())
    assert turn.lease.session_id == "s"
    assert turn.lease.run_id == "run-1"
    assert turn.lost == ()
    session = turn.conversation.session
    assert (session.id, session.messages, session.holder, session.state) == ("s", 0, "run-1", None)
    assert turn.conversation.messages == ()
    assert turn.conversation.checkpoint is None
    assert before - 5 < session.created_at < time.time() + 5


@part_of_the_contract
async def a_turn_enters_the_record_with_the_number_of_messages_before_it(open: Open) -> None:
    store = open()
    await with_a_turn(store, HI, HELLO)
    record = a_run("run-2", name="clerk", tags=("day", "night"), input="And the weather?", model="a:b")
    await taken(store, record)
    assert await store.run("run-2") == msgspec.structs.replace(record, base=2)


@part_of_the_contract
async def a_session_has_one_holder_at_a_time(open: Open) -> None:
    store, other = open(), open()
    await taken(store, a_run("run-1"))
    assert (await refused(other, a_run("run-2", owner=BESIDE))).holder == "run-1"
    assert (await refused(store, a_run("run-3"))).holder == "run-1"
    assert (await loaded(other)).session.holder == "run-1"
    assert await store.run("run-2") is None


@part_of_the_contract
async def other_sessions_are_free_meanwhile(open: Open) -> None:
    store = open()
    await taken(store, a_run("run-1", "s"))
    await taken(store, a_run("run-2", "t"))


@part_of_the_contract
async def of_many_at_once_one_gets_the_turn(open: Open) -> None:
    stores = [open(), open()]
    got = await asyncio.gather(
        *(stores[number % 2].take(a_run(f"run-{number}"), lease_for=LONG) for number in range(20))
    )
    winners = [each.lease.run_id for each in got if isinstance(each, Taken)]
    assert len(winners) == 1
    assert (await loaded(stores[0])).session.holder == winners[0]
    assert [record.run_id for record in await stores[1].runs(RunQuery())] == winners


@part_of_the_contract
async def a_closed_turn_leaves_the_session_free(open: Open) -> None:
    store, other = open(), open()
    record = a_run()
    turn = await taken(store, record)
    await store.close(turn.lease, ended(record), 0, [HI, HELLO])
    assert (await loaded(other)).session.holder is None
    following = await taken(other, a_run("run-2", owner=BESIDE))
    assert list(following.conversation.messages) == [HI, HELLO]
    assert following.lost == ()
    assert following.lease.generation > turn.lease.generation


@part_of_the_contract
async def a_closed_turn_can_do_nothing_more(open: Open) -> None:
    store = open()
    record = a_run()
    turn = await taken(store, record)
    await store.close(turn.lease, ended(record), 0, [HI])
    await nothing_can_be_done_with(store, turn.lease, record)
    assert await said(store) == [HI]


async def nothing_can_be_done_with(store: Store, lease: Lease, record: RunRecord) -> None:
    before, run = await loaded(store, lease.session_id, full=True), await store.run(record.run_id)
    with pytest.raises(TurnLost):
        await store.write(lease, 0, [SUNNY], state={"mine": True})
    with pytest.raises(TurnLost):
        await store.compact(lease, Checkpoint(upto=0, messages=(SUNNY,), run_id=record.run_id))
    with pytest.raises(TurnLost):
        await store.cut(lease, 0)
    with pytest.raises(TurnLost):
        await store.close(lease, ended(record, RunStatus.FAILED, text="too late"), 0, [SUNNY], state=1)
    assert await loaded(store, lease.session_id, full=True) == before
    assert await store.run(record.run_id) == run


@part_of_the_contract
async def a_lease_that_has_run_out_is_taken_over_and_lost_for_good(open: Open) -> None:
    store, other = open(), open()
    first = a_run("run-1")
    old = await taken(store, first, lease_for=BRIEF)
    await store.write(old.lease, 0, [HI])
    new = await taken_in_the_end(other, a_run("run-2", owner=BESIDE))
    assert list(new.conversation.messages) == [HI]
    assert new.lease.generation > old.lease.generation
    await nothing_can_be_done_with(store, old.lease, first)
    await store.renew(HERE, lease_for=LONG)
    await nothing_can_be_done_with(store, old.lease, first)
    await other.write(new.lease, 1, [HELLO])
    assert await said(store) == [HI, HELLO]


@part_of_the_contract
async def the_same_run_taking_its_session_again_has_a_new_lease(open: Open) -> None:
    """Its generation alone tells the two apart."""
    store = open()
    record = a_run()
    old = await taken(store, record, lease_for=BRIEF)
    new = await taken_in_the_end(store, record)
    assert new.lost == ()
    with pytest.raises(TurnLost):
        await store.write(old.lease, 0, [HI])
    await store.write(new.lease, 0, [HELLO])
    assert await said(store) == [HELLO]


@part_of_the_contract
async def a_lease_that_has_run_out_is_good_until_somebody_takes_over(open: Open) -> None:
    store = open()
    record = a_run()
    turn = await taken(store, record, lease_for=BRIEF)
    await asyncio.sleep(BRIEF * 2)
    await store.write(turn.lease, 0, [HI])
    await store.close(turn.lease, ended(record), 1, [HELLO])
    assert await said(store) == [HI, HELLO]


@part_of_the_contract
async def a_lease_that_is_renewed_is_kept(open: Open) -> None:
    store = open()
    for number in range(3):
        await taken(store, a_run(f"run-{number}", f"s-{number}"), lease_for=BRIEF)
    await taken(store, a_run("beside", "t", owner=BESIDE), lease_for=BRIEF)
    await store.renew(HERE, lease_for=LONG)
    await taken_in_the_end(store, a_run("other", "t"))
    for number in range(3):
        assert (await refused(store, a_run("other", f"s-{number}"))).holder == f"run-{number}"


@part_of_the_contract
async def the_turn_of_a_dead_owner_is_free_at_once(open: Open) -> None:
    """However long its lease would last."""
    store = open()
    record = a_run("run-1", owner=GONE)
    old = await taken(store, record)
    await store.write(old.lease, 0, [HI])
    new = await taken(store, a_run("run-2"))
    assert [lost.run_id for lost in new.lost] == ["run-1"]
    await nothing_can_be_done_with(store, old.lease, record)


@part_of_the_contract
async def who_takes_over_is_told_of_the_run_that_was_lost(open: Open) -> None:
    store, other = open(), open()
    record = a_run("run-1", keep="rollback", input="hi")
    await taken(store, record, lease_for=BRIEF)
    await taken(store, a_run("run-t", "t", owner=GONE))  # which is not its business
    new = await taken_in_the_end(other, a_run("run-2", owner=BESIDE))
    assert new.lost == (record,)


@part_of_the_contract
async def lost_runs_are_handed_on_until_somebody_has_written_how_they_ended(open: Open) -> None:
    store = open()
    for number in (1, 2):
        record = a_run(f"run-{number}", owner=GONE)
        await taken(store, record)
    third = a_run("run-3")
    turn = await taken(store, third)
    assert {lost.run_id for lost in turn.lost} == {"run-1", "run-2"}
    for lost in turn.lost:
        await store.record(ended(lost, RunStatus.CANCELLED))
    await store.close(turn.lease, ended(third), 0, [])
    assert (await taken(store, a_run("run-4"))).lost == ()


@part_of_the_contract
async def a_lost_run_that_is_taken_once_more_keeps_what_was_before_it(open: Open) -> None:
    """Whoever does that to end it may be killed on the way as well, and the next one must find where it began."""
    store = open()
    await with_a_turn(store, HI, HELLO)
    first = await taken(store, a_run("run-2", owner=GONE))
    await store.write(first.lease, 2, [HI])
    for _ in range(2):
        again = await taken(store, a_run("run-2", owner=GONE))
        assert again.before is not None
        assert again.before.base == 2
    (lost,) = await store.lost()
    assert lost.base == 2
    await store.close(again.lease, ended(lost), 3, [])
    await taken(store, a_run("run-2", owner=GONE))
    assert (await store.lost())[0].base == 3, "it is another one of the same name"


@part_of_the_contract
async def lost_runs_are_found_without_a_turn(open: Open) -> None:
    store = open()
    await taken(store, a_run("dead", "s", owner=GONE))
    await taken(store, a_run("late", "t"), lease_for=BRIEF)
    await taken(store, a_run("alive", "u"))
    await store.record(ended(a_run("over", None, owner=GONE)))
    await store.record(a_run("dead-without", None, owner=GONE))
    await store.record(a_run("alive-without", None))
    await asyncio.sleep(BRIEF * 2)
    assert {lost.run_id for lost in await store.lost()} == {"dead", "late", "dead-without"}


@part_of_the_contract
async def what_another_run_on_the_session_left_without_a_turn_is_lost_only_with_its_owner(open: Open) -> None:
    """Work in the background has a record, and no turn."""
    store = open()
    await store.record(a_run("learning", "s"))
    await store.record(a_run("forgotten", "s", owner=GONE))
    assert [lost.run_id for lost in (await taken(store, a_run("run-1", "s"))).lost] == ["forgotten"]


# --- waiting for a turn -------------------------------------------------------------------------------------


@part_of_the_contract
async def those_who_wait_come_in_their_order(open: Open) -> None:
    stores = [open(), open()]
    holder = a_run("run-0")
    turn = await taken(stores[0], holder)
    tickets = [
        await stores[number % 2].queue("s", f"run-{number}", (HERE, BESIDE)[number % 2], lease_for=LONG, first=False)
        for number in range(1, 4)
    ]
    assert len(set(tickets)) == 3
    await refused(stores[1], a_run("run-1", owner=BESIDE), tickets[0])
    await stores[0].close(turn.lease, ended(holder), 0, [HI])
    for number, ticket in enumerate(tickets, 1):
        store = stores[number % 2]
        owner = (HERE, BESIDE)[number % 2]
        for later in range(number, 3):
            await refused(store, a_run(f"run-{later + 1}", owner=owner), tickets[later])
        record = a_run(f"run-{number}", owner=owner)
        got = await taken(store, record, ticket=ticket)
        await store.close(got.lease, ended(record), number, [Message.user(f"{number}")])
    assert [message.text for message in await said(stores[0])] == ["hi", "1", "2", "3"]


@part_of_the_contract
async def who_has_no_ticket_waits_for_all_who_have(open: Open) -> None:
    store = open()
    await with_a_turn(store, HI)
    ticket = await store.queue("s", "run-2", HERE, lease_for=LONG, first=False)
    assert (await refused(store, a_run("run-3"))).holder is None
    await taken(store, a_run("run-2"), ticket=ticket)


@part_of_the_contract
async def a_ticket_is_good_for_one_turn(open: Open) -> None:
    store = open()
    await with_a_turn(store, HI)
    ticket = await store.queue("s", "run-2", HERE, lease_for=LONG, first=False)
    second = a_run("run-2")
    turn = await taken(store, second, ticket=ticket)
    await store.close(turn.lease, ended(second), 1, [])
    await taken(store, a_run("run-3"))


@part_of_the_contract
async def who_comes_first_is_before_those_who_wait(open: Open) -> None:
    store = open()
    holder = a_run("run-0")
    turn = await taken(store, holder)
    waits = await store.queue("s", "waits", HERE, lease_for=LONG, first=False)
    first = await store.queue("s", "first", HERE, lease_for=LONG, first=True)
    second = await store.queue("s", "second", HERE, lease_for=LONG, first=True)
    await store.close(turn.lease, ended(holder), 0, [])
    for run_id, ticket, others in (
        ("first", first, (second, waits)),
        ("second", second, (waits,)),
        ("waits", waits, ()),
    ):
        for other in others:
            await refused(store, a_run("not yet"), other)
        record = a_run(run_id)
        got = await taken(store, record, ticket=ticket)
        await store.close(got.lease, ended(record), 0, [])


@part_of_the_contract
async def who_leaves_holds_up_nobody(open: Open) -> None:
    store = open()
    await with_a_turn(store, HI)
    first = await store.queue("s", "run-2", HERE, lease_for=LONG, first=False)
    second = await store.queue("s", "run-3", HERE, lease_for=LONG, first=False)
    await store.leave(first)
    await store.leave(first)
    await taken(store, a_run("run-3"), ticket=second)


@part_of_the_contract
async def a_place_in_the_queue_of_a_dead_owner_counts_for_nothing(open: Open) -> None:
    store = open()
    await with_a_turn(store, HI)
    await store.queue("s", "run-2", GONE, lease_for=LONG, first=True)
    ticket = await store.queue("s", "run-3", HERE, lease_for=LONG, first=False)
    await taken(store, a_run("run-3"), ticket=ticket)


@part_of_the_contract
async def a_place_in_the_queue_that_was_not_renewed_counts_for_nothing(open: Open) -> None:
    store = open()
    await with_a_turn(store, HI)
    await store.queue("s", "run-2", HERE, lease_for=BRIEF, first=False)
    kept = await store.queue("s", "run-3", BESIDE, lease_for=BRIEF, first=False)
    await store.renew(BESIDE, lease_for=LONG)
    await taken_in_the_end(store, a_run("run-3", owner=BESIDE), ticket=kept)


@part_of_the_contract
async def a_place_in_the_queue_that_is_renewed_is_kept(open: Open) -> None:
    store = open()
    await with_a_turn(store, HI)
    await store.queue("s", "run-2", HERE, lease_for=BRIEF, first=False)
    await store.renew(HERE, lease_for=LONG)
    await asyncio.sleep(BRIEF * 2)
    await refused(store, a_run("run-3"))


@part_of_the_contract
async def queues_of_other_sessions_do_not_matter(open: Open) -> None:
    store = open()
    await with_a_turn(store, HI, session_id="t")
    await store.queue("t", "run-2", HERE, lease_for=LONG, first=True)
    await taken(store, a_run("run-3", "s"))


# --- writing ------------------------------------------------------------------------------------------------


@part_of_the_contract
async def what_is_written_is_there_for_others_before_the_turn_ends(open: Open) -> None:
    store, other = open(), open()
    turn = await taken(store, a_run())
    await store.write(turn.lease, 0, [HI])
    await store.write(turn.lease, 1, [HELLO, WEATHER])
    conversation = await loaded(other)
    assert list(conversation.messages) == [HI, HELLO, WEATHER]
    assert conversation.session.messages == 3


@part_of_the_contract
async def from_its_position_on_the_conversation_is_what_was_written(open: Open) -> None:
    store = open()
    turn = await taken(store, a_run())
    await store.write(turn.lease, 0, HUNDRED)
    await store.write(turn.lease, 2, [SUNNY])
    assert await said(store) == [*HUNDRED[:2], SUNNY]
    assert (await loaded(store)).session.messages == 3
    await store.write(turn.lease, 1, [])
    assert await said(store) == HUNDRED[:1]
    await store.write(turn.lease, 0, [])
    assert await said(store) == []


@part_of_the_contract
async def writing_twice_is_writing_once(open: Open) -> None:
    store = open()
    turn = await taken(store, a_run())
    for _ in range(2):
        await store.write(turn.lease, 0, [HI, HELLO])
    for _ in range(2):
        await store.write(turn.lease, 2, [WEATHER])
    assert await said(store) == [HI, HELLO, WEATHER]


@part_of_the_contract
async def a_write_touches_no_other_session(open: Open) -> None:
    store = open()
    await with_a_turn(store, HI, HELLO, run_id="run-t", session_id="t")
    turn = await taken(store, a_run())
    await store.write(turn.lease, 0, [SUNNY])
    await store.write(turn.lease, 0, [])
    assert await said(store, "t") == [HI, HELLO]


@part_of_the_contract
async def the_state_is_the_last_that_was_given(open: Open) -> None:
    store = open()
    record = a_run()
    turn = await taken(store, record)
    state = {"step": [1, 2.5, None, True], "deep": {"ä": "🙂"}}
    await store.write(turn.lease, 0, [HI], state=state)
    await store.write(turn.lease, 1, [HELLO])
    assert (await loaded(store)).session.state == state
    await store.close(turn.lease, ended(record), 2, [], state=["new"])
    following = await taken(store, a_run("run-2"))
    assert following.conversation.session.state == ["new"]
    await store.write(following.lease, 2, [], state=None)
    assert (await loaded(store)).session.state is None


@part_of_the_contract
async def a_write_makes_its_session_the_newest(open: Open) -> None:
    store = open()
    old = time.time() - 1000
    await store.create(Session(id="s", created_at=old, updated_at=old))
    await store.create(Session(id="t", created_at=old + 1, updated_at=old + 1))
    assert [session.id for session in await store.find(Query())] == ["t", "s"]
    turn = await taken(store, a_run())
    await store.write(turn.lease, 0, [HI])
    found = await store.find(Query())
    assert [session.id for session in found] == ["s", "t"]
    assert found[0].created_at == pytest.approx(old)
    assert found[0].updated_at > old + 500


@part_of_the_contract
async def every_message_comes_back_as_it_was(open: Open) -> None:
    store = open()
    messages = awkward_messages()
    turn = await taken(store, a_run())
    await store.write(turn.lease, 0, messages)
    back = await said(store)
    assert len(back) == len(messages)
    for given, got in zip(messages, back, strict=True):
        assert got == given


def awkward_messages() -> list[Message]:
    """Whatever a provider or a tool may come up with."""
    text = "NUL \0, lone surrogates \ud83d and \udc00, \u2028, 🙂, ﷽, a\r\nb\t\x7f\x1b[0m, \ufeff\uffff"
    return [
        Message.system(text),
        Message("developer", (Text("be brief"),)),
        Message.user(
            text, Image(data=b"\x89PNG\0\xff\xfe"), File(data=bytes(range(256)), name=f"{text}.pdf"), name="ä"
        ),
        Message.user(
            Image(url="https://a.example/b.png", detail="low"), File(id="file-1"), File(url="https://a.example/c")
        ),
        Message(
            "assistant",
            (
                Reasoning(text),
                Text(text),
                Refusal(text),
                ToolCall(f"id {text}", "look", '{"a": "\\ud83d \\u0000", "b": [1e999, -0.0]}'),
                ToolCall("same", "look", "{not json"),
                ToolCall("same", "look", ""),
                Opaque("anthropic", {"signature": "Ab+/=", "deep": [{"n": 1.5, "none": None, "t": text}]}),
                Opaque("gemini", "text alone"),
            ),
            interrupted=True,
            finish_reason="tool_calls",
            usage=Usage(input=1, output=2, cached=3, reasoning=4, estimated=True),
        ),
        Message(
            "tool", (ToolResult(f"id {text}", text), ToolResult("same", "", is_error=True), ToolResult("same", "x"))
        ),
        Message("assistant", (), interrupted=True),
        Message.assistant("x" * 1_000_000),
        Message.assistant("🙂\0\ud83d" * 10_000),
    ]


@part_of_the_contract
async def long_conversations_are_whole_and_in_order(open: Open) -> None:
    store = open()
    messages = [Message.user(f"number {number}") for number in range(3000)]
    turn = await taken(store, a_run())
    await store.write(turn.lease, 0, messages)
    assert await said(store) == messages
    await store.write(turn.lease, 1500, messages[:1])
    assert await said(store) == [*messages[:1500], messages[0]]


# --- compactions --------------------------------------------------------------------------------------------


SUMMARY = (Message.user("Before: the first half."),)


@part_of_the_contract
async def a_compaction_stands_for_the_beginning_and_keeps_it(open: Open) -> None:
    store = open()
    record = a_run()
    turn = await taken(store, record)
    await store.write(turn.lease, 0, HUNDRED[:10])
    checkpoint = Checkpoint(upto=6, messages=SUMMARY, run_id="run-1")
    await store.compact(turn.lease, checkpoint)
    await store.write(turn.lease, 10, [SUNNY])
    conversation = await loaded(store)
    assert conversation.checkpoint == checkpoint
    assert list(conversation.messages) == [*HUNDRED[6:10], SUNNY]
    assert conversation.session.messages == 11
    full = await loaded(store, full=True)
    assert list(full.messages) == [*HUNDRED[:10], SUNNY]
    assert full.checkpoint == checkpoint
    await store.close(turn.lease, ended(record), 11, [])
    following = await taken(store, a_run("run-2"))
    assert following.conversation.checkpoint == checkpoint
    assert list(following.conversation.messages) == [*HUNDRED[6:10], SUNNY]


@part_of_the_contract
async def the_newest_compaction_counts(open: Open) -> None:
    """Newest, and not the one that reaches furthest."""
    store = open()
    turn = await taken(store, a_run())
    await store.write(turn.lease, 0, HUNDRED[:10])
    for upto in (6, 9, 8):
        newest = Checkpoint(upto=upto, messages=(Message.user(f"up to {upto}"),), run_id="run-1")
        await store.compact(turn.lease, newest)
        assert (await loaded(store)).checkpoint == newest
    assert await said(store) == HUNDRED[8:10]


@part_of_the_contract
async def compactions_of_a_run_that_is_taken_back_are_forgotten(open: Open) -> None:
    store = open()
    first = a_run("run-1")
    turn = await taken(store, first)
    await store.write(turn.lease, 0, HUNDRED[:10])
    kept = Checkpoint(upto=4, messages=SUMMARY, run_id="run-1")
    await store.compact(turn.lease, kept)
    await store.close(turn.lease, ended(first), 10, [])
    second = a_run("run-2")
    turn = await taken(store, second)
    await store.write(turn.lease, 10, [SUNNY])
    await store.compact(turn.lease, Checkpoint(upto=8, messages=SUMMARY, run_id="run-2"))
    await store.compact(turn.lease, Checkpoint(upto=11, messages=SUMMARY, run_id="run-2"))
    await store.close(turn.lease, ended(second, RunStatus.CANCELLED), 10, [], forget_compactions=True)
    conversation = await loaded(store)
    assert conversation.checkpoint == kept
    assert list(conversation.messages) == HUNDRED[4:10]


@part_of_the_contract
async def who_takes_a_turn_learns_of_the_record_that_it_replaces(open: Open) -> None:
    store = open()
    turn = await taken(store, a_run())
    # Its own, if the answer was lost on the way and it was asked again.
    assert turn.before is None or not turn.before.status.is_final
    final = msgspec.structs.replace(a_run(), status=RunStatus.COMPLETED, ended_at=1.0)
    await store.close(turn.lease, final, 0, ())
    again = await taken(store, a_run())
    assert again.before is not None
    assert again.before == final or not again.before.status.is_final


async def what_is_cut_off_is_gone_with_the_compactions_that_reach_further(open: Open) -> None:
    store = open()
    turn = await taken(store, a_run())
    await store.write(turn.lease, 0, HUNDRED[:10])
    early = Checkpoint(upto=4, messages=SUMMARY, run_id="run-1")
    await store.compact(turn.lease, early)
    await store.compact(turn.lease, Checkpoint(upto=8, messages=SUMMARY, run_id="run-1"))
    await store.change_facts(ANN, session_id="s", known_upto=10)
    await store.change_facts(BOB, session_id="s", known_upto=3)
    await store.cut(turn.lease, 6)
    conversation = await loaded(store)
    assert conversation.checkpoint == early
    assert list(conversation.messages) == HUNDRED[4:6]
    assert conversation.session.messages == 6
    assert await said(store, full=True) == HUNDRED[:6]
    assert await store.known("s") == {ANN: 6, BOB: 3}
    assert await store.search("number 7") == []
    await store.cut(turn.lease, 4)
    assert (await loaded(store)).checkpoint == early
    await store.cut(turn.lease, 3)
    assert (await loaded(store)).checkpoint is None
    assert await said(store) == HUNDRED[:3]
    await store.compact(turn.lease, Checkpoint(upto=1, messages=SUMMARY, run_id="run-0"))
    await store.compact(turn.lease, Checkpoint(upto=2, messages=SUMMARY, run_id="run-1"))
    await store.cut(turn.lease, 3, of_run="run-1")
    after = await loaded(store)
    assert (after.checkpoint, after.session.messages) == (Checkpoint(upto=1, messages=SUMMARY, run_id="run-0"), 3)


# --- the end of a turn --------------------------------------------------------------------------------------


@part_of_the_contract
async def a_turn_is_closed_with_all_that_belongs_to_it(open: Open) -> None:
    store = open()
    record = a_run(keep="rollback", input="hi", tags=("a", "b"), kind="agent", name="clerk", model="a:b", base=0)
    turn = await taken(store, record)
    await store.write(turn.lease, 0, [HI, SUNNY])
    last = ended(
        record,
        RunStatus.CANCELLED,
        text="NUL \0 and \ud83d",
        usage=Usage(input=1, output=2, estimated=True),
        cost=0.000_123,
        cancellation=Cancellation(reason=CancelReason.TIMEOUT, mode=CancelMode.KILL, actor="a", message="b", at=1.5),
        receipt=CancelReceipt(
            requested_at=1.5,
            stopped_after_ms=2.5,
            confirmed=False,
            resources=(
                ReceiptLine(kind="task", label="x", run_id="run-1", ended=Ended.ABANDONED, ended_after_ms=None),
            ),
        ),
    )
    await store.close(turn.lease, last, 1, [HELLO])
    assert await store.run("run-1") == last
    assert await said(store) == [HI, HELLO]


# --- between processes --------------------------------------------------------------------------------------


STOP = Cancellation(reason=CancelReason.SUPERSEDED, mode=CancelMode.DRAIN_TOOLS, actor="b", message="new", at=2.5)


@part_of_the_contract
async def a_stop_reaches_the_owner_of_the_run_once(open: Open) -> None:
    store, other = open(), open()
    await taken(store, a_run("run-1"))
    await other.ask_to_stop("run-1", STOP)
    assert (await other.asked(BESIDE)).stops == {}
    assert dict((await store.asked(HERE)).stops) == {"run-1": STOP}
    assert (await store.asked(HERE)).stops == {}


@part_of_the_contract
async def a_stop_reaches_the_owner_of_a_run_that_waits_once(open: Open) -> None:
    store, other = open(), open()
    await taken(store, a_run("run-1"))
    ticket = await store.queue("s", "waits", HERE, lease_for=LONG, first=False)
    assert await other.waits("waits")
    assert await other.ask_to_stop("waits", STOP)
    assert (await other.asked(BESIDE)).stops == {}
    assert dict((await store.asked(HERE)).stops) == {"waits": STOP}
    assert (await store.asked(HERE)).stops == {}
    await store.leave(ticket)
    assert not await other.waits("waits")
    assert not await other.ask_to_stop("waits", STOP)


@part_of_the_contract
async def a_stop_of_a_run_that_waits_finds_it_when_it_has_its_turn(open: Open) -> None:
    """It has got it before anybody looked."""
    store, other = open(), open()
    turn = await taken(store, a_run("run-1"))
    ticket = await store.queue("s", "waits", HERE, lease_for=LONG, first=False)
    assert await other.ask_to_stop("waits", STOP)
    await store.close(turn.lease, ended(a_run("run-1")), 0, ())
    assert isinstance(await store.take(a_run("waits"), lease_for=LONG, ticket=ticket), Taken)
    assert dict((await store.asked(HERE)).stops) == {"waits": STOP}


@part_of_the_contract
async def a_stop_that_nobody_has_heard_is_not_that_of_the_next_run_of_its_id(open: Open) -> None:
    """A job that is repeated under its own id."""
    store = open()
    await taken(store, a_run("run-1"))
    ticket = await store.queue("s", "waits", HERE, lease_for=LONG, first=False)
    assert await store.ask_to_stop("waits", STOP)
    await store.leave(ticket)
    await store.queue("s", "waits", HERE, lease_for=LONG, first=False)
    await store.record(a_run("alone", None))
    assert await store.ask_to_stop("alone", STOP)
    await store.record(ended(a_run("alone", None)))
    await store.record(a_run("alone", None))
    assert (await store.asked(HERE)).stops == {}


@part_of_the_contract
async def a_stop_for_nobody_does_no_harm(open: Open) -> None:
    store = open()
    await store.ask_to_stop("nobody", STOP)
    record = ended(a_run("over", None))
    await store.record(record)
    await store.ask_to_stop("over", STOP)
    assert (await store.asked(HERE)).stops == {}


@part_of_the_contract
async def mail_reaches_the_owner_of_the_run_once(open: Open) -> None:
    store, other = open(), open()
    await taken(store, a_run("run-1"))
    await taken(store, a_run("run-2", "t", owner=BESIDE))
    ids = [await other.send("run-1", [HI, awkward_messages()[2]]), await other.send("run-1", [WEATHER])]
    await other.send("run-2", [HELLO])
    mail = (await store.asked(HERE)).mail
    assert [(each.id, each.run_id) for each in mail] == [(ids[0], "run-1"), (ids[1], "run-1")]
    assert [list(each.messages) for each in mail] == [[HI, awkward_messages()[2]], [WEATHER]]
    assert (await store.asked(HERE)).mail == ()


@part_of_the_contract
async def mail_waits_until_it_is_taken_or_returned(open: Open) -> None:
    store, other = open(), open()
    await taken(store, a_run("run-1"))
    first, second, third = [await other.send("run-1", [HI]) for _ in range(3)]
    await store.asked(HERE)
    assert await other.mail_state(first) == "waiting"
    await store.sort_mail(taken=[first], returned=[second])
    assert [await other.mail_state(id) for id in (first, second, third)] == ["taken", "returned", "waiting"]


@part_of_the_contract
async def mail_that_a_run_has_not_taken_by_its_end_is_returned(open: Open) -> None:
    store = open()
    record = a_run("run-1")
    turn = await taken(store, record)
    seen, unseen = await store.send("run-1", [HI]), await store.send("run-1", [WEATHER])
    await store.asked(HERE)
    await store.sort_mail(taken=[seen])
    await store.close(turn.lease, ended(record), 0, [HI])
    assert [await store.mail_state(id) for id in (seen, unseen)] == ["taken", "returned"]
    late = await store.send("run-1", [HELLO])
    assert await store.mail_state(late) == "returned"
    assert (await store.asked(HERE)).mail == ()


@part_of_the_contract
async def mail_for_a_lost_run_is_returned_once_it_was_closed(open: Open) -> None:
    store = open()
    record = a_run("run-1", owner=GONE)
    await taken(store, record)
    letter = await store.send("run-1", [HI])
    await store.record(ended(record, RunStatus.CANCELLED))
    assert await store.mail_state(letter) == "returned"


@part_of_the_contract
async def mail_for_nobody_is_returned(open: Open) -> None:
    store = open()
    assert await store.mail_state(await store.send("nobody", [HI])) == "returned"


# --- run records --------------------------------------------------------------------------------------------


@part_of_the_contract
async def a_record_is_entered_and_replaced(open: Open) -> None:
    store = open()
    record = a_run("run-1", None, name="clerk", input="\0 \ud83d 🙂")
    assert await store.run("run-1") is None
    await store.record(record)
    assert await store.run("run-1") == record
    await store.record(ended(record, RunStatus.FAILED, text="half"))
    found = await store.run("run-1")
    assert found is not None
    assert (found.status, found.text, found.input) == (RunStatus.FAILED, "half", record.input)
    assert len(await store.runs(RunQuery())) == 1


@part_of_the_contract
async def records_are_found_by_what_is_asked_newest_first(open: Open) -> None:
    store = open()
    await store.record(a_run("a", "s", started_at=100.0, tags=("x", "y")))
    await store.record(ended(a_run("b", "s", started_at=200.0, tags=("it's",))))
    await store.record(ended(a_run("c", "t", started_at=300.0, tags=("y",)), RunStatus.CANCELLED))
    await store.record(ended(a_run("d", None, started_at=400.0, tags=("%",))))

    async def found(**query: Any) -> str:
        return "".join(record.run_id for record in await store.runs(RunQuery(**query)))

    assert await found() == "dcba"
    assert await found(session_id="s") == "ba"
    assert await found(session_id="S") == ""
    assert await found(status="completed") == "db"
    assert await found(status="running") == "a"
    assert await found(tags=("y",)) == "ca"
    assert await found(tags=("y", "x")) == "a"
    assert await found(tags=("it's",)) == "b"
    assert await found(tags=("%",)) == "d"
    assert await found(tags=("",)) == ""
    assert await found(before=(300.0, "c")) == "ba"
    assert await found(before=(300.0, "cc")) == "cba"
    assert await found(before=(300.0, "")) == "ba"
    assert await found(since=150.0) == "dcb"
    assert await found(until=250.0) == "ba"
    assert await found(since=150.0, until=350.0, status="completed") == "b"
    assert await found(limit=2) == "dc"
    assert await found(limit=2, offset=1) == "cb"
    assert await found(offset=9) == ""


@part_of_the_contract
async def late_results_are_added_to_the_record(open: Open) -> None:
    store = open()
    record = ended(a_run("run-1", None))
    await store.record(record)
    late = [LateResult(call_id=id, name="pay", outcome="ok", result="\0 paid", elapsed=1.5) for id in ("c1", "c2")]
    for each in late:
        await store.add_late("run-1", each)
    assert await store.run("run-1") == msgspec.structs.replace(record, late=tuple(late))
    await store.add_late("nobody", late[0])
    assert await store.run("nobody") is None


@part_of_the_contract
async def late_results_that_come_at_once_are_all_kept(open: Open) -> None:
    stores = [open(), open()]
    await stores[0].record(ended(a_run("run-1", None)))
    ids = [f"c{number}" for number in range(10)]
    await asyncio.gather(
        *(
            stores[number % 2].add_late("run-1", LateResult(call_id=id, name="x", outcome="ok", result="", elapsed=0.0))
            for number, id in enumerate(ids)
        )
    )
    found = await stores[0].run("run-1")
    assert found is not None
    assert sorted(late.call_id for late in found.late) == ids


@part_of_the_contract
async def old_records_are_forgotten_once_they_are_over(open: Open) -> None:
    store = open()
    await store.record(ended(a_run("old", None, started_at=1.0), ended_at=100.0))
    await store.record(ended(a_run("new", None, started_at=1.0), ended_at=300.0))
    await store.record(a_run("lives", None, started_at=1.0))
    assert await store.forget_runs(200.0) == 1
    assert {record.run_id for record in await store.runs(RunQuery())} == {"new", "lives"}
    assert await store.forget_runs(200.0) == 0


# --- sessions -----------------------------------------------------------------------------------------------


@part_of_the_contract
async def a_session_is_made_with_all_that_is_given(open: Open) -> None:
    store = open()
    session = Session(
        id="s",
        user="alice",
        title="It's 100 % \0 🙂",
        tags=("a", "b's"),
        metadata={"k": [1, None, {"ä": "\0"}]},
        state={"step": 3},
        created_at=100.5,
        updated_at=200.5,
    )
    checkpoint = Checkpoint(upto=1, messages=SUMMARY, run_id="run-0")
    assert await store.create(session, [HI, HELLO], checkpoint)
    conversation = await loaded(store)
    assert conversation.session == msgspec.structs.replace(session, messages=2)
    assert list(conversation.messages) == [HELLO]
    assert conversation.checkpoint == checkpoint
    assert await said(store, full=True) == [HI, HELLO]


@part_of_the_contract
async def what_was_given_and_what_was_got_is_nobody_elses(open: Open) -> None:
    """Data that is changed afterwards changes nothing that is stored."""
    store = open()
    metadata, state = {"k": [1]}, {"steps": [1]}
    await store.create(Session(id="s", metadata=metadata, state=state))
    for given in (metadata["k"], state["steps"]):
        given.append(2)
    session = (await loaded(store)).session
    assert (session.metadata, session.state) == ({"k": [1]}, {"steps": [1]})
    session.metadata["k"].append(3)
    session.state["steps"].append(3)
    turn = await taken(store, a_run())
    assert turn.conversation.session.metadata == {"k": [1]}
    assert turn.conversation.session.state == {"steps": [1]}
    await store.write(turn.lease, 0, [HI], state=state)
    state["steps"].append(4)
    assert (await loaded(store)).session.state == {"steps": [1, 2]}


@part_of_the_contract
async def a_session_that_is_there_is_not_made_again(open: Open) -> None:
    stores = [open(), open()]
    assert await stores[0].create(Session(id="s", title="first"), [HI])
    assert not await stores[1].create(Session(id="s", title="second"), [HELLO, WEATHER])
    conversation = await loaded(stores[1])
    assert conversation.session.title == "first"
    assert list(conversation.messages) == [HI]
    made = await asyncio.gather(*(stores[number % 2].create(Session(id="t")) for number in range(10)))
    assert sum(made) == 1


@part_of_the_contract
async def a_session_is_the_same_with_and_without_its_messages(open: Open) -> None:
    stores = [open(), open()]
    await stores[0].create(Session(id="s", user="u", title="a title", tags=("t",), metadata={"k": 1}), [HI])
    await stores[0].create(Session(id="other"))
    turn = await taken(stores[0], a_run())
    for at in range(1, 4):
        await stores[0].write(turn.lease, at, [HELLO], state={"at": at})
        alone = await stores[1].session("s")
        assert alone == (await loaded(stores[0])).session
        assert alone is not None
        assert (alone.messages, alone.state, alone.holder) == (at + 1, {"at": at}, "run-1")


@part_of_the_contract
async def what_is_not_there_is_not_found(open: Open) -> None:
    store = open()
    assert await store.session("s") is None
    assert await store.load("s") is None
    assert await store.load("s", full=True) is None
    assert await store.update("s", {"title": "x"}) is None
    assert not await store.delete("s")
    assert await store.run("r") is None
    assert await store.find(Query()) == []
    assert await store.runs(RunQuery()) == []
    assert await store.lost() == []
    assert await store.facts(ANN) == []
    assert await store.known("s") == {}


@part_of_the_contract
async def only_a_session_without_a_title_is_given_one(open: Open) -> None:
    store = open()
    await store.entitle("s", "nobody")
    assert await store.load("s") is None
    await store.create(Session(id="s"))
    for title in ("first", "second"):
        await store.entitle("s", title)
        [found] = await store.find(Query(text="first"))
        assert found.title == "first"


@part_of_the_contract
async def a_session_is_changed_in_what_is_given(open: Open) -> None:
    store = open()
    await store.create(Session(id="s", user="alice", title="old", tags=("a",), metadata={"k": 1}, state=1), [HI])
    changed = await store.update("s", {"title": "new", "tags": ("b", "c")})
    assert changed is not None
    assert (changed.user, changed.title, changed.tags, changed.metadata) == ("alice", "new", ("b", "c"), {"k": 1})
    assert (changed.state, changed.messages) == (1, 1)
    changed = await store.update("s", {"user": None, "metadata": {"z": "\0"}, "state": None})
    assert changed is not None
    assert (changed.user, changed.title, changed.metadata, changed.state) == (None, "new", {"z": "\0"}, None)
    assert (await loaded(store)).session == changed
    assert await said(store) == [HI]


@part_of_the_contract
async def a_session_can_be_changed_while_a_run_has_its_turn(open: Open) -> None:
    store, other = open(), open()
    turn = await taken(store, a_run())
    changed = await other.update("s", {"title": "new"})
    assert changed is not None
    assert changed.holder == "run-1"
    await store.write(turn.lease, 0, [HI], state=5)
    session = (await loaded(other)).session
    assert (session.title, session.state) == ("new", 5)


@part_of_the_contract
async def sessions_are_found_by_what_is_asked_newest_first(open: Open) -> None:
    store = open()
    for number, (user, tags, title, text) in enumerate(
        (
            ("alice", ("x",), "Rome in May", "The colosseum is old."),
            ("bob", ("x", "it's"), "Wine", "A red wine from Rome, please."),
            ("alice", ("%",), "", "Über Straßen geht's 🙂"),
            (None, (), "Nothing", "nothing"),
        )
    ):
        stamp = 100.0 + number
        session = Session(id=f"{number}", user=user, tags=tags, title=title, created_at=stamp, updated_at=stamp)
        await store.create(session, [Message.user(text)])

    async def found(**query: Any) -> str:
        return "".join(session.id for session in await store.find(Query(**query)))

    assert await found() == "3210"
    assert await found(user="alice") == "20"
    assert await found(user="Alice") == ""
    assert await found(tag="x") == "10"
    assert await found(tag="it's") == "1"
    assert await found(tag="%") == "2"
    assert await found(text="rome") == "10"
    assert await found(text="ROME may") == "0"
    assert await found(text="wine rome red") == "1"
    assert await found(text="ROM") == ""
    assert await found(text="uber STRASSEN") == "2"
    assert await found(user="alice", tag="x", text="colosseum") == "0"
    assert await found(limit=2) == "32"
    assert await found(limit=2, offset=1) == "21"
    assert await found(offset=9) == ""


AWKWARD_PREFIXES = ("a%/", "a_/", "A/", "a\\/", "a\n/", "a\0/", "\ud800/", "ü/")


@part_of_the_contract
async def sessions_and_messages_are_found_within_a_prefix_and_not_deeper(open: Open) -> None:
    store = open()
    ids = ("s", "a/s", "a/t", "a/deep/s", "ab/s", "aX/s", *(prefix + "s" for prefix in AWKWARD_PREFIXES))
    for stamp, id in enumerate(ids):
        await store.create(Session(id=id, user=id[-1], updated_at=float(stamp)), [Message.user("wine")])

    async def found(prefix: str | None, **more: Any) -> list[str]:
        """Looked for in both ways."""
        sessions = [session.id for session in await store.find(Query(prefix=prefix, **more))]
        assert [hit.session_id for hit in await store.search("wine", prefix=prefix, **more)] == sessions
        return sessions

    assert await found(None) == list(reversed(ids))
    assert await found("") == ["s"]
    assert await found("a/") == ["a/t", "a/s"]
    assert await found("a/", user="s") == ["a/s"]
    assert await found("a/", limit=1) == ["a/t"]
    assert await found("a/s") == ["a/s"]
    assert await found("b/") == []
    for prefix in AWKWARD_PREFIXES:
        assert await found(prefix) == [prefix + "s"]


# --- search -------------------------------------------------------------------------------------------------


@part_of_the_contract
async def messages_are_found_by_their_words_newest_first(open: Open) -> None:
    store = open()
    messages = [
        Message.user("Where is the Colosseum?"),
        Message("assistant", (Reasoning("think colosseum"), Text("In Rome."), ToolCall("c1", "look", '{"q": "rome"}'))),
        Message("tool", (ToolResult("c1", "The COLOSSEUM of Rome opens at 9."),)),
        Message.assistant("It opens at 9 o'clock."),
    ]
    await with_a_turn(store, *messages)

    async def found(text: str, **where: Any) -> list[tuple[int, str]]:
        return [(hit.position, hit.role) for hit in await store.search(text, **where)]

    assert await found("colosseum") == [(2, "tool"), (0, "user")]
    assert await found("Rome colosseum") == [(2, "tool")]
    assert await found("opens 9") == [(3, "assistant"), (2, "tool")]
    assert await found("opens 9", limit=1) == [(3, "assistant")]
    assert await found("colosseum zebra") == []
    assert await found("think") == []
    assert await found("coloss") == []
    [hit] = await store.search("where")
    assert hit.session_id == "s"
    assert "Where is the Colosseum?" in hit.text


@part_of_the_contract
async def messages_are_found_within_what_is_asked(open: Open) -> None:
    store = open()
    for number, user in enumerate(("alice", "bob", "alice")):
        await store.create(Session(id=f"{number}", user=user), [Message.user("red wine")])

    async def found(**where: Any) -> list[str]:
        return sorted(hit.session_id for hit in await store.search("wine", **where))

    assert await found() == ["0", "1", "2"]
    assert await found(user="alice") == ["0", "2"]
    assert await found(session_id="1") == ["1"]
    assert await found(session_id="1", user="alice") == []
    assert len(await found(limit=2)) == 2


@part_of_the_contract
async def only_what_is_still_said_is_found(open: Open) -> None:
    store = open()
    turn = await taken(store, a_run())
    await store.write(turn.lease, 0, [HI, Message.assistant("zebra")])
    assert len(await store.search("zebra")) == 1
    await store.write(turn.lease, 1, [Message.assistant("lion")])
    assert await store.search("zebra") == []
    assert len(await store.search("lion")) == 1
    await store.delete("s")
    assert await store.search("lion") == []


NOTHING = ["", " ", "!!!", "%", "_", "\0", "\\", '"', "'"]
SIGNS = [*NOTHING, "a AND (", "NEAR(a b)", "a*", "-a", "a:b", "^a", "\ud83d", "🙂"]


@part_of_the_contract
async def signs_in_what_is_asked_mean_nothing(open: Open) -> None:
    """They are not the search engine's own language."""
    store = open()
    await with_a_turn(store, Message.user("a b c and near"))
    for text in SIGNS:
        await store.search(text)
        await store.find(Query(text=text))
        await store.find_facts(ANN, text, limit=3)
    for text in ("a*", "-a", "^a", '"a"', "a AND b"):
        assert len(await store.search(text)) == 1, text
    for text in NOTHING:
        assert await store.search(text) == [], text


@part_of_the_contract
async def words_without_spaces_are_found(open: Open) -> None:
    store = open()
    await with_a_turn(store, Message.user("東京の天気はどうですか"), Message.assistant("今日は晴れです"))
    assert [hit.position for hit in await store.search("天気")] == [0]
    assert [hit.position for hit in await store.search("晴れ")] == [1]


@part_of_the_contract
async def a_word_without_end_is_known_by_its_beginning(open: Open) -> None:
    store = open()
    await with_a_turn(store, Message.user("a" * 3_000))
    assert len(await store.search("a" * 100)) == len(await store.search("a" * 100 + "b")) == 1
    assert await store.search("a" * 99) == []


# --- deleting -----------------------------------------------------------------------------------------------


@part_of_the_contract
async def a_deleted_session_leaves_nothing(open: Open) -> None:
    store = open()
    for session_id in ("s", "t"):
        await with_a_turn(store, HI, HELLO, run_id=f"run-{session_id}", session_id=session_id)
        turn = await taken(store, a_run(f"again-{session_id}", session_id))
        await store.compact(turn.lease, Checkpoint(upto=1, messages=SUMMARY, run_id=f"again-{session_id}"))
        fact = Fact(id=f"fact-{session_id}", scope=ANN, text="likes tea", session_id=session_id)
        await store.change_facts(ANN, put=[fact], session_id=session_id, known_upto=1)
        await store.queue(session_id, f"waits-{session_id}", HERE, lease_for=LONG, first=False)
        await store.send(f"again-{session_id}", [HI])
        await store.ask_to_stop(f"again-{session_id}", STOP)
    assert await store.delete("s")
    assert not await store.delete("s")
    assert await store.load("s") is None
    assert [session.id for session in await store.find(Query())] == ["t"]
    assert {record.run_id for record in await store.runs(RunQuery())} == {"run-t", "again-t"}
    assert [fact.id for fact in await store.facts(ANN)] == ["fact-t"]
    assert await store.known("s") == {}
    asked = await store.asked(HERE)
    assert {*asked.stops, *(mail.run_id for mail in asked.mail)} == {"again-t"}
    assert {hit.session_id for hit in await store.search("hi")} == {"t"}
    fresh = await taken(store, a_run("run-new"))  # nobody waits any more
    assert fresh.conversation.messages == ()
    assert fresh.conversation.checkpoint is None
    assert await said(store, "t", full=True) == [HI, HELLO]


@part_of_the_contract
async def a_turn_on_a_deleted_session_is_lost(open: Open) -> None:
    store = open()
    record = a_run()
    turn = await taken(store, record)
    await store.write(turn.lease, 0, [HI])
    await store.delete("s")
    for _ in range(2):
        with pytest.raises(TurnLost):
            await store.write(turn.lease, 1, [HELLO])
        with pytest.raises(TurnLost):
            await store.close(turn.lease, ended(record), 1, [HELLO])
        with pytest.raises(TurnLost):
            await store.record(ended(record), lease=turn.lease)
        await store.create(Session(id="s"))
    assert await said(store) == []
    assert await store.runs(RunQuery()) == []


@part_of_the_contract
async def what_is_only_taken_where_it_is_makes_nothing(open: Open) -> None:
    store = open()
    wanted: tuple[Which, ...] = ("there", "lost")
    for only in wanted:
        with pytest.raises(SessionNotFound):
            await store.take(a_run(), lease_for=LONG, only=only)
    assert await store.load("s") is None
    await with_a_turn(store, HI, HELLO)
    for run_id in ("run-1", "nobody"):
        with pytest.raises(TurnLost):
            await store.take(a_run(run_id), lease_for=LONG, only="lost")
    assert [record.status for record in await store.runs(RunQuery())] == [RunStatus.COMPLETED]
    await taken(store, a_run("dead", owner=GONE))
    assert isinstance(await store.take(a_run("dead", owner=GONE), lease_for=LONG, only="lost"), Taken)
    assert isinstance(await store.take(a_run("next"), lease_for=LONG, only="there"), Taken)


@part_of_the_contract
async def any_text_is_an_id(open: Open) -> None:
    store = open()
    for number, id in enumerate(AWKWARD_IDS):
        await with_a_turn(store, Message.user(f"it was {number}"), run_id=f"run of {id}"[:256], session_id=id)
        scope = FactScope("user", id)
        fact = Fact(id=id, scope=scope, text=f"number {number}", session_id=id)
        await store.change_facts(scope, put=[fact], session_id=id, known_upto=1)
        await store.update(id, {"user": id, "tags": (id,)})
    for number, id in enumerate(AWKWARD_IDS):
        assert [message.text for message in await said(store, id)] == [f"it was {number}"]
        assert [session.id for session in await store.find(Query(user=id, tag=id))] == [id]
        [record] = await store.runs(RunQuery(session_id=id))
        assert record.run_id == f"run of {id}"[:256]
        assert await store.run(record.run_id) == record
        assert [fact.text for fact in await store.facts(FactScope("user", id))] == [f"number {number}"]
        assert await store.known(id) == {FactScope("user", id): 1}
    for id in AWKWARD_IDS:
        assert await store.delete(id)
    assert await store.find(Query()) == []


# --- facts --------------------------------------------------------------------------------------------------


def a_fact(id: str, text: str, scope: FactScope = ANN, **more: Any) -> Fact:
    return Fact(id=id, scope=scope, text=text, **more)


@part_of_the_contract
async def facts_are_entered_replaced_and_forgotten_by_their_ids(open: Open) -> None:
    store = open()
    first = a_fact("1", "likes tea \0 🙂", session_id="s", created_at=1.5, updated_at=2.5, embedding=(0.5, -1.25))
    second, third = a_fact("2", "has a cat", updated_at=2.0), a_fact("3", "lives in Rome", updated_at=1.0)
    await store.change_facts(ANN, put=[first, second, third])
    assert await store.facts(ANN) == [first, second, third]
    newer = msgspec.structs.replace(second, text="has two cats", updated_at=9.0)
    await store.change_facts(ANN, put=[newer], forget=["1", "nobody"])
    assert await store.facts(ANN) == [newer, third]
    assert await store.facts(ANN, limit=1) == [newer]
    assert await store.facts(BOB) == []


@part_of_the_contract
async def more_facts_than_a_statement_has_room_for_are_forgotten_at_once(open: Open) -> None:
    store = open()
    await store.change_facts(ANN, put=[a_fact("1", "likes tea"), a_fact("32999", "has a cat")])
    await store.change_facts(ANN, forget=[str(number) for number in range(33_000)])
    assert await store.facts(ANN) == []


@part_of_the_contract
async def facts_of_others_are_out_of_reach(open: Open) -> None:
    store = open()
    await store.change_facts(ANN, put=[a_fact("1", "likes tea")])
    await store.change_facts(BOB, put=[a_fact("2", "likes tea", BOB)])
    await store.change_facts(BOB, forget=["1"])
    assert [fact.id for fact in await store.facts(ANN)] == ["1"]
    assert [fact.id for fact in await store.find_facts(ANN, "tea", limit=5)] == ["1"]
    assert [fact.id for fact in await store.find_facts(BOB, "tea", limit=5)] == ["2"]


@part_of_the_contract
async def equal_names_of_different_kinds_and_spellings_have_nothing_in_common(open: Open) -> None:
    store = open()
    names = ["ann", "Ann", "ann ", "Jos\u00e9", "Jose\u0301", "\ufb01n", "fin", "user:ann", "ann\\"]
    scopes = [FactScope(kind, name) for kind in get_args(ScopeKind) for name in names]
    await store.create(Session(id="s"), HUNDRED)
    for number, scope in enumerate(scopes):
        fact = Fact(id="1", scope=scope, text=f"tea number {number}")
        await store.change_facts(scope, put=[fact], session_id="s", known_upto=number)
    for number, scope in enumerate(scopes):
        assert [fact.text for fact in await store.facts(scope)] == [f"tea number {number}"]
        assert [fact.scope for fact in await store.find_facts(scope, "tea", limit=9)] == [scope]
    assert await store.known("s") == {scope: number for number, scope in enumerate(scopes)}
    await store.change_facts(scopes[0], forget=["1"])
    assert [len(await store.facts(scope)) for scope in scopes] == [0] + [1] * (len(scopes) - 1)


@part_of_the_contract
async def a_record_has_the_user_of_its_session(open: Open) -> None:
    store = open()
    for user in ("ann", "Ann", None):
        await store.create(Session(id=f"of {user}", user=user))
        await with_a_turn(store, HI, run_id=f"run of {user}", session_id=f"of {user}")
    assert [record.run_id for record in await store.runs(RunQuery(user="ann"))] == ["run of ann"]
    record = await store.run("run of ann")
    assert record is not None
    assert record.user == "ann"


@part_of_the_contract
async def facts_are_found_by_the_words_that_they_share_the_best_first(open: Open) -> None:
    store = open()
    texts = {
        "tea": "Likes green tea in the morning",
        "cat": "Has a cat called Tea",
        "rome": "Lives in Rome",
        "work": "Works in the morning in an office",
        "sea": "Goes to the sea in the summer",
    }
    await store.change_facts(ANN, put=[a_fact(id, text) for id, text in texts.items()])

    async def found(text: str, limit: int = 5) -> list[str]:
        return [fact.id for fact in await store.find_facts(ANN, text, limit=limit)]

    assert (await found("Which green TEA?"))[0] == "tea"
    assert set(await found("tea")) == {"tea", "cat"}
    assert await found("Is there a cat?") == ["cat"]
    assert await found("zebra") == []
    assert await found("") == []
    assert (await found("rome in the evening"))[0] == "rome"
    assert len(await found("in", limit=2)) == 2


@part_of_the_contract
async def how_far_a_session_was_learned_from_is_changed_with_its_facts(open: Open) -> None:
    store = open()
    await with_a_turn(store, *HUNDRED[:8])
    await store.change_facts(ANN, put=[a_fact("1", "likes tea")], session_id="s", known_upto=4)
    assert await store.known("s") == {ANN: 4}
    await store.change_facts(ANN, put=[a_fact("2", "has a cat")])
    assert await store.known("s") == {ANN: 4}
    await store.change_facts(ANN, session_id="s", known_upto=8)
    assert await store.known("s") == {ANN: 8}
    assert len(await store.facts(ANN)) == 2


@part_of_the_contract
async def who_learns_from_what_another_has_learned_from_changes_nothing(open: Open) -> None:
    store = open()
    await with_a_turn(store, *HUNDRED[:8])
    put = [a_fact("1", "likes tea")]
    assert await store.change_facts(ANN, put=put, session_id="s", known_from=0, known_upto=4)
    late = [a_fact("2", "drinks tea")]
    assert not await open().change_facts(ANN, put=late, forget=["1"], session_id="s", known_from=0, known_upto=8)
    assert [fact.id for fact in await store.facts(ANN)] == ["1"]
    assert await store.known("s") == {ANN: 4}
    assert await store.change_facts(ANN, put=late, session_id="s", known_from=4, known_upto=8)
    assert not await store.change_facts(ANN, put=late, session_id="gone", known_from=0, known_upto=8)


@part_of_the_contract
async def when_facts_were_recalled_is_noted(open: Open) -> None:
    store = open()
    await store.change_facts(ANN, put=[a_fact("1", "a"), a_fact("2", "b")])
    await store.recalled(["1", "nobody"], 12.5)
    assert {fact.id: fact.recalled_at for fact in await store.facts(ANN)} == {"1": 12.5, "2": 0.0}


# --- many at once, and its own end --------------------------------------------------------------------------


@part_of_the_contract
async def many_sessions_may_be_written_at_once(open: Open) -> None:
    stores = [open(), open()]

    async def talk(number: int) -> None:
        store = stores[number % 2]
        record = a_run(f"run-{number}", f"s-{number}")
        turn = await taken(store, record)
        for at in range(3):
            await store.write(turn.lease, at, [Message.user(f"{number} {at}")])
        await store.close(turn.lease, ended(record), 3, [HELLO])

    await asyncio.gather(*(talk(number) for number in range(20)))
    for number in range(20):
        texts = [message.text for message in await said(stores[0], f"s-{number}")]
        assert texts == [f"{number} 0", f"{number} 1", f"{number} 2", "hello"]


@part_of_the_contract
async def who_was_closed_may_be_used_again(open: Open) -> None:
    store = open()
    await with_a_turn(store, HI)
    await store.aclose()
    await store.aclose()
    assert await said(store) == [HI]
    await taken(store, a_run("run-2"))


@part_of_the_contract
async def several_event_loops_may_use_one_object(open: Open) -> None:
    store = open()
    await with_a_turn(store, HI)

    async def elsewhere(number: int) -> None:
        await with_a_turn(store, Message.user(f"{number}"), run_id=f"there-{number}", session_id=f"t-{number}")
        assert await said(store) == [HI]
        await store.aclose()

    await asyncio.gather(*(asyncio.to_thread(asyncio.run, elsewhere(number)) for number in range(4)))
    assert {session.id for session in await store.find(Query())} == {"s", *(f"t-{number}" for number in range(4))}
    assert await said(store, "t-3") == [Message.user("3")]
