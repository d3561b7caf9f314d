"""Users: what is known of them, and all that is kept of them, to see and to delete."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Depends, Path, Query
from starlette.responses import Response

from halter.server import examples
from halter.server.bodies import ID
from halter.server.principal import Principal
from halter.server.problems import Problem, ProblemRoute
from halter.server.routes.answers import problems, shown_as
from halter.server.routes.runs import may
from halter.server.server import Server
from halter.server.session_views import DeletedFactsView, DeletedUserView, FactListView, fact_view
from halter.server.views import plain

User = Annotated[str, Path(pattern=ID, description="the user's name")]


def users_router(server: Server) -> APIRouter:
    """The routes under `/v1/users`."""
    router = APIRouter(route_class=ProblemRoute, tags=["users"])
    may_run, may_read = may(server, "run"), may(server, "read")
    facts = server.sessions.facts

    def stored(user: str, who: Principal) -> str:
        return server.names(who.tenant).stored(user)

    @router.get("/v1/users/{user}/facts", response_model=FactListView, responses=problems())
    async def list_facts(
        user: User,
        who: Principal = Depends(may_read),
        limit: Annotated[int, Query(ge=1, le=1_000, description="how many facts at most")] = 500,
    ) -> Any:
        """Lists what agents with a memory have learned of a user, the newest first. An unknown user has none."""
        names = server.names(who.tenant)
        return FactListView(facts=[fact_view(each, names) for each in await facts.list(names.stored(user), limit)])

    @router.delete("/v1/users/{user}/facts", response_model=DeletedFactsView, responses=problems())
    async def delete_facts(user: User, who: Principal = Depends(may_run)) -> Any:
        """Deletes all that agents have learned of a user, and says how many facts it was."""
        deleted = await facts.forget_all(stored(user, who))
        server.record(who, "user.delete_facts", user, f"{deleted} facts deleted")
        return DeletedFactsView(facts=deleted)

    @router.delete("/v1/users/{user}/facts/{id}", status_code=204, response_model=None, responses=problems(404))
    async def delete_fact(
        user: User, id: Annotated[str, Path(pattern=ID, description="the fact's id")], who: Principal = Depends(may_run)
    ) -> Any:
        """Deletes one fact."""
        if not await facts.forget(stored(user, who), id):
            raise Problem(404, f"user {user!r} has no fact {id!r}", code="fact_not_found")
        server.record(who, "user.delete_fact", user, "deleted", message=id)
        return Response(status_code=204)

    @router.get(
        "/v1/users/{user}/export",
        response_model=dict[str, Any],
        responses={**problems(), 200: shown_as(examples.USER_EXPORT)},
    )
    async def export_user(user: User, who: Principal = Depends(may_read)) -> Any:
        """Exports all that is stored of a user: sessions with their messages, facts, and records of runs."""
        names = server.names(who.tenant)
        return plain(names.in_user_export(await server.sessions.export_user(names.stored(user))))

    @router.delete("/v1/users/{user}", response_model=DeletedUserView, responses=problems())
    async def delete_user(user: User, who: Principal = Depends(may_run)) -> Any:
        """Stops a user's runs, deletes their sessions, facts and records of runs, and says how many sessions it was."""
        return DeletedUserView(sessions=await server.delete_user(who, user))

    return router
