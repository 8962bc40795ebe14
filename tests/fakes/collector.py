"""A collector of OpenTelemetry that keeps what it receives by OTLP over HTTP."""

from __future__ import annotations

import gzip
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from tests.fakes.http_server import Answer, Arrived, serving


@dataclass
class Collector:
    url: str = ""
    received: list[Any] = field(default_factory=list)  # requests

    def spans(self) -> list[Any]:
        batches = [scope for each in self.received for one in each.resource_spans for scope in one.scope_spans]
        return [span for batch in batches for span in batch.spans]

    def names(self) -> list[str]:
        return [span.name for span in self.spans()]

    def resources(self) -> list[dict[str, str]]:
        found = [one.resource.attributes for each in self.received for one in each.resource_spans]
        return [{pair.key: pair.value.string_value for pair in attributes} for attributes in found]

    def take(self, arrived: Arrived) -> Answer:
        body = arrived.body
        if arrived.headers.get("Content-Encoding") == "gzip":
            body = gzip.decompress(body)
        request = ExportTraceServiceRequest()
        request.ParseFromString(body)
        self.received.append(request)
        return Answer(body=b"")


@contextmanager
def open_collector() -> Iterator[Collector]:
    collector = Collector()
    with serving(collector.take) as origin:
        collector.url = f"{origin}/v1/traces"
        yield collector
