"""The AI SDK: `useChat` with its default transport, unchanged.

`POST /v1/ai-sdk/{agent}/chat` takes what `DefaultChatTransport` posts, `GET …/chat/{chat}/stream` is where it resumes,
and `GET …/chat/{chat}/messages` is what a page begins with. A chat is a session of the same id; an answer is a run, and
the message's id is the run's. An approval ends the response, as `useChat` expects; its next request brings the answer
to the same run.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from fastapi import APIRouter, Depends, Path, Query
from pydantic import BaseModel, ConfigDict, Field
from starlette.responses import Response

from halter.errors import SessionNotFound
from halter.messages import Message, Text
from halter.server.bodies import ID, Identifier, RunOptions, StartBody
from halter.server.extras import Extras
from halter.server.fronts.ai_sdk_frames import AiSdkFormat
from halter.server.fronts.ai_sdk_history import before_the_answer, ui_messages
from halter.server.fronts.chats import answer, answered, attachment, client_words, known_agent, live_runs
from halter.server.names import Names
from halter.server.port import RunKey
from halter.server.principal import Principal
from halter.server.problems import Problem, ProblemRoute
from halter.server.routes.answers import problems, shown_as
from halter.server.routes.runs import may
from halter.server.run_stream import no_run, run_stream
from halter.server.server import Server
from halter.server.stream import Cursor

CHUNKS = {"text/event-stream": {"example": 'data: {"type":"start","messageId":"01976f0e-…"}\n\ndata: [DONE]\n\n'}}
Agent = Annotated[str, Path(max_length=256, description="the name of what is to run; see GET /v1/agents")]
Chat = Annotated[str, Path(pattern=ID, description="the chat's id, which is its session's")]


class _Lenient(BaseModel):
    """A piece of a message: the client has many more fields than are of use here."""

    model_config = ConfigDict(extra="ignore", strict=True)


class UIApproval(_Lenient):
    """What became of a request for approval."""

    id: str = Field(max_length=256)
    approved: bool | None = None


class UIPart(_Lenient):
    """A part of a message."""

    type: str = Field(max_length=256)
    text: str = ""
    url: str = ""
    mediaType: str | None = Field(None, max_length=256)  # noqa: N815 - the protocol's name
    filename: str | None = Field(None, max_length=1_024)
    approval: UIApproval | None = None


class UIMessage(_Lenient):
    """A message as `useChat` has it."""

    id: str = Field("", max_length=256)
    role: Literal["system", "user", "assistant"]
    parts: list[UIPart]


class ChatBody(RunOptions):
    """What `DefaultChatTransport` posts. Its `body` option adds the fields of a run."""

    model_config = ConfigDict(
        extra="forbid",
        strict=True,
        json_schema_extra={
            "examples": [
                {
                    "id": "trip",
                    "messages": [{"id": "1", "role": "user", "parts": [{"type": "text", "text": "Write on rivers."}]}],
                    "trigger": "submit-message",
                }
            ]
        },
    )

    id: Identifier
    messages: list[UIMessage] = Field(min_length=1)
    trigger: Literal["submit-message", "regenerate-message"] = "submit-message"
    messageId: str | None = Field(None, max_length=256)  # noqa: N815
    run_id: Identifier | None = Field(None, description="your own id for the run, to stop it by before it answers")
    on_busy: Literal["reject", "enqueue", "interrupt", "steer"] = Field(
        "interrupt", description="what happens when another run answers in this chat"
    )


def ai_sdk_router(server: Server) -> APIRouter:
    """The routes under `/v1/ai-sdk`."""
    router = APIRouter(route_class=ProblemRoute, tags=["ai-sdk"], prefix="/v1/ai-sdk")
    may_run, may_read = may(server, "run"), may(server, "read")

    @router.post(
        "/{agent}/chat",
        response_class=Response,
        responses={**problems(404, 409), 200: {"description": "The message's chunks.", "content": CHUNKS}},
    )
    async def chat(agent: Agent, body: ChatBody, who: Principal = Depends(may_run)) -> Any:
        """Answers a chat's last message; or goes on with an answer whose approvals the last message brings."""
        known_agent(server, agent)
        if body.messages[-1].role == "assistant":
            return await _go_on(server, who, body)
        messages = [message for each in body.messages if (message := _message(each)).parts]
        is_again = body.trigger == "regenerate-message" or body.messageId is not None
        asked = StartBody(
            agent=agent,
            id=body.run_id,
            session=body.id,
            stream=True,
            **body.model_dump(include=set(RunOptions.model_fields)),
        )
        extras = Extras(instructions=client_words(server, agent, messages))
        info = await answered(server, who, asked, messages, again=is_again, extras=extras)
        return await _stream(server, info.plan.key)

    @router.get(
        "/{agent}/chat/{chat}/stream",
        response_class=Response,
        responses={
            **problems(404),
            200: {"description": "The message's chunks, from its beginning.", "content": CHUNKS},
            204: {"description": "Nothing is being answered in this chat."},
        },
    )
    async def resume(
        agent: Agent,
        chat: Chat,
        who: Principal = Depends(may_read),
        run: Annotated[str | None, Query(pattern=ID, description="the answer that the page lacks, over or not")] = None,
    ) -> Any:
        """Streams the answer that is on its way in a chat; or the one that `run` names, from its beginning."""
        known_agent(server, agent)
        if run is not None:
            info = await server.find_run(RunKey(who.tenant, run))
            if info is None or info.plan.session != chat:
                raise no_run(run)
            return await _stream(server, info.plan.key)
        live = [info for info in await live_runs(server, who, chat) if info.plan.agent == agent]
        if not live:
            return Response(status_code=204)
        return await _stream(server, live[0].plan.key)

    @router.get(
        "/{agent}/chat/{chat}/messages",
        response_model=list[dict[str, Any]],
        responses={**problems(404), 200: shown_as([{"id": "trip-0", "role": "user", "parts": []}])},
    )
    async def messages(agent: Agent, chat: Chat, response: Response, who: Principal = Depends(may_read)) -> Any:
        """Shows a chat's messages as `useChat` begins with them; without the answer that is on its way.

        That one's id is in `Halter-Run-Id`: it may be over before the page asks for its stream.
        """
        known_agent(server, agent)
        live = await live_runs(server, who, chat)  # before its messages: an answer that ends meanwhile is left out too
        if live:
            response.headers["Halter-Run-Id"] = live[0].plan.key.id
        try:
            said = await server.sessions.history(server.names(who.tenant).stored(chat), full=True)
        except SessionNotFound:
            return []
        return ui_messages(chat, before_the_answer(said) if live else said)

    return router


