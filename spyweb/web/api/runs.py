"""Handlers for the record of all runs, and for one run by hand that is watched while it goes."""

from __future__ import annotations

from contextlib import aclosing, closing

import msgspec
from aiohttp import web

from spyweb.limits import SCRIPT_VALUES
from spyweb.model import JobId, RunId
from spyweb.views.runs import event_to_json
from spyweb.web.answer import json_answer
from spyweb.web.api.keys import SERVICE
from spyweb.web.api.query import MOST, job_in_path, number_in_query, run_in_path
from spyweb.web.api.streams import stream
from spyweb.web.body import BODY_MEMORY, Body

MAX_LIMIT = 1_000


async def list_runs(request: web.Request) -> web.Response:
    """List runs, of one job or of all, also those of a deleted job."""
    limit = number_in_query(request, "limit", 30, least=1, most=MAX_LIMIT)
    before = RunId(number_in_query(request, "before", 0, least=0, most=MOST)) or None
    service, name = request.app[SERVICE], request.query.get("job")
    if name is None:
        return json_answer(await service.runs(None, limit=limit, before=before))
    job = service.find(name)
    found = await service.runs(job or JobId(name), limit=limit, before=before)
    if not (job or found or before):
        raise web.HTTPNotFound(text=service.no_such_job(name))
    return json_answer(found)


async def list_tasks(request: web.Request) -> web.Response:
    return json_answer(await request.app[SERVICE].tasks(run_in_path(request)))


async def run_once(request: web.Request) -> web.StreamResponse:
    job, debug, audit = job_in_path(request), "debug" in request.query, "audit" in request.query
    with closing(Body(request.app[BODY_MEMORY], SCRIPT_VALUES, "what is laid over the values")) as body:
        values = _values(await body.read(request)) if request.can_read_body else {}
    async with aclosing(request.app[SERVICE].run_once(job, debug=debug, audit=audit, values=values)) as events:
        lines = (event_to_json(event) + b"\n" async for event in events)
        return await stream(request, lines, about_errors={"event": "error"})


def _values(body: bytes) -> dict[str, object]:
    try:
        return msgspec.json.decode(body, type=dict[str, object]) if body else {}
    except (msgspec.DecodeError, RecursionError) as error:
        raise web.HTTPBadRequest(text="expected a JSON object of values") from error
