"""Answers about runs and the server: what `server/bodies.py` is for requests."""

from __future__ import annotations

from typing import Any, Literal

import msgspec
from pydantic import BaseModel, ConfigDict

from halter import events
from halter.children.work import Program
from halter.events import Failure
from halter.outcome import Cancellation, CancelReceipt, RunStatus
from halter.server import examples
from halter.server.names import Names
from halter.server.port import RunInfo

LONGEST_COMMAND = 1_000  # characters


def like(example: dict[str, Any]) -> ConfigDict:
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
    """Lines of the audit log, the newest first. `next`: what to give as `before` for the next page."""

    model_config = like(examples.AUDIT)

    entries: list[AuditView]
    next: float | None


class ApprovalView(BaseModel):
    """An approval that was asked for, and its answer: `yes`, `session`, `always`, `no`, or `expired`.

    `at`: seconds since the epoch. `by`: who has answered. `is_remembered`: calls that fit `pattern` run unasked.
    """

    id: str
    at: float
    run: str | None
    session: str | None
    user: str | None
    agent: str
    tool: str
    pattern: dict[str, Any] | None
    answer: str
    by: str | None
    reason: str | None
    is_remembered: bool


class ApprovalListView(BaseModel):
    """Approvals, the newest first. `next`: what to give as `before` for the next page."""

    model_config = like(examples.APPROVALS)

    approvals: list[ApprovalView]
    next: str | None


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
    """A run under the run. Times are seconds since the epoch."""

    id: str
    parent_id: str | None
    name: str
    kind: str
    status: str
    started_at: float | None
    ended_at: float | None


class InputView(BaseModel):
    """A question that waits for an answer. `expires_at`: seconds since the epoch.

    `pattern`: the calls for which an answer `session` or `always` is remembered.
    """

    request_id: str
    run_id: str
    kind: str
    prompt: str
    options: list[str]
    call_id: str | None
    expires_at: float | None
    pattern: dict[str, Any] | None


class RunView(BaseModel):
    """A run. Times are seconds since the epoch, `cost` is US dollars.

    `cursor`: of its newest event. `is_cut`: `text` is only its beginning, and `output` is missing: the run ended long
    ago, and no database has its record. `effective`: in the answer to a stop, whether the run is or was stopped.
    """

    model_config = like(examples.RUN)

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
    is_cut: bool = False
    effective: bool | None = None


class ProcessView(BaseModel):
    """A program that a tool of a run, or of one under it, is running. `elapsed`: seconds since it was started."""

    run_id: str
    call_id: str
    pid: int
    command: str
    elapsed: float


class ProcessListView(BaseModel):
    """All of them, the oldest first."""

    model_config = like(examples.PROCESSES)

    processes: list[ProcessView]


class RunListView(BaseModel):
    """Runs, the newest first. `next`: what to give as `before` for the next page."""

    model_config = like(examples.RUNS)

    runs: list[RunView]
    next: str | None


class StoppedView(BaseModel):
    """The runs that a bulk stop reached."""

    model_config = like(examples.STOPPED)

    runs: list[RunView]


class AgentView(BaseModel):
    """Something that can be started."""

    name: str
    kind: str
    description: str
    model: str | None


class AgentListView(BaseModel):
    """All of them."""

    model_config = like(examples.AGENTS)

    agents: list[AgentView]


class TombstoneView(BaseModel):
    """A stop of a run that has not begun: a start with this id is stopped before it begins."""

    model_config = like(examples.TOMBSTONE)

    id: str
    status: Literal["tombstone"]


class StatusView(BaseModel):
    """How the server is."""

    model_config = like({"status": "ready"})

    status: str


class HealthView(StatusView):
    """That the process serves requests, and how many runs are live in it."""

    model_config = like({"status": "ok", "live_runs": 3})

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
            ChildView(
                id=run.run_id,
                parent_id=run.parent_id,
                name=run.name,
                kind=run.kind,
                status=run.status,
                started_at=run.started_at,
                ended_at=run.ended_at,
            )
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
        is_cut=info.is_cut,
        effective=effective,
    )


def process_view(found: Program) -> ProcessView:
    """A program as a client sees it."""
    command = shown(found.command[:LONGEST_COMMAND])
    return ProcessView(
        run_id=found.run_id, call_id=found.call_id, pid=found.pid, command=command, elapsed=found.elapsed
    )


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
