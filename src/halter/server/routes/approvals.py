"""Approvals: what somebody was asked, what the answer was, and what is remembered of it, to see and to take back."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Depends, Path, Query
from starlette.responses import Response

from halter.core.approval_file import Allowed
from halter.core.approvals import DECISIONS, Decision
from halter.core.approvals_listed import forget, remembered
from halter.core.threads import call_in_thread
from halter.errors import ConfigurationError
from halter.server.names import Names
from halter.server.principal import Principal
from halter.server.problems import Problem, ProblemRoute
from halter.server.routes.answers import Limit, problems
from halter.server.routes.runs import may
from halter.server.server import Server
from halter.server.views import ApprovalListView, ApprovalView, plain

PLACE = r"^[0-9]{1,15}(\.[0-9]{1,9})?~"  # people write ids into the files by hand: anything may be one


def approvals_router(server: Server) -> APIRouter:
    """The routes under `/v1/approvals`."""
    router = APIRouter(route_class=ProblemRoute, tags=["approvals"])
    may_run, may_read = may(server, "run"), may(server, "read")

    @router.get("/v1/approvals", response_model=ApprovalListView, responses=problems())
    async def list_approvals(
        who: Principal = Depends(may_read),
        only_remembered: Annotated[bool, Query(alias="remembered", description="only those that hold now")] = False,
        before: Annotated[
            str | None, Query(pattern=PLACE, max_length=300, description="`next` of the page before")
        ] = None,
        limit: Limit = 50,
    ) -> Any:
        """Lists approvals that were asked for in this process, and those that are remembered, the newest first."""
        found = await _approvals(server.names(who.tenant), who.tenant)
        kept = [each for each in found if each.is_remembered or not only_remembered]
        older = [each for each in kept if before is None or (each.at, each.id) < _place(before)]
        page = older[:limit]
        return ApprovalListView(approvals=page, next=f"{page[-1].at!r}~{page[-1].id}" if len(older) > limit else None)

    @router.delete("/v1/approvals/{id}", status_code=204, response_model=None, responses=problems(404))
    async def forget_approval(
        id: Annotated[str, Path(max_length=256, description="the approval's id")], who: Principal = Depends(may_run)
    ) -> Any:
        """Takes back a remembered approval: such calls ask again."""
        try:
            is_found = await call_in_thread(forget, lambda each: each.id == id and _is_of(each, who.tenant))
        except (ConfigurationError, OSError) as error:
            raise Problem(503, "the file of approvals cannot be written", code="approvals_unavailable") from error
        if not is_found:
            raise Problem(404, f"no approval {id!r} is remembered", code="approval_not_found")
        server.record(who, "approval.delete", id, "deleted")
        return Response(status_code=204)

    return router


async def _approvals(names: Names, tenant: str) -> list[ApprovalView]:
    """The tenant's approvals, the newest first."""
    holding = {each.id: (answer, each) for answer, each in await call_in_thread(remembered) if _is_of(each, tenant)}
    found = {each.id: _decided(each, names, each.id in holding) for each in DECISIONS.copy() if _is_of(each, tenant)}
    earlier = {id: _held(each, answer, names) for id, (answer, each) in holding.items() if id not in found}
    return sorted([*found.values(), *earlier.values()], key=lambda each: (each.at, each.id), reverse=True)


def _is_of(found: Allowed | Decision, tenant: str) -> bool:
    return (found.tenant or "") == tenant


def _decided(found: Decision, names: Names, is_remembered: bool) -> ApprovalView:
    return ApprovalView(
        id=found.id,
        at=found.at,
        run=found.run_id,
        session=names.bare_or_none(found.session),
        user=names.bare_or_none(found.user),
        agent=found.agent,
        tool=found.tool,
        pattern=plain(found.pattern),
        answer=found.answer,
        by=found.by,
        reason=found.reason,
        is_remembered=is_remembered,
    )


def _held(found: Allowed, answer: str, names: Names) -> ApprovalView:
    """One that is remembered, and whose decision this process does not know any more."""
    return ApprovalView(
        id=found.id,
        at=found.at,
        run=found.run,
        session=None,
        user=names.bare_or_none(found.user),
        agent=found.agent,
        tool=found.tool,
        pattern=plain(found.pattern),
        answer=answer,
        by=found.by,
        reason=None,
        is_remembered=True,
    )


def _place(text: str) -> tuple[float, str]:
    """Where a page ended."""
    at, _, id = text.partition("~")
    return float(at), id
