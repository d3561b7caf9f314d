"""OpenTelemetry traces of runs: `halter.otel.instrument()`; needs `pip install "halter[otel]"`."""

from __future__ import annotations

from halter.errors import ConfigurationError

try:
    from halter.otel.instrumentation import Instrumentation as Instrumentation
    from halter.otel.instrumentation import instrument as instrument
except ModuleNotFoundError as error:
    if not (error.name or "").startswith("opentelemetry"):
        raise
    raise ConfigurationError('traces need OpenTelemetry: pip install "halter[otel]"') from error

__all__ = ["Instrumentation", "instrument"]
