"""The jobs of a running daemon as its clients see them: listed, found by name, paused, and one in detail."""

from __future__ import annotations

import asyncio
from array import array
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import takewhile
from operator import is_
from pathlib import Path

from msgspec import structs

from spyweb.clock import Clock
from spyweb.cooperative import Steps, run_at_once, run_in_slices
from spyweb.errors import STORE_REFUSED, Absent, Problem
from spyweb.logs.output import tell_refusal
from spyweb.model import JobId, JobSpec, Outcome
from spyweb.reload.swap import Reloader
from spyweb.runs.live import LiveJob, LiveJobs
from spyweb.scheduler.scheduler import Scheduler
from spyweb.schedules.due import earliest, upcoming
from spyweb.settings.sections import Settings
from spyweb.specs.origins import resolve_settings
from spyweb.specs.tree import SUFFIXES, read_source
from spyweb.store.model.entries import job_namespace
from spyweb.store.model.runs import RunStrip
from spyweb.store.model.uptime import READ_AT_ONCE
from spyweb.store.sqlite.past_runs import PastRuns
from spyweb.store.sqlite.store import Store
from spyweb.subjects.health.service import HealthService
from spyweb.subjects.health.views import Restriction
from spyweb.subjects.jobs.overview import (
    UPTIMES,
    JobStrip,
    Overview,
    OverviewRow,
    Strips,
    failed_runs,
    make_overview,
    read_strips,
    view_row,
)
from spyweb.subjects.jobs.views import NEXT_SHOWN, JobDetail, LastError, detail_of, last_error
from spyweb.subjects.runs.service import located
from spyweb.views import jobs as job_views
from spyweb.views.source import SourceView, excerpt, unreadable_source, whole


