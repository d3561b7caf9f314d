"""D44: a process is killed at any point of a turn with tools and compaction, and nothing that had ended is lost.

In SQLite and in PostgreSQL. Each point is a session of its own; several processes work on one database at once, so that
some are killed while others write. Looked at is what the next process finds there, and what the provider is asked next.
"""

from __future__ import annotations

import asyncio
import random
import sqlite3
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import msgspec
import pytest

from halter import Agent, tool
from halter.core.history import LOST, MARKER, for_model
from halter.messages import Message, ToolResult
from halter.models import OpenAIChat
from halter.outcome import RunStatus
from halter.sessions import RunRecord, Sessions
from halter.testing.wire_probe import WireProbe

from ...agents.conversations import CHECKS, bodies_of, check_bodies, check_by_sdk, check_history
from ...tools.processes import alive, new_name, wait_until_gone
from .children import Child, Mother
from .mother import Job, Told
from .recordings import WHOLE_TURN, mode

AT_ONCE = 4
POINTS = 10  # of each test
ROUNDS = 5
ORDINARY = 1  # of them; the others are left to `make soak`
FEWEST_BORDERS = 15  # before and after changes in the store, in one turn
REPAIRING = 12  # of the same, until a process that repairs a turn first has begun its own
AFTER_THE_END = 0.03  # seconds; as long after its last word is a process killed at the latest
BEFORE = [
    Message.user("Tell me of the first river, and do not leave anything out. " * 75),
    Message.assistant("It comes from the hills, and goes to the sea. " * 100),
    Message.user("And of the second one, please, as long as it may take? " * 75),
    Message.assistant("That one is longer, and slower, and in summer it has no water. " * 75),
]
THRESHOLD = 5_000  # tokens: passed with the result of the long call
WHOLE = tuple(mode(name) for name in WHOLE_TURN)
INPUT = "Do it all, please."
LAST = "And what now?"

pytestmark = pytest.mark.scenario("D44")


class Case:
    """One place with many sessions, and the provider for each."""

    def __init__(self, where: str, wire: WireProbe, mother: Mother, keep: str) -> None:
        self.where = where
        self.keep = keep
        self._wire = wire
        self._mother = mother

    def tag(self, session: str) -> str:
        return f"{self._wire.tag}.{session}"

    def url(self, session: str, how: str) -> str:
        return self._wire.wire.url(how, tag=self.tag(session))

    def bodies(self, session: str) -> list[dict[str, Any]]:
        """All that the provider was asked for this session."""
        return [msgspec.json.decode(record.body) for record in self._wire.wire.requests(self.tag(session))]

    def start(
        self, session: str, dies_at: int | None = None, *, run_id: str | None = None, modes: Sequence[str] = WHOLE
    ) -> Child:
        urls = tuple(self.url(session, how) for how in modes)
        summary = self.url(session, mode("summary"))
        job = Job(
            where=self.where,
            session=session,
            run_id=run_id or f"run-{session}",
            urls=urls,
            input=INPUT,
            keep=self.keep,
            summary=summary,
            threshold=THRESHOLD,
            dies_at=dies_at,
        )
        return self._mother.start(job)

    async def prepare(self, sessions: Sequence[str]) -> None:
        async with Sessions(self.where) as chats:
            for session in sessions:
                await chats.create(session, messages=BEFORE)


# --- the killing --------------------------------------------------------------------------------------------


def undisturbed(case: Case, dies_at: int | None = None) -> list[Told]:
    """What a process tells that is not killed."""
    child = case.start("whole", dies_at)
    ended = child.until("ended")
    child.kill()
    assert ended.status == "completed", ended
    whats = [told.what for told in child.told]
    assert whats.count("requested") == len(WHOLE_TURN)
    assert whats.count("done") == 5
    assert "summing up" in whats, "the turn is compacted"
    return child.told


def kill_at(case: Case, session: str, share: float, whole: Sequence[Told]) -> Child:
    """Starts the same once more, and kills it at this share of its time: so long after what it had told last by then.

    By the clock alone a busy machine would have most of them killed before they had begun.
    """
    began = whole[0].at
    instant = began + share * (whole[-1].at + AFTER_THE_END - began)
    step = max(number for number, told in enumerate(whole) if told.at <= instant)
    child = case.start(session)
    for number, _ in enumerate(child.listen()):
        if number == step:
            break
    time.sleep(instant - whole[step].at)
    child.kill()
    return child


