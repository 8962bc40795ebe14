"""What runs when, asked of a service over a harness."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from spyweb.model import Every, JobId, Never, Outcome
from spyweb.settings.units import DAY_MS
from spyweb.specs.maintenance import MaintenanceCalendar, MaintenanceRule, Once
from spyweb.store.model.runs import Change
from tests.fakes.changes import make_skipped
from tests.fakes.harness import make_job
from tests.fakes.pool import LOST
from tests.fakes.served import Served, serving

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
        await served.t.store.runs.record(
            Change(skipped=[make_skipped(NEWS, first=first, last=first, reason=str(first))])
        )

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
