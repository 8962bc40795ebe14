"""Maintenance as a picture."""

from __future__ import annotations

from spyweb.settings.units import DAY_MS
from spyweb.subjects.maintenance.pages import WIDTH, draw_maintenance
from spyweb.subjects.maintenance.views import MaintenanceView, MaintenanceWindow

HOUR_MS = 3_600_000


def window(start_ms: int, end_ms: int, text: str = "", *jobs: str) -> MaintenanceWindow:
    return MaintenanceWindow(start_ms=start_ms, end_ms=end_ms, jobs=jobs, job_count=1, text=text, cron="", timezone="")


def view(now: list[MaintenanceWindow], later: list[MaintenanceWindow]) -> MaintenanceView:
    return MaintenanceView(now=now, next=later, until_ms=10 * DAY_MS, is_cut=False)


def test_each_rule_has_a_row_with_its_windows() -> None:
    later = [window(5 * DAY_MS, 6 * DAY_MS, "reboot"), window(7 * DAY_MS, 8 * DAY_MS, "", "prices")]
    picture = draw_maintenance(view([window(-DAY_MS, DAY_MS, "reboot")], later), days=10)
    assert [(row.window.text, row.count) for row in picture.rows] == [("reboot", 2), ("", 1)]
    assert picture.rows[0].path == "M0 .5h100M500 .5h100"
    assert (picture.until_ms, picture.next_ms) == (DAY_MS, 5 * DAY_MS)
    assert [*picture.ticks] == [day * DAY_MS for day in range(11)]


def test_the_shortest_is_seen_and_none_is_outside() -> None:
    picture = draw_maintenance(view([], [window(10 * DAY_MS - 1, 11 * DAY_MS)]), days=10)
    assert picture.rows[0].path == f"M{WIDTH - 4} .5h4"
    assert picture.until_ms is None
