"""The life of a run: admission, attempts, what follows it, a crash, the end."""

from __future__ import annotations

import re
from asyncio import Future, Task, ensure_future, sleep
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from msgspec import convert
from msgspec.structs import replace
from structlog.testing import capture_logs

from spyweb.errors import NoAccess, PoolError, Refused, SpywebError, StoreCorrupt, StoreError, StoreMoved
from spyweb.lua import wire
from spyweb.lua.session import Host, Request
from spyweb.model import After, Ending, Every, JobId, Never, Outcome, Overlap, Retry, Run, RunId, RunState, Trigger
from spyweb.ops.dispatcher import OpDispatcher
from spyweb.runs.live import LiveJob
from spyweb.runs.records import unbegun
from spyweb.runs.run_queue import CAUSED_LIMIT, QUEUE_LIMIT
from spyweb.runs.runner import BY_REQUEST, LAST_PATIENCE, STOP_PATIENCE, STORE_PATIENCE, Observer, RunRequest, by_hand
from spyweb.specs.parse import RUN_OUTCOMES
from spyweb.stalls import TOO_OFTEN, Work
from spyweb.store.model.entries import ChangeEvent
from spyweb.store.model.runs import Change
from tests.fakes.changes import refuse
from tests.fakes.clock import settle
from tests.fakes.harness import BY_HAND, Harness, SilentHost, StoryListener, harness, make_job
from tests.fakes.monitor import make_monitor
from tests.fakes.pool import FAILED
from tests.fakes.stalling import StallClocks
from tests.fakes.triggered import make_event, make_listener, triggered_harness

PRICES = JobId("prices")
ONCE_AGAIN = Retry(retries=1, delay_ms=1_000, jitter=False)


async def test_a_failed_run_is_retried_after_its_delay_until_its_attempts_are_used_up(t: Harness) -> None:
    t.pool.endings[PRICES] = [FAILED] * 3
    await t.settle(job := make_job(schedule=Never(), retry=Retry(retries=2, delay_ms=10_000, jitter=False)))
    await t.start(job, 9)
    assert await t.record() == ["prices manual failed", "prices retry waiting attempt 2"]
    await t.clock.turn(1)
    assert len(t.pool.story) == 2
    await t.clock.turn(60)
    assert await t.record() == [
        "prices manual failed",
        "prices retry failed attempt 2",
        "prices retry failed attempt 3",
    ]
    may_retry = [(request.procedure, request.arguments[1]) for request in t.pool.requests]
    assert may_retry == [("run", True), ("run", True), ("run", False)], "a script is told whether it would be final"


@pytest.mark.parametrize("is_refused", [False, True])
async def test_no_more_wait_than_a_queue_holds_however_many_claims_are_on_their_way(
    t: Harness, is_refused: bool
) -> None:
    t.pool.held.add(PRICES)
    await t.settle(job := make_job(schedule=Never(), overlap=Overlap.QUEUE))
    if is_refused:
        with t.refused():
            for _ in range(3):
                refused = [t.runner.start_by_hand(job, BY_HAND) for _ in range(50)]
                await t.clock.turn()
                assert all(isinstance(claim.exception(), StoreError) for claim in refused)
    for _ in range(1 + QUEUE_LIMIT):
        t.runner.start_by_hand(job, BY_HAND)
    with pytest.raises(Refused, match=f"{QUEUE_LIMIT} runs are waiting already"):
        t.runner.start_by_hand(job, BY_HAND)
    await t.clock.turn()
    assert len(job.queue.waiting) == QUEUE_LIMIT


async def test_replace_cancels_what_runs_and_drops_what_waits(t: Harness) -> None:
    await t.start(await t.hold(make_job(schedule=Never(), overlap=Overlap.REPLACE)))
    assert (t.pool.story, t.monitors.story) == (
        ["run prices", "cancel 1 cancelled", "run prices"],
        ["cancel 1 cancelled"],
    )
    assert await t.record() == ["prices manual failed", "prices manual running"]
    replaced = await t.store.past_runs.find(RunId(1))
    assert replaced is not None
    assert replaced.reason == "cancelled: replaced by run 2"


async def test_replace_cancels_one_whose_own_claim_is_still_on_its_way(t: Harness) -> None:
    await t.hold(make_job(schedule=Never(), overlap=Overlap.REPLACE), count=3)
    assert t.pool.story.count("run prices") == 1
    assert await t.record() == ["prices manual failed", "prices manual skipped", "prices manual running"]


