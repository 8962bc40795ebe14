"""What is measured of a running daemon, that nothing is late for it, and that each part proves its progress."""

from __future__ import annotations

import asyncio
from asyncio import Future
from typing import NoReturn

import pytest

from spyweb.alerts.channels import AttemptTallies
from spyweb.errors import StoreError
from spyweb.histogram import SHORT_SECONDS, Histogram
from spyweb.incidents.policy import Level
from spyweb.model import Ending, JobId, Outcome
from spyweb.ops.world import Metrics
from spyweb.runs.counters import RunCounters
from spyweb.runs.live import LiveJobs
from spyweb.specs.parse import job_id
from spyweb.subjects.health.service import OTHERS, STOPPING, MetricsService, ReadinessService, is_failing
from spyweb.subjects.health.views import view_health
from spyweb.web.api.services import STARTING
from tests.fakes.changes import run_once
from tests.fakes.clock import FakeClock, settle
from tests.fakes.daemon_service import make_metrics, make_readiness, make_run, make_vitals, three_states
from tests.fakes.harness import Harness, harness, make_job
from tests.fakes.incidents import fail, succeed
from tests.fakes.memory_store import MemoryStore
from tests.fakes.pool import FAILED

PRICES, NEWS = JobId("prices"), JobId("news")


HEALTH = view_health(make_vitals(), three_states())


def of(t: Harness) -> MetricsService:
    return make_metrics(t.live, counters=t.runner.counters, store=t.store, clock=t.clock)


async def test_each_job_is_told_with_its_outcomes_and_its_latest_success() -> None:
    async with harness() as t:
        t.pool.endings[PRICES] = [FAILED]
        await t.settle(make_job("news"), make_job("prices"))
        await t.clock.turn(61)
        meters = await of(t).measure(HEALTH)
        jobs = {job.job: job for job in meters.jobs}
    assert jobs["prices"].ended[Outcome.FAILED] == 1
    assert jobs["news"].ended.keys() == {Outcome.SUCCESS}
    assert (jobs["prices"].is_failing, jobs["news"].is_failing) == (False, False)
    assert jobs["news"].succeeded_ms is not None
    assert meters.lateness.count == sum(job.started for job in meters.jobs)


async def test_a_success_of_before_the_start_is_known_from_the_store() -> None:
    async with harness() as t:
        run = await run_once(t.store, PRICES)
        t.live.add(make_job("prices"))
        (job,) = (await of(t).measure(HEALTH)).jobs
        (ended,) = await t.store.runs.list(PRICES)
    assert ended.id == run
    assert job.succeeded_ms == ended.ended_ms


async def test_jobs_beyond_the_limit_are_told_together_and_none_of_them_alone() -> None:
    live, counters = LiveJobs(), RunCounters(most_jobs=1)
    for name in ("prices", "news"):
        live.add(make_job(name))
    for job in (PRICES, NEWS, NEWS):
        counters.started(make_run(1, job=job), None)
    counters.others.succeeded_ms = 5
    meters = await make_metrics(live, counters=counters).measure(HEALTH)
    assert [(job.job, job.started) for job in meters.jobs] == [("prices", 1), (OTHERS, 2)]
    assert meters.jobs[1].succeeded_ms is None


async def test_ops_are_told_by_name_with_their_errors_and_times() -> None:
    counts, times = Metrics(), {name: Histogram(SHORT_SECONDS) for name in ("sleep", "store_get")}
    counts.calls["store_set"] = 3
    counts.errors["store_set"] = counts.storage_errors["store_set"] = 1
    times["sleep"].observe(1.5)
    meters = await make_metrics(op_counts=counts, op_times=times).measure(HEALTH)
    assert meters.ops.calls == {"store_set": 3}
    assert [*meters.op_times] == ["sleep"]
    assert meters.ops.errors == meters.ops.storage_errors == {"store_set": 1}
    assert meters.op_times["sleep"].sum == 1.5


@pytest.mark.parametrize(
    ("outcome", "failing"), [(Outcome.SUCCESS, False), (Outcome.FAILED, True), (Outcome.LOST, True), (None, None)]
)
def test_a_job_is_failing_while_its_latest_run_has_failed(outcome: Outcome | None, failing: bool | None) -> None:
    assert is_failing(make_run(outcome=outcome)) is failing
    assert is_failing(None) is None


def test_no_job_can_have_the_name_of_the_others() -> None:
    assert job_id(OTHERS) != OTHERS


