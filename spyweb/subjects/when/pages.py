"""The pages Schedule (the day ahead as a heat map, missed runs), Audit and Maintenance."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from datetime import UTC, tzinfo
from functools import partial

from aiohttp import web
from msgspec import Struct
from msgspec.structs import replace

from spyweb.errors import Refused
from spyweb.model import RunId
from spyweb.settings.units import DAY_MS, MINUTE_MS
from spyweb.specs.maintenance import DURATION
from spyweb.subjects.runs.words import mark_of_outcome
from spyweb.subjects.when import service
from spyweb.subjects.when.audit import USUAL_MS, RunAuditService
from spyweb.web.access.principal import Right, typed_name
from spyweb.web.api.query import ListQuery, Natural, whole_number
from spyweb.web.pages.charts import Herd, Tick, bounds_of, heat, herd, level_class, time_ticks
from spyweb.web.pages.page import Action, Asked, DashboardPage, PageMissing, PagePart, Shown, lead_to
from spyweb.web.pages.site import answer_with

ROWS = 60  # of the heat map on a page
OFTEN_MS = 10 * MINUTE_MS  # jobs that run more often are not worth spreading


class HeatMap(Struct, frozen=True, kw_only=True):
    """A page of the heat map."""

    rows: Sequence[tuple[service.DayRow, Sequence[tuple[str, str]]]]
    levels: Sequence[tuple[str, str]]  # classes, and counts of runs
    herd: Herd
    peak_ms: int | None  # when the quarter of an hour with most runs begins
    is_even: bool  # more than half of the day is nearly as busy
    crowd: int  # jobs that start in the busiest minute and are rare enough to be spread
    ticks: Sequence[Tick]
    page: int
    pages: int


def draw_heat_map(day: service.DayAhead, page: int, zone: tzinfo = UTC) -> HeatMap:
    """Draw a page of the day; a page beyond the last is the last."""
    pages = max(1, -(-len(day.rows) // ROWS))
    page = min(max(page, 1), pages)
    sums, bounds = herd(day.sums), bounds_of(max((max(row.counts) for row in day.rows), default=0))
    least = [1, *(bound + 1 for bound in bounds)]
    often = sum(row.total > DAY_MS // OFTEN_MS for row in day.rows)
    return HeatMap(
        rows=[(row, heat(row.counts, bounds)) for row in day.rows[(page - 1) * ROWS : page * ROWS]],
        levels=[
            (level_class(number, bounds), str(bound) if bound == low else f"{low:,}\N{EN DASH}{bound:,}")
            for number, (low, bound) in enumerate(zip(least, bounds, strict=False))
        ],
        is_even=sum(count > 0.9 * sums.most for count in day.sums) > len(day.sums) // 2,
        crowd=max(0, day.busiest.jobs - often) if day.busiest else 0,
        herd=sums,
        peak_ms=None if sums.peak_slot is None else day.from_ms + sums.peak_slot * day.slot_ms,
        ticks=time_ticks(day.from_ms, day.from_ms + len(day.sums) * day.slot_ms, zone),
        page=page,
        pages=pages,
    )


GAPS, MOST_AUDITED = 50, 200  # on a page


class WhenQuery(ListQuery, frozen=True):
    """The page of the heat map, beside that of the gaps."""

    page: Natural = 1


@DashboardPage("when", "when.html", place="when", of_job=True, anew=("jobs",))
async def show_when(asked: Asked) -> Shown:
    """Show when jobs are due, and missed runs."""
    query, may_see = asked.query(WhenQuery), asked.principal.may_see
    calendar = asked.services[service.CalendarService]
    day = await calendar.day_ahead(may_see)
    found = await calendar.gaps(
        asked.job_of_list(query.job), limit=GAPS, before=RunId(query.before) if query.before else None, may_see=may_see
    )
    values = {
        "day": day,
        "map": await asyncio.to_thread(draw_heat_map, day, query.page, asked.moments.zone),
        "gaps": found.gaps,
        "count": found.count,
        "mark_of": mark_of_outcome,
        "job": query.job,
        "job_name": asked.name_of(query.job),
        "address": partial(asked.address, query),
        **asked.places(query, found.before),
    }
    return Shown(title="Schedule", values=values)


@DashboardPage("when/audit", "due_audit.html", place="when", of_job=True)
async def show_audit(asked: Asked) -> Shown:
    """Show whether each due time of the last days is on record."""
    job, since_ms = asked.job_of_list(asked.query(ListQuery).job), asked.services.clock.now_ms() - USUAL_MS
    jobs = await asked.services[RunAuditService].audit(since_ms, job, asked.principal.may_see)
    gaps = [(each.job, gap) for each in jobs for gap in each.groups if gap.kind == "unexplained"]
    jobs.sort(key=lambda each: each.due - each.counts["ran"] - each.counts["late"], reverse=True)
    values = {"jobs": jobs, "gaps": gaps, "most": MOST_AUDITED, "since_ms": since_ms, "name_of": asked.name_of}
    return Shown(title="Audit", values=values)


WIDTH = 1_000  # of the picture, in its own unit
LEAST = 4  # of a window, so that it is visible


class MaintenanceRow(Struct, frozen=True, kw_only=True):
    """The windows of one rule, drawn."""

    window: service.MaintenanceWindow  # the first of them
    path: str
    count: int


class MaintenancePicture(Struct, frozen=True, kw_only=True):
    rows: Sequence[MaintenanceRow]
    ticks: Sequence[Tick]
    until_ms: int | None  # the end of the last current window
    next_ms: int | None


def draw_maintenance(view: service.MaintenanceView, days: int, zone: tzinfo = UTC) -> MaintenancePicture:
    """Draw the windows of so many days, which end with the period of the view."""
    from_ms = view.until_ms - days * DAY_MS
    of_rule: dict[tuple[object, ...], list[service.MaintenanceWindow]] = {}
    for window in (*view.now, *view.next):
        of_rule.setdefault((*window.jobs, window.text, window.cron, window.timezone, window.id), []).append(window)
    rows, span_ms = [], max(view.until_ms - from_ms, 1)
    for windows in of_rule.values():
        path = ""
        for window in windows:
            start = max(window.start_ms - from_ms, 0) / span_ms * WIDTH
            end = min(window.end_ms - from_ms, span_ms) / span_ms * WIDTH
            width = max(end - start, LEAST)
            path += f"M{min(start, WIDTH - width):.4g} .5h{width:.4g}"
        rows.append(MaintenanceRow(window=windows[0], path=path, count=len(windows)))
    return MaintenancePicture(
        rows=rows,
        ticks=time_ticks(from_ms, view.until_ms, zone),
        until_ms=max((window.end_ms for window in view.now), default=None),
        next_ms=view.next[0].start_ms if view.next else None,
    )


MAINTENANCE, PLACE = "maintenance.html", "settings"


@DashboardPage(
    "maintenance",
    MAINTENANCE,
    place=PLACE,
    of_job=True,
    parts={"maintenance-now": PagePart("maintenance_now.html", ("incident", "jobs"))},
)
async def show_maintenance(asked: Asked) -> Shown:
    """Show current windows, and those of the next days, with a form that begins one."""
    view = await asked.services[service.MaintenanceService].view(service.USUAL_DAYS, asked.principal.may_see)
    values = {
        "given": {"for": "1h", "jobs": "", "tags": "", "text": "", **asked.form},
        "problem": "",
        "may_begin": asked.principal.may(Right.RUN) and not asked.principal.jobs,
        "picture": draw_maintenance(view, service.USUAL_DAYS, asked.moments.zone),
        "is_cut": view.is_cut,
        "width": WIDTH,
        "days": service.USUAL_DAYS,
        "now_ms": asked.services.clock.now_ms(),
    }
    return Shown(title="Maintenance", values=values)


@Action("maintenance", right=Right.RUN)
async def begin_maintenance(asked: Asked) -> web.Response:
    """Begin a maintenance window; invalid values are shown again."""
    form = asked.form
    jobs, tags = ([each.strip() for each in form.get(name, "").split(",") if each.strip()] for name in ("jobs", "tags"))
    text = typed_name(form.get("text", ""))
    try:
        for_ms = DURATION(form.get("for", ""))
        await asked.services[service.MaintenanceService].begin(for_ms, asked.who(), jobs=jobs, tags=tags, text=text)
    except (ValueError, Refused) as error:
        shown = await show_maintenance(asked)
        status = web.HTTPUnprocessableEntity.status_code
        problem = f"Duration: {error}" if isinstance(error, ValueError) else str(error)
        again = replace(shown, values={**shown.values, "problem": problem}, status=status)
        return await answer_with(asked, MAINTENANCE, PLACE, again)
    return lead_to(asked.to("maintenance"))


@Action("maintenance/{window}/end", right=Right.RUN)
async def end_maintenance(asked: Asked) -> web.Response:
    """End a window that was begun here."""
    number = whole_number(asked.request.match_info["window"])
    if number is None:
        raise PageMissing("There is no such maintenance window")
    await asked.services[service.MaintenanceService].end(number)
    return lead_to(asked.back())
