"""Handlers for the uptime of jobs."""

from __future__ import annotations

from typing import Annotated

from aiohttp import web
from msgspec import Meta, Struct

from spyweb.subjects.uptime.service import UptimeService, UptimeView
from spyweb.web.access.principal import principal_of
from spyweb.web.answer import json_answer
from spyweb.web.api.query import job_in_path, query_of
from spyweb.web.api.route import Right, Route
from spyweb.web.api.services import SERVICES, service_of

USUAL_DAYS, MOST_DAYS = 90, 400


class DaysQuery(Struct, frozen=True):
    """How far back."""

    days: Annotated[int, Meta(ge=1, le=MOST_DAYS)] = USUAL_DAYS


@Route("GET", "/api/uptime", right=Right.READ, answer=list[UptimeView], of_job=True)
async def list_uptimes(request: web.Request) -> web.Response:
    """Show for how long each job was up in 24 hours, 7, 30 and 365 days."""
    may_see = principal_of(request).may_see
    jobs = [job for job in sorted(request.app[SERVICES].catalogue.names()) if may_see(job)]
    return json_answer(await service_of(request, UptimeService).look(jobs))


@Route("GET", "/api/jobs/{job}/uptime", right=Right.READ, answer=UptimeView, query=DaysQuery)
async def show_uptime(request: web.Request) -> web.Response:
    """Show for how long a job was up, also on each day of UTC."""
    job, days = job_in_path(request), query_of(request, DaysQuery).days
    (view,) = await service_of(request, UptimeService).look([job], days=days)
    return json_answer(view)
