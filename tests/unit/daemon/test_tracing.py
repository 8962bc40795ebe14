"""What is traced, and what a setting says where it can't be."""

from __future__ import annotations

import sys
import time
from contextlib import AsyncExitStack

import pytest
from structlog.testing import capture_logs

from spyweb.daemon.runtime import end_within, open_tracer
from spyweb.settings import TelemetrySettings

ASKED = TelemetrySettings(otlp_endpoint="http://127.0.0.1:9/v1/traces")


async def test_nothing_is_traced_and_nothing_is_imported_unless_a_setting_asks_for_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, "spyweb.tracing.otel", None)
    async with AsyncExitStack() as stack:
        with capture_logs() as lines:
            assert await open_tracer(stack, TelemetrySettings()) is None
    assert lines == []


async def test_without_the_extra_a_setting_gives_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "spyweb.tracing.otel", None)
    async with AsyncExitStack() as stack:
        with capture_logs() as lines:
            assert await open_tracer(stack, ASKED) is None
    (line,) = lines
    assert "pip install 'spyweb[otel]'" in line["event"]


async def test_with_the_extra_runs_are_traced() -> None:
    pytest.importorskip("opentelemetry.sdk", reason="spyweb[otel] is not installed")
    async with AsyncExitStack() as stack:
        tracer = await open_tracer(stack, ASKED)
        assert tracer is not None
        assert tracer.begin("run", {}) is not None


def test_a_collector_that_answers_nothing_does_not_hold_up_a_stop() -> None:
    began = time.perf_counter()
    end_within(lambda: time.sleep(5), 0.05)
    assert time.perf_counter() - began < 2
