"""A run that somebody has end."""

from __future__ import annotations

from spyweb.model import JobId, Never, Overlap, Retry, RunId
from spyweb.runs.run_queue import CAUSED_LIMIT
from spyweb.runs.runner import BY_REQUEST
from tests.fakes.harness import BY_HAND, Harness, make_job
from tests.fakes.pool import FAILED
from tests.fakes.triggered import make_listener, triggered_harness

PRICES, ORDERS = JobId("prices"), JobId("orders")


async def hold(t: Harness, count: int = 2) -> None:
    """Have one run of prices under way, and the others wait for it."""
    t.pool.held.add(PRICES)
    job = make_job(schedule=Never(), overlap=Overlap.QUEUE, retry=Retry(retries=1, delay_ms=10_000, jitter=False))
    await t.settle(job)
    for _ in range(count):
        t.runner.start_by_hand(job, BY_HAND)
    await t.clock.turn()


async def test_one_under_way_ends_and_is_not_tried_again(t: Harness) -> None:
    await hold(t, 1)
    assert t.runner.cancel(RunId(1))
    await t.clock.turn(60)
    assert t.pool.story == ["run prices", "cancel 1 cancelled"]
    assert await t.record() == ["prices manual failed"]


async def test_one_that_waits_never_begins_and_the_next_takes_its_turn(t: Harness) -> None:
    await hold(t, 3)
    assert t.runner.cancel(RunId(2))
    await t.clock.turn()
    t.pool.finish(1)
    await t.clock.turn()
    assert await t.record() == ["prices manual success", "prices manual skipped", "prices manual running"]
    skipped = (await t.store.runs.list(PRICES, limit=9))[1]
    assert skipped.reason == BY_REQUEST


async def test_a_retry_that_waits_for_its_delay_does_not_come(t: Harness) -> None:
    await hold(t, 1)
    t.pool.finish(1, FAILED)
    await t.clock.turn()
    assert await t.record() == ["prices manual failed", "prices retry waiting attempt 2"]
    assert t.runner.cancel(RunId(2))
    await t.clock.turn(60)
    assert await t.record() == ["prices manual failed", "prices retry skipped attempt 2"]


async def test_one_of_a_deleted_job_can_be_cancelled_too(t: Harness) -> None:
    await hold(t, 1)
    job = t.live.remove(PRICES)
    assert job is not None
    t.runner.forget(job)
    assert t.runner.cancel(RunId(1))
    await t.clock.turn()
    assert await t.record() == ["prices manual failed"]


async def test_one_that_has_ended_or_never_was_is_not_cancelled(t: Harness) -> None:
    await hold(t, 1)
    t.pool.finish(1)
    await t.clock.turn()
    assert not t.runner.cancel(RunId(1))
    assert not t.runner.cancel(RunId(99))
    assert t.pool.story == ["run prices"]


async def test_of_changes_the_next_one_is_dealt_with_and_no_change_is_left() -> None:
    async with triggered_harness() as t:
        t.harness.pool.held.add(ORDERS)
        await t.settle(make_listener())
        for key in ("a", "b", "c"):
            await t.write(key)
        await t.harness.clock.turn()
        assert t.harness.runner.cancel(RunId(2))
        t.harness.pool.finish(1)
        await t.harness.clock.turn()
        t.harness.pool.finish(3)
        await t.harness.clock.turn()

        assert t.handled() == ["a", "c"]
        assert await t.left() == []
        assert await t.harness.record() == ["orders state success", "orders state skipped", "orders state success"]


async def test_where_so_many_wait_that_others_are_left_in_the_store_one_that_is_given_up_makes_room() -> None:
    async with triggered_harness() as t:
        t.harness.pool.held.add(ORDERS)
        await t.settle(make_listener())
        for number in range(CAUSED_LIMIT + 10):
            await t.write(str(number))
        await t.harness.clock.turn()
        left = len(await t.left())
        assert left
        for run in await t.harness.store.runs.open():
            assert run.id == 1 or t.harness.runner.cancel(run.id)
        await t.harness.clock.turn()
        assert len(await t.left()) == 0