async def test_replace_cancels_one_that_has_waited_and_is_about_to_begin(
    t: Harness, monkeypatch: pytest.MonkeyPatch
) -> None:
    job, record = await t.hold(make_job(schedule=Never(), overlap=Overlap.QUEUE), count=2), t.store.runs.record
    job.spec = replace(job.spec, overlap=Overlap.REPLACE)

    async def begin_after_a_start(change: Change) -> list[RunId | None]:
        monkeypatch.undo()
        t.runner.start_by_hand(job, BY_HAND)
        await sleep(0)
        return await record(change)

    def record_slowly(change: Change) -> Future[list[RunId | None]]:
        return ensure_future(begin_after_a_start(change)) if change.begin else record(change)

    monkeypatch.setattr(t.store.runs, "record", record_slowly)
    await t.finish(1)
    assert t.pool.story.count("run prices") == 2
    assert await t.record() == ["prices manual success", "prices manual failed", "prices manual running"]


async def test_a_bug_while_a_start_is_recorded_leaves_the_job_free_for_the_next(
    t: Harness, monkeypatch: pytest.MonkeyPatch
) -> None:
    job, record = await t.hold(make_job(schedule=Never(), overlap=Overlap.QUEUE), count=3), t.store.runs.record

    def record_or_fail(change: Change) -> Future[list[RunId | None]]:
        if not change.begin:
            return record(change)
        monkeypatch.undo()
        raise RuntimeError("a bug")

    monkeypatch.setattr(t.store.runs, "record", record_or_fail)
    await t.finish(1)
    assert list(job.queue.in_flight) == [3]
    assert await t.record() == ["prices manual success", "prices manual failed", "prices manual running"]


async def test_a_claim_that_is_refused_replaces_nothing(t: Harness) -> None:
    job = await t.hold(make_job(schedule=Never(), overlap=Overlap.QUEUE), count=2)
    job.spec = replace(job.spec, overlap=Overlap.REPLACE)
    with t.refused(), pytest.raises(StoreError):
        await t.runner.start_by_hand(job, BY_HAND)
    assert await t.record() == ["prices manual running", "prices manual waiting"]
    t.pool.held.clear()
    await t.finish(1)
    assert await t.record() == ["prices manual success"] * 2


async def test_a_skipped_run_starts_only_what_follows_any_outcome_and_hides_no_failure(t: Harness) -> None:
    skipped = Ending(outcome=Outcome.SKIPPED, reason="open")
    t.pool.endings[PRICES] = [skipped, replace(skipped, reason="open still"), FAILED, skipped]
    first = make_job(schedule=Never())
    each = RUN_OUTCOMES.values()
    others = [
        make_job("sum", schedule=Never(), after=(After(job=PRICES, outcomes=frozenset(each)),)),
        make_job("all", schedule=Never(), after=(After(job=PRICES, outcomes=frozenset({*each, Outcome.SKIPPED})),)),
    ]
    await t.settle(first, *others)
    seen = []
    for _ in range(4):
        await t.start(first)
        seen.append(first.last and first.last.reason)
    assert seen == ["open", "open still", *[FAILED.reason] * 2], "where there is no other the latest is shown"
    assert (await t.record("all"), await t.record("sum")) == (["all after success"] * 4, ["sum after success"])


async def test_a_paused_job_that_would_have_followed_leaves_a_record(t: Harness) -> None:
    first = make_job(schedule=Never())
    second = make_job("report", schedule=Never(), after=(After(job=PRICES),))
    await t.settle(first, second)
    await t.scheduler.pause(second)
    for _ in range(3):
        await t.start(first)
    assert await t.record("report") == ["report after paused x3"]
    (passed,) = await t.store.runs.list(JobId("report"))
    assert passed.reason == "prices ended while the job was paused"
    await t.scheduler.resume(second)
    await t.start(first)
    assert await t.record("report") == ["report after paused x3", "report after success"]


async def test_a_run_that_had_begun_before_a_pause_is_retried_all_the_same(t: Harness) -> None:
    t.pool.endings[PRICES] = [FAILED]
    await t.settle(job := make_job(schedule=Never(), retry=Retry(retries=1, delay_ms=10_000, jitter=False)))
    await t.start(job, 5)
    await t.scheduler.pause(job)
    await t.clock.turn(6)
    assert await t.record() == ["prices manual failed", "prices retry success attempt 2"]


class Watcher:
    """Sees how runs end."""

    audit = None

    def __init__(self) -> None:
        self.seen: list[Ending] = []

    def log(self, level: str, text: bytes) -> None: ...

    def task(self, event: object) -> None: ...

    def ended(self, run: Run, ending: Ending) -> None:
        self.seen.append(ending)


async def test_a_watched_run_is_one_attempt_starts_no_other_job_and_is_seen_to_its_end(t: Harness) -> None:
    watcher = Watcher()
    t.pool.endings[PRICES] = [FAILED]
    first = make_job(schedule=Never(), retry=ONCE_AGAIN)
    await t.settle(first, make_job("report", schedule=Never(), after=(After(job=PRICES, outcomes=frozenset(Outcome)),)))
    t.runner.start_by_hand(first, by_hand(watcher))
    await t.clock.turn(60)
    assert await t.record() == ["prices manual failed"]
    assert [request.arguments[1] for request in t.pool.requests] == [False]
    assert [replace(ending, record=None) for ending in watcher.seen] == [FAILED]


