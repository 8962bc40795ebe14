"""Answers that go on for as long as somebody listens: each has a buffer of its own, so there are only so many."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from aiohttp import web

from spyweb.errors import PoolError
from spyweb.limits import STREAMS


class Streams:
    def __init__(self, most: int = STREAMS) -> None:
        self._most = most
        self._left = most

    @contextmanager
    def one(self) -> Iterator[None]:
        """Raises PoolError when there are too many."""
        if not self._left:
            raise PoolError(f"{self._most} commands watch or read already: end one of them")
        self._left -= 1
        try:
            yield
        finally:
            self._left += 1


OPEN_STREAMS = web.AppKey("answers that go on", Streams)
