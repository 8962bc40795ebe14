"""Every due time either runs or leaves a record saying why not."""

from __future__ import annotations

import asyncio
from asyncio import Future
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from functools import partial

import pytest
from msgspec import structs
from msgspec.structs import replace

from spyweb.errors import Refused, StoreError
from spyweb.model import Cron, Cursor, Every, JobId, Misfire, MisfirePolicy, Overlap, RunId, RunState, Trigger
from spyweb.runs.live import LiveJob
from spyweb.scheduler.scheduler import Scheduler
from spyweb.store.model.runs import Change, NewRun
from tests.fakes.changes import refuse
from tests.fakes.clock import FakeClock, settle
from tests.fakes.harness import MINUTE_MS, Harness, StoryListener, harness, make_job
from tests.fakes.memory_store import MemoryStore
from tests.fakes.timers import FakeTimers

HOUR = 3600.0
SECONDLY = Every(period_ms=1000)
FIVE_MINUTELY = Cron(expression="*/5 * * * *", timezone="UTC")


def overtake(t: Harness, patch: pytest.MonkeyPatch, *theirs: Cursor) -> None:
    """Have somebody else write these cursors between what is read here and what is written next."""
    record, rest = t.store.runs.record, list(theirs)

    def record_after_them(change: Change) -> Future[list[RunId | None]]:
        if rest:
            record(Change(cursors=rest))
            rest.clear()
        return record(change)

    patch.setattr(t.store.runs, "record", record_after_them)


@pytest.fixture
async def job(t: Harness) -> LiveJob:
    """A job that runs every minute, and has run once."""
    await t.settle(job := make_job())
    await t.clock.turn(1)
    return job


@pytest.fixture
async def watched(t: Harness) -> AsyncIterator[None]:
    """The daemon looks at the clock every so often."""
    watching = t.tasks.create_task(t.scheduler.watch_the_clock())
    yield
    watching.cancel()


