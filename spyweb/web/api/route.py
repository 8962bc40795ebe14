"""The decorator that turns a handler into a route of the API, and the table that it fills.

A route holds the right, the parameters, the body and the answer of its requests.  The server, the guard's rules, the
OpenAPI document and the reference are made of this table.  Parameters and answers are Structs; the docstring of a
handler is its description.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from types import ModuleType
from typing import TypeVar

from aiohttp import web
from aiohttp.typedefs import Handler
from msgspec import Struct
from msgspec.structs import replace

from spyweb.web.access.principal import PUBLIC as PUBLIC  # users of this module need both
from spyweb.web.access.principal import Right as Right
from spyweb.web.access.recognise import AccessRule, AtOwner

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
    """One address of the server with its right, parameters, body and answer; decorates its handler."""

    method: str
    path: str
    right: Right | None  # PUBLIC: anybody may ask
    handler: ApiHandler = _undecorated
    answer: object = None  # the type of the answer, or of each of its lines or events; a tuple: one of several
    query: type[Struct] | None = None
    body: object = None  # the type of a request's body; None: no body
    media: str = JSON  # of the answer
    body_media: str = JSON
    statuses: Mapping[int, str] = {}  # beside the usual ones
    others: Mapping[int, object] = {}  # the types of answers with another status than 200
    is_paged: bool = False  # the header `Link` leads to the next page
    of_job: bool = False  # its handler checks which jobs the client may see
    status: int = 200  # of its answer
    headers: Mapping[str, str] = {}  # that a request may have, with their descriptions
    asks_itself: bool = False  # strangers reach the handler, which identifies them in another way
    at_owner: AtOwner | None = None  # the node that owns the job answers

    def __call__(self, handler: H) -> H:
        """Put a handler into the table; where its path names a job, it is a route of a job."""
        TABLE.append(replace(self, handler=handler, of_job=self.of_job or OF_JOB in self.path))
        return handler

    @property
    def name(self) -> str:
        return self.handler.__name__

    @property
    def subject(self) -> str:
        """Return the name of its subject's folder; outside of the subjects, the name of its module."""
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
    """All addresses of the server except the project's: the routes of the API, and the pages."""

    routes: Sequence[Route]
    pages: Sequence[PageRoute]
