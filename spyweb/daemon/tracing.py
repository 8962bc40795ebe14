"""Open what sends traces of runs, where a setting asks for it and the extra for it is installed."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack
from threading import Thread

import structlog

from spyweb import __version__
from spyweb.settings import TelemetrySettings
from spyweb.tracing.span import Tracer

log = structlog.get_logger()

LAST_SENDING_S = 2.0  # for spans that wait at a stop


async def open_tracer(stack: AsyncExitStack, settings: TelemetrySettings) -> Tracer | None:
    if not settings.otlp_endpoint:
        return None
    try:
        from spyweb.tracing.otel import OtelTracer  # here: it is an extra, and takes memory
    except ImportError:
        log.warning("[telemetry] otlp_endpoint needs an extra: pip install 'spyweb[otel]'; nothing is traced")
        return None
    tracer = OtelTracer(settings.otlp_endpoint, sample=settings.sample, version=__version__)
    stack.push_async_callback(asyncio.to_thread, end_within, tracer.close, LAST_SENDING_S)
    return tracer


def end_within(close: object, seconds: float) -> None:
    """Let what blocks go on for so long, and leave it behind then: a collector may be anywhere."""
    assert callable(close)
    thread = Thread(target=close, name="the last traces", daemon=True)
    thread.start()
    thread.join(seconds)
