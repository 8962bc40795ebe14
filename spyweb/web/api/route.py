"""The decorator that turns a handler into a route of the API, and the table that it fills.

A route says what its requests need and what they are answered with: the server is made of it, and the guard's rules,
the OpenAPI document and the reference are too.  What a handler takes and gives are Structs; its docstring describes it.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from types import ModuleType
from typing import TypedDict, TypeVar, Unpack

import msgspec
from aiohttp import web
from msgspec import Struct, field

from spyweb.web.access.rights import PUBLIC, Right

__all__ = ["CSV", "EVENTS", "JSON", "LINES", "PUBLIC", "TABLE", "Right", "Route", "route", "routes_of"]

JSON = "application/json"
CSV = "text/csv"
LINES = "application/x-ndjson"  # one JSON object a line
EVENTS = "text/event-stream"
OF_JOB = "/{job}"

ApiHandler = Callable[[web.Request], Awaitable[web.StreamResponse]]
H = TypeVar("H", bound=ApiHandler)


class Route(Struct, frozen=True, kw_only=True):
    """One address of the server, what its requests need, and what they are answered with."""

    method: str
    path: str
    handler: ApiHandler
    right: Right | None  # PUBLIC: anybody may ask
    answer: object = None  # the type of a whole answer, or of each of its lines or events; a tuple: one of these
    query: type[msgspec.Struct] | None = None
    body: object = None  # the type of a request's body; None: it has none
    media: str = JSON  # of the answer
    body_media: str = JSON
    statuses: Mapping[int, str] = field(default_factory=dict)  # beside those that every such route has
    others: Mapping[int, object] = field(default_factory=dict)  # answers with another status than 200, by their type
    is_paged: bool = False  # the header `Link` leads to the next page
    of_job: bool = False  # it names a job, or lists those that whoever asks may see
    in_document: bool = True
    status: int = 200  # of its answer
    headers: Mapping[str, str] = field(default_factory=dict)  # that a request may have, each with what it says
    asks_itself: bool = False  # strangers reach the handler, which knows another way to show who asks

    @property
    def name(self) -> str:
        return self.handler.__name__

    @property
    def subject(self) -> str:
        """Return what it is about: the name of its module."""
        return self.handler.__module__.rpartition(".")[2]

    @property
    def doc(self) -> str:
        return self.handler.__doc__ or ""


class RouteOptions(TypedDict, total=False):
    """The parts of a route that have a default."""

    answer: object
    query: type[msgspec.Struct] | None
    body: object
    media: str
    body_media: str
    statuses: Mapping[int, str]
    others: Mapping[int, object]
    is_paged: bool
    of_job: bool
    in_document: bool
    status: int
    headers: Mapping[str, str]
    asks_itself: bool


TABLE: list[Route] = []


def route(method: str, path: str, *, right: Right | None, **options: Unpack[RouteOptions]) -> Callable[[H], H]:
    """Put a handler into the table; where its path names a job, it is a route of a job."""
    options.setdefault("of_job", OF_JOB in path)

    def add(handler: H) -> H:
        TABLE.append(Route(method=method, path=path, handler=handler, right=right, **options))
        return handler

    return add


def routes_of(module: ModuleType) -> list[Route]:
    return [each for each in TABLE if each.handler.__module__ == module.__name__]
