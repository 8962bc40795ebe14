"""When jobs are checked for drift, and what comes of it."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import cast

import pytest
from msgspec import structs
from msgspec.structs import replace
from structlog.testing import capture_logs

from spyweb.errors import StoreError
from spyweb.model import JobId, Never, Trigger
from spyweb.runs.live import LiveJob
from spyweb.runs.runner import RunRequest
from spyweb.subjects.drift.checks import SPREAD_S, DriftChecks
from spyweb.subjects.drift.service import DriftService
from spyweb.subjects.drift.views import DriftReport, DriftView
from tests.fakes.harness import Harness, harness, make_job

PRICES = JobId("prices")
HOUR_S = 3600.0


def difference(run: int = 1) -> DriftView:
    return DriftView(
        resource="prices:file.copy:a", job=PRICES, module="file.copy", target="a", expected="file", actual="not there",
        run=None if run < 0 else run,  # type: ignore[arg-type]
    )  # fmt: skip


@dataclass
class FakeDrift:
    """Gives reports, and notes of whom."""

    differences: list[DriftView] = field(default_factory=list)
    asked: list[str] = field(default_factory=list)
    trouble: Exception | None = None
    during: list[object] = field(default_factory=list)  # called while it compares

    async def check(self, job: JobId | None) -> DriftReport:
        self.asked.append(str(job))
        for call in self.during:
            call()  # type: ignore[operator]
        if self.trouble:
            raise self.trouble
        return DriftReport(checked=1, differences=list(self.differences))


@dataclass
class Checking:
    t: Harness
    drift: FakeDrift
    checks: DriftChecks

    async def pass_time(self, seconds: float = HOUR_S) -> None:
        """Turn the clock, with a look every ten seconds, as the daemon has it."""
        for _ in range(round(seconds / 10)):
            await self.t.clock.turn(10)
            await self.checks.check_due()
        await self.t.clock.turn()


@asynccontextmanager
async def checking(*jobs: LiveJob) -> AsyncIterator[Checking]:
    async with harness() as t:
        await t.settle(*jobs)
        drift = FakeDrift()
        checks = DriftChecks(live=t.live, runner=t.runner, drift=cast("DriftService", drift), clock=t.clock)
        await checks.check_due()
        yield Checking(t, drift, checks)


def keeper(name: str = "prices", **settings: object) -> LiveJob:
    return make_job(name, **{"schedule": Never(), "drift_ms": 3_600_000, **settings})


async def test_a_job_is_checked_soon_after_the_start_and_then_at_its_interval() -> None:
    async with checking(keeper(), make_job("other", schedule=Never())) as it:
        await it.pass_time(SPREAD_S)
        assert it.drift.asked == ["prices"]
        await it.pass_time(HOUR_S - SPREAD_S)
        assert it.drift.asked == ["prices"]
        await it.pass_time(2 * HOUR_S)
        assert it.drift.asked == ["prices"] * 3
        assert await it.t.record() == [], "nothing differs, nothing is recorded"


async def test_many_jobs_are_not_checked_at_once() -> None:
    async with checking(*(keeper(f"job{n}") for n in range(100))) as it:
        counts = []
        for _ in range(6):
            before = len(it.drift.asked)
            await it.pass_time(10)
            counts.append(len(it.drift.asked) - before)
        assert sum(counts) == 100
        assert max(counts) < 50


async def test_a_difference_is_a_failed_run_with_the_reason_at_each_check() -> None:
    async with checking(keeper()) as it:
        it.drift.differences = [difference()]
        with capture_logs() as lines:
            await it.pass_time()
        await it.pass_time()
        assert await it.t.record() == ["prices drift failed"] * 2
        assert (await it.t.store.runs.list(PRICES))[0].reason == "1 resource differs: file.copy a: not there"
        assert [line["event"] for line in lines if line["event"] == "drift"] == ["drift"]
        it.drift.differences = []
        await it.pass_time(2 * HOUR_S)
        assert (await it.t.record())[2:] == ["prices drift success"], "once"
        assert it.t.pool.story == [], "no script has run"


async def test_a_repair_starts_the_job_and_what_it_leaves_as_it_was_is_told() -> None:
    async with checking(keeper(drift_repair=True)) as it:
        it.drift.differences = [difference(run=0)]
        await it.pass_time()
        assert await it.t.record() == ["prices drift success"]
        assert it.t.pool.story == ["run prices"]
        await it.pass_time()
        assert await it.t.record() == ["prices drift success", "prices drift failed"]
        reason = (await it.t.store.runs.list(PRICES))[0].reason
        assert reason == "run 1 has not repaired it: 1 resource differs: file.copy a: not there"
        await it.pass_time()
        assert it.t.pool.story == ["run prices", "run prices"], "and it is tried again"


async def test_what_differs_anew_after_a_repair_is_repaired_anew() -> None:
    async with checking(keeper(drift_repair=True)) as it:
        it.drift.differences = [difference(run=0)]
        await it.pass_time()
        it.drift.differences = [difference(run=1)]  # the repair had left it well
        await it.pass_time()
        assert await it.t.record() == ["prices drift success"] * 2


@pytest.mark.parametrize("what", ["disabled", "paused", "elsewhere"])
async def test_a_job_that_does_not_run_by_itself_is_not_checked(what: str) -> None:
    job = keeper(enabled=what != "disabled")
    async with checking(job) as it:
        if what == "paused":
            job.cursor = structs.replace(job.cursor, paused=True)
        job.mine = what != "elsewhere"
        await it.pass_time()
        assert it.drift.asked == []
        if what == "paused":
            job.cursor = structs.replace(job.cursor, paused=False)
            await it.pass_time(10)
            assert it.drift.asked == ["prices"], "at once when it goes on"


async def test_a_job_that_runs_is_checked_when_it_has_ended() -> None:
    job = keeper()
    async with checking(job) as it:
        it.drift.differences = [difference()]
        it.t.pool.held.add(PRICES)
        it.drift.during = [lambda: it.t.runner.start_by_hand(job, by_hand_request())]
        await it.pass_time(SPREAD_S)
        assert it.drift.asked == ["prices"]
        it.drift.during = []
        await it.pass_time()
        assert it.drift.asked == ["prices"]
        assert await it.t.record() == ["prices manual running"], "what a run changes is no difference"
        it.t.pool.finish(1)
        await it.pass_time(20)
        assert it.drift.asked == ["prices"] * 2


async def test_a_store_that_refuses_holds_up_no_other_job() -> None:
    async with checking(keeper("a"), keeper("b")) as it:
        it.drift.trouble = StoreError("the disk is full")
        await it.pass_time(SPREAD_S)
        assert {"a", "b"} <= set(it.drift.asked)
        it.drift.trouble, it.drift.asked = None, []
        await it.pass_time(10)
        assert it.drift.asked == ["a", "b"], "again at the next look"


async def test_an_edited_interval_counts_at_once_and_a_job_that_is_gone_not_any_more() -> None:
    job = keeper()
    async with checking(job) as it:
        await it.pass_time(SPREAD_S)
        job.spec = replace(job.spec, drift_ms=20_000)
        await it.pass_time(60)
        assert len(it.drift.asked) >= 3
        it.t.live.remove(PRICES)
        it.drift.asked = []
        await it.pass_time()
        assert it.drift.asked == []


def by_hand_request() -> RunRequest:
    return RunRequest(trigger=Trigger(type="manual"))
