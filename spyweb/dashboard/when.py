"""Show what runs when: the day ahead as a heat map, and maintenance as a picture, a row for each rule.  Pure."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Struct

from spyweb.dashboard.charts import Herd, heat, herd
from spyweb.settings.units import DAY_MS, HOUR_MS
from spyweb.views.calendar import SPAN_MS, DayAhead, DayRow
from spyweb.views.maintenance import MaintenanceView, MaintenanceWindow

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
