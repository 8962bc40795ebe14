"""A real daemon sends the spans of its runs to a collector, and tells servers which trace a request belongs to."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("opentelemetry.sdk", reason="spyweb[otel] is not installed")

from tests.fakes.collector import open_collector
from tests.fakes.http_server import Answer, Arrived, serving
from tests.fakes.project import Daemon, Project, eventually

pytestmark = [pytest.mark.slow, pytest.mark.timeout(120)]

TRACE = "4bf92f3577b34da6a3ce929d0e0e4736"
PARENT = f"00-{TRACE}-00f067aa0ba902b7-01"
PAGE = b'<div class="item"><h2>one</h2></div>'


def trigger(daemon: Daemon, job: str, header: str) -> None:
    assert daemon.ask(f"/api/jobs/{job}/trigger", "POST", traceparent=header).status == 200


def test_a_run_its_ops_and_stages_are_one_trace_with_the_request_before_and_those_after(tmp_path: Path) -> None:
    project = Project(tmp_path)
    seen: list[str] = []
    names = {"run asks", "store_set", "http_get", "run watch", "fetch", "extract", "keep", "run fails"}

    def answer(arrived: Arrived) -> Answer:
        seen.append(arrived.headers.get("traceparent", ""))
        return Answer(headers={"Content-Type": "text/html"}, body=PAGE)

    with open_collector() as collector, serving(answer) as page:
        project.save("config.toml", f'[telemetry]\notlp_endpoint = "{collector.url}"\n')
        project.job("asks", f'store_set("k", "1") assert(http_get("{page}"))')
        project.job("fails", 'error("no luck")')
        monitor = f'name = "watch"\nevery = "never"\nurl = "{page}"\nselector = ".item"\nfields = ["title:h2"]\n'
        project.save("jobs/watch/config.toml", monitor)
        with project.daemon() as daemon:
            trigger(daemon, "asks", PARENT)
            trigger(daemon, "watch", "nonsense")
            trigger(daemon, "fails", PARENT)
            for job in ("asks", "watch", "fails"):
                project.ended(job)
            eventually(lambda: names <= {*collector.names()}, "spans")
    spans = {span.name: span for span in collector.spans()}
    run, op = spans["run asks"], spans["http_get"]
    assert (run.trace_id.hex(), run.parent_span_id.hex()) == (TRACE, "00f067aa0ba902b7")
    assert op.parent_span_id == run.span_id
    assert f"00-{TRACE}-{op.span_id.hex()}" in {header[:52] for header in seen}
    watch, fetch = spans["run watch"], spans["fetch"]
    assert fetch.parent_span_id == watch.span_id
    assert watch.trace_id != run.trace_id
    assert f"00-{watch.trace_id.hex()}-{fetch.span_id.hex()}" in {header[:52] for header in seen}
    assert "no luck" in spans["run fails"].status.message
    attributes = {pair.key: pair.value for pair in run.attributes}
    assert attributes["spyweb.job"].string_value == "asks"
