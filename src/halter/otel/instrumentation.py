"""`instrument()`: an observer that turns the events of every run into spans.

On its own loop a run does three small things: it notes where it comes from when it begins, what it has cost when it
ends, and which delta of an answer is the first. Other deltas are not passed on. The observer's thread makes the spans.
"""

from __future__ import annotations

import threading

from opentelemetry import context as otel_context
from opentelemetry.trace import TracerProvider, get_tracer

import halter
from halter.core.execution import Execution, unstarted
from halter.core.fold import is_delta
from halter.core.home import LIVE
from halter.core.observers import Observation
from halter.events import Event, ModelRequested, Queued, Started
from halter.otel.spans import Origin, RunTracer

SCHEMA_URL = "https://opentelemetry.io/schemas/1.41.0"
FLUSH = 5.0  # seconds


class Instrumentation(Observation):
    """Running instrumentation, made by `instrument()`. `close()` ends it; it is a context manager too.

    Args:
        tracer: makes the spans.
    """

    def __init__(self, tracer: RunTracer) -> None:
        self._tracer = tracer
        self._origins = tracer.origins
        self._awaited: set[str] = set()  # runs whose model was asked and has not said anything yet
        self._over = threading.Event()
        super().__init__(tracer)

    def put(self, event: Event) -> None:
        if is_delta(event):
            if event.run_id not in self._awaited:
                return
            self._awaited.discard(event.run_id)
        elif isinstance(event, ModelRequested):
            self._awaited.add(event.run_id)
        elif isinstance(event, Started | Queued):
            if event.run_id not in self._origins:
                self._note_origin(event, LIVE.get(event.run_id))
        elif event.is_terminal:
            self._note_end(event)
        super().put(event)

    def _note_origin(self, event: Event, execution: Execution | None) -> None:
        if execution is None:
            return
        call = execution.within
        self._origins[event.run_id] = Origin(
            name=execution.definition.name,
            kind=execution.definition.kind,
            context=execution.carried.copy().run(otel_context.get_current),
            call_id=None if call is None else call.request.id,
        )

    def _note_end(self, event: Event) -> None:
        self._awaited.discard(event.run_id)
        execution = LIVE.get(event.run_id) or _unstarted(event.run_id)
        if execution is None:
            return
        if execution.task is None:  # it was stopped before it began: this is its only event
            self._note_origin(event, execution)
        if (origin := self._origins.get(event.run_id)) is not None:
            origin.cost = execution.cost

    def _work(self) -> None:
        super()._work()
        self._tracer.close()
        self._over.set()

    def close(self, timeout: float = FLUSH) -> None:
        """Stops the instrumentation, once the events so far have become spans; may be called twice.

        The spans of runs that are still live end now, without an outcome.

        Args:
            timeout: seconds to wait for that.
        """
        super().close()
        self._over.wait(timeout)


def _unstarted(run_id: str) -> Execution | None:
    return next((execution for execution in unstarted() if execution.id == run_id), None)


def instrument(tracer_provider: TracerProvider | None = None, *, content: bool = False) -> Instrumentation:
    """Records a trace of every run of this process from now on.

    Each run, turn, model call and tool call becomes a span with the attributes of OpenTelemetry's conventions for
    generative AI. Runs are children of the run or tool call that started them; a root run is a child of the span that
    was current where `run()` was called. No run is delayed by this, and none fails because of it.

    Args:
        tracer_provider: where spans go; by default the global one (`opentelemetry.trace.set_tracer_provider`).
        content: also records inputs, answers, tool arguments and results, and the texts of errors and stops. Off by
            default: they may be private.

    Returns:
        What ends it: `close()`. Export what is left with `tracer_provider.shutdown()` afterwards.
    """
    tracer = get_tracer("halter", halter.__version__, tracer_provider, SCHEMA_URL)
    return Instrumentation(RunTracer(tracer, content=content))
