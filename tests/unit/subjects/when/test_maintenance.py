"""Maintenance: the windows that somebody is shown, in the API and on its page."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pytest

from spyweb.cooperative import run_at_once
from spyweb.settings.units import DAY_MS, HOUR_MS, MINUTE_MS
from spyweb.specs.maintenance import MaintenanceRule, Once, Recurring
from spyweb.subjects.when.pages import WIDTH, draw_maintenance
from spyweb.subjects.when.service import MOST_WINDOWS, MaintenanceView, MaintenanceWindow, view_maintenance
from tests.fakes.client import Client, get_json
from tests.fakes.keys import Doors

NOW_MS = 1_795_417_200_000  # Monday, 23 November 2026, 07:00 UTC
JOBS = ("backup_db", "backup_files", "prices")
NIGHTLY = MaintenanceRule(Recurring("0 3 * * *", "UTC", 2 * HOUR_MS), ("backup_*", "gone"), "copies")
NOW_ALL = MaintenanceRule(Once(NOW_MS - HOUR_MS, NOW_MS + HOUR_MS), text="reboot")


def shown(
    rules: Sequence[MaintenanceRule], may_see: Callable[[str], bool] = lambda _: True, days: int = 2
) -> MaintenanceView:
    return run_at_once(view_maintenance(rules, JOBS, NOW_MS, NOW_MS + days * DAY_MS, may_see))


def test_what_is_now_and_what_comes_next() -> None:
    found = shown([NIGHTLY, NOW_ALL])
    (now,) = found.now
    assert (now.start_ms, now.end_ms, now.text, list(now.jobs), now.job_count, now.cron, now.timezone) == (
        NOW_MS - HOUR_MS, NOW_MS + HOUR_MS, "reboot", [], 3, "", "",
    )  # fmt: skip
    first, second = found.next
    assert (first.start_ms, first.end_ms) == (NOW_MS + 20 * HOUR_MS, NOW_MS + 22 * HOUR_MS)
    assert second.start_ms == first.start_ms + DAY_MS
    assert (list(first.jobs), first.job_count, first.cron, first.timezone) == (
        ["backup_*", "gone"], 2, "0 3 * * *", "UTC",
    )  # fmt: skip
    assert (found.until_ms, found.is_cut) == (NOW_MS + 2 * DAY_MS, False)


def test_who_may_see_some_jobs_is_shown_what_is_about_these_and_no_name_of_others() -> None:
    found = shown([NIGHTLY, NOW_ALL], lambda job: job == "prices")
    assert [each.text for each in (*found.now, *found.next)] == ["reboot"]
    assert found.now[0].job_count == 1
    found = shown([NIGHTLY], lambda job: job == "backup_db")
    assert [(list(each.jobs), each.job_count) for each in found.next] == [(["backup_*"], 1)] * 2


def test_a_rule_that_meets_no_job_is_shown_to_who_sees_all() -> None:
    rule = NIGHTLY._replace(jobs=("web_*",))
    assert [each.job_count for each in shown([rule]).next] == [0, 0]
    assert not shown([rule], lambda job: job == "prices").next


def test_there_are_only_so_many() -> None:
    often = MaintenanceRule(Recurring("*/5 * * * *", "UTC", MINUTE_MS))
    found = shown([often, often], days=366)
    assert len(found.now) + len(found.next) == MOST_WINDOWS
    assert found.is_cut


@pytest.mark.parametrize(("query", "nights"), [("", 7), ("?days=2", 2)])
async def test_windows_of_the_next_days_are_shown(query: str, nights: int, client: Client) -> None:
    status, found = await get_json(client, f"/api/maintenance{query}")
    assert (status, [each["text"] for each in found["now"]], len(found["next"])) == (200, ["reboot"], nights)


@pytest.mark.parametrize("days", ["0", "367", "x"])
async def test_it_is_a_day_to_a_year(days: str, client: Client) -> None:
    assert (await get_json(client, f"/api/maintenance?days={days}"))[0] == 400


async def test_a_key_for_some_jobs_sees_what_is_about_these(doors: Doors) -> None:
    found = await doors.json("/api/maintenance", "other")
    assert (len(found["now"]), found["now"][0]["job_count"], found["next"]) == (1, 1, [])


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
