"""Start runs, look at them, and stream their events."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from fastapi import APIRouter, Depends, Path, Query
from fastapi.security import HTTPBearer
from starlette.requests import Request
from starlette.responses import Response

from halter.outcome import RunStatus
from halter.server import examples
from halter.server.bodies import ID, StartBody
from halter.server.port import Begun, Position, RunFilter, RunKey
from halter.server.principal import Principal
from halter.server.problems import ProblemRoute
from halter.server.routes.answers import Limit, OfSession, OfTag, OfUser, problems, run_response
from halter.server.run_stream import no_run, run_stream
from halter.server.server import Server
from halter.server.starting import find_earlier, one_start, start, until_over
from halter.server.stream import Cursor, cursor_of
from halter.server.views import AgentListView, AgentView, ProcessListView, RunListView, RunView, process_view

RunId = Annotated[str, Path(pattern=ID, description="the run's id")]
KEY = HTTPBearer(auto_error=False, description="An API key; needed if the server has keys.")  # only for the document
PLACE = r"^[0-9]{1,12}(\.[0-9]{1,9})?~" + ID.removeprefix("^")
Wait = Annotated[float, Query(ge=0, le=3600, description="seconds to wait for the run's end")]
Format = Annotated[
    Literal["halter", "ai-sdk", "ag-ui"],
    Query(description="as whose events the stream shows the run: Halter's own, the AI SDK's or AG-UI's"),
]
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
    async def start_run(
        body: StartBody,
        request: Request,
        who: Principal = Depends(may_run),
        wait: Wait = 0.0,
        format: Format = "halter",
    ) -> Any:
        """Starts a run. The same `id` and body again start nothing, and answer with the run as it is."""
        async with one_start(server, body):
            if (earlier := await _earlier(server, body, request, who, format)) is not None:
                return earlier
            begun = await start(server, body, who, is_waiting=wait > 0)
        if body.stream:
            return await run_stream(server, begun.info.plan.key, format, cursor=Cursor(0))
        return await _started(server, begun, request, wait)

    @router.get("/v1/runs", response_model=RunListView, responses=problems())
    async def list_runs(
        who: Principal = Depends(may_read),
        session: OfSession = None,
        user: OfUser = None,
        status: Annotated[RunStatus | None, Query(description="only with this status")] = None,
        tag: OfTag = None,
        agent: Annotated[str | None, Query(max_length=256, description="only of this agent")] = None,
        before: Annotated[str | None, Query(pattern=PLACE, description="`next` of the page before")] = None,
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
            before=_place(before),
            limit=limit,
        )
        found = await server.list_runs(which)
        return RunListView(runs=found, next=_next(found[-1]) if len(found) == limit else None)

    @router.get("/v1/runs/{id}", response_model=RunView, responses=problems(404))
    async def get_run(id: RunId, who: Principal = Depends(may_read)) -> Any:
        """Shows one run with its children."""
        found = await server.get_run(RunKey(who.tenant, id))
        if found is None:
            raise no_run(id)
        return found

    @router.get("/v1/runs/{id}/processes", response_model=ProcessListView, responses=problems(404))
    async def list_processes(id: RunId, who: Principal = Depends(may_read)) -> Any:
        """Lists the programs that the run's tools are running now; none once it is over."""
        key = RunKey(who.tenant, id)
        found = await server.store.programs(key)
        if found is None and await server.find_run(key) is None:
            raise no_run(id)
        return ProcessListView(processes=[process_view(each) for each in found or ()])

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
        format: Format = "halter",
    ) -> Any:
        """Streams a run's events, from `Last-Event-ID` or `after` if there is one. Its first frame is a snapshot."""
        del after  # read by `cursor_of`
        key = RunKey(who.tenant, id)
        return await run_stream(server, key, format, cursor=cursor_of(request))

    return router


def may(server: Server, scope: str) -> Any:
    """A dependency: the principal of the request, who must have this scope."""

    async def principal(request: Request, _: Any = Depends(KEY)) -> Principal:
        found = await server.principal(request, scope)
        request.state.halter_names = server.names(found.tenant)  # for the texts of errors
        return found

    return principal


def _next(last: RunView) -> str:
    return f"{last.created_at!r}~{last.id}"


def _place(text: str | None) -> Position | None:
    """What `_next` wrote."""
    if text is None:
        return None
    created_at, _, id = text.partition("~")
    return Position(float(created_at), id)


async def _earlier(server: Server, body: StartBody, request: Request, who: Principal, format: str) -> Response | None:
    """The answer to a start whose id a run of an earlier process had: it never starts twice."""
    info = await find_earlier(server, body, who)
    if info is None:
        return None
    key = info.plan.key
    if body.stream:
        return await run_stream(server, key, format, cursor=None)
    return run_response(request, info, 200)


async def _started(server: Server, begun: Begun, request: Request, wait: float) -> Response:
    info = begun.info
    if wait > 0:
        info = await until_over(server, info, request.receive, wait)
        return run_response(request, info, 200 if info.status.is_final else 202)
    info = await server.store.get(info.plan.key) or info
    return run_response(request, info, 201 if begun.result == "new" else 200)
