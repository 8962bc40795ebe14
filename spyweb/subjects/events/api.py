"""The stream of live events: Server-Sent Events that can be resumed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated

from aiohttp import web
from msgspec import Meta, Struct

from spyweb.events.happenings import KINDS, EventType
from spyweb.events.hub import EventHub, Follower, Wish
from spyweb.web.access.principal import Principal, principal_of
from spyweb.web.answer import BadParameter
from spyweb.web.api.query import find_job, query_of
from spyweb.web.api.route import EVENTS, Right, Route
from spyweb.web.api.services import SERVICES
from spyweb.web.event_streams import EVENT_STREAMS, send_events

ALL = frozenset(KINDS)
OF_JOBS = ALL - {EventType.HEALTH, EventType.AUDIT}


class EventsQuery(Struct, frozen=True):
    """Which events, and the start."""

    types: Annotated[
        str,
        Meta(
            description="`run`, `job`, `state`, `health`, `outbox`, `incident`, `task`, `audit`, `log`, separated by "
            "commas; without it, all that the key may see but `log`"
        ),
    ] = ""
    job: str | None = None
    last_event_id: Annotated[
        str | None, Meta(description="continue after this event, as the header `Last-Event-ID` does")
    ] = None


@Route(
    "GET",
    "/api/events",
    right=Right.READ,
    query=EventsQuery,
    answer=tuple(KINDS.values()),
    media=EVENTS,
    of_job=True,
    at_owner="rather",  # of the job, where it is asked for one
)
async def follow_events(request: web.Request) -> web.StreamResponse:
    """Follow live events, as Server-Sent Events.

    Each event has its type as its name, and an id.  A client that reconnects with the id of the last event it has seen
    gets the events since then.  Where these are no longer known, an event named `reset` reports it, and the stream
    continues from now.  Lines of a log are those of the job in `job`.  A client that does not read for 30 s is
    disconnected.
    """
    services, query = request.app[SERVICES], query_of(request, EventsQuery)
    principal, job = principal_of(request), None if query.job is None else find_job(request, query.job, is_loaded=False)
    types = _types_of(query.types, principal)
    if EventType.LOG in types and job is None:
        raise BadParameter("job", "is missing: lines of a log are those of one job")
    wish = Wish(types=types, job=job, may_see=principal.may_see if principal.jobs else None)
    mark = request.headers.get("Last-Event-ID") or query.last_event_id

    async def follow(wake: Callable[[], None]) -> Follower:
        return services[EventHub].follow(wish, mark or None, wake)

    return await send_events(request, request.app[EVENT_STREAMS], follow)


def _types_of(text: str, principal: Principal) -> frozenset[EventType]:
    """Return the wanted types; without any, all that the client may see except lines of logs."""
    allowed = ALL if principal.may(Right.ADMIN) else ALL - {EventType.AUDIT}
    if principal.jobs:
        allowed = OF_JOBS
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
