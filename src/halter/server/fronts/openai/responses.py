"""The routes of Responses."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from halter.agent import Agent
from halter.core.ids import new_id
from halter.messages import Message
from halter.server.bodies import StartBody
from halter.server.extras import Extras
from halter.server.fronts.front import asked_of
from halter.server.fronts.openai.asking import (
    choice_of,
    holds_back,
    output_of,
    settings_of,
    tags_of,
    tools_of,
    user_of,
)
from halter.server.fronts.openai.bodies import ResponseBody, linger_of, run_id_of
from halter.server.fronts.openai.errors import refusal
from halter.server.fronts.openai.items import items_of, read_items
from halter.server.fronts.openai.response_format import ResponseFormat
from halter.server.fronts.openai.response_object import echo_of, response_id
from halter.server.fronts.openai.resuming import resumed
from halter.server.fronts.openai.running import (
    begun_run,
    headers_of,
    plan_of,
    shown_whole,
    start_body,
    wait_for_end,
)
from halter.server.fronts.openai.sessions import Continued, continued, is_own
from halter.server.port import RunFilter, RunInfo, RunPlan
from halter.server.principal import Principal
from halter.server.run_stream import run_stream
from halter.server.server import FORGETTING, Server
from halter.server.stream import Cursor

MOST_ITEMS = 100


async def create_response(server: Server, body: ResponseBody, request: Request, who: Principal) -> Response:
    """Starts a run and answers with its response, or with events of it. Raises `Problem`."""
    id = run_id_of(request) or new_id()
    server.runnable(body.model)  # before anything is made for it
    said = read_items(body.input)
    goes_on = await continued(server, body, who, id)
    start, extras = _asked(server, body, goes_on, said, linger=linger_of(request), id=id)
    plan = await begun_run(server, start, who, extras)
    if body.stream:
        return await run_stream(
            server,
            plan.key,
            lambda _, names: ResponseFormat(names, plan),
            cursor=Cursor(0),
            headers=headers_of(plan),
        )
    if not body.background:
        await wait_for_end(server, plan, request)
    return await _as_it_is(server, plan)


def _asked(
    server: Server, body: ResponseBody, goes_on: Continued, said: tuple[Message, ...], *, linger: float, id: str
) -> tuple[StartBody, Extras]:
    """The run that the request asks for. Raises `Problem`."""
    runnable = server.runnable(body.model)
    history, input = asked_of(runnable, said)
    if goes_on.session is not None and isinstance(runnable, Agent):
        history, input = (), said  # what is said is stored in the session, answers that the client brings as well
    format = (body.text or {}).get("format")
    if (body.text or {}).get("verbosity") not in (None, "medium"):
        raise refusal("'text.verbosity' is not supported here: leave it out", "text.verbosity")
    tools, output = tools_of(body.tools, body.tool_choice), output_of(format, "text.format")
    kept: dict[str, Any] = {
        "client_tools": [tool.name for tool in tools],
        "holds_back": holds_back(runnable, output),
        "echo": echo_of(body, conversation=goes_on.conversation),
    }
    extras = Extras(
        history=(*goes_on.history, *history),
        instructions=body.instructions or "",
        tools=tools,
        tool_choice=choice_of(body.tool_choice),
        settings=settings_of(body, runnable),
        output=output,
        metadata={"openai": kept},
    )
    start = start_body(
        agent=body.model,
        input=input,
        id=id,
        session=goes_on.session,
        stream=bool(body.stream),
        on_disconnect="detach" if body.background else "cancel",
        user=user_of(body.user),
        tags=tags_of(body.metadata),
        linger=linger,
    )
    return start, extras


# --- one response -------------------------------------------------------------------------------------------


async def get_response(
    server: Server, id: str, who: Principal, *, stream: bool = False, starting_after: int | None = None
) -> Response:
    """A response as it is now, or its events. Raises `Problem` 404."""
    plan = await plan_of(server, id, who)
    if not stream:
        return await _as_it_is(server, plan)
    format, cursor = ResponseFormat(server.names(who.tenant), plan), Cursor(0)
    if starting_after is not None:
        format, cursor = await resumed(server, plan.key, format, starting_after)
    return await run_stream(server, plan.key, lambda _, __: format, cursor=cursor, headers=headers_of(plan))


async def cancel_response(server: Server, id: str, who: Principal) -> Response:
    """Stops the response's run, and answers when it is over. Raises `Problem` 404."""
    plan = await plan_of(server, id, who)
    stop = server.cancellation(who, mode="immediate", reason="user_stop", message=None)
    answer = await server.store.cancel(plan.key, stop)
    server.record_stop(who, plan.key, stop, answer)
    await server.store.wait(plan.key, FORGETTING)
    return await _as_it_is(server, plan)


