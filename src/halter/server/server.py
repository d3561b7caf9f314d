"""Everything that one app serves: its runnables, its store, its sessions, and who may use them."""

from __future__ import annotations

import asyncio
import hashlib
import logging
import time
from collections.abc import Callable, Iterable, Mapping
from typing import Any, cast
from weakref import WeakValueDictionary

import msgspec
from msgspec.structs import replace
from starlette.requests import HTTPConnection

from halter.core.budget import Budget
from halter.core.ids import new_id
from halter.core.run import Run
from halter.core.runnable import Runnable
from halter.errors import BusyError, ConfigurationError, SessionBusy
from halter.messages import Message
from halter.outcome import Cancellation, CancelMode, CancelReason
from halter.server.audit import AuditLog
from halter.server.bodies import PRIVILEGED, StartBody
from halter.server.ended import EndedFeed, feed_of, info_of
from halter.server.extras import NOTHING, Extras
from halter.server.limits import Limits, TenantUsage
from halter.server.listing import list_runs
from halter.server.logs import log_end
from halter.server.metrics import Metrics
from halter.server.names import Names
from halter.server.port import Begun, CancelAnswer, EventFeed, RunFilter, RunInfo, RunKey, RunPlan, RunStore
from halter.server.presence import OnDisconnect
from halter.server.principal import Auth, Principal
from halter.server.problems import Problem
from halter.server.readiness import Readiness
from halter.server.tags import RESERVED, ServerTags
from halter.server.views import RunView, run_view
from halter.sessions.place import SessionRef
from halter.sessions.records import Hit, RunRecord, Session
from halter.sessions.sessions import Sessions

FORGETTING = 10.0  # seconds for which the end of a run is waited for, before it is forgotten
_logger = logging.getLogger("halter.server")
MOST_AT_ONCE = 1_000_000  # runs that one request stops or forgets


