"""What runs when: the day ahead, the gaps of the past, and their page."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from spyweb.cooperative import run_at_once
from spyweb.model import Cron, Every, JobId, Never, Outcome, Schedule
from spyweb.runs.live import LiveJob
from spyweb.settings.units import DAY_MS, HOUR_MS
from spyweb.specs.maintenance import MaintenanceCalendar, MaintenanceRule, Once
from spyweb.store.model.runs import Change
from spyweb.subjects.runs.views import brief
from spyweb.subjects.when.pages import ROWS, draw_heat_map
from spyweb.subjects.when.service import day_ahead, view_gap
from tests.fakes.changes import make_skipped
from tests.fakes.daemon_service import NOW_MS, make_run
from tests.fakes.dashboard import dashboard, get_page, page_of
from tests.fakes.harness import make_job, make_planned
from tests.fakes.pool import LOST
from tests.fakes.served import Served, serving

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


def test_a_gap_says_from_when_to_when_and_what_followed_and_a_lost_run_is_one() -> None:
    missed = make_run(3, outcome=Outcome.MISSED, started_ms=None, count=7, last_due_ms=NOW_MS, reason="down")
    gap = view_gap(missed, "Prices", brief(make_run(4)))

    assert (gap.from_ms, gap.until_ms, gap.count, gap.reason) == (NOW_MS - 60_000, NOW_MS, 7, "down")
    assert gap.followed_by is not None
    assert gap.followed_by.words == "Succeeded"

    gap = view_gap(make_run(3, outcome=Outcome.LOST, due_ms=None), "Prices", None)
    assert (gap.from_ms, gap.until_ms, gap.count) == (NOW_MS - 60_000, NOW_MS - 60_000, 1)


PRICES, NEWS = JobId("prices"), JobId("news")


@pytest.fixture
async def served(tmp_path: Path) -> AsyncIterator[Served]:
    """Two jobs: prices every quarter of an hour, news by hand."""
    jobs = make_job("prices", schedule=Every(period_ms=900_000)), make_job("news", schedule=Never())
    async with serving(tmp_path, *jobs) as served:
        yield served


async def test_the_day_ahead_has_the_jobs_that_are_scheduled(served: Served) -> None:
    await served.t.clock.turn(20)
    found = await served.calendar.day_ahead()
    assert [(row.job, row.total) for row in found.rows] == [(PRICES, 96)]

    await served.jobs.pause(PRICES)
    assert (await served.calendar.day_ahead()).total == 0


async def test_gaps_say_why_and_what_followed(served: Served) -> None:
    await served.t.store.runs.record(Change(skipped=[make_skipped(NEWS, reason="the daemon was down")]))
    await served.run(NEWS, LOST)

    page = await served.calendar.gaps(NEWS)
    lost, missed = page.gaps
    assert (missed.outcome, missed.count, missed.reason) == (Outcome.MISSED, 3, "the daemon was down")
    assert missed.followed_by is not None
    assert (missed.followed_by.run, missed.followed_by.words) == (lost.run, "Lost")
    assert (page.count, page.before) == (4, None)
    assert (await served.calendar.gaps(PRICES)).gaps == []


async def test_gaps_come_in_pages_and_since_a_moment(served: Served) -> None:
    for first in (1_000, 9_000_000):
        skipped = make_skipped(NEWS, first=first, last=first, reason=str(first))
        await served.t.store.runs.record(Change(skipped=[skipped]))

    page = await served.calendar.gaps(limit=1)
    assert [gap.from_ms for gap in page.gaps] == [9_000_000]
    assert [gap.from_ms for gap in (await served.calendar.gaps(limit=9, before=page.before)).gaps] == [1_000]
    assert [gap.from_ms for gap in (await served.calendar.gaps(since_ms=5_000)).gaps] == [9_000_000]


async def test_what_may_not_be_seen_is_left_out(served: Served) -> None:
    await served.t.clock.turn(20)
    await served.t.store.runs.record(Change(skipped=[make_skipped(NEWS, reason="the daemon was down")]))
    found = served.calendar
    assert (await found.day_ahead(lambda job: job != PRICES)).total == 0
    assert (await found.gaps(may_see=lambda job: job != NEWS)).gaps == []
    assert [gap.job for gap in (await found.gaps(may_see=lambda job: job == NEWS)).gaps] == [NEWS]


async def test_maintenance_is_that_of_the_rules_and_jobs_of_the_moment(served: Served) -> None:
    maintenance, now_ms = served.maintenance, served.t.clock.now_ms()
    assert not (await maintenance.view()).next

    rule = MaintenanceRule(Once(now_ms + 3 * DAY_MS, now_ms + 4 * DAY_MS), ("prices",))
    served.reloader.maintenance = MaintenanceCalendar([rule])
    (window,) = (await maintenance.view()).next
    assert (window.start_ms, window.job_count) == (now_ms + 3 * DAY_MS, 1)
    assert not (await maintenance.view(days=2)).next
    assert not (await maintenance.view(may_see=lambda job: job == NEWS)).next
    assert maintenance.until(PRICES) is None
    served.t.clock.advance(3 * 86_400)
    assert (maintenance.until(PRICES), maintenance.until(NEWS)) == (window.end_ms, None)


def planned(count: int) -> list[LiveJob]:
    return [make_planned(f"j{n:04}", Every(period_ms=HOUR_MS), 0) for n in range(count)]


def test_a_page_has_so_many_rows_and_the_sum_is_of_all_of_them() -> None:
    day = run_at_once(day_ahead(planned(ROWS + 1), 1))
    first, last, beyond = (draw_heat_map(day, page) for page in (1, 2, 7))
    assert (len(first.rows), len(last.rows), last.pages) == (ROWS, 1, 2)
    assert (beyond.page, beyond.rows) == (2, last.rows)
    assert first.herd == last.herd
    assert first.herd.most == ROWS + 1


async def test_it_says_when_most_jobs_start_draws_the_day_and_gives_gaps_their_reasons() -> None:
    page = await page_of("/when")
    assert re.search(r"Busiest at <time[^>]*>03:00</time>: 3 jobs start within a minute</h1>", page)
    assert page.count('<svg viewBox="0 0 97 1"') == 3
    assert "3\N{NO-BREAK SPACE}runs in the next 24 hours, of 3\N{NO-BREAK SPACE}jobs." in page
    assert '<a href="/when" aria-current="page">When' in page
    assert re.findall(r'<tr id="g-(\d)">', page) == ["3", "2", "1"]
    for word in ("skipped", "paused", "lost"):
        assert f"{word}</span>" in page
    assert '<a href="/runs/2">' in page
    assert "nothing yet" in page


async def test_it_says_what_is_now_and_what_comes() -> None:
    async with dashboard() as client:
        status, page = await get_page(client, "/maintenance")
        assert status == 200
        assert "Maintenance now, until <time" in page
        assert "7\N{NO-BREAK SPACE}times in 7 days" in page
        assert page.count('<path class="h3"') == 2
        assert 'aria-label="7\N{NO-BREAK SPACE}windows"' in page
        assert "<code>0 3 * * *</code>" in page
        _, page = await get_page(client, "/incidents")
        assert '<a href="/maintenance">Maintenance</a> until' in page
        assert "what fails does not count" in (await get_page(client, "/jobs/backup"))[1]
