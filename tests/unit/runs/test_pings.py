"""Runs that are carried out elsewhere, as their pings tell of them."""

from __future__ import annotations

from collections.abc import Coroutine
from typing import TypeVar, cast

import pytest

from spyweb.errors import Refused
from spyweb.model import After, Every, Failure, JobId, Never, Outcome, Overlap, Pings, Run, RunId, RunState, Trigger
from spyweb.runs.live import LiveJob
from spyweb.runs.pings import LONGEST_LINE, MOST_STARTED, Ping, PingRuns
from spyweb.runs.runner import by_hand
from tests.fakes.clock import START_MS, FakeClock
from tests.fakes.harness import Harness, harness, make_job
from tests.fakes.hooks import make_pings
from tests.fakes.memory_store import MemoryStore

DAY_MS, HOUR_S = 86_400_000, 3600.0
DAILY = Pings(schedule=Every(period_ms=DAY_MS), grace_ms=HOUR_S)  # type: ignore[arg-type]  # of no interest here
BACKUP = JobId("backup")
T = TypeVar("T")


def backup(**settings: object) -> LiveJob:
    usual = {"schedule": DAILY, "overlap": Overlap.ALLOW, "timeout_ms": 3_600_000}
    return make_job("backup", **{**usual, **settings})


@pytest.fixture
async def job(t: Harness) -> LiveJob:
    await t.settle(job := backup())
    return job


@pytest.fixture
async def pings(t: Harness, job: LiveJob) -> PingRuns:
    return make_pings(t)


async def see_through(t: Harness, work: Coroutine[object, object, T]) -> T:
    doing = t.tasks.create_task(work)
    await t.clock.turn()
    return await doing


async def heard(t: Harness, pings: PingRuns, says: str, rid: str = "", text: str = "") -> RunId:
    job = t.live.find(BACKUP)
    assert job
    return await see_through(t, pings.hear(job, Ping(says, rid, text)))


async def runs(t: Harness) -> list[str]:
    found = await t.store.runs.list(BACKUP)
    return [f"{run.id} {run.outcome or run.state} {run.reason}".strip() for run in reversed(found)]


@pytest.mark.parametrize(
    ("says", "text", "told"),
    [
        ("success", "all is well", "1 success"),
        ("0", "", "1 success"),
        ("fail", "", "1 failed it reported a failure"),
        ("fail", "a\n disk full \n\n", "1 failed it reported a failure: disk full"),
        ("3", "x" * 1000, f"1 failed exit code 3: {'x' * LONGEST_LINE}"),
    ],
)
async def test_an_end_alone_is_a_run(t: Harness, pings: PingRuns, says: str, text: str, told: str) -> None:
    assert await heard(t, pings, says, text=text) == 1
    assert await runs(t) == [told]
    assert not t.live.running()


async def test_what_is_sent_along_is_the_log_of_the_run() -> None:
    lines: list[str] = []
    async with harness() as t:
        await t.settle(backup())
        await heard(t, make_pings(t, lines), "success", text="one\ntwo\n")
    assert lines == ["jobs/backup 1 info one", "jobs/backup 1 info two"]


async def test_a_beginning_is_in_flight_until_its_end_is_told(t: Harness, pings: PingRuns) -> None:
    assert await heard(t, pings, "start") == 1
    assert [run.state for run in t.live.running()] == [RunState.RUNNING]
    await t.clock.turn(600)
    assert await heard(t, pings, "success") == 1
    (run,) = await t.store.runs.list(BACKUP)
    assert (run.outcome, (run.ended_ms or 0) - (run.started_ms or 0)) == (Outcome.SUCCESS, 600_000)


async def test_ids_tell_which_end_belongs_to_which_beginning_and_without_one_it_is_that_of_the_newest(
    t: Harness, pings: PingRuns
) -> None:
    for rid in ("a", "b", "", ""):
        await heard(t, pings, "start", rid)
    await heard(t, pings, "start", "a")  # it was sent again
    await heard(t, pings, "1", "b")
    await heard(t, pings, "success", "c")
    await heard(t, pings, "success", "a")
    await heard(t, pings, "success")
    assert await runs(t) == ["1 success", "2 failed exit code 1", "3 running", "4 success", "5 success"]


async def test_without_an_end_it_fails_at_the_timeout(t: Harness, pings: PingRuns) -> None:
    await heard(t, pings, "start")
    await t.clock.turn(HOUR_S - 1)
    assert await runs(t) == ["1 running"]
    await t.clock.turn(1)
    (run,) = await t.store.runs.list(BACKUP)
    assert (run.outcome, run.failure) == (Outcome.FAILED, Failure.TIMEOUT)
    assert run.reason == "no ping reported its end within 1h"
    await heard(t, pings, "success")
    assert len(await runs(t)) == 2, "a late end is a run of its own"


