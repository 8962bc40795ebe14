"""The day ahead and the gaps of the past; tests/property/test_calendar.py holds the counts against due times."""

from __future__ import annotations

from spyweb.cooperative import run_at_once
from spyweb.model import Cron, Every, Outcome, Schedule
from spyweb.runs.live import LiveJob
from spyweb.settings.units import HOUR_MS
from spyweb.subjects.runs.views import brief
from spyweb.subjects.when.views import day_ahead, view_gap
from tests.fakes.daemon_service import NOW_MS, make_run
from tests.fakes.harness import make_planned

AT_THREE = Cron(expression="0 3 * * *", timezone="UTC")


def plan(name: str, schedule: Schedule) -> LiveJob:
    return make_planned(name, schedule, NOW_MS)


def test_a_herd_is_found_among_jobs_that_run_all_the_time() -> None:
    herd = [plan(f"nightly{number}", AT_THREE) for number in range(14)]
    found = run_at_once(day_ahead([plan("each second", Every(period_ms=1_000)), *herd], NOW_MS + 1))

    assert found.busiest is not None
    assert (found.busiest.at_ms, found.busiest.words) == (NOW_MS + 3 * HOUR_MS, "15 jobs start within a minute")
    assert found.rows[-1].name == "each second"
    assert found.rows[-1].total == 24 * 3_600
    assert found.total == 24 * 3_600 + 14


def test_a_daily_job_is_due_once_in_a_day_whenever_one_looks() -> None:
    for minutes in range(0, 24 * 60, 5):
        found = run_at_once(day_ahead([plan("nightly", AT_THREE)], NOW_MS + minutes * 60_000))
        assert found.total == 1


def test_a_gap_says_from_when_to_when_and_what_followed() -> None:
    missed = make_run(3, outcome=Outcome.MISSED, started_ms=None, count=7, last_due_ms=NOW_MS, reason="down")
    gap = view_gap(missed, "Prices", brief(make_run(4)))

    assert (gap.from_ms, gap.until_ms, gap.count, gap.reason) == (NOW_MS - 60_000, NOW_MS, 7, "down")
    assert gap.followed_by is not None
    assert gap.followed_by.words == "Succeeded"


def test_a_run_that_was_lost_is_a_gap_of_its_own() -> None:
    gap = view_gap(make_run(3, outcome=Outcome.LOST, due_ms=None), "Prices", None)
    assert (gap.from_ms, gap.until_ms, gap.count) == (NOW_MS - 60_000, NOW_MS - 60_000, 1)