class Server:
    """What the routes work with.

    Args:
        runnables: what can be started, by name.
        store: the runs.
        sessions: the conversations.
        auth: finds the principal of a request.
        max_runs: how many runs may be live at once, in this process.
        limits: what each tenant may have and spend.
        audit: where starts, stops, answers and deletions are recorded.
    """

    def __init__(
        self,
        runnables: Mapping[str, Runnable[Any]],
        *,
        store: RunStore,
        sessions: Sessions,
        auth: Auth,
        max_runs: int,
        limits: Limits | None = None,
        audit: AuditLog | None = None,
    ) -> None:
        self.runnables = dict(runnables)
        self.store = store
        self.sessions = sessions
        self.max_runs = max_runs
        self.usage = TenantUsage(limits or Limits())
        self.audit = audit or AuditLog()
        self.metrics = Metrics(store)
        store.on_ended = self._ended
        self.is_draining = False
        self.starting: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()  # by the id of a run
        self.readiness = Readiness(sessions)
        self.on_drained: Callable[[], object] = lambda: None  # called when all runs are over, before the process ends
        self.on_forced: Callable[[], object] = lambda: None  # called when the process is to end without waiting
        self._auth = auth

    # --- who asks -------------------------------------------------------------------------------------------

    async def principal(self, connection: HTTPConnection, scope: str) -> Principal:
        """Who asks. Raises `Problem` 401 without a valid key, 403 without the scope, 503 if keys cannot be read."""
        try:
            principal = await self._auth(connection)
        except ConfigurationError:
            _logger.exception("a request is refused, as keys cannot be checked")
            raise Problem(503, "keys cannot be checked; the server's log says why", retry_after=5) from None
        if principal is None:
            raise Problem(401, "no valid key: send `Authorization: Bearer <key>`", code="unauthorized")
        if scope not in principal.scopes:
            raise Problem(403, f"this key lacks the scope {scope!r}", code="forbidden")
        return principal

    # --- names ----------------------------------------------------------------------------------------------

    def names(self, tenant: str) -> Names:
        """How this tenant's sessions and users are stored."""
        return Names.of(tenant)

    def runnable(self, name: str) -> Runnable[Any]:
        """The runnable of this name. Raises `Problem` 422."""
        found = self.runnables.get(name)
        if found is None:
            known = ", ".join(sorted(self.runnables))
            raise Problem(422, f"there is no agent {name!r}; there are: {known}", code="unknown_agent")
        return found

    # --- starting -------------------------------------------------------------------------------------------

    async def begin(
        self, body: StartBody, principal: Principal, *, is_waiting: bool, extras: Extras = NOTHING
    ) -> Begun:
        """Starts a run, or finds the one that this id has started before. Raises `Problem`."""
        runnable = self.asked_runnable(body, extras)
        plan = self._plan(body, principal, runnable, is_waiting, extras)
        self._check_draining()
        try:
            begun = await self.store.begin(plan, lambda: self._run(runnable, body, principal, plan, extras))
        except BusyError as error:
            raise Problem(409, str(error), code="id_taken") from error
        if begun.result in ("new", "stopped"):
            self.usage.started(principal.tenant)
            self.audit.write(principal.tenant, principal.actor, "run.start", plan.key.id, begun.result)
        if begun.result == "conflict":
            raise id_conflict(plan.key.id)
        return begun

    def asked_runnable(self, body: StartBody, extras: Extras) -> Runnable[Any]:
        """What the request asks to run. Raises `Problem` for a request that cannot be."""
        runnable = extras.applied_to(self.runnable(body.agent))
        if reserved := next((tag for tag in body.tags if tag.startswith(RESERVED)), None):
            raise Problem(422, f"tag {reserved!r}: tags that begin with {RESERVED!r} are reserved", code="invalid")
        return runnable

    def check_room(self, tenant: str) -> None:
        """Raises `Problem` if the tenant cannot start a run now: 429 for its limits, 503 for the server's."""
        self._check_draining()
        self.usage.check(tenant)
        if self.store.live >= self.max_runs:
            raise Problem(503, f"{self.max_runs} runs are live, and that is the limit", code="full", retry_after=2)

    def _check_draining(self) -> None:
        if self.is_draining:
            raise Problem(503, "the server is shutting down: it starts no new runs", code="draining", retry_after=10)

    def _plan(
        self, body: StartBody, principal: Principal, runnable: Runnable[Any], is_waiting: bool, extras: Extras
    ) -> RunPlan:
        default: OnDisconnect = "cancel" if body.stream or is_waiting else "detach"
        asked = _asked(body, extras)
        return RunPlan(
            key=RunKey(principal.tenant, body.id or new_id()),
            agent=body.agent,
            kind=runnable.kind,
            actor=principal.actor,
            fingerprint=_digest(asked),
            size=len(asked),
            created_at=time.time(),
            session=body.session,
            user=body.user,
            tags=tuple(body.tags),
            metadata=extras.metadata,
            on_disconnect=body.on_disconnect or default,
            linger=body.linger,
        )

    def _run(
        self, runnable: Runnable[Any], body: StartBody, principal: Principal, plan: RunPlan, extras: Extras
    ) -> Run[Any]:
        self.check_room(principal.tenant)
        ours = ServerTags(tenant=principal.tenant, agent=body.agent, asked=plan.fingerprint).added()
        return runnable.run(
            read_input(body.input),
            history=extras.history,
            id=plan.key.id,
            session=self._session(body, principal),
            user=self.names(principal.tenant).stored(body.user) if body.user else None,
            timeout=body.timeout,
            budget=self._budgets(body, principal),
            tags=(*plan.tags, *ours),
            keep=body.keep,
            on_busy=body.on_busy,
        )

    def _session(self, body: StartBody, principal: Principal) -> SessionRef | None:
        """The conversation that the run continues; without one, its record alone, if records outlive the process."""
        if body.session is not None:
            return self.sessions.session(self.names(principal.tenant).stored(body.session))
        return self.sessions.record() if self.sessions.is_durable else None

    def _budgets(self, body: StartBody, principal: Principal) -> list[Budget]:
        """The tenant's budget, and the run's own."""
        own = [Budget(**body.budget.model_dump())] if body.budget else []
        shared = self.usage.budget(principal.tenant)
        return [shared, *own] if shared is not None else own

    def _ended(self, info: RunInfo) -> None:
        """A run is over, whoever ended it."""
        plan, stop = info.plan, info.cancellation
        self.usage.ended(plan.key.tenant)
        self.metrics.ended(info)
        self.audit.write(
            plan.key.tenant,
            (stop.actor if stop else None) or "halter",
            "run.ended",
            plan.key.id,
            info.status,
            reason=stop.reason if stop else None,
            mode=stop.mode if stop else None,
            message=stop.message if stop else None,
        )
        log_end(info)

    # --- looking --------------------------------------------------------------------------------------------

    async def find_run(self, key: RunKey) -> RunInfo | None:
        """A run of this tenant: one that the store knows, or else one that its record is left of."""
        info = await self.store.get(key)
        if info is not None and not info.is_cut:
            return info
        record = await self.earlier(key)
        if record is None:
            return info
        earlier = info_of(record, key.tenant)
        return replace(info, text=earlier.text, is_cut=False) if info is not None else earlier

    async def get_run(self, key: RunKey) -> RunView | None:
        """A run of this tenant, as its clients see it."""
        info = await self.find_run(key)
        return run_view(info) if info is not None else None

    async def record_of(self, key: RunKey) -> RunRecord | None:
        """The record of a run of this tenant. A database has one for an id: it may be that of another tenant's run."""
        record = await self.sessions.run(key.id)
        return record if record is not None and self._is_of(record, key.tenant) else None

    async def earlier(self, key: RunKey) -> RunRecord | None:
        """The record of a run of this tenant that is over; of an earlier process, as a rule."""
        record = await self.sessions.run(key.id)
        return record if record is not None and self.is_earlier(record, key.tenant) else None

    def is_earlier(self, record: RunRecord, tenant: str) -> bool:
        """Whether it is the record of a run of this tenant that is over."""
        return record.status.is_final and self._is_of(record, tenant)

    @staticmethod
    def _is_of(record: RunRecord, tenant: str) -> bool:
        return ServerTags.read(record.tags).tenant == tenant

    async def feed(self, key: RunKey) -> EventFeed | None:
        """A reader of a run's events; of one that has no log any more, of its end alone."""
        feed = await self.store.feed(key)
        if feed is not None and not isinstance(feed, EndedFeed):
            return feed
        info = await self.find_run(key)
        return feed_of(info) if info is not None else None

    async def list_runs(self, which: RunFilter) -> list[RunView]:
        """The runs that fit, the newest first."""
        return await list_runs(self.store, self.sessions, which)

    async def list_sessions(
        self, tenant: str, *, user: str | None, tag: str | None, text: str | None, limit: int, offset: int
    ) -> list[Session]:
        """The tenant's sessions that fit, the one that was used last first."""
        names = self.names(tenant)
        return await self.sessions.list(
            prefix=names.prefix,
            user=names.stored(user) if user else None,
            tag=tag,
            text=text,
            limit=limit,
            offset=offset,
        )

    async def search(self, tenant: str, text: str, *, session: str | None, user: str | None, limit: int) -> list[Hit]:
        """The tenant's messages in which all words of `text` occur."""
        names = self.names(tenant)
        return await self.sessions.search(
            text,
            prefix=names.prefix,
            session=names.stored(session) if session else None,
            user=names.stored(user) if user else None,
            limit=limit,
        )

    # --- stopping -------------------------------------------------------------------------------------------

    def cancellation(self, principal: Principal, *, mode: str, reason: str, message: str | None) -> Cancellation:
        """A stop in the name of who asks. Raises `Problem` 403 for a reason that needs the scope `admin`."""
        if reason in PRIVILEGED and "admin" not in principal.scopes:
            raise Problem(403, f"the reason {reason!r} needs the scope 'admin'", code="forbidden")
        return Cancellation(reason=CancelReason(reason), mode=CancelMode(mode), actor=principal.actor, message=message)

    @staticmethod
    def check_may_stop(who: Principal, doing: str) -> None:
        """Raises `Problem` 403 if the key lacks the scope `stop`. `doing`: the request that stops a run."""
        if "stop" not in who.scopes:
            raise Problem(403, f"{doing} stops its run: this key lacks the scope 'stop'", code="forbidden")

    async def delete_session(self, who: Principal, id: str) -> bool:
        """Stops a session's runs, and deletes it and all that is known of them; False if there is none.

        Raises `Problem` 403 if there is a run to stop, and the key lacks that scope.
        """
        stored = self.names(who.tenant).stored(id)
        try:
            is_deleted = await self.sessions.delete(stored, stop="stop" in who.scopes)
        except SessionBusy:
            self.check_may_stop(who, f"to delete session {id!r}")
            raise
        if is_deleted:
            await self._forget(RunFilter(tenant=who.tenant, session=id, limit=MOST_AT_ONCE))
            self.record(who, "session.delete", id, "deleted")
        return is_deleted

    async def delete_user(self, who: Principal, user: str) -> int:
        """Stops a user's runs, and deletes all that is kept of the user; how many sessions it were.

        Raises `Problem` 403 if there is a run to stop, and the key lacks that scope.
        """
        stop = Cancellation(reason=CancelReason.USER_STOP, actor=who.actor, message="the user is being deleted")
        of_user = RunFilter(tenant=who.tenant, user=user, limit=MOST_AT_ONCE)
        names = self.names(who.tenant)
        theirs = await self.sessions.list(prefix=names.prefix, user=names.stored(user), limit=MOST_AT_ONCE)
        live = await self.store.list(replace(of_user, is_live_only=True))
        if live or any(session.holder is not None for session in theirs):
            self.check_may_stop(who, f"to delete user {user!r}")
        for info in live:
            self.record_stop(who, info.plan.key, stop, await self.store.cancel(info.plan.key, stop))
        deleted = await self.sessions.delete_user(names.stored(user))
        for session in theirs:  # runs on them whose start did not name the user
            await self._forget(RunFilter(tenant=who.tenant, session=names.bare(session.id), limit=MOST_AT_ONCE))
        await self._forget(of_user)
        self.record(who, "user.delete", user, f"{deleted} sessions deleted")
        return deleted

    async def _forget(self, which: RunFilter) -> None:
        """Forgets the runs that fit, with their events, once they are over."""
        keys = [info.plan.key for info in await self.store.list(which)]
        await self.wait_for_all(keys, FORGETTING)
        for key in keys:
            await self.store.forget(key)

    async def wait_for_all(self, keys: Iterable[RunKey], seconds: float) -> list[RunInfo]:
        """The runs of these keys when all are over, or after this time."""
        found = await asyncio.gather(*(self.store.wait(key, seconds) for key in keys))
        return [info for info in found if info is not None]

    def record_stop(
        self,
        who: Principal,
        key: RunKey,
        stop: Cancellation,
        answer: CancelAnswer | None,
        *,
        tombstone: bool = False,
    ) -> None:
        """Writes a stop, and what came of it, into the audit log."""
        effect = _effect(answer, tombstone)
        self.record(who, "run.cancel", key.id, effect, reason=stop.reason, mode=stop.mode, message=stop.message)

    def record(self, who: Principal, action: str, target: str, effect: str, **facts: str | None) -> None:
        """Writes what somebody did into the audit log."""
        self.audit.write(who.tenant, who.actor, action, target, effect, **facts)


