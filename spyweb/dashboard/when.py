"""Show what runs when: the day ahead as a heat map.  Pure."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Struct

from spyweb.dashboard.charts import Herd, heat, herd
from spyweb.settings.units import HOUR_MS
from spyweb.views.calendar import SPAN_MS, DayAhead, DayRow

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
