"""The decorator that turns a handler into a route of the API, the table that it fills, and what handlers are given.

A route says what its requests need and what they are answered with: the server is made of it, and the guard's rules,
the OpenAPI document and the reference are too.  What a handler takes and gives are Structs; its docstring describes it.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from types import ModuleType
from typing import TypeVar

from aiohttp import web
from aiohttp.typedefs import Handler
from msgspec import Struct
from msgspec.structs import replace

from spyweb.web.access.principal import PUBLIC as PUBLIC  # whoever declares a route needs both
from spyweb.web.access.principal import Right as Right
from spyweb.web.access.recognise import AccessRule

JSON = "application/json"
CSV = "text/csv"
LINES = "application/x-ndjson"  # one JSON object a line
EVENTS = "text/event-stream"
OF_JOB = "/{job}"

ApiHandler = Callable[[web.Request], Awaitable[web.StreamResponse]]
H = TypeVar("H", bound=ApiHandler)


async def _undecorated(_request: web.Request) -> web.StreamResponse:
    raise NotImplementedError


class Route(Struct, frozen=True):
    """One address of the server, what its requests need, and what they are answered with; decorates its handler."""

    method: str
    path: str
    right: Right | None  # PUBLIC: anybody may ask
    handler: ApiHandler = _undecorated
    answer: object = None  # the type of a whole answer, or of each of its lines or events; a tuple: one of these
    query: type[Struct] | None = None
    body: object = None  # the type of a request's body; None: it has none
    media: str = JSON  # of the answer
    body_media: str = JSON
    statuses: Mapping[int, str] = {}  # beside those that every such route has
    others: Mapping[int, object] = {}  # answers with another status than 200, by their type
    is_paged: bool = False  # the header `Link` leads to the next page
    of_job: bool = False  # it names a job, or lists those that whoever asks may see
    status: int = 200  # of its answer
    headers: Mapping[str, str] = {}  # that a request may have, each with what it says
    asks_itself: bool = False  # strangers reach the handler, which knows another way to show who asks

    def __call__(self, handler: H) -> H:
        """Put a handler into the table; where its path names a job, it is a route of a job."""
        TABLE.append(replace(self, handler=handler, of_job=self.of_job or OF_JOB in self.path))
        return handler

    @property
    def name(self) -> str:
        return self.handler.__name__

    @property
    def subject(self) -> str:
        """Return what it is about: the name of its subject's folder; of what lies elsewhere that of its module."""
        *_, folder, module = self.handler.__module__.split(".")
        return folder if ".subjects." in self.handler.__module__ else module

    @property
    def doc(self) -> str:
        return self.handler.__doc__ or ""


TABLE: list[Route] = []


def routes_of(module: ModuleType) -> list[Route]:
    return [each for each in TABLE if each.handler.__module__ == module.__name__]


LARGEST_BODY = web.AppKey("bytes of the largest body", int)


class PageRoute(Struct, frozen=True):
    """One address of the dashboard."""

    method: str
    path: str
    handler: Handler
    rule: AccessRule


class Addresses(Struct, frozen=True, kw_only=True):
    """All that the server answers at, beside what a project adds: the routes of the API, and the pages."""

    routes: Sequence[Route]
    pages: Sequence[PageRoute]