def run_and_kill(case: Case, points: Sequence[float]) -> tuple[list[Told], list[Child]]:
    sessions = [f"s{number}" for number in range(len(points))]
    asyncio.run(case.prepare(["whole", *sessions]))
    whole = undisturbed(case)
    with ThreadPoolExecutor(AT_ONCE) as pool:
        children = list(pool.map(lambda pair: kill_at(case, *pair, whole), zip(sessions, points, strict=True)))
    return whole, children


# --- what is looked at --------------------------------------------------------------------------------------


class Found:
    """What a new process finds of one killed turn."""

    def __init__(self, child: Child, record: RunRecord | None, full: Sequence[Message], told: Sequence[Message]):
        self.child = child
        self.record = record
        self.full = tuple(full)
        self.told = tuple(told)

    @property
    def turn(self) -> tuple[Message, ...]:
        return self.full[len(BEFORE) :]

    @property
    def had_ended(self) -> bool:
        return any(told.what == "ended" for told in self.child.told)

    def check_what_was_before(self) -> None:
        """The conversation before the turn is whole, compacted or not."""
        assert msgspec.json.encode(self.full[: len(BEFORE)]) == msgspec.json.encode(BEFORE)

    def check_record(self) -> None:
        """A run that nobody ended was lost with its owner; one that nobody has a record of had not begun."""
        record = self.record
        if record is None:
            assert not any(told.messages for told in self.child.told)
            assert not self.turn
            return
        if record.status is RunStatus.COMPLETED:
            return
        assert not self.had_ended
        assert record.status is RunStatus.CANCELLED
        assert record.cancellation is not None
        assert record.cancellation.reason == "owner_lost"
        assert record.receipt is not None
        assert not record.receipt.confirmed
        assert record.ended_at is not None

    def check_nothing_is_lost(self) -> None:
        """Whatever the process had told was stored when it told it."""
        for told in self.child.told:
            assert self.full[: len(told.messages)] == told.messages, f"lost after {told.what} {told.call_id}"

    def check_nothing_is_made_up(self, whole: Sequence[Message]) -> None:
        """It is the beginning of what the undisturbed turn has said; what is not is marked, and says so truthfully."""
        for mine, theirs in zip(self.full, whole, strict=False):
            if mine.interrupted:
                assert mine is self.full[-1], "a turn ends where it was cut"
                assert mine.role == "tool" or not mine.parts, "half an answer is nowhere"
                self._check_results(mine, theirs)
            else:
                assert mine == theirs
        assert len(self.full) <= len(whole)

    def _check_results(self, mine: Message, theirs: Message) -> None:
        done = {told.call_id for told in self.child.told if told.what == "done"}
        real = {part.call_id: part for part in theirs.parts if isinstance(part, ToolResult)}
        for part in mine.parts:
            assert isinstance(part, ToolResult)
            if part.content == LOST:
                assert part.is_error
            else:
                assert part == real[part.call_id]
                assert part.call_id in done, "it has a result, and had not ended"

    def check_valid(self) -> None:
        """Every provider takes it, as it was said and as it is told after a compaction."""
        for messages in (self.full, self.told):
            check_history(messages)
            assert for_model(for_model(messages)) == for_model(messages)
            bodies = bodies_of(messages)
            check_bodies(bodies, sum(len(message.tool_calls) for message in messages))
            check_by_sdk(bodies)

    def check_compaction(self) -> None:
        """Once a model was asked with it, it is stored; never is a part of it."""
        known = [told.compaction for told in self.child.told if told.compaction is not None]
        if known:
            upto, messages = known[-1]
            assert self.told[: len(messages)] == messages
            assert self.told[len(messages) :] == self.full[upto:]


async def look(case: Case, children: Sequence[Child]) -> list[Found]:
    """In the name of a new process: whoever has used the place before has ended."""
    async with Sessions(case.where) as chats:
        found: list[Found] = []
        for child in children:
            record = await chats.run(child.job.run_id)
            full = await chats.history(child.job.session, full=True)
            found.append(Found(child, record, full, await chats.history(child.job.session)))
        return found


@tool
async def again(word: str) -> str:
    """Says a word again."""
    return word


