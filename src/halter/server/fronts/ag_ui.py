"""AG-UI: `HttpAgent` and CopilotKit, unchanged.

`POST /v1/ag-ui/{agent}` takes a `RunAgentInput`. A thread is a session of the same id, and a run has the client's id,
so that it can be stopped by it before it answers. Questions end the response as interrupts; `resume` answers them, and
the same run goes on. Tools of the client are left to it.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Annotated, Any, Literal, cast

from fastapi import APIRouter, Depends, Path
from pydantic import BaseModel, ConfigDict, Field, field_validator
from starlette.responses import Response

from halter.agent import Agent
from halter.messages import Message, Part, Text, ToolCall, ToolResult
from halter.outcome import Cancellation, CancelReason
from halter.request import ToolSpec
from halter.server.bodies import Identifier, RunOptions, StartBody
from halter.server.extras import NOTHING, Extras
from halter.server.fronts.ag_ui_frames import JOINT, AgUiFormat
from halter.server.fronts.chats import answer, answered, attachment, client_words, known_agent
from halter.server.names import Names
from halter.server.port import RunInfo, RunKey
from halter.server.principal import Principal
from halter.server.problems import Problem, ProblemRoute
from halter.server.routes.answers import problems
from halter.server.routes.runs import may
from halter.server.run_stream import no_run, run_stream
from halter.server.server import Server
from halter.server.stream import Cursor

EVENTS = {"text/event-stream": {"example": 'data: {"type":"RUN_STARTED","threadId":"trip","runId":"r1"}\n\n'}}
Name = Annotated[str, Path(max_length=256, description="the name of what is to run; see GET /v1/agents")]
NO_ARGUMENTS: dict[str, Any] = {"type": "object", "properties": {}}
_NUMBERED = re.compile(r"~\d+$")  # what a format adds to the id of a call that was used before


class _Lenient(BaseModel):
    """A piece of the protocol, which lets its objects have more fields than are of use here."""

    model_config = ConfigDict(extra="ignore", strict=True)


class AgUiSource(_Lenient):
    """Where the bytes of an attachment come from."""

    type: Literal["data", "url", "file"]
    value: str
    mimeType: str | None = Field(None, max_length=256)  # noqa: N815 - the protocol's names


class AgUiPart(_Lenient):
    """A part of a message."""

    type: str = Field(max_length=256)
    text: str = ""
    source: AgUiSource | None = None


class AgUiFunction(_Lenient):
    """The name and arguments of a call."""

    name: str = Field(max_length=256)
    arguments: str


class AgUiToolCall(_Lenient):
    """A call that an assistant's message has."""

    id: str = Field(max_length=256)
    function: AgUiFunction


class AgUiMessage(_Lenient):
    """A message of the conversation."""

    id: str = Field("", max_length=256)
    role: Literal["developer", "system", "assistant", "user", "tool", "activity", "reasoning"]
    content: Any = None
    toolCalls: list[AgUiToolCall] | None = None  # noqa: N815
    toolCallId: str = Field("", max_length=256)  # noqa: N815
    error: str | None = None


class AgUiTool(_Lenient):
    """A tool of the client."""

    name: str = Field(min_length=1, max_length=128)
    description: str = ""
    parameters: dict[str, Any] | None = None


class AgUiContext(_Lenient):
    """Something that the application tells."""

    description: str
    value: str


class AgUiAnswer(_Lenient):
    """The answer to an interrupt."""

    interruptId: str = Field(max_length=512)  # noqa: N815
    status: Literal["resolved", "cancelled"]
    payload: Any = None


class AgUiOptions(RunOptions):
    """`forwardedProps.halter`: the fields of a run."""

    on_busy: Literal["reject", "enqueue", "interrupt", "steer"] = Field(
        "interrupt", description="what happens when another run answers in this thread"
    )


class AgUiForwarded(_Lenient):
    """What the application sends along; only `halter` is read."""

    halter: AgUiOptions = Field(default_factory=lambda: AgUiOptions.model_validate({}))


class RunAgentInput(_Lenient):
    """What `HttpAgent` posts."""

    model_config = ConfigDict(
        extra="ignore",
        strict=True,
        json_schema_extra={
            "examples": [
                {
                    "threadId": "trip",
                    "runId": "r1",
                    "messages": [{"id": "1", "role": "user", "content": "Write on rivers."}],
                    "tools": [],
                    "context": [],
                }
            ]
        },
    )

    threadId: Identifier  # noqa: N815
    runId: Identifier  # noqa: N815
    protocolVersion: str | None = Field(None, max_length=64)  # noqa: N815
    messages: list[AgUiMessage]
    tools: list[AgUiTool] = Field(default_factory=list[AgUiTool], max_length=256)
    context: list[AgUiContext] = Field(default_factory=list[AgUiContext], max_length=256)
    forwardedProps: AgUiForwarded = Field(default_factory=AgUiForwarded)  # noqa: N815
    resume: list[AgUiAnswer] = Field(default_factory=list[AgUiAnswer], max_length=256)

    @field_validator("forwardedProps", mode="before")
    @classmethod
    def _any_value(cls, given: Any) -> Any:
        return cast("Any", given) if isinstance(given, dict) else {}

    @field_validator("resume", "tools", "context", mode="before")
    @classmethod
    def _or_nothing(cls, given: Any) -> Any:
        return [] if given is None else given


