"""ADK's sessions: those of the tenant, with a state that the client keeps in them."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, cast
from weakref import WeakValueDictionary

from halter.core.ids import new_id
from halter.errors import SessionNotFound, UsageError
from halter.messages import Message
from halter.server.fronts.adk.bodies import NewSessionBody
from halter.server.fronts.adk.contents import Json, message_fields, restored
from halter.server.fronts.adk.format import NO_ACTIONS
from halter.server.fronts.adk.session_ids import AdkSession, client_id, prefix_of, user_id
from halter.server.principal import Principal
from halter.server.problems import Problem
from halter.server.server import Server
from halter.sessions.records import RunRecord, Session

MOST_LISTED = 1_000
_MOST_RECORDS = 10_000
_OF_ONE_RUN = "temp:"  # keys of a state that are not kept
_KEY = "adk"  # in the metadata of a session


class AdkSessions:
    """What the routes of ADK do with the sessions of a server.

    A state is changed by reading and writing the session's metadata: one change after another, in this process.
    """

    def __init__(self, server: Server) -> None:
        self._server = server
        self._changing: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()

    async def create(self, who: Principal, app: str, user: str, body: NewSessionBody) -> Json:
        """Makes a session. Raises `Problem` 404 for an unknown app, 409 if there is one of its id."""
        self.check_app(app)
        if body.options:
            raise Problem(400, "session options are not supported", code="unsupported")
        session = AdkSession(app, user, (body.session_id or "").strip() or new_id())
        stored = self._server.names(who.tenant).stored
        id = stored(session.stored)
        try:
            made = await self._server.sessions.create(
                id,
                user=stored(user_id(user)),
                metadata=_with_state({}, {}, body.state or {}),
                messages=restored(body.events or ()),
            )
        except UsageError as error:
            if await self._is_there(id):
                raise Problem(409, f"Session already exists: {session.id}", code="session_exists") from error
            raise
        return await self._shown_whole(session, made, who)

    async def _is_there(self, id: str) -> bool:
        try:
            await self._server.sessions.get(id)
        except SessionNotFound:
            return False
        return True

    async def find(self, who: Principal, session: AdkSession) -> Session:
        """The session. Raises `Problem` 404."""
        try:
            return await self._server.sessions.get(self._server.names(who.tenant).stored(session.stored))
        except SessionNotFound:
            raise Problem(404, f"Session not found: {session.id}", code="session_not_found") from None

    async def show(self, who: Principal, session: AdkSession) -> Json:
        """The session with its conversation. Raises `Problem` 404."""
        return await self._shown_whole(session, await self.find(who, session), who)

    async def list(self, who: Principal, app: str, user: str) -> Sequence[Json]:
        """The sessions of this app and user without their conversations, the one that was used last first."""
        self.check_app(app)
        prefix = self._server.names(who.tenant).stored(prefix_of(app, user))
        found = await self._server.sessions.list(prefix=prefix, limit=MOST_LISTED)
        return [_shown(AdkSession(app, user, client_id(each.id)), each) for each in found]

    async def delete(self, who: Principal, session: AdkSession) -> None:
        """Stops its runs and deletes it; unknown ones too, as ADK does."""
        self.check_app(session.app)
        await self._server.delete_session(who, session.stored)

    async def change_state(self, who: Principal, session: AdkSession, delta: Mapping[str, Any]) -> Session:
        """Changes the state by what is given. Raises `Problem` 404."""
        lock = self._changing.setdefault(f"{who.tenant}/{session.stored}", asyncio.Lock())
        async with lock:
            found = await self.find(who, session)
            if not delta:
                return found
            metadata = _with_state(found.metadata, _state_of(found), delta)
            return await self._server.sessions.update(found.id, metadata=metadata)

    def check_app(self, app: str) -> None:
        """Raises `Problem` 404 for an app that is not served."""
        if app not in self._server.runnables:
            known = ", ".join(sorted(self._server.runnables))
            raise Problem(404, f"there is no app {app!r}; there are: {known}", code="unknown_agent")

    async def _shown_whole(self, session: AdkSession, found: Session, who: Principal) -> Json:
        if not found.messages:
            return _shown(session, found)
        said = await self._server.sessions.history(found.id, full=True)
        records = await self._server.sessions.runs(session=found.id, limit=_MOST_RECORDS)
        return {**_shown(session, found), "events": list(_events(session, found, said, records))}


def _shown(session: AdkSession, found: Session) -> Json:
    names = {"id": session.id, "appName": session.app, "userId": session.user}
    return {**names, "state": _state_of(found), "events": [], "lastUpdateTime": found.updated_at or time.time()}


def _state_of(session: Session) -> Json:
    ours = session.metadata.get(_KEY)
    state = cast("Json", ours).get("state") if isinstance(ours, dict) else None
    return dict(cast("Json", state)) if isinstance(state, dict) else {}


def _with_state(metadata: Mapping[str, Any], state: Json, delta: Mapping[str, Any]) -> Json:
    kept = {name: value for name, value in delta.items() if not name.startswith(_OF_ONE_RUN)}
    return {**metadata, _KEY: {"state": {**state, **kept}}}


def _events(
    session: AdkSession, found: Session, said: Iterable[Message], records: Iterable[RunRecord]
) -> Iterable[Json]:
    """The messages as events; who wrote them, when and in which run, as far as there are records of it."""
    turns = sorted(records, key=lambda record: (record.base, record.started_at))
    turn: RunRecord | None = None
    calls: dict[str, str] = {}
    for place, message in enumerate(said):
        while turns and turns[0].base <= place:
            turn = turns.pop(0)
        calls.update((call.id, call.name) for call in message.tool_calls)
        is_users = message.role == "user"
        yield {
            **message_fields(message, calls),
            "invocationId": turn.run_id if turn else "",
            "author": "user" if is_users else message.name or (turn.name if turn else "") or session.app,
            "actions": NO_ACTIONS,
            "id": f"{session.id}.{place}",
            "timestamp": _time_of(turn, is_users) or found.created_at,
        }


def _time_of(turn: RunRecord | None, is_users: bool) -> float:
    if turn is None:
        return 0.0
    return turn.started_at if is_users else turn.ended_at or turn.started_at
