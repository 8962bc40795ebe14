"""Answer the scrapes of a monitoring system."""

from __future__ import annotations

import asyncio

from aiohttp import web

from spyweb.views.metrics import Meters
from spyweb.web.answer import WholeAnswer
from spyweb.web.api.route import SERVICE, Right, Route

TEXT = "text/plain"


@Route("GET", "/metrics", right=Right.READ, answer=str, media=TEXT)
async def scrape(request: web.Request) -> web.Response:
    """Tell all metrics, as Prometheus' text or, where it is preferred, as OpenMetrics."""
    service = request.app[SERVICE]
    async with service.metrics.one_at_a_time:
        meters = await service.metrics.measure(service.health())
        compressed = "gzip" in request.headers.get("Accept-Encoding", "")
        body, content_type = await asyncio.to_thread(_write, meters, request.headers.get("Accept", ""), compressed)
    headers = {"Content-Type": content_type, "Vary": "Accept, Accept-Encoding"}
    if compressed:
        headers["Content-Encoding"] = "gzip"
    return WholeAnswer(body=body, headers=headers)


def _write(meters: Meters, accept: str, compressed: bool) -> tuple[bytes, str]:
    from spyweb.web.exposition import write  # here: it is imported at the first scrape, and in a thread

    return write(meters, accept, compressed=compressed)
