"""`POST /v1/chat/completions`."""

from __future__ import annotations

from typing import Any

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from halter.events import Failed
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
from halter.server.fronts.openai.bodies import ChatBody, linger_of, run_id_of
from halter.server.fronts.openai.chat_format import ChatFormat
from halter.server.fronts.openai.chat_messages import read_chat
from halter.server.fronts.openai.errors import problem_of_failure
from halter.server.fronts.openai.running import (
    begun_run,
    headers_of,
    shown_whole,
    start_body,
    wait_for_end,
)
from halter.server.principal import Principal
from halter.server.run_stream import run_stream
from halter.server.server import Server
from halter.server.stream import Cursor


async def complete_chat(server: Server, body: ChatBody, request: Request, who: Principal) -> Response:
    """Starts a run and answers with its completion, or with chunks of it. Raises `Problem`."""
    start, extras = _asked(server, body, request)
    plan = await begun_run(server, start, who, extras)
    if body.stream:
        usage = bool(body.stream_options and body.stream_options.include_usage)
        return await run_stream(
            server,
            plan.key,
            lambda _, names: ChatFormat(names, plan, include_usage=usage),
            cursor=Cursor(0),
            headers=headers_of(plan),
        )
    await wait_for_end(server, plan, request)
    format = await shown_whole(server, plan, ChatFormat(server.names(who.tenant), plan))
    if isinstance(format.end_event, Failed):
        raise problem_of_failure(format.end_event.error)
    return Response(msgspec.json.encode(format.completion()), 200, headers_of(plan), "application/json")


def _asked(server: Server, body: ChatBody, request: Request) -> tuple[StartBody, Extras]:
    """The run that the request asks for. Raises `Problem`."""
    runnable = server.runnable(body.model)
    instructions, messages = read_chat(body.messages)
    history, said = asked_of(runnable, messages)
    tools, output = tools_of(body.tools, body.tool_choice), output_of(body.response_format, "response_format")
    kept: dict[str, Any] = {
        "client_tools": [tool.name for tool in tools],
        "holds_back": holds_back(runnable, output),
        "metadata": body.metadata or {},
    }
    extras = Extras(
        history=history,
        instructions=instructions,
        tools=tools,
        tool_choice=choice_of(body.tool_choice),
        settings=settings_of(body, runnable),
        output=output,
        metadata={"openai": kept},
    )
    start = start_body(
        agent=body.model,
        input=said,
        id=run_id_of(request),
        stream=bool(body.stream),
        user=user_of(body.user),
        tags=tags_of(body.metadata),
        linger=linger_of(request),
    )
    return start, extras
