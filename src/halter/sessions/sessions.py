"""`Sessions`: a place where conversations are kept, as users hold it.

1. It is opened when it is first used; then what lost processes have left is brought to an end. 2. What takes several
steps is one piece of work: whoever awaits it may be cancelled, and it goes on to its end. 3. Arguments are checked
before anything happens.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Coroutine, Hashable, Iterable, Mapping, Sequence
from os import PathLike
from types import TracebackType
from typing import Any, Self, TypeAlias, TypeVar

from msgspec.structs import replace

from halter import checked
from halter.core import held
from halter.core.home import home_here
from halter.core.ids import new_id
from halter.core.lasting import whole
from halter.core.settings import UNCHANGED, seconds
from halter.errors import SessionDamaged, SessionNotFound, UsageError
from halter.messages import Message, MessageInput, as_messages
from halter.outcome import RunStatus
from halter.sessions import given
from halter.sessions.cutting import whole_cut
from halter.sessions.deleting import refuse_from_inside, refuse_while_held, stop_all
from halter.sessions.exporting import Export, ExportInput, exported, exported_user, read_export
from halter.sessions.fact_book import FactBook
from halter.sessions.opening import opened
from halter.sessions.place import Place, SessionRef
from halter.sessions.port import Conversation, Query, RunQuery, Snapshot, Store
from halter.sessions.reading import as_next_found, as_read, as_told, compacted, over, sealed
from halter.sessions.records import Damage, FactScope, Hit, RunRecord, Session
from halter.sessions.repair import recover
from halter.sessions.rewinding import rewind
from halter.sessions.titles import first_words

T = TypeVar("T")
# In the class below, `list` is a method.
Found: TypeAlias = list[Session]
Hits: TypeAlias = list[Hit]
Records: TypeAlias = list[RunRecord]
Damages: TypeAlias = list[Damage]
ID = "the id of a session"
NINETY_DAYS = 90 * 86_400.0
_logger = logging.getLogger("halter")


class Sessions:
    """Conversations that outlive their runs, their process, and every stop.

    `where`: `None` or `"memory"`, for as long as this process lives; a path, for an SQLite file; a URL, as in
    `postgresql://user@host/name`; or a `Store`. `store_content`: whether records of runs hold what was asked and
    answered; conversations always do. `keep_runs`: seconds after which records are deleted; `None`: never.
    `keep_sessions_for`: seconds after their last use for which sessions are kept; then they are deleted, as `delete`
    does; `None`: for ever. `patience`: seconds for which a database that is away is waited for. `migrate`: whether
    tables are made, and brought to this version, at the first use; with `False` a database of another version raises
    `SessionsUnavailable`, and the command `halter sessions migrate` changes it. Raises `ConfigurationError`.

    All methods raise `SessionsUnavailable` if the place fails, and `ConfigurationError` for arguments that cannot be.
    They may be cancelled: what they do happens whole or not at all. Any event loop may use the same object.
    """

    def __init__(
        self,
        where: str | PathLike[str] | Store | None = None,
        *,
        store_content: bool = True,
        keep_runs: float | None = NINETY_DAYS,
        keep_sessions_for: float | None = None,
        patience: float = 15.0,
        migrate: bool = True,
    ) -> None:
        checked.one_of("store_content", store_content, (True, False))
        keep_runs = seconds("keep_runs", keep_runs, or_none=True)
        checked.one_of("migrate", migrate, (True, False))
        store, is_shared = opened(where, patience=seconds("patience", patience) or 0.0, migrate=migrate)
        self._place = Place(
            lambda: store,
            store_content=store_content,
            is_shared=is_shared,
            keep_runs=keep_runs,
            keep_sessions_for=seconds("keep_sessions_for", keep_sessions_for, or_none=True),
        )
        self._has_begun = not is_shared
        self._is_durable = is_shared
        self._where = store

    @property
    def is_durable(self) -> bool:
        """True if what is kept here outlives the process."""
        return self._is_durable

    @property
    def facts(self) -> FactBook:
        """What is known of those who have talked here: to look at, and to correct."""
        return FactBook(self._store)

    # --- for runs -------------------------------------------------------------------------------------------

    def session(self, id: str) -> SessionRef:
        """The session of this id, for `run(session=…)`; it need not exist: its first run makes it."""
        return SessionRef(self._place, given.name(ID, id))

    def record(self) -> SessionRef:
        """For a run without a session, which has a record here."""
        return SessionRef(self._place, None)

    @property
    def shared_place(self) -> Place | None:
        """For the runtime: through it runs of other processes are stopped; `None` if there can be none."""
        return self._place if self._place.is_shared else None

    # --- one session ----------------------------------------------------------------------------------------

    async def create(
        self,
        id: str | None = None,
        *,
        user: str | None = None,
        title: str = "",
        tags: Iterable[str] = (),
        metadata: Mapping[str, Any] | None = None,
        state: Any = None,
        messages: MessageInput = (),
    ) -> Session:
        """Makes a session before its first run, with all that is given. Raises `UsageError` if there is one.

        `id`: 1 to 256 characters; a new one if it is left out. `user`: whose it is. `state`: what a first run of a
        team, a crew or a flow goes on from. `messages`: what was said before.
        """
        said = as_messages(messages) if messages else ()
        fields = given.changes(user=user, title=title, tags=tags, metadata=metadata or {}, state=state)
        return await self._made(Session(id=_id(id), **fields), Conversation(session=Session(id=""), messages=said))

    async def get(self, id: str) -> Session:
        """The session, without its messages. Raises `SessionNotFound`."""
        given.name(ID, id)
        await self._begin()
        return _there(await self._store.session(id), id)

    async def history(self, id: str, *, full: bool = False) -> tuple[Message, ...]:
        """What was said, fit for `history=` of any run. Raises `SessionNotFound`.

        What was compacted is there as its summary; `full`: as it was said. What a lost process has left is shown as the
        next run will find it; what a live run is saying, as far as it has come: calls that still run have a result that
        says so.
        """
        found = await self._loaded(id, full=full)
        if found.session.holder is None:
            return as_told(sealed(found), full=full)
        read = as_read(await self._seen(id))
        return as_told(read if full else compacted(read), full=full)

    async def update(
        self,
        id: str,
        *,
        user: Any = UNCHANGED,
        title: Any = UNCHANGED,
        tags: Any = UNCHANGED,
        metadata: Any = UNCHANGED,
        state: Any = UNCHANGED,
    ) -> Session:
        """Changes what is given, as in `create`; the session as it is then. Raises `SessionNotFound`.

        A run that has the session's turn may store another `state` afterwards.
        """
        all_given = {"user": user, "title": title, "tags": tags, "metadata": metadata, "state": state}
        given.name(ID, id)
        changes = given.changes(**{name: value for name, value in all_given.items() if value is not UNCHANGED})
        await self._begin()
        return _there(await self._store.update(id, changes), id)

    async def fork(self, id: str, *, at: int | None = None, to: str | None = None) -> Session:
        """Makes another session that begins with the first `at` messages of this one, and goes its own way.

        `at`: as in `history(full=True)`; all if it is left out. It moves back where it would part an answer from the
        results of its calls, and to before a turn that is under way. `to`: the new id. The state goes along with a
        whole conversation only. Raises `SessionNotFound`, and `UsageError` if there are not so many messages, or there
        is a session of the new id.
        """
        at = None if at is None else checked.whole("at", at, at_least=0)
        new = _id(to)
        seen = await self._seen(id)
        there, found = as_next_found(seen), over(seen)
        session, said = found.session, found.messages
        upto = whole_cut(said, min(len(said), _within(there, len(said) if at is None else at)))
        session = replace(session, id=new, state=session.state if upto == len(said) else None)
        checkpoint = found.checkpoint if found.checkpoint is not None and found.checkpoint.upto <= upto else None
        own = FactScope("session", id)
        # Not to be learned again, as somebody may have had it forgotten since; but of the session itself it is.
        known = {of: min(far, upto) for of, far in seen.known.items() if of != own}
        return await self._made(session, replace(found, messages=said[:upto], checkpoint=checkpoint), known=known)

    async def rewind(self, id: str, to: int) -> Session:
        """Takes back all but the first `to` messages, and the state that came of them; the session as it is then.

        `to`: as in `history(full=True)`. It moves back where it would part an answer from the results of its calls.
        Raises `SessionNotFound`, `SessionBusy` while a run has the session's turn or waits for it, and `UsageError` if
        there are not so many messages. It leaves a record of its own, of the kind `rewind`.
        """
        checked.whole("to", to, at_least=0)
        _within(as_next_found(await self._seen(id)), to)
        await self._whole(rewind(self._place, id, to))
        return await self.get(id)

    async def export(self, id: str) -> Export:
        """The session and all that was said in it, as data that `json.dumps` takes. Raises `SessionNotFound`.

        A turn that is under way is not in it.
        """
        return exported(over(await self._seen(id)))

    async def export_user(self, user: str) -> Export:
        """All that is kept of a user, as data that `json.dumps` takes: their sessions, facts, and records of runs.

        Sessions that cannot be read are listed under `damaged`, each with its `id` and `why`, and logged.
        """
        given.name("user", user)
        await self._begin()
        sessions: dict[str, Export | None] = {}
        damaged: dict[str, str] = {}
        for session in await self._all_of(user):
            try:
                sessions[session.id] = await self._exported(user, session.id)
            except SessionDamaged as error:
                damaged[session.id] = str(error)
        for session in await self._all_of(user):  # it is there, and not found by its id
            if session.id in sessions and sessions[session.id] is None:
                damaged[session.id] = f"session {session.id!r} is damaged: its stored id cannot be read"
        for why in damaged.values():
            _logger.warning("the export of user %r lacks a session: %s", user, why)
        facts = await self._store.facts(FactScope("user", user))
        runs = await self._store.runs(RunQuery(user=user, limit=given.ALL))
        whole = [session for session in sessions.values() if session is not None]
        return exported_user(user, whole, damaged, facts, runs)

    async def import_(self, data: ExportInput, *, id: str | None = None) -> Session:
        """Makes a session of what `export` gave, also as JSON text. Raises `UsageError` if there is one of its id.

        `id`: another than it had. All of it is checked first: `ConfigurationError` for what is no such export.
        """
        found = read_export(data)
        old = found.session
        fields = given.changes(user=old.user, title=old.title, tags=old.tags, metadata=old.metadata, state=old.state)
        session = replace(old, id=given.name(ID, old.id if id is None else id), **fields)
        conversation = Conversation(session=session, messages=found.messages, checkpoint=found.compaction)
        return await self._made(session, conversation, is_new=False)

    async def delete(self, id: str, *, stop: bool = True) -> bool:
        """Deletes a session with its messages, records and facts; False if there is none.

        Its runs in this process are stopped first, and what it holds there, such as programs in the background, is
        ended; a run of another process loses its turn. `stop=False`: raises `SessionBusy` while a run has its turn.
        Raises `BusyError` inside such a run.
        """
        key = self.session(id).key
        refuse_from_inside(key)
        await self._begin()
        if not stop:
            refuse_while_held(await self._store.session(id), await self._store.lost(id))
        return await self._whole(self._delete(id, key))

    async def delete_user(self, user: str) -> int:
        """Deletes all of a user: their sessions as `delete` does, their facts and records. How many sessions it were.

        Raises `BusyError` inside a run on one of these sessions, before anything is deleted, and `SessionDamaged` when
        all is deleted but sessions whose stored ids cannot be read. Their runs that are live in this process are
        stopped.
        """
        given.name("user", user)
        await self._begin()
        keys = {session.id: SessionRef(self._place, session.id).key for session in await self._all_of(user)}
        for key in keys.values():
            refuse_from_inside(key)
        deleted = sum([await self._whole(self._delete(id, key)) for id, key in keys.items()])
        await self._whole(self._store.forget_user(user))
        for session in await self._all_of(user):
            if session.id in keys:
                raise SessionDamaged(
                    f"session {session.id!r} could not be deleted: its stored id is damaged", session_id=session.id
                )
            deleted += await self.delete(session.id)  # made meanwhile
        return deleted

    async def end(self, id: str) -> None:
        """Ends what the session holds in this process, such as programs in the background; it may be used again."""
        await held.end(self.session(id).key)

    # --- many sessions --------------------------------------------------------------------------------------

    async def list(
        self,
        *,
        prefix: str | None = None,
        user: str | None = None,
        tag: str | None = None,
        text: str | None = None,
        limit: int = 100,
        offset: int = 0,
    ) -> Found:
        """The sessions of this user, with this tag, and with all words of this text in their title or in one message.

        `prefix`: only ids that begin with it and have no `/` behind it: `"acme/"` finds `"acme/chat"`, and neither
        `"acme/old/chat"` nor `"chat"`. The one that was used last comes first; `limit` at most, without the first
        `offset`.
        """
        found = given.texts(prefix=prefix, user=user, tag=tag, text=text)
        query = Query(**found, **given.page(limit, offset))
        await self._begin()
        return await self._store.find(query)

    async def search(
        self,
        text: str,
        *,
        prefix: str | None = None,
        user: str | None = None,
        session: str | None = None,
        limit: int = 20,
    ) -> Hits:
        """The messages in which all these words occur, of this user or this session, the newest first.

        `prefix`: of the sessions' ids, as in `list`.
        """
        where = given.texts(prefix=prefix, user=user, session_id=session)
        limit = given.most(limit)
        checked.text("text", text)
        await self._begin()
        return await self._store.search(text, limit=limit, **where)

    # --- runs -----------------------------------------------------------------------------------------------

    async def runs(
        self,
        *,
        session: str | None = None,
        user: str | None = None,
        status: str | None = None,
        tag: str | Sequence[str] | None = None,
        since: float | None = None,
        until: float | None = None,
        before: tuple[float, str] | None = None,
        limit: int = 100,
        offset: int = 0,
    ) -> Records:
        """The records of runs, the newest first. `user`: of runs in which this user talked. `tag`: one tag, or several
        that they all have. `since`, `until`: of their start, seconds since the epoch. `before`: `started_at` and
        `run_id` of a record, for those behind it in the list.
        """
        if status is not None:
            checked.one_of("status", status, tuple(RunStatus))
        what = given.texts(session_id=session, user=user, status=status)
        query = RunQuery(
            **what,
            **given.times(since=since, until=until),
            **given.page(limit, offset),
            tags=given.some_tags(tag),
            before=before,
        )
        await self._begin()
        return await self._store.runs(query)

    async def run(self, id: str) -> RunRecord | None:
        """The record of a run; `None` if there is none."""
        checked.text("the id of a run", id)
        await self._begin()
        return await self._store.run(id)

    async def prune(self) -> int:
        """Deletes records of runs that ended more than `keep_runs` seconds ago, and sessions that were last used more
        than `keep_sessions_for` seconds ago; how many it were.

        It happens by itself at the first use in a process, and every hour in which it is used.
        """
        await self._begin()
        return await self._place.prune()

    async def recover(self) -> Records:
        """Brings to an end what lost processes have left: the records of their runs, as `cancelled` (`owner_lost`).

        It happens by itself at the first use, and to a session when its next run begins.
        """
        return await self._whole(recover(self._store, self._place.leases.owner))

    async def check(self, *, repair: bool = False) -> Damages:
        """Looks for stored rows that cannot be read; they spoil one session, run or fact each.

        `repair`: replaces them, or deletes them, as each one's `remedy` says; what could not be read is lost then.
        """
        checked.one_of("repair", repair, (True, False))
        return await self._whole(self._store.check(repair=repair))

    # --- its own end ----------------------------------------------------------------------------------------

    async def aclose(self) -> None:
        """Closes what this event loop has of it: connections. It may be used again; the loop's end does it as well."""
        await self._store.aclose()
        self._place.let_go()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self.aclose()

    def __repr__(self) -> str:
        return f"<Sessions in {self._where!r}>"

    # --- what its methods are made of -----------------------------------------------------------------------

    async def _begin(self) -> None:
        if self._has_begun:
            self._place.in_use()
        else:
            await self._whole(self._place.ready(self._place.leases.owner))
            self._has_begun = True

    @property
    def _store(self) -> Store:
        return self._place.store

    async def _whole(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """Its result; cancelled, it is left to go on to its end."""
        return await whole(home_here().work(coroutine, "sessions"))

    async def _delete(self, id: str, key: Hashable) -> bool:
        await stop_all(key)
        await held.end(key)
        return await self._store.delete(id)

    async def _all_of(self, user: str) -> Found:
        return await self._store.find(Query(user=user, limit=given.ALL))

    async def _exported(self, user: str, id: str) -> Export | None:
        """`None` if it was deleted meanwhile, or is another user's now."""
        seen = await self._store.snapshot(id)
        is_theirs = seen is not None and seen.conversation.session.user == user
        return exported(over(seen)) if seen is not None and is_theirs else None

    async def _loaded(self, id: str, *, full: bool = False) -> Conversation:
        given.name(ID, id)
        await self._begin()
        return _there(await self._store.load(id, full=full), id)

    async def _seen(self, id: str) -> Snapshot:
        given.name(ID, id)
        await self._begin()
        return _there(await self._store.snapshot(id), id)

    async def _made(
        self,
        session: Session,
        content: Conversation,
        *,
        is_new: bool = True,
        known: Mapping[FactScope, int] | None = None,
    ) -> Session:
        now = time.time()
        if is_new:
            session = replace(session, created_at=now, updated_at=now)
        session = replace(session, title=session.title or first_words(content.messages))
        await self._begin()
        if not await self._store.create(session, content.messages, content.checkpoint, known=known):
            raise UsageError(f"there is a session {session.id!r}")
        return await self.get(session.id)


def _id(given_id: str | None) -> str:
    return new_id() if given_id is None else given.name(ID, given_id)


def _there(found: T | None, id: str) -> T:
    if found is None:
        raise SessionNotFound(f"there is no session {id!r}")
    return found


def _within(found: Conversation, at: int) -> int:
    """The position, if the conversation reaches so far. Raises `UsageError`."""
    if at > found.session.messages:
        raise UsageError(f"session {found.session.id!r} has {found.session.messages} messages, and no {at}")
    return at
