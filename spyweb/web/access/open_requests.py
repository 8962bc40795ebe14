"""Know which requests are under way with which key, and end the streams of one that is revoked.

What has not begun to answer ends as it would have: a change is not broken off half way.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from aiohttp import web

from spyweb.service.access import AccessService, Pass


@dataclass(slots=True)
class Underway:
    request: web.Request
    given: Pass
    task: asyncio.Task[object] | None
    has_begun: bool = False  # its head has been sent
    is_ended: bool = False


class OpenRequests:
    def __init__(self, access: AccessService) -> None:
        self._access = access
        self._open: dict[int, Underway] = {}  # by the identity of the request
        access.on_ended(self._end)

    @contextmanager
    def one(self, request: web.Request, given: Pass) -> Iterator[None]:
        """Count a request while it is under way.  Raises ConnectionResetError when it has been ended."""
        underway = self._open[id(request)] = Underway(request, given, asyncio.current_task())
        try:
            with self._access.held(given):
                yield
        except asyncio.CancelledError:
            if not underway.is_ended:
                raise
            if underway.task:
                underway.task.uncancel()
            raise ConnectionResetError("the key is revoked, or the session is over") from None
        finally:
            del self._open[id(request)]

    async def note_begun(self, request: web.Request, _: web.StreamResponse) -> None:
        """Note that the head of an answer is being sent."""
        if underway := self._open.get(id(request)):
            underway.has_begun = True

    def _end(self) -> None:
        for underway in list(self._open.values()):
            if underway.has_begun and not underway.is_ended and not self._access.is_valid(underway.given):
                underway.is_ended = True
                if underway.request.transport is not None:
                    underway.request.transport.abort()
                if underway.task:
                    underway.task.cancel()
