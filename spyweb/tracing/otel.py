"""Send spans to a collector of OpenTelemetry.  Importing this module needs the extra `spyweb[otel]`.

Spans wait in a queue of bounded length for a thread of the library, which sends them in batches: a collector that is
slow or down costs spans, and no run waits for it.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence

import structlog
from opentelemetry import trace
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter, SpanExportResult
from opentelemetry.sdk.trace.sampling import ParentBased, TraceIdRatioBased
from opentelemetry.trace import Status, StatusCode, TraceFlags
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from spyweb.tracing.span import NOTHING, TRACEPARENT, Attributes

log = structlog.get_logger()

QUEUE = 4_096  # spans that wait to be sent; more are dropped
BATCH = 512
EVERY_MS = 2_000
TIMEOUT_S = 5
LONGEST_ERROR = 500  # characters

PROPAGATOR = TraceContextTextMapPropagator()


class TellingExporter(SpanExporter):
    """Says once when spans begin to be lost, and when they arrive again; the library says it for each batch."""

    def __init__(self, exporter: SpanExporter, endpoint: str) -> None:
        self._exporter = exporter
        self._endpoint = endpoint
        self._is_failing = False

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        result = self._exporter.export(spans)
        is_failing = result is not SpanExportResult.SUCCESS
        if is_failing and not self._is_failing:
            log.warning("traces do not arrive", endpoint=self._endpoint)
        elif self._is_failing and not is_failing:
            log.info("traces arrive again", endpoint=self._endpoint)
        self._is_failing = is_failing
        return result

    def shutdown(self) -> None:
        self._exporter.shutdown()

    def force_flush(self, timeout_millis: int = 30_000) -> bool:
        return self._exporter.force_flush(timeout_millis)


class OtelSpan:
    """One span, with the tracer that its parts are made by."""

    __slots__ = ("_is_over", "_span", "_tracer")

    def __init__(self, tracer: trace.Tracer, span: trace.Span) -> None:
        self._tracer = tracer
        self._span = span
        self._is_over = False

    @property
    def traceparent(self) -> str:
        context = self._span.get_span_context()
        return f"00-{context.trace_id:032x}-{context.span_id:016x}-{context.trace_flags:02x}"

    def child(self, name: str, attributes: Attributes = NOTHING) -> OtelSpan:
        within = trace.set_span_in_context(self._span)
        return OtelSpan(self._tracer, self._tracer.start_span(name, context=within, attributes=dict(attributes)))

    def end(self, error: str = "") -> None:
        if self._is_over:
            return
        self._is_over = True
        if error:
            self._span.set_status(Status(StatusCode.ERROR, error[:LONGEST_ERROR]))
        self._span.end()


class OtelTracer:
    """Makes the spans of runs.  `exporter` is for tests; else they go to the endpoint."""

    def __init__(self, endpoint: str, *, sample: float = 1.0, version: str = "", exporter: SpanExporter | None = None):
        logging.getLogger("opentelemetry").setLevel(logging.CRITICAL)  # TellingExporter says it once
        resource = Resource.create({"service.name": "spyweb", "service.version": version})
        self._provider = TracerProvider(resource=resource, sampler=ParentBased(TraceIdRatioBased(sample)))
        exporter = exporter or TellingExporter(OTLPSpanExporter(endpoint=endpoint, timeout=TIMEOUT_S), endpoint)
        processor = BatchSpanProcessor(
            exporter, max_queue_size=QUEUE, max_export_batch_size=BATCH, schedule_delay_millis=EVERY_MS
        )
        self._provider.add_span_processor(processor)
        self._tracer = self._provider.get_tracer("spyweb", version)

    def begin(self, name: str, attributes: Attributes, parent: str = "") -> OtelSpan | None:
        context = PROPAGATOR.extract({TRACEPARENT: parent}) if parent else None
        kind = trace.SpanKind.SERVER if parent else trace.SpanKind.INTERNAL
        span = self._tracer.start_span(name, context=context, kind=kind, attributes=dict(attributes))
        if not span.get_span_context().trace_flags & TraceFlags.SAMPLED:
            return None
        return OtelSpan(self._tracer, span)

    def flush(self) -> None:
        """Send what waits; blocks."""
        self._provider.force_flush()

    def close(self) -> None:
        """Send what waits, and end the thread; blocks."""
        self._provider.shutdown()
