"""Spans sent to a collector, as the environment says (`OTEL_EXPORTER_OTLP_ENDPOINT` and its like)."""

from __future__ import annotations

import os
from collections.abc import Generator
from contextlib import contextmanager

from halter.errors import ConfigurationError
from halter.otel.instrumentation import instrument

try:
    from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
    from opentelemetry.sdk.resources import SERVICE_NAME, Resource
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import BatchSpanProcessor
except ModuleNotFoundError as error:
    raise ConfigurationError('sending traces needs an exporter: pip install "halter[otel]"') from error

DEFAULT_SERVICE = "halter"


@contextmanager
def exporting(*, content: bool = False) -> Generator[None]:
    """Within this block every run is traced, and spans go to the collector by OTLP over HTTP.

    Leaving it sends what is left. A collector that is away costs spans, and nothing else.

    Args:
        content: see `instrument`.
    """
    service = {} if os.environ.get("OTEL_SERVICE_NAME") else {SERVICE_NAME: DEFAULT_SERVICE}
    provider = TracerProvider(resource=Resource.create(service))
    provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter()))
    instrumentation = instrument(provider, content=content)
    try:
        yield
    finally:
        instrumentation.close()
        provider.shutdown()
