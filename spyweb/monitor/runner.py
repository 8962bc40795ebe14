"""Carry out the runs of monitor jobs, and keep what outlives a run of each job."""

from __future__ import annotations

from asyncio import TaskGroup
from collections.abc import Mapping

from spyweb.lua.endings import failed
from spyweb.lua.pool import Pool
from spyweb.lua.wire import Why
from spyweb.model import Ending, JobId, Run, RunId
from spyweb.monitor.context import CycleServices, MonitorVersion
from spyweb.monitor.exchange import ProxyRotation
from spyweb.monitor.expectations import judge, judge_preview, streak_before
from spyweb.monitor.hooks import SharedVm
from spyweb.monitor.items import reader_of
from spyweb.monitor.run import MonitorRun
from spyweb.monitor.stages.announce import UnannouncedRecords
from spyweb.ops.dispatcher import OpDispatcher
from spyweb.runs.live import LiveJob


class MonitorRunner:
    """Carries out the monitor jobs of a daemon for runs/runner.py."""

    def __init__(self, services: CycleServices, pool: Pool) -> None:
        self._services = services
        self._pool = pool
        self._versions: dict[JobId, MonitorVersion] = {}
        self._unannounced: dict[JobId, UnannouncedRecords] = {}
        self._runs: dict[RunId, MonitorRun] = {}

    async def run(self, job: LiveJob, run: Run, host: OpDispatcher, ctx: Mapping[str, object]) -> Ending:
        """Carry out a run; the ctx of each cycle begins with `ctx`."""
        version = self._version(job)
        if version is None:
            return failed(f"{job.id} is no monitor job any more")
        unannounced = self._unannounced.setdefault(job.id, UnannouncedRecords(job.id, self._services.records))
        try:
            with self._pool.holding(version.code):
                async with TaskGroup() as tasks:
                    self._runs[run.id] = monitor_run = MonitorRun(
                        services=self._services,
                        pool=self._pool,
                        version=version,
                        run=run,
                        host=host,
                        unannounced=unannounced,
                        ctx=ctx,
                        tasks=tasks,
                    )
                    ending = await monitor_run.execute()
            return await self._judged(monitor_run, ending)
        finally:
            del self._runs[run.id]
            if job.gone:
                self.forget(job.id)

    async def _judged(self, monitor_run: MonitorRun, ending: Ending) -> Ending:
        """Return the ending, with a note where this run and those before it gave less than expected."""
        version, run, services = monitor_run.version, monitor_run.run, self._services
        if ending.items_found is None:
            return ending
        streak = version.streak or await streak_before(version.monitor, run, ending, services.runs, services.records)
        if streak is None:
            return ending
        if monitor_run.is_preview:
            return judge_preview(version.monitor, ending, streak)
        version.streak = streak
        return judge(version.monitor, run, ending, streak)

    def cancel(self, run: RunId, why: Why) -> None:
        """Cancel a run; one that is not known has ended already."""
        monitor_run = self._runs.get(run)
        if monitor_run:
            monitor_run.cancel(why)

    def forget(self, job: JobId) -> None:
        """Drop what outlives the runs of a job that is gone, unless one of them is still under way."""
        if all(monitor_run.run.job != job for monitor_run in self._runs.values()):
            self._versions.pop(job, None)
            self._unannounced.pop(job, None)

    def _version(self, job: LiveJob) -> MonitorVersion | None:
        """Return the version that a new run belongs to.

        Settings may change and the Lua files not: then hooks still take turns, since the VM is the same.
        """
        monitor = job.spec.monitor
        if monitor is None:
            return None
        known = self._versions.get(job.id)
        if known and known.spec is job.spec and known.code is job.code:
            return known
        version = self._versions[job.id] = MonitorVersion(
            spec=job.spec,
            monitor=monitor,
            code=job.code,
            reader=reader_of(monitor),
            proxies=ProxyRotation(monitor.proxies, self._services.random),
            vm=known.vm if known and known.code is job.code else SharedVm(),
        )
        return version
