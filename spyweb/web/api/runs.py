"""Handlers for the record of all runs, and for one run by hand that is watched while it goes."""

from __future__ import annotations

from contextlib import aclosing, closing
from typing import Annotated

import msgspec
from aiohttp import web
from msgspec import Meta, Struct

from spyweb.limits import SCRIPT_VALUES
from spyweb.model import JobId, Run, RunId
from spyweb.views.runs import LogLine, RunEnded, TaskView, event_to_json
from spyweb.web.answer import json_answer
from spyweb.web.api.keys import SERVICE
from spyweb.web.api.query import Natural, job_in_path, query_of, run_in_path
from spyweb.web.api.route import LINES, Right, route
from spyweb.web.api.streams import stream
from spyweb.web.body import BODY_MEMORY, Body

MAX_LIMIT = 1_000


class RunsQuery(Struct, frozen=True):
    """Which runs, of which job."""

    job: str | None = None
    limit: Annotated[int, Meta(ge=1, le=MAX_LIMIT)] = 30
    before: Natural = 0  # the id of a run: only older ones


class WatchedRunQuery(Struct, frozen=True):
    """How a run by hand is done."""

    debug: bool = False  # a monitor job keeps nothing
    audit: bool = False  # the end says which permissions it has used
    dry_run: bool = False  # nothing is changed, and what would be is said


@route("GET", "/api/runs", right=Right.READ, answer=list[Run], query=RunsQuery)
async def list_runs(request: web.Request) -> web.Response:
    """List runs, newest first, of one job or of all, also those of a deleted job."""
    service, query = request.app[SERVICE], query_of(request, RunsQuery)
    before = RunId(query.before) or None
    if query.job is None:
        return json_answer(await service.runs(None, limit=query.limit, before=before))
    job = service.find(query.job)
    found = await service.runs(job or JobId(query.job), limit=query.limit, before=before)
    if not (job or found or before):
        raise web.HTTPNotFound(text=service.no_such_job(query.job))
    return json_answer(found)


@route("GET", "/api/runs/{run}/tasks", right=Right.READ, answer=list[TaskView])
async def list_tasks(request: web.Request) -> web.Response:
    """List how the tasks of a run ended, in the order of their definition."""
    return json_answer(await request.app[SERVICE].tasks(run_in_path(request)))


@route(
    "POST",
    "/api/jobs/{job}/run",
    right=Right.RUN,
    answer=(LogLine, TaskView, RunEnded),
    query=WatchedRunQuery,
    body=dict[str, object] | None,
    media=LINES,
)
async def run_once(request: web.Request) -> web.StreamResponse:
    """Run a job, and send what it logs, each of its tasks, and its end, as they come."""
    job, query = job_in_path(request), query_of(request, WatchedRunQuery)
    with closing(Body(request.app[BODY_MEMORY], SCRIPT_VALUES, "what is laid over the values")) as body:
        values = _values(await body.read(request)) if request.can_read_body else {}
    events = request.app[SERVICE].run_once(
        job, debug=query.debug, audit=query.audit, dry_run=query.dry_run, values=values
    )
    async with aclosing(events):
        lines = (event_to_json(event) + b"\n" async for event in events)
        return await stream(request, lines, about_errors={"event": "error"})


def _values(body: bytes) -> dict[str, object]:
    try:
        return msgspec.json.decode(body, type=dict[str, object]) if body else {}
    except (msgspec.DecodeError, RecursionError) as error:
        raise web.HTTPBadRequest(text="expected a JSON object of values") from error