@pytest.mark.parametrize(
    ("settings", "after_s", "again"),
    [
        ({"retry": Retry()}, 2, []),
        ({"retry": ONCE_AGAIN}, 2, ["prices retry success attempt 2"]),
        ({"resume": True}, 0, ["prices retry success attempt 2"]),
    ],
)
async def test_after_a_crash_running_runs_are_lost_and_repeat_only_under_retries_or_where_they_resume(
    t: Harness, settings: dict[str, Any], after_s: int, again: list[str]
) -> None:
    make = partial(make_job, schedule=Never(), **settings)
    await t.hold(make())
    async with t.restarted(make()) as after:
        await t.clock.turn(after_s)
        assert await after.record() == ["prices manual lost", *again]


@pytest.mark.parametrize("request_", [by_hand(dry_run=True), by_hand(debug=True), by_hand(Watcher())])
@pytest.mark.parametrize("settings", [{"retry": ONCE_AGAIN}, {"resume": True}])
async def test_after_a_crash_nothing_follows_a_run_that_was_to_change_nothing_or_that_somebody_watched(
    t: Harness, request_: RunRequest, settings: dict[str, Any]
) -> None:
    make = partial(make_job, schedule=Never(), **settings)
    alarm = partial(make_job, "alarm", schedule=Never(), after=(After(job=PRICES, outcomes=frozenset(Outcome)),))
    await t.hold(make(), alarm(), request=request_)
    async with t.restarted(make(), alarm()) as after:
        await t.clock.turn(20)
        assert await after.record() == ["prices manual lost"]


async def test_a_job_knows_when_it_has_last_started_and_succeeded_but_not_by_what_only_shows_or_finds(
    t: Harness,
) -> None:
    t.pool.endings[PRICES] = [FAILED]
    await t.settle(job := make_job(schedule=Never()))
    await t.start(job, 1)
    failed_ms = job.started_ms
    assert (failed_ms > 0, job.succeeded_ms) == (True, 0)
    for request in (by_hand(dry_run=True), RunRequest(trigger=Trigger(type="drift", finding=""))):
        t.runner.start(job, [request])
        await t.clock.turn(1)
    assert (job.started_ms, job.succeeded_ms) == (failed_ms, 0)
    await t.start(job, 1)
    assert failed_ms < job.started_ms <= job.succeeded_ms


@pytest.mark.parametrize("extra", [{"dry_run": True}, {"debug": True}])
async def test_a_run_that_is_to_change_nothing_replaces_none_and_hides_no_failure(
    t: Harness, extra: dict[str, Any]
) -> None:
    job = await t.hold(make_job(schedule=Never(), overlap=Overlap.REPLACE))
    t.runner.start_by_hand(job, by_hand(**extra))
    await t.clock.turn()
    assert await t.record() == ["prices manual running", "prices manual waiting"]
    t.pool.held.clear()
    t.pool.finish(1, FAILED)
    await t.clock.turn()
    assert await t.record() == ["prices manual failed", "prices manual success"]
    assert job.last is not None
    assert job.last.outcome is Outcome.FAILED


async def test_nothing_follows_a_run_that_was_to_change_nothing_and_waited_over_a_restart(t: Harness) -> None:
    make = partial(make_job, schedule=Never(), overlap=Overlap.QUEUE, retry=Retry(retries=1, jitter=False))
    t.runner.start_by_hand(await t.hold(make()), by_hand(dry_run=True))
    await t.clock.turn()
    left = [run for run in await t.store.runs.open() if run.state is RunState.WAITING]
    async with harness(t.store, t.clock) as after:
        after.pool.endings[PRICES] = [FAILED]
        await after.settle(make())
        await after.runner.take_up(left)
        await t.clock.turn(20)
        assert await after.record() == ["prices manual running", "prices manual failed"]


async def test_a_run_is_resumed_once_its_job_that_is_broken_now_can_be_loaded(t: Harness) -> None:
    make = partial(make_job, schedule=Never(), resume=True)
    await t.hold(make())
    left = await t.store.runs.open()
    async with harness(t.store, t.clock) as after:
        after.live.set_unloadable(frozenset({PRICES}))
        await after.runner.take_up(left)
        await t.clock.turn(1)
        assert await after.record() == ["prices manual lost", "prices retry waiting attempt 2"]
        after.live.set_unloadable(frozenset())
        await after.settle(make())
        await t.clock.turn(1)
        assert await after.record() == ["prices manual lost", "prices retry success attempt 2"]