@dataclass(slots=True, kw_only=True)
class JobService:
    root: Path
    timezone: str
    live: LiveJobs
    scheduler: Scheduler
    reloader: Reloader
    clock: Clock
    vms_of: Callable[[JobId], int]
    node_of: Callable[[LiveJob], str] = lambda _job: ""

    def find(self, name_or_id: str) -> JobId | None:
        return job_views.find_job((job.spec for job in self.live), name_or_id)

    @property
    def settings(self) -> Settings:
        return self.reloader.settings

    def spec(self, job: str | None) -> JobSpec | None:
        """Return the settings of a job that is loaded."""
        found = self.live.find(JobId(job)) if job else None
        return found.spec if found else None

    def paused_for(self, job: JobId | None) -> str:
        """Return why spyweb has paused a job; an empty text where it has not."""
        found = self.live.find(job) if job else None
        return found.cursor.paused_for if found else ""

    def no_such_job(self, name_or_id: str) -> str:
        """Return the message that there is no such job, with the nearest name."""
        return job_views.no_such_job(self.broken_views(), name_or_id, [job.id for job in self.live])

    def find_any(self, name_or_id: str) -> JobId | None:
        """Return the job of this name or id, also one that does not load."""
        return self.find(name_or_id) or next((job for job, _ in self._broken() if job == name_or_id), None)

    def names(self) -> dict[JobId, str]:
        """Return the name of each job, also of jobs that don't load."""
        return {**{job: job for job, _ in self._broken()}, **{job.id: job.spec.name for job in self.live}}

    def jobs(self) -> list[job_views.JobView]:
        return run_at_once(self._all_views())

    async def all_jobs(self) -> list[job_views.JobView]:
        """Return all jobs, by id, in slices."""
        return await run_in_slices(self.clock, self._all_views())

    def _all_views(self) -> Steps[list[job_views.JobView]]:
        views = []
        for job in self.live:
            views.append(self.view(job))
            yield
        return sorted([*views, *self.broken_views()], key=lambda view: view.id)

    def warnings(self) -> list[Problem]:
        """Return the warnings about the project's files, and about live jobs."""
        of_jobs = (warning for job in self.live for warning in job.warnings)
        return sorted({*self.reloader.warnings, *of_jobs}, key=Problem.place)

    def _broken(self) -> Iterator[tuple[JobId, Sequence[Problem]]]:
        """Yield the jobs whose file does not load and of which no earlier version runs, each with its problems."""
        return (found for found in self.reloader.broken.items() if self.live.find(found[0]) is None)

    def broken_views(self) -> list[job_views.JobView]:
        return [job_views.broken_job(job, problems) for job, problems in self._broken()]

    def view(self, job: LiveJob) -> job_views.JobView:
        view = job_views.view_job(
            job.spec, job.cursor, job.last, in_flight=len(job.under_way), waiting=job.waiting_count
        )
        return structs.replace(
            view,
            next_due_ms=next(self._upcoming(job), None),
            generation=job.code.generation,
            vms=self.vms_of(job.id),
            error=job_views.join_problems(job.problems),
            warnings=tuple(map(str, job.warnings)),
            node=self.node_of(job),
        )

    def _upcoming(self, job: LiveJob) -> Iterator[int]:
        if job.expected_ms is not None:
            return iter([job.expected_ms])
        return upcoming(job.spec, job.cursor.due_ms) if job.scheduled else iter(())

    async def next_runs(
        self,
        job: JobId | None,
        count: int,
        *,
        until_ms: int | None = None,
        may_see: job_views.MaySee = job_views.anything,
    ) -> list[job_views.NextRun]:
        """Return the next due times before a moment, of one job or of all that the caller may see, earliest first."""
        jobs = [each for each in self.live if may_see(each.id)] if job is None else [self.live.get(job)]
        zones = {each.id: job_views.zone_of(each.spec.schedule, self.timezone) for each in jobs}

        def due(each: LiveJob) -> Iterator[int]:
            found = self._upcoming(each)
            return found if until_ms is None else takewhile(lambda due_ms: due_ms < until_ms, found)

        def look() -> Steps[list[job_views.NextRun]]:
            found, shown = (yield from earliest(((each.id, due(each)) for each in jobs), count)), []
            for due_ms, due_job in found:
                yield
                shown.append(job_views.next_run(due_job, due_ms, zones[due_job]))
            return shown

        return await run_in_slices(self.clock, look())

    def log_file(self, job: JobId) -> Path:
        """Return where the job's script logs; the file need not exist."""
        return job_views.log_file(self.root, self.live.get(job).spec.folder)

    def states(self) -> Iterator[job_views.JobState]:
        """Yield the state of each job alone: building their whole views would hold up the loop."""
        for job in self.live:
            yield job_views.state_of(job.spec, job.cursor, running=bool(job.under_way), waiting=bool(job.waiting_count))
        for _ in self._broken():
            yield job_views.JobState.BROKEN

    async def pause(self, job: JobId) -> job_views.JobPaused:
        was_paused = self.live.get(job).cursor.paused
        await self.scheduler.pause(self.live.get(job))
        return job_views.JobPaused(job=job, paused=True, was_paused=was_paused)

    async def resume(self, job: JobId) -> job_views.JobPaused:
        live = self.live.get(job)
        was_paused = live.cursor.paused
        await self.scheduler.resume(live)
        return job_views.JobPaused(
            job=job, paused=False, was_paused=was_paused, next_due_ms=next(self._upcoming(live), None)
        )


KEPT_S = 60.0  # after the latest request

Facts = tuple[object, ...]  # all that a row is made of: while each is the same object, the row is as it was


