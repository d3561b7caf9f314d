"""Health, metrics, and the audit log."""

from __future__ import annotations

from typing import Annotated, Any

import msgspec
from fastapi import APIRouter, Depends, Query
from starlette.responses import Response

from halter.server import examples
from halter.server.metrics import MEDIA_TYPE
from halter.server.principal import Principal
from halter.server.problems import Problem, ProblemRoute
from halter.server.routes.answers import problems
from halter.server.routes.runs import may
from halter.server.server import Server
from halter.server.views import AuditListView, AuditView, HealthView, StatusView

TEXT = {MEDIA_TYPE: {"schema": {"type": "string"}, "example": examples.METRICS}}


def operations_router(server: Server) -> APIRouter:
    """`/healthz`, `/readyz` and `/metrics`, which need no key, and `/v1/audit`."""
    router = APIRouter(route_class=ProblemRoute, tags=["operations"])
    may_admin = may(server, "admin")

    @router.get("/healthz")
    async def healthz() -> HealthView:
        """Answers 200 while the process serves requests, also while it shuts down."""
        return HealthView(status="ok", live_runs=server.store.live)

    @router.get("/readyz", responses={503: problems()[503]})
    async def readyz() -> StatusView:
        """Answers 200 while new runs are taken, else 503: while it starts or shuts down, or its database is away."""
        if server.is_draining:
            raise Problem(503, "the server is shutting down", code="draining")
        await server.readiness.check()
        return StatusView(status="ready")

    @router.get(
        "/metrics",
        response_class=Response,
        responses={200: {"content": TEXT}},
    )
    async def metrics() -> Any:
        """Shows metrics in the text format of Prometheus."""
        return Response(server.metrics.render(), media_type=MEDIA_TYPE)

    @router.get("/v1/audit", response_model=AuditListView, responses=problems())
    async def audit(
        who: Principal = Depends(may_admin),
        target: Annotated[str | None, Query(max_length=256, description="the id of a run or session")] = None,
        action: Annotated[str | None, Query(max_length=64, description="such as `run.cancel`")] = None,
        before: Annotated[float | None, Query(description="`next` of the page before", allow_inf_nan=False)] = None,
        limit: Annotated[int, Query(ge=1, le=1_000, description="how many at most")] = 100,
    ) -> Any:
        """Lists who started, stopped, answered and deleted what, the newest first."""
        found = server.audit.newest(who.tenant, target=target, action=action, before=before, limit=limit)
        return AuditListView(
            entries=[AuditView(**msgspec.structs.asdict(entry)) for entry in found],
            next=found[-1].at if len(found) == limit else None,
        )

    return router
