"""The routes of OpenAI's API."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from fastapi import APIRouter, Depends, Path, Query
from starlette.requests import Request

from halter.server.bodies import ID
from halter.server.fronts.openai import conversations, models, responses
from halter.server.fronts.openai.bodies import ChatBody, ConversationBody, ResponseBody, read_body
from halter.server.fronts.openai.chat import complete_chat
from halter.server.fronts.openai.errors import OpenAIRoute
from halter.server.principal import Principal
from halter.server.routes.runs import may
from halter.server.server import Server

Id = Annotated[str, Path(pattern=ID)]
Limit = Annotated[int, Query(ge=1, le=100)]
Order = Literal["asc", "desc"]


def openai_router(server: Server) -> APIRouter:
    """`/v1/chat/completions`, `/v1/responses`, `/v1/conversations` and `/v1/models`.

    They are not in the OpenAPI document of the server: OpenAI's own describes them.
    """
    router = APIRouter(route_class=OpenAIRoute, include_in_schema=False)
    may_run, may_read, may_stop = may(server, "run"), may(server, "read"), may(server, "stop")

    @router.get("/v1/models")
    async def list_models(_: Principal = Depends(may_read)) -> Any:
        return models.list_models(server)

    @router.get("/v1/models/{name:path}")
    async def get_model(name: str, _: Principal = Depends(may_read)) -> Any:
        return models.get_model(server, name)

    @router.post("/v1/chat/completions")
    async def create_chat_completion(request: Request, who: Principal = Depends(may_run)) -> Any:
        return await complete_chat(server, await read_body(request, ChatBody), request, who)

    @router.post("/v1/responses")
    async def create_response(request: Request, who: Principal = Depends(may_run)) -> Any:
        return await responses.create_response(server, await read_body(request, ResponseBody), request, who)

    @router.get("/v1/responses/{id}")
    async def get_response(
        id: Id,
        who: Principal = Depends(may_read),
        stream: bool = False,
        starting_after: Annotated[int | None, Query(ge=-1)] = None,
    ) -> Any:
        return await responses.get_response(server, id, who, stream=stream, starting_after=starting_after)

    @router.post("/v1/responses/{id}/cancel")
    async def cancel_response(id: Id, who: Principal = Depends(may_stop)) -> Any:
        return await responses.cancel_response(server, id, who)

    @router.delete("/v1/responses/{id}")
    async def delete_response(id: Id, who: Principal = Depends(may_run)) -> Any:
        return await responses.delete_response(server, id, who)

    @router.get("/v1/responses/{id}/input_items")
    async def list_input_items(
        id: Id,
        who: Principal = Depends(may_read),
        limit: Limit = 20,
        after: str | None = None,
        order: Order = "desc",
    ) -> Any:
        return await responses.input_items(server, id, who, limit=limit, after=after, order=order)

    @router.post("/v1/conversations")
    async def create_conversation(request: Request, who: Principal = Depends(may_run)) -> Any:
        return await conversations.create_conversation(server, await read_body(request, ConversationBody), who)

    @router.get("/v1/conversations/{id}")
    async def get_conversation(id: Id, who: Principal = Depends(may_read)) -> Any:
        return await conversations.get_conversation(server, id, who)

    @router.post("/v1/conversations/{id}")
    async def update_conversation(id: Id, request: Request, who: Principal = Depends(may_run)) -> Any:
        body = await read_body(request, ConversationBody)
        return await conversations.update_conversation(server, id, body, who)

    @router.delete("/v1/conversations/{id}")
    async def delete_conversation(id: Id, who: Principal = Depends(may_run)) -> Any:
        return await conversations.delete_conversation(server, id, who)

    @router.get("/v1/conversations/{id}/items")
    async def list_conversation_items(
        id: Id,
        who: Principal = Depends(may_read),
        limit: Limit = 20,
        after: str | None = None,
        order: Order = "desc",
    ) -> Any:
        return await conversations.conversation_items(server, id, who, limit=limit, after=after, order=order)

    return router
