from __future__ import annotations

from msgspec import convert, structs

from spyweb.model import After, JobId, Never, Outcome, Retry, Run, RunId, RunState, Trigger
from spyweb.ownership import Ownership, Slot, slot_of
from spyweb.runs.counters import JobCounts, RunCounters
from spyweb.runs.live import LiveJobs
from tests.fakes.changes import make_skipped
from tests.fakes.clock import FakeClock
from tests.fakes.harness import Harness, make_job
from tests.fakes.pool import FAILED


def test_dependents_are_found_once_linked_also_a_paused_job_but_no_disabled_one() -> None:
    live = LiveJobs()
    live.add(make_job())
    job = make_job("report", after=(After(job=JobId("prices")),))
    job.cursor = structs.replace(job.cursor, paused=True)
    live.add(job)
    live.add(make_job("off", after=(After(job=JobId("prices")),), enabled=False))
    live.link()
    assert not job.scheduled
    assert live.after(JobId("prices")) == [job]
    live.remove(JobId("report"))
    assert live.after(JobId("prices")) == []


def test_a_job_that_no_node_has_begun_is_due_at_no_time_elsewhere() -> None:
    live = LiveJobs(Ownership(FakeClock(), set()))
    live.add(job := make_job())
    job.cursor = structs.replace(job.cursor, schedule="")
    assert not job.scheduled
    job.cursor = structs.replace(job.cursor, schedule="every 10m")
    assert job.scheduled


def test_who_listens_hears_of_awaited_jobs_when_they_change() -> None:
    live, told = LiveJobs(), list[frozenset[str]]()
    live.on_linked(lambda: told.append(live.unloadable))
    for awaited in (frozenset({"a"}), frozenset({"a"}), frozenset[str]()):
        live.set_unloadable(awaited)

    assert told == [{"a"}, frozenset()]


def test_a_job_that_was_removed_while_it_was_busy_counts_until_its_runs_have_ended() -> None:
    live, run = LiveJobs(), Run(id=RunId(7), job=JobId("prices"), state=RunState.RUNNING)
    live.add(job := make_job())
    job.queue.in_flight[run.id] = run
    live.remove(job.id)
    assert (live.running(), live.is_busy(), live.current(job)) == ([run], True, job)
    live.add(back := make_job())
    assert (live.running(), back.queue.in_flight, live.current(job)) == ([run], {7: run}, back)
    del job.queue.in_flight[run.id]
    assert (live.running(), live.is_busy()) == ([], False)


PRICES, NEWS, WEATHER = JobId("prices"), JobId("news"), JobId("weather")


def everything(counters: RunCounters) -> JobCounts:
    total = JobCounts()
    for counts in (*counters.jobs.values(), counters.others):
        total.add(counts)
    return total


def ended(job: JobId, outcome: Outcome, **trigger: object) -> Run:
    return Run(
        id=RunId(1),
        job=job,
        state=RunState.ENDED,
        trigger=convert(trigger, Trigger),
        outcome=outcome,
        started_ms=0,
        ended_ms=10,
    )


def test_jobs_beyond_the_limit_are_counted_together() -> None:
    counters = RunCounters(most_jobs=1)
    for job in (PRICES, NEWS, WEATHER, NEWS):
        counters.ended(ended(job, Outcome.SUCCESS), has_lasted=True)
    assert counters.jobs[PRICES].ended == {Outcome.SUCCESS: 1}
    assert counters.others.ended == {Outcome.SUCCESS: 3}
    assert counters.jobs.keys() == {PRICES}
    assert counters.duration.count == 4


def test_a_dry_run_and_a_plan_are_no_runs_in_the_counters() -> None:
    counters = RunCounters()
    for field in ("dry_run", "debug"):
        run = ended(PRICES, Outcome.SUCCESS, **{field: True})
        counters.started(run, 5)
        counters.ended(run, has_lasted=True)
    counts = counters.of(PRICES)
    assert (counts.started, counts.ended, counts.succeeded_ms) == (0, {}, None)
    assert (counters.duration.count, counters.lateness.count) == (0, 0)
    counters.ended(ended(PRICES, Outcome.SUCCESS), has_lasted=True)
    assert counters.of(PRICES).succeeded_ms == 10


def test_what_a_deleted_job_has_left_is_counted_among_the_others() -> None:
    counters = RunCounters()
    counters.started(ended(PRICES, Outcome.FAILED), 3)
    counters.ended(ended(PRICES, Outcome.FAILED), has_lasted=True)
    counters.passed_over([make_skipped(PRICES)])
    before = everything(counters)
    counters.forget(PRICES)
    counters.forget(NEWS)  # never counted
    after = everything(counters)
    assert (after.due, after.started, after.ended) == (before.due, before.started, before.ended)
    assert counters.others.started == 1
    assert not counters.jobs


async def test_a_due_run_is_counted_from_its_due_time_to_its_end(t: Harness) -> None:
    await t.settle(make_job())
    await t.clock.turn(61)
    counts = t.runner.counters.of(PRICES)
    ended = sum(counts.ended.values())
    assert ended >= 1
    assert (counts.due, counts.started, counts.ended) == (ended, ended, {Outcome.SUCCESS: ended})
    assert t.runner.counters.lateness.count == ended
    assert t.runner.counters.duration.count == ended


async def test_an_attempt_is_a_start_and_no_further_due_time(t: Harness) -> None:
    t.pool.endings[PRICES] = [FAILED]
    await t.settle(job := make_job(schedule=Never(), retry=Retry(retries=1, delay_ms=1_000, jitter=False)))
    await t.start(job, 5)
    counts = t.runner.counters.of(PRICES)
    assert (counts.due, counts.started) == (0, 2)
    assert counts.ended == {Outcome.FAILED: 1, Outcome.SUCCESS: 1}
    assert t.runner.counters.lateness.count == 0


async def test_due_times_that_passed_while_a_job_was_paused_are_due_and_paused(t: Harness) -> None:
    await t.settle(job := make_job())
    await t.clock.turn(1)
    before = t.runner.counters.of(PRICES).due
    await t.scheduler.pause(job)
    await t.clock.turn(180)
    await t.scheduler.resume(job)
    counts = t.runner.counters.of(PRICES)
    assert counts.ended[Outcome.PAUSED] == 3
    assert counts.due == before + 3


def test_a_job_without_a_file_here_lies_in_its_pool_by_the_record_or_else_in_that_for_every_node() -> None:
    live = LiveJobs(Ownership(FakeClock(), {slot_of("gone"), slot_of("pinned")}))
    live.pools[JobId("pinned")] = "node:fra"
    assert [live.is_mine(JobId(job)) for job in ("gone", "prices", "pinned")] == [True, False, False]
    live.add(job := make_job("removed", node="ber"))
    live.remove(job.id)
    assert live.slot_of(job.id) == Slot("node:ber", 0)
