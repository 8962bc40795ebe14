"""The runs: the record of them, and one run by hand that is watched while it goes."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import aclosing

from aiohttp import web

from spyweb.errors import SpywebError
from spyweb.model import JobId, Run, RunId
from spyweb.service.daemon import DaemonService
from spyweb.views.jobs import RunEvent, event_to_json, to_json
from spyweb.web.answer import MOST, begin_lines, job_in_path, json_answer, number_in_query
from spyweb.web.errors import describe
from spyweb.web.keys import SERVICE
from spyweb.web.streams import OPEN_STREAMS

MAX_LIMIT = 1_000


async def list_runs(request: web.Request) -> web.Response:
    limit = number_in_query(request, "limit", 30, least=1, most=MAX_LIMIT)
    before = RunId(number_in_query(request, "before", 0, least=0, most=MOST)) or None
    name = request.query.get("job")
    if name is None:
        return json_answer(await request.app[SERVICE].runs(None, limit=limit, before=before))
    return json_answer(await _of_job(request.app[SERVICE], name, limit, before))


async def _of_job(service: DaemonService, name: str, limit: int, before: RunId | None) -> list[Run]:
    """Of a job that is gone too, as long as it has a history."""
    job = service.find(name)
    found = await service.runs(job or JobId(name), limit=limit, before=before)
    if not (job or found or before):
        raise web.HTTPNotFound(text=service.no_such_job(name))
    return found


async def run_once(request: web.Request) -> web.StreamResponse:
    """Answers one JSON object a line; a refusal comes before the first line, as a plain error."""
    with request.app[OPEN_STREAMS].one(request):
        return await _watch_run(request)


async def _watch_run(request: web.Request) -> web.StreamResponse:
    debug = "debug" in request.query
    async with aclosing(request.app[SERVICE].run_once(job_in_path(request), debug=debug)) as events:
        first = await anext(events)
        response = await begin_lines(request)
        await _stream(response, first, events)
    await response.write_eof()
    return response


async def _stream(response: web.StreamResponse, first: RunEvent, events: AsyncGenerator[RunEvent, None]) -> None:
    """The status line has left: from here on an error is a line of its own."""
    try:
        await response.write(event_to_json(first) + b"\n")
        async for event in events:
            await response.write(event_to_json(event) + b"\n")
    except SpywebError as error:
        await response.write(to_json({"event": "error", **describe(error)}) + b"\n")


routes = [web.get("/api/runs", list_runs), web.post("/api/jobs/{job}/run", run_once)]
