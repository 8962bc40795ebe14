"""Handlers for jobs: list them, start, pause and resume one, and show what its script logged."""

from __future__ import annotations

import asyncio

from aiohttp import web

from spyweb.logs.tail import last_lines
from spyweb.web.answer import json_answer
from spyweb.web.api.keys import CATALOGUE, SERVICE
from spyweb.web.api.query import job_in_path, job_in_query, number_in_query

MAX_NEXT = 10_000
MAX_LINES = 10_000


async def list_jobs(request: web.Request) -> web.Response:
    return json_answer(request.app[CATALOGUE].jobs())


async def list_warnings(request: web.Request) -> web.Response:
    return json_answer(request.app[SERVICE].warnings())


async def list_next(request: web.Request) -> web.Response:
    count = number_in_query(request, "count", 5, least=1, most=MAX_NEXT)
    return json_answer(await request.app[SERVICE].next_runs(job_in_query(request), count))


async def trigger(request: web.Request) -> web.Response:
    return json_answer({"run": await request.app[SERVICE].trigger(job_in_path(request))})


async def pause(request: web.Request) -> web.Response:
    job = job_in_path(request)
    await request.app[SERVICE].pause(job)
    return json_answer({"job": job, "paused": True})


async def resume(request: web.Request) -> web.Response:
    job = job_in_path(request)
    await request.app[SERVICE].resume(job)
    return json_answer({"job": job, "paused": False})


async def read_log(request: web.Request) -> web.Response:
    lines = number_in_query(request, "lines", 50, least=1, most=MAX_LINES)
    path = request.app[SERVICE].log_file(job_in_path(request))
    return json_answer(await asyncio.to_thread(last_lines, path, lines))
