"""Which jobs are run because another is failing; that jobs are paused is tested with the watcher as well."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass

import pytest
from msgspec import structs, to_builtins
from msgspec.structs import replace

from spyweb.alerts.measures import PAUSED_TOGETHER, JobMeasures, tells_nothing
from spyweb.errors import StoreError
from spyweb.incidents.policy import AlertPolicy
from spyweb.incidents.truth import FAILING, Paused, Sign
from spyweb.model import After, JobId, Never
from spyweb.runs.live import LiveJob
from spyweb.runs.runner import RunRequest, by_hand
from spyweb.store.model.incidents import SubjectChange
from tests.fakes.harness import Harness, harness, make_job

NET, WEB = JobId("net"), JobId("web")
AT_ONCE = AlertPolicy(depends_on=("job:net", "job:gone"))


@dataclass
class Measured:
    harness: Harness
    measures: JobMeasures

    def job(self, job: JobId) -> LiveJob:
        found = self.harness.live.find(job)
        assert found
        return found

    async def open(self, job: str = "web", since_s: float = 0) -> None:
        """Let an incident of a job open that began to fail some time ago."""
        since_ms = self.harness.clock.now_ms() - round(since_s * 1000)
        self.measures.take(
            SubjectChange(
                subject=f"job:{job}", is_known=True, incident=7, opened=True, signs={FAILING: Sign(since_ms, "x")}
            )
        )
        await self.measures.run_parents()
        await self.harness.clock.turn(0.1)

    async def runs(self) -> list[object]:
        return [to_builtins(run.trigger) for run in await self.harness.store.runs.list(NET, limit=99)]


@asynccontextmanager
async def measured(**net: object) -> AsyncIterator[Measured]:
    """A job that depends on another, both started by hand alone."""
    async with harness() as h:
        await h.settle(make_job("net", schedule=Never(), **net), make_job("web", schedule=Never(), alerts=AT_ONCE))
        await h.clock.turn(60)
        yield Measured(h, JobMeasures(h.live, h.scheduler.pause_together, h.runner.start_by_hand))


@pytest.fixture
async def m() -> AsyncIterator[Measured]:
    async with measured() as opened:
        yield opened


async def test_what_jobs_depend_on_is_run_once_as_their_incidents_open_however_many_there_are(m: Measured) -> None:
    others = [make_job(f"web{number}", schedule=Never(), alerts=AT_ONCE) for number in range(5)]
    await m.harness.settle(*others)
    failing = {FAILING: Sign(m.harness.clock.now_ms(), "x")}
    for name in [f"job:{job.id}" for job in others] + ["job:web"] * 2:
        m.measures.take(SubjectChange(subject=name, is_known=True, incident=3, opened=True, signs=failing))
    await m.open()
    assert await m.runs() == [{"type": "depends", "job": "web0", "incident_id": 3}]
    await m.measures.run_parents()
    await m.harness.clock.turn(60)
    assert len(await m.runs()) == 1


async def test_one_that_has_run_since_the_other_began_to_fail_is_not_run_again(m: Measured) -> None:
    m.harness.runner.start(m.job(NET), [by_hand()])
    await m.harness.clock.turn(30)
    await m.open(since_s=60)
    assert len(await m.runs()) == 1
    await m.open(since_s=10)
    assert len(await m.runs()) == 2


async def test_a_run_of_an_earlier_daemon_counts_too(m: Measured) -> None:
    m.harness.runner.start(m.job(NET), [by_hand()])
    await m.harness.clock.turn(30)
    net = m.job(NET)
    net.started_ms = 0
    (net.last,) = await m.harness.store.runs.list(NET, limit=1)
    assert tells_nothing(net, m.harness.clock.now_ms() - 60_000)
    assert not tells_nothing(net, m.harness.clock.now_ms())


@pytest.mark.parametrize("why", ["paused", "disabled", "gone", "running", "elsewhere"])
async def test_one_that_may_not_run_or_runs_already_is_left_alone(why: str) -> None:
    async with measured(enabled=why != "disabled") as m:
        net = m.job(NET)
        net.gone, net.mine = why == "gone", why != "elsewhere"
        if why == "paused":
            await m.harness.scheduler.pause(net)
        if why == "running":
            m.harness.pool.held.add(NET)
            m.harness.runner.start(net, [by_hand()])
            await m.harness.clock.turn(0.1)
        before = len(await m.runs())
        await m.open()
        assert len(await m.runs()) == before


async def test_one_that_comes_before_the_other_is_not_run_again_with_all_that_follows_it(m: Measured) -> None:
    web = m.job(WEB)
    web.spec = replace(web.spec, after=(After(job=NET),))
    await m.open()
    assert await m.runs() == []


async def test_where_the_daemon_stops_or_the_store_refuses_nothing_is_run_and_nobody_is_held_up() -> None:
    for trouble in (None, StoreError("disk full")):
        async with measured() as m:

            async def refuse(_job: LiveJob, _request: RunRequest, trouble: StoreError | None = trouble) -> None:
                if trouble:
                    raise trouble

            if trouble is None:
                await m.harness.runner.drain(0)
            else:
                m.measures = JobMeasures(m.harness.live, m.harness.scheduler.pause_together, refuse)
            await m.open()
            assert await m.runs() == []


async def test_incidents_of_other_subjects_start_nothing(m: Measured) -> None:
    signs = {"down": Sign(0, "x")}
    assert not m.measures.take(SubjectChange(subject="channel:web", is_known=True, opened=True, signs=signs))
    await m.measures.run_parents()
    assert await m.runs() == []


async def test_a_job_that_was_paused_before_the_crash_is_noted_as_paused_after_it(m: Measured) -> None:
    await m.harness.scheduler.pause_together({m.job(NET).id: "3 failures in a row"}, [m.job(NET)])
    m.measures.load({"job:net": 3, "job:gone": 3})
    assert await m.measures.pause() == [("job:net", Paused("3 failures in a row"))]
    m.measures.load({"job:net": 4})
    assert await m.measures.pause() == [("job:net", Paused())], "it failed by hand meanwhile"


async def test_very_many_jobs_are_paused_in_few_commits(m: Measured) -> None:
    jobs = [make_job(f"job{number}", schedule=Never()) for number in range(2 * PAUSED_TOGETHER + 1)]
    await m.harness.settle(*jobs)
    m.measures.load({f"job:{job.id}": 5 for job in jobs})
    counts = []
    while noted := await m.measures.pause():
        counts.append(len(noted))
        m.measures.noted(subject for subject, _ in noted)
    assert counts == [PAUSED_TOGETHER, PAUSED_TOGETHER, 1]
    assert all(job.cursor.paused_for == "5 failures in a row" for job in jobs)
    assert not m.job(NET).cursor.paused


async def test_a_job_that_is_not_on_its_schedule_yet_is_paused_later(m: Measured) -> None:
    net = m.job(NET)
    cursor, net.cursor = net.cursor, structs.replace(net.cursor, schedule="")
    m.measures.load({"job:net": 3})
    assert await m.measures.pause() == []
    net.cursor = cursor
    assert len(await m.measures.pause()) == 1
    assert net.cursor.paused


async def test_a_job_that_was_resumed_after_its_last_failure_is_not_paused_for_it(m: Measured) -> None:
    before_ms = m.harness.clock.now_ms()
    await m.harness.scheduler.pause(m.job(WEB))
    await m.harness.clock.turn(1)
    await m.harness.scheduler.resume(m.job(WEB))
    m.measures.take(SubjectChange(subject="job:web", is_known=True, pauses=3, at_ms=before_ms))
    assert await m.measures.pause() == [("job:web", Paused(""))]
    assert not m.job(WEB).cursor.paused
    m.measures.take(SubjectChange(subject="job:web", is_known=True, pauses=4, at_ms=m.harness.clock.now_ms()))
    assert await m.measures.pause() == [("job:web", Paused("4 failures in a row"))]
    assert m.job(WEB).cursor.paused
