"""Answers: a run, a session, and lists of them."""

from __future__ import annotations

from typing import Any, Literal

import msgspec
from pydantic import BaseModel, ConfigDict

from halter import events
from halter.events import Failure
from halter.messages import Message
from halter.outcome import Cancellation, CancelReceipt, RunStatus
from halter.server import examples
from halter.server.names import Names
from halter.server.port import RunInfo
from halter.sessions.records import Fact, Hit, RunRecord, Session


def _like(example: dict[str, Any]) -> ConfigDict:
    return ConfigDict(json_schema_extra={"examples": [example]})


class AuditView(BaseModel):
    """One line of the audit log."""

    at: float
    tenant: str
    actor: str
    action: str
    target: str
    effect: str
    reason: str | None
    mode: str | None
    message: str | None


class AuditListView(BaseModel):
    """Lines of the audit log, the newest first."""

    model_config = _like(examples.AUDIT)

    entries: list[AuditView]


class UsageView(BaseModel):
    """Tokens. `estimated`: part of it is our own count, after a stop."""

    input: int
    output: int
    cached: int
    reasoning: int
    estimated: bool


class ErrorView(BaseModel):
    """Why a run failed."""

    type: str
    message: str
    retryable: bool


class CancellationView(BaseModel):
    """A stop: by whom, and why. `at`: seconds since the epoch."""

    reason: str
    mode: str
    actor: str | None
    message: str | None
    at: float


class ReceiptLineView(BaseModel):
    """One thing that was open at the stop. `ended_after_ms`: `None` if it was abandoned."""

    kind: str
    label: str
    run_id: str
    ended: str
    ended_after_ms: float | None


class ReceiptView(BaseModel):
    """What was open at the stop, and when and how each thing ended."""

    requested_at: float
    stopped_after_ms: float
    confirmed: bool
    resources: list[ReceiptLineView]


class ChildView(BaseModel):
    """A run under the run."""

    id: str
    parent_id: str | None
    name: str
    kind: str
    status: str


class InputView(BaseModel):
    """A question that waits for an answer. `expires_at`: seconds since the epoch."""

    request_id: str
    run_id: str
    kind: str
    prompt: str
    options: list[str]
    call_id: str | None
    expires_at: float | None


class RunView(BaseModel):
    """A run. Times are seconds since the epoch, `cost` is US dollars.

    `cursor`: of its newest event. `effective`: in the answer to a stop, whether the run is or was stopped.
    """

    model_config = _like(examples.RUN)

    id: str
    epoch: int
    agent: str
    kind: str
    status: RunStatus
    session: str | None
    user: str | None
    tags: list[str]
    text: str
    output: Any
    usage: UsageView
    cost: float | None
    error: ErrorView | None
    cancelling: CancellationView | None
    cancellation: CancellationView | None
    receipt: ReceiptView | None
    children: list[ChildView]
    inputs: list[InputView]
    cursor: str
    created_at: float
    started_at: float | None
    ended_at: float | None
    effective: bool | None = None


class RunListView(BaseModel):
    """Runs, the newest first. `next`: what to give as `before` for the next page."""

    model_config = _like(examples.RUNS)

    runs: list[RunView]
    next: str | None


class StoppedView(BaseModel):
    """The runs that a bulk stop reached."""

    model_config = _like(examples.STOPPED)

    runs: list[RunView]


class AgentView(BaseModel):
    """Something that can be started."""

    name: str
    kind: str
    description: str
    model: str | None


class AgentListView(BaseModel):
    """All of them."""

    model_config = _like(examples.AGENTS)

    agents: list[AgentView]


class SessionView(BaseModel):
    """A conversation, without its messages. `running`: the run that has its turn."""

    model_config = _like(examples.SESSION)

    id: str
    user: str | None
    title: str
    tags: list[str]
    metadata: dict[str, Any]
    messages: int
    running: str | None
    created_at: float
    updated_at: float


class SessionListView(BaseModel):
    """Sessions, the one that was used last first."""

    model_config = _like(examples.SESSIONS)

    sessions: list[SessionView]


class MessagesView(BaseModel):
    """What was said in a session, in Halter's own form."""

    model_config = _like(examples.MESSAGES)

    messages: list[dict[str, Any]]


class HitView(BaseModel):
    """A message in which something was found."""

    session: str
    position: int
    role: str
    text: str


class HitListView(BaseModel):
    """What a search found."""

    model_config = _like(examples.HITS)

    hits: list[HitView]


class FactView(BaseModel):
    """Something that is known of a user. `session`: where it was learned. Times are seconds since the epoch."""

    id: str
    text: str
    session: str | None
    created_at: float
    updated_at: float


class FactListView(BaseModel):
    """Facts, the newest first."""

    model_config = _like(examples.FACTS)

    facts: list[FactView]


