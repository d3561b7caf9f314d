"""Conversations: list, search, read, fork, rewind, export, delete."""

from __future__ import annotations

import re
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Annotated, Any, cast

from fastapi import APIRouter, Depends, Path, Query
from starlette.responses import Response

from halter.core.ids import new_id
from halter.errors import SessionNotFound, UsageError
from halter.server import examples
from halter.server.bodies import ID, ForkBody, ImportBody, RewindBody, SessionBody, SessionChangesBody
from halter.server.principal import Principal
from halter.server.problems import Problem, ProblemRoute
from halter.server.routes.answers import Limit, OfSession, OfTag, OfUser, problems, shown_as
from halter.server.routes.runs import may
from halter.server.server import Server
from halter.server.session_views import (
    HitListView,
    MessagesView,
    SessionListView,
    SessionView,
    hit_view,
    messages_view,
    session_view,
)
from halter.server.views import plain
from halter.sessions.records import Session

SessionId = Annotated[str, Path(pattern=ID, description="the session's id")]
Offset = Annotated[int, Query(ge=0, le=1_000_000, description="how many to leave out, the newest ones")]


def sessions_router(server: Server) -> APIRouter:
    """The routes under `/v1/sessions`."""
    router = APIRouter(route_class=ProblemRoute, tags=["sessions"])
    may_run, may_read = may(server, "run"), may(server, "read")
    sessions = server.sessions

    def stored(id: str, who: Principal) -> str:
        return server.names(who.tenant).stored(id)

    def view(session: Session, who: Principal) -> SessionView:
        return session_view(session, server.names(who.tenant))

    @asynccontextmanager
    async def a_taken_id_is_a_conflict(id: str, who: Principal) -> AsyncGenerator[None]:
        try:
            yield
        except SessionNotFound:
            raise
        except UsageError as error:
            if await is_there(id, who):
                raise Problem(409, f"there is a session {id!r} already", code="session_exists") from error
            raise

    async def is_there(id: str, who: Principal) -> bool:
        try:
            await sessions.get(stored(id, who))
        except SessionNotFound:
            return False
        return True

    @router.post("/v1/sessions", status_code=201, response_model=SessionView, responses=problems(409))
    async def create_session(body: SessionBody, who: Principal = Depends(may_run)) -> Any:
        """Makes a session before its first run. A run with a new session id makes one as well."""
        id = body.id or new_id()
        async with a_taken_id_is_a_conflict(id, who):
            made = await sessions.create(
                stored(id, who),
                user=stored(body.user, who) if body.user else None,
                title=body.title,
                tags=body.tags,
                metadata=body.metadata,
            )
        server.record(who, "session.create", id, "created")
        return view(made, who)

    @router.post("/v1/sessions/import", status_code=201, response_model=SessionView, responses=problems(409))
    async def import_session(body: ImportBody, who: Principal = Depends(may_run)) -> Any:
        """Makes a session of an export, under its old id or another one."""
        id = body.id or _old_id(body.export)
        data = server.names(who.tenant).in_import(body.export)
        async with a_taken_id_is_a_conflict(id, who):
            made = await sessions.import_(data, id=stored(id, who))
        server.record(who, "session.import", id, f"{made.messages} messages imported")
        return view(made, who)

    @router.get("/v1/sessions", response_model=SessionListView, responses=problems())
    async def list_sessions(
        who: Principal = Depends(may_read),
        user: OfUser = None,
        tag: OfTag = None,
        text: Annotated[str | None, Query(max_length=500, description="words in the title or in one message")] = None,
        limit: Limit = 50,
        offset: Offset = 0,
    ) -> Any:
        """Lists sessions, the one that was used last first."""
        found = await server.list_sessions(who.tenant, user=user, tag=tag, text=text, limit=limit, offset=offset)
        return SessionListView(sessions=[view(each, who) for each in found])

    @router.get("/v1/sessions/{id}", response_model=SessionView, responses=problems(404))
    async def get_session(id: SessionId, who: Principal = Depends(may_read)) -> Any:
        """Shows one session, without its messages."""
        return view(await sessions.get(stored(id, who)), who)

    @router.patch("/v1/sessions/{id}", response_model=SessionView, responses=problems(404))
    async def update_session(id: SessionId, body: SessionChangesBody, who: Principal = Depends(may_run)) -> Any:
        """Changes what is given."""
        changes = body.model_dump(exclude_unset=True, exclude_none=True)
        changed = await sessions.update(stored(id, who), **changes)
        server.record(who, "session.update", id, f"changed: {', '.join(changes) or 'nothing'}")
        return view(changed, who)

    @router.get("/v1/sessions/{id}/messages", response_model=MessagesView, responses=problems(404))
    async def get_messages(
        id: SessionId,
        who: Principal = Depends(may_read),
        full: Annotated[bool, Query(description="also what was compacted")] = False,
    ) -> Any:
        """Shows what was said."""
        return messages_view(await sessions.history(stored(id, who), full=full))

    @router.post("/v1/sessions/{id}/fork", status_code=201, response_model=SessionView, responses=problems(404, 409))
    async def fork_session(id: SessionId, body: ForkBody, who: Principal = Depends(may_run)) -> Any:
        """Makes a session that begins as this one did, and goes its own way."""
        to = body.to or new_id()
        async with a_taken_id_is_a_conflict(to, who):
            made = await sessions.fork(stored(id, who), at=body.at, to=stored(to, who))
        server.record(who, "session.fork", id, view(made, who).id)
        return view(made, who)

    @router.post("/v1/sessions/{id}/rewind", response_model=SessionView, responses=problems(404, 409))
    async def rewind_session(id: SessionId, body: RewindBody, who: Principal = Depends(may_run)) -> Any:
        """Takes back all but the first messages."""
        rewound = await sessions.rewind(stored(id, who), body.to)
        server.record(who, "session.rewind", id, f"{body.to} messages left")
        return view(rewound, who)

    @router.get(
        "/v1/sessions/{id}/export",
        response_model=dict[str, Any],
        responses={**problems(404), 200: shown_as(examples.SESSION_EXPORT)},
    )
    async def export_session(id: SessionId, who: Principal = Depends(may_read)) -> Any:
        """Exports the session and all that was said in it."""
        return plain(server.names(who.tenant).in_export(await sessions.export(stored(id, who))))

    @router.delete("/v1/sessions/{id}", status_code=204, response_model=None, responses=problems(404))
    async def delete_session(id: SessionId, who: Principal = Depends(may_run)) -> Any:
        """Stops the session's runs, and deletes it with its messages, records and facts."""
        if not await server.delete_session(who, id):
            raise SessionNotFound(f"there is no session {id!r}")
        return Response(status_code=204)

    @router.get("/v1/search", response_model=HitListView, responses=problems())
    async def search_messages(
        text: Annotated[str, Query(min_length=1, max_length=500, description="the words")],
        who: Principal = Depends(may_read),
        session: OfSession = None,
        user: OfUser = None,
        limit: Limit = 20,
    ) -> Any:
        """Finds messages in which all these words occur."""
        found = await server.search(who.tenant, text, session=session, user=user, limit=limit)
        return HitListView(hits=[hit_view(each, server.names(who.tenant)) for each in found])

    return router


def _old_id(export: dict[str, Any]) -> str:
    """The id of the exported session. Raises `Problem` 422 for one that no client could use."""
    about = export.get("session")
    id: object = cast("dict[str, Any]", about).get("id") if isinstance(about, dict) else None
    if not isinstance(id, str) or re.search(ID, id) is None:
        raise Problem(422, f"export.session.id must be the id of a session, not {id!r}; or give `id`", code="invalid")
    return id
