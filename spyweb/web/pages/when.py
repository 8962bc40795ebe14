"""Show what runs when: the next 24 hours of all jobs, and the due times that did not run."""

from __future__ import annotations

import asyncio
from functools import partial

from msgspec import Struct

from spyweb.dashboard.run import mark_of_outcome
from spyweb.dashboard.when import LEVELS, draw_heat_map
from spyweb.model import JobId, RunId
from spyweb.service.calendar import CalendarService
from spyweb.web.api.query import Natural
from spyweb.web.pages.page import Asked, DashboardPage, Shown

GAPS = 50


class WhenQuery(Struct, frozen=True):
    """The page of the heat map, and the gaps: of which job, and from where on."""

    page: Natural = 1
    job: str = ""
    before: Natural = 0  # the id of a gap: only older ones


@DashboardPage("when", "when.html", place="when", of_job=True, anew=("jobs",))
async def show_when(asked: Asked) -> Shown:
    """Show when jobs are due, and when they were and did not run."""
    query, may_see = asked.query(WhenQuery), asked.principal.may_see
    calendar = asked.services[CalendarService]
    day = await calendar.day_ahead(may_see)
    found = await calendar.gaps(
        JobId(query.job) if query.job else None,
        limit=GAPS,
        before=RunId(query.before) if query.before else None,
        may_see=may_see,
    )
    values = {
        "day": day,
        "map": await asyncio.to_thread(draw_heat_map, day, query.page),
        "levels": LEVELS,
        "gaps": found.gaps,
        "count": found.count,
        "mark_of": mark_of_outcome,
        "job": query.job,
        "address": partial(asked.address, query),
        **asked.places(query, found.before),
    }
    return Shown(title="What runs when", values=values)
