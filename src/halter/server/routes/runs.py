"""Start runs, look at them, and stream their events."""

from __future__ import annotations

import asyncio
from typing import Annotated, Any

from fastapi import APIRouter, Depends, Path, Query
from fastapi.security import HTTPBearer
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from halter import events
from halter.outcome import RunStatus
from halter.server import examples
from halter.server.bodies import ID, StartBody
from halter.server.frames import stream_format
from halter.server.port import Begun, RunFilter, RunInfo, RunKey
from halter.server.presence import connection_to
from halter.server.principal import Principal
from halter.server.problems import Problem, ProblemRoute
from halter.server.routes.answers import Limit, OfSession, OfTag, OfUser, no_run, problems, run_response
from halter.server.server import Server
from halter.server.stream import Cursor, FeedStream, client_left, cursor_of
from halter.server.views import AgentListView, AgentView, RunListView, RunView, run_view

RunId = Annotated[str, Path(pattern=ID, description="the run's id")]
KEY = HTTPBearer(auto_error=False, description="An API key; needed if the server has keys.")  # only for the document
Wait = Annotated[float, Query(ge=0, le=3600, description="seconds to wait for the run's end")]
STREAM = {"text/event-stream": {"example": examples.EVENTS}}


def runs_router(server: Server) -> APIRouter:
    """The routes under `/v1/runs` that start and read, and `/v1/agents`."""
    router = APIRouter(route_class=ProblemRoute, tags=["runs"])
    may_run, may_read = may(server, "run"), may(server, "read")

    @router.get("/v1/agents", response_model=AgentListView, responses=problems())
    async def list_agents(_: Principal = Depends(may_read)) -> Any:
        """Lists what can be started."""
        return AgentListView(
            agents=[
                AgentView(name=name, kind=each.kind, description=each.description, model=each.model_name)
                for name, each in sorted(server.runnables.items())
            ]
        )

    @router.post(
        "/v1/runs",
        status_code=201,
        response_model=RunView,
        responses={
            **problems(404, 409),
            200: {
                "description": "It is over, or was started before; with `stream`, its events.",
                "model": RunView,
                "content": STREAM,
            },
            202: {"description": "It is not over yet.", "model": RunView},
        },
    )
    async def start_run(body: StartBody, request: Request, who: Principal = Depends(may_run), wait: Wait = 0.0) -> Any:
        """Starts a run. The same `id` and body again start nothing, and answer with the run as it is."""
        if body.id is not None and (earlier := await _earlier(server, body, RunKey(who.tenant, body.id))) is not None:
            return earlier
        begun = await server.begin(body, who, is_waiting=wait > 0)
        key = begun.info.plan.key
        if begun.result == "new" and body.session is not None and body.on_busy == "reject":
            await _has_its_turn(server, key)
        if body.stream:
            return await _stream(server, key, Cursor(0))
        return await _started(server, begun, request, wait)

    @router.get("/v1/runs", response_model=RunListView, responses=problems())
    async def list_runs(
        who: Principal = Depends(may_read),
        session: OfSession = None,
        user: OfUser = None,
        status: Annotated[RunStatus | None, Query(description="only with this status")] = None,
        tag: OfTag = None,
        agent: Annotated[str | None, Query(max_length=256, description="only of this agent")] = None,
        before: Annotated[str | None, Query(pattern=ID, description="`next` of the page before")] = None,
        limit: Limit = 50,
    ) -> Any:
        """Lists runs, the newest first."""
        which = RunFilter(
            tenant=who.tenant,
            session=session,
            user=user,
            status=status,
            tag=tag,
            agent=agent,
            before=before,
            limit=limit,
        )
        found = await server.list_runs(which)
        return RunListView(runs=found, next=found[-1].id if len(found) == limit else None)

    @router.get("/v1/runs/{id}", response_model=RunView, responses=problems(404))
    async def get_run(id: RunId, who: Principal = Depends(may_read)) -> Any:
        """Shows one run with its children."""
        found = await server.get_run(RunKey(who.tenant, id))
        if found is None:
            raise no_run(id)
        return found

    @router.get(
        "/v1/runs/{id}/events",
        response_class=Response,
        responses={
            **problems(404),
            200: {"description": "The events.", "content": STREAM},
            204: {"description": "The cursor is at the end: there is nothing more to come."},
        },
    )
    async def stream_events(
        id: RunId,
        request: Request,
        who: Principal = Depends(may_read),
        after: Annotated[str | None, Query(max_length=64, description="as `Last-Event-ID`; 0: from the start")] = None,
    ) -> Any:
        """Streams a run's events, from `Last-Event-ID` or `after` if there is one. Its first frame is a snapshot."""
        del after  # read by `cursor_of`
        key = RunKey(who.tenant, id)
        return await _stream(server, key, cursor_of(request))

    return router


