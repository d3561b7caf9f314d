"""Events become spans: one for each run, turn, model call and tool call. On the observer's thread alone."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from opentelemetry.context import Context
from opentelemetry.trace import Span, SpanKind, Status, StatusCode, Tracer, set_span_in_context

from halter import events
from halter.events import Event, Failure
from halter.otel import attributes as names
from halter.otel.attributes import Attributes
from halter.outcome import Ended, RunStatus

AGENT = "agent"  # the kind of run that the conventions call an agent; everything else is a workflow


@dataclass(slots=True)
class Origin:
    """Where a run comes from, noted on its own loop. `call_id`: the tool call that started it. `cost`: at its end."""

    name: str
    kind: str
    context: Context
    call_id: str | None
    cost: float | None = 0.0


@dataclass(slots=True)
class _Open:
    """A span that has not ended. `ended_at`: when its work ended, if its outcome is only known later."""

    span: Span
    began_at: int
    ended_at: int | None = None


@dataclass(slots=True)
class _RunSpans:
    """The open spans of one run."""

    span: Span
    context: Context
    turn: _Open | None = None
    turn_context: Context | None = None
    models: dict[str, _Open] = field(default_factory=dict[str, _Open])
    tools: dict[str, tuple[_Open, Context]] = field(default_factory=dict[str, tuple[_Open, Context]])
    called: dict[str, events.ToolCalled] = field(default_factory=dict[str, events.ToolCalled])

    @property
    def inner(self) -> Context:
        """The parent of what happens now."""
        return self.turn_context or self.context


class RunTracer:
    """An observer that makes spans.

    Args:
        tracer: OpenTelemetry's.
        content: whether texts are recorded.
    """

    def __init__(self, tracer: Tracer, *, content: bool) -> None:
        self.origins: dict[str, Origin] = {}  # of live runs; written on their loops
        self._tracer = tracer
        self._content = content
        self._runs: dict[str, _RunSpans] = {}
        self._handlers: dict[type[Event], _Handler] = {
            events.Cancelling: self._cancelling,
            events.StepStarted: self._step_started,
            events.StepFinished: self._step_finished,
            events.ModelRequested: self._model_requested,
            events.ModelRetry: self._model_retry,
            events.TextDelta: self._first_chunk,
            events.ReasoningDelta: self._first_chunk,
            events.ToolArgumentsDelta: self._first_chunk,
            events.MessageFinished: self._message_finished,
            events.ToolCalled: self._tool_called,
            events.ToolStarted: self._tool_started,
            events.ToolFinished: self._tool_finished,
            events.InputRequested: self._input_requested,
            events.InputReceived: self._input_received,
            events.Handoff: self._handoff,
        }

    def __call__(self, event: Event) -> None:
        """Takes the next event."""
        run = self._runs.get(event.run_id) or self._begin(event)
        if run is None:
            return  # it had begun before anybody looked
        if isinstance(event, events.Started):
            self._started(run, event)
        elif event.is_terminal:
            self._end(run, event)
        elif (handle := self._handlers.get(type(event))) is not None:
            handle(run, event)

    def close(self) -> None:
        """Ends the spans of runs that are still live."""
        for run in self._runs.values():
            _end_all(run, None, None)
            run.span.end()
        self._runs.clear()
        self.origins.clear()

    # --- runs -----------------------------------------------------------------------------------------------

    def _begin(self, event: Event) -> _RunSpans | None:
        origin = self.origins.get(event.run_id)
        if origin is None:
            return None
        is_agent = origin.kind == AGENT
        operation = "invoke_agent" if is_agent else "invoke_workflow"
        given: Attributes = {
            names.OPERATION: operation,
            names.AGENT if is_agent else names.WORKFLOW: origin.name,
            "halter.run.id": event.run_id,
            "halter.run.root_id": event.root_id,
            "halter.run.kind": origin.kind,
        }
        span, context = self._start(f"{operation} {origin.name}", self._parent(event, origin), event.at, given)
        self._runs[event.run_id] = run = _RunSpans(span, context)
        return run

    def _parent(self, event: Event, origin: Origin) -> Context:
        above = self._runs.get(event.parent_id or "")
        if above is None:
            return origin.context
        if origin.call_id is not None and origin.call_id in above.tools:
            return above.tools[origin.call_id][1]
        return above.context

    def _started(self, run: _RunSpans, event: events.Started) -> None:
        if event.session_id is not None:
            run.span.set_attribute(names.CONVERSATION, event.session_id)
        if event.model is not None:
            run.span.set_attributes(names.model_attributes(event.model))
        if event.tags:
            run.span.set_attribute("halter.run.tags", list(event.tags))
        if self._content:
            run.span.set_attribute(names.INPUT_MESSAGES, names.input_messages(event.input))

    def _cancelling(self, run: _RunSpans, event: Any) -> None:
        stop: Attributes = {"halter.stop.reason": str(event.reason), "halter.stop.mode": str(event.mode)}
        if event.actor is not None:
            stop["halter.stop.actor"] = event.actor
        if self._content and event.message is not None:
            stop["halter.stop.message"] = event.message
        run.span.set_attributes(stop)
        run.span.add_event("run.cancelling", stop, _ns(event.at))

    def _end(self, run: _RunSpans, event: Any) -> None:
        del self._runs[event.run_id]
        origin = self.origins.pop(event.run_id, None)
        at, span = _ns(event.at), run.span
        span.set_attributes(names.usage_attributes(event.usage))
        if origin is not None and origin.cost is not None:
            span.set_attribute("halter.cost_usd", origin.cost)
        failure: Failure | None = None
        match event:
            case events.Failed():
                status, failure = RunStatus.FAILED, event.error
                self._fail(span, failure)
            case events.Cancelled():
                status = RunStatus.CANCELLED
                span.set_attributes(_stop_attributes(event))
            case _:
                status = RunStatus.COMPLETED
        span.set_attribute("halter.run.status", str(status))
        if self._content and status is not RunStatus.FAILED:
            output = event.output if isinstance(event, events.Completed) else event.text
            span.set_attribute(names.OUTPUT_MESSAGES, names.output_value(output, event.text))
        _end_all(run, at, None if failure is None else lambda inner: self._fail(inner, failure))
        span.end(at)

    # --- turns ----------------------------------------------------------------------------------------------

    def _step_started(self, run: _RunSpans, event: Any) -> None:
        given = {"halter.run.id": event.run_id, "halter.turn": event.step}
        span, context = self._start(f"turn {event.step}", run.context, event.at, given)
        run.turn, run.turn_context = _Open(span, _ns(event.at)), context

    def _step_finished(self, run: _RunSpans, event: Any) -> None:
        if run.turn is None:
            return
        if not event.interrupted:
            run.turn.span.end(_ns(event.at))
            run.turn = None
        else:  # by what, the run's end tells
            run.turn.ended_at = _ns(event.at)
        run.turn_context = None

    # --- model calls ----------------------------------------------------------------------------------------

    def _model_requested(self, run: _RunSpans, event: Any) -> None:
        model = names.model_attributes(event.model)
        given = {
            names.OPERATION: "chat",
            **model,
            names.REQUEST_STREAM: True,
            "halter.run.id": event.run_id,
            "halter.model.attempt": event.attempt,
        }
        title = f"chat {model[names.REQUEST_MODEL]}"
        span, _ = self._start(title, run.inner, event.at, given, SpanKind.CLIENT)
        run.models[event.message_id] = _Open(span, _ns(event.at))

    def _first_chunk(self, run: _RunSpans, event: Any) -> None:
        asked = run.models.get(getattr(event, "message_id", "")) or next(reversed(run.models.values()), None)
        if asked is not None:
            took = names.seconds_between(asked.began_at, _ns(event.at))
            asked.span.set_attribute(names.FIRST_CHUNK, took)

    def _model_retry(self, run: _RunSpans, event: Any) -> None:
        if run.models:
            _, asked = run.models.popitem()
            self._fail(asked.span, event.cause)
            asked.span.end(_ns(event.at))

    def _message_finished(self, run: _RunSpans, event: Any) -> None:
        asked = run.models.get(event.message_id)
        if asked is None:
            return  # no model has written it
        message, span = event.message, asked.span
        if message.usage is not None:
            span.set_attributes(names.usage_attributes(message.usage))
        if message.finish_reason is not None:
            span.set_attribute(names.FINISH_REASONS, [message.finish_reason])
        if self._content:
            span.set_attribute(names.OUTPUT_MESSAGES, names.output_messages(message))
        if message.interrupted:  # by what, the run's end tells
            asked.ended_at = _ns(event.at)
        else:
            del run.models[event.message_id]
            span.end(_ns(event.at))

    # --- tool calls -----------------------------------------------------------------------------------------

    def _tool_called(self, run: _RunSpans, event: Any) -> None:
        run.called[event.call_id] = event

    def _tool_started(self, run: _RunSpans, event: Any) -> None:
        called = run.called.get(event.call_id)
        if called is not None and event.call_id not in run.tools:
            self._begin_tool(run, event, called.name)

    def _begin_tool(self, run: _RunSpans, event: Any, name: str) -> tuple[_Open, Context]:
        given: Attributes = {
            names.OPERATION: "execute_tool",
            names.TOOL_NAME: name,
            names.TOOL_TYPE: "function",
            names.TOOL_CALL: event.call_id,
            "halter.run.id": event.run_id,
        }
        if event.agent is not None:
            given[names.AGENT] = event.agent
        if self._content and (called := run.called.get(event.call_id)) is not None:
            given[names.TOOL_ARGUMENTS] = called.arguments
        span, context = self._start(f"execute_tool {name}", run.inner, event.at, given)
        run.tools[event.call_id] = begun = _Open(span, _ns(event.at)), context
        return begun

    def _tool_finished(self, run: _RunSpans, event: Any) -> None:
        begun = run.tools.get(event.call_id) or self._begin_tool(run, event, event.name)
        span = begun[0].span
        del run.tools[event.call_id]
        run.called.pop(event.call_id, None)
        span.set_attribute("halter.tool.outcome", event.outcome)
        text = event.result if isinstance(event.result, str) else None
        if self._content and text is not None:
            span.set_attribute(names.TOOL_RESULT, text)
        if event.outcome in ("error", "abandoned"):
            self._fail(span, Failure(type=f"tool_{event.outcome}", message=text or ""))
        span.end(_ns(event.at))

    # --- what a run's span notes on the way -----------------------------------------------------------------

    def _input_requested(self, run: _RunSpans, event: Any) -> None:
        noted: Attributes = {"halter.input.id": event.request_id, "halter.input.kind": event.kind}
        if self._content:
            noted["halter.input.prompt"] = event.prompt
        run.span.add_event("input.requested", noted, _ns(event.at))

    def _input_received(self, run: _RunSpans, event: Any) -> None:
        noted = {"halter.input.id": event.request_id, "halter.input.outcome": event.outcome}
        run.span.add_event("input.received", noted, _ns(event.at))

    def _handoff(self, run: _RunSpans, event: Any) -> None:
        run.span.add_event("handoff", {"from": event.from_agent, "to": event.to_agent}, _ns(event.at))

    # --- all ------------------------------------------------------------------------------------------------

    def _start(
        self, name: str, parent: Context, at: float, given: Attributes, kind: SpanKind = SpanKind.INTERNAL
    ) -> tuple[Span, Context]:
        span = self._tracer.start_span(name, parent, kind, given, start_time=_ns(at))
        return span, set_span_in_context(span, parent)

    def _fail(self, span: Span, failure: Failure) -> None:
        span.set_attribute(names.ERROR, failure.type)
        span.set_status(Status(StatusCode.ERROR, failure.message if self._content else failure.type))


_Handler: TypeAlias = Callable[[_RunSpans, Any], None]


def _stop_attributes(event: events.Cancelled) -> Attributes:
    """A stop, and what its receipt says."""
    lines = event.receipt.resources
    return {
        "halter.stop.reason": str(event.reason),
        "halter.stop.mode": str(event.mode),
        "halter.stop.duration_ms": event.receipt.stopped_after_ms,
        "halter.stop.resources": len(lines),
        "halter.stop.abandoned": sum(line.ended is Ended.ABANDONED for line in lines),
    }


def _end_all(run: _RunSpans, at: int | None, fail: Callable[[Span], None] | None) -> None:
    """Ends what is open under a run, the innermost first. `fail`: what marks a span that the run's failure ended."""
    rest = [*(begun[0] for begun in run.tools.values()), *run.models.values(), *([run.turn] if run.turn else [])]
    for begun in rest:
        if fail is not None:
            fail(begun.span)
        begun.span.set_attribute("halter.interrupted", True)
        begun.span.end(begun.ended_at or at)


def _ns(at: float) -> int:
    return round(at * 1e9)