async def test_a_run_that_a_stop_cuts_short_leaves_the_one_that_resumes_it(t: Harness) -> None:
    make = partial(make_job, schedule=Never(), resume=True)
    await t.hold(make())
    await t.runner.drain(0)
    assert await t.record() == ["prices manual stopped", "prices retry waiting attempt 2"]
    async with t.restarted(make()) as after:
        await t.clock.turn(0)
        assert await after.record() == ["prices manual stopped", "prices retry success attempt 2"]


@pytest.mark.parametrize("retries", [0, 1])
async def test_after_a_crash_a_job_starts_that_follows_a_run_which_is_lost_for_good(t: Harness, retries: int) -> None:
    make = partial(make_job, schedule=Never(), retry=replace(ONCE_AGAIN, retries=retries))
    lost = frozenset({Outcome.LOST})
    alarm = partial(make_job, "alarm", schedule=Never(), after=(After(job=PRICES, outcomes=lost),))
    await t.hold(make(), alarm())
    async with t.restarted(make(), alarm()) as after:
        await t.clock.turn(60)
        follows = "prices retry success attempt 2" if retries else "alarm after success"
        assert await after.record() == ["prices manual lost", follows]


async def test_after_a_planned_stop_a_job_starts_that_follows_a_run_which_was_stopped(t: Harness) -> None:
    """At the next start, and not while the daemon stops."""

    def jobs() -> list[LiveJob]:
        asked = {"alarm": {Outcome.STOPPED}, "report": set(Outcome), "praise": {Outcome.SUCCESS, Outcome.LOST}}
        follows = {name: (After(job=PRICES, outcomes=frozenset(wanted)),) for name, wanted in asked.items()}
        following = [make_job(name, schedule=Never(), after=after) for name, after in follows.items()]
        return [make_job(schedule=Never()), *following]

    await t.hold(*jobs())
    await t.runner.drain(0)
    await t.clock.turn(60)
    assert await t.record() == ["prices manual stopped", "alarm after waiting", "report after waiting"]
    async with t.restarted(*jobs()) as after:
        await t.clock.turn(1)
        assert await after.record() == ["prices manual stopped", "alarm after success", "report after success"]
        trigger = after.pool.requests[0].arguments[0]["trigger"]  # type: ignore[index]  # the ctx table
        assert trigger == {"type": "after", "job": "prices", "run_id": 1, "outcome": "stopped"}


@pytest.mark.parametrize("jump_s", [0, -86_400])
async def test_after_a_stop_a_waiting_retry_still_comes_and_a_clock_that_was_set_back_puts_it_off_little(
    t: Harness, jump_s: int
) -> None:
    make = partial(make_job, schedule=Never(), retry=replace(ONCE_AGAIN, delay_ms=60_000, max_delay_ms=90_000))
    t.pool.endings[PRICES] = [FAILED]
    await t.settle(job := make())
    await t.start(job)
    await t.runner.drain(0)
    t.clock.jump(jump_s)
    async with t.restarted(make()) as after:
        await t.clock.turn(59)
        assert after.pool.story == []
        await t.clock.turn(31 if jump_s else 1)
        assert await after.record() == ["prices manual failed", "prices retry success attempt 2"]


@pytest.mark.parametrize("is_deleted", [False, True])
async def test_who_watches_a_run_that_is_given_up_sees_it_end(t: Harness, is_deleted: bool) -> None:
    """Its job is deleted, or a newer start replaces it."""
    watcher = Watcher()
    job = await t.hold(make_job(schedule=Never(), overlap=Overlap.QUEUE))
    t.runner.start_by_hand(job, by_hand(watcher))
    await t.clock.turn()
    if is_deleted:
        t.delete(job)
        t.pool.finish(1)
    else:
        job.spec = replace(job.spec, overlap=Overlap.REPLACE)
        t.runner.start_by_hand(job, BY_HAND)
    await t.clock.turn()
    reason = "the job was deleted" if is_deleted else "replaced by run 3"
    assert watcher.seen == [unbegun(reason)]
    assert not t.runner._observers


async def test_what_waits_for_a_deleted_job_is_recorded_and_does_not_run(t: Harness) -> None:
    job = await t.hold(make_job(schedule=Never(), overlap=Overlap.QUEUE), count=2)
    t.delete(job)
    t.pool.finish(1)
    await t.clock.turn(10)
    assert await t.record() == ["prices manual success", "prices manual skipped"]
    assert t.monitors.story == ["forget prices"]


