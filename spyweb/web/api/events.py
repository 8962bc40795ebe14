"""Handlers for what happens, as it happens: a stream of Server-Sent Events that can be resumed."""

from __future__ import annotations

import asyncio
from asyncio import Future
from typing import Annotated

from aiohttp import web
from aiohttp_sse import EventSourceResponse
from msgspec import Meta, Struct

from spyweb.clock import Clock
from spyweb.cooperative import set_done, within
from spyweb.service.events import Follower, Wish
from spyweb.views.events import KINDS, EventType
from spyweb.web.access.principal import Principal, principal_of
from spyweb.web.answer import BadParameter
from spyweb.web.api.query import find_job, query_of
from spyweb.web.api.route import EVENTS, SERVICE, Right, Route
from spyweb.web.event_streams import EventStreams, hold_little

QUIET_S = 15.0  # after which a client gets a sign of life
STALLED_S = 30.0  # without reading, after which it is hung up on
PAUSE_S = 0.2  # between two sendings: what comes meanwhile is sent together
ALL = frozenset(KINDS)
OF_JOBS = ALL - {EventType.HEALTH, EventType.AUDIT}

EVENT_STREAMS = web.AppKey("streams of events", EventStreams)


class EventsQuery(Struct, frozen=True):
    """Which events, and from where on."""

    types: Annotated[
        str,
        Meta(
            description="`run`, `job`, `state`, `health`, `outbox`, `incident`, `audit`, `log`, separated by commas; "
            "without it, all that the key may see but `log`"
        ),
    ] = ""
    job: str | None = None
    last_event_id: Annotated[
        str | None, Meta(description="go on after this event, as the header `Last-Event-ID` says")
    ] = None


@Route(
    "GET",
    "/api/events",
    right=Right.READ,
    query=EventsQuery,
    answer=tuple(KINDS.values()),
    media=EVENTS,
    of_job=True,
)
async def follow_events(request: web.Request) -> web.StreamResponse:
    """Follow what happens, as Server-Sent Events.

    Each event has its type as its name, and an id.  Whoever comes back with the id of the last one that it has seen is
    sent what it has missed.  Where that is not known any more, an event named `reset` says so, and then it goes on from
    now.  The lines of a log are those of the job that `job` names.  Whoever does not read for 30 s is hung up on.
    """
    service, query = request.app[SERVICE], query_of(request, EventsQuery)
    wish = _wish_of(request, query)
    mark = request.headers.get("Last-Event-ID") or query.last_event_id
    if request.method == "HEAD":
        return web.Response(content_type=EVENTS)
    stream = OpenEvents(request, service.clock)
    with request.app[EVENT_STREAMS].one(request, stream.end):
        follower = service.events.follow(wish, mark or None, stream.wake)
        try:
            response = EventSourceResponse(send_timeout=STALLED_S, ping_interval=QUIET_S)
            hold_little(request)
            await response.prepare(request)
            async with response:
                await stream.send_all(response, follower)
        finally:
            follower.leave()
    return response


class OpenEvents:
    """One stream, until the server closes or the client is gone; of one that may not stay, the guard ends it."""

    def __init__(self, request: web.Request, clock: Clock) -> None:
        self._request = request
        self._clock = clock
        self._over: Future[None] = asyncio.get_running_loop().create_future()
        self._woken: Future[None] = asyncio.get_running_loop().create_future()
        self._sent_at = clock.monotonic()

    def wake(self) -> None:
        set_done(self._woken)

    def end(self) -> None:
        set_done(self._over)
        set_done(self._woken)

    async def send_all(self, response: EventSourceResponse, follower: Follower) -> None:
        while not self._over.done() and response.is_connected():
            data = follower.take()
            if not data and self._clock.monotonic() - self._sent_at >= QUIET_S:
                data = b"id: %s\n\n" % follower.mark.encode()  # no event: only where it is by now
            if not data:
                await self._wait()
                continue
            await self._send(response, data)
            if not follower.has_more:
                await within(self._clock, PAUSE_S, self._over)

    async def _wait(self) -> None:
        if await within(self._clock, QUIET_S, self._woken):
            self._woken = asyncio.get_running_loop().create_future()

    async def _send(self, response: EventSourceResponse, data: bytes) -> None:
        """Send what all streams share: the library's own `send` would encode it anew for each."""
        self._sent_at = self._clock.monotonic()
        try:
            async with asyncio.timeout(STALLED_S):
                await response.write(data)
        except (TimeoutError, ConnectionError):
            if self._request.transport:
                self._request.transport.abort()
            self.end()


def _wish_of(request: web.Request, query: EventsQuery) -> Wish:
    principal = principal_of(request)
    job = None if query.job is None else find_job(request, query.job)
    types = _types_of(query.types, principal)
    if EventType.LOG in types and job is None:
        raise BadParameter("job", "is missing: lines of a log are those of one job")
    return Wish(types=types, job=job, may_see=principal.may_see if principal.jobs else None)


def _types_of(text: str, principal: Principal) -> frozenset[EventType]:
    """Return the types that are asked for; without any, all that this one may see but the lines of logs."""
    allowed = _allowed(principal)
    if not text:
        return allowed - {EventType.LOG}
    names = [name.strip() for name in text.split(",")]
    unknown = [name for name in names if name not in ALL]
    if unknown:
        raise BadParameter("types", f"expected some of {', '.join(KINDS)}, separated by commas")
    types = frozenset(EventType(name) for name in names)
    if types - allowed:
        raise web.HTTPForbidden(text=f"{principal.name} may not see events of type {min(types - allowed)}")
    return types


def _allowed(principal: Principal) -> frozenset[EventType]:
    if principal.jobs:
        return OF_JOBS
    return ALL if principal.may(Right.ADMIN) else ALL - {EventType.AUDIT}
