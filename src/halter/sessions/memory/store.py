"""`MemoryStore`: sessions that last as long as this process, for any of its threads and event loops.

1. Each method does all of its work in one go, under a lock that nothing is awaited under. 2. Messages are frozen, and
shared; other data is copied on its way in and out. 3. A forked child has a copy, as it was between two steps.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from itertools import count, islice
from typing import Any
from weakref import WeakSet

import msgspec
from msgspec import UNSET

from halter.core.lockfree import snapshot
from halter.errors import TurnLost
from halter.messages import Message
from halter.outcome import Cancellation
from halter.sessions.memory.facts import KeptFacts
from halter.sessions.memory.kept import KeptSession, Place, Turn
from halter.sessions.memory.runs import KeptRuns
from halter.sessions.port import (
    Asked,
    Busy,
    Conversation,
    Lease,
    MailState,
    Query,
    RunQuery,
    Snapshot,
    Taken,
    Which,
    check_is_still,
    check_is_theirs,
    live_of,
)
from halter.sessions.ranking import best
from halter.sessions.records import Checkpoint, Damage, Fact, FactScope, Hit, LateResult, RunRecord, Session
from halter.sessions.words import shown_text, words

# One for all stores, and taken around a fork: a child must not find it held by a thread that it does not have. The
# thread that has it may come again, in a signal handler or a destructor.
_lock = threading.RLock()
_stores: WeakSet[MemoryStore] = WeakSet()


def _after_fork() -> None:
    """In a forked child no run goes on: what they had said there is a copy, and their turns are free."""
    for store in list(_stores):
        store.let_go()
    _lock.release()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_lock.acquire, after_in_parent=_lock.release, after_in_child=_after_fork)


class MemoryStore:
    """Sessions in the memory of this process: a `Store` that ends with it."""

    def __init__(self) -> None:
        self._sessions: dict[str, KeptSession] = {}
        self._runs = KeptRuns()
        self._facts = KeptFacts()
        self._generations = count(1)
        self._tickets = count(1)
        _stores.add(self)

    def let_go(self) -> None:
        """Nobody has a turn any more, or waits for one."""
        with _lock:
            for kept in self._sessions.values():
                kept.turn = None
                kept.queue.clear()

    # --- turns ----------------------------------------------------------------------------------------------

    async def take(
        self, record: RunRecord, *, lease_for: float, ticket: int | None = None, only: Which | None = None
    ) -> Taken | Busy:
        assert record.session_id is not None
        now, id = time.monotonic(), record.session_id
        with _lock:
            if only is not None:
                check_is_still(only, record, is_there=id in self._sessions, before=self._runs.get(record.run_id))
            kept = self._sessions.get(id) or KeptSession(_new(id, record.user))
            if only is None:
                check_is_theirs(record, kept.about.user)
            if not kept.is_free(ticket, now):
                return Busy(holder=kept.turn.run_id if kept.turn else None, ticket=ticket or 0)
            self._sessions[id] = kept
            generation = next(self._generations)
            kept.give(Turn(record.run_id, record.owner, now + lease_for, generation), ticket)
            before = self._runs.get(record.run_id)
            was_lost = before is not None and not before.status.is_final  # taken once more, so that it can be ended
            base = before.base if before is not None and was_lost else len(kept.messages)
            self._runs.put(msgspec.structs.replace(record, base=base, user=kept.about.user), generation)
            lost = tuple(self._lost(now, of=id))
            lease = Lease(session_id=id, run_id=record.run_id, generation=generation)
            return Taken(lease=lease, conversation=kept.conversation(full=False), lost=lost, before=before)

    async def queue(self, session_id: str, run_id: str, owner: str, *, lease_for: float, first: bool) -> int:
        with _lock:
            ticket = next(self._tickets)
            kept = self._sessions.get(session_id)
            if kept is not None:
                kept.queue[ticket] = Place(run_id, owner, time.monotonic() + lease_for, ticket, first)
            return ticket

    async def leave(self, ticket: int) -> None:
        with _lock:
            for kept in self._sessions.values():
                place = kept.queue.pop(ticket, None)
                if place is not None:
                    self._runs.drop_stop(place.run_id)

    async def renew(self, owner: str, *, lease_for: float) -> None:
        until = time.monotonic() + lease_for
        with _lock:
            for kept in self._sessions.values():
                for hold in (kept.turn, *kept.queue.values()):
                    if hold is not None and hold.owner == owner:
                        hold.until = until

    async def write(self, lease: Lease, at: int, messages: Sequence[Message], *, state: Any = UNSET) -> None:
        with _lock:
            self._held(lease).write(at, messages, state)

    async def compact(self, lease: Lease, checkpoint: Checkpoint) -> None:
        with _lock:
            self._held(lease).checkpoints.append(checkpoint)

    async def close(
        self,
        lease: Lease,
        record: RunRecord,
        at: int,
        messages: Sequence[Message],
        *,
        state: Any = UNSET,
        forget_compactions: bool = False,
    ) -> None:
        with _lock:
            kept = self._held(lease)
            kept.write(at, messages, state)
            if forget_compactions:
                kept.checkpoints = [each for each in kept.checkpoints if each.run_id != lease.run_id]
            kept.turn = None
            self._runs.put(record)

    def _held(self, lease: Lease) -> KeptSession:
        kept = self._sessions.get(lease.session_id)
        if kept is None or not kept.is_held_by(lease):
            raise TurnLost(f"run {lease.run_id} has lost its turn on session {lease.session_id!r}")
        return kept

    # --- between processes ----------------------------------------------------------------------------------

    async def ask_to_stop(self, run_id: str, cancellation: Cancellation) -> bool:
        with _lock:
            is_carried = run_id in self._runs.live and all(
                lost.run_id != run_id for lost in self._lost(time.monotonic())
            )
            is_there = is_carried or any(place.run_id == run_id for place in self._waiting())
            if is_there:
                self._runs.ask_to_stop(run_id, cancellation)
            return is_there

    async def waits(self, run_id: str) -> bool:
        with _lock:
            return any(place.run_id == run_id for place in self._waiting())

    def _waiting(self) -> list[Place]:
        now = time.monotonic()
        places = (place for kept in self._sessions.values() for place in kept.queue.values())
        return [place for place in places if not place.is_over(now)]

    async def send(self, run_id: str, messages: Sequence[Message]) -> int:
        with _lock:
            return self._runs.send(run_id, messages)

    async def mail_state(self, id: int) -> MailState:
        with _lock:
            return self._runs.mail_state(id)

    async def sort_mail(self, *, taken: Collection[int] = (), returned: Collection[int] = ()) -> None:
        with _lock:
            self._runs.sort(taken, "taken")
            self._runs.sort(returned, "returned")

    async def asked(self, owner: str) -> Asked:
        with _lock:
            return self._runs.asked(owner, {place.run_id for place in self._waiting() if place.owner == owner})

    async def sweep(self) -> None:
        """Nothing: queues are looked through when a turn is taken, and no other process can have died."""

    # --- run records ----------------------------------------------------------------------------------------

    async def record(self, record: RunRecord, *, lease: Lease | None = None) -> None:
        with _lock:
            if lease is not None:
                self._held(lease)
            self._runs.put(record)

    async def add_late(self, run_id: str, late: LateResult) -> None:
        with _lock:
            self._runs.add_late(run_id, late)

    async def run(self, run_id: str) -> RunRecord | None:
        with _lock:
            return self._runs.get(run_id)

    async def runs(self, query: RunQuery) -> list[RunRecord]:
        with _lock:
            return self._runs.find(query)

    async def lost(self, session_id: str | None = None) -> list[RunRecord]:
        with _lock:
            return list(self._lost(time.monotonic(), of=session_id))

    def _lost(self, now: float, *, of: str | None = None) -> Iterator[RunRecord]:
        def has_turn(record: RunRecord, generation: int) -> bool:
            kept = self._sessions.get(record.session_id or "")
            turn = kept.turn if kept is not None else None
            return turn is not None and turn.generation == generation and not turn.is_over(now)

        return self._runs.lost(has_turn, of=of)

    async def forget_runs(self, before: float) -> int:
        with _lock:
            return self._runs.forget_before(before)

    # --- sessions -------------------------------------------------------------------------------------------

    async def create(
        self,
        session: Session,
        messages: Sequence[Message] = (),
        checkpoint: Checkpoint | None = None,
        *,
        known: Mapping[FactScope, int] | None = None,
    ) -> bool:
        made = KeptSession(session, messages, checkpoint, known)
        with _lock:
            return self._sessions.setdefault(session.id, made) is made

    async def session(self, session_id: str) -> Session | None:
        with _lock:
            kept = self._sessions.get(session_id)
            return kept.session if kept is not None else None

    async def load(self, session_id: str, *, full: bool = False) -> Conversation | None:
        with _lock:
            kept = self._sessions.get(session_id)
            return kept.conversation(full=full) if kept is not None else None

    async def snapshot(self, session_id: str) -> Snapshot | None:
        with _lock:
            kept = self._sessions.get(session_id)
            if kept is None:
                return None
            lost = tuple(self._lost(time.monotonic(), of=session_id))
            return Snapshot(
                conversation=kept.conversation(full=True),
                lost=lost,
                live=live_of(kept.turn and self._runs.get(kept.turn.run_id), lost),
                known=dict(kept.known),
            )

    async def update(self, session_id: str, changes: Mapping[str, Any]) -> Session | None:
        with _lock:
            kept = self._sessions.get(session_id)
            if kept is None:
                return None
            kept.change(dict(changes))
            return kept.session

    async def entitle(self, session_id: str, title: str) -> None:
        with _lock:
            kept = self._sessions.get(session_id)
            if kept is not None and not kept.about.title:
                kept.change({"title": title})

    async def find(self, query: Query) -> list[Session]:
        asked = set(words(query.text)) if query.text is not None else None
        newest = sorted(snapshot(self._sessions), key=lambda kept: (kept.about.updated_at, kept.about.id), reverse=True)
        found = (kept for kept in newest if _fits(kept, query, asked))
        with _lock:
            return [kept.session for kept in islice(found, query.offset, query.offset + query.limit)]

    async def search(
        self,
        text: str,
        *,
        prefix: str | None = None,
        user: str | None = None,
        session_id: str | None = None,
        limit: int = 20,
    ) -> list[Hit]:
        asked = set(words(text))
        newest = sorted(snapshot(self._sessions), key=lambda kept: (kept.about.updated_at, kept.about.id), reverse=True)
        theirs = (kept for kept in newest if user in (None, kept.about.user) and session_id in (None, kept.about.id))
        within = (kept for kept in theirs if _is_within(kept.about.id, prefix))
        return list(islice((hit for kept in within for hit in _hits(kept, asked)), limit))

    async def cut(self, lease: Lease, to: int, *, of_run: str | None = None) -> None:
        with _lock:
            self._held(lease).cut(to, of_run)

    async def delete(self, session_id: str) -> bool:
        with _lock:
            return self._delete(session_id)

    def _delete(self, session_id: str) -> bool:
        self._runs.forget_session(session_id)
        self._facts.forget_session(session_id)
        return self._sessions.pop(session_id, None) is not None

    async def forget_sessions(self, before: float, *, limit: int) -> list[str]:
        with _lock:
            unused = (id for id, kept in self._sessions.items() if kept.is_unused_since(before, time.monotonic()))
            gone = list(islice(unused, limit))
            for id in gone:
                self._delete(id)
            return gone

    async def forget_user(self, user: str) -> None:
        with _lock:
            self._runs.forget_user(user)
            self._facts.forget(FactScope("user", user))

    # --- facts ----------------------------------------------------------------------------------------------

    async def facts(self, scope: FactScope, *, limit: int | None = None) -> list[Fact]:
        with _lock:
            return self._facts.of(scope)[:limit]

    async def find_facts(self, scope: FactScope, text: str, *, limit: int) -> list[Fact]:
        with _lock:
            facts = self._facts.of(scope)
        return best(facts, text, limit)

    async def change_facts(
        self,
        scope: FactScope,
        *,
        put: Sequence[Fact] = (),
        forget: Collection[str] = (),
        session_id: str | None = None,
        known_from: int | None = None,
        known_upto: int | None = None,
    ) -> bool:
        with _lock:
            kept = self._sessions.get(session_id) if session_id is not None else None
            if known_from is not None and (kept is None or kept.known.get(scope, 0) != known_from):
                return False
            self._facts.change(scope, put, forget)
            if kept is not None and known_upto is not None:
                kept.known[scope] = known_upto
            return True

    async def known(self, session_id: str) -> Mapping[FactScope, int]:
        with _lock:
            kept = self._sessions.get(session_id)
            return dict(kept.known) if kept is not None else {}

    async def recalled(self, ids: Collection[str], at: float) -> None:
        with _lock:
            self._facts.recalled(ids, at)

    # --- what cannot be read --------------------------------------------------------------------------------

    async def check(self, *, repair: bool) -> list[Damage]:
        """Nothing: these are objects, not bytes."""
        return []

    # --- its own end ----------------------------------------------------------------------------------------

    async def aclose(self) -> None:
        """Nothing: what it holds is the process's."""

    def __repr__(self) -> str:
        return f"<MemoryStore, {len(self._sessions)} sessions>"


def _new(id: str, user: str | None) -> Session:
    return Session(id=id, user=user, created_at=time.time(), updated_at=time.time())


def _fits(kept: KeptSession, query: Query, asked: set[str] | None) -> bool:
    about = kept.about
    if query.user not in (None, about.user) or (query.tag is not None and query.tag not in about.tags):
        return False
    if not _is_within(about.id, query.prefix):
        return False
    return asked is None or (bool(asked) and (asked <= set(words(about.title)) or any(_hits(kept, asked))))


def _is_within(id: str, prefix: str | None) -> bool:
    return prefix is None or (id.startswith(prefix) and "/" not in id[len(prefix) :])


def _hits(kept: KeptSession, asked: set[str]) -> Iterator[Hit]:
    """Where all these words occur, the newest first."""
    messages = list(kept.messages)
    for position in range(len(messages) - 1, -1, -1):
        text = shown_text(messages[position])
        if asked and asked <= set(words(text)):
            yield Hit(session_id=kept.about.id, position=position, role=messages[position].role, text=text)
