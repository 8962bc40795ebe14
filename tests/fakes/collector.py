"""A collector of OpenTelemetry that keeps what it receives by OTLP over HTTP."""

from __future__ import annotations

import gzip
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Any

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest


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


@contextmanager
def open_collector() -> Iterator[Collector]:
    collector = Collector()

    class Receiver(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            if self.headers.get("Content-Encoding") == "gzip":
                body = gzip.decompress(body)
            request = ExportTraceServiceRequest()
            request.ParseFromString(body)
            collector.received.append(request)
            self.send_response(200)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, *_: object) -> None: ...

    server = ThreadingHTTPServer(("127.0.0.1", 0), Receiver)
    collector.url = f"http://127.0.0.1:{server.server_port}/v1/traces"
    thread = Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield collector
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
