"""The page of what runs when: the day ahead as a heat map, and due times that did not run."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from functools import partial

from msgspec import Struct

from spyweb.model import JobId, RunId
from spyweb.settings.units import HOUR_MS
from spyweb.subjects.runs.words import mark_of_outcome
from spyweb.subjects.when.service import SPAN_MS, CalendarService, DayAhead, DayRow
from spyweb.web.api.query import Natural
from spyweb.web.pages.charts import Herd, heat, herd
from spyweb.web.pages.page import Asked, DashboardPage, Shown

ROWS = 60  # of the heat map on a page
TICK_MS = 3 * HOUR_MS
LEVELS = (("h1", "1 run in 15 min"), ("h2", "2\N{EN DASH}3"), ("h3", "4\N{EN DASH}15"), ("h4", "more"))


class HeatMap(Struct, frozen=True, kw_only=True):
    """A page of the heat map."""

    rows: Sequence[tuple[DayRow, Sequence[tuple[str, str]]]]
    herd: Herd
    peak_ms: int | None  # when the quarter of an hour begins in which most runs do
    ticks: Sequence[int]
    page: int
    pages: int


def draw_heat_map(day: DayAhead, page: int) -> HeatMap:
    """Draw a page of the day; one beyond the last is the last."""
    pages = max(1, -(-len(day.rows) // ROWS))
    page = min(max(page, 1), pages)
    sums = herd(day.sums, _slot_of_heading(day))
    return HeatMap(
        rows=[(row, heat(row.counts)) for row in day.rows[(page - 1) * ROWS : page * ROWS]],
        herd=sums,
        peak_ms=None if sums.peak_slot is None else day.from_ms + sums.peak_slot * day.slot_ms,
        ticks=range(day.from_ms, day.from_ms + SPAN_MS + 1, TICK_MS),
        page=page,
        pages=pages,
    )


def _slot_of_heading(day: DayAhead) -> int | None:
    """Return the slot with the busiest minute, which the heading names; another may have more runs in all."""
    if day.busiest is None:
        return None
    slot = (day.busiest.at_ms - day.from_ms) // day.slot_ms
    return max(0, min(slot, len(day.sums) - 1))


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