@dataclass(slots=True, kw_only=True)
class OverviewService:
    """Shows all jobs, each with a strip of its newest runs.

    The strips are read at the first request, in slices; the strip of a job is read again after its runs have changed.
    Strips that nobody has asked for within a minute are dropped, and the service stops listening to the store.
    """

    jobs: JobService
    health: HealthService
    store: Store
    _strips: Strips | None = None
    rendered: dict[JobId, tuple[OverviewRow, str]] = field(default_factory=dict)  # rows as pages show them to everybody
    _rows: dict[JobId, tuple[Facts, OverviewRow]] = field(default_factory=dict)  # as they were last shown
    _leave: Callable[[], None] | None = None
    _looked_at: float = 0.0
    _filling: asyncio.Lock = field(default_factory=asyncio.Lock)

    def __post_init__(self) -> None:
        self.jobs.live.on_linked(self._rows.clear)  # a row names the jobs that wait for it
        self.jobs.live.on_linked(self.rendered.clear)

    async def all_rows(self) -> list[OverviewRow]:
        """Return the row of each job, in no order."""
        strips, restrictions, rows = await self._filled(), self.health.restrictions(), []

        def view_all() -> Steps[None]:
            for job in self.jobs.live:
                rows.append(self._row(job, strips, restrictions.get(job.id)))
                yield

        await run_in_slices(self.jobs.clock, view_all())
        return rows + [view_row(view) for view in self.jobs.broken_views()]

    async def look(self) -> Overview:
        """Return the state of all jobs."""
        rows, health, clock = await self.all_rows(), self.health.health(), self.jobs.clock
        overview = make_overview(rows, problems=health.problems, warnings=health.warnings, now_ms=clock.now_ms())
        return await run_in_slices(clock, overview)

    async def row(self, job: JobId) -> OverviewRow | None:
        """Return the row of one job; None where there is no such job."""
        found = self.jobs.live.find(job)
        if found is not None:
            strips = self._strips
            kept = strips.of_job.get(job) if strips else None
            if strips is None or kept is None or kept.changes != strips.changes[job]:
                strips = await self._filled()
            self._looked_at = self.jobs.clock.monotonic()
            return self._row(found, strips, self.health.restrictions().get(job))
        return next((view_row(view) for view in self.jobs.broken_views() if view.id == job), None)

    def _row(self, job: LiveJob, strips: Strips, restriction: Restriction | None) -> OverviewRow:
        kept = strips.of_job.get(job.id)
        facts = (*facts_of(job, kept), restriction and restriction.reason, self.jobs.node_of(job))
        known = self._rows.get(job.id)
        if known and len(known[0]) == len(facts) and all(map(is_, known[0], facts)):
            return known[1]
        began = [run.started_ms for run in job.under_way if run.started_ms is not None]
        row = view_row(
            self.jobs.view(job),
            strip=kept.strip if kept else None,
            series=kept.series if kept else None,
            running_since_ms=min(began, default=None),
            held_up=self._held_up(job.id) if kept and kept.series else (),
            restriction=restriction,
        )
        row = structs.replace(row, uptime=kept.uptime) if kept else row
        self._rows[job.id] = facts, row
        return row

    def _held_up(self, job: JobId) -> list[str]:
        """Return the jobs that wait for this one to succeed."""
        waits = (Outcome.FAILED, Outcome.LOST)
        return [
            follower.id
            for follower in self.jobs.live.after(job)
            if not any(after.job == job and not after.outcomes.isdisjoint(waits) for after in follower.spec.after)
        ]

    async def _filled(self) -> Strips:
        """Return the strips of all jobs; unknown ones are read first."""
        async with self._filling:
            self._looked_at = self.jobs.clock.monotonic()
            strips = self._strips
            if strips is None:
                self._strips = strips = Strips(self.jobs.live)
                self._leave = self.store.runs.on_recorded(strips.hear)
                self.jobs.live.ran_elsewhere = strips.changes.update
                self.jobs.clock.call_later(KEPT_S, self._drop_unless_looked_at)
            try:
                missing = strips.missing()
                for first in range(0, len(missing), READ_AT_ONCE):
                    await self._read(strips, missing[first : first + READ_AT_ONCE])
            except STORE_REFUSED as error:  # jobs are shown all the same: people open the page because of it
                tell_refusal("the newest runs could not be read", error)
            return strips

    async def _read(self, strips: Strips, jobs: list[JobId]) -> None:
        live, changes = filter(None, map(self.jobs.live.find, jobs)), {job: strips.changes[job] for job in jobs}
        found, series = await read_strips(self.store, [job.spec for job in live])
        uptimes = await self.store.uptime.read(jobs, self.jobs.clock.now_ms(), UPTIMES)
        for job, strip in found.items():
            packed = RunStrip(ids=array("q", strip.ids), marks=strip.marks, took_ms=array("q", strip.took_ms))
            uptime = {name: span.uptime for name, span in uptimes[job].spans.items()}
            strips.of_job[job] = JobStrip(packed, series.get(job), changes[job], uptime)

    def _drop_unless_looked_at(self) -> None:
        left = self._looked_at + KEPT_S - self.jobs.clock.monotonic()
        if left > 0:
            self.jobs.clock.call_later(left, self._drop_unless_looked_at)
        elif self._leave:
            self._leave()
            self.jobs.live.ran_elsewhere = None
            self._strips = self._leave = None
            self._rows.clear()
            self.rendered.clear()