class DeletedFactsView(BaseModel):
    """How many facts were deleted."""

    model_config = _like({"facts": 3})

    facts: int


class DeletedUserView(BaseModel):
    """How many sessions of the user were deleted."""

    model_config = _like({"sessions": 2})

    sessions: int


class TombstoneView(BaseModel):
    """A stop of a run that has not begun: a start with this id is stopped before it begins."""

    model_config = _like(examples.TOMBSTONE)

    id: str
    status: Literal["tombstone"]


class StatusView(BaseModel):
    """How the server is."""

    model_config = _like({"status": "ready"})

    status: str


class HealthView(StatusView):
    """That the process serves requests, and how many runs are live in it."""

    model_config = _like({"status": "ok", "live_runs": 3})

    live_runs: int


def run_view(info: RunInfo, *, effective: bool | None = None) -> RunView:
    """A run as a client sees it."""
    plan = info.plan
    names = Names.of(plan.key.tenant)
    return RunView(
        id=plan.key.id,
        epoch=info.epoch,
        agent=plan.agent,
        kind=plan.kind,
        status=info.status,
        session=plan.session,
        user=plan.user,
        tags=list(plan.tags),
        text=shown(info.text),
        output=plain(info.output),
        usage=UsageView(**msgspec.structs.asdict(info.usage)),
        cost=info.cost,
        error=_error(info.error, names),
        cancelling=_cancellation(info.cancelling),
        cancellation=_cancellation(info.cancellation),
        receipt=_receipt(info.receipt),
        children=[
            ChildView(id=run.run_id, parent_id=run.parent_id, name=run.name, kind=run.kind, status=run.status)
            for run in info.runs
            if run.parent_id is not None
        ],
        inputs=[
            InputView(
                **{name: getattr(each, name) for name in InputView.model_fields if name != "options"},
                options=list(each.options),
            )
            for each in info.inputs
        ],
        cursor=f"{info.epoch}.{info.seq}",
        created_at=plan.created_at,
        started_at=info.started_at,
        ended_at=info.ended_at,
        effective=effective,
    )


def record_view(record: RunRecord, names: Names) -> RunView:
    """A run of an earlier process, from its record."""
    return RunView(
        id=record.run_id,
        epoch=0,
        agent=record.name,
        kind=record.kind,
        status=record.status,
        session=names.bare_or_none(record.session_id),
        user=names.bare_or_none(record.user),
        tags=names.tags(record.tags),
        text=shown(record.text),
        output=None,
        usage=UsageView(**msgspec.structs.asdict(record.usage)),
        cost=record.cost,
        error=_error(record.error, names),
        cancelling=None,
        cancellation=_cancellation(record.cancellation),
        receipt=_receipt(record.receipt),
        children=[],
        inputs=[],
        cursor="0.0",
        created_at=record.started_at,
        started_at=record.started_at,
        ended_at=record.ended_at,
    )


def session_view(session: Session, names: Names) -> SessionView:
    """A session as a client sees it."""
    return SessionView(
        id=names.bare(session.id),
        user=names.bare_or_none(session.user),
        title=shown(session.title),
        tags=list(session.tags),
        metadata=plain(session.metadata),
        messages=session.messages,
        running=session.holder,
        created_at=session.created_at,
        updated_at=session.updated_at,
    )


def messages_view(messages: tuple[Message, ...]) -> MessagesView:
    """Messages as a client sees them."""
    return MessagesView(messages=plain(messages))


def fact_view(fact: Fact, names: Names) -> FactView:
    """A fact as a client sees it."""
    return FactView(
        id=fact.id,
        text=shown(fact.text),
        session=names.bare_or_none(fact.session_id),
        created_at=fact.created_at,
        updated_at=fact.updated_at,
    )


def hit_view(hit: Hit, names: Names) -> HitView:
    """What a search found, as a client sees it."""
    return HitView(session=names.bare(hit.session_id), position=hit.position, role=hit.role, text=shown(hit.text))


def _error(found: Failure | None, names: Names) -> ErrorView | None:
    if found is None:
        return None
    error = ErrorView(**plain(found))
    error.message = names.in_text(error.message)
    return error


def _cancellation(found: Cancellation | None) -> CancellationView | None:
    return CancellationView(**plain(found)) if found else None


def _receipt(found: CancelReceipt | None) -> ReceiptView | None:
    return ReceiptView(**plain(found)) if found else None


def plain(value: Any) -> Any:
    """Any value as plain JSON data: what JSON has no form for becomes its `repr`."""
    return msgspec.json.decode(events.encode_any(value))


def shown(text: str) -> str:
    """Text that JSON can carry: what is no Unicode becomes a question mark."""
    return text.encode("utf-8", "replace").decode()
