"""Runs behind OpenAI's routes: started, waited for, and shown as a whole."""

from __future__ import annotations

from typing import Any, TypeVar

from pydantic import ValidationError
from starlette.requests import Request

from halter.server.bodies import StartBody
from halter.server.ended import info_of
from halter.server.extras import Extras
from halter.server.fronts.front import RuledFormat
from halter.server.fronts.openai.errors import refusal
from halter.server.fronts.openai.response_object import run_id_in
from halter.server.port import RunKey, RunPlan
from halter.server.principal import Principal
from halter.server.problems import Problem
from halter.server.run_stream import no_run
from halter.server.server import Server
from halter.server.starting import find_earlier, one_start, start, until_over

A_DAY = 86_400.0  # seconds: as long as a client may wait
F = TypeVar("F", bound=RuledFormat)


def start_body(**fields: Any) -> StartBody:
    """A `StartBody`. Raises `Problem` 400 for an id, a session or a user that cannot be."""
    try:
        return StartBody(**fields)
    except ValidationError as error:
        first = error.errors()[0]
        name = {"id": "Halter-Run-Id", "agent": "model"}.get(str(first["loc"][0]), str(first["loc"][0]))
        raise refusal(f"{name}: {first['msg']}", name) from error


async def begun_run(server: Server, body: StartBody, who: Principal, extras: Extras) -> RunPlan:
    """The plan of the run, which has begun. Its client's leaving stops it, unless the body says otherwise."""
    async with one_start(server, body):
        earlier = await find_earlier(server, body, who, extras)
        if earlier is not None:
            return earlier.plan
        begun = await start(server, body, who, is_waiting=not body.stream, extras=extras)
        return begun.info.plan


async def plan_of(server: Server, id: str, who: Principal) -> RunPlan:
    """The plan of a response's run, of an earlier process as far as its record goes. Raises `Problem` 404."""
    key = RunKey(who.tenant, run_id_in(id))
    info = await server.store.get(key)
    if info is not None:
        return info.plan
    record = await server.earlier(key)
    if record is None:
        raise Problem(404, f"there is no response {id!r}", code="response_not_found")
    return info_of(record, who.tenant).plan


async def wait_for_end(server: Server, plan: RunPlan, request: Request) -> None:
    """Returns when the run is over, or its client has gone."""
    info = await server.store.get(plan.key)
    if info is None:
        return  # of an earlier process
    await until_over(server, info, request.receive, A_DAY)


async def shown_whole(server: Server, plan: RunPlan, format: F) -> F:
    """The format, once it was shown all events so far. It waits for none."""
    feed = await server.feed(plan.key)
    if feed is None:
        raise no_run(plan.key.id)
    info = await server.store.get(plan.key)
    try:
        opening = await feed.open(0)
        format.snapshot(opening.snapshot, gap=opening.gap)
        newest = opening.snapshot.seq if info is None else info.seq
        while newest > 0 and (found := await feed.next_batch()):
            format.batch(found)
            if found[-1].seq >= newest:
                break
    finally:
        feed.close()
    return format


def headers_of(plan: RunPlan) -> dict[str, str]:
    """What all answers of a run carry: its id, by which it can be stopped."""
    return {"Halter-Run-Id": plan.key.id, "x-request-id": plan.key.id, "Cache-Control": "no-store"}
