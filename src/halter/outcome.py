"""How a run ended: its status, who stopped it and why, the receipt of the stop, and the result."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Generic, TypeVar

import msgspec

from halter.messages import Message, Usage
from halter.shown import message_of, shown

T_co = TypeVar("T_co", covariant=True)


class RunStatus(StrEnum):
    """Where a run is. The last three are final; `core/lifecycle.py` has the legal moves."""

    QUEUED = "queued"
    RUNNING = "running"
    WAITING = "waiting"
    CANCELLING = "cancelling"
    COMPLETED = "completed"
    FAILED = "failed"
    CANCELLED = "cancelled"

    @property
    def is_final(self) -> bool:
        return self in FINAL


FINAL = frozenset((RunStatus.COMPLETED, RunStatus.FAILED, RunStatus.CANCELLED))


class CancelReason(StrEnum):
    """Why a run was stopped; of several, the first given wins."""

    USER_STOP = "user_stop"
    SUPERSEDED = "superseded"
    SIGNAL = "signal"
    CLIENT_DISCONNECT = "client_disconnect"
    CALLER_CANCELLED = "caller_cancelled"
    SCOPE_EXITED = "scope_exited"
    HANDLE_DROPPED = "handle_dropped"
    TIMEOUT = "timeout"
    BUDGET_TOKENS = "budget_tokens"
    BUDGET_COST = "budget_cost"
    BUDGET_CALLS = "budget_calls"
    PARENT_CANCELLED = "parent_cancelled"
    PARENT_FINISHED = "parent_finished"
    SIBLING_FAILED = "sibling_failed"
    LOST_RACE = "lost_race"
    SHUTDOWN = "shutdown"
    OWNER_LOST = "owner_lost"
    ADMIN = "admin"
    POLICY = "policy"


class CancelMode(StrEnum):
    """How hard a run is stopped; of several, the strongest wins.

    `AFTER_TURN` lets the turn finish. `DRAIN_TOOLS` stops the model now and lets running tools finish.
    `IMMEDIATE` stops both now. `KILL` gives nothing any grace.
    """

    AFTER_TURN = "after_turn"
    DRAIN_TOOLS = "drain_tools"
    IMMEDIATE = "immediate"
    KILL = "kill"

    @property
    def strength(self) -> int:
        return _STRENGTH[self]

    @property
    def cuts(self) -> bool:
        """True if text and reasoning end at the request itself."""
        return self is not CancelMode.AFTER_TURN


_STRENGTH = {mode: place for place, mode in enumerate(CancelMode)}


_MODES: dict[object, CancelMode] = {mode.value: mode for mode in CancelMode}
_REASONS: dict[object, CancelReason] = {reason.value: reason for reason in CancelReason}


class Cancellation(msgspec.Struct, frozen=True, kw_only=True):
    """The record of a request to stop. `at`: seconds since the epoch."""

    reason: CancelReason = CancelReason.USER_STOP
    mode: CancelMode = CancelMode.IMMEDIATE
    actor: str | None = None
    message: str | None = None
    at: float = msgspec.field(default_factory=time.time)

    @classmethod
    def of(cls, reason: object, mode: object, actor: str | None, message: str | None) -> Cancellation:
        """A record from what a caller gave. It never raises: unknown modes and reasons are the default ones."""
        return cls(
            reason=_REASONS.get(_plain(reason), CancelReason.USER_STOP),
            mode=_MODES.get(_plain(mode), CancelMode.IMMEDIATE),
            actor=_text_or_none(actor),
            message=_text_or_none(message),
        )

    def with_mode(self, mode: CancelMode) -> Cancellation:
        """The same request, made as strong as `mode`; it never becomes weaker."""
        return msgspec.structs.replace(self, mode=mode) if mode.strength > self.mode.strength else self

    def __str__(self) -> str:
        said = f" ({self.message})" if self.message else ""
        by = f" by {self.actor}" if self.actor else ""
        return f"{self.reason}{by}{said}"


def _text_or_none(given: object) -> str | None:
    """What a caller gave, as text: the record of a stop can always be written down and read back."""
    return None if given is None else _plain(given if isinstance(given, str) else shown(given))


def _plain(given: object) -> str:
    """Text without the surrogates that cannot be encoded, and of no type of somebody's own; "" for anything else."""
    return str.encode(given, "utf-8", "replace").decode() if isinstance(given, str) else ""


