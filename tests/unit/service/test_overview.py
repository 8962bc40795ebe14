"""The overview: how all jobs stand, and what it costs when nobody looks."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass

import pytest

from spyweb.errors import Problem, StoreError
from spyweb.model import After, Every, JobId, Never, Outcome, RunMark
from spyweb.runs.live import LiveJob
from spyweb.runs.runner import by_hand
from spyweb.service.overview import KEPT_S, OverviewService
from spyweb.views.health import view_health
from spyweb.views.jobs import JobFacts, JobView, broken_job, view_job
from spyweb.views.overview import OverviewRow, Standing
from tests.fakes.daemon_service import make_vitals
from tests.fakes.harness import Harness, harness, make_job
from tests.fakes.pool import FAILED, SUCCESS

PRICES, NEWS, TYPO = JobId("prices"), JobId("news"), JobId("typo")


def view(job: LiveJob) -> JobView:
    facts = JobFacts(cursor=job.cursor, last=job.last, in_flight=len(job.queue.in_flight), error="")
    return view_job(job.spec, facts)


@dataclass(slots=True, kw_only=True)
class Seen:
    """An overview over a harness, and the jobs whose files are broken."""

    harness: Harness
    service: OverviewService
    broken: list[JobView]

    async def run(self, job: JobId, *endings: object) -> None:
        """Let the job run by hand, to these endings."""
        self.harness.pool.endings[job] = list(endings)  # type: ignore[arg-type]
        live = self.harness.live.find(job)
        assert live is not None
        for _ in endings:
            await self.harness.runner.start(live, [by_hand()])
            await self.harness.clock.turn()

    async def row(self, job: JobId = PRICES) -> OverviewRow:
        found = {row.job.id: row for row in (await self.service.look()).rows}
        assert found[job] == await self.service.row(job)
        return found[job]


@pytest.fixture
async def seen() -> AsyncIterator[Seen]:
    """Two jobs by hand: prices, and news after a success of prices."""
    async with harness() as t:
        broken: list[JobView] = []
        service = OverviewService(
            live=t.live,
            runs=t.store.runs,
            past_runs=t.store.past_runs,
            clock=t.clock,
            view=view,
            broken=lambda: broken,
            health=lambda: view_health(make_vitals(), []),
        )
        await t.settle(
            make_job("prices", schedule=Never()), make_job("news", schedule=Never(), after=(After(job=PRICES),))
        )
        yield Seen(harness=t, service=service, broken=broken)


async def test_jobs_that_never_ran_are_new_and_all_is_well(seen: Seen) -> None:
    found = await seen.service.look()

    assert found.verdict.words == "All 2 jobs well"
    assert [(row.job.id, row.standing, row.strip, row.result) for row in found.rows] == [
        (NEWS, Standing.NEW, "", "never ran"),
        (PRICES, Standing.NEW, "", "never ran"),
    ]


async def test_a_job_that_fails_stands_above_with_since_when_why_and_what_waits_for_it(seen: Seen) -> None:
    await seen.run(PRICES, SUCCESS, FAILED, FAILED)
    found = await seen.service.look()
    row = found.rows[0]

    assert found.verdict.words == "1 of 2 jobs failing"
    assert not found.verdict.is_well
    assert (row.job.id, row.standing, row.strip) == (PRICES, Standing.FAILING, "sff")
    assert row.failing is not None
    assert (row.failing.count, row.failing.words) == (2, "2 runs in a row")
    assert found.verdict.since_ms == row.failing.since_ms == await first_failure(seen)
    assert row.result == "jobs/x.lua:1: boom"
    assert list(row.held_up) == [NEWS]
    assert row.success_rate == 1 / 3


async def first_failure(seen: Seen) -> int | None:
    runs = await seen.harness.store.runs.list(PRICES)
    return [run for run in runs if run.outcome is Outcome.FAILED][-1].started_ms


async def test_who_follows_a_failure_too_is_not_held_up(seen: Seen) -> None:
    follower = make_job("alarm", schedule=Never(), after=(After(job=PRICES, outcomes=frozenset({Outcome.FAILED})),))
    await seen.harness.settle(follower)
    await seen.run(PRICES, FAILED)

    assert list((await seen.row()).held_up) == [NEWS]


async def test_strips_go_on_from_where_they_were_read(seen: Seen) -> None:
    await seen.run(PRICES, SUCCESS, FAILED)
    assert (await seen.row()).strip == "sf"

    seen.harness.pool.held.add(PRICES)
    await seen.run(PRICES, SUCCESS)
    row = await seen.row()
    assert (row.strip, row.standing) == ("sfr", Standing.FAILING)
    assert row.running_since_ms == seen.harness.clock.now_ms()

    seen.harness.clock.advance(2)
    seen.harness.pool.finish(row.newest or 0)
    await seen.harness.clock.turn()
    row = await seen.row()
    assert (row.strip, row.standing, row.failing, row.median_ms) == ("sfs", Standing.WELL, None, 0)


async def test_a_run_that_was_under_way_before_the_first_look_ends_in_the_strip(seen: Seen) -> None:
    seen.harness.pool.held.add(PRICES)
    await seen.run(PRICES, SUCCESS)
    row = await seen.row()
    assert row.strip == RunMark.RUNNING

    seen.harness.pool.finish(row.newest or 0, FAILED)
    await seen.harness.clock.turn()
    assert (await seen.row()).strip == RunMark.FAILED


def kept(seen: Seen) -> bool:
    return seen.service.is_kept


async def test_nobody_is_told_of_changes_before_the_first_look_and_a_minute_after_the_last(seen: Seen) -> None:
    assert kept(seen) is False
    await seen.service.look()
    await seen.harness.clock.turn(KEPT_S - 1)
    await seen.service.look()
    await seen.harness.clock.turn(KEPT_S - 1)
    assert kept(seen) is True

    await seen.harness.clock.turn(2)
    assert kept(seen) is False
    assert not seen.harness.store.runs._listeners
    await seen.run(PRICES, SUCCESS)
    assert (await seen.row()).strip == "s"


async def test_a_file_that_does_not_load_is_in_the_verdict(seen: Seen) -> None:
    seen.broken.append(broken_job(TYPO, [Problem("jobs/typo.lua", 1, None, "unexpected symbol")]))
    found = await seen.service.look()

    assert found.verdict.words == "1 file does not load"
    assert (found.rows[0].job.id, found.rows[0].standing) == (TYPO, Standing.BROKEN)
    assert await seen.row(TYPO) == found.rows[0]
    assert await seen.service.row(JobId("nobody")) is None


async def test_a_job_that_comes_later_is_read_and_one_that_goes_is_let_go(seen: Seen) -> None:
    await seen.service.look()
    await seen.harness.settle(make_job("late", schedule=Every(period_ms=60_000)))
    await seen.harness.clock.turn(50)
    assert (await seen.row(JobId("late"))).strip == "s"

    seen.harness.live.remove(JobId("late"))
    assert JobId("late") not in {row.job.id for row in (await seen.service.look()).rows}


async def test_a_bar_of_a_strip_is_explained(seen: Seen) -> None:
    await seen.run(PRICES, SUCCESS, FAILED)

    bars = await seen.service.bars(PRICES)
    assert [bar.mark for bar in bars] == [RunMark.SUCCESS, RunMark.FAILED]
    assert bars[1].reason == "jobs/x.lua:1: boom"


async def test_a_row_is_made_anew_when_its_job_has_changed_and_not_before(seen: Seen) -> None:
    await seen.run(PRICES, SUCCESS)
    before = {row.job.id: row for row in (await seen.service.look()).rows}
    again = {row.job.id: row for row in (await seen.service.look()).rows}
    assert all(again[job] is before[job] for job in before)

    await seen.run(PRICES, FAILED)
    later = {row.job.id: row for row in (await seen.service.look()).rows}
    assert later[PRICES].strip == "sf"

    live = seen.harness.live.find(PRICES)
    assert live is not None
    live.problems = [Problem("jobs/prices.lua", 1, None, "x")]
    await seen.harness.scheduler.pause(live)
    assert (await seen.row()).job.state == "paused"
    seen.harness.live.link()
    assert await seen.row() is not later[PRICES]


async def test_jobs_are_shown_without_strips_where_the_store_refuses(
    seen: Seen, monkeypatch: pytest.MonkeyPatch
) -> None:
    await seen.run(PRICES, FAILED)

    async def refuse(*_: object) -> None:
        raise StoreError("disk I/O error")

    monkeypatch.setattr(seen.service.past_runs, "strips", refuse)
    found = await seen.service.look()
    assert [(row.job.id, row.standing, row.strip) for row in found.rows] == [
        (PRICES, Standing.FAILING, ""),
        (NEWS, Standing.NEW, ""),
    ]
    monkeypatch.undo()
    assert (await seen.row()).strip == "f"