async def go_on(case: Case, session: str, found: Found) -> None:
    """The next turn completes, and its provider was asked what it accepts."""
    async with Sessions(case.where) as chats:
        url = case.url(session, 'tool-call(again, {"word": "river"})')
        before = len(case.bodies(session))
        agent = Agent(OpenAIChat("m", base_url=url, api_key="k"), tools=[again])
        result = await agent.run(LAST, session=chats.session(session))
        assert result.is_completed
        full = await chats.history(session, full=True)
        assert full[: len(found.full)] == found.full
        assert full[len(found.full)] == Message.user(LAST)
        check_history(full)
        asked = case.bodies(session)[before:]
        assert len(asked) == 2
        said = sum(len(message.tool_calls) for message in found.told)
        for number, body in enumerate(asked):
            if number:  # it ends with the result of the call, not with the user
                body = {**body, "messages": [*body["messages"], {"role": "user", "content": "Go on."}]}
            assert len(CHECKS["chat"](body)) == said + number
            check_by_sdk({**bodies_of(found.told), "chat": asked[number]})
        written = msgspec.json.encode(asked[0]).decode()
        assert written.count(LAST) == 1
        was_cut = bool(found.told) and found.told[-1].interrupted
        assert (MARKER in written) == was_cut


def check_file(where: str) -> None:
    if "://" not in where:
        with sqlite3.connect(where) as database:
            assert database.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
        database.close()


# --- the tests ----------------------------------------------------------------------------------------------


def points(seed: str, number: int, rounds: int, count: int) -> list[float]:
    """Shares of the turn's time, spread evenly over all rounds, and at random within."""
    dice = random.Random(seed)
    shares = [(place + dice.random()) / (rounds * count) for place in range(rounds * count)]
    dice.shuffle(shares)
    return shares[number * count : (number + 1) * count]


def check_killed(case: Case, whole: Sequence[Told], children: Sequence[Child]) -> None:
    found = asyncio.run(look(case, children))
    for each in found:
        each.check_what_was_before()
        each.check_record()
        if case.keep == "rollback" and (each.record is None or each.record.status is not RunStatus.COMPLETED):
            assert msgspec.json.encode(each.full) == msgspec.json.encode(BEFORE)
            assert msgspec.json.encode(each.told) == msgspec.json.encode(BEFORE)
        else:
            each.check_nothing_is_lost()
            each.check_nothing_is_made_up(whole[-1].messages)
            each.check_compaction()
        each.check_valid()
    check_file(case.where)
    asyncio.run(_go_on_all(case, found))
    check_file(case.where)


async def _go_on_all(case: Case, found: Sequence[Found]) -> None:
    await asyncio.gather(*(go_on(case, each.child.job.session, each) for each in found))


@pytest.mark.parametrize(
    "number", [*range(ORDINARY), *(pytest.param(each, marks=pytest.mark.soak) for each in range(ORDINARY, ROUNDS))]
)
def test_killed_at_any_point_it_has_lost_nothing_that_had_ended(
    number: int, where: str, mother: Mother, wire: WireProbe
) -> None:
    """The next process finds all of it, valid for every provider, and goes on."""
    case = Case(where, wire, mother, "partial")
    check_killed(case, *run_and_kill(case, points("partial", number, ROUNDS, POINTS)))


def test_killed_at_any_point_a_turn_to_be_rolled_back_has_never_been(
    where: str, mother: Mother, wire: WireProbe
) -> None:
    """The history is, byte for byte, what it was before the turn."""
    case = Case(where, wire, mother, "rollback")
    check_killed(case, *run_and_kill(case, points("rollback", 0, 1, POINTS)))


@pytest.mark.parametrize("keep", ["partial", pytest.param("rollback", marks=pytest.mark.soak)])
def test_killed_before_and_after_each_change_of_what_is_stored(
    keep: str, where: str, mother: Mother, wire: WireProbe
) -> None:
    """All of these points, and not only as many as chance finds."""
    case = Case(where, wire, mother, keep)
    asyncio.run(case.prepare(["whole"]))
    whole = undisturbed(case, dies_at=0)
    borders = range(1, [told.what for told in whole].count("border") + 1)
    assert len(borders) > FEWEST_BORDERS
    asyncio.run(case.prepare([f"s{border}" for border in borders]))
    with ThreadPoolExecutor(AT_ONCE) as pool:
        killed = list(pool.map(lambda border: until_dead(case, border), borders))
    check_killed(case, whole, killed)