async def test_what_is_measured_does_not_change_any_more() -> None:
    counters, live = RunCounters(), LiveJobs()
    live.add(make_job("prices"))
    counters.ended(make_run(), has_lasted=True)
    meters = await make_metrics(live, counters=counters).measure(HEALTH)
    counters.ended(make_run(), has_lasted=True)
    assert meters.jobs[0].ended == {Outcome.SUCCESS: 1}
    assert meters.duration.count == 1


async def test_a_store_that_refuses_is_no_reason_to_tell_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> NoReturn:
        raise StoreError("full")

    store = MemoryStore(FakeClock())
    monkeypatch.setattr(store.outbox, "backlog", refuse)
    assert (await make_metrics(store=store).measure(HEALTH)).incidents is not None
    monkeypatch.setattr(store.incidents, "all_open", refuse)
    meters = await make_metrics(store=store).measure(HEALTH)
    assert (meters.backlog, meters.incidents) == (None, None)
    assert meters.vitals.uptime_s == 12.5


async def test_open_incidents_are_counted_by_level_and_channels_are_those_of_the_settings() -> None:
    clock = FakeClock()
    store, tallies = MemoryStore(clock), AttemptTallies(clock)
    await fail(store.incidents, "prices")
    await fail(store.incidents, "news")
    await fail(store.incidents, "backup")
    await succeed(store.incidents, "backup")
    tallies.attempted("ops", "answered 500")
    tallies.attempted("gone", None)
    service = make_metrics(store=store, tallies=lambda: tallies.among(["ops", "new"]))
    meters = await service.measure(HEALTH)
    assert meters.incidents == {Level.INFO: 0, Level.WARNING: 2, Level.CRITICAL: 0}
    told = {name: (each.sent, each.failed) for name, each in meters.channels.items()}
    assert told == {"ops": (0, 1), "new": (0, 0)}


class ProbedStore(MemoryStore):
    """Answers its probes when the test says so."""

    def __init__(self, clock: FakeClock) -> None:
        super().__init__(clock)
        self.probes: list[Future[None]] = []

    def probe(self) -> Future[None]:
        self.probes.append(Future())
        return self.probes[-1]


async def test_a_daemon_is_not_ready_while_it_starts_nor_when_it_stops() -> None:
    clock = FakeClock()
    service = ReadinessService(store=MemoryStore(clock), clock=clock, vitals=make_vitals)
    assert (await service.look()).reasons == [STARTING]
    service.stage = ""
    assert (await service.look()).ready
    service.stage = STOPPING
    assert (await service.look()).reasons == [STOPPING]


async def test_however_many_ask_the_writer_is_probed_once_a_second() -> None:
    clock = FakeClock()
    store = ProbedStore(clock)
    service = make_readiness(store, clock)
    asking = [asyncio.ensure_future(service.look()) for _ in range(50)]
    await settle()
    store.probes[0].set_result(None)
    assert all(readiness.ready for readiness in await asyncio.gather(*asking))
    await clock.turn(0.9)
    await service.look()
    assert len(store.probes) == 1

    await clock.turn(0.2)
    again = asyncio.ensure_future(service.look())
    await settle()
    assert len(store.probes) == 2
    store.probes[1].set_result(None)
    assert (await again).ready


async def test_a_writer_that_does_not_answer_is_a_reason_and_so_is_one_that_refuses_without_its_path() -> None:
    clock = FakeClock()
    store = ProbedStore(clock)
    asking = asyncio.ensure_future(make_readiness(store, clock).look())
    await clock.turn(2.1)
    assert (await asking).reasons == ["the writer has not answered within 2 s"]
    assert store.probes[0].cancelled()
    asking = asyncio.ensure_future(make_readiness(store, clock).look())
    await settle()
    store.probes[1].set_exception(StoreError("/home/me/data/spyweb.db: disk full"))
    assert (await asking).reasons == ["nothing is stored: StoreError"]


async def test_a_check_is_told_with_what_its_latest_run_has_measured() -> None:
    async with harness() as t:
        site = make_job("site", check="http")
        t.pool.endings[site.id] = [Ending(outcome=Outcome.SUCCESS, result={"latency": 85.4, "status": 200}), FAILED]
        await t.settle(site, make_job("prices"))
        told = []
        for _ in range(2):
            await t.start(site)
            told += [job for job in (await of(t).measure(HEALTH)).jobs if job.check]
    assert [(job.job, job.check, job.result and job.result.latency, job.is_failing) for job in told] == [
        ("site", "http", 85.4, False),
        ("site", "http", None, True),
    ]
