"""The heat map of a day."""

from __future__ import annotations

from msgspec.structs import replace

from spyweb.cooperative import run_at_once
from spyweb.model import Every
from spyweb.runs.live import LiveJob
from spyweb.subjects.when.pages import ROWS, draw_heat_map
from spyweb.subjects.when.views import day_ahead
from tests.fakes.harness import make_planned

HOUR_MS = 3_600_000


def planned(count: int) -> list[LiveJob]:
    return [make_planned(f"j{n:04}", Every(period_ms=HOUR_MS), 0) for n in range(count)]


def test_a_page_has_so_many_rows_and_the_sum_is_of_all_of_them() -> None:
    day = run_at_once(day_ahead(planned(ROWS + 1), 1))
    first, last, beyond = (draw_heat_map(day, page) for page in (1, 2, 7))
    assert (len(first.rows), len(last.rows), last.pages) == (ROWS, 1, 2)
    assert (beyond.page, beyond.rows) == (2, last.rows)
    assert first.herd == last.herd
    assert first.herd.most == ROWS + 1


def test_the_bar_of_the_minute_in_the_heading_is_marked() -> None:
    minute_ms = HOUR_MS // 60
    often = make_planned("often", Every(period_ms=minute_ms), 0)
    day = run_at_once(day_ahead([*planned(3), often], 1))
    assert day.busiest is not None
    for at_ms, slot in ((5 * day.slot_ms + 1, 5), (0, 0), (day.from_ms + 97 * day.slot_ms, 96)):
        moved = replace(day, busiest=replace(day.busiest, at_ms=at_ms))
        assert draw_heat_map(moved, 1).herd.peak.startswith(f"M{slot}.5 ")
