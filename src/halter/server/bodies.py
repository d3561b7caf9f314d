"""Request bodies. An unknown field is an error: a client that names an actor, say, is told that it cannot."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field

ID = r"^[A-Za-z0-9_~-][A-Za-z0-9._~-]{0,127}$"
Identifier = Annotated[str, Field(pattern=ID, description="1 to 128 letters, digits and . _ ~ -")]
Tag = Annotated[str, Field(min_length=1, max_length=64, pattern=r"^[^\x00-\x1f]+$")]
Mode = Literal["after_turn", "drain_tools", "immediate", "kill"]
Reason = Literal["user_stop", "superseded", "admin", "policy"]
PRIVILEGED = frozenset(("admin", "policy"))


class Body(BaseModel):
    """What all bodies have in common."""

    model_config = ConfigDict(extra="forbid", strict=True)


class BudgetBody(Body):
    """How much a run may spend; what is left out has no limit."""

    tokens: int | None = Field(None, ge=0, description="input and output together")
    cost_usd: float | None = Field(None, ge=0, le=1e9, description="US dollars")
    model_calls: int | None = Field(None, ge=0)
    tool_calls: int | None = Field(None, ge=0)


class RunOptions(Body):
    """How a run is to go, on every front."""

    user: Identifier | None = Field(None, description="whom it talks with")
    on_disconnect: Literal["cancel", "detach"] | None = Field(
        None, description="cancel: stop the run when its last client has gone; the default if you stream or wait"
    )
    linger: float = Field(0.0, ge=0, le=3600, description="seconds that a client has to come back before that")
    timeout: float | None = Field(None, gt=0, le=1e6, description="seconds until the run is stopped")
    budget: BudgetBody | None = None
    tags: list[Tag] = Field(default_factory=list, max_length=16)
    keep: Literal["partial", "rollback"] = Field("partial", description="what the session keeps of a stopped turn")
    on_busy: Literal["reject", "enqueue", "interrupt", "steer"] = Field(
        "reject", description="what happens when another run has the session's turn"
    )


class StartBody(RunOptions):
    """A run to start."""

    model_config = ConfigDict(
        extra="forbid",
        strict=True,
        json_schema_extra={"examples": [{"agent": "poet", "input": "Write on rivers.", "stream": True}]},
    )

    agent: str = Field(min_length=1, max_length=256, description="the name of what is to run; see GET /v1/agents")
    input: Any = Field(None, description="text, a list of {role, content}, or what else the runnable takes")
    id: Identifier | None = Field(None, description="your own id; sent again with the same body, nothing new starts")
    session: Identifier | None = Field(None, description="the conversation that it continues")
    stream: bool = Field(False, description="answer with the event stream itself")


class CancelBody(Body):
    """A stop."""

    model_config = ConfigDict(
        extra="forbid", strict=True, json_schema_extra={"examples": [{"message": "not what I meant"}]}
    )

    mode: Mode = Field("immediate", description="how hard; a later stop can only be stronger")
    reason: Reason = Field("user_stop", description="admin and policy need the scope admin")
    message: str | None = Field(None, max_length=500)
    if_epoch: int | None = Field(None, description="stop it only if its epoch is this one")


class CancelManyBody(Body):
    """A stop of all live runs that fit. One filter at least, or `all`."""

    model_config = ConfigDict(extra="forbid", strict=True, json_schema_extra={"examples": [{"tag": "nightly"}]})

    session: Identifier | None = None
    tag: Tag | None = None
    agent: str | None = Field(None, min_length=1, max_length=256)
    status: Literal["queued", "running", "waiting", "cancelling"] | None = None
    all: bool = False
    mode: Mode = "immediate"
    reason: Reason = "user_stop"
    message: str | None = Field(None, max_length=500)


class AnswerBody(Body):
    """The answer to an `input.requested`."""

    model_config = ConfigDict(
        extra="forbid", strict=True, json_schema_extra={"examples": [{"request_id": "01976f0e-…", "answer": "yes"}]}
    )

    request_id: str = Field(min_length=1, max_length=256)
    answer: Any = None
    reason: str | None = Field(None, max_length=2_000, description="why; after a no the model is told")


class MessageBody(Body):
    """A message that steers a live run; it is delivered at its next turn."""

    model_config = ConfigDict(
        extra="forbid", strict=True, json_schema_extra={"examples": [{"text": "Shorter, please."}]}
    )

    text: str = Field(min_length=1, max_length=100_000)


class SessionBody(Body):
    """A session to make, before its first run."""

    model_config = ConfigDict(
        extra="forbid", strict=True, json_schema_extra={"examples": [{"id": "trip", "title": "A trip to the sea"}]}
    )

    id: Identifier | None = None
    user: Identifier | None = None
    title: str = Field("", max_length=500)
    tags: list[Tag] = Field(default_factory=list, max_length=16)
    metadata: dict[str, Any] = Field(default_factory=dict)


class SessionChangesBody(Body):
    """What is to be changed; what is left out stays."""

    model_config = ConfigDict(extra="forbid", strict=True, json_schema_extra={"examples": [{"title": "By the sea"}]})

    title: str | None = Field(None, max_length=500)
    tags: list[Tag] | None = Field(None, max_length=16)
    metadata: dict[str, Any] | None = None


class ImportBody(Body):
    """A session to make of an export, of this server or another one."""

    model_config = ConfigDict(
        extra="forbid",
        strict=True,
        json_schema_extra={
            "examples": [
                {
                    "id": "trip-again",
                    "export": {
                        "format": "halter.session",
                        "version": 1,
                        "session": {"id": "trip", "user": "ann"},
                        "messages": [{"role": "user", "parts": [{"type": "text", "text": "Write on rivers."}]}],
                    },
                }
            ]
        },
    )

    export: dict[str, Any] = Field(description="what GET /v1/sessions/{id}/export gave")
    id: Identifier | None = Field(None, description="the new session's id, if it is to be another one")


class ForkBody(Body):
    """A new session that begins as another one did."""

    model_config = ConfigDict(extra="forbid", strict=True, json_schema_extra={"examples": [{"at": 2}]})

    at: int | None = Field(None, ge=0, description="how many of the messages; all if it is left out")
    to: Identifier | None = Field(None, description="the new session's id")


class RewindBody(Body):
    """Takes messages back."""

    model_config = ConfigDict(extra="forbid", strict=True, json_schema_extra={"examples": [{"to": 2}]})

    to: int = Field(ge=0, description="how many messages stay")