async def test_what_was_on_its_way_to_the_store_when_its_job_was_deleted_does_not_run(t: Harness) -> None:
    """A start that waits its turn, and the retry of a run that has ended."""
    job = await t.hold(make_job(schedule=Never(), overlap=Overlap.QUEUE, retry=Retry(retries=1)))
    with t.hung() as hanging:
        t.runner.start_by_hand(job, BY_HAND)
        t.pool.finish(1, FAILED)
        await settle()
        t.delete(job)
        await hanging.grant()
        await hanging.grant()
    await t.clock.turn(60)
    assert await t.record() == ["prices manual failed", "prices manual skipped", "prices retry skipped attempt 2"]
    assert await t.store.runs.open() == []


async def test_a_planned_stop_waits_for_the_run_of_a_deleted_job_too_and_then_stops_it(t: Harness) -> None:
    job = await t.hold(make_job(schedule=Never()))
    t.delete(job)
    draining = t.tasks.create_task(t.runner.drain(10))
    await t.clock.turn(9)
    assert not draining.done()
    await t.clock.turn(2)
    await draining
    assert await t.record() == ["prices manual stopped"]


async def test_a_job_that_is_deleted_and_comes_back_does_not_overlap_the_run_still_in_flight(t: Harness) -> None:
    job = await t.hold(make_job(schedule=Never(), overlap=Overlap.QUEUE))
    t.delete(job)
    await t.settle(back := make_job(schedule=Never(), overlap=Overlap.QUEUE))
    await t.start(back)
    assert await t.record() == ["prices manual running", "prices manual waiting"]
    t.pool.held.clear()
    await t.finish(1)
    assert await t.record() == ["prices manual success"] * 2


async def stop_beside_two_runs(t: Harness) -> Task[None]:
    """Gives the stop, which waits for them: of prices, the first, and of report."""
    t.pool.held |= {PRICES, JobId("report")}
    quick, slow = make_job(schedule=Never()), make_job("report", schedule=Never())
    await t.settle(quick, slow)
    for job in (quick, slow):
        t.runner.start_by_hand(job, BY_HAND)
    await t.clock.turn()
    return t.tasks.create_task(t.runner.drain(10))


async def test_a_planned_stop_waits_for_its_grace_records_ends_at_once_and_then_stops_what_is_left(t: Harness) -> None:
    draining = await stop_beside_two_runs(t)
    await t.settle(idle := make_job("idle", schedule=Never()))
    with pytest.raises(Refused, match="idle: the daemon is stopping"):
        t.runner.start_by_hand(idle, BY_HAND)
    await t.clock.turn(5)
    await t.finish(1)
    assert await t.record() == ["prices manual success", "report manual running"]
    await t.clock.turn(4.9)
    assert not draining.done()
    await t.clock.turn(1)
    await draining
    assert await t.record() == ["prices manual success", "report manual stopped"]


async def test_stopping_starts_nothing_that_waits_but_keeps_it_on_record(t: Harness) -> None:
    t.pool.held.add(PRICES)
    await t.settle(make_job(schedule=Every(period_ms=60_000), overlap=Overlap.QUEUE))
    await t.clock.turn(61)
    draining = t.tasks.create_task(t.runner.drain(10))
    await t.clock.turn(1)
    t.pool.finish(1)
    await t.clock.turn(12)
    await draining
    assert await t.record() == ["prices schedule success", "prices schedule waiting"]


