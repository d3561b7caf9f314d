"""A question that a run asks, and waits to have answered."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from halter import events
from halter.core.ids import new_id
from halter.core.lifecycle import advance
from halter.errors import UsageError
from halter.outcome import RunStatus
from halter.shown import shown
from halter.visible import visible

if TYPE_CHECKING:
    from halter.core.execution import Execution

_WORDS = {True: "yes", False: "no"}
LONGEST_REASON = 2_000  # characters


class Answer(NamedTuple):
    """`reason`: why, told to the model after a no. `by`: who has given it."""

    value: Any
    reason: str | None = None
    by: str | None = None


_NONE = Answer(None)


class Asked(NamedTuple):
    """An open question. `options`: the answers that it takes, if not all. `claimed`: the answer that was first."""

    answer: asyncio.Future[Answer]
    kind: str
    options: tuple[str, ...]
    claimed: dict[str, tuple[Any]]

    def read(self, value: Any, reason: str | None = None, by: str | None = None) -> Answer:
        """The value, if it is an answer: an approval takes a bool as well. Raises `UsageError`."""
        if self.kind == "approval" and isinstance(value, bool):
            value = _WORDS[value]
        if self.options and value not in self.options:
            raise UsageError(f"the answer must be one of {', '.join(map(repr, self.options))}, not {value!r}")
        for name, text in (("reason", reason), ("by", by)):
            if text is not None and not (isinstance(text, str) and len(text) <= LONGEST_REASON):
                raise UsageError(f"{name} must be a text of at most {LONGEST_REASON:,} characters, not {shown(text)}")
        return Answer(value, reason or None, by or None)

    def claim(self, answer: Answer | None) -> bool:
        """Makes this its one answer, from any thread. False if another answer, or its expiry, was first."""
        mine = (answer,)
        return self.claimed.setdefault("by", mine) is mine

    def give(self) -> None:
        """Wakes the body with the answer that was claimed. Home loop only."""
        if not self.answer.done():
            self.answer.set_result(self.claimed["by"][0])


async def ask(
    execution: Execution,
    prompt: str,
    *,
    kind: str,
    schema: Any,
    options: tuple[str, ...],
    timeout: float | None,
    call_id: str | None,
    pattern: Mapping[str, Any] | None = None,
) -> Answer:
    """See `RunContext.ask`. Nothing in what is asked is hidden from who reads it, in whatever front."""
    request_id = new_id()
    prompt, options = visible(prompt), tuple(map(visible, options))
    asked = Asked(asyncio.get_running_loop().create_future(), kind, options, {})
    execution.inputs[request_id] = asked
    execution.write(
        events.InputRequested,
        request_id=request_id,
        kind=kind,
        prompt=prompt,
        schema=schema,
        options=options,
        call_id=call_id,
        expires_at=None if timeout is None else time.time() + timeout,
        pattern=pattern,
    )
    _wait(execution, True)
    try:
        answer = await _answer(asked, timeout)
    except TimeoutError:
        _received(execution, request_id, "expired")
        raise
    except asyncio.CancelledError:
        asked.claim(None)
        _received(execution, request_id, "cancelled")  # a scope within the body gave up
        raise
    else:
        _received(execution, request_id, "answered", answer)
        return answer
    finally:
        _wait(execution, bool(execution.inputs))


async def _answer(asked: Asked, timeout: float | None) -> Answer:
    try:
        async with asyncio.timeout(timeout):  # `wait_for` loses a cancel that comes together with the answer
            return await asked.answer
    except TimeoutError:
        if asked.claim(None):
            raise
        return asked.claimed["by"][0]  # a thread has given it, and was told that it counts


def _received(execution: Execution, request_id: str, outcome: events.InputOutcome, answer: Answer = _NONE) -> None:
    if not execution.cell and execution.inputs.pop(request_id, None) is not None:  # else the seal resolves it
        value, reason, by = answer
        execution.write(
            events.InputReceived, request_id=request_id, outcome=outcome, answer=value, reason=reason, by=by
        )


def _wait(execution: Execution, waiting: bool) -> None:
    if execution.status in (RunStatus.RUNNING, RunStatus.WAITING):
        execution.status = advance(execution.status, RunStatus.WAITING if waiting else RunStatus.RUNNING)
