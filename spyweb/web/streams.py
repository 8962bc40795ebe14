"""Answers that go on for as long as somebody listens: each has a buffer of its own, so there are only so many."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from aiohttp import web

from spyweb.errors import PoolError
from spyweb.limits import STREAMS


class OpenStreams:
    def __init__(self, most: int = STREAMS) -> None:
        self._most = most
        self._open: list[web.Request] = []

    @contextmanager
    def one(self, request: web.Request) -> Iterator[None]:
        """Raises PoolError when there are too many.  One that has not noticed yet that its client is gone is none."""
        if sum(each.transport is not None for each in self._open) >= self._most:
            raise PoolError(f"{self._most} commands watch or read already: end one of them")
        self._open.append(request)
        try:
            yield
        finally:
            self._open.remove(request)


OPEN_STREAMS = web.AppKey("answers that go on", OpenStreams)
