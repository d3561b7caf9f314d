"""Random logs of runs: events of all types, in an order that a run could have."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any

from halter import events
from halter.core.fold import pack, unpack
from halter.events import Event, Failure
from halter.messages import Message, Reasoning, Text, ToolCall, Usage
from halter.outcome import CancelMode, CancelReason, CancelReceipt, Ended, ReceiptLine

PIECES = ("a ", "river ", "\n\n", "ü", "😀", "'", "\\", "\u2028", "</script>", "")


class RandomLog:
    """Writes a log, event by event."""

    def __init__(self, seed: int) -> None:
        self._chance = random.Random(seed)
        self.events: list[Event] = []
        self._runs: list[str] = ["root"]
        self._questions: list[str] = []
        self._called_already: set[tuple[str, str]] = set()
        self._add(events.Queued, None, session_id="s")
        self._begin("root")

    def write(self, count: int) -> Sequence[Event]:
        """The log, with so many events between its beginning and its end."""
        for _ in range(count):
            self._chance.choice(self._makers)()
        self._end("root")
        return self.events

    @property
    def _makers(self) -> list[Any]:
        said = [self._text, self._reasoning, self._progress, self._fragment] * 3
        tools = [self._called, self._started, self._finished]
        rest = [self._message, self._asked, self._answered, self._usage, self._child, self._stopped, self._rest]
        return [*said, *tools, *rest]

    def _add(self, type: Any, run: str | None, /, **fields: Any) -> None:
        seq = len(self.events) + 1
        common: dict[str, Any] = {"seq": seq, "at": 1_000.0 + seq, "run_id": run or "root", "root_id": "root"}
        common["parent_id"] = None if common["run_id"] == "root" else "root"
        names = type.__struct_fields__
        if "agent" in names:
            common |= {"agent": self._chance.choice(("ann", None)), "task": self._chance.choice(("t", None))}
        if "first_seq" in names:
            common["first_seq"] = seq
        self.events.append(type(**common, **fields))

    def _any_run(self) -> str:
        return self._chance.choice(self._runs)

    def _any_call(self) -> str:
        return self._chance.choice(("call-1", "call-2", "call-3"))

    def _words(self) -> str:
        return "".join(self._chance.choices(PIECES, k=3))

    def _begin(self, run: str) -> None:
        self._add(events.Started, run, name=run, kind="agent", input={"q": [1, "x"]}, model="m")

    def _child(self) -> None:
        self._runs.append(f"child-{len(self._runs)}")
        self._begin(self._runs[-1])

    def _text(self) -> None:
        self._add(events.TextDelta, self._any_run(), text=self._words(), message_id=self._chance.choice("mn"))

    def _reasoning(self) -> None:
        self._add(events.ReasoningDelta, self._any_run(), text=self._words(), message_id=self._chance.choice("mn"))

    def _message(self) -> None:
        parts = (Text(self._words()), Reasoning("why"), ToolCall("call-1", "look", "{}"), Text("."))
        message = Message("assistant", parts, interrupted=self._chance.random() < 0.5)
        self._add(events.MessageFinished, self._any_run(), message=message, message_id=self._chance.choice("mno"))

    def _called(self) -> None:
        run, call = self._any_run(), self._any_call()
        self._called_already.add((run, call))
        self._add(events.ToolCalled, run, call_id=call, name="look", arguments='{"a": 1}')

    def _fragment(self) -> None:
        run, call = self._any_run(), self._any_call()
        if (run, call) not in self._called_already:
            self._add(events.ToolArgumentsDelta, run, call_id=call, fragment='{"a', name="look")

    def _started(self) -> None:
        self._add(events.ToolStarted, self._any_run(), call_id=self._any_call())

    def _progress(self) -> None:
        data = self._chance.choice((None, None, {"done": 0.5}))
        self._add(events.ToolProgress, self._any_run(), call_id=self._any_call(), text=self._words(), data=data)

    def _finished(self) -> None:
        result = self._chance.choice(("sunny", None, {"t": [1.5, None]}))
        outcome = self._chance.choice(("ok", "error", "cancelled", "abandoned", "denied"))
        run, call = self._any_run(), self._any_call()
        self._called_already.add((run, call))
        about = {"call_id": call, "name": "look", "elapsed": 0.1}
        self._add(events.ToolFinished, run, **about, outcome=outcome, result=result)

    def _asked(self) -> None:
        self._questions.append(f"q{len(self.events)}")
        about = {"kind": "approval", "prompt": "May I?", "options": ("yes", "no"), "call_id": "call-1"}
        self._add(events.InputRequested, self._any_run(), request_id=self._questions[-1], **about)

    def _answered(self) -> None:
        question = self._questions.pop(0) if self._questions else "unknown"
        self._add(events.InputReceived, "root", request_id=question, outcome="answered", answer="yes")

    def _usage(self) -> None:
        self._add(events.UsageUpdated, self._any_run(), usage=Usage(input=3, output=len(self.events)))

    def _stopped(self) -> None:
        stop = {"reason": CancelReason.USER_STOP, "mode": CancelMode.DRAIN_TOOLS, "actor": "ann", "message": "enough"}
        if self._chance.random() < 0.3:
            self._add(events.Cancelling, self._any_run(), **stop, after_seq=len(self.events))

    def _rest(self) -> None:
        failure = Failure(type="Oops", message="no")
        kinds: list[tuple[Any, dict[str, Any]]] = [
            (events.StepStarted, {"step": 1}),
            (events.StepFinished, {"step": 1, "interrupted": False}),
            (events.ModelRequested, {"model": "m", "attempt": 1, "request_id": "x", "message_id": "m"}),
            (events.ModelRetry, {"attempt": 1, "delay": 0.5, "cause": failure}),
            (events.Handoff, {"from_agent": "a", "to_agent": "b"}),
            (events.CompactionStarted, {"reason": "threshold", "tokens": 9, "messages": 3}),
            (events.CompactionFinished, {"outcome": "failed", "tokens_before": 9, "error": failure}),
            (events.ToolLate, {"call_id": "call-1", "name": "look", "outcome": "ok", "result": 1, "elapsed": 2.0}),
            (events.Custom, {"name": "mine", "data": {"x": 1}}),
        ]
        kind, fields = self._chance.choice(kinds)
        self._add(kind, self._any_run(), **fields)

    def _end(self, run: str) -> None:
        end = {"text": self._words(), "usage": Usage(input=5, output=9, estimated=True)}
        line = ReceiptLine(kind="socket", label="m", run_id="root", ended=Ended.CLOSED, ended_after_ms=1.5)
        receipt = CancelReceipt(requested_at=1_000.0, stopped_after_ms=2.0, confirmed=True, resources=(line,))
        stop = {"reason": CancelReason.USER_STOP, "mode": CancelMode.IMMEDIATE, "receipt": receipt}
        kinds: list[tuple[Any, dict[str, Any]]] = [
            (events.Completed, {"output": [1]}),
            (events.Failed, {"error": Failure(type="Oops", message="no")}),
            (events.Cancelled, stop),
        ]
        kind, fields = self._chance.choice(kinds)
        self._add(kind, run, **end, **fields)


def merged(log: Sequence[Event]) -> list[Event]:
    """The log as a slow reader gets it."""
    return [each for entry in pack(log) for each in unpack(entry, 0)]
