"""The audit against the truth of random histories: edits, pauses, removals, restarts, clocks that are set, losses."""

from __future__ import annotations

from collections import Counter
from random import Random

import pytest
from msgspec.structs import replace

from spyweb.lua.wire import Why
from spyweb.model import Cron, Every, JobId, JobSpec, Misfire, MisfirePolicy, Outcome, Overlap, Run, RunState, Schedule
from spyweb.runs.live import LiveJob
from spyweb.settings.units import DAY_MS
from tests.fakes.audits import audit, counts, gaps
from tests.fakes.clock import FakeClock
from tests.fakes.harness import Harness, harness, make_job
from tests.fakes.memory_store import MemoryStore

JOB = JobId("prices")
SCHEDULES: list[Schedule] = [
    Every(period_ms=45_000),
    Every(period_ms=60_000),
    Every(period_ms=7 * 60_000),
    Cron(expression="* * * * *", timezone="UTC"),
    Cron(expression="*/7 1-5 * * *", timezone="Europe/Berlin"),
    Cron(expression="*/20 * * * * *", timezone="Asia/Kathmandu"),
]
MISFIRES = [Misfire(policy=policy, limit=3) for policy in MisfirePolicy]
MOST_S = 1_800.0


class World:
    """A job whose daemon, settings and clock change at random."""

    def __init__(self, seed: int, *, sets_clock: bool) -> None:
        self.chance, self.clock = Random(seed), FakeClock()
        self.store = MemoryStore(self.clock)
        self.sets_clock = sets_clock
        self.spec = make_job().spec

    async def live(self, days: int) -> None:
        for _ in range(days):
            async with harness(self.store, self.clock) as t:
                watching = t.tasks.create_task(t.scheduler.watch_the_clock())
                await self.begin(t)
                for _ in range(self.chance.randint(1, 6)):
                    await self.chance.choice([self.wait, self.wait, self.edit, self.pause, self.remove, self.refuse])(t)
                    self.set_clock()
                await self.wait(t)
                t.pool.held.clear()
                await self.stop_runs(t)
                watching.cancel()
            self.clock.advance(self.chance.choice([0, MOST_S]) * self.chance.random())
            self.set_clock()

    def set_clock(self) -> None:
        if self.sets_clock and self.chance.random() < 0.3:
            self.clock.jump(
                self.chance.choice([-1, 1]) * self.chance.choice([5, 900, 2 * MOST_S]) * self.chance.random()
            )

    def next_spec(self) -> JobSpec:
        pick = self.chance.choice
        self.spec = replace(
            self.spec,
            schedule=pick(SCHEDULES),
            misfire=pick(MISFIRES),
            overlap=pick(list(Overlap)),
            jitter_ms=pick([0, 0, 30_000]),
        )
        return self.spec

    async def begin(self, t: Harness) -> None:
        job = make_job()
        job.spec = self.spec
        await t.settle(job)

    async def wait(self, t: Harness) -> None:
        if self.chance.random() < 0.3:
            t.pool.held ^= {JOB}
            await self.stop_runs(t)
        await t.clock.turn(self.chance.random() * MOST_S)

    async def stop_runs(self, t: Harness) -> None:
        await t.clock.turn()
        for run in [*t.live.running()]:
            t.pool.cancel(run.id, Why.STOPPED)
        await t.clock.turn()

    async def edit(self, t: Harness) -> None:
        job = self.job(t)
        await t.scheduler.catch_up([job])
        t.live.remove(JOB)
        after = LiveJob(spec=self.next_spec(), code=job.code, digest=job.digest, cursor=job.cursor)
        after.recorded, after.reached_ms, after.queue = job.recorded, job.reached_ms, job.queue
        after.kept_since_ms = job.kept_since_ms
        t.live.add(after)
        await t.scheduler.activate([after], {})
        await self.wait(t)

    async def pause(self, t: Harness) -> None:
        await t.scheduler.pause(self.job(t))
        await self.wait(t)
        await t.scheduler.resume(self.job(t))

    async def remove(self, t: Harness) -> None:
        job = self.job(t)
        await t.scheduler.deactivate([job])
        t.delete(job)
        await t.clock.turn(self.chance.random() * MOST_S)
        if self.chance.random() < 0.5:
            self.next_spec()
        await self.begin(t)

    async def refuse(self, t: Harness) -> None:
        with t.refused():
            await t.clock.turn(self.chance.random() * 300)
        await t.clock.turn(10)

    def job(self, t: Harness) -> LiveJob:
        found = t.live.find(JOB)
        assert found is not None
        return found


def kind_of(run: Run, late_ms: int) -> str:
    if run.outcome in (Outcome.MISSED, Outcome.PAUSED):
        return run.outcome.value
    if run.outcome is Outcome.SKIPPED or run.started_ms is None:
        return "waiting" if run.state is RunState.WAITING else "skipped"
    return "ran" if run.started_ms - (run.due_ms or 0) <= late_ms else "late"


@pytest.mark.parametrize("seed", range(8))
async def test_the_audit_counts_what_is_on_record_and_finds_each_row_that_was_lost(seed: int) -> None:
    world = World(seed, sets_clock=False)
    await world.live(3)
    async with harness(world.store, world.clock) as t:
        await world.begin(t)
        await t.clock.turn(600)
        until_ms = t.clock.now_ms() - 60_000 - world.spec.jitter_ms
        rows = [row for row in await t.store.runs.list(JOB, limit=100_000) if row.due_ms and row.attempt == 1]
        truth = Counter[str]()
        for row in rows:
            if row.due_ms is not None and row.due_ms <= until_ms:
                truth[kind_of(row, 1_000 + world.spec.jitter_ms)] += row.count
        found = await audit(t)
        assert gaps(found) == []
        assert counts(found) == truth

        ran = [row for row in rows if row.last_due_ms is None and row.due_ms is not None and row.due_ms <= until_ms]
        lost = world.chance.sample(ran, min(3, len(ran)))
        for row in lost:
            world.store.execute("UPDATE run SET due_ms = NULL WHERE id = ?", row.id)
        found = await audit(t)
        assert sum(count for _, _, count in gaps(found)) == len(lost)
        assert {row.due_ms for row in lost} >= {first for first, _, _ in gaps(found)}
        assert found.due == truth.total()


@pytest.mark.parametrize("seed", range(8))
async def test_a_clock_that_is_set_at_random_leaves_nothing_unexplained(seed: int) -> None:
    world = World(seed, sets_clock=True)
    await world.live(3)
    async with harness(world.store, world.clock) as t:
        await world.begin(t)
        await t.clock.turn(1_200)
        assert gaps(await audit(t, since_ms=t.clock.now_ms() - 3 * DAY_MS)) == []
