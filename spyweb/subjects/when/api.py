"""Handlers for due times: the day ahead, due times that did not run, and maintenance."""

from __future__ import annotations

from typing import Annotated

from aiohttp import web
from msgspec import Meta, Struct

from spyweb.model import RunId
from spyweb.subjects.when.service import (
    MOST_DAYS,
    USUAL_DAYS,
    CalendarService,
    DayAhead,
    GapPage,
    MaintenanceService,
    MaintenanceView,
)
from spyweb.web.access.principal import principal_of
from spyweb.web.answer import json_answer, page_answer
from spyweb.web.api.query import MOST, PageQuery, job_of, query_of
from spyweb.web.api.route import Right, Route
from spyweb.web.api.services import service_of

MAX_GAPS = 200  # each costs a query for the run that followed


class GapsQuery(PageQuery, frozen=True):
    """The job, and since when."""

    since: Annotated[int, Meta(ge=0, le=MOST, description="epoch milliseconds")] | None = None
    limit: Annotated[int, Meta(ge=1, le=MAX_GAPS)] = 50


@Route("GET", "/api/next/day", right=Right.READ, answer=DayAhead, of_job=True)
async def show_day(request: web.Request) -> web.Response:
    """Count the due times of the next 24 hours, of each job by quarters of an hour, and find the busiest minute."""
    return json_answer(await service_of(request, CalendarService).day_ahead(principal_of(request).may_see))


@Route("GET", "/api/gaps", right=Right.READ, answer=GapPage, query=GapsQuery, of_job=True, is_paged=True)
async def list_gaps(request: web.Request) -> web.Response:
    """List due times that did not run, and lost runs, newest first, each with the reason and the next run.

    A page may hold fewer gaps than `limit`, even none: the header `Link`, and `before`, lead to the next page.
    """
    query, gaps = query_of(request, GapsQuery), service_of(request, CalendarService).gaps
    job, before, may_see = job_of(request, query), RunId(query.before) or None, principal_of(request).may_see
    page = await gaps(job, since_ms=query.since, limit=query.limit, before=before, may_see=may_see)
    return page_answer(request, page, before=page.before)


class MaintenanceQuery(Struct, frozen=True):
    """How far ahead."""

    days: Annotated[int, Meta(ge=1, le=MOST_DAYS)] = USUAL_DAYS


@Route("GET", "/api/maintenance", right=Right.READ, answer=MaintenanceView, query=MaintenanceQuery, of_job=True)
async def show_maintenance(request: web.Request) -> web.Response:
    """Show the windows of `[[maintenance]]` that have begun, and those of the next days."""
    days, may_see = query_of(request, MaintenanceQuery).days, principal_of(request).may_see
    return json_answer(await service_of(request, MaintenanceService).view(days, may_see))
