"""The health of the daemon: 200 or 503 for probes, details for clients with a key, and metrics."""

from __future__ import annotations

import asyncio

from aiohttp import web

from spyweb.subjects.health.service import HealthService, MetricsService, ReadinessService
from spyweb.subjects.health.views import Health, Readiness, summarize
from spyweb.web.answer import WholeAnswer, json_answer
from spyweb.web.api.route import PUBLIC, Right, Route
from spyweb.web.api.services import SERVICES, service_of

Summary = dict[str, object]
TEXT = "text/plain"


@Route("GET", "/healthz", right=PUBLIC, answer=Summary, others={503: Summary})
async def probe(request: web.Request) -> web.Response:
    """Return whether the daemon makes progress: 503 where it does not.  No names, no paths."""
    health = service_of(request, HealthService).health()
    return json_answer(summarize(health), 503 if health.problems else 200)


@Route("GET", "/readyz", right=PUBLIC, answer=Readiness, others={503: Readiness})
async def look(request: web.Request) -> web.Response:
    """Return whether the daemon is ready for work: 503, with reasons, while it starts, stops or makes no progress."""
    readiness = await service_of(request, ReadinessService).look()
    return json_answer(readiness, 200 if readiness.ready else 503)


@Route("GET", "/api/health", right=Right.READ, answer=Health)
async def examine(request: web.Request) -> web.Response:
    """Show the measurements of the daemon."""
    return json_answer(service_of(request, HealthService).health())


@Route("GET", "/metrics", right=Right.READ, answer=str, media=TEXT)
async def scrape(request: web.Request) -> web.Response:
    """Return all metrics, as Prometheus' text or, where the client prefers it, as OpenMetrics."""
    services = request.app[SERVICES]
    async with services[MetricsService].one_at_a_time:
        meters = await services[MetricsService].measure(services[HealthService].health())
        compressed = "gzip" in request.headers.get("Accept-Encoding", "")

        def write() -> tuple[bytes, str]:
            from spyweb.subjects.health.exposition import write  # imported at the first scrape, and in this thread

            return write(meters, request.headers.get("Accept", ""), compressed=compressed)

        body, content_type = await asyncio.to_thread(write)
    headers = {"Content-Type": content_type, "Vary": "Accept, Accept-Encoding"}
    if compressed:
        headers["Content-Encoding"] = "gzip"
    return WholeAnswer(body=body, headers=headers)