async def dealt_with(store: MemoryStore, period_ms: int) -> list[int]:
    """Every due time on record, as often as it is there, in periods since the first."""
    found: list[int] = []
    for run in await store.runs.list(limit=1000):
        if run.due_ms is not None:
            found += range(run.due_ms, (run.last_due_ms or run.due_ms) + 1, period_ms)
    return sorted((due_ms - min(found)) // period_ms for due_ms in found)


async def restart(first_store: MemoryStore, clock: FakeClock, down: float, job: LiveJob) -> list[str]:
    """The record of a job after a daemon was down for a while and came back."""
    await clock.turn(down)
    async with harness(first_store, clock) as t:
        await t.settle(job)
        await clock.turn(1)
        return await t.record()


@asynccontextmanager
async def an_hour_later() -> AsyncIterator[Harness]:
    """A daemon that starts an hour after another one, in which a job ran once, has ended."""
    async with harness() as t:
        await t.settle(make_job())
        await t.clock.turn(1)
    await t.clock.turn(HOUR)
    async with harness(t.store, t.clock) as t:
        yield t


async def test_a_new_job_runs_at_once_and_then_keeps_its_cadence(t: Harness) -> None:
    await t.settle(make_job())
    await t.clock.turn(1)
    assert await t.record() == ["prices schedule success"]
    await t.clock.turn(180)
    assert len(await t.record()) == 4


async def first_runs(*jobs: LiveJob) -> dict[str, int]:
    """When each ran for the first time, in ms from the start."""
    async with harness() as t:
        begun_ms = t.clock.now_ms()
        await t.settle(*jobs)
        await t.clock.turn(12)
        runs = await t.store.runs.list(limit=10_000)
        return {run.job: (run.due_ms or 0) - begun_ms for run in reversed(runs)}


async def test_the_first_runs_of_many_new_jobs_are_spread_over_ten_seconds() -> None:
    spread = await first_runs(*(make_job(f"job{number}") for number in range(40)))

    assert len(spread) == 40
    assert max(spread.values()) > 8_000
    assert len({moment // 1000 for moment in spread.values()}) >= 7


async def test_a_few_new_jobs_need_not_wait() -> None:
    soon = await first_runs(*(make_job(f"job{number}") for number in range(10)))

    assert max(soon.values()) <= 100


async def test_the_cadence_survives_a_restart() -> None:
    async with harness() as t:
        await t.settle(make_job())
        await t.clock.turn(90)
    due = [run.due_ms for run in await t.store.runs.list()]
    assert len(due) == 2
    await restart(t.store, t.clock, 10, make_job())
    assert [run.due_ms for run in await t.store.runs.list()] == due
    await restart(t.store, t.clock, 20, make_job())
    assert (await t.store.runs.list())[0].due_ms == (due[0] or 0) + MINUTE_MS


SUCCESSES = "prices schedule success"
SKIP, ALL = MisfirePolicy.SKIP, MisfirePolicy.ALL


@pytest.mark.parametrize(
    ("misfire", "period_s", "down_s", "record"),
    [
        (Misfire(), 60, HOUR, ["prices schedule missed x59", SUCCESSES]),
        (Misfire(policy=SKIP), 600, HOUR + 100, ["prices schedule missed x6"]),
        (Misfire(policy=SKIP), 60, 60, ["prices schedule missed"]),  # it has no grace of its own
        (Misfire(policy=ALL, limit=3), 60, 300, ["prices schedule missed x2", *[SUCCESSES] * 3]),
        (Misfire(policy=ALL, limit=300), 60, 250 * 60, [SUCCESSES] * 250),
    ],
)
async def test_what_was_missed_while_no_daemon_was_there_runs_or_is_one_record(
    t: Harness, misfire: Misfire, period_s: int, down_s: float, record: list[str]
) -> None:
    make = partial(make_job, misfire=misfire, schedule=Every(period_ms=period_s * 1000))
    await t.settle(make())
    await t.clock.turn(1)
    t.timers.stop()
    assert await restart(t.store, t.clock, down_s, make()) == [SUCCESSES, *record]


@pytest.mark.usefixtures("watched")
async def test_misfire_skip_runs_on_while_the_daemon_does_also_over_a_clock_that_is_set_back(t: Harness) -> None:
    await t.settle(make_job(misfire=Misfire(policy=MisfirePolicy.SKIP)))
    await t.clock.turn(61)
    assert await t.record() == ["prices schedule success"] * 2
    t.clock.jump(-HOUR)
    await t.clock.turn(70)
    assert await t.record() == ["prices schedule success"] * 3


async def test_what_is_made_up_for_during_a_run_waits_for_it(t: Harness) -> None:
    t.pool.held.add(JobId("prices"))
    await t.settle(make_job(misfire=Misfire(policy=MisfirePolicy.ALL)))
    await t.clock.turn(1)
    t.clock.jump(179)
    await t.clock.turn(60)
    assert await t.record() == ["prices schedule running", *["prices schedule waiting"] * 3]


async def test_what_is_made_up_for_still_waits_its_turn_after_a_restart() -> None:
    misfire = Misfire(policy=MisfirePolicy.ALL)
    async with harness() as t:
        await t.settle(make_job(misfire=misfire))
        await t.clock.turn(1)
    await t.clock.turn(180)
    async with harness(t.store, t.clock) as t:
        t.pool.held.add(JobId("prices"))
        await t.settle(make_job(misfire=misfire))
        await t.clock.turn(1)
        draining = t.tasks.create_task(t.runner.drain(0))
        await t.clock.turn(1)
        await draining
    async with harness(t.store, t.clock) as t:
        left = await t.store.runs.open()
        await t.settle(make_job(misfire=misfire))
        await t.runner.take_up(left)
        await t.clock.turn(1)
        assert await t.record() == [
            "prices schedule success",
            "prices schedule stopped",
            *["prices schedule success"] * 2,
        ]


async def test_a_due_time_during_a_run_is_recorded_as_skipped_in_one_row(t: Harness) -> None:
    t.pool.held.add(JobId("prices"))
    await t.settle(make_job())
    await t.clock.turn(181)
    assert await t.record() == ["prices schedule running", "prices schedule skipped x3"]
    t.pool.finish(1)
    await t.clock.turn(60)
    assert (await t.record())[-1] == "prices schedule running"


async def test_a_paused_job_is_due_again_after_resume_and_the_time_between_is_one_record(
    t: Harness, job: LiveJob
) -> None:
    await t.scheduler.pause(job)
    await t.clock.turn(300)
    assert await t.record() == ["prices schedule success"]
    await t.scheduler.resume(job)
    await t.clock.turn(60)
    assert await t.record() == ["prices schedule success", "prices schedule paused x5", "prices schedule success"]


async def test_a_job_is_paused_for_a_reason_that_stays_until_it_is_resumed(t: Harness) -> None:
    prices, news = make_job("prices"), make_job("news")
    await t.settle(prices, news)
    await t.scheduler.pause(news)
    await t.scheduler.pause_together({prices.id: "3 failures in a row", news.id: "5 failures in a row"}, [prices, news])
    await t.scheduler.pause(prices)
    stored = await t.store.runs.cursors()
    assert (stored[prices.id].paused_for, stored[news.id].paused_for) == ("3 failures in a row", "")
    await t.scheduler.activate([prices], stored)  # it was edited
    assert prices.cursor.paused_for == "3 failures in a row"
    await t.scheduler.resume(prices)
    assert (prices.cursor.paused, prices.cursor.paused_for) == (False, "")


async def test_of_jobs_that_are_paused_together_one_that_is_gone_is_told_and_none_is_paused(t: Harness) -> None:
    prices, news = make_job("prices"), make_job("news")
    await t.settle(prices, news)
    news.gone = True
    with pytest.raises(Refused, match="news was removed"):
        await t.scheduler.pause_together({prices.id: "x", news.id: "x"}, [prices, news])
    assert not prices.cursor.paused


async def test_what_is_due_before_an_edit_is_dealt_with_ahead_of_the_timers(t: Harness) -> None:
    await t.settle(job := make_job(), off := make_job("off", enabled=False), held := make_job("held"))
    await t.clock.turn(1)
    t.timers.stop()
    t.clock.advance(60)
    held.not_before_ms = t.clock.now_ms() + 1
    await t.scheduler.catch_up([job, off, held])
    await t.clock.turn()
    assert await t.record("prices") == ["prices schedule success"] * 2
    assert (await t.record("off"), len(await t.record("held"))) == ([], 1)


async def test_a_timer_can_not_come_between_an_edit_and_its_record(
    t: Harness, job: LiveJob, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What it claimed would be forgotten by the cursor that the edit was reckoned from."""
    record = t.store.runs.record

    def slow(change: Change) -> asyncio.Future[list[RunId | None]]:
        t.clock.advance(61)
        return record(change)

    before = job.cursor
    monkeypatch.setattr(t.store.runs, "record", slow)
    await t.scheduler.activate([job], {job.id: before})
    monkeypatch.setattr(t.store.runs, "record", record)
    assert (job.cursor, len(await t.record())) == (before, 1)
    await t.clock.turn(1)
    assert await t.record() == ["prices schedule success"] * 2


async def test_a_claim_that_the_store_refuses_is_made_later_and_told_until_then(
    t: Harness, job: LiveJob, monkeypatch: pytest.MonkeyPatch
) -> None:
    record = t.store.runs.record
    monkeypatch.setattr(t.store.runs, "record", refuse)
    cursor = job.cursor
    assert t.scheduler.refused_ms == 0
    await t.clock.turn(80)
    assert job.cursor.due_ms == cursor.due_ms
    assert t.scheduler.refused_ms >= 10_000, "since the first refusal, though it was asked again meanwhile"
    monkeypatch.setattr(t.store.runs, "record", record)
    await t.clock.turn(10)
    assert t.scheduler.refused_ms == 0
    assert await t.record() == ["prices schedule success"] * 2


async def test_a_due_time_that_somebody_else_has_claimed_is_not_run_again_and_holds_up_no_other_job(t: Harness) -> None:
    await t.settle(job := make_job(), make_job("news"))
    await t.clock.turn(1)
    due_ms = job.cursor.due_ms + MINUTE_MS
    ahead = structs.replace(job.cursor, due_ms=due_ms)
    theirs = NewRun(job=job.id, state=RunState.WAITING, trigger=Trigger(type="schedule"), due_ms=due_ms)
    (claimed,) = await t.store.runs.record(Change(cursors=[ahead], new=[theirs]))
    await t.clock.turn(61)

    assert job.cursor == job.recorded == ahead
    assert (await t.store.runs.list(job.id))[0].id == claimed
    ended = [told for told in await t.record() if told.endswith("success")]
    assert ended == ["prices schedule success", "news schedule success", "news schedule success"]
    assert t.scheduler.refused_ms == 0
    await t.clock.turn(60)
    assert (await t.record()).count("prices schedule success") == 2


async def test_a_job_that_somebody_else_has_taken_up_meanwhile_keeps_the_cursor_that_they_gave_it(
    t: Harness, monkeypatch: pytest.MonkeyPatch
) -> None:
    job, other = make_job(), make_job("news")
    theirs = Cursor(
        job=job.id, due_ms=t.clock.now_ms(), schedule="every 60000", paused=True, idle_since_ms=7, active_since_ms=5
    )
    with monkeypatch.context() as patch:
        overtake(t, patch, theirs)
        await t.settle(job, other)
    await t.clock.turn(61)

    assert await t.record() == ["news schedule success"] * 2
    assert job.cursor == job.recorded == theirs == (await t.store.runs.cursors())[job.id]


async def test_an_edit_goes_on_from_where_somebody_else_has_taken_the_schedule_meanwhile(
    t: Harness, monkeypatch: pytest.MonkeyPatch
) -> None:
    await t.settle(job := make_job())
    await t.clock.turn(30)
    ahead = structs.replace(job.cursor, due_ms=job.cursor.due_ms + 25_000)
    job.spec = replace(job.spec, schedule=Every(period_ms=2 * MINUTE_MS))
    with monkeypatch.context() as patch:
        overtake(t, patch, ahead)
        await t.scheduler.activate([job], {})
    await t.clock.turn(114)

    assert await t.record() == ["prices schedule success"], "what they have dealt with is not due here"
    await t.clock.turn(2)
    assert await t.record() == ["prices schedule success"] * 2
    assert (await t.store.runs.cursors())[job.id] == job.cursor == job.recorded


async def test_a_pause_undoes_nothing_that_somebody_else_has_dealt_with_meanwhile(
    t: Harness, job: LiveJob, monkeypatch: pytest.MonkeyPatch
) -> None:
    ahead = structs.replace(job.cursor, due_ms=job.cursor.due_ms + MINUTE_MS)
    with monkeypatch.context() as patch:
        overtake(t, patch, ahead)
        await t.scheduler.pause(job)

    paused = structs.replace(ahead, paused=True, idle_since_ms=t.clock.now_ms())
    assert job.cursor == job.recorded == paused == (await t.store.runs.cursors())[job.id]


async def test_a_resume_that_somebody_else_has_forestalled_records_no_time_twice(
    t: Harness, job: LiveJob, monkeypatch: pytest.MonkeyPatch
) -> None:
    resumed = structs.replace(job.cursor, due_ms=job.cursor.due_ms + 5 * MINUTE_MS)
    await t.scheduler.pause(job)
    await t.clock.turn(330)
    with monkeypatch.context() as patch:
        overtake(t, patch, resumed)
        await t.scheduler.resume(job)
    await t.clock.turn(60)

    assert await t.record() == ["prices schedule success"] * 2, "they have recorded the pause"
    assert job.cursor.due_ms == resumed.due_ms + MINUTE_MS
    assert (await t.store.runs.cursors())[job.id] == job.cursor == job.recorded


async def test_a_job_that_goes_keeps_the_pause_that_somebody_else_has_recorded_meanwhile(
    t: Harness, monkeypatch: pytest.MonkeyPatch
) -> None:
    await t.settle(job := make_job(), other := make_job("news"))
    await t.clock.turn(1)
    with monkeypatch.context() as patch:
        overtake(t, patch, structs.replace(job.cursor, paused=True))
        await t.scheduler.deactivate([job, other])

    stored = await t.store.runs.cursors()
    assert (job.cursor.paused, job.cursor.idle_since_ms) == (True, t.clock.now_ms())
    assert (other.cursor.paused, other.cursor.idle_since_ms) == (False, t.clock.now_ms())
    assert [stored[each.id] for each in (job, other)] == [job.cursor, other.cursor]


async def test_the_absence_of_a_job_is_noted_beside_what_somebody_else_has_recorded_meanwhile(
    t: Harness, monkeypatch: pytest.MonkeyPatch
) -> None:
    known = [Cursor(job=JobId(name), due_ms=1, schedule="every 60000") for name in ("gone", "lost")]
    await t.store.runs.record(Change(cursors=known))
    with monkeypatch.context() as patch:
        overtake(t, patch, structs.replace(known[0], due_ms=2, paused=True))
        idle = await t.scheduler.note_absent(known)

    assert [(each.due_ms, each.paused, each.idle_since_ms) for each in idle] == [
        (2, True, t.clock.now_ms()),
        (1, False, t.clock.now_ms()),
    ]
    assert list((await t.store.runs.cursors()).values()) == idle


@pytest.mark.parametrize(("is_granted", "after_s", "count"), [(True, 0.1, 7), (True, 2.1, 9), (False, 10, 17)])
async def test_what_comes_due_while_a_claim_is_on_its_way_is_dealt_with_once_and_as_soon_as_that_is_granted(
    t: Harness, is_granted: bool, after_s: float, count: int
) -> None:
    await t.settle(make_job(schedule=SECONDLY))
    await t.clock.turn(2.5)
    with t.hung() as hanging:
        await t.clock.turn(4)
        assert len(hanging.asked) == 1, "one claim of a job at a time"
        await (hanging.grant() if is_granted else hanging.refuse())
    await t.clock.turn(after_s)
    assert await dealt_with(t.store, 1000) == list(range(count))


async def test_a_due_time_can_not_come_between_a_pause_and_its_record(t: Harness) -> None:
    await t.settle(job := make_job(schedule=SECONDLY))
    await t.clock.turn(2.5)
    with t.hung() as hanging:
        pausing = t.tasks.create_task(t.scheduler.pause(job))
        await t.clock.turn(2)
        await hanging.grant()
        await pausing
    await t.clock.turn(5)
    assert (job.cursor.paused, len(await t.record())) == (True, 3)
    assert (await t.store.runs.cursors())[job.id] == job.cursor


@pytest.mark.parametrize("is_granted", [True, False])
async def test_a_pause_waits_for_the_claim_on_its_way(t: Harness, is_granted: bool) -> None:
    await t.settle(job := make_job(schedule=SECONDLY))
    await t.clock.turn(2.5)
    with t.hung() as hanging:
        await t.clock.turn(1)
        pausing = t.tasks.create_task(t.scheduler.pause(job))
        await settle()
        assert len(hanging.asked) == 1, "the claim alone"
        await (hanging.grant() if is_granted else hanging.refuse())
        await t.clock.turn(10)
        await hanging.grant()
    await pausing
    await t.clock.turn(1)
    assert (await t.store.runs.cursors())[job.id] == job.cursor
    assert job.cursor.paused
    await t.scheduler.resume(job)
    await t.clock.turn(1)
    assert sorted(set(await dealt_with(t.store, 1000))) == list(range(16))


@pytest.mark.parametrize("ask", [lambda s, job: s.pause(job), lambda s, job: s.deactivate([job])])
async def test_a_pause_or_an_absence_that_the_store_refuses_leaves_the_job_on_its_schedule(
    t: Harness, job: LiveJob, ask: Callable[[Scheduler, LiveJob], Awaitable[None]]
) -> None:
    cursor = job.cursor
    with t.refused(), pytest.raises(StoreError):
        await ask(t.scheduler, job)
    assert job.cursor == cursor
    await t.clock.turn(60)
    assert await t.record() == ["prices schedule success"] * 2


async def test_a_pause_outlasts_an_edit_that_came_while_it_was_on_its_way(t: Harness, job: LiveJob) -> None:
    with t.hung() as hanging:
        pausing = t.tasks.create_task(t.scheduler.pause(job))
        await settle()
        t.clock.advance(61)
        catching_up = t.tasks.create_task(t.scheduler.catch_up([job]))
        activating = t.tasks.create_task(t.scheduler.activate([job], {job.id: job.cursor}))
        await settle()
        await hanging.grant()
        await asyncio.gather(pausing, catching_up, activating)
    await t.clock.turn(HOUR)
    assert (job.cursor.paused, len(await t.record())) == (True, 1)
    assert (await t.store.runs.cursors())[job.id] == job.cursor


async def test_a_job_that_is_deleted_while_a_pause_waits_for_the_store_is_not_paused(t: Harness) -> None:
    """It would be told that it is, and it would not be once the file comes back."""
    await t.settle(job := make_job())
    with t.hung() as hanging:
        t.tasks.create_task(delete(t, job))
        await settle()
        pausing = t.tasks.create_task(refused(t.scheduler.pause(job)))
        await settle()
        await hanging.grant()
        await hanging.grant()
        assert await pausing == "prices was removed"
    assert not (await t.store.runs.cursors())[job.id].paused


async def delete(t: Harness, job: LiveJob) -> None:
    """As a reload does it."""
    await t.scheduler.deactivate([job])
    t.runner.forget(job)


async def refused(asked: Awaitable[None]) -> str:
    with pytest.raises(Refused) as error:
        await asked
    return str(error.value)


async def test_a_job_that_has_no_cursor_yet_can_not_be_paused(t: Harness, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its record would say that it had been due since 1970."""
    monkeypatch.setattr(t.store.runs, "record", refuse)
    with pytest.raises(StoreError):
        await t.settle(job := make_job())
    with pytest.raises(Refused, match="not on its schedule yet"):
        await t.scheduler.pause(job)
    with pytest.raises(Refused, match="not on its schedule yet"):
        await t.scheduler.resume(job)


async def test_an_edit_goes_by_what_the_store_made_of_the_claim_on_its_way(t: Harness, job: LiveJob) -> None:
    with t.hung() as hanging:
        await t.clock.turn(60)
        activating = t.tasks.create_task(t.scheduler.activate([job], {job.id: job.cursor}))
        await settle()
        await hanging.refuse()
        await hanging.grant()
        await activating
    await t.clock.turn(180)
    assert await dealt_with(t.store, MINUTE_MS) == list(range(5))


async def test_a_deactivation_waits_for_the_claim_on_its_way(t: Harness, job: LiveJob) -> None:
    with t.hung() as hanging:
        await t.clock.turn(60)
        deactivating = t.tasks.create_task(t.scheduler.deactivate([job]))
        await settle()
        await hanging.refuse()
        await hanging.grant()
        await deactivating
    await t.clock.turn(HOUR)
    assert (await t.store.runs.cursors())[job.id] == job.cursor
    assert job.cursor.idle_since_ms is not None
    assert await dealt_with(t.store, MINUTE_MS) == [0], "what is due is settled when the job comes back"


async def test_what_is_due_of_no_job_any_more_is_not_told_as_refused(
    t: Harness, monkeypatch: pytest.MonkeyPatch
) -> None:
    await t.settle(first := make_job(), last := make_job("news"))
    await t.clock.turn(1)
    monkeypatch.setattr(t.store.runs, "record", refuse)
    await t.clock.turn(80)
    t.scheduler.drop(first)
    assert t.scheduler.refused_ms >= 10_000
    t.scheduler.drop(last)
    assert t.scheduler.refused_ms == 0


async def test_a_job_that_comes_due_twice_in_one_wake_up_goes_on(t: Harness) -> None:
    await t.settle(job := make_job(schedule=Every(period_ms=1_000)))
    await t.clock.turn(10)
    for _ in range(2):  # the second one as where the loop is late
        t.clock.jump(1)
        t.scheduler._fire(job)
    t.scheduler._claim()
    await t.clock.turn(10)
    assert job.id not in t.scheduler._claims
    assert t.clock.now_ms() - job.cursor.due_ms < 1_000


async def test_what_has_fired_is_claimed_before_a_stop_returns(t: Harness, job: LiveJob) -> None:
    t.clock.advance(60)  # its timer has come, and the loop has not gone on since
    t.scheduler._fire(job)
    t.scheduler.stop()
    assert job.id in t.scheduler._claims
    await t.clock.turn(120)
    assert await t.record("prices") == ["prices schedule success"] * 2


@pytest.mark.parametrize("is_down", [False, True])
@pytest.mark.parametrize("schedule", [Every(period_ms=MINUTE_MS), FIVE_MINUTELY])
async def test_a_clock_that_was_set_back_silences_no_job(schedule: Every | Cron, is_down: bool) -> None:
    async with harness() as t:
        watching = t.tasks.create_task(t.scheduler.watch_the_clock())
        await t.settle(make_job(schedule=schedule))
        await t.clock.turn(301)
        before = len(await t.record())
        t.clock.jump(-24 * HOUR)
        await t.clock.turn(0 if is_down else HOUR)
        watching.cancel()
    async with harness(t.store, t.clock) as t:
        await t.settle(make_job(schedule=schedule))
        await t.clock.turn(HOUR if is_down else 0)
        assert len(await t.record()) >= before + 11


async def test_a_clock_that_is_set_back_while_the_daemon_starts_silences_no_job(t: Harness) -> None:
    await t.settle(make_job())
    t.clock.jump(-24 * HOUR)
    watching = t.tasks.create_task(t.scheduler.watch_the_clock())
    await t.clock.turn(HOUR)
    watching.cancel()
    assert len(await t.record()) > 50


@pytest.mark.parametrize("is_down", [False, True])
@pytest.mark.parametrize("schedule", [Every(period_ms=MINUTE_MS), Cron(expression="* * * * *", timezone="UTC")])
async def test_a_clock_that_was_wrong_for_a_moment_makes_nothing_due_twice(
    schedule: Every | Cron, is_down: bool
) -> None:
    """As that of a machine whose clock stands still while it is off, until it has asked another one."""
    job = partial(make_job, schedule=schedule, misfire=Misfire(policy=MisfirePolicy.ALL))
    async with harness() as t:
        watching = t.tasks.create_task(t.scheduler.watch_the_clock())
        await t.settle(job())
        await t.clock.turn(HOUR + 1)
        before = len(await t.record())
        t.clock.jump(-HOUR)
        await t.clock.turn(0 if is_down else 35)
        watching.cancel()
        if not is_down:
            t.clock.jump(HOUR)
            await t.clock.turn(120)
            assert before < len(await t.record()) <= before + 4
    if is_down:
        async with harness(t.store, t.clock) as t:
            await t.settle(job())
            await t.clock.turn(35)
            t.clock.jump(HOUR)
            await t.clock.turn(120)
            assert before < len(await t.record()) <= before + 4


@pytest.mark.usefixtures("watched")
async def test_a_time_of_a_cron_that_a_small_step_back_shows_again_is_dealt_with_already(t: Harness) -> None:
    await t.settle(make_job(schedule=FIVE_MINUTELY, overlap=Overlap.REPLACE))
    await t.clock.turn(1)
    t.pool.held.add(JobId("prices"))
    await t.clock.turn(300)
    t.clock.jump(-60)
    await t.clock.turn(120)
    assert await t.record() == ["prices schedule success", "prices schedule running"]
    t.pool.held.clear()
    t.pool.finish(2)
    await t.clock.turn(240)
    assert await dealt_with(t.store, 5 * MINUTE_MS) == [0, 1, 2]


async def test_a_job_that_had_something_to_catch_up_on_is_not_put_off_by_a_clock_that_jumps_back() -> None:
    async with an_hour_later() as t:
        watching = t.tasks.create_task(t.scheduler.watch_the_clock())
        await t.settle(make_job())
        await t.clock.turn(1)
        before = len(await t.record())
        t.clock.jump(-24 * HOUR)
        await t.clock.turn(HOUR)
        watching.cancel()
        assert len(await t.record()) > before + 50


async def test_what_catching_up_was_put_off_until_is_forgotten_once_it_has_passed() -> None:
    """A step back that is too small for a jump would bring it up again."""
    async with an_hour_later() as t:
        await t.settle(job := make_job())
        assert job.not_before_ms > 0
        await t.clock.turn(1)
        assert job.not_before_ms == 0


@pytest.mark.usefixtures("watched")
@pytest.mark.parametrize("schedule", [SECONDLY, Cron(expression="* * * * * *", timezone="UTC")])
async def test_a_claim_that_is_refused_after_the_clock_has_jumped_back_takes_no_job_to_where_the_clock_was(
    t: Harness, schedule: Every | Cron
) -> None:
    await t.settle(make_job(schedule=schedule))
    await t.clock.turn(2.5)
    before = len(await t.record())
    with t.hung() as hanging:
        await t.clock.turn(1)
        t.clock.jump(-24 * HOUR)
        await t.clock.turn(30)
        await hanging.refuse()
    await t.clock.turn(30)
    assert len(await t.record()) > before + 20


@pytest.mark.usefixtures("watched")
async def test_a_clock_that_is_set_forward_does_not_look_as_if_the_scheduler_stood_still(
    t: Harness, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The watchdog would have the daemon ended, though all is dealt with as soon as the jump is noticed."""
    await t.clock.turn()
    due_ms = t.clock.now_ms() + 1_000
    monkeypatch.setattr(FakeTimers, "next_wake_ms", due_ms)  # of timers that have not noticed
    t.clock.jump(HOUR)
    await t.clock.turn(2)
    assert t.scheduler.lag_ms == 1_000, "time that has really gone by"
    await t.clock.turn(30)
    assert t.scheduler.lag_ms == t.clock.now_ms() - due_ms


async def test_a_job_that_another_daemon_owns_is_not_woken_for(t: Harness) -> None:
    job = make_job()
    job.mine = False
    await t.settle(job)
    await t.clock.turn(120)
    assert await t.record() == []
    job.mine = True
    t.scheduler.watch(job)
    await t.clock.turn(60)
    assert t.pool.story == ["run prices"] * 2, "what has passed, and what is due now"


async def test_a_pause_and_what_was_due_meanwhile_are_told(t: Harness) -> None:
    await t.settle(job := make_job())
    t.live.listener = listener = StoryListener()
    await t.scheduler.pause(job)
    await t.clock.turn(121)
    await t.scheduler.resume(job)
    away = "prices paused x3: the job was paused, disabled or absent"
    assert listener.story == ["prices paused", away, "prices resumed"]
