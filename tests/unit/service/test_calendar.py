"""What runs when, asked of a service over a harness."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from spyweb.model import Every, JobId, Never, Outcome
from spyweb.runs.runner import by_hand
from spyweb.service.calendar import CalendarService
from spyweb.service.past_runs import PastRunsService
from spyweb.store.model.runs import Change
from tests.fakes.changes import make_skipped
from tests.fakes.harness import Harness, harness, make_job
from tests.fakes.pool import LOST

PRICES, NEWS = JobId("prices"), JobId("news")


@pytest.fixture
async def known() -> AsyncIterator[Harness]:
    """Two jobs: prices every quarter of an hour, news by hand."""
    async with harness() as t:
        await t.settle(make_job("prices", schedule=Every(period_ms=900_000)), make_job("news", schedule=Never()))
        yield t


def service(t: Harness) -> CalendarService:
    past = PastRunsService(
        root=Path(),
        live=t.live,
        past_runs=t.store.past_runs,
        records=t.store.records,
        stored_tasks=t.store.tasks,
        clock=t.clock,
    )
    return CalendarService(live=t.live, past=past, clock=t.clock)


async def test_the_day_ahead_has_the_jobs_that_are_scheduled(known: Harness) -> None:
    await known.clock.turn(20)
    found = await service(known).day_ahead()
    assert [(row.job, row.total) for row in found.rows] == [(PRICES, 96)]

    prices = known.live.find(PRICES)
    assert prices is not None
    await known.scheduler.pause(prices)
    assert (await service(known).day_ahead()).total == 0


async def test_gaps_say_why_and_what_followed(known: Harness) -> None:
    await known.store.runs.record(Change(skipped=[make_skipped(NEWS, reason="the daemon was down")]))
    known.pool.endings[NEWS] = [LOST]
    news = known.live.find(NEWS)
    assert news is not None
    await known.runner.start(news, [by_hand()])
    await known.clock.turn()

    page = await service(known).gaps(NEWS)
    lost, missed = page.gaps
    assert (missed.outcome, missed.count, missed.reason) == (Outcome.MISSED, 3, "the daemon was down")
    assert missed.followed_by is not None
    assert (missed.followed_by.run, missed.followed_by.words) == (lost.run, "Lost")
    assert (page.count, page.before) == (4, None)
    assert (await service(known).gaps(PRICES)).gaps == []


async def test_gaps_come_in_pages_and_since_a_moment(known: Harness) -> None:
    for first in (1_000, 9_000_000):
        await known.store.runs.record(Change(skipped=[make_skipped(NEWS, first=first, last=first, reason=str(first))]))

    page = await service(known).gaps(limit=1)
    assert [gap.from_ms for gap in page.gaps] == [9_000_000]
    assert [gap.from_ms for gap in (await service(known).gaps(limit=9, before=page.before)).gaps] == [1_000]
    assert [gap.from_ms for gap in (await service(known).gaps(since_ms=5_000)).gaps] == [9_000_000]


async def test_what_may_not_be_seen_is_left_out(known: Harness) -> None:
    await known.clock.turn(20)
    await known.store.runs.record(Change(skipped=[make_skipped(NEWS, reason="the daemon was down")]))
    found = service(known)
    assert (await found.day_ahead(lambda job: job != PRICES)).total == 0
    assert (await found.gaps(may_see=lambda job: job != NEWS)).gaps == []
    assert [gap.job for gap in (await found.gaps(may_see=lambda job: job == NEWS)).gaps] == [NEWS]
