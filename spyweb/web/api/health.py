"""Answer for the daemon's health: 200 or 503 for probes, the details for people who may see them."""

from __future__ import annotations

from aiohttp import web

from spyweb.views.health import summarize
from spyweb.web.answer import json_answer
from spyweb.web.api.keys import SERVICE


async def probe(request: web.Request) -> web.Response:
    health = await request.app[SERVICE].health()
    return json_answer(summarize(health), 503 if health.problems else 200)


async def examine(request: web.Request) -> web.Response:
    return json_answer(await request.app[SERVICE].health())
