"""A run as its record: what it was asked, and how it has ended; without words where none are to be stored."""

from __future__ import annotations

import time
from typing import Any, cast

import msgspec
from msgspec.structs import replace

from halter.core.execution import Execution
from halter.errors import ConfigurationError
from halter.events import ToolLate, failure_of
from halter.messages import Message
from halter.outcome import RunResult, RunStatus
from halter.sessions.records import LateResult, RunRecord


def begun(execution: Execution, owner: str, *, has_content: bool) -> RunRecord:
    """The record of a run that is about to begin."""
    definition, options = execution.definition, execution.options
    return RunRecord(
        run_id=execution.id,
        session_id=execution.keeping.turn.session_id if execution.keeping is not None else None,
        user=options.user,
        name=definition.name,
        kind=definition.kind,
        model=definition.model_name,
        tags=options.tags,
        owner=owner,
        keep=options.keep,
        input=_as_text(options.input) if has_content else "",
        started_at=time.time(),
    )


def _as_text(given: Any) -> str:
    if isinstance(given, tuple):
        said = [each for each in cast("tuple[Any, ...]", given) if isinstance(each, Message)]
        return "\n".join(message.text for message in said)
    return given if isinstance(given, str) else _as_json(given)


def _as_json(given: Any) -> str:
    """For a reader: what has no form in JSON, such as what holds itself, is shown as Python shows it."""
    try:
        return msgspec.json.encode(given, enc_hook=repr).decode()
    except (TypeError, ValueError, RecursionError):
        return repr(given)


def ended(record: RunRecord, result: RunResult[Any], *, has_content: bool) -> RunRecord:
    """The same, as the run has ended."""
    failure = failure_of(result.error) if result.error is not None and result.status is RunStatus.FAILED else None
    final = replace(
        record,
        status=result.status,
        text=result.text,
        usage=result.usage,
        cost=result.cost,
        error=failure,
        cancellation=result.cancellation,
        receipt=result.receipt,
        ended_at=time.time(),
    )
    return final if has_content else _without_words(final)


def _without_words(record: RunRecord) -> RunRecord:
    """What happened, and nothing that anybody said: labels of resources may be command lines and addresses."""
    error = record.error and replace(record.error, message="")
    cancellation = record.cancellation and replace(record.cancellation, message=None)
    receipt = record.receipt
    if receipt is not None:
        receipt = replace(receipt, resources=tuple(replace(line, label="") for line in receipt.resources))
    return replace(record, input="", text="", error=error, cancellation=cancellation, receipt=receipt)


def late_result(event: ToolLate, *, has_content: bool) -> LateResult:
    """What came of a call after the run's end."""
    result = str(event.result) if has_content else ""
    return LateResult(
        call_id=event.call_id, name=event.name, outcome=event.outcome, result=result, elapsed=event.elapsed
    )


def as_data(value: Any, what: str = "the state") -> Any:
    """A run's state as JSON has it. Raises `ConfigurationError`, which calls it `what`, if it has no form there."""
    try:
        return msgspec.to_builtins(value, str_keys=True, enc_hook=_dumped)
    except (TypeError, ValueError, RecursionError) as error:
        raise ConfigurationError(f"{what} cannot be kept in a session, it has no form in JSON: {error}") from error


def _dumped(value: Any) -> Any:
    """What pydantic has made says itself how it is JSON."""
    dump = getattr(value, "model_dump", None)
    if not callable(dump):
        raise TypeError(f"a {type(value).__name__}")
    return dump(mode="json")