def may(server: Server, scope: str) -> Any:
    """A dependency: the principal of the request, who must have this scope."""

    async def principal(request: Request, _: Any = Depends(KEY)) -> Principal:
        found = await server.principal(request, scope)
        request.state.halter_names = server.names(found.tenant)  # for the texts of errors
        return found

    return principal


async def _stream(server: Server, key: RunKey, cursor: Cursor | None) -> Response:
    feed = await server.feed(key)
    if feed is None:
        raise no_run(key.id)
    return CountedStream(
        server,
        key.tenant,
        feed,
        server.store.presence(key),
        stream_format("halter", feed.epoch, server.names(key.tenant)),
        run_id=key.id,
        cursor=cursor,
    )


class CountedStream(FeedStream):
    """A stream that counts for its tenant's limit, and in the metrics."""

    def __init__(self, server: Server, tenant: str, *stream: Any, **options: Any) -> None:
        super().__init__(*stream, **options)
        server.usage.check_streams(tenant)
        self._server = server
        self._tenant = tenant

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        with self._server.usage.stream(self._tenant), self._server.metrics.stream():
            await super().__call__(scope, receive, send)


async def _earlier(server: Server, body: StartBody, key: RunKey) -> Response | None:
    """The answer to a start whose id a run of an earlier process had: it never starts twice."""
    if await server.store.get(key) is not None:
        return None
    found = await server.earlier(key)
    if found is None:
        return None
    if body.stream:
        return await _stream(server, key, None)
    view = await server.get_run(key)
    return Response(view.model_dump_json() if view else b"", 200, media_type="application/json")


async def _has_its_turn(server: Server, key: RunKey) -> None:
    """Waits until the run has its session's turn, or was refused it. Raises `Problem`; then nothing is kept."""
    feed = await server.store.feed(key)
    if feed is None:
        return
    await feed.open(0)
    try:
        while found := await feed.next_batch():
            if any(event.run_id == key.id and isinstance(event, events.Started) for event in found):
                return
    finally:
        feed.close()
    info = await server.store.get(key)
    error = run_view(info).error if info is not None else None
    if error is not None and error.type in _REFUSED:
        await server.store.forget(key)
        raise _REFUSED[error.type](error.message)


def _busy(detail: str) -> Problem:
    return Problem(409, detail, code="session_busy", retry_after=1)


def _not_theirs(detail: str) -> Problem:
    return Problem(404, detail, code="session_not_found")


# Errors of runs that were refused their session before anything was asked of a model.
_REFUSED = {"SessionBusy": _busy, "SessionNotFound": _not_theirs}


async def _started(server: Server, begun: Begun, request: Request, wait: float) -> Response:
    info = begun.info
    if wait > 0:
        info = await _until_over(server, info, request, wait)
        return run_response(request, info, 200 if info.status.is_final else 202)
    info = await server.store.get(info.plan.key) or info
    return run_response(request, info, 201 if begun.result == "new" else 200)


async def _until_over(server: Server, info: RunInfo, request: Request, wait: float) -> RunInfo:
    """The run when it is over, the time is up, or the client has gone: then its presence decides what becomes of it."""
    key = info.plan.key
    waiting = asyncio.ensure_future(server.store.wait(key, wait))
    listener = asyncio.ensure_future(client_left(request.receive))
    try:
        with connection_to(server.store.presence(key)) as connection:
            await asyncio.wait((waiting, listener), return_when=asyncio.FIRST_COMPLETED)
            if waiting.done():
                connection.keep()
    finally:
        waiting.cancel()
        listener.cancel()
        await asyncio.wait((waiting, listener))
    return await server.store.get(key) or info
