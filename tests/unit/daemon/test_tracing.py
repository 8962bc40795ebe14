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


@pytest.mark.parametrize(("settings", "said"), [(TelemetrySettings(), []), (ASKED, ["pip install 'spyweb[otel]'"])])
async def test_without_the_extra_only_a_setting_that_asks_for_traces_gives_a_line(
    monkeypatch: pytest.MonkeyPatch, settings: TelemetrySettings, said: list[str]
) -> None:
    monkeypatch.setitem(sys.modules, "spyweb.tracing.otel", None)
    async with AsyncExitStack() as stack:
        with capture_logs() as lines:
            assert await open_tracer(stack, settings) is None
    assert len(lines) == len(said)
    assert all(words in line["event"] for words, line in zip(said, lines, strict=True))


def test_a_collector_that_answers_nothing_does_not_hold_up_a_stop() -> None:
    began = time.perf_counter()
    end_within(lambda: time.sleep(5), 0.05)
    assert time.perf_counter() - began < 2