def facts_of(job: LiveJob, strip: JobStrip | None) -> Facts:
    """Return the objects that the row of a job is made of."""
    runs = (*job.under_way, job.waiting_count)
    return (job.spec, job.code, job.cursor, job.last, job.problems, job.warnings, strip, *runs)


@dataclass(frozen=True, slots=True, kw_only=True)
class JobDetails:
    jobs: JobService
    past_runs: PastRuns
    overview: OverviewService

    async def detail(self, job: JobId) -> JobDetail:
        """Return everything about a job.  Raises Absent where there is none."""
        row = await self.overview.row(job)
        if row is None:
            raise Absent(f"{job} was removed")
        jobs, live = self.jobs, self.jobs.live.find(job)
        if live is None:
            problems = jobs.reloader.broken.get(job, ())
            source, namespace = await self._source_of(problems), job_namespace(job)
            return JobDetail(row=row, schedule="", problems=problems, source=source, namespace=namespace)
        spec, problems, permissions = live.spec, [*live.problems, *live.warnings], jobs.settings.permissions
        others = [*filter(None, (jobs.spec(after.job) for after in spec.after))]
        others += [follower.spec for follower in jobs.live.after(job)]
        settings = await asyncio.to_thread(resolve_settings, spec, live.sources, permissions)
        return structs.replace(
            detail_of(row, spec, others, jobs.timezone, settings),
            next_due=await jobs.next_runs(job, NEXT_SHOWN),
            problems=problems,
            source=await self._source_of(problems),
            error=await self._last_error(live, row.failing.count if row.failing else 0),
            files=[chunk for chunk, source in live.code.files if source],
            generation=live.code.generation,
        )

    async def source(self, job: JobId, file: str | None = None) -> SourceView:
        """Return a file of the version that runs; of a broken job, the file on disk.

        Raises Absent where the job has no such file.
        """
        live = self.jobs.live.find(job)
        if live is not None:
            files = dict(live.code.files)
            name = live.code.chunk if file is None else file
            if name not in files or not files[name]:
                raise Absent(f"{job} has no Lua file {name!r}" if file else f"{job} has no Lua")
            return await asyncio.to_thread(whole, name, files[name])
        found = next((each for each in self.jobs.reloader.broken.get(job, ()) if file in (None, each.file)), None)
        if found is None:
            raise Absent(f"{job} was removed")
        return await asyncio.to_thread(read_part, self.jobs.root, found, whole)

    async def _source_of(self, problems: Sequence[Problem]) -> SourceView | None:
        """Return the lines on disk around the first problem that names a line."""
        found = next((problem for problem in problems if problem.line is not None), None)
        return await asyncio.to_thread(read_part, self.jobs.root, found, excerpt) if found else None

    async def _last_error(self, job: LiveJob, in_a_row: int) -> LastError | None:
        """Return the latest error of a failing job."""
        runs = await failed_runs(self.past_runs, job.id, in_a_row)
        return last_error(runs[0], *located(job, runs[0]), [run.reason for run in runs]) if runs else None


def read_part(root: Path, problem: Problem, show: Callable[[str, bytes, int | None], SourceView]) -> SourceView:
    """Read a Lua file; other files are not shown, as settings may hold secrets."""
    if not problem.file.endswith(SUFFIXES):
        return unreadable_source(problem.file, "only Lua files are shown")
    source = read_source(root, problem.file)
    if isinstance(source, Problem):
        return unreadable_source(problem.file, source.reason)
    return show(problem.file, source, problem.line)
