"""Which ends of runs are results of their jobs, and for how long."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from spyweb.model import Cron, Ending, Every, Failure, JobId, Never, Outcome, Pings, Retry, Run, Schedule, Trigger
from spyweb.runs.pings import Ping
from spyweb.runs.uptime import latency_of, stale_after, stale_of
from spyweb.settings.units import DAY_MS, HOUR_MS, MINUTE_MS
from spyweb.store.model.uptime import KEPT_MS, UptimeSpan, bucket_of
from tests.fakes.daemon_service import NOW_MS, make_run
from tests.fakes.harness import Harness, make_job, make_spec
from tests.fakes.hooks import make_pings
from tests.fakes.pool import FAILED, GUILTY, SUCCESS

PRICES = JobId("prices")
CANCELLED = replace(FAILED, failure=Failure.CANCELLED)
SKIPPED, STOPPED = Ending(outcome=Outcome.SKIPPED), Ending(outcome=Outcome.STOPPED)


async def span_of(t: Harness, job: JobId = PRICES) -> UptimeSpan:
    return (await t.store.uptime.read([job], t.clock.now_ms(), ["24h"]))[job].spans["24h"]


@pytest.mark.parametrize(
    ("ending", "run", "is_result"),
    [
        (SUCCESS, {}, True),
        (FAILED, {}, True),
        (GUILTY, {}, True),
        (CANCELLED, {}, False),
        (SKIPPED, {}, False),
        (SKIPPED, {"attempt": 2}, True),  # the failure that it was to retry stands
        (STOPPED, {}, False),
        (FAILED, {"trigger": Trigger(dry_run=True)}, False),
        (FAILED, {"trigger": Trigger(debug=True)}, False),
        (FAILED, {"trigger": Trigger(incident={"id": 1})}, False),
        (FAILED, {"trigger": Trigger(finding="drift")}, False),
    ],
)
def test_a_run_is_a_result_of_its_job_where_it_is_the_jobs_own_work(
    ending: Ending, run: dict[str, object], is_result: bool
) -> None:
    assert (stale_of(make_job(), make_run(1, **run), ending, NOW_MS) is not None) == is_result


@pytest.mark.parametrize(
    ("schedule", "holds_ms"),
    [
        (Every(period_ms=MINUTE_MS), 2 * MINUTE_MS + 5_000),
        (Cron(expression="0 3 * * *", timezone="UTC"), DAY_MS + 3 * HOUR_MS + 5_000),  # from midnight on
        (Pings(schedule=Every(period_ms=HOUR_MS), grace_ms=MINUTE_MS), 2 * HOUR_MS + MINUTE_MS + 5_000),
        (Never(), KEPT_MS["hour"]),
    ],
)
def test_a_result_holds_for_two_due_times_and_as_long_as_a_run_may_take(schedule: Schedule, holds_ms: int) -> None:
    assert stale_after(make_spec("prices", schedule=schedule, timeout_ms=5_000), NOW_MS) == NOW_MS + holds_ms


@pytest.mark.parametrize(
    ("result", "latency"),
    [
        ({b"latency": 12}, 12.0),
        ({"latency": 1.5}, 1.5),
        ({"latency": -3}, 1.0),
        ({"latency": "much"}, 2_000.0),
        ("ok", 2_000.0),
        (None, 2_000.0),
    ],
)
def test_the_latency_is_what_the_script_has_returned_or_how_long_it_has_run(result: object, latency: float) -> None:
    run: Run = make_run(1, started_ms=NOW_MS - 2_000)
    assert latency_of(run, replace(SUCCESS, result=result), NOW_MS) == bucket_of(latency)
    assert latency_of(run, replace(FAILED, result=result), NOW_MS) is None


def test_the_result_of_a_job_that_is_paused_holds_for_nothing() -> None:
    job = make_job()
    job.cursor = replace(job.cursor, idle_since_ms=1)
    assert stale_of(job, make_run(1), SUCCESS, NOW_MS) == NOW_MS


async def test_a_run_that_is_retried_is_no_result_until_its_last_attempt(t: Harness) -> None:
    t.pool.endings[PRICES] = [FAILED, SUCCESS]
    await t.settle(job := make_job(schedule=Never(), retry=Retry(retries=1, delay_ms=10_000, jitter=False)))
    await t.start(job, 9)
    assert await span_of(t) == UptimeSpan()
    await t.clock.turn(60)
    found = await span_of(t)
    assert (found.ok, found.failed, found.down_ms) == (1, 0, 0)
    assert found.up_ms > 0


async def test_a_ping_is_a_result_of_its_job(t: Harness) -> None:
    schedule = Pings(schedule=Every(period_ms=HOUR_MS), grace_ms=0)
    await t.settle(job := make_job("backup", schedule=schedule, timeout_ms=60_000))
    hearing = t.tasks.create_task(make_pings(t).hear(job, Ping("fail")))
    await t.clock.turn(3 * 3_600)
    await hearing
    assert replace(await span_of(t, JobId("backup")), latency={}) == UptimeSpan(down_ms=2 * HOUR_MS + 60_000, failed=1)
