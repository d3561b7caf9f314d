"""Stop runs, answer their questions, and steer them."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Depends, Query
from starlette.requests import Request
from starlette.responses import Response

from halter.messages import Message
from halter.outcome import RunStatus
from halter.server.bodies import AnswerBody, CancelBody, CancelManyBody, MessageBody
from halter.server.port import RunFilter, RunKey
from halter.server.principal import Principal
from halter.server.problems import Problem, ProblemRoute
from halter.server.routes.answers import problems, run_response
from halter.server.routes.runs import RunId, may
from halter.server.run_stream import no_run
from halter.server.server import MOST_AT_ONCE, Server
from halter.server.views import RunView, StoppedView, TombstoneView, run_view

Wait = Annotated[float, Query(ge=0, le=60, description="seconds to wait for the end")]


def control_router(server: Server) -> APIRouter:
    """The routes that change live runs."""
    router = APIRouter(route_class=ProblemRoute, tags=["control"])
    may_run, may_stop = may(server, "run"), may(server, "stop")

    @router.post(
        "/v1/runs/{id}/cancel",
        status_code=202,
        response_model=RunView | TombstoneView,
        response_description="It is being stopped; with `tombstone`, a later start with this id never begins.",
        responses={
            **problems(404, 412),
            200: {"description": "It is over; `effective` says whether it was stopped.", "model": RunView},
        },
    )
    async def cancel_run(
        id: RunId,
        request: Request,
        who: Principal = Depends(may_stop),
        body: CancelBody | None = None,
        wait: Wait = 0.0,
        tombstone: Annotated[bool, Query(description="an unknown id is stopped before it begins")] = False,
    ) -> Any:
        """Stops a run. Any number of times; the first reason stays, and a stronger mode makes it stronger."""
        body = body or CancelBody.model_validate({})
        stop = server.cancellation(who, mode=body.mode, reason=body.reason, message=body.message)
        key = RunKey(who.tenant, id)
        answer = await server.store.cancel(key, stop, if_epoch=body.if_epoch, tombstone=tombstone)
        server.record_stop(who, key, stop, answer, tombstone=tombstone)
        if answer is None:
            return await _not_live(server, request, key, tombstone)
        if answer.wrong_epoch:
            raise Problem(412, f"run {id!r} is of epoch {answer.info.epoch}", code="wrong_epoch")
        info = answer.info
        if wait > 0 and not info.status.is_final:
            info = await server.store.wait(info.plan.key, wait) or info
        if info.status.is_final:
            return run_response(request, info, 200, effective=info.status is RunStatus.CANCELLED)
        return run_response(request, info, 202, effective=answer.in_force)

    @router.post("/v1/cancel", response_model=StoppedView, responses=problems())
    async def cancel_runs(body: CancelManyBody, who: Principal = Depends(may_stop), wait: Wait = 0.0) -> Any:
        """Stops all live runs that fit, and lists those that it stopped."""
        if not (body.session or body.tag or body.agent or body.status or body.all):
            raise Problem(422, 'give a session, tag, agent or status, or "all": true', code="invalid")
        stop = server.cancellation(who, mode=body.mode, reason=body.reason, message=body.message)
        which = RunFilter(
            tenant=who.tenant,
            session=body.session,
            tag=body.tag,
            agent=body.agent,
            status=RunStatus(body.status) if body.status else None,
            is_live_only=True,
            limit=MOST_AT_ONCE,
        )
        live = [info.plan.key for info in await server.store.list(which)]
        stopped: list[RunKey] = []
        for key in live:
            answer = await server.store.cancel(key, stop)
            server.record_stop(who, key, stop, answer)
            if answer is not None and answer.in_force:
                stopped.append(key)
        found = await server.wait_for_all(stopped, wait)
        return StoppedView(runs=[run_view(info, effective=True) for info in found])

    @router.post("/v1/runs/{id}/input", response_model=RunView, responses=problems(404, 409))
    async def answer_input(id: RunId, body: AnswerBody, who: Principal = Depends(may_run)) -> Any:
        """Answers a question that the run has asked with `input.requested`."""
        key = RunKey(who.tenant, id)
        if await server.store.get(key) is None:
            raise no_run(id)
        if not await server.store.answer(key, body.request_id, body.answer, reason=body.reason, by=who.actor):
            raise Problem(409, f"run {id!r} has no open question {body.request_id!r}", code="no_such_question")
        server.record(who, "run.input", id, "answered", reason=body.reason, message=body.request_id)
        return await server.get_run(key)

    @router.post("/v1/runs/{id}/messages", status_code=202, response_model=RunView, responses=problems(404, 409))
    async def send_message(id: RunId, body: MessageBody, who: Principal = Depends(may_run)) -> Any:
        """Steers a live run: the message is delivered at its next turn."""
        key = RunKey(who.tenant, id)
        if await server.store.get(key) is None:
            raise no_run(id)
        if not await server.store.send(key, Message.user(body.text)):
            raise Problem(409, f"run {id!r} is over or being stopped", code="not_live")
        server.record(who, "run.message", id, "accepted")
        return await server.get_run(key)

    return router


async def _not_live(server: Server, request: Request, key: RunKey, tombstone: bool) -> Any:
    """A stop of a run that this server does not carry: of an earlier process, not started yet, or unknown."""
    info = await server.find_run(key)
    if info is not None:
        return run_response(request, info, 200, effective=info.status is RunStatus.CANCELLED)
    if tombstone:
        view = TombstoneView(id=key.id, status="tombstone")
        return Response(view.model_dump_json(), 202, media_type="application/json")
    raise no_run(key.id)
