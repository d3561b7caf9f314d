"""A real OTLP/HTTP endpoint: it takes what the official exporter sends, and decodes it."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Generator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor

from halter.otel import Instrumentation, instrument


class Received:
    """One span, as the collector has it."""

    def __init__(self, span: Any, resource: dict[str, Any]) -> None:
        self.name: str = span.name
        self.id: str = span.span_id.hex()
        self.parent: str = span.parent_span_id.hex()
        self.trace: str = span.trace_id.hex()
        self.kind: int = span.kind
        self.begin, self.end = span.start_time_unix_nano, span.end_time_unix_nano
        self.status: int = span.status.code
        self.why: str = span.status.message
        self.attributes = {each.key: _value(each.value) for each in span.attributes}
        self.events = {each.name: {pair.key: _value(pair.value) for pair in each.attributes} for each in span.events}
        self.resource = resource

    def __repr__(self) -> str:
        return f"<{self.name} {self.attributes}>"


def _value(given: Any) -> Any:
    kind = given.WhichOneof("value")
    if kind == "array_value":
        return [_value(each) for each in given.array_value.values]
    return None if kind is None else getattr(given, kind)


class Collector:
    """What has arrived at the endpoint."""

    def __init__(self) -> None:
        self.spans: list[Received] = []
        self.bytes = b""
        collector = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                data = self.rfile.read(int(self.headers["Content-Length"]))
                collector._take(self.path, data)
                self.send_response(200)
                self.send_header("Content-Length", "0")
                self.end_headers()

            def log_message(self, *_: Any) -> None: ...

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}"
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.01})
        self._thread.start()

    def _take(self, path: str, data: bytes) -> None:
        assert path == "/v1/traces", path
        self.bytes += data
        for resource in ExportTraceServiceRequest.FromString(data).resource_spans:
            about = {each.key: _value(each.value) for each in resource.resource.attributes}
            for scope in resource.scope_spans:
                self.spans.extend(Received(span, about) for span in scope.spans)

    def named(self, name: str) -> Received:
        """The one span of this name."""
        found = [span for span in self.spans if span.name == name]
        assert len(found) == 1, (name, self.spans)
        return found[0]

    def until(self, name: str, within: float = 10.0) -> Received:
        """The span of this name, once it has arrived."""
        end = time.monotonic() + within
        while not any(span.name == name for span in self.spans):
            assert time.monotonic() < end, self.spans
            time.sleep(0.01)
        return self.named(name)

    def close(self) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()


@pytest.fixture
def collector() -> Generator[Collector]:
    endpoint = Collector()
    yield endpoint
    endpoint.close()


class Traces:
    """Traces of the runs of this process, on their way to the collector."""

    def __init__(self, collector: Collector) -> None:
        self.provider = TracerProvider(shutdown_on_exit=False)
        self.provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter(f"{collector.url}/v1/traces")))
        self.collector = collector
        self._running: list[Instrumentation] = []

    def begin(self, *, content: bool = False) -> Traces:
        self._running.append(instrument(self.provider, content=content))
        return self

    def end(self) -> Collector:
        """Everything is at the collector now."""
        for each in self._running:
            each.close()
        self._running.clear()
        self.provider.force_flush()
        return self.collector

    def close(self) -> None:
        self.end()
        self.provider.shutdown()


Trace = Callable[..., Traces]


@pytest.fixture
def trace(collector: Collector) -> Generator[Trace]:
    """`trace(content=False)`: traces of all runs from now on."""
    traces = Traces(collector)
    yield traces.begin
    traces.close()
