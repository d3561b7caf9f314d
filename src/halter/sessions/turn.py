"""One run's turn on a session: waited for, taken, written down, and given back.

1. Whether the session is free is decided before anything else happens: nothing is said, stored or asked. 2. Who waits
has a place in a queue; who interrupts comes before those who just wait, and stops whoever has the turn. 3. A turn that
was lost with its process is repaired before the next one begins. 4. Cancelled while it waits, a run leaves nothing.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Hashable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec
from msgspec import UNSET

from halter.core.execution import Execution
from halter.core.lasting import whole
from halter.core.owner import retire
from halter.core.ports import Opened
from halter.core.run import Run
from halter.errors import ConfigurationError, SessionBusy, SessionsUnavailable
from halter.events import ToolLate
from halter.messages import Message
from halter.outcome import Cancellation, CancelReason, RunResult
from halter.sessions import recording
from halter.sessions.port import Busy, Conversation, Lease, Mail, Store, Taken
from halter.sessions.records import Checkpoint, RunRecord, Session
from halter.sessions.repair import repaired
from halter.sessions.steering import Steering, live_on
from halter.sessions.titles import first_words

if TYPE_CHECKING:
    from halter.sessions.place import Place

T = TypeVar("T")
SHORTEST_WAIT, LONGEST_WAIT = 0.02, 0.5  # seconds between two looks at a session that another process holds


class Turn:
    """One run's turn on the session `session_id`; without one, the run only has a record."""

    def __init__(self, place: Place, session_id: str | None) -> None:
        self._place = place
        self._session_id = session_id
        self._lease: Lease | None = None
        self._ticket: int | None = None
        self._has_record = False  # without having the session
        self._is_open = False  # it has the turn, and knows what was said
        self._total = 0  # messages of the session before this turn
        self._state: Any = None  # as it was stored last
        self._mail: dict[int, tuple[Message, ...]] = {}
        self._under_way: asyncio.Task[Any] | None = None

    @property
    def session_id(self) -> str | None:
        return self._session_id

    @property
    def user(self) -> str | None:
        return self._conversation.session.user if self._is_open else None

    @property
    def key(self) -> Hashable:
        """What no session of another place has."""
        return self._place, self._session_id

    @property
    def store(self) -> Store:
        return self._place.store

    @property
    def session(self) -> Session:
        """The session as it was when the turn began."""
        return self._conversation.session

    @property
    def run(self) -> Run[Any]:
        """A handle on the run whose turn it is, which does not own it."""
        return Run.observing(self._execution)

    # --- waiting for it -------------------------------------------------------------------------------------

    async def open(self, execution: Execution) -> Opened:
        """Waits for its turn as `on_busy` says. Raises `SessionBusy`, `SessionNotFound`, `SessionsUnavailable`."""
        self._execution = execution
        leases = self._leases = self._place.leases
        self._record = recording.begun(execution, leases.owner, has_content=self._has_content)
        if execution.options.id is not None:
            await self._whole(self._place.admit(self._record))
        leases.add(execution.id, self)
        if self._session_id is None:
            await self._whole(self._place.store.record(self._record))
            self._has_record = True
            return Opened()
        await self._whole(self._place.ready(leases.owner))
        answered = await self._wait(self._session_id)
        if answered is not None:
            self._has_record = True
            return Opened(answered=answered)
        return self._opened(self._conversation)

    async def _wait(self, session_id: str) -> RunResult[Any] | None:
        """Until it is this run's turn; or how the run has ended that it has steered."""
        on_busy = self._execution.options.on_busy
        patience = SHORTEST_WAIT
        holder = await self._first_look(session_id)
        if holder is not None and on_busy == "reject" and await self._whole(self._leases.settle(holder.holder)):
            holder = await self._whole(self._take())
        while holder is not None:
            self._refuse_in_vain(session_id, holder.holder)
            if on_busy == "steer" and holder.holder is not None:
                answered = await Steering(self._place, self._execution).into(holder.holder, session_id)
                if answered is not None:
                    return answered
            if self._ticket is None:
                await self._whole(self._queue(session_id))
            else:
                if on_busy == "interrupt" and holder.holder is not None:
                    await self._interrupt(holder.holder)
                await self._place.until_freed(session_id, patience)
                patience = min(2 * patience, LONGEST_WAIT)
            holder = await self._whole(self._take())
        return None

    async def _first_look(self, session_id: str) -> Busy | None:
        """Takes the turn; who may have to wait has a place in the queue before anybody looks who has come later."""
        if self._execution.options.on_busy not in ("enqueue", "interrupt"):
            return await self._whole(self._take())
        async with self._place.in_order(session_id):
            holder = await self._whole(self._take())
            if holder is None:
                return None
            self._refuse_in_vain(session_id, holder.holder)
            await self._whole(self._queue(session_id))
        return await self._whole(self._take())  # it may have become free meanwhile

    def _refuse_in_vain(self, session_id: str, holder: str | None) -> None:
        """Nobody waits for what can never come. Raises `SessionBusy`."""
        if any(holder == above.id for above in self._execution.ancestors()):
            raise SessionBusy(
                f"session {session_id!r} is that of run {holder}, under which this one runs: it cannot wait for it",
                session_id=session_id,
                holder=holder,
            )
        if self._execution.options.on_busy == "reject":
            who = f"run {holder} has its turn" if holder else "others wait for it"
            raise SessionBusy(
                f"session {session_id!r} is busy: {who}; on_busy= says what to do about that",
                session_id=session_id,
                holder=holder,
            )

    async def _take(self) -> Busy | None:
        """Takes the turn if it is free; what stands in the way, if anything does."""
        found = await self._place.store.take(self._record, lease_for=self._place.lease_for, ticket=self._ticket)
        if isinstance(found, Busy):
            return found
        self._lease, self._ticket = found.lease, None
        self._record = msgspec.structs.replace(self._record, user=found.conversation.session.user)
        self._conversation = await self._whole_conversation(found)
        return None

    async def _whole_conversation(self, taken: Taken) -> Conversation:
        before = taken.before
        if before is not None and self._is_lost_namesake(before):
            taken = msgspec.structs.replace(taken, lost=(*taken.lost, before))
        if not taken.lost:
            return taken.conversation
        found = await repaired(self._place.store, taken)
        self._record = msgspec.structs.replace(self._record, base=found.session.messages)
        await self._place.store.record(self._record, lease=taken.lease)
        return found

    def _is_lost_namesake(self, before: RunRecord) -> bool:
        """A job that is repeated under its own id. The record may also be ours, if the answer to `take` was lost."""
        here = before.session_id == self._record.session_id
        return here and not before.status.is_final and before.started_at != self._record.started_at

    async def _queue(self, session_id: str) -> None:
        first = self._execution.options.on_busy == "interrupt"
        owner, run_id = self._record.owner, self._record.run_id
        self._ticket = await self._place.store.queue(
            session_id, run_id, owner, lease_for=self._place.lease_for, first=first
        )

    async def _interrupt(self, holder: str) -> None:
        stop = Cancellation(reason=CancelReason.SUPERSEDED, message="another run has taken its turn on the session")
        live = live_on(self._session_id, holder)
        if live is not None:
            live.request_stop(stop)
        else:
            await self._whole(self._place.store.ask_to_stop(holder, stop))

    def _opened(self, conversation: Conversation) -> Opened:
        checkpoint = conversation.checkpoint
        said = (*(checkpoint.messages if checkpoint is not None else ()), *conversation.messages)
        self._total = conversation.session.messages
        self._state = conversation.session.state  # new work takes its place, also work that has no state
        self._record = msgspec.structs.replace(self._record, base=self._total)
        self._is_open = True
        return Opened(messages=said, state=conversation.session.state)

    # --- while it lasts -------------------------------------------------------------------------------------

    def _position(self, at: int) -> int:
        """Of the run's message `at` in the session."""
        return self._total + at - self._execution.base

    async def write(self, at: int, messages: Sequence[Message], state: Any) -> None:
        """From the run's message `at` on, what is said is `messages`; and this is its state."""
        if self._lease is not None:
            changed = self._changed(state)
            await self._place.store.write(self._lease, self._position(at), messages, state=changed)
            if changed is not UNSET:
                self._state = state

    def _changed(self, state: Any) -> Any:
        """The state as JSON, if it is another than was stored last. What may be rolled back is not stored before."""
        if state is UNSET or state is self._state or self._record.keep == "rollback":
            return UNSET
        return recording.as_data(state)

    async def compact(self, upto: int, messages: Sequence[Message]) -> None:
        """For a model, `messages` stand for the run's first `upto` messages from now on."""
        if self._lease is not None:
            before = self._conversation.checkpoint.messages if self._conversation.checkpoint is not None else ()
            if upto < len(before):  # a part of what an earlier one has put there stays
                upto, messages = len(before), (*messages, *before[upto:])
            made = Checkpoint(upto=self._position(upto), messages=tuple(messages), run_id=self._record.run_id)
            await self._place.store.compact(self._lease, made)

    def stop(self, cancellation: Cancellation) -> None:
        """Another process asks for it."""
        self._execution.request_stop(cancellation)

    def receive(self, mail: Mail) -> None:
        """Another process steers this run."""
        self._mail[mail.id] = mail.messages
        self._execution.steering.extend(mail.messages)

    # --- the end --------------------------------------------------------------------------------------------

    async def close(self, result: RunResult[Any], at: int, messages: Sequence[Message], state: Any) -> None:
        """A last write, the record, and the session is free. Raises `SessionsUnavailable`, `TurnLost`."""
        try:
            if self._under_way is not None and not self._under_way.done():
                await asyncio.wait([self._under_way])
            await self._close(result, at, messages, state)
        except SessionsUnavailable as error:
            if self._is_owed(error):
                self._leases.owe(self._record.run_id, partial(self._close, result, at, messages, state))
            raise
        except asyncio.CancelledError:  # the loop ends, and the place hangs
            self._has_ended()
            raise

    async def _close(self, result: RunResult[Any], at: int, messages: Sequence[Message], state: Any) -> None:
        try:
            await self._sort_mail(result)  # whoever has sent it looks at it when the record says that the run is over
            await self._give_back(result, at, messages, state)
        except BaseException as error:
            if not self._is_owed(error):
                self._has_ended()
            raise
        self._has_ended()

    def _is_owed(self, error: BaseException) -> bool:
        """What could not be stored now may be stored later, if only when somebody has made room on the disk."""
        return isinstance(error, SessionsUnavailable) and self._lease is not None

    def _has_ended(self) -> None:
        self._leases.remove(self._record.run_id)
        self._place.freed(self._session_id)

    async def _give_back(self, result: RunResult[Any], at: int, messages: Sequence[Message], state: Any) -> None:
        store = self._place.store
        record = recording.ended(self._record, result, has_content=self._has_content)
        if self._lease is not None:
            undone = record.keep == "rollback" and not result.is_completed
            changed = self._state_at_the_end(state, is_completed=result.is_completed)
            position = self._position(at) if self._is_open else await self._length(self._lease.session_id)
            await self._entitle(self._lease.session_id)  # before its turn ends: what fails is repeated
            await store.close(self._lease, record, position, messages, state=changed, forget_compactions=undone)
        if self._ticket is not None:
            await store.leave(self._ticket)
        if self._has_record:
            await store.record(record)

    async def _entitle(self, session_id: str) -> None:
        """A session without a title is called by what was said first; somebody may have given it one meanwhile.

        Of a turn that is rolled back nothing was said by now.
        """
        title = first_words(self._execution.conversation)
        if self._is_open and not (self._total or self.session.title) and title:
            await self._place.store.entitle(session_id, title)

    def _state_at_the_end(self, state: Any, *, is_completed: bool) -> Any:
        if is_completed:
            return UNSET if self._state is None else None  # there is nothing left to go on with
        try:
            return self._changed(state)
        except ConfigurationError:  # the run has failed of that
            return UNSET

    async def _length(self, session_id: str) -> int:
        """Of a session whose turn was taken and never begun: all of it stays."""
        found = await self._place.store.session(session_id)
        return 0 if found is None else found.messages

    async def _sort_mail(self, result: RunResult[Any]) -> None:
        if self._mail:
            left = {id(message) for message in result.undelivered}
            returned = [mail for mail, messages in self._mail.items() if any(id(each) in left for each in messages)]
            await self._place.store.sort_mail(taken=self._mail.keys() - {*returned}, returned=returned)

    async def late(self, event: ToolLate) -> None:
        """What came of a tool call after the run's end."""
        found = recording.late_result(event, has_content=self._has_content)
        await self._place.store.add_late(self._record.run_id, found)

    def lose(self) -> None:
        """The event loop is gone: whoever has the next turn repairs this one."""
        home = self._execution.home
        if home is not None and home.loop.is_closed():
            retire(self._record.owner)
        self._place.freed(self._session_id)

    @property
    def _has_content(self) -> bool:
        """The runtime's own work, learning, has a record without words: a fact that is forgotten is nowhere else."""
        return self._place.store_content and not self._execution.is_background

    async def _whole(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """Nothing in the store is cut short; what has been got by then is given back by `close`."""
        self._under_way = self._execution.work(coroutine)
        return await whole(self._under_way)
