"""What a place where sessions are kept can do: small atomic steps, the same in memory and in SQL.

1. A session has one holder at a time: a run with a `Lease`, which its owner renews; a lease that was not renewed in
time, or whose owner is dead, is taken over, and from then on every use of the old one raises `TurnLost`. 2. Each method
is one transaction: it happened whole, or not at all. 3. A method that is cancelled may have happened: callers shield
what they must know. 4. A database that is away for a moment is waited for; then `SessionsUnavailable`.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any, Literal, Protocol, TypeAlias

import msgspec
from msgspec import UNSET

from halter.errors import SessionNotFound, TurnLost
from halter.messages import Message
from halter.outcome import Cancellation
from halter.sessions.records import Checkpoint, Damage, Fact, FactScope, Hit, LateResult, RunRecord, Session

Which: TypeAlias = Literal["there", "lost"]  # a session that is there; one that is, for a run that was lost on it
MailState: TypeAlias = Literal["waiting", "taken", "returned"]


class Lease(msgspec.Struct, frozen=True, kw_only=True):
    """A run's turn on a session. `generation`: counts the session's leases, so that an old one is known as such."""

    session_id: str
    run_id: str
    generation: int


class Conversation(msgspec.Struct, frozen=True, kw_only=True):
    """What was said, as stored. `checkpoint`: the newest compaction; `messages`: those after it, or all of them."""

    session: Session
    messages: tuple[Message, ...]
    checkpoint: Checkpoint | None = None


class Snapshot(msgspec.Struct, frozen=True, kw_only=True):
    """A session as it is at one moment. `conversation`: in full. `lost`: runs on it that nobody carries any more.

    `live`: the record of the run that has its turn. `known`: as `Store.known` gives it.
    """

    conversation: Conversation
    lost: tuple[RunRecord, ...] = ()
    live: RunRecord | None = None
    known: Mapping[FactScope, int] = {}


class Taken(msgspec.Struct, frozen=True, kw_only=True):
    """The turn is yours. `lost`: runs on this session that had an owner and have none any more; repair comes first.

    `before`: the record of this run's id that yours has replaced.
    """

    lease: Lease
    conversation: Conversation
    lost: tuple[RunRecord, ...] = ()
    before: RunRecord | None = None


class Busy(msgspec.Struct, frozen=True, kw_only=True):
    """Somebody else has the turn, or is next. `holder`: the run that has it; `ticket`: its place, as a number."""

    holder: str | None
    ticket: int = 0


def check_is_still(only: Which, record: RunRecord, *, is_there: bool, before: RunRecord | None) -> None:
    """What `take` wants of the session and of the run's record `before`. Raises `SessionNotFound`, `TurnLost`."""
    if not is_there:
        raise SessionNotFound(f"session {record.session_id!r} was deleted meanwhile")
    if only == "lost" and (before is None or before.status.is_final):
        raise TurnLost(f"run {record.run_id} was ended by others meanwhile")


def live_of(holder: RunRecord | None, lost: Sequence[RunRecord]) -> RunRecord | None:
    """The record of the run that has a session's turn, unless it has ended, or is lost."""
    if holder is None or holder.status.is_final or any(each.run_id == holder.run_id for each in lost):
        return None
    return holder


def check_is_theirs(record: RunRecord, user: str | None) -> None:
    """Raises `SessionNotFound` if `record.user` says who talks and the session is not theirs but `user`'s.

    Another user's session, one of nobody, and one that is missing look alike.
    """
    if record.user is not None and record.user != user:
        raise SessionNotFound(f"there is no session {record.session_id!r}")


class Mail(msgspec.Struct, frozen=True, kw_only=True):
    """Messages for a live run of another process."""

    id: int
    run_id: str
    messages: tuple[Message, ...]


class Asked(msgspec.Struct, frozen=True, kw_only=True):
    """What others want of the runs of one owner: stops, by run id, and messages."""

    stops: Mapping[str, Cancellation]
    mail: tuple[Mail, ...]


