"""The routes of ADK's API server."""

from __future__ import annotations

import sys
from typing import Annotated, Any

from fastapi import APIRouter, Body, Depends
from starlette.requests import Request
from starlette.responses import Response

import halter
from halter.server.fronts.adk.bodies import NewSessionBody, RunBody, StateBody
from halter.server.fronts.adk.contents import Json
from halter.server.fronts.adk.errors import AdkRoute
from halter.server.fronts.adk.format import LINES
from halter.server.fronts.adk.left_out import add_left_out
from halter.server.fronts.adk.live import add_live
from halter.server.fronts.adk.runs import AdkRuns, Turn
from halter.server.fronts.adk.session_ids import AdkSession
from halter.server.fronts.adk.sessions import AdkSessions
from halter.server.principal import Principal
from halter.server.routes.runs import may
from halter.server.server import Server

State = Annotated[dict[str, Any] | None, Body()]  # the whole body
SESSIONS = "/apps/{app}/users/{user}/sessions"


def adk_router(server: Server) -> APIRouter:
    """The routes of the package `google-adk`; its own documents describe them."""
    router = APIRouter(route_class=AdkRoute, include_in_schema=False)
    sessions = AdkSessions(server)
    runs = AdkRuns(server, sessions)
    _add_apps(router, server, sessions)
    _add_sessions(router, server, sessions, runs)
    _add_runs(router, server, runs)
    add_live(router, server, sessions, runs)
    add_left_out(router, server)
    return router


def _add_apps(router: APIRouter, server: Server, sessions: AdkSessions) -> None:
    may_read = may(server, "read")

    def about(app: str) -> Json:
        runnable = server.runnables[app]
        names = {"name": app, "rootAgentName": runnable.name, "description": runnable.description}
        return {**names, "language": "python", "isComputerUse": False}

    @router.get("/list-apps")
    async def list_apps(_: Principal = Depends(may_read), detailed: bool = False) -> Any:
        names = sorted(server.runnables)
        return {"apps": [about(app) for app in names]} if detailed else names

    @router.get("/apps/{app}/app-info")
    async def app_info(app: str, _: Principal = Depends(may_read)) -> Any:
        sessions.check_app(app)
        return about(app)

    @router.get("/health")
    async def health() -> Any:
        return {"status": "ok"}

    @router.get("/version")
    async def version(_: Principal = Depends(may_read)) -> Any:
        python = ".".join(map(str, sys.version_info[:3]))
        return {"version": halter.__version__, "language": "python", "language_version": python}


def _add_sessions(router: APIRouter, server: Server, sessions: AdkSessions, runs: AdkRuns) -> None:
    may_run, may_read, may_stop = may(server, "run"), may(server, "read"), may(server, "stop")

    # Before the route that makes sessions: that one would take the rest of the path for an id.
    @router.post(SESSIONS + "/{session}:cancel")
    async def cancel(app: str, user: str, session: str, who: Principal = Depends(may_stop)) -> Any:
        return await runs.cancel(who, AdkSession(app, user, session))

    @router.post(SESSIONS)
    async def create(app: str, user: str, body: NewSessionBody | None = None, who: Principal = Depends(may_run)) -> Any:
        return await sessions.create(who, app, user, body or NewSessionBody())

    @router.post(SESSIONS + "/{session}")
    async def create_with_id(
        app: str, user: str, session: str, state: State = None, who: Principal = Depends(may_run)
    ) -> Any:
        return await sessions.create(who, app, user, NewSessionBody(session_id=session, state=state))

    @router.get(SESSIONS)
    async def list_sessions(app: str, user: str, who: Principal = Depends(may_read)) -> Any:
        return await sessions.list(who, app, user)

    @router.get(SESSIONS + "/{session}")
    async def get(app: str, user: str, session: str, who: Principal = Depends(may_read)) -> Any:
        return await sessions.show(who, AdkSession(app, user, session))

    @router.patch(SESSIONS + "/{session}")
    async def update(app: str, user: str, session: str, body: StateBody, who: Principal = Depends(may_run)) -> Any:
        named = AdkSession(app, user, session)
        await sessions.change_state(who, named, body.state_delta)
        return await sessions.show(who, named)

    @router.delete(SESSIONS + "/{session}")
    async def delete(app: str, user: str, session: str, who: Principal = Depends(may_run)) -> Any:
        await sessions.delete(who, AdkSession(app, user, session))


def _add_runs(router: APIRouter, server: Server, runs: AdkRuns) -> None:
    may_run = may(server, "run")

    async def begun(body: RunBody, request: Request, who: Principal) -> Turn:
        turn = await runs.begin(who, body)
        request.state.halter_names = turn.session.names(server.names(who.tenant))
        return turn

    @router.post("/run")
    async def run(body: RunBody, request: Request, who: Principal = Depends(may_run)) -> Response:
        turn = await begun(body, request, who)
        format = runs.format(turn, streaming=False, custom_metadata=body.custom_metadata, wrapping=LINES)
        return await runs.collect(turn, format, request)

    @router.post("/run_sse")
    async def run_sse(body: RunBody, request: Request, who: Principal = Depends(may_run)) -> Response:
        turn = await begun(body, request, who)
        format = runs.format(turn, streaming=body.streaming, custom_metadata=body.custom_metadata)
        return await runs.stream(turn, format)
