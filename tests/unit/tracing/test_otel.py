"""Spans as OpenTelemetry has them, and as a collector receives them."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

pytest.importorskip("opentelemetry.sdk", reason="spyweb[otel] is not installed")

from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export import SpanExporter, SpanExportResult
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from structlog.testing import capture_logs

from spyweb.tracing.otel import QUEUE, OtelTracer, TellingExporter
from spyweb.tracing.span import read_traceparent
from tests.fakes.collector import open_collector

PARENT = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
UNSAMPLED = PARENT[:-2] + "00"


@pytest.fixture
def exporter() -> InMemorySpanExporter:
    return InMemorySpanExporter()


def test_a_part_has_the_span_that_it_belongs_to_as_its_parent(exporter: InMemorySpanExporter) -> None:
    tracer = OtelTracer("", exporter=exporter)
    run = tracer.begin("run prices", {"spyweb.run": 7})
    assert run is not None
    stage = run.child("fetch")
    stage.child("http_get", {"n": 1}).end("refused")
    stage.end()
    run.end()
    run.end("only the first end counts")
    tracer.flush()
    op, fetch, whole = exporter.get_finished_spans()
    assert (op.name, fetch.name, whole.name) == ("http_get", "fetch", "run prices")
    assert op.parent
    assert op.parent.span_id == fetch.context.span_id
    assert fetch.parent
    assert fetch.parent.span_id == whole.context.span_id
    assert whole.parent is None
    assert whole.attributes
    assert whole.attributes["spyweb.run"] == 7
    assert (op.status.is_ok, op.status.description, whole.status.is_ok) == (False, "refused", True)
    tracer.close()


def test_a_run_joins_the_trace_of_its_request(exporter: InMemorySpanExporter) -> None:
    tracer = OtelTracer("", exporter=exporter)
    span = tracer.begin("run", {}, PARENT)
    assert span is not None
    assert span.traceparent[:36] == PARENT[:36]
    assert read_traceparent(span.traceparent) == span.traceparent
    span.end()
    tracer.flush()
    (found,) = exporter.get_finished_spans()
    assert found.parent
    assert f"{found.parent.span_id:016x}" == "00f067aa0ba902b7"
    tracer.close()


def test_what_is_not_sampled_costs_no_span(exporter: InMemorySpanExporter) -> None:
    nothing, everything = OtelTracer("", sample=0, exporter=exporter), OtelTracer("", exporter=exporter)
    assert nothing.begin("run", {}) is None
    assert nothing.begin("run", {}, PARENT) is not None, "the sender has decided"
    assert everything.begin("run", {}, UNSAMPLED) is None
    for tracer in (nothing, everything):
        tracer.close()


def test_a_collector_receives_what_is_sent_to_it() -> None:
    with open_collector() as collector:
        tracer = OtelTracer(collector.url, version="9")
        run = tracer.begin("run prices", {"spyweb.job": "prices"})
        assert run is not None
        run.child("http_get").end()
        run.end()
        tracer.close()
    assert collector.names() == ["http_get", "run prices"]
    assert collector.resources()[0]["service.name"] == "spyweb"


@pytest.mark.slow
def test_a_collector_that_is_down_holds_up_nobody_and_is_told_once() -> None:
    exporter = TellingExporter(FailingExporter(), "http://collector")
    with capture_logs() as lines:
        tracer = OtelTracer("", exporter=exporter)
        for _ in range(3 * QUEUE):
            span = tracer.begin("run", {})
            assert span is not None
            span.end()
        tracer.flush()
        tracer.close()
    assert [line["event"] for line in lines] == ["traces do not arrive"]


def test_what_arrives_again_is_told_too() -> None:
    inner = FailingExporter()
    exporter = TellingExporter(inner, "http://collector")
    with capture_logs() as lines:
        for result in (SpanExportResult.FAILURE, SpanExportResult.FAILURE, SpanExportResult.SUCCESS):
            inner.result = result
            exporter.export([])
    assert [line["event"] for line in lines] == ["traces do not arrive", "traces arrive again"]


class FailingExporter(SpanExporter):
    result = SpanExportResult.FAILURE

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        return self.result