async def test_more_than_so_many_beginnings_are_refused(t: Harness, pings: PingRuns) -> None:
    for number in range(MOST_STARTED):
        await heard(t, pings, "start", str(number))
    with pytest.raises(Refused, match="100 runs are under way already"):
        await pings.hear(cast("LiveJob", t.live.find(BACKUP)), Ping("start"))


async def test_the_first_ping_arms_it_and_each_moves_when_the_next_is_expected(
    t: Harness, job: LiveJob, pings: PingRuns
) -> None:
    before = job.expected_ms
    await t.clock.turn(60)
    await heard(t, pings, "fail")
    assert (before, job.expected_ms) == (None, START_MS + 60_000 + DAY_MS)
    cursors = await t.store.runs.cursors()
    assert cursors[BACKUP] == job.cursor == job.recorded


async def test_a_job_that_is_paused_expects_nothing_and_records_what_comes(
    t: Harness, job: LiveJob, pings: PingRuns
) -> None:
    await heard(t, pings, "success")
    await see_through(t, t.scheduler.pause(job))
    await heard(t, pings, "success")
    assert (job.expected_ms, job.cursor.paused) == (None, True)
    await t.clock.turn(5 * 86_400)
    await see_through(t, t.scheduler.resume(job))
    assert job.expected_ms == t.clock.now_ms() + DAY_MS, "what was not expected is not late"
    assert await runs(t) == ["1 success", "2 success"], "no due time is recorded as paused"


async def test_a_disabled_job_takes_no_pings(t: Harness) -> None:
    await t.settle(backup(enabled=False))
    with pytest.raises(Refused, match="backup is disabled"):
        await make_pings(t).hear(cast("LiveJob", t.live.find(BACKUP)), Ping("success"))


async def test_nothing_of_it_is_started_here(t: Harness, job: LiveJob) -> None:
    await t.clock.turn(10 * 86_400)
    with pytest.raises(Refused, match="backup runs elsewhere"):
        t.runner.start_by_hand(job, by_hand())
    assert await runs(t) == []


async def test_jobs_that_follow_it_start_when_its_end_is_told(t: Harness) -> None:
    await t.settle(backup(), make_job("upload", schedule=Never(), after=(After(job=BACKUP),)))
    await heard(t, make_pings(t), "success")
    assert await t.record("upload") == ["upload after success"]


async def test_a_run_can_be_cancelled_and_when_the_job_is_deleted_what_is_under_way_is_over(
    t: Harness, job: LiveJob, pings: PingRuns
) -> None:
    run = await heard(t, pings, "start")
    await heard(t, pings, "start")
    assert t.runner.cancel(run)
    await t.clock.turn()
    t.delete(job)
    await t.clock.turn(2 * HOUR_S)
    assert await runs(t) == ["1 failed cancelled by request", "2 skipped the job was deleted"]


async def test_what_a_daemon_has_heard_of_survives_it() -> None:
    """A beginning goes on, with what is left of its time; an end that was told is not told again."""
    clock = FakeClock()
    store = MemoryStore(clock)
    async with harness(store, clock) as t:
        await t.settle(backup())
        pings = make_pings(t)
        await heard(t, pings, "start", "a")
        await heard(t, pings, "start", "b")
        t.tasks.create_task(t.runner.drain(10))
        await clock.turn(60)
    # As it is where the daemon was killed between the two commits of a run.
    told = Trigger(type="webhook", ping="1")
    left = [run for run in await store.runs.list(BACKUP) if run.outcome is None]
    assert len(left) == 2, "a stop ends nothing that goes on elsewhere"
    left.append(Run(id=RunId(0), job=BACKUP, state=RunState.RUNNING, trigger=told, started_ms=START_MS))
    async with harness(store, clock) as t:
        job = backup()
        await t.settle(job)
        pings = make_pings(t)
        await see_through(t, pings.take_up(left))
        assert sorted(job.queue.in_flight) == [1, 2]
        await clock.turn(60)
        await heard(t, pings, "success", "b")
        await clock.turn(HOUR_S - 60 - 60)
        assert await runs(t) == ["1 failed no ping reported its end within 1h", "2 success"]


async def test_the_run_of_a_job_that_expects_no_pings_any_more_is_lost(t: Harness) -> None:
    await t.settle(backup())
    await heard(t, make_pings(t), "start")
    left = await t.store.runs.open()
    job = t.live.find(BACKUP)
    assert job
    job.queue.in_flight.clear()
    job.spec = make_job("backup").spec
    await see_through(t, make_pings(t).take_up(left))
    assert await runs(t) == ["1 lost the daemon died"]