def _effect(answer: CancelAnswer | None, tombstone: bool) -> str:
    if answer is None:
        return "tombstone" if tombstone else "unknown"
    return "wrong_epoch" if answer.wrong_epoch else str(answer.info.status)


def id_conflict(id: str) -> Problem:
    """The problem of an id that is sent again with another body."""
    return Problem(409, f"run {id!r} was started with another body", code="id_conflict")


def fingerprint(body: StartBody, extras: Extras = NOTHING) -> str:
    """The same for bodies that ask for the same run."""
    return _digest(_asked(body, extras))


def _asked(body: StartBody, extras: Extras) -> bytes:
    derived = {"input"} if extras.asked is not None else set[str]()
    fields = body.model_dump(exclude={"id", "stream"} | derived)
    return msgspec.json.encode([fields, extras], order="sorted")


def _digest(asked: bytes) -> str:
    return hashlib.blake2b(asked, digest_size=16).hexdigest()


def read_input(given: Any) -> Any:
    """What the client sent, as a runnable takes it: a list of `{role, content}` becomes messages."""
    listed = cast("list[Any]", given) if isinstance(given, list) else []
    if listed and all(_is_message(each) for each in listed):
        return [_MAKERS[each["role"]](each["content"]) for each in listed]
    return cast("Any", given)


