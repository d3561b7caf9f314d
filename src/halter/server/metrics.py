"""Metrics for Prometheus: runs, stops, tokens, streams."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

from halter.outcome import Ended
from halter.server.port import RunInfo, RunStore

MEDIA_TYPE = "text/plain; version=0.0.4; charset=utf-8"
BUCKETS = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10)  # seconds


class Metrics:
    """The metrics of one server, in a registry of their own.

    Args:
        store: asked for the live runs when somebody looks.
    """

    def __init__(self, store: RunStore) -> None:
        self._registry = registry = CollectorRegistry()
        self._runs = Counter("halter_runs", "Runs that ended.", ("agent", "status", "reason"), registry=registry)
        self._stops = Histogram(
            "halter_stop_seconds",
            "From a stop to the end of all it stopped.",
            ("reason",),
            buckets=BUCKETS,
            registry=registry,
        )
        self._tokens = Counter("halter_tokens", "Tokens of ended runs.", ("agent", "kind"), registry=registry)
        self._cost = Counter("halter_cost_usd", "Cost of ended runs in US dollars.", ("agent",), registry=registry)
        self._abandoned = Counter("halter_abandoned", "What a stop could not end.", ("kind",), registry=registry)
        self._streams = Gauge("halter_live_streams", "Open event streams.", registry=registry)
        live = Gauge("halter_live_runs", "Runs that are not over.", registry=registry)
        live.set_function(lambda: store.live)
        queued = Gauge("halter_queued_runs", "Runs that wait for their session's turn.", registry=registry)
        queued.set_function(lambda: store.queued)

    def ended(self, info: RunInfo) -> None:
        """Counts a run that is over."""
        agent, stop = info.plan.agent, info.cancellation
        self._runs.labels(agent, info.status, stop.reason if stop else "").inc()
        self._tokens.labels(agent, "input").inc(info.usage.input)
        self._tokens.labels(agent, "output").inc(info.usage.output)
        self._cost.labels(agent).inc(info.cost or 0.0)
        if stop is not None and info.receipt is not None:
            self._stops.labels(stop.reason).observe(info.receipt.stopped_after_ms / 1_000)
            for line in info.receipt.resources:
                if line.ended is Ended.ABANDONED:
                    self._abandoned.labels(line.kind).inc()

    @contextmanager
    def stream(self) -> Generator[None]:
        """Within this block one more stream is open."""
        with self._streams.track_inprogress():
            yield

    def render(self) -> bytes:
        """All of them, in the text format."""
        return generate_latest(self._registry)
