"""/api/v/NAME and /api/public/NAME: what the project's server/init.lua answers.

Whoever hangs up before the answer changes nothing: a handler that has begun goes on to its end.
"""

from __future__ import annotations

from contextlib import closing

from aiohttp import web

from spyweb.errors import PoolError
from spyweb.jobs.server.endpoints import NOT_FOUND, Endpoints
from spyweb.web.answer import json_answer
from spyweb.web.ask import PRIVATE, PUBLIC, asked_of
from spyweb.web.body import Body, Room
from spyweb.web.reply import reply

AGAIN_S = 1  # when whoever found no room should ask again

ENDPOINTS: web.AppKey[Endpoints] = web.AppKey("endpoints")
ROOM: web.AppKey[Room] = web.AppKey("room for bodies")


def add_endpoints(app: web.Application, endpoints: Endpoints) -> None:
    app[ENDPOINTS], app[ROOM] = endpoints, Room()
    for prefix, handler in ((PRIVATE, answer_private), (PUBLIC, answer_public)):
        app.router.add_route("*", prefix + "{rest:.*}", handler)


async def answer_private(request: web.Request) -> web.StreamResponse:
    return await _answer(request, PRIVATE)


async def answer_public(request: web.Request) -> web.StreamResponse:
    return await _answer(request, PUBLIC)


async def _answer(request: web.Request, prefix: str) -> web.StreamResponse:
    try:
        if not request.body_exists:
            return await _ask(request, prefix, b"")
        with closing(Body(request.app[ROOM])) as body:
            return await _ask(request, prefix, await body.read(request))
    except PoolError as error:
        busy = json_answer({"error": str(error)}, 503)
        busy.headers["Retry-After"] = str(AGAIN_S)
        return busy


async def _ask(request: web.Request, prefix: str, body: bytes) -> web.Response:
    asked = asked_of(request, prefix, body)
    return reply(NOT_FOUND if asked is None else await request.app[ENDPOINTS].answer(asked))
