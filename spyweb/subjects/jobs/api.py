"""Handlers for jobs: list, show, start, pause and resume them, and read their logs."""

from __future__ import annotations

import asyncio
from typing import Annotated

from aiohttp import web
from msgspec import Meta, Struct

from spyweb.errors import Problem
from spyweb.logs.reading import last_lines
from spyweb.subjects.jobs.overview import Overview, overview_seen_by
from spyweb.subjects.jobs.service import JobDetails, JobService, OverviewService
from spyweb.subjects.jobs.views import JobDetail, JobsQuery, detail_seen_by, pick_jobs
from spyweb.subjects.runs.service import PastRunsService, RunService
from spyweb.subjects.runs.starting import HEADERS, REUSED, key_of, parent_of, payload_of, started_answer
from spyweb.subjects.runs.views import JobStatistics, TimeSpan
from spyweb.views.jobs import JobPaused, JobView, NextRun, Triggered
from spyweb.views.source import SourceView
from spyweb.web.access.principal import principal_of
from spyweb.web.answer import json_answer, page_answer
from spyweb.web.api.query import MOST, any_job_in_path, find_job, job_in_path, query_of
from spyweb.web.api.route import Right, Route
from spyweb.web.api.services import SERVICES, service_of

USUAL_NEXT, MAX_NEXT = 5, 10_000
HOW_MANY = f"without it {USUAL_NEXT}; with `until` all until then, up to {MAX_NEXT:,}"
MAX_LINES = 10_000


class NextQuery(Struct, frozen=True):
    """Which due times, of which job."""

    job: str | None = None
    count: Annotated[int, Meta(ge=1, le=MAX_NEXT, description=HOW_MANY)] | None = None
    until: Annotated[int, Meta(ge=0, le=MOST, description="epoch milliseconds; not included")] | None = None


class ChartQuery(Struct, frozen=True):
    """How far back."""

    span: TimeSpan = TimeSpan.DAY


class LogQuery(Struct, frozen=True):
    """How much of a log."""

    lines: Annotated[int, Meta(ge=1, le=MAX_LINES)] = 50


class FileQuery(Struct, frozen=True):
    """Which file of a job."""

    file: Annotated[str | None, Meta(description="one of `files`; without it, the job's own")] = None


@Route("GET", "/api/jobs", right=Right.READ, answer=list[JobView], query=JobsQuery, of_job=True, is_paged=True)
async def list_jobs(request: web.Request) -> web.Response:
    """List jobs, by id unless another order is asked for."""
    query, principal = query_of(request, JobsQuery), principal_of(request)
    views = [job for job in await request.app[SERVICES].catalogue.all_jobs() if principal.may_see(job.id)]
    page, after = pick_jobs(views, query)
    return page_answer(request, page, after=after)


@Route("GET", "/api/overview", right=Right.READ, answer=Overview, of_job=True)
async def show_overview(request: web.Request) -> web.Response:
    """Show the state of all jobs: in one line, and each with its newest runs."""
    overview = await service_of(request, OverviewService).look()
    return json_answer(overview_seen_by(overview, principal_of(request).may_see))


@Route("GET", "/api/jobs/{job}", right=Right.READ, answer=JobDetail, at_owner="rather")
async def show_job(request: web.Request) -> web.Response:
    """Show everything about one job: its schedule in words, settings with their origin, problems, its last error."""
    detail = await service_of(request, JobDetails).detail(any_job_in_path(request))
    return json_answer(detail_seen_by(detail, principal_of(request).may_see))


@Route("GET", "/api/jobs/{job}/source", right=Right.READ, answer=SourceView, query=FileQuery)
async def show_source(request: web.Request) -> web.Response:
    """Show a Lua file of the version of a job that runs."""
    job, query = any_job_in_path(request), query_of(request, FileQuery)
    return json_answer(await service_of(request, JobDetails).source(job, query.file))


@Route("GET", "/api/warnings", right=Right.READ, answer=list[Problem])
async def list_warnings(request: web.Request) -> web.Response:
    """List the warnings about the project's files."""
    return json_answer(service_of(request, JobService).warnings())


@Route("GET", "/api/next", right=Right.READ, answer=list[NextRun], query=NextQuery, of_job=True)
async def list_next(request: web.Request) -> web.Response:
    """List the next due times, of one job or of all together, earliest first."""
    query = query_of(request, NextQuery)
    job = None if query.job is None else find_job(request, query.job)
    count = query.count or (USUAL_NEXT if query.until is None else MAX_NEXT)
    may_see, next_runs = principal_of(request).may_see, service_of(request, JobService).next_runs
    return json_answer(await next_runs(job, count, until_ms=query.until, may_see=may_see))


@Route("GET", "/api/jobs/{job}/chart", right=Right.READ, answer=JobStatistics, query=ChartQuery)
async def show_chart(request: web.Request) -> web.Response:
    """Show how long the runs of a job took and how late they began, with their rates, over a span of time."""
    job, query = job_in_path(request), query_of(request, ChartQuery)
    return json_answer(await service_of(request, PastRunsService).statistics(job, query.span))


@Route(
    "POST",
    "/api/jobs/{job}/trigger",
    right=Right.RUN,
    answer=Triggered,
    body=object | None,
    statuses=REUSED,
    headers=HEADERS,
    at_owner="must",
)
async def trigger(request: web.Request) -> web.Response:
    """Start a run, or queue it; refused (409) where its overlap rule would skip the start.

    Its script finds the body, any JSON, in `ctx.trigger.payload`.  With the header `Idempotency-Key` a request that is
    repeated within a day starts no second run, and gets the first answer.
    """
    job = job_in_path(request)
    payload, key, parent = await payload_of(request), key_of(request), parent_of(request)
    return started_answer(await service_of(request, RunService).start(job, payload, key, parent), 200)


@Route("POST", "/api/jobs/{job}/pause", right=Right.RUN, answer=JobPaused, at_owner="must")
async def pause(request: web.Request) -> web.Response:
    """Pause the schedule of a job: it starts no more runs."""
    job = job_in_path(request)
    return json_answer(await service_of(request, JobService).pause(job))


@Route("POST", "/api/jobs/{job}/resume", right=Right.RUN, answer=JobPaused, at_owner="must")
async def resume(request: web.Request) -> web.Response:
    """Resume the schedule of a paused job."""
    job = job_in_path(request)
    return json_answer(await service_of(request, JobService).resume(job))


@Route("GET", "/api/jobs/{job}/logs", right=Right.READ, answer=list[str], query=LogQuery, at_owner="must")
async def read_log(request: web.Request) -> web.Response:
    """Show the last lines that a job has logged."""
    lines = query_of(request, LogQuery).lines
    path = service_of(request, JobService).log_file(job_in_path(request))
    return json_answer(await asyncio.to_thread(last_lines, path, lines))
