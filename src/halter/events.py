"""Everything that can happen in a run, as one tagged union of frozen structs (JSON field `type`).

`seq` counts the events of a whole tree of runs without a hole; `at` is seconds since the epoch. Merged deltas
cover `first_seq … seq`. The names in `halter.events` are the types' without the prefix `run.`, so that no event
shares a name with an exception.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, Literal, TypeAlias, cast

import msgspec

from halter.messages import Message, Usage
from halter.outcome import CancelMode, CancelReason, CancelReceipt
from halter.shown import message_of, shown


class Event(msgspec.Struct, frozen=True, kw_only=True, tag_field="type"):
    """What all events carry. `parent_id` is `None` in the root's own events."""

    seq: int
    run_id: str
    parent_id: str | None
    root_id: str
    at: float

    is_terminal: ClassVar[bool] = False

    @property
    def type(self) -> str:
        """The name as in JSON: `text.delta`, `run.started`, …"""
        return str(self.__struct_config__.tag)


class AgentEvent(Event, frozen=True, kw_only=True):
    """What all but `run.*` carry: who in a crew or team it is, and on which task."""

    agent: str | None
    task: str | None


class Failure(msgspec.Struct, frozen=True, kw_only=True):
    """An error as data. `type`: the exception's class name."""

    type: str
    message: str
    retryable: bool = False


# --- the run ------------------------------------------------------------------------------------------------


class Queued(Event, frozen=True, kw_only=True, tag="run.queued"):
    session_id: str | None


class Started(Event, frozen=True, kw_only=True, tag="run.started"):
    """`timeout`: seconds. `schema`: the version of these events."""

    name: str
    kind: str
    input: Any
    session_id: str | None = None
    tags: tuple[str, ...] = ()
    model: str | None = None
    timeout: float | None = None
    schema: int = 1


class Cancelling(Event, frozen=True, kw_only=True, tag="run.cancelling"):
    """A stop was requested, or made stronger. `after_seq`: the last event before it."""

    reason: CancelReason
    mode: CancelMode
    actor: str | None
    message: str | None
    after_seq: int


class Completed(Event, frozen=True, kw_only=True, tag="run.completed"):
    output: Any
    text: str
    usage: Usage
    is_terminal: ClassVar[bool] = True


class Failed(Event, frozen=True, kw_only=True, tag="run.failed"):
    error: Failure
    text: str
    usage: Usage
    is_terminal: ClassVar[bool] = True


class Cancelled(Event, frozen=True, kw_only=True, tag="run.cancelled"):
    reason: CancelReason
    mode: CancelMode
    text: str
    usage: Usage
    receipt: CancelReceipt
    is_terminal: ClassVar[bool] = True


# --- turns and models ---------------------------------------------------------------------------------------


class StepStarted(AgentEvent, frozen=True, kw_only=True, tag="step.started"):
    step: int


class StepFinished(AgentEvent, frozen=True, kw_only=True, tag="step.finished"):
    step: int
    interrupted: bool


class ModelRequested(AgentEvent, frozen=True, kw_only=True, tag="model.requested"):
    model: str
    attempt: int
    request_id: str
    message_id: str


class ModelRetry(AgentEvent, frozen=True, kw_only=True, tag="model.retry"):
    """`delay`: seconds until the next attempt."""

    attempt: int
    delay: float
    cause: Failure


class TextDelta(AgentEvent, frozen=True, kw_only=True, tag="text.delta", gc=False):
    text: str
    message_id: str
    first_seq: int


class ReasoningDelta(AgentEvent, frozen=True, kw_only=True, tag="reasoning.delta", gc=False):
    text: str
    message_id: str
    first_seq: int


class MessageFinished(AgentEvent, frozen=True, kw_only=True, tag="message.finished"):
    message: Message
    message_id: str


class UsageUpdated(AgentEvent, frozen=True, kw_only=True, tag="usage"):
    """Cumulative for the run, its children included once."""

    usage: Usage


# --- tools, inputs, the rest --------------------------------------------------------------------------------

ToolOutcome: TypeAlias = Literal["ok", "error", "cancelled", "abandoned", "denied"]
LateOutcome: TypeAlias = Literal["ok", "error"]
InputOutcome: TypeAlias = Literal["answered", "expired", "cancelled"]
CompactionReason: TypeAlias = Literal["threshold", "overflow"]
CompactionOutcome: TypeAlias = Literal["ok", "failed", "cancelled"]


class ToolCalled(AgentEvent, frozen=True, kw_only=True, tag="tool.called"):
    call_id: str
    name: str
    arguments: str


class ToolArgumentsDelta(AgentEvent, frozen=True, kw_only=True, tag="tool.arguments.delta", gc=False):
    """`name`: the tool's; empty as long as the provider has not said it."""

    call_id: str
    fragment: str
    first_seq: int
    name: str = ""


class ToolStarted(AgentEvent, frozen=True, kw_only=True, tag="tool.started"):
    call_id: str


