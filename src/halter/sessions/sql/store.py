"""`SqlStore`: the port, on a database. What each step does is in the modules beside; here is how it is carried out.

1. A step is one transaction. 2. A database that is away for a moment is asked again until `patience` is over; a step
whose answer was lost may have happened, and is told so (`Transaction.again`): none happens twice. 3. What does not pass
by itself (a full disk, a wrong password) is said at once.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from functools import partial
from typing import Any, Protocol, TypeVar

import sqlalchemy as sa
from msgspec import UNSET

from halter.core.ids import new_id
from halter.core.owner import is_dead
from halter.errors import ConfigurationError, HalterError, SessionsUnavailable
from halter.messages import Message
from halter.outcome import Cancellation
from halter.sessions.port import Asked, Busy, Conversation, Lease, MailState, Query, RunQuery, Snapshot, Taken, Which
from halter.sessions.records import Checkpoint, Damage, Fact, FactScope, Hit, LateResult, RunRecord, Session
from halter.sessions.sql import asking, checking, conversations, facts, runs, sessions, turns
from halter.sessions.sql.dialects import Dialect
from halter.sessions.sql.failures import failure_of
from halter.sessions.sql.transaction import Step, Transaction

T = TypeVar("T")
_logger = logging.getLogger("halter")

FIRST_PAUSE, LONGEST_PAUSE = 0.05, 1.0  # seconds between two attempts
NOTHING = Asked(stops={}, mail=())


class Database(Protocol):
    """Where transactions happen. `where`: as errors name it."""

    where: str
    dialect: Dialect

    async def read(self, fn: Callable[[sa.Connection], T]) -> T:
        """In a transaction that sees one state of the database and changes nothing."""
        ...

    async def write(self, fn: Callable[[sa.Connection], T]) -> T:
        """In a transaction that is committed when `fn` returns, and rolled back when it raises."""
        ...

    async def migrate(self) -> int:
        """Brings the database to our version; the version that it had, 0 if it had no tables of ours."""
        ...

    async def scrub(self) -> None:
        """Removes what was deleted from where it may still be read."""
        ...

    async def aclose(self) -> None: ...


class SqlStore:
    """Sessions in a database: a `Store`. `patience`: seconds that a database which is away is waited for."""

    def __init__(self, database: Database, *, patience: float, is_dead: Callable[[str], bool] = is_dead) -> None:
        self._database = database
        self._patience = patience
        self._is_dead = is_dead

    # --- turns ----------------------------------------------------------------------------------------------

    async def take(
        self, record: RunRecord, *, lease_for: float, ticket: int | None = None, only: Which | None = None
    ) -> Taken | Busy:
        return await self._write(partial(turns.take, record=record, lease_for=lease_for, ticket=ticket, only=only))

    async def queue(self, session_id: str, run_id: str, owner: str, *, lease_for: float, first: bool) -> int:
        who = partial(turns.wait, session_id=session_id, run_id=run_id, owner=owner)
        return await self._write(partial(who, lease_for=lease_for, first=first, nonce=new_id()))

    async def leave(self, ticket: int) -> None:
        await self._write(partial(turns.give_up, ticket=ticket))

    async def renew(self, owner: str, *, lease_for: float) -> None:
        await self._write(partial(turns.renew, owner=owner, lease_for=lease_for))

    async def write(self, lease: Lease, at: int, messages: Sequence[Message], *, state: Any = UNSET) -> None:
        await self._write(partial(conversations.write, lease=lease, at=at, said=messages, state=state))

    async def compact(self, lease: Lease, checkpoint: Checkpoint) -> None:
        await self._write(partial(conversations.compact, lease=lease, checkpoint=checkpoint))

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
        closed = partial(turns.close, lease=lease, record=record, at=at, said=messages, state=state)
        await self._write(partial(closed, with_compactions=not forget_compactions))

    async def cut(self, lease: Lease, to: int, *, of_run: str | None = None) -> None:
        await self._erase(partial(conversations.cut, lease=lease, to=to, of_run=of_run))

    # --- between processes ----------------------------------------------------------------------------------

    async def ask_to_stop(self, run_id: str, cancellation: Cancellation) -> bool:
        return await self._write(partial(asking.ask_to_stop, run_id=run_id, cancellation=cancellation))

    async def waits(self, run_id: str) -> bool:
        return await self._read(partial(asking.waits, run_id=run_id))

    async def send(self, run_id: str, messages: Sequence[Message]) -> int:
        return await self._write(partial(asking.send, run_id=run_id, said=messages, nonce=new_id()))

    async def mail_state(self, id: int) -> MailState:
        return await self._read(partial(asking.mail_state, number=id))

    async def sort_mail(self, *, taken: Collection[int] = (), returned: Collection[int] = ()) -> None:
        if taken or returned:
            await self._write(partial(asking.sort_mail, taken=taken, returned=returned))

    async def asked(self, owner: str) -> Asked:
        if not await self._read(partial(asking.is_anything_asked, owner=owner)):
            return NOTHING
        return await self._write(partial(asking.hand_over, owner=owner, nonce=new_id()))

    async def sweep(self) -> None:
        def step(tx: Transaction) -> None:
            turns.sweep(tx)
            asking.sweep(tx)

        await self._write(step)

    # --- run records ----------------------------------------------------------------------------------------

    async def record(self, record: RunRecord, *, lease: Lease | None = None) -> None:
        await self._write(partial(turns.enter_record, record=record, lease=lease))

    async def add_late(self, run_id: str, late: LateResult) -> None:
        await self._write(partial(runs.add_late, run_id=run_id, late=late))

    async def run(self, run_id: str) -> RunRecord | None:
        return await self._read(partial(runs.get, run_id=run_id))

    async def runs(self, query: RunQuery) -> list[RunRecord]:
        return await self._read(partial(runs.find, query=query))

    async def lost(self, session_id: str | None = None) -> list[RunRecord]:
        return await self._read(lambda tx: list(runs.lost(tx, session_id)))

    async def forget_runs(self, before: float) -> int:
        most = 0

        def step(tx: Transaction) -> int:
            nonlocal most
            most = max(runs.forget_before(tx, before), most if tx.again else 0)
            return most

        return await self._erase(step, if_any=True)

    # --- sessions -------------------------------------------------------------------------------------------

    async def create(
        self,
        session: Session,
        messages: Sequence[Message] = (),
        checkpoint: Checkpoint | None = None,
        *,
        known: Mapping[FactScope, int] | None = None,
    ) -> bool:
        made = partial(sessions.create, session=session, said=messages, checkpoint=checkpoint, known=known or {})
        return await self._write(partial(made, nonce=new_id()))

    async def session(self, session_id: str) -> Session | None:
        return await self._read(partial(sessions.get, session_id=session_id))

    async def load(self, session_id: str, *, full: bool = False) -> Conversation | None:
        return await self._read(partial(conversations.load, session_id=session_id, full=full))

    async def snapshot(self, session_id: str) -> Snapshot | None:
        return await self._read(partial(turns.snapshot, session_id=session_id))

    async def update(self, session_id: str, changes: Mapping[str, Any]) -> Session | None:
        return await self._write(partial(sessions.update, session_id=session_id, changes=changes))

    async def entitle(self, session_id: str, title: str) -> None:
        await self._write(partial(sessions.entitle, session_id=session_id, title=title))

    async def find(self, query: Query) -> list[Session]:
        return await self._read(partial(sessions.find, query=query))

    async def search(
        self,
        text: str,
        *,
        prefix: str | None = None,
        user: str | None = None,
        session_id: str | None = None,
        limit: int = 20,
    ) -> list[Hit]:
        where = partial(sessions.search, prefix=prefix, user=user, session_id=session_id)
        return await self._read(partial(where, text=text, limit=limit))

    async def delete(self, session_id: str) -> bool:
        was_there = False

        def step(tx: Transaction) -> bool:
            nonlocal was_there
            was_there = sessions.delete(tx, session_id) or (tx.again and was_there)
            return was_there

        return await self._erase(step)

    async def forget_sessions(self, before: float, *, limit: int) -> list[str]:
        gone: list[str] = []

        def step(tx: Transaction) -> list[str]:
            gone.extend(sessions.forget_before(tx, before, limit))
            return list(dict.fromkeys(gone))

        return await self._erase(step, if_any=True)

    async def forget_user(self, user: str) -> None:
        await self._erase(partial(sessions.forget_user, user=user))

    # --- facts ----------------------------------------------------------------------------------------------

    async def facts(self, scope: FactScope, *, limit: int | None = None) -> list[Fact]:
        return await self._read(partial(facts.of, scope=scope, limit=limit))

    async def find_facts(self, scope: FactScope, text: str, *, limit: int) -> list[Fact]:
        return await self._read(partial(facts.find, scope=scope, text=text, limit=limit))

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
        known = {"session_id": session_id, "known_from": known_from, "known_upto": known_upto}
        carry_out = self._erase if forget else self._write
        return await carry_out(partial(facts.alter, scope=scope, put=put, forget=forget, **known))

    async def known(self, session_id: str) -> Mapping[FactScope, int]:
        return await self._read(partial(facts.known, session_id=session_id))

    async def recalled(self, ids: Collection[str], at: float) -> None:
        if ids:
            await self._write(partial(facts.recalled, ids=ids, at=at))

    # --- its tables -----------------------------------------------------------------------------------------

    @property
    def where(self) -> str:
        """The database, as errors name it: without a password."""
        return self._database.where

    async def migrate(self) -> int:
        """Brings the database's tables to this version; the version that they had, 0 if there were none."""
        return await self._trying(lambda again: self._database.migrate())

    # --- what cannot be read --------------------------------------------------------------------------------

    async def check(self, *, repair: bool) -> list[Damage]:
        return [damage async for damage in checking.checked(self._read, self._write, repair=repair)]

    # --- its own end ----------------------------------------------------------------------------------------

    async def aclose(self) -> None:
        await self._database.aclose()

    def __repr__(self) -> str:
        return f"<SqlStore, {self._database.where}>"

    # --- how a step is carried out --------------------------------------------------------------------------

    async def _read(self, step: Step[T]) -> T:
        return await self._patiently(self._database.read, step)

    async def _write(self, step: Step[T]) -> T:
        return await self._patiently(self._database.write, step)

    async def _erase(self, step: Step[T], *, if_any: bool = False) -> T:
        """A step that deletes what somebody has said. `if_any`: what it returns is false where there was nothing."""
        result = await self._write(step)
        if if_any and not result:
            return result
        try:
            await self._database.scrub()
        except Exception as error:  # it is deleted all the same
            _logger.warning("what was deleted may still be read in files of %s: %s", self._database.where, error)
        return result

    async def _patiently(self, carry_out: Callable[[Callable[[sa.Connection], T]], Any], step: Step[T]) -> T:
        return await self._trying(lambda again: carry_out(partial(self._step, step, again)))

    async def _trying(self, attempt: Callable[[bool], Awaitable[T]]) -> T:
        """`attempt(again)`, until it succeeds or patience is over. `again`: it may have happened before."""
        clock = asyncio.get_running_loop().time
        until, pause, again = clock() + self._patience, FIRST_PAUSE, False
        while True:
            try:
                return await attempt(again)
            except HalterError:
                raise
            except Exception as error:
                failure = failure_of(error)
                if failure is None:
                    raise
                if failure.is_mistake:
                    raise ConfigurationError(f"{self._database.where}: {failure.why}") from error
                if not failure.passes or clock() + pause > until:
                    raise SessionsUnavailable(
                        f"{self._database.where}: {failure.why}", retryable=failure.passes
                    ) from error
                again = again or failure.is_unsure
            await asyncio.sleep(pause * random.uniform(0.5, 1.0))
            pause = min(pause * 2, LONGEST_PAUSE)

    def _step(self, step: Step[T], again: bool, connection: sa.Connection) -> T:
        return step(Transaction(connection, self._database.dialect, self._is_dead, again))
