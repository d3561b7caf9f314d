"""All live runs of a tenant in one stream: a browser has six connections to a server, and a thousand runs to show."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from typing import Any

from fastapi import APIRouter, Depends
from starlette.responses import Response, StreamingResponse

from halter.server import examples
from halter.server.live_runs import LiveRuns, frames
from halter.server.principal import Principal
from halter.server.problems import ProblemRoute
from halter.server.routes.answers import problems
from halter.server.routes.runs import may
from halter.server.server import Server
from halter.server.stream import HEADERS


def watching_router(server: Server) -> APIRouter:
    """`/v1/live`."""
    router = APIRouter(route_class=ProblemRoute, tags=["runs"])
    may_read = may(server, "read")

    @router.get(
        "/v1/live",
        response_class=Response,
        responses={
            **problems(),
            200: {"description": "The rows.", "content": {"text/event-stream": {"example": examples.LIVE}}},
        },
    )
    async def stream_live_runs(who: Principal = Depends(may_read)) -> Any:
        """Streams all live runs in short: first all of them, then each one that changes, and how it ends."""
        server.usage.check_streams(who.tenant)
        return StreamingResponse(_counted(server, who.tenant), headers=HEADERS, media_type="text/event-stream")

    return router


async def _counted(server: Server, tenant: str) -> AsyncGenerator[bytes]:
    """The frames, until the server has ended its last run; they count for the tenant's limit, and in the metrics."""
    with server.usage.stream(tenant), server.metrics.stream():
        async for frame in frames(LiveRuns(server.store, tenant)):
            yield frame
            if server.is_draining and not server.store.live:
                return