class ToolProgress(AgentEvent, frozen=True, kw_only=True, tag="tool.progress"):
    call_id: str
    text: str
    data: Any = None
    first_seq: int


class ToolFinished(AgentEvent, frozen=True, kw_only=True, tag="tool.finished"):
    """`elapsed`: seconds."""

    call_id: str
    name: str
    outcome: ToolOutcome
    result: Any
    elapsed: float


class ToolLate(AgentEvent, frozen=True, kw_only=True, tag="tool.late"):
    """What a call that had been given up came to, after all. `elapsed`: seconds.

    A log that has ended never grows: after the run's end only observers get it, with the number of the last event.
    """

    call_id: str
    name: str
    outcome: LateOutcome
    result: Any
    elapsed: float


class Handoff(AgentEvent, frozen=True, kw_only=True, tag="handoff"):
    """Another agent goes on with the conversation; events from here on carry its name."""

    from_agent: str
    to_agent: str


class CompactionStarted(AgentEvent, frozen=True, kw_only=True, tag="compaction.started"):
    """Older messages are about to be trimmed or summarised for the model.

    `reason`: `threshold`, before a request, or `overflow`, after the provider has refused one as too long. `tokens`:
    about as large is the request. `messages`: so many are in it.
    """

    reason: CompactionReason
    tokens: int
    messages: int


class CompactionFinished(AgentEvent, frozen=True, kw_only=True, tag="compaction.finished"):
    """Unless `outcome` is `ok`, nothing has changed.

    `tokens_before`, `tokens_after`: about as large was the request, and is it now. `upto`: so many of the run's first
    messages have others in their place now. `trimmed`: tool results that were cut short. `summary`: of what is not
    shown any more, if trimming was not enough. `error`: why it failed.
    """

    outcome: CompactionOutcome
    tokens_before: int
    tokens_after: int | None = None
    upto: int | None = None
    trimmed: int = 0
    summary: str | None = None
    error: Failure | None = None


class InputRequested(AgentEvent, frozen=True, kw_only=True, tag="input.requested"):
    """Somebody must answer with `run.answer(request_id, …)`.

    `expires_at`: seconds since the epoch. `pattern`: of an approval, what a yes holds for that is to be remembered.
    """

    request_id: str
    kind: str
    prompt: str
    schema: Any = None
    options: tuple[str, ...] = ()
    call_id: str | None = None
    expires_at: float | None = None
    pattern: Mapping[str, Any] | None = None


class InputReceived(AgentEvent, frozen=True, kw_only=True, tag="input.received"):
    """`reason`: why, as far as it was said; `by`: who has answered."""

    request_id: str
    outcome: InputOutcome
    answer: Any = None
    reason: str | None = None
    by: str | None = None


class Custom(AgentEvent, frozen=True, kw_only=True, tag="custom"):
    name: str
    data: Any = None


AnyEvent: TypeAlias = (
    Queued
    | Started
    | Cancelling
    | Completed
    | Failed
    | Cancelled
    | StepStarted
    | StepFinished
    | ModelRequested
    | ModelRetry
    | TextDelta
    | ReasoningDelta
    | MessageFinished
    | UsageUpdated
    | ToolCalled
    | ToolArgumentsDelta
    | ToolStarted
    | ToolProgress
    | ToolFinished
    | ToolLate
    | Handoff
    | CompactionStarted
    | CompactionFinished
    | InputRequested
    | InputReceived
    | Custom
)


def failure_of(error: BaseException) -> Failure:
    """The exception as data; never its traceback."""
    return Failure(type=type(error).__name__, message=message_of(error), retryable=_is_retryable(error))


def _is_retryable(error: BaseException) -> bool:
    try:
        return bool(getattr(error, "retryable", False))
    except Exception:  # its own attribute is at fault, and must not keep a run from ending
        return False


def encode(event: Event) -> bytes:
    """The event as JSON; values that JSON has no form for (outputs, custom data) become their `repr`.

    Text that is no Unicode (names of files may be) is shown with question marks.
    """
    return encode_any(event)


def encode_any(value: Any) -> bytes:
    """Any value as JSON, by the rules of `encode`."""
    try:
        return _ENCODER.encode(value)
    except UnicodeEncodeError:
        return _ENCODER.encode(_unicode(msgspec.to_builtins(value, enc_hook=shown)))


def _unicode(value: Any) -> Any:
    match value:
        case str():
            return value.encode("utf-8", "replace").decode()
        case list():
            return [_unicode(each) for each in cast("list[Any]", value)]
        case dict():
            return {_unicode(name): _unicode(each) for name, each in cast("dict[Any, Any]", value).items()}
        case _:
            return value


def decode(data: bytes | str) -> AnyEvent:
    """The event behind `encode`'s JSON. Raises `msgspec.ValidationError` for anything else."""
    return _DECODER.decode(data)


_ENCODER = msgspec.json.Encoder(enc_hook=shown)
_DECODER: msgspec.json.Decoder[AnyEvent] = msgspec.json.Decoder(AnyEvent)