class Ended(StrEnum):
    """How one resource came to its end."""

    CLOSED = "closed"
    FINISHED = "finished"
    CANCELLED = "cancelled"
    TERMINATED = "terminated"
    KILLED = "killed"
    ABANDONED = "abandoned"
    UNKNOWN = "unknown"  # nothing of it was found any more, and it could have hidden


class ReceiptLine(msgspec.Struct, frozen=True, kw_only=True):
    """One resource that was open at the stop. `ended_after_ms`: from the request on; `None` if not known to be gone."""

    kind: str
    label: str
    run_id: str
    ended: Ended
    ended_after_ms: float | None


class CancelReceipt(msgspec.Struct, frozen=True, kw_only=True):
    """What was open at the stop, and when and how each thing ended: measured, not assumed.

    `requested_at`: seconds since the epoch. `stopped_after_ms`: until the last of it had ended.
    `confirmed`: all of *ours* has certainly ended: no line is abandoned or unknown. It never means that a vendor has
    stopped billing.
    """

    requested_at: float
    stopped_after_ms: float
    confirmed: bool = True
    resources: tuple[ReceiptLine, ...] = ()

    def __str__(self) -> str:
        state = "stopped" if self.confirmed else "NOT confirmed"
        head = f"{state} after {self.stopped_after_ms:.2f} ms, {len(self.resources)} open at the stop"
        kinds = max((len(line.kind) for line in self.resources), default=0)
        labels = max((len(line.label) for line in self.resources), default=0)
        return "\n".join((head, *(_row(line, kinds, labels) for line in self.resources)))


def _row(line: ReceiptLine, kinds: int, labels: int) -> str:
    when = "" if line.ended_after_ms is None else f" after {line.ended_after_ms:.2f} ms"
    doubt = ": a part of it may still run" if line.ended is Ended.UNKNOWN else ""
    return f"  {line.kind:<{kinds}}  {line.label:<{labels}}  {line.ended}{when}{doubt}"


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class RunResult(Generic[T_co]):
    """Everything that a run produced, whichever way it ended.

    `output`: what the body returned (`None` unless completed). `text`: this runnable's own answer, as far as it
    came. `messages`: the whole conversation, fit for `history=` of a next run. `state`: of what has one (teams, crews,
    flows), as far as it came, fit for `state=` of a next run.
    `undelivered`: what `run.send()` brought too late for another turn. `usage`, `cost`: of the run and all under it;
    US dollars at list price, `None` if the price of a model that was asked is not known. `error`: what the body raised,
    also when a stop had been claimed before. `cancellation`, `receipt`: only after a stop.
    """

    run_id: str
    status: RunStatus
    output: T_co | None = None
    text: str = ""
    messages: tuple[Message, ...] = ()
    undelivered: tuple[Message, ...] = ()
    state: Any = None
    usage: Usage = field(default_factory=Usage)
    cost: float | None = 0.0
    error: BaseException | None = None
    cancellation: Cancellation | None = None
    receipt: CancelReceipt | None = None

    @property
    def is_completed(self) -> bool:
        return self.status is RunStatus.COMPLETED

    @property
    def is_cancelled(self) -> bool:
        return self.status is RunStatus.CANCELLED

    @property
    def is_failed(self) -> bool:
        return self.status is RunStatus.FAILED

    def __repr__(self) -> str:
        shown = self.text if len(self.text) <= 60 else f"{self.text[:57]}..."
        return f"<RunResult {self.status} {shown!r}, {self.usage.total} tokens>"

    def why(self) -> str:
        """One sentence on how it ended."""
        if self.is_completed:
            return "It completed."
        if self.cancellation:
            took = f", and everything had stopped {self.receipt.stopped_after_ms:.1f} ms later" if self.receipt else ""
            return f"It was stopped: {self.cancellation}{took}."
        return f"It failed: {type(self.error).__name__}: {message_of(self.error)}."
