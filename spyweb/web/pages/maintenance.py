"""Maintenance: when jobs may fail without anybody being told, now and in the days ahead."""

from __future__ import annotations

from collections.abc import Mapping

from spyweb.dashboard.maintenance import WIDTH, draw_maintenance
from spyweb.service.calendar import USUAL_DAYS
from spyweb.web.pages.page import Asked, DashboardPage, PagePart, Shown


async def values_of(asked: Asked) -> Mapping[str, object]:
    """Gather what is shown."""
    view = await asked.service.calendar.maintenance(USUAL_DAYS, asked.principal.may_see)
    return {
        "picture": draw_maintenance(view, USUAL_DAYS),
        "is_cut": view.is_cut,
        "width": WIDTH,
        "days": USUAL_DAYS,
        "now_ms": asked.service.clock.now_ms(),
    }


@DashboardPage(
    "maintenance",
    "maintenance.html",
    place="incidents",
    of_job=True,
    parts={"maintenance-now": PagePart("maintenance_now.html", ("incident", "jobs"))},
)
async def show_maintenance(asked: Asked) -> Shown:
    """Show the windows that have begun, and those of the next days."""
    return Shown(title="Maintenance", values=await values_of(asked))