async def delete_response(server: Server, id: str, who: Principal) -> Response:
    """Stops the response's run and forgets it, with its session if that has no other.

    Raises `Problem` 404, and 403 if there is a run to stop and the key lacks that scope.
    """
    plan = await plan_of(server, id, who)
    info = await server.store.get(plan.key)
    if info is not None and info.is_live:
        server.check_may_stop(who, f"to delete response {id!r}")
    stop = server.cancellation(who, mode="immediate", reason="user_stop", message="the response is being deleted")
    answer = await server.store.cancel(plan.key, stop)
    server.record_stop(who, plan.key, stop, answer)
    await server.store.wait(plan.key, FORGETTING)
    if is_own(plan.session, plan.key.id) and plan.session is not None and await _is_alone(server, plan):
        await server.delete_session(who, plan.session)
    await server.store.forget(plan.key)
    server.record(who, "response.delete", plan.key.id, "deleted")
    deleted = {"id": response_id(plan.key.id), "object": "response", "deleted": True}
    return Response(msgspec.json.encode(deleted), media_type="application/json")


async def _is_alone(server: Server, plan: RunPlan) -> bool:
    which = RunFilter(tenant=plan.key.tenant, session=plan.session, limit=2)
    stored = server.names(plan.key.tenant).stored(plan.session or "")
    records = await server.sessions.runs(session=stored, limit=2)
    return len(await server.store.list(which)) < 2 and len(records) < 2


async def input_items(
    server: Server, id: str, who: Principal, *, limit: int, after: str | None, order: str
) -> Response:
    """What the response was asked, the newest first unless `order` is `asc`. Raises `Problem` 404."""
    plan = await plan_of(server, id, who)
    info = await server.store.get(plan.key)
    items = items_of(_input_of(info), plan.key.id)
    return listed(items, limit=limit, after=after, order=order)


def listed(items: list[dict[str, Any]], *, limit: int, after: str | None, order: str) -> Response:
    """A page of items. Raises `Problem` 400 for an item that is none of them."""
    ordered = items if order == "asc" else items[::-1]
    ids = [item["id"] for item in ordered]
    if after is not None and after not in ids:
        raise refusal(f"after: there is no item {after!r}", "after")
    begin = 0 if after is None else ids.index(after) + 1
    page = ordered[begin : begin + limit]
    fields = {
        "object": "list",
        "data": page,
        "first_id": page[0]["id"] if page else "",
        "last_id": page[-1]["id"] if page else "",
        "has_more": len(ordered) > begin + limit,
    }
    return Response(msgspec.json.encode(fields), media_type="application/json")


def _input_of(info: RunInfo | None) -> Sequence[Message]:
    given: Any = info.runs[0].input if info is not None and info.runs else ()
    if isinstance(given, str):
        return (Message.user(given),)
    listed = cast("Sequence[Any]", given) if isinstance(given, list | tuple) else ()
    return [each for each in listed if isinstance(each, Message)]


async def _as_it_is(server: Server, plan: RunPlan) -> Response:
    """The response now: its status, and what it has said so far."""
    format = await shown_whole(server, plan, ResponseFormat(server.names(plan.key.tenant), plan))
    return Response(msgspec.json.encode(format.now()), 200, headers_of(plan), "application/json")
