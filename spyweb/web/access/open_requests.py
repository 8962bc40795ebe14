"""Know which requests are under way with which key, and end the streams of one that is revoked.

What has not begun to answer ends as it would have: a change is not broken off half way.
"""

from __future__ import annotations

import asyncio

from aiohttp import web
from aiohttp.typedefs import Handler
from msgspec import Struct

from spyweb.web.access.keys import AccessService
from spyweb.web.access.principal import Principal

LAST_S = 1.0  # for the end of a stream, where its client reads nothing


class Underway(Struct):
    given: Principal
    task: asyncio.Task[object] | None
    answer: web.StreamResponse | None = None  # once its head has been sent
    is_ended: bool = False


class OpenRequests:
    def __init__(self, access: AccessService) -> None:
        self._access = access
        self._open: dict[int, Underway] = {}  # by the identity of the request
        access.on_ended(self._end)

    async def handle(self, request: web.Request, given: Principal, handler: Handler) -> web.StreamResponse:
        """Have a request answered, and count it while that is under way."""
        underway = self._open[id(request)] = Underway(given, asyncio.current_task())
        try:
            with self._access.held(given):
                return await handler(request)
        except asyncio.CancelledError:
            if not underway.is_ended or underway.answer is None:
                raise
            if underway.task:
                underway.task.uncancel()
            return await _finish(request, underway.answer)
        finally:
            del self._open[id(request)]

    async def note_begun(self, request: web.Request, answer: web.StreamResponse) -> None:
        """Note that the head of an answer is being sent."""
        if underway := self._open.get(id(request)):
            underway.answer = answer

    def _end(self) -> None:
        for underway in list(self._open.values()):
            if underway.answer and not underway.is_ended and not self._access.is_valid(underway.given):
                underway.is_ended = True
                if underway.task:
                    underway.task.cancel()


OPEN_REQUESTS: web.AppKey[OpenRequests] = web.AppKey("requests that are under way")


async def _finish(request: web.Request, answer: web.StreamResponse) -> web.StreamResponse:
    """End a stream as a whole one, so that a browser has nothing to complain about; cut it off where nobody reads."""
    try:
        async with asyncio.timeout(LAST_S):
            await answer.write_eof()
    except (TimeoutError, ConnectionError):
        if request.transport is not None:
            request.transport.abort()
    answer.force_close()
    return answer
