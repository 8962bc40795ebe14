"""Handlers for due times: the day ahead, due times that did not run, their audit, and maintenance."""

from __future__ import annotations

from typing import Annotated

from aiohttp import web
from msgspec import Meta, Struct, field

from spyweb.model import RunId
from spyweb.specs.maintenance import DURATION
from spyweb.subjects.when import service
from spyweb.subjects.when.audit import USUAL_MS, JobAudit, RunAuditService
from spyweb.web.access.principal import principal_of, typed_name
from spyweb.web.answer import BadBody, json_answer, page_answer
from spyweb.web.api.query import MOST, PageQuery, body_of, job_of, number_in_path, query_of
from spyweb.web.api.route import Right, Route
from spyweb.web.api.services import service_of

MAX_GAPS = 200  # each costs a query for the run that followed


class GapsQuery(PageQuery, frozen=True):
    """The job, and since when."""

    since: Annotated[int, Meta(ge=0, le=MOST, description="epoch milliseconds")] | None = None
    limit: Annotated[int, Meta(ge=1, le=MAX_GAPS)] = 50


@Route("GET", "/api/next/day", right=Right.READ, answer=service.DayAhead, of_job=True)
async def show_day(request: web.Request) -> web.Response:
    """Count the due times of the next 24 hours, of each job by quarters of an hour, and find the busiest minute."""
    return json_answer(await service_of(request, service.CalendarService).day_ahead(principal_of(request).may_see))


@Route("GET", "/api/gaps", right=Right.READ, answer=service.GapPage, query=GapsQuery, of_job=True, is_paged=True)
async def list_gaps(request: web.Request) -> web.Response:
    """List due times that did not run, and lost runs, newest first, each with the reason and the next run.

    A page may hold fewer gaps than `limit`, even none: the header `Link`, and `before`, lead to the next page.
    """
    query, gaps = query_of(request, GapsQuery), service_of(request, service.CalendarService).gaps
    job, before, may_see = job_of(request, query.job), RunId(query.before) or None, principal_of(request).may_see
    page = await gaps(job, since_ms=query.since, limit=query.limit, before=before, may_see=may_see)
    return page_answer(request, page, before=page.before)


class DueAuditQuery(Struct, frozen=True):
    """The job, and since when."""

    job: str | None = None
    since: Annotated[int, Meta(ge=0, le=MOST, description="epoch milliseconds; by default 7 days ago")] | None = None


@Route("GET", "/api/audit/runs", right=Right.READ, answer=list[JobAudit], query=DueAuditQuery, of_job=True)
async def audit_runs(request: web.Request) -> web.Response:
    """Compare what was due with what is on record, of each job."""
    query, service = query_of(request, DueAuditQuery), service_of(request, RunAuditService)
    since_ms = service.clock.now_ms() - USUAL_MS if query.since is None else query.since
    return json_answer(await service.audit(since_ms, job_of(request, query.job), principal_of(request).may_see))


class MaintenanceQuery(Struct, frozen=True):
    """How far ahead."""

    days: Annotated[int, Meta(ge=1, le=service.MOST_DAYS)] = service.USUAL_DAYS


class MaintenanceBody(Struct, frozen=True):
    """A window that begins now."""

    for_: str = field(name="for")  # as "2h"
    jobs: list[str] = []  # names, ids or patterns; with no tags either: all jobs, and spyweb itself
    tags: list[str] = []
    text: str = ""


@Route("GET", "/api/maintenance", right=Right.READ, answer=service.MaintenanceView, query=MaintenanceQuery, of_job=True)
async def show_maintenance(request: web.Request) -> web.Response:
    """Show current maintenance windows, and those of the next days."""
    days, may_see = query_of(request, MaintenanceQuery).days, principal_of(request).may_see
    return json_answer(await service_of(request, service.MaintenanceService).view(days, may_see))


@Route("POST", "/api/maintenance", right=Right.RUN, answer=service.MaintenanceChanged, body=MaintenanceBody)
async def begin_maintenance(request: web.Request) -> web.Response:
    """Begin a maintenance window: failures of its jobs do not count, and nobody is notified.  A restart keeps it."""
    body = await body_of(request, MaintenanceBody)
    try:
        for_ms = DURATION(body.for_)
    except ValueError as error:
        raise BadBody("for", str(error)) from error
    begin, by = service_of(request, service.MaintenanceService).begin, principal_of(request).name
    begun = await begin(for_ms, by, jobs=body.jobs, tags=body.tags, text=typed_name(body.text))
    return json_answer(service.MaintenanceChanged(window=begun))


@Route("DELETE", "/api/maintenance/{window}", right=Right.RUN, answer=service.MaintenanceChanged)
async def end_maintenance(request: web.Request) -> web.Response:
    """End a window that was begun by `POST /api/maintenance`."""
    window = number_in_path(request, "window")
    await service_of(request, service.MaintenanceService).end(window)
    return json_answer(service.MaintenanceChanged(window=window))
