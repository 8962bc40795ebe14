"""The monitor jobs of a daemon: their runs under way, and what outlives a run of each."""

from __future__ import annotations

from asyncio import TaskGroup
from collections.abc import Mapping

from spyweb.lua.wire import Why
from spyweb.model import Ending, JobId, Run, RunId
from spyweb.monitor.carry_out import Cycles, Errand, Machine, Version
from spyweb.monitor.context import CycleServices
from spyweb.monitor.expectations import judge, judge_preview, streak_before
from spyweb.monitor.iterate import Iteration
from spyweb.monitor.rules.items import reader_of
from spyweb.monitor.rules.proxies import ProxyRotation
from spyweb.monitor.talk import SharedVm
from spyweb.monitor.unannounced import UnannouncedRecords
from spyweb.runs.attempt import DEBUG, CountingHost, failed
from spyweb.runs.live import LiveJob


class Monitors:
    """What carries out the runs of monitor jobs (runs/attempt.py)."""

    def __init__(self, services: CycleServices, machine: Machine) -> None:
        self._services = services
        self._machine = machine
        self._versions: dict[JobId, Version] = {}
        self._owed: dict[JobId, UnannouncedRecords] = {}
        self._iterations: dict[RunId, Iteration] = {}

    async def iterate(self, job: LiveJob, run: Run, host: CountingHost, ctx: Mapping[str, object]) -> Ending:
        version = self._version(job)
        if version is None:
            return failed(f"{job.id} is no monitor job any more")
        errand = Errand(
            version=version,
            run=run,
            host=host,
            owed=self._owed.setdefault(job.id, UnannouncedRecords(job.id, self._services.records)),
            ctx=ctx,
            is_preview=bool(run.trigger.get(DEBUG)),
        )
        try:
            with self._machine.holding(version.code):
                async with TaskGroup() as tasks:
                    cycles = Cycles(self._services, self._machine, errand, tasks)
                    self._iterations[run.id] = iteration = Iteration(cycles, errand, self._services.clock)
                    ending = await iteration.run()
            return await self._judged(errand, ending)
        finally:
            del self._iterations[run.id]
            if job.gone:
                self.forget(job.id)

    async def _judged(self, errand: Errand, ending: Ending) -> Ending:
        """Look at what its pages gave, and at the runs before it."""
        version, run, services = errand.version, errand.run, self._services
        if ending.items_found is None:
            return ending
        streak = version.streak or await streak_before(version.monitor, run, ending, services.runs, services.records)
        if streak is None:
            return ending
        if errand.is_preview:
            return judge_preview(version.monitor, ending, streak)
        version.streak = streak
        return judge(version.monitor, run, ending, streak)

    def cancel(self, run: RunId, why: Why) -> None:
        """Have it end; a run that is not known has ended already."""
        iteration = self._iterations.get(run)
        if iteration:
            iteration.cancel(why)

    def forget(self, job: JobId) -> None:
        """It is gone: nothing outlives the last of its runs."""
        if all(iteration.job != job for iteration in self._iterations.values()):
            self._versions.pop(job, None)
            self._owed.pop(job, None)

    def _version(self, job: LiveJob) -> Version | None:
        """Settings may change and the Lua files not: then hooks still take turns, since the VM is the same."""
        monitor = job.spec.monitor
        if monitor is None:
            return None
        known = self._versions.get(job.id)
        if known and known.spec is job.spec and known.code is job.code:
            return known
        version = self._versions[job.id] = Version(
            spec=job.spec,
            monitor=monitor,
            code=job.code,
            reader=reader_of(monitor),
            proxies=ProxyRotation(monitor.proxies, self._services.random),
            turn=known.turn if known and known.code is job.code else SharedVm(),
        )
        return version
