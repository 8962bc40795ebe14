"""The overview: how all jobs stand, and what it costs when nobody looks."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from pathlib import Path

import pytest

from spyweb.errors import Problem, StoreError
from spyweb.model import After, Every, JobId, Never, Outcome, RunMark
from spyweb.store.model.runs import RunStrip, StripWish
from spyweb.subjects.jobs.overview import OverviewRow, Standing
from spyweb.subjects.jobs.overview_service import KEPT_S
from tests.fakes.harness import make_job
from tests.fakes.pool import FAILED, SUCCESS
from tests.fakes.served import Served, serving

PRICES, NEWS, TYPO = JobId("prices"), JobId("news"), JobId("typo")


@pytest.fixture
async def served(tmp_path: Path) -> AsyncIterator[Served]:
    """Two jobs by hand: prices, and news after a success of prices."""
    jobs = make_job("prices", schedule=Never()), make_job("news", schedule=Never(), after=(After(job=PRICES),))
    async with serving(tmp_path, *jobs) as served:
        yield served


async def row_of(served: Served, job: JobId = PRICES) -> OverviewRow:
    found = {row.job.id: row for row in (await served.overview.look()).rows}
    assert found[job] == await served.overview.row(job)
    return found[job]


async def test_jobs_that_never_ran_are_new_and_all_is_well(served: Served) -> None:
    found = await served.overview.look()

    assert found.verdict.words == "All 2 jobs well"
    assert [(row.job.id, row.standing, row.strip, row.result) for row in found.rows] == [
        (NEWS, Standing.NEW, "", "never ran"),
        (PRICES, Standing.NEW, "", "never ran"),
    ]


async def test_a_job_that_fails_stands_above_with_since_when_why_and_what_waits_for_it(served: Served) -> None:
    await served.run(PRICES, SUCCESS, FAILED, FAILED)
    found = await served.overview.look()
    row = found.rows[0]

    assert found.verdict.words == "1 of 2 jobs failing"
    assert not found.verdict.is_well
    assert (row.job.id, row.standing, row.strip) == (PRICES, Standing.FAILING, "sff")
    assert row.failing is not None
    assert (row.failing.count, row.failing.words) == (2, "2 runs in a row")
    assert found.verdict.since_ms == row.failing.since_ms == await first_failure(served)
    assert row.result == "jobs/x.lua:1: boom"
    assert list(row.held_up) == [NEWS]
    assert row.success_rate == 1 / 3


async def first_failure(served: Served) -> int | None:
    runs = await served.t.store.runs.list(PRICES)
    return [run for run in runs if run.outcome is Outcome.FAILED][-1].started_ms


async def test_who_follows_a_failure_too_is_not_held_up(served: Served) -> None:
    follower = make_job("alarm", schedule=Never(), after=(After(job=PRICES, outcomes=frozenset({Outcome.FAILED})),))
    await served.t.settle(follower)
    await served.run(PRICES, FAILED)

    assert list((await row_of(served)).held_up) == [NEWS]


async def test_strips_go_on_from_where_they_were_read(served: Served) -> None:
    await served.run(PRICES, SUCCESS, FAILED)
    assert (await row_of(served)).strip == "sf"

    served.t.pool.held.add(PRICES)
    await served.run(PRICES, SUCCESS)
    row = await row_of(served)
    assert (row.strip, row.standing) == ("sfr", Standing.FAILING)
    assert row.running_since_ms == served.t.clock.now_ms()

    served.t.clock.advance(2)
    served.t.pool.finish(row.newest or 0)
    await served.t.clock.turn()
    row = await row_of(served)
    assert (row.strip, row.standing, row.failing, row.median_ms) == ("sfs", Standing.WELL, None, 0)


async def test_a_run_that_was_under_way_before_the_first_look_ends_in_the_strip(served: Served) -> None:
    served.t.pool.held.add(PRICES)
    await served.run(PRICES, SUCCESS)
    row = await row_of(served)
    assert row.strip == RunMark.RUNNING

    served.t.pool.finish(row.newest or 0, FAILED)
    await served.t.clock.turn()
    assert (await row_of(served)).strip == RunMark.FAILED


def is_kept(served: Served) -> bool:
    return served.overview.is_kept


async def test_nobody_is_told_of_changes_before_the_first_look_and_a_minute_after_the_last(served: Served) -> None:
    assert not is_kept(served)
    await served.overview.look()
    await served.t.clock.turn(KEPT_S - 1)
    await served.overview.look()
    await served.t.clock.turn(KEPT_S - 1)
    assert is_kept(served)

    await served.t.clock.turn(2)
    assert not is_kept(served)
    assert not served.t.store.runs._listeners
    await served.run(PRICES, SUCCESS)
    assert (await row_of(served)).strip == "s"


async def test_a_file_that_does_not_load_is_in_the_verdict(served: Served) -> None:
    served.reloader.broken = {TYPO: [Problem("jobs/typo.lua", 1, None, "unexpected symbol")]}
    found = await served.overview.look()

    assert found.verdict.words == "1 file does not load"
    assert (found.rows[0].job.id, found.rows[0].standing) == (TYPO, Standing.BROKEN)
    assert await row_of(served, TYPO) == found.rows[0]
    assert await served.overview.row(JobId("nobody")) is None


async def test_a_job_that_comes_later_is_read_and_one_that_goes_is_let_go(served: Served) -> None:
    await served.overview.look()
    await served.t.settle(make_job("late", schedule=Every(period_ms=60_000)))
    await served.t.clock.turn(50)
    assert (await row_of(served, JobId("late"))).strip == "s"

    served.t.live.remove(JobId("late"))
    assert JobId("late") not in {row.job.id for row in (await served.overview.look()).rows}


async def test_a_row_follows_its_job(served: Served) -> None:
    await served.run(PRICES, SUCCESS)
    assert (await row_of(served)).job.state == "idle"
    await served.t.scheduler.pause(served.job(PRICES))
    assert (await row_of(served)).job.state == "paused"


async def test_a_job_that_changes_while_it_is_read_is_read_again(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    await served.run(PRICES, SUCCESS)
    read, later = served.t.store.past_runs.strips, [FAILED]

    async def read_slowly(wanted: list[StripWish], count: int) -> Mapping[JobId, RunStrip]:
        found = await read(wanted, count)
        while later:
            await served.run(PRICES, later.pop())
        return found

    monkeypatch.setattr(served.t.store.past_runs, "strips", read_slowly)
    assert (await row_of(served)).strip == "sf"


async def test_jobs_are_shown_without_strips_where_the_store_refuses(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    await served.run(PRICES, FAILED)

    async def refuse(*_: object) -> None:
        raise StoreError("disk I/O error")

    monkeypatch.setattr(served.t.store.past_runs, "strips", refuse)
    found = await served.overview.look()
    assert [(row.job.id, row.standing, row.strip) for row in found.rows] == [
        (PRICES, Standing.FAILING, ""),
        (NEWS, Standing.NEW, ""),
    ]
    monkeypatch.undo()
    assert (await row_of(served)).strip == "f"
    await served.run(PRICES, FAILED)
    monkeypatch.setattr(served.t.store.past_runs, "strips", refuse)
    assert (await row_of(served)).strip == "f", "as it was, until it is read again"
