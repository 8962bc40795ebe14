"""The runs: the record of them, and one run by hand that is watched while it goes."""

from __future__ import annotations

from contextlib import aclosing

from aiohttp import web

from spyweb.model import JobId, Run, RunId
from spyweb.service.daemon import DaemonService
from spyweb.views.runs import event_to_json
from spyweb.web.answer import json_answer
from spyweb.web.keys import SERVICE
from spyweb.web.query import MOST, job_in_path, number_in_query
from spyweb.web.streams import stream

MAX_LIMIT = 1_000


async def list_runs(request: web.Request) -> web.Response:
    limit = number_in_query(request, "limit", 30, least=1, most=MAX_LIMIT)
    before = RunId(number_in_query(request, "before", 0, least=0, most=MOST)) or None
    name = request.query.get("job")
    if name is None:
        return json_answer(await request.app[SERVICE].runs(None, limit=limit, before=before))
    return json_answer(await _of_job(request.app[SERVICE], name, limit, before))


async def _of_job(service: DaemonService, name: str, limit: int, before: RunId | None) -> list[Run]:
    """Return the runs of a job, of one that is gone too as long as it has a history."""
    job = service.find(name)
    found = await service.runs(job or JobId(name), limit=limit, before=before)
    if not (job or found or before):
        raise web.HTTPNotFound(text=service.no_such_job(name))
    return found


async def run_once(request: web.Request) -> web.StreamResponse:
    job, debug = job_in_path(request), "debug" in request.query
    async with aclosing(request.app[SERVICE].run_once(job, debug=debug)) as events:
        lines = (event_to_json(event) + b"\n" async for event in events)
        return await stream(request, lines, about_errors={"event": "error"})