@pytest.mark.parametrize("is_deleted", [False, True])
async def test_a_stop_waits_in_vain_for_a_store_that_refuses_and_leaves_the_run_to_the_next_start(
    t: Harness, is_deleted: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The end of a run, or of a deleted job that one will not run."""
    job = await t.hold(make_job(schedule=Never(), overlap=Overlap.QUEUE), count=2)
    monkeypatch.setattr(t.store.runs, "record", refuse)
    if is_deleted:
        t.delete(job)
    t.pool.finish(1)
    draining = t.tasks.create_task(t.runner.drain(10))
    await t.clock.turn(10 + STOP_PATIENCE + LAST_PATIENCE)
    assert draining.done()
    await t.clock.turn()
    assert not t.runner._run_tasks
    assert await t.record() == ["prices manual running", "prices manual waiting"]


MOVED, DAMAGED = StoreMoved(Path("spyweb.db")), StoreCorrupt(Path("spyweb.db"), "malformed")


@pytest.mark.parametrize("error", [MOVED, DAMAGED])
@pytest.mark.parametrize("has_ended", [True, False])
async def test_a_stop_does_not_wait_for_a_store_that_takes_nothing_more(
    t: Harness, has_ended: bool, error: StoreError, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither for a run that has ended before nor, once its grace is over, for one that is stopped."""
    await t.hold(make_job(schedule=Never()))
    monkeypatch.setattr(t.store.runs, "record", partial(refuse, error=error))
    if has_ended:
        t.pool.finish(1)
        await t.clock.turn(1)
    draining = t.tasks.create_task(t.runner.drain(10))
    await t.clock.turn(0 if has_ended else 10)
    assert draining.done()
    assert await t.record() == ["prices manual running"], "the next start finds it so"


@pytest.mark.parametrize("error", [MOVED, DAMAGED])
async def test_a_stop_leaves_a_run_waiting_whose_beginning_the_store_does_not_take(
    t: Harness, error: StoreError, monkeypatch: pytest.MonkeyPatch
) -> None:
    await t.hold(make_job(schedule=Never(), overlap=Overlap.QUEUE), count=2)
    record = t.store.runs.record
    refuse_begins = partial(refuse, error=error)
    monkeypatch.setattr(
        t.store.runs, "record", lambda change: refuse_begins(change) if change.begin else record(change)
    )
    t.pool.finish(1)
    await t.clock.turn(1)
    monkeypatch.setattr(t.store.runs, "record", refuse_begins)
    draining = t.tasks.create_task(t.runner.drain(10))
    await t.clock.turn()
    assert draining.done()
    assert t.pool.story == ["run prices"]
    assert await t.record() == ["prices manual success", "prices manual waiting"]


async def test_that_ends_can_not_be_recorded_yet_is_told_once_for_all_runs(t: Harness) -> None:
    await t.hold(make_job(schedule=Never(), overlap=Overlap.ALLOW), count=2)
    with t.refused(MOVED), capture_logs() as lines:
        await t.finish(1, 2)
        await t.clock.turn(3 * STORE_PATIENCE)
    assert [line["event"] for line in lines] == ["not recorded yet"]
    await t.clock.turn(STORE_PATIENCE)
    assert await t.record() == ["prices manual success"] * 2


async def test_an_end_is_recorded_once_the_database_is_put_back(t: Harness) -> None:
    await t.hold(make_job(schedule=Never()))
    with t.refused(MOVED):
        t.pool.finish(1)
        await t.clock.turn(STORE_PATIENCE - 1)
    draining = t.tasks.create_task(t.runner.drain(10))
    await t.clock.turn()
    assert draining.done(), "a stop has the store asked at once"
    assert await t.record() == ["prices manual success"]


async def test_whoever_watches_a_run_whose_end_a_damaged_store_does_not_take_hears_of_it(
    t: Harness, monkeypatch: pytest.MonkeyPatch
) -> None:
    watcher = Watcher()
    job = await t.hold(make_job(schedule=Never()), request=by_hand(watcher))
    monkeypatch.setattr(t.store.runs, "record", partial(refuse, error=StoreCorrupt(Path("spyweb.db"), "malformed")))
    await t.finish(1)
    assert [ending.outcome for ending in watcher.seen] == [Outcome.SUCCESS]
    assert not job.queue.is_busy
    assert await t.record() == ["prices manual running"]


async def test_a_run_whose_host_can_not_be_made_fails_and_leaves_its_job_free(t: Harness) -> None:
    hosts, watcher = [MemoryError()], Watcher()

    def host_for(job: LiveJob, run: Run, observer: Observer | None) -> OpDispatcher:
        if hosts:
            raise hosts.pop()
        return SilentHost()

    t.runner.host_for = host_for
    t.pool.held.add(PRICES)
    await t.settle(job := make_job(schedule=Never(), overlap=Overlap.QUEUE))
    t.runner.start_by_hand(job, by_hand(watcher))
    await t.start(job)
    assert [ending.reason for ending in watcher.seen] == ["internal error (see the log)"]
    assert job.last is not None
    assert job.last.reason == watcher.seen[0].reason
    await t.finish(2)
    assert await t.record() == ["prices manual failed", "prices manual success"]


async def test_a_runs_row_counts_what_its_sql_took_of_a_processor(t: Harness) -> None:
    t.runner.host_for = lambda *_: SilentHost(sql_cpu_s=1.5)
    await t.settle(job := make_job(schedule=Never()))
    await t.start(job)
    (run,) = await t.store.runs.list()
    assert run.cpu_ms == 1500


async def test_what_a_run_did_to_the_loop_stands_on_its_row_and_goes_with_a_deleted_job() -> None:
    clocks = StallClocks()
    recorder = clocks.recorder()
    async with harness(stalls=recorder) as t:
        await t.settle(job := make_job(schedule=Never()))
        for number in range(1, TOO_OFTEN + 1):
            started = clocks.wall
            clocks.compute(1.0)
            recorder.record(Work("op state.set", job.id, number, job.code.generation), started)
            await t.start(job)
        assert [run.note for run in await t.store.runs.list()] == ["held the loop 1.0 s: op state.set"] * TOO_OFTEN
        assert await t.record() == ["prices manual success"] * (TOO_OFTEN - 1) + ["prices manual failed"]
        assert (await last(t)).reason == recorder.refusal_of("prices", 1)
        assert t.pool.story == ["run prices"] * (TOO_OFTEN - 1)
        t.delete(job)
        assert recorder.refused() == {}


async def test_what_follows_in_a_job_that_another_daemon_owns_is_left_on_record_for_that(t: Harness) -> None:
    first = make_job(schedule=Never())
    second = make_job("report", schedule=Never(), after=(After(job=PRICES),))
    second.mine = False
    await t.settle(first, second)
    await t.start(first)
    assert await t.record() == ["prices manual success", "report after waiting"]


async def test_a_job_that_comes_back_while_its_claim_is_on_its_way_is_busy_with_that_run(t: Harness) -> None:
    t.pool.held.add(PRICES)
    await t.settle(job := make_job(schedule=Never()))
    with t.hung() as hanging:
        t.runner.start_by_hand(job, BY_HAND)
        t.delete(job)
        t.live.add(back := make_job(schedule=Never()))
        with pytest.raises(Refused, match="busy"):
            t.runner.start_by_hand(back, BY_HAND)
        await hanging.grant()
    await t.finish(1)
    assert not back.queue.is_busy
    assert await t.record() == ["prices manual success"]


@pytest.mark.parametrize(
    ("expect", "reason"),
    [
        (["statu == 200"], 'expect: statu == 200: unknown name statu; did you mean "status"?'),
        ("status == 200", "expect: expected a list of texts, not 'status == 200'"),
        ([], "expect: expected 1 to 20 conditions, not 0"),
    ],
)
async def test_a_run_may_have_other_conditions_which_are_checked_as_the_file_s_are(
    t: Harness, expect: object, reason: str
) -> None:
    await t.settle(site := make_job(schedule=Never(), check="http"), other := make_job("other", schedule=Never()))
    with pytest.raises(Refused, match=re.escape(reason)):
        t.runner.start_by_hand(site, by_hand(values={"expect": expect}))
    t.runner.start_by_hand(site, by_hand(values={"expect": ["status == 404"]}))
    t.runner.start_by_hand(other, by_hand(values={"expect": expect}))
    await t.clock.turn()
    assert sorted(await t.record()) == ["other manual success", "prices manual success"]


async def test_a_run_of_a_deleted_job_replaces_none_even_if_the_job_has_come_back(t: Harness) -> None:
    job = await t.hold(make_job(schedule=Never(), overlap=Overlap.REPLACE))
    with t.hung() as hanging:
        t.runner.start_by_hand(job, BY_HAND)
        t.delete(job)
        t.live.add(make_job(schedule=Never(), overlap=Overlap.REPLACE))
        await hanging.grant()
    await t.finish(1)
    assert await t.record() == ["prices manual success", "prices manual skipped"]


PRICES, ORDERS = JobId("prices"), JobId("orders")


async def hold(t: Harness, count: int = 2) -> None:
    """Have one run of prices under way, and the others wait for it."""
    await t.hold(make_job(schedule=Never(), overlap=Overlap.QUEUE, retry=ONCE_AGAIN), count=count)


async def test_one_that_waits_never_begins_and_the_next_takes_its_turn(t: Harness) -> None:
    await hold(t, 3)
    assert t.runner.cancel(RunId(2))
    await t.clock.turn()
    await t.finish(1)
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


async def test_one_under_way_ends_and_is_not_tried_again_and_nothing_else_is_cancelled(t: Harness) -> None:
    await hold(t, 1)
    assert not t.runner.cancel(RunId(99))
    assert t.runner.cancel(RunId(1))
    await t.clock.turn(60)
    assert not t.runner.cancel(RunId(1)), "it has ended"
    assert t.pool.story == ["run prices", "cancel 1 cancelled"]
    assert await t.record() == ["prices manual failed"]


async def test_of_changes_the_next_one_is_dealt_with_and_no_change_is_left() -> None:
    async with triggered_harness() as t:
        t.harness.pool.held.add(ORDERS)
        await t.settle(make_listener())
        for key in ("a", "b", "c"):
            await t.write(key)
        await t.harness.clock.turn()
        assert t.harness.runner.cancel(RunId(2))
        await t.harness.finish(1)
        await t.harness.finish(3)

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


CAUSED: dict[str, object] = {"type": "state", "scope": "orders", "key": "42", "event": 9, "when": ["f"]}


def make_script(**settings: object) -> LiveJob:
    return make_job("prices", **{"schedule": Never(), "retry": Retry(retries=1, jitter=False), **settings})


async def start(t: Harness, job: LiveJob, trigger: dict[str, object]) -> None:
    if t.live.find(job.id) is None:
        await t.settle(job)
    t.runner.start(job, [RunRequest(trigger=convert(trigger, Trigger))])
    await t.clock.turn()


async def last(t: Harness) -> Run:
    return (await t.store.runs.list(limit=1))[0]


def answer_events(t: Harness, *answers: ChangeEvent | SpywebError | None) -> None:
    """Have the store answer so, one after the other, when it is asked for an event."""
    left = list(answers)

    def find(_event: int) -> Future[ChangeEvent | None]:
        future: Future[ChangeEvent | None] = Future()
        answer = left.pop(0)
        if isinstance(answer, SpywebError):
            future.set_exception(answer)
        else:
            future.set_result(answer)
        return future

    t.store.events.find = find  # type: ignore[method-assign, assignment]


async def test_for_a_change_it_is_told_the_event_and_the_conditions(t: Harness) -> None:
    answer_events(t, make_event())
    await start(t, make_script(), CAUSED)
    (request,) = t.pool.requests
    assert (request.procedure, request.arguments[3]) == ("trigger", ["f"])


@pytest.mark.parametrize("error", [StoreError("busy"), NoAccess("spyweb.db: no access as me")])
async def test_a_store_that_refuses_the_event_is_asked_again(t: Harness, error: SpywebError) -> None:
    answer_events(t, error, make_event())
    await start(t, make_script(), CAUSED)
    assert t.pool.requests == []
    await t.clock.turn(STORE_PATIENCE)
    assert await t.record() == ["prices state success"]


async def test_a_run_that_is_to_end_while_its_change_is_read_does_not_begin(
    t: Harness, monkeypatch: pytest.MonkeyPatch
) -> None:
    found: Future[ChangeEvent | None] = Future()
    monkeypatch.setattr(t.store.events, "find", lambda _event: found)
    await start(t, make_script(), CAUSED)
    draining = t.tasks.create_task(t.runner.drain(0))
    await t.clock.turn()
    found.set_result(make_event())
    await t.clock.turn()
    await draining
    stopped = (await t.store.runs.list())[-1]
    assert (stopped.outcome, stopped.reason) == ("stopped", "the daemon stopped before it began")
    assert t.pool.requests == []


async def test_a_run_that_is_to_end_while_its_beginning_is_recorded_asks_for_no_change(
    t: Harness, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[int] = []
    monkeypatch.setattr(t.store.events, "find", asked.append)
    job = make_script(overlap=Overlap.QUEUE)
    t.pool.held.add(job.id)
    await start(t, job, {"type": "manual"})
    await start(t, job, CAUSED)
    with t.hung() as hanging:
        t.pool.finish(1)
        await settle()
        (end, answer) = hanging.asked.pop()
        answer.set_result(await hanging.record(end))
        await settle()
        assert [len(change.begin) for change, _ in hanging.asked] == [1]
        draining = t.tasks.create_task(t.runner.drain(0))
        await t.clock.turn()
        await hanging.grant()
    await t.clock.turn()
    await draining
    stopped = next(run for run in await t.store.runs.list() if run.id == 2)
    assert (stopped.outcome, len(t.pool.requests), asked) == ("stopped", 1, [])


async def test_a_change_that_is_gone_fails_the_run(t: Harness) -> None:
    answer_events(t, None)
    await start(t, make_script(retry=Retry()), CAUSED)
    run = await last(t)
    assert (run.outcome, run.reason) == ("failed", "the change that started it is no longer stored")
    assert t.pool.requests == []


async def test_without_a_worker_the_run_has_failed(t: Harness, monkeypatch: pytest.MonkeyPatch) -> None:
    async def refuse(_request: Request, _host: Host, **_how: bool) -> Ending:
        raise PoolError("no worker could be started")

    monkeypatch.setattr(t.pool, "run", refuse)
    await start(t, make_script(retry=Retry()), {"type": "manual"})
    assert (await last(t)).reason == "no worker could be started"


async def test_a_monitor_job_is_left_to_the_monitors(t: Harness) -> None:
    await start(t, make_monitor(spec={"schedule": Never()}), {"type": "manual"})
    assert (t.monitors.story, t.pool.story) == (["run shop"], [])
    assert await t.record() == ["shop manual success"]


async def test_a_monitor_job_is_told_the_change_that_started_it(t: Harness) -> None:
    answer_events(t, make_event(), make_event())
    job = make_monitor(spec={"schedule": Never()})
    await start(t, job, CAUSED)
    await start(t, job, {"type": "retry", "of": 1, "cause": CAUSED})
    first, second = (wire.unpack(wire.pack([ctx["trigger"]]))[0] for ctx in t.monitors.contexts)
    assert first["type"] == "state"  # type: ignore[index]
    assert second == {"type": "retry", "of": 1, "event": first}


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
    job = await t.hold(make_job(schedule=Never(), overlap=Overlap.QUEUE), count=2)
    t.live.listener = listener = StoryListener()
    t.delete(job)
    await t.clock.turn()
    assert listener.story == ["2 ended: prices manual skipped"]
