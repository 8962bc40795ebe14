"""/api/v/NAME and /api/public/NAME: what the project's server/init.lua answers.

Whoever hangs up before the answer changes nothing: a handler that has begun goes on to its end.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextlib import closing
from dataclasses import dataclass

from aiohttp import web

from spyweb.endpoints.endpoints import NOT_FOUND, EndpointAnswer, Endpoints
from spyweb.errors import PoolError
from spyweb.stalls import Work, work_for
from spyweb.web.answer import json_answer
from spyweb.web.ask import PRIVATE, PUBLIC, asked_of
from spyweb.web.auth import Guard
from spyweb.web.body import Body, BodyMemory
from spyweb.web.errors import PATH_SHOWN, answer_for
from spyweb.web.reply import reply

AGAIN_S = 1  # when whoever found no room should ask again
REST = "{rest:(?s:.*)}"  # an escape may stand for a line's end

Handle = Callable[[web.Request], Awaitable[web.StreamResponse]]


@dataclass(frozen=True, slots=True)
class EndpointDispatcher:
    """Where requests for endpoints are taken."""

    endpoints: Endpoints
    guard: Guard
    room: BodyMemory

    async def private(self, request: web.Request) -> web.StreamResponse:
        return await self._answer(request, PRIVATE)

    async def public(self, request: web.Request) -> web.StreamResponse:
        return await self._answer(request, PUBLIC)

    def before(self, others: Handle) -> Handle:
        """Who takes any request: those for endpoints come here, the others go on.

        The way through aiohttp's router and an app's middlewares costs 14 us of 105, and there is nothing to look for.
        What is spelt or asked for in a rarer way, an escape in the address or `Expect`, takes it and comes to the same.
        """

        def take(request: web.Request) -> Awaitable[web.StreamResponse]:
            path = request.rel_url.raw_path
            prefix = PRIVATE if path.startswith(PRIVATE) else PUBLIC if path.startswith(PUBLIC) else None
            if prefix is None or "%" in path or "Expect" in request.headers:
                return others(request)
            return self._take(request, prefix)

        return take

    async def _take(self, request: web.Request, prefix: str) -> web.StreamResponse:
        work_for(Work(f"{request.method} {request.path[:PATH_SHOWN]}"))
        try:
            self.guard(request, prefix)
            return await self._answer(request, prefix)
        except Exception as error:  # noqa: BLE001 - boundary: one web request
            return answer_for(error, request)

    async def _answer(self, request: web.Request, prefix: str) -> web.StreamResponse:
        try:
            if not request.body_exists:
                return reply(await self._ask(request, prefix, b""))
            with closing(Body(self.room)) as body:
                return reply(await self._ask(request, prefix, await body.read(request)))
        except PoolError as error:
            busy = json_answer({"error": str(error)}, 503)
            busy.headers["Retry-After"] = str(AGAIN_S)
            return busy

    def _ask(self, request: web.Request, prefix: str, body: bytes) -> Awaitable[EndpointAnswer]:
        asked = asked_of(request, prefix, body)
        return _find_nothing() if asked is None else self.endpoints.answer(asked)


async def _find_nothing() -> EndpointAnswer:
    return NOT_FOUND


DISPATCHER: web.AppKey[EndpointDispatcher] = web.AppKey("dispatcher")


def add_endpoints(app: web.Application, endpoints: Endpoints, guard: Guard) -> None:
    dispatcher = app[DISPATCHER] = EndpointDispatcher(endpoints, guard, BodyMemory())
    app.router.add_route("*", PRIVATE + REST, dispatcher.private)
    app.router.add_route("*", PUBLIC + REST, dispatcher.public)
