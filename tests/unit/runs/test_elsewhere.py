"""A node shows the jobs of others as they are on record, while somebody looks."""

from __future__ import annotations

from asyncio import Lock
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from unittest.mock import patch

from spyweb.errors import StoreError
from spyweb.model import JobId, RunState
from spyweb.runs.elsewhere import AGAIN_S, LOOK_S, MOST, PATIENCE_S, Elsewhere
from spyweb.runs.live import LiveJob, LiveJobs
from spyweb.store.model.runs import Change
from tests.fakes.changes import make_end, make_run
from tests.fakes.harness import Harness, StoryListener, harness, make_job

NEWS = JobId("news")


@dataclass
class Onlooker:
    """A node that runs nothing, beside the one of a harness."""

    t: Harness
    live: LiveJobs
    elsewhere: Elsewhere
    heard: StoryListener = field(default_factory=StoryListener)
    reads: int = 0

    def job(self, job: LiveJob) -> LiveJob:
        found = self.live.find(job.id)
        assert found
        return found

    async def look(self) -> None:
        """Look again, as the next request a while later."""
        self.t.clock.jump(LOOK_S)
        self.t.clock.advance(LOOK_S)
        await self.elsewhere.look()


@asynccontextmanager
async def looking_on(*jobs: str) -> AsyncIterator[Onlooker]:
    async with harness() as t:
        live = LiveJobs()
        runs = t.store.runs
        elsewhere = Elsewhere(live=live, store=t.store, turn=Lock(), tasks=t.tasks, clock=t.clock)
        onlooker = Onlooker(t, live, elsewhere)
        live.listener = onlooker.heard
        read = runs.cursors

        def note() -> object:
            onlooker.reads += 1
            return read()

        for name in jobs:
            live.add(make_job(name))
        for job in live:
            job.mine = False
        with patch.object(runs, "cursors", note):
            yield onlooker


async def test_runs_and_pauses_of_other_nodes_are_shown_and_told_once() -> None:
    async with looking_on("prices") as at:
        prices = await at.t.hold(make_job("prices"))
        await at.look()
        seen = at.job(prices)
        assert [run.state for run in seen.under_way] == [RunState.RUNNING]
        assert at.heard.story == ["1 began"]
        await at.look()
        await at.t.finish(1)
        await at.t.scheduler.pause(prices)
        await at.look()
        assert (seen.under_way, seen.waiting_count, seen.cursor.paused) == ([], 0, True)
        assert seen.last == prices.last
        await at.look()
        assert at.heard.story == ["1 began", "1 ended: prices manual success", "prices paused"]


async def test_a_run_that_ends_between_two_looks_and_one_that_outlasts_many_are_both_heard_of() -> None:
    async with looking_on("prices", "news") as at:
        runs = at.t.store.runs
        (long,) = await runs.record(Change(new=[make_run(due_ms=1)]))
        assert long
        await at.look()
        for first in (10, 10 + MOST):
            ids = await runs.record(Change(new=[make_run(NEWS, due_ms=due) for due in range(first, first + MOST)]))
            await runs.record(Change(end=[make_end(run) for run in ids if run]))
            await at.look()
        last = at.job(make_job("news")).last
        assert (last and last.id, len(at.heard.story)) == (ids[-1], 3), "of very many, the last"
        await runs.record(Change(end=[make_end(long)]))
        (short,) = await runs.record(Change(new=[make_run(NEWS, due_ms=5_000)]))
        assert short
        await runs.record(Change(end=[make_end(short)]))
        with patch.object(at.t.store.past_runs, "find", side_effect=StoreError("gone")):
            await at.look()
        assert len(at.heard.story) == 3
        at.t.clock.advance(AGAIN_S)
        await at.look()
        assert at.heard.story[3:] == [
            f"{run} ended: {job} schedule success" for run, job in ((1, "prices"), (short, "news"))
        ]


async def test_nothing_is_read_while_nobody_looks_and_once_for_all_who_do() -> None:
    async with looking_on("prices") as at:
        for _ in range(3):
            await at.elsewhere.look()
        assert at.reads == 1
        at.live.listener = None
        keeping_up = at.t.tasks.create_task(at.elsewhere.keep_up())
        await at.t.clock.turn(LOOK_S * 10)
        assert at.reads == 1
        at.live.listener = at.heard  # a page is open
        await at.t.clock.turn(LOOK_S)
        keeping_up.cancel()
        assert at.reads == 2


async def test_what_was_known_is_shown_where_the_store_refuses_and_jobs_of_this_node_are_left_alone() -> None:
    async with looking_on("prices", "news") as at:
        prices = await at.t.hold(make_job("prices"), make_job("news"))
        at.job(make_job("news")).mine = True
        with patch.object(at.t.store.runs, "open", side_effect=StoreError("gone")):
            await at.look()
            assert at.job(prices).under_way == []
        at.t.clock.advance(AGAIN_S)
        await at.look()
        own = at.job(make_job("news"))
        assert (len(at.job(prices).under_way), own.under_way, own.cursor.due_ms) == (1, [], 0)
        told: list[object] = []
        at.live.ran_elsewhere = told.extend
        await at.t.finish(1)
        await at.look()
        assert told == ["prices"]


async def test_a_job_that_is_being_taken_up_is_left_alone_until_it_is() -> None:
    async with looking_on("prices") as at:
        await at.t.hold(make_job("prices"))
        coming, before = at.job(make_job("prices")), at.job(make_job("prices")).cursor
        await at.elsewhere.turn.acquire()
        looking = at.t.tasks.create_task(at.elsewhere.look())
        await at.t.clock.turn(PATIENCE_S)
        assert looking.done(), "who asks does not wait for it"
        coming.mine = True
        at.elsewhere.turn.release()
        await at.t.clock.turn()
        assert (coming.cursor, coming.elsewhere) == (before, ())
