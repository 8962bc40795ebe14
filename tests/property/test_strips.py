"""Whatever happens to jobs, strips that are kept are the same as strips that are read anew."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from spyweb.model import Failure, JobId, Outcome, RunId, RunState
from spyweb.runs.live import LiveJobs
from spyweb.store.model.runs import Begin, Change, StripWish
from spyweb.subjects.jobs.overview import SHOWN_RUNS, JobStrip, Strips, may_be_failing
from spyweb.views.runs import LATE_MS
from tests.fakes.changes import NEWS, PRICES, make_end, make_run, make_skipped
from tests.fakes.clock import FakeClock
from tests.fakes.harness import make_job
from tests.fakes.memory_store import MemoryStore
from tests.fakes.stores import until_told

JOBS = [PRICES, NEWS]
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("start"), st.sampled_from(JOBS), st.sampled_from([RunState.RUNNING, RunState.WAITING])),
        st.tuples(st.just("begin"), st.integers(0, 5), st.none()),
        st.tuples(st.just("end"), st.integers(0, 5), st.sampled_from([*Outcome][:4])),
        st.tuples(st.just("cancel"), st.integers(0, 5), st.none()),
        st.tuples(st.just("skip"), st.sampled_from(JOBS), st.sampled_from(["down", "late"])),
        st.tuples(st.just("look"), st.none(), st.none()),
    ),
    max_size=120,
)


class World:
    def __init__(self) -> None:
        self.store = MemoryStore(FakeClock())
        live = LiveJobs()
        for job in JOBS:
            live.add(make_job(job))
        self.strips = Strips(live)
        self.store.runs.on_recorded(self.strips.hear)
        self.open: list[RunId] = []
        self.due = 1_000

    async def take(self, what: str, whose: object, how: object) -> None:
        change = self.change(what, whose, how)
        if change is not None:
            (*ids,) = await self.store.runs.record(change)
            self.open += [run for run in ids if run is not None]
        await until_told()
        if what == "look":
            await self.fill()

    def change(self, what: str, whose: object, how: object) -> Change | None:
        if what == "skip":
            return Change(skipped=[make_skipped(JobId(str(whose)), reason=str(how))])
        if what == "start":
            self.due += 1_000
            assert isinstance(how, RunState)
            return Change(new=[make_run(JobId(str(whose)), due_ms=self.due, state=how)])
        if not self.open or not isinstance(whose, int):
            return None
        run = self.open[whose % len(self.open)]
        if what == "begin":
            return Change(begin=[Begin(run=run, started_ms=self.due + 5_000)])
        self.open.remove(run)
        end = make_end(run, ended_ms=self.due + 9_000)
        if what == "cancel":
            return Change(end=[replace(end, outcome=Outcome.FAILED, failure=Failure.CANCELLED)])
        assert isinstance(how, Outcome)
        return Change(end=[replace(end, outcome=how)])

    async def fill(self) -> None:
        for job in self.strips.missing():
            self.strips.of_job[job] = await self.read(job)

    async def read(self, job: JobId) -> JobStrip:
        found = await self.store.past_runs.strips([StripWish(job, LATE_MS)], SHOWN_RUNS)
        series = await self.store.past_runs.failing([job]) if may_be_failing(found[job].marks) else {}
        return JobStrip(found[job], series.get(job), self.strips.changes[job])


@given(STEPS)
def test_strips_that_are_kept_are_those_that_are_read(steps: Sequence[tuple[str, object, object]]) -> None:
    async def live_through() -> None:
        world = World()
        await world.fill()
        for step in steps:
            await world.take(*step)
        await world.fill()
        for job in JOBS:
            assert world.strips.of_job[job] == await world.read(job)

    asyncio.run(live_through())