class Query(msgspec.Struct, frozen=True, kw_only=True):
    """Which sessions, newest first. `text`: words that must all occur in its title or its messages.

    `prefix`: the id begins with it and has no `/` behind it; with `""` the id has no `/` at all.
    """

    prefix: str | None = None
    user: str | None = None
    tag: str | None = None
    text: str | None = None
    limit: int = 100
    offset: int = 0


class RunQuery(msgspec.Struct, frozen=True, kw_only=True):
    """Which run records, newest first. `since`, `until`: of their start, seconds since the epoch.

    `tags`: the record has all of these. `before`: the start and the id of a run, for the records behind it in the list.
    """

    session_id: str | None = None
    user: str | None = None
    status: str | None = None
    tags: tuple[str, ...] = ()
    before: tuple[float, str] | None = None
    since: float | None = None
    until: float | None = None
    limit: int = 100
    offset: int = 0


class Store(Protocol):
    """A place where sessions are kept. Safe for any number of tasks at once; each event loop may use the same object.

    Every method raises `SessionsUnavailable` when the place itself fails: gone, full, read-only, of another version.
    """

    # --- turns ----------------------------------------------------------------------------------------------

    async def take(
        self, record: RunRecord, *, lease_for: float, ticket: int | None = None, only: Which | None = None
    ) -> Taken | Busy:
        """Gives the run its turn on `record.session_id`, which is made if there is none, and enters its record.

        `record.owner`: whose lease it is. `lease_for`: seconds without renewal. Free is a session whose holder has
        none, a lease that has run out, or a dead owner, and for which nobody waits who comes before `ticket` (without
        one: nobody at all). `ticket` leaves the queue with the turn. The stored record's `base` is the number of
        messages there are; of a lost run, which is taken once more so that it can be ended, it stays what it was.
        `record.user`: a session that is made is theirs; raises `SessionNotFound` if one that is there is not. The
        stored record's `user` is the session's. `only`: asks nothing of the user, and raises `SessionNotFound` if there
        is no such session; for a lost run also `TurnLost`, if there is no
        record of it that is not final. Then nothing has changed.
        """
        ...

    async def queue(self, session_id: str, run_id: str, owner: str, *, lease_for: float, first: bool) -> int:
        """Waits for a turn: the ticket. `first`: before those who wait without it. It is renewed with the owner's."""
        ...

    async def leave(self, ticket: int) -> None:
        """Waits no longer."""
        ...

    async def renew(self, owner: str, *, lease_for: float) -> None:
        """Renews all leases and tickets of this owner."""
        ...

    async def write(self, lease: Lease, at: int, messages: Sequence[Message], *, state: Any = UNSET) -> None:
        """From the position `at` on, the conversation is `messages`. Raises `TurnLost`.

        `state`: the session's, if it has changed.
        """
        ...

    async def compact(self, lease: Lease, checkpoint: Checkpoint) -> None:
        """Adds a checkpoint. Raises `TurnLost`."""
        ...

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
        """`write`, the run's final record, and the session is free. `forget_compactions`: those of this run.

        Raises `TurnLost`; then nothing has changed.
        """
        ...

    # --- between processes ----------------------------------------------------------------------------------

    async def ask_to_stop(self, run_id: str, cancellation: Cancellation) -> bool:
        """Leaves word for whoever carries the run, or waits for its turn; False if nobody does."""
        ...

    async def waits(self, run_id: str) -> bool:
        """Whether somebody waits for this run's turn on a session."""
        ...

    async def send(self, run_id: str, messages: Sequence[Message]) -> int:
        """Leaves messages for a run; the id of this mail."""
        ...

    async def mail_state(self, id: int) -> MailState:
        """`waiting` until the run has taken it into its conversation, or has ended without (`returned`)."""
        ...

    async def sort_mail(self, *, taken: Collection[int] = (), returned: Collection[int] = ()) -> None:
        """What became of mail; its words are needed no more."""
        ...

    async def asked(self, owner: str) -> Asked:
        """What is asked of this owner's runs, each stop and each mail once."""
        ...

    async def sweep(self) -> None:
        """Removes what dead processes have left besides runs: places in queues, and mail that nobody will read."""
        ...

    # --- run records ----------------------------------------------------------------------------------------

    async def record(self, record: RunRecord, *, lease: Lease | None = None) -> None:
        """Enters or replaces the record of a run. `lease`: of a turn that this is part of; raises `TurnLost`."""
        ...

    async def add_late(self, run_id: str, late: LateResult) -> None:
        """Adds to the record of a run that has ended; nothing if there is none."""
        ...

    async def run(self, run_id: str) -> RunRecord | None: ...

    async def runs(self, query: RunQuery) -> list[RunRecord]: ...

    async def lost(self, session_id: str | None = None) -> list[RunRecord]:
        """Records that are not final and whose owner is dead, or whose lease has run out; of one session, or of all."""
        ...

    async def forget_runs(self, before: float) -> int:
        """Deletes final records that ended before this time (seconds since the epoch); how many."""
        ...

    # --- sessions -------------------------------------------------------------------------------------------

    async def create(
        self,
        session: Session,
        messages: Sequence[Message] = (),
        checkpoint: Checkpoint | None = None,
        *,
        known: Mapping[FactScope, int] | None = None,
    ) -> bool:
        """Makes a session with all that is given; False, and nothing, if there is one of this id."""
        ...

    async def session(self, session_id: str) -> Session | None:
        """The session alone; `None` if there is none."""
        ...

    async def load(self, session_id: str, *, full: bool = False) -> Conversation | None:
        """`full`: all messages, whatever was compacted."""
        ...

    async def snapshot(self, session_id: str) -> Snapshot | None:
        """The whole conversation and the state of its runs, read at one moment; `None` if there is no such session."""
        ...

    async def update(self, session_id: str, changes: Mapping[str, Any]) -> Session | None:
        """Changes `user`, `title`, `tags`, `metadata` or `state`; the session as it is then."""
        ...

    async def entitle(self, session_id: str, title: str) -> None:
        """Gives a session its title if it has none."""
        ...

    async def find(self, query: Query) -> list[Session]: ...

    async def search(
        self,
        text: str,
        *,
        prefix: str | None = None,
        user: str | None = None,
        session_id: str | None = None,
        limit: int = 20,
    ) -> list[Hit]:
        """Messages in which all these words occur, the newest first. `prefix`: of the session's id, as in `Query`."""
        ...

    async def cut(self, lease: Lease, to: int, *, of_run: str | None = None) -> None:
        """Deletes all messages from the position `to` on, and compactions that reach further or are of this run.

        Raises `TurnLost`.
        """
        ...

    async def delete(self, session_id: str) -> bool:
        """With its messages, compactions, records, facts, queue and mail. False if there is none."""
        ...

    async def forget_sessions(self, before: float, *, limit: int) -> list[str]:
        """Deletes sessions that nobody has used since this time (seconds since the epoch); their ids, `limit` at most.

        As `delete`. One that a run has, or waits for, stays.
        """
        ...

    async def forget_user(self, user: str) -> None:
        """Deletes the facts of this user, and the records of runs in which this user talked."""
        ...

    # --- facts ----------------------------------------------------------------------------------------------

    async def facts(self, scope: FactScope, *, limit: int | None = None) -> list[Fact]:
        """The newest first."""
        ...

    async def find_facts(self, scope: FactScope, text: str, *, limit: int) -> list[Fact]:
        """Those that share words with the text, the best first: more and rarer words count more."""
        ...

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
        """Enters or replaces facts by their ids, deletes others of this scope, and notes how far `session_id` has been
        learned from for this scope.

        `known_from`: only if there still is that session, and this is how far it was; else False, and nothing has
        changed.
        """
        ...

    async def known(self, session_id: str) -> Mapping[FactScope, int]:
        """By scope, up to which message facts were taken from this session; after a `cut`, never more than are left."""
        ...

    async def recalled(self, ids: Collection[str], at: float) -> None:
        """Notes when facts were last used."""
        ...

    # --- what cannot be read --------------------------------------------------------------------------------

    async def check(self, *, repair: bool) -> list[Damage]:
        """All rows that cannot be read. `repair`: each is replaced, or deleted, as its `remedy` says."""
        ...

    # --- its own end ----------------------------------------------------------------------------------------

    async def aclose(self) -> None:
        """Lets go of what this event loop holds of it: connections. It may be used again."""
        ...
