"""Events: what happens, as it happens."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import islice

from msgspec import Struct

from spyweb.dashboard.events import TYPE_WORDS, describe
from spyweb.events.happenings import EventType
from spyweb.events.hub import EventHub, Wish
from spyweb.model import JobId
from spyweb.web.access.principal import Right
from spyweb.web.api.query import Natural
from spyweb.web.pages.page import Asked, DashboardPage, PageMissing, PagePart, Shown

EVENTS = 50
PROPOSED = 200  # jobs in the field for one
SHOWN_TYPES = frozenset(TYPE_WORDS)  # not the lines of logs: the page of a job shows them
OF_ADMIN = frozenset({EventType.AUDIT})


class EventsPageQuery(Struct, frozen=True):
    """The events that somebody wants to see."""

    type: str = ""
    job: str = ""
    before: Natural = 0  # the number of an event: only older ones

    @property
    def types(self) -> frozenset[EventType]:
        return frozenset({EventType(self.type)}) & SHOWN_TYPES if self.type in set(EventType) else SHOWN_TYPES


def types_for(asked: Asked) -> frozenset[EventType]:
    """Return the types of events that somebody may hear of: actions of others are for admins."""
    principal = asked.principal
    return SHOWN_TYPES if Right.ADMIN in principal.rights and not principal.jobs else SHOWN_TYPES - OF_ADMIN


async def values_of(asked: Asked, query: EventsPageQuery) -> Mapping[str, object]:
    """Gather the newest of what is kept."""
    may_see = asked.principal.may_see if asked.principal.jobs else None
    wish = Wish(types=query.types & types_for(asked), job=JobId(query.job) if query.job else None, may_see=may_see)
    found = asked.services[EventHub].newest(wish, limit=EVENTS + 1, before=query.before or None)
    events = found[:EVENTS]
    return {
        "events": [(event, describe(event.happening)) for event in events],
        "name_of": asked.name_of,
        "query": query,
        **asked.places(query, events[-1].number if len(found) > EVENTS else 0),
    }


def parts_of(asked: Asked) -> Mapping[str, PagePart]:
    query = asked.query(EventsPageQuery)
    if query.job and not asked.principal.may_see(query.job):
        raise PageMissing("There is no such job")
    of_job = f"job:{query.job or '*'}"
    subjects = {EventType.RUN: of_job, EventType.JOB: of_job, EventType.STATE: "state:*"}
    wanted = {subjects.get(kind, kind.value) for kind in query.types & types_for(asked)}
    return {"event-list": PagePart("event_list.html", tuple(sorted(wanted)))}


@DashboardPage("events", "events.html", place="events", of_job=True, parts=parts_of)
async def show_events(asked: Asked) -> Shown:
    """Show what happens, from the moment on at which somebody first looked."""
    query = asked.query(EventsPageQuery)
    may = types_for(asked)
    values = {
        **await values_of(asked, query),
        "chips": asked.chips(
            query, "type", [("", "All"), *((kind.value, words) for kind, words in TYPE_WORDS.items() if kind in may)]
        ),
        "jobs": sorted(islice(filter(asked.principal.may_see, asked.services.catalogue.names()), PROPOSED)),
    }
    return Shown(title="Events", values=values, is_live=not query.before)