def _is_message(given: Any) -> bool:
    fields = cast("dict[str, Any]", given) if isinstance(given, dict) else {}
    return fields.keys() == {"role", "content"} and fields["role"] in _MAKERS and isinstance(fields["content"], str)


_MAKERS: dict[str, Any] = {"user": Message.user, "assistant": Message.assistant, "system": Message.system}


def checked_runnables(given: object) -> dict[str, Runnable[Any]]:
    """The runnables by name, from a mapping, several, or one. Raises `ConfigurationError`."""
    if isinstance(given, Runnable):
        return {given.name: given}
    pairs: list[tuple[Any, Any]]
    if isinstance(given, Mapping):
        pairs = list(given.items())  # pyright: ignore[reportUnknownVariableType,reportUnknownArgumentType]
    else:
        pairs = [(getattr(each, "name", None), each) for each in given]  # type: ignore[attr-defined]
    found: dict[str, Runnable[Any]] = {}
    for name, runnable in pairs:
        if not isinstance(runnable, Runnable):
            raise ConfigurationError(f"{name!r} must be something that runs, not {type(runnable).__name__}")
        if not isinstance(name, str) or not name:
            raise ConfigurationError(f"the name of {runnable!r} must be text, not {name!r}")
        if name in found:
            raise ConfigurationError(f"two runnables are named {name!r}: give a mapping with names of your own")
        found[name] = runnable  # pyright: ignore[reportUnknownVariableType]
    if not found:
        raise ConfigurationError("there is nothing to serve: give one runnable or more")
    return found
