"""Everything about one job: its settings with their origin, its schedule in words, its last error in its source."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from spyweb.errors import Problem, Refused
from spyweb.model import JobId, Outcome, Pings
from spyweb.reload.swap import Reloader
from spyweb.runs.live import LiveJob, LiveJobs
from spyweb.service.overview import OverviewService
from spyweb.service.past_runs import located
from spyweb.specs.origins import resolve_settings
from spyweb.specs.tree import SUFFIXES, read_source
from spyweb.store.model.entries import job_namespace
from spyweb.store.model.runs import RunFilter
from spyweb.store.sqlite.past_runs import PastRuns
from spyweb.views.job_detail import (
    NEXT_SHOWN,
    JobDetail,
    LastError,
    Tie,
    last_error,
    listen_words,
    schedule_words,
    tie,
)
from spyweb.views.jobs import NextRun
from spyweb.views.source import SourceView, excerpt, unreadable_source, whole

COMPARED = 50  # failures whose reasons are compared


@dataclass(frozen=True, slots=True, kw_only=True)
class JobDetails:
    root: Path
    timezone: str
    live: LiveJobs
    past_runs: PastRuns
    overview: OverviewService
    reloader: Reloader
    next_runs: Callable[[JobId, int], Awaitable[list[NextRun]]]

    async def detail(self, job: JobId) -> JobDetail:
        """Return everything about a job.  Raises Refused where there is none."""
        row = await self.overview.row(job)
        if row is None:
            raise Refused(f"{job} is gone")
        live = self.live.find(job)
        if live is None:
            problems = self.reloader.broken.get(job, ())
            return JobDetail(
                row=row,
                schedule="",
                problems=problems,
                source=await self._source_of(problems),
            )
        problems = [*live.problems, *live.warnings]
        monitor, permissions = live.spec.monitor, self.reloader.settings.permissions
        return JobDetail(
            row=row,
            schedule=schedule_words(live.spec, self.timezone),
            next_due=await self.next_runs(job, NEXT_SHOWN),
            problems=problems,
            source=await self._source_of(problems),
            error=await self._last_error(live, row.failing.count if row.failing else 0),
            follows=list(self._follows(live)),
            followed_by=list(self._followed_by(live)),
            listens=list(map(listen_words, live.spec.on)),
            settings=await asyncio.to_thread(resolve_settings, job, monitor is not None, live.sources, permissions),
            files=[chunk for chunk, source in live.code.files if source],
            pages=monitor.urls if monitor else (),
            is_elsewhere=isinstance(live.spec.schedule, Pings),
            generation=live.code.generation,
            namespace=job_namespace(job),
        )

    async def source(self, job: JobId, file: str | None = None) -> SourceView:
        """Return a file of the version that runs, else of a broken job as it is on disk.

        Raises Refused where the job has no such file.
        """
        live = self.live.find(job)
        if live is not None:
            files = dict(live.code.files)
            name = live.code.chunk if file is None else file
            if name not in files or not files[name]:
                raise Refused(f"{job} has no Lua file {name!r}" if file else f"{job} has no Lua")
            return await asyncio.to_thread(whole, name, files[name])
        problems = self.reloader.broken.get(job, ())
        found = next((problem for problem in problems if file in (None, problem.file)), None)
        if found is None:
            raise Refused(f"{job} is gone")
        return await asyncio.to_thread(read_part, self.root, found, whole)

    async def _source_of(self, problems: Sequence[Problem]) -> SourceView | None:
        """Return the lines around the first problem that names one, as they are on disk."""
        found = next((problem for problem in problems if problem.line is not None), None)
        return await asyncio.to_thread(read_part, self.root, found, excerpt) if found else None

    async def _last_error(self, job: LiveJob, in_a_row: int) -> LastError | None:
        """Return why a failing job fails."""
        if not in_a_row:
            return None
        wanted = RunFilter(job=job.id, outcomes=[Outcome.FAILED, Outcome.LOST])
        page = await self.past_runs.search(wanted, limit=min(in_a_row, COMPARED))
        if not page.runs:
            return None
        newest = page.runs[0]
        return last_error(newest, *located(job, newest), [run.reason for run in page.runs])

    def _follows(self, job: LiveJob) -> Iterator[Tie]:
        for after in job.spec.after:
            before = self.live.find(after.job)
            yield tie(after, after.job, before.spec.name if before else None)

    def _followed_by(self, job: LiveJob) -> Iterator[Tie]:
        for follower in self.live.after(job.id):
            for after in follower.spec.after:
                if after.job == job.id:
                    yield tie(after, follower.id, follower.spec.name)


def read_part(root: Path, problem: Problem, show: Callable[[str, bytes, int | None], SourceView]) -> SourceView:
    """Read a Lua file; no other is shown, as settings may hold what is secret."""
    if not problem.file.endswith(SUFFIXES):
        return unreadable_source(problem.file, "only Lua files are shown")
    source = read_source(root, problem.file)
    if isinstance(source, Problem):
        return unreadable_source(problem.file, source.reason)
    return show(problem.file, source, problem.line)
