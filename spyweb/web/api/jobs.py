"""Handlers for jobs: list them, start, pause and resume one, and show what its script logged."""

from __future__ import annotations

import asyncio
from typing import Annotated

from aiohttp import web
from msgspec import Meta, Struct

from spyweb.errors import Problem
from spyweb.logs.tail import last_lines
from spyweb.model import JobId
from spyweb.views.drift import DriftReport
from spyweb.views.jobs import JobPaused, JobView, NextRun, Triggered
from spyweb.web.access.principal import principal_of
from spyweb.web.answer import json_answer
from spyweb.web.api.keys import CATALOGUE, SERVICE
from spyweb.web.api.once import REUSED, key_of, started_answer
from spyweb.web.api.payload import payload_of
from spyweb.web.api.query import find_job, job_in_path, query_of
from spyweb.web.api.route import Right, route

MAX_NEXT = 10_000
MAX_LINES = 10_000


class NextQuery(Struct, frozen=True):
    """How many due times, of which job."""

    job: str | None = None
    count: Annotated[int, Meta(ge=1, le=MAX_NEXT)] = 5


class DriftQuery(Struct, frozen=True):
    """Whose resources; those of a job that is gone are counted."""

    job: str | None = None


class LogQuery(Struct, frozen=True):
    """How much of a log."""

    lines: Annotated[int, Meta(ge=1, le=MAX_LINES)] = 50


@route("GET", "/api/jobs", right=Right.READ, answer=list[JobView], of_job=True)
async def list_jobs(request: web.Request) -> web.Response:
    """List all jobs, by id."""
    principal = principal_of(request)
    return json_answer([job for job in request.app[CATALOGUE].jobs() if principal.may_see(job.id)])


@route("GET", "/api/warnings", right=Right.READ, answer=list[Problem])
async def list_warnings(request: web.Request) -> web.Response:
    """List what is doubtful in the project's files."""
    return json_answer(request.app[SERVICE].warnings())


@route("GET", "/api/next", right=Right.READ, answer=list[NextRun], query=NextQuery, of_job=True)
async def list_next(request: web.Request) -> web.Response:
    """List the next due times, of one job or of all together, earliest first."""
    query = query_of(request, NextQuery)
    job = None if query.job is None else find_job(request, query.job)
    principal = principal_of(request)
    most = MAX_NEXT if job is None and principal.jobs else query.count
    found = await request.app[SERVICE].next_runs(job, most)
    return json_answer([each for each in found if principal.may_see(each.job)][: query.count])


@route("GET", "/api/drift", right=Right.READ, answer=DriftReport, query=DriftQuery)
async def check_drift(request: web.Request) -> web.Response:
    """Compare what is there with what `file.*` and commands have recorded, of one job or of all."""
    name, service = query_of(request, DriftQuery).job, request.app[SERVICE]
    return json_answer(await service.check_drift(None if name is None else service.find(name) or JobId(name)))


@route("POST", "/api/jobs/{job}/trigger", right=Right.RUN, answer=Triggered, body=object | None, statuses=REUSED)
async def trigger(request: web.Request) -> web.Response:
    """Start a run, or queue it; refused (409) where its overlap rule would skip the start.

    Its script finds the body, any JSON, in `ctx.trigger.payload`.  With the header `Idempotency-Key` a request that is
    repeated within a day starts no second run, and gets the first answer.
    """
    job = job_in_path(request)
    return started_answer(await request.app[SERVICE].start(job, await payload_of(request), key_of(request)), 200)


@route("POST", "/api/jobs/{job}/pause", right=Right.RUN, answer=JobPaused)
async def pause(request: web.Request) -> web.Response:
    """Have the schedule of a job start no more runs."""
    job = job_in_path(request)
    await request.app[SERVICE].pause(job)
    return json_answer(JobPaused(job=job, paused=True))


@route("POST", "/api/jobs/{job}/resume", right=Right.RUN, answer=JobPaused)
async def resume(request: web.Request) -> web.Response:
    """Have the schedule of a paused job start runs again."""
    job = job_in_path(request)
    await request.app[SERVICE].resume(job)
    return json_answer(JobPaused(job=job, paused=False))


@route("GET", "/api/jobs/{job}/logs", right=Right.READ, answer=list[str], query=LogQuery)
async def read_log(request: web.Request) -> web.Response:
    """Show the last lines that a job has logged."""
    lines = query_of(request, LogQuery).lines
    path = request.app[SERVICE].log_file(job_in_path(request))
    return json_answer(await asyncio.to_thread(last_lines, path, lines))