def until_dead(case: Case, border: int) -> Child:
    """A process that has killed itself there."""
    child = case.start(f"s{border}", border)
    for told in child.listen():
        if told.what == "ended":
            break  # there was no such border: several changes went together
    child.kill()
    return child


@pytest.mark.parametrize("keep", ["partial", pytest.param("rollback", marks=pytest.mark.soak)])
def test_killed_while_it_repairs_what_another_has_left_it_is_repaired_all_the_same(
    keep: str, where: str, mother: Mother, wire: WireProbe
) -> None:
    """A first process is killed between its calls and their results, a second one at any point of repairing that."""
    case = Case(where, wire, mother, keep)
    borders = range(1, REPAIRING + 1)
    asyncio.run(case.prepare([f"s{border}" for border in borders]))
    with ThreadPoolExecutor(AT_ONCE) as pool:
        asked = list(pool.map(lambda border: until_dead_twice(case, border), borders))
    found = asyncio.run(look(case, asked))
    for each in found:
        each.check_what_was_before()
        each.check_record()
        each.check_valid()
        if keep == "rollback":
            assert each.full == tuple(BEFORE)
        else:
            roles = [message.role for message in each.turn]
            assert roles[:5] == ["user", "assistant", "tool", "assistant", "tool"]
            assert LOST in [part.content for part in each.turn[4].parts if isinstance(part, ToolResult)]
            assert roles[5:] in ([], ["user", "assistant"])  # the second's own
    check_file(case.where)
    asyncio.run(_go_on_all(case, found))


def until_dead_twice(case: Case, border: int) -> Child:
    """The first of the two."""
    session = f"s{border}"
    first = case.start(session, modes=(mode("one"), mode("forever")))
    first.until("began", 2)
    first.kill()
    second = case.start(session, border, run_id=f"second-{border}", modes=("stall(0)",))
    for told in second.listen():
        if told.what in ("requested", "ended"):
            break  # all was repaired before, or others are at it: they repair whatever is lost
    second.kill()
    return first


def test_who_waits_for_a_turn_that_is_rolled_back_finds_nothing_of_it_either(
    where: str, mother: Mother, wire: WireProbe
) -> None:
    """Its process is not new: it repairs what it has waited for, the compaction included."""
    case = Case(where, wire, mother, "rollback")
    asyncio.run(case.prepare(["s"]))
    first = case.start("s", modes=(*WHOLE[:-1], "stall(0)"))
    first.until("began")
    urls = (case.url("s", mode("last")),)
    job = Job(where=where, session="s", run_id="second", urls=urls, input=LAST, on_busy="enqueue")
    second = mother.start(job)
    second.until("queued")
    assert first.until("requested", len(WHOLE_TURN) - 1).compaction is not None
    first.kill()
    ended = second.until("ended")
    assert ended.status == "completed"
    assert ended.messages[:-1] == (*BEFORE, Message.user(LAST))


def test_what_a_killed_process_had_running_in_the_background_has_ended_before_the_next_one_starts(
    where: str, mother: Mother, wire: WireProbe
) -> None:
    """A program in the background outlives its turn, and not the process whose session it belongs to.

    Nobody has to come for that: its supervisor sees the process end. The session goes on.
    """
    name = new_name()
    leaves = f'tool-call(shell, {{"command": "sleep {name}", "background": true}})'
    urls = (wire.url(leaves), wire.url(mode("forever")))
    first = mother.start(Job(where=where, session="s", run_id="first", urls=urls))
    first.until("began")
    assert alive(name)
    first.kill()
    wait_until_gone(name)
    second = mother.start(Job(where=where, session="s", run_id="second", urls=(wire.url(mode("last")),)))
    assert second.until("ended").status == "completed"


@pytest.mark.soak
@pytest.mark.parametrize("keep", ["partial", "rollback"])
@pytest.mark.parametrize("number", range(25))
def test_killed_at_a_thousand_points(number: int, keep: str, where: str, mother: Mother, wire: WireProbe) -> None:
    """The same, more often."""
    case = Case(where, wire, mother, keep)
    check_killed(case, *run_and_kill(case, points(f"soak {keep}", number, 25, 20)))
