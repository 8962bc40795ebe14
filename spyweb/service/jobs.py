"""The jobs of a running daemon as its clients see them: found by name, shown, paused, and what is due next."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import takewhile
from pathlib import Path

from msgspec import structs

from spyweb.clock import Clock
from spyweb.cooperative import Steps, run_at_once, run_in_slices
from spyweb.errors import Problem
from spyweb.model import JobId, JobSpec
from spyweb.reload.swap import Reloader
from spyweb.runs.live import LiveJob, LiveJobs
from spyweb.scheduler.scheduler import Scheduler
from spyweb.schedules.due import earliest, upcoming
from spyweb.settings import Settings
from spyweb.views.jobs import (
    JobState,
    JobView,
    MaySee,
    NextRun,
    anything,
    broken_job,
    find_job,
    join_problems,
    log_file,
    next_run,
    no_such_job,
    state_of,
    view_job,
    zone_of,
)


@dataclass(slots=True, kw_only=True)
class JobService:
    root: Path
    timezone: str
    live: LiveJobs
    scheduler: Scheduler
    reloader: Reloader
    clock: Clock
    vms_of: Callable[[JobId], int]

    def find(self, name_or_id: str) -> JobId | None:
        return find_job((job.spec for job in self.live), name_or_id)

    @property
    def settings(self) -> Settings:
        return self.reloader.settings

    def spec(self, job: str | None) -> JobSpec | None:
        """Return the settings of a job that is loaded."""
        found = self.live.find(JobId(job)) if job else None
        return found.spec if found else None

    def paused_for(self, job: JobId | None) -> str:
        """Return why a job was paused by itself; nothing where somebody has paused it, or nobody."""
        found = self.live.find(job) if job else None
        return found.cursor.paused_for if found else ""

    def no_such_job(self, name_or_id: str) -> str:
        """Say that there is no such job, and which one may be meant."""
        return no_such_job(self.broken_views(), name_or_id, [job.id for job in self.live])

    def find_any(self, name_or_id: str) -> JobId | None:
        """Return the job of this name or id, also one that does not load."""
        return self.find(name_or_id) or next((job for job, _ in self._broken() if job == name_or_id), None)

    def names(self) -> dict[JobId, str]:
        """Return the name of each job, also of those that don't load."""
        return {**{job: job for job, _ in self._broken()}, **{job.id: job.spec.name for job in self.live}}

    def jobs(self) -> list[JobView]:
        return run_at_once(self._all_views())

    async def all_jobs(self) -> list[JobView]:
        """Return all jobs, by id, without holding up anything else."""
        return await run_in_slices(self.clock, self._all_views())

    def _all_views(self) -> Steps[list[JobView]]:
        views = []
        for job in self.live:
            views.append(self.view(job))
            yield
        return sorted([*views, *self.broken_views()], key=lambda view: view.id)

    def warnings(self) -> list[Problem]:
        """Return what is doubtful in the project's files, and about live jobs."""
        of_jobs = (warning for job in self.live for warning in job.warnings)
        return sorted({*self.reloader.warnings, *of_jobs}, key=Problem.place)

    def _broken(self) -> Iterator[tuple[JobId, Sequence[Problem]]]:
        """Yield the jobs whose file does not load, and for which no earlier version runs, each with what is wrong."""
        return (found for found in self.reloader.broken.items() if self.live.find(found[0]) is None)

    def broken_views(self) -> list[JobView]:
        return [broken_job(job, problems) for job, problems in self._broken()]

    def view(self, job: LiveJob) -> JobView:
        queue = job.queue
        view = view_job(job.spec, job.cursor, job.last, in_flight=len(queue.in_flight), waiting=queue.waiting_count)
        return structs.replace(
            view,
            next_due_ms=next(self._upcoming(job), None),
            generation=job.code.generation,
            vms=self.vms_of(job.id),
            error=join_problems(job.problems),
            warnings=tuple(map(str, job.warnings)),
        )

    def _upcoming(self, job: LiveJob) -> Iterator[int]:
        if job.expected_ms is not None:
            return iter([job.expected_ms])
        return upcoming(job.spec, job.cursor.due_ms) if job.scheduled else iter(())

    async def next_runs(
        self, job: JobId | None, count: int, *, until_ms: int | None = None, may_see: MaySee = anything
    ) -> list[NextRun]:
        """Return the next due times before a moment, of one job or of all that somebody may see, earliest first."""
        jobs = [each for each in self.live if may_see(each.id)] if job is None else [self.live.get(job)]
        return await run_in_slices(self.clock, self._next_runs(jobs, count, until_ms))

    def _next_runs(self, jobs: Sequence[LiveJob], count: int, until_ms: int | None) -> Steps[list[NextRun]]:
        zones = {job.id: zone_of(job.spec.schedule, self.timezone) for job in jobs}
        found = yield from earliest(((job.id, self._until(job, until_ms)) for job in jobs), count)
        shown = []
        for due_ms, job in found:
            yield
            shown.append(next_run(job, due_ms, zones[job]))
        return shown

    def _until(self, job: LiveJob, until_ms: int | None) -> Iterator[int]:
        due = self._upcoming(job)
        return due if until_ms is None else takewhile(lambda due_ms: due_ms < until_ms, due)

    def log_file(self, job: JobId) -> Path:
        """Return where the job's script logs; the file need not exist."""
        return log_file(self.root, self.live.get(job).spec.folder)

    def states(self) -> Iterator[JobState]:
        """Yield the state of each job alone: building their whole views would hold up the loop."""
        for job in self.live:
            running, waiting = bool(job.queue.in_flight), bool(job.queue.waiting_count)
            yield state_of(job.spec, job.cursor, running=running, waiting=waiting)
        for _ in self._broken():
            yield JobState.BROKEN

    async def pause(self, job: JobId) -> None:
        await self.scheduler.pause(self.live.get(job))

    async def resume(self, job: JobId) -> None:
        await self.scheduler.resume(self.live.get(job))
