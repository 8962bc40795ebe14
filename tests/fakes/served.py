"""A daemon's service over jobs on a fake clock, and the state of the project's files as a test wants it."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from spyweb.model import Ending, JobId, RunId
from spyweb.runs.live import LiveJob
from spyweb.runs.runner import by_hand
from spyweb.subjects.health.service import HealthService
from spyweb.subjects.jobs.service import JobDetails, JobService, OverviewService
from spyweb.subjects.runs.service import OnceService, PastRunsService, RunService
from spyweb.subjects.when.service import CalendarService, MaintenanceService
from tests.fakes.daemon_service import FakeReloader, make_vitals
from tests.fakes.harness import Harness, harness


@dataclass(slots=True, kw_only=True)
class Served:
    t: Harness
    root: Path
    reloader: FakeReloader
    jobs: JobService
    health: HealthService
    past: PastRunsService
    overview: OverviewService
    details: JobDetails
    runs: RunService
    calendar: CalendarService
    maintenance: MaintenanceService

    def job(self, job: JobId) -> LiveJob:
        found = self.t.live.find(job)
        assert found is not None
        return found

    async def start(self, job: JobId) -> RunId:
        """Start a run by hand."""
        (run,) = await self.t.runner.start(self.job(job), [by_hand()])
        await self.t.clock.turn()
        assert run is not None
        return run

    async def run(self, job: JobId, *endings: Ending) -> None:
        """Let a job run by hand, to these endings."""
        self.t.pool.endings[job] = list(endings)
        for _ in endings:
            await self.start(job)


@asynccontextmanager
async def serving(root: Path, *live_jobs: LiveJob) -> AsyncIterator[Served]:
    async with harness() as t:
        reloader = FakeReloader(root)
        reloader.broken, reloader.warnings = {}, ()
        jobs = JobService(
            root=root,
            timezone="UTC",
            live=t.live,
            scheduler=t.scheduler,
            reloader=reloader,
            clock=t.clock,
            vms_of=lambda job: len(job),
        )
        health = HealthService(live=t.live, states=jobs.states, vitals=make_vitals, settings=lambda: reloader.settings)
        past = PastRunsService(root=root, live=t.live, store=t.store, clock=t.clock)
        overview = OverviewService(jobs=jobs, health=health, store=t.store)
        details = JobDetails(jobs=jobs, past_runs=t.store.past_runs, overview=overview)
        await t.settle(*live_jobs)
        yield Served(
            t=t,
            root=root,
            reloader=reloader,
            jobs=jobs,
            health=health,
            past=past,
            overview=overview,
            details=details,
            runs=RunService(runner=t.runner, past=past, once=OnceService(t.store.runs, t.clock)),
            calendar=CalendarService(past=past),
            maintenance=MaintenanceService(
                live=t.live,
                planned=lambda: reloader.maintenance,
                store=t.store.incidents,
                uptime=t.store.uptime,
                clock=t.clock,
            ),
        )
