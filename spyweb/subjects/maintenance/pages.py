"""The page of maintenance: a picture with a row for each rule."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Struct

from spyweb.settings.units import DAY_MS
from spyweb.subjects.maintenance.service import USUAL_DAYS, MaintenanceService, MaintenanceView, MaintenanceWindow
from spyweb.web.pages.page import Asked, DashboardPage, PagePart, Shown

WIDTH = 1_000  # of the picture, in its own unit
LEAST = 4  # of a window, so that it is seen


class MaintenanceRow(Struct, frozen=True, kw_only=True):
    """The windows of one rule as they are drawn."""

    window: MaintenanceWindow  # the first of them
    path: str
    count: int


class MaintenancePicture(Struct, frozen=True, kw_only=True):
    rows: Sequence[MaintenanceRow]
    ticks: Sequence[int]
    until_ms: int | None  # when all that is now is over
    next_ms: int | None


def draw_maintenance(view: MaintenanceView, days: int) -> MaintenancePicture:
    """Draw the windows of so many days, up to the moment up to which it was looked."""
    from_ms = view.until_ms - days * DAY_MS
    of_rule: dict[tuple[object, ...], list[MaintenanceWindow]] = {}
    for window in (*view.now, *view.next):
        of_rule.setdefault((*window.jobs, window.text, window.cron, window.timezone), []).append(window)
    return MaintenancePicture(
        rows=[
            MaintenanceRow(window=found[0], path=_path(found, from_ms, view.until_ms), count=len(found))
            for found in of_rule.values()
        ],
        ticks=range(from_ms, view.until_ms + 1, DAY_MS),
        until_ms=max((window.end_ms for window in view.now), default=None),
        next_ms=view.next[0].start_ms if view.next else None,
    )


def _path(windows: Sequence[MaintenanceWindow], from_ms: int, until_ms: int) -> str:
    span_ms = max(until_ms - from_ms, 1)
    drawn = []
    for window in windows:
        start = max(window.start_ms - from_ms, 0) / span_ms * WIDTH
        end = min(window.end_ms - from_ms, span_ms) / span_ms * WIDTH
        width = max(end - start, LEAST)
        drawn.append(f"M{min(start, WIDTH - width):.4g} .5h{width:.4g}")
    return "".join(drawn)


@DashboardPage(
    "maintenance",
    "maintenance.html",
    place="incidents",
    of_job=True,
    parts={"maintenance-now": PagePart("maintenance_now.html", ("incident", "jobs"))},
)
async def show_maintenance(asked: Asked) -> Shown:
    """Show the windows that have begun, and those of the next days."""
    view = await asked.services[MaintenanceService].view(USUAL_DAYS, asked.principal.may_see)
    values = {
        "picture": draw_maintenance(view, USUAL_DAYS),
        "is_cut": view.is_cut,
        "width": WIDTH,
        "days": USUAL_DAYS,
        "now_ms": asked.services.clock.now_ms(),
    }
    return Shown(title="Maintenance", values=values)