async def _stream(server: Server, key: RunKey, answered: frozenset[str] = frozenset()) -> Response:
    now = await server.store.get(key)

    def chunks(_: int, names: Names) -> AiSdkFormat:
        return AiSdkFormat(names, pauses=True, answered=answered, now=now)

    return await run_stream(server, key, chunks, cursor=Cursor(0))


async def _go_on(server: Server, who: Principal, body: ChatBody) -> Response:
    """The rest of an answer that waited for approvals."""
    last = body.messages[-1]
    key = RunKey(who.tenant, last.id)
    info = await server.store.get(key)
    if info is None or info.plan.session != body.id:
        raise no_run(last.id)
    given = [part.approval for part in last.parts if part.approval is not None and part.approval.approved is not None]
    answered = [each.id for each in given if await answer(server, who, key, each.id, each.approved)]
    if not answered:
        detail = f"run {last.id!r} waits for none of the approvals that the last message brings"
        raise Problem(409, detail, code="no_such_question")
    return await _stream(server, key, frozenset(answered))


def _message(given: UIMessage) -> Message:
    """The message as a model is told it: of an answer its text, without tools, which the session has."""
    text = [Text(part.text) for part in given.parts if part.type == "text" and part.text]
    if given.role != "user":
        return Message(given.role, tuple(text))
    files = [attachment(part.url, part.mediaType, part.filename) for part in given.parts if part.type == "file"]
    return Message("user", (*text, *files))