def ag_ui_router(server: Server) -> APIRouter:
    """The route under `/v1/ag-ui`."""
    router = APIRouter(route_class=ProblemRoute, tags=["ag-ui"], prefix="/v1/ag-ui")
    may_run = may(server, "run")

    @router.post(
        "/{agent}",
        response_class=Response,
        responses={**problems(404, 409), 200: {"description": "The run's events.", "content": EVENTS}},
    )
    async def run_agent(agent: Name, body: RunAgentInput, who: Principal = Depends(may_run)) -> Any:
        """Runs an agent on a thread; or goes on with a run whose interrupts `resume` answers."""
        known_agent(server, agent)
        if body.resume:
            return await _go_on(server, who, body)
        messages = [message for each in body.messages if (message := _message(each)) is not None and message.parts]
        asked = StartBody(
            agent=agent,
            id=body.runId,
            session=body.threadId,
            stream=True,
            **body.forwardedProps.halter.model_dump(),
        )
        tools = [each.name for each in body.tools]
        info = await answered(
            server, who, asked, messages, again=None, tools=tools, extras=_extras(server, agent, body, messages)
        )
        return await _stream(server, info.plan.key, body)

    return router


async def _stream(server: Server, key: RunKey, body: RunAgentInput, answered: frozenset[str] = frozenset()) -> Response:
    now = await server.store.get(key)

    def events(_: int, names: Names) -> AgUiFormat:
        return AgUiFormat(
            names,
            thread=body.threadId,
            run=body.runId,
            protocol=body.protocolVersion,
            pauses=True,
            answered=answered,
            now=now,
        )

    return await run_stream(server, key, events, cursor=Cursor(0))


def _extras(server: Server, agent: str, body: RunAgentInput, messages: Sequence[Message]) -> Extras:
    """What the client's request adds to an agent; other runnables have no tools or instructions to add to."""
    if not isinstance(server.runnable(agent), Agent):
        return NOTHING
    tools = [
        ToolSpec(name=each.name, description=each.description, parameters=each.parameters or dict(NO_ARGUMENTS))
        for each in body.tools
    ]
    context = [{"description": each.description, "value": each.value} for each in body.context]
    return Extras(instructions=client_words(server, agent, messages, context), tools=tuple(tools))


async def _go_on(server: Server, who: Principal, body: RunAgentInput) -> Response:
    """The rest of a run that waited for answers."""
    places = [each.interruptId.rpartition(JOINT) for each in body.resume]
    run_id = places[0][0]
    key = RunKey(who.tenant, run_id)
    info = await server.store.get(key)
    if info is None or info.plan.session != body.threadId or any(place[0] != run_id for place in places):
        raise no_run(run_id)
    answered: list[str] = []
    for (_, _, request_id), given in zip(places, body.resume, strict=True):
        if await _answer(server, who, info, request_id, given):
            answered.append(request_id)
    if not answered:
        raise Problem(409, f"run {run_id!r} waits for none of these answers", code="no_such_question")
    return await _stream(server, key, body, frozenset(answered))


async def _answer(server: Server, who: Principal, info: RunInfo, request_id: str, given: AgUiAnswer) -> bool:
    """Gives one answer. A cancelled one refuses an approval, and stops a run that has asked something else.

    Raises:
        Problem: 403 for a stop by a key without that scope.
    """
    key = info.plan.key
    is_approval = any(each.request_id == request_id and each.kind == "approval" for each in info.inputs)
    if given.status == "resolved":
        return await answer(server, who, key, request_id, _approved(given.payload) if is_approval else given.payload)
    if is_approval:
        return await answer(server, who, key, request_id, False)
    if any(each.request_id == request_id for each in info.inputs):
        server.check_may_stop(who, "to cancel a question")
        stop = Cancellation(reason=CancelReason.USER_STOP, actor=who.actor, message="a question was cancelled")
        server.record_stop(who, key, stop, await server.store.cancel(key, stop))
    return True


def _approved(payload: Any) -> Any:
    return cast("dict[str, Any]", payload).get("approved") if isinstance(payload, dict) else payload


def _message(given: AgUiMessage) -> Message | None:
    """The message as a model is told it; `None` for what is only shown."""
    text = given.content if isinstance(given.content, str) else None
    parts: list[Part] = [Text(text)] if text else []
    match given.role:
        case "user":
            return Message("user", tuple(parts if text is not None else _content(given.content)))
        case "assistant":
            calls = [
                ToolCall(_call_id(each.id), each.function.name, each.function.arguments)
                for each in given.toolCalls or ()
            ]
            return Message("assistant", (*parts, *calls))
        case "tool":
            said = text if text is not None else "\n".join(part.text for part in _parts(given.content))
            result = ToolResult(_call_id(given.toolCallId), given.error or said, is_error=given.error is not None)
            return Message("tool", (result,))
        case "system" | "developer":
            return Message(given.role, tuple(parts))
        case _:
            return None


def _parts(content: Any) -> list[AgUiPart]:
    if not isinstance(content, list):
        raise Problem(422, "content must be text or a list of parts", code="invalid")
    try:
        return [AgUiPart.model_validate(each) for each in cast("list[Any]", content)]
    except ValueError as error:
        raise Problem(422, f"content: {error}", code="invalid") from error


def _content(content: Any) -> list[Part]:
    return [_part(each) for each in _parts(content)]


def _part(given: AgUiPart) -> Part:
    if given.type == "text":
        return Text(given.text)
    source = given.source
    if source is None or source.type == "file":
        raise Problem(422, f"a part of the type {given.type!r} needs a source of the type data or url", code="invalid")
    url = source.value if source.type == "url" else f"data:{source.mimeType};base64,{source.value}"
    return attachment(url, source.mimeType or ("image/*" if given.type == "image" else None), None)


def _call_id(shown: str) -> str:
    """The id by which the model knows a call."""
    return _NUMBERED.sub("", shown)
