"""What a listener is told of runs, and that one run costs it nothing while there is none."""

from __future__ import annotations

from spyweb.model import JobId, Never, Overlap, Retry
from tests.fakes.harness import BY_HAND, Harness, make_job
from tests.fakes.job_listener import StoryListener
from tests.fakes.pool import FAILED

PRICES = JobId("prices")


async def test_a_run_begins_and_ends(t: Harness) -> None:
    t.live.listener = listener = StoryListener()
    await t.settle(job := make_job(schedule=Never()))
    await t.start(job)
    assert listener.story == ["1 began", "1 ended: prices manual success"]


async def test_a_retry_waits_before_it_begins(t: Harness) -> None:
    t.live.listener = listener = StoryListener()
    t.pool.endings[PRICES] = [FAILED]
    await t.settle(job := make_job(schedule=Never(), retry=Retry(retries=1, delay_ms=10_000, jitter=False)))
    await t.start(job, 5)
    assert listener.story == ["1 began", "1 ended: prices manual failed", "2 waits"]
    await t.clock.turn(60)
    assert listener.story[3:] == ["2 waits", "2 began", "2 ended: prices retry success attempt 2"]


async def test_a_due_time_that_is_skipped_and_a_run_that_makes_way(t: Harness) -> None:
    t.pool.held |= {PRICES, JobId("other")}
    t.live.listener = listener = StoryListener()
    skips, replaces = make_job(), make_job("other", overlap=Overlap.REPLACE)
    await t.settle(skips, replaces)
    await t.clock.turn(121)
    assert listener.story[:6] == [
        "1 began",
        "2 began",
        "3 waits",
        "1 ended: other schedule failed",
        "3 began",
        "prices skipped x1: overlap: the job is busy (run 2)",
    ]


async def test_a_run_that_will_never_begin_has_ended(t: Harness) -> None:
    t.pool.held.add(PRICES)
    await t.settle(job := make_job(schedule=Never(), overlap=Overlap.QUEUE))
    t.runner.start_by_hand(job, BY_HAND)
    await t.start(job)
    t.live.listener = listener = StoryListener()
    t.live.remove(job.id)
    t.runner.forget(job)
    await t.clock.turn()
    assert listener.story == ["2 ended: prices manual skipped"]
