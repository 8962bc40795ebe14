"""Past runs: those that match, everything about one of them, and figures of those of a job."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from spyweb.clock import Clock
from spyweb.errors import Refused
from spyweb.logs.reading import lines_between
from spyweb.model import JobId, Run, RunId
from spyweb.runs.live import LiveJob, LiveJobs
from spyweb.store.model.runs import RunFilter, RunPage, RunPoint
from spyweb.store.sqlite.store import Store
from spyweb.views.jobs import log_file
from spyweb.views.records import RecordView, view_record
from spyweb.views.run_detail import (
    CauseStep,
    RunBrief,
    RunDetail,
    RunLog,
    brief,
    cause_run,
    run_words,
    view_cause,
    view_limits,
)
from spyweb.views.runs import TaskView, view_task
from spyweb.views.source import SourceView, TraceFrame, error_place, excerpt, frames_of
from spyweb.views.statistics import JobStatistics, TimeSpan, make_statistics
from spyweb.views.strips import lateness_of, mark_of, moment_of, took_of

MOST_CAUSES = 16  # steps back from a run
MOST_FOLLOWERS = 50
MOST_RECORDS = 50
SEARCH_S = 0.2  # after which a search that has found little says how far it has come
NS_IN_MS = 1_000_000
POINTS_PAGE = 5_000  # runs that statistics read at a time
MOST_RUNS = 100_000  # that statistics count
FEW = 1_000  # are counted on the loop; more in a thread


@dataclass(frozen=True, slots=True, kw_only=True)
class PastRunsService:
    root: Path
    live: LiveJobs
    store: Store
    clock: Clock

    async def newest(self, job: JobId | None, *, limit: int, before: RunId | None) -> list[Run]:
        """Return runs, newest first."""
        return await self.store.runs.list(job, limit=limit, before=before)

    async def search(self, wanted: RunFilter, *, limit: int, before: RunId | None = None) -> RunPage:
        """Return runs that match, newest first.

        The record is searched in slices, so that other questions get their turn; where that takes long, a page holds
        what was found so far, and where to go on.
        """
        began, found = self.clock.monotonic(), list[Run]()
        while True:
            page = await self.store.past_runs.search(wanted, limit=limit - len(found), before=before)
            found += page.runs
            before = page.before
            if before is None or len(found) >= limit or self.clock.monotonic() - began > SEARCH_S:
                return RunPage(runs=found, before=before)

    async def detail(self, run_id: RunId) -> RunDetail:
        """Return everything about a run.  Raises Refused where there is none."""
        run = await self._find(run_id)
        job = self.live.find(run.job)
        frames, source = located(job, run) if job else (frames_of(run.traceback), None)
        followers, attempts = await self._followers(run), await self._attempts(run)
        before, after = await self.store.past_runs.neighbours(run.job, run.id)
        return RunDetail(
            run=run,
            name=job.spec.name if job else run.job,
            words=run_words(run),
            mark=mark_of(run),
            at_ms=moment_of(run),
            took_ms=took_of(run),
            late_ms=lateness_of(run),
            causes=await self._causes(run),
            attempts=attempts,
            followers=followers,
            tasks=await self.tasks(run.id),
            frames=frames,
            source=source,
            log=await self._log(run, job),
            limits=view_limits(run, job.spec) if job else (),
            records=await self._records(run),
            before=before,
            after=after,
            is_there=job is not None,
        )

    async def statistics(self, job: JobId, span: TimeSpan) -> JobStatistics:
        """Return how a job has done, also one that is gone."""
        now_ms = self.clock.now_ms()
        points, is_partial = await self._points(job, now_ms - span.ms)
        if len(points) <= FEW:
            return make_statistics(job, span, points, now_ms, is_partial=is_partial)
        return await asyncio.to_thread(make_statistics, job, span, points, now_ms, is_partial=is_partial)

    async def _points(self, job: JobId, since_ms: int) -> tuple[list[RunPoint], bool]:
        """Return the runs of a span, oldest first, and whether there are older ones that were left out."""
        found: list[RunPoint] = []
        before: RunId | None = None
        while len(found) < MOST_RUNS:
            page = await self.store.past_runs.points(job, since_ms=since_ms, limit=POINTS_PAGE, before=before)
            found += page
            if len(page) < POINTS_PAGE:
                return found[::-1], False
            before = RunId(page[-1].run)
        return found[::-1], True

    async def log(self, run_id: RunId) -> RunLog:
        """Return the lines that a run logged.  Raises Refused where there is no such run."""
        run = await self._find(run_id)
        return await self._log(run, self.live.find(run.job))

    async def tasks(self, run: RunId) -> list[TaskView]:
        """Return how the tasks of a run ended, in the order of their definition."""
        found = await self.store.tasks.of_runs([run])
        return [view_task(row) for row in found.get(run, ())]

    async def find(self, run: RunId) -> Run | None:
        return await self.store.past_runs.find(run)

    async def _find(self, run: RunId) -> Run:
        found = await self.find(run)
        if found is None:
            raise Refused(f"there is no run {run}: it may have been pruned")
        return found

    async def _log(self, run: Run, job: LiveJob | None) -> RunLog:
        """Return the lines of the job's log between the beginning and the end of a run."""
        if run.started_ms is None or job is None:
            return RunLog()
        ended_ms = self.clock.now_ms() if run.ended_ms is None else run.ended_ms
        path = log_file(self.root, job.spec.folder)
        found = await asyncio.to_thread(lines_between, path, run.started_ms, ended_ms)
        is_shared = bool(found.lines) and await self._has_company(run, run.started_ms, ended_ms)
        return RunLog(lines=found.lines, is_cut=found.is_cut, is_shared=is_shared)

    async def _has_company(self, run: Run, started_ms: int, ended_ms: int) -> bool:
        """Tell whether another run of the job was under way at the same time."""
        job = self.live.find(run.job)
        others = [each for each in job.queue.in_flight.values() if each.id != run.id] if job else []
        if any(other.started_ms is not None and other.started_ms < ended_ms for other in others):
            return True
        earlier = await self.store.past_runs.points(run.job, since_ms=0, limit=1, before=run.id)
        if any(point.at_ms + point.took_ms > started_ms for point in earlier):
            return True
        wanted = RunFilter(job=run.job, since_ms=started_ms, until_ms=ended_ms)
        during = await self.store.past_runs.search(wanted, limit=2)
        return any(other.id != run.id and other.started_ms is not None for other in during.runs)

    async def _causes(self, run: Run) -> list[CauseStep]:
        """Return how a run came about, the first cause first."""
        steps: list[CauseStep] = []
        at: Run | None = run
        while at is not None and len(steps) < MOST_CAUSES:
            cause = cause_run(at)
            before = await self.store.past_runs.find(cause) if cause is not None else None
            job = self.live.find(before.job) if before else None
            steps.append(view_cause(at, before, job.spec.name if job else None))
            at = before
        return steps[::-1]

    async def _attempts(self, run: Run) -> Sequence[RunBrief]:
        """Return all attempts of a run that was tried again."""
        first = cause_run(run) if run.trigger.of else run.id
        if first is None:
            return ()
        begun = run if first == run.id else await self.store.past_runs.find(first)
        retries = [
            each
            for each in await self.store.past_runs.followers(first, limit=MOST_FOLLOWERS)
            if each.trigger.of == first and each.job == run.job
        ]
        return [brief(each) for each in (*([begun] if begun else []), *retries)] if retries else ()

    async def _followers(self, run: Run) -> list[RunBrief]:
        """Return the runs that a run has started; those that try it again are among its attempts."""
        found = await self.store.past_runs.followers(run.id, limit=MOST_FOLLOWERS)
        return [brief(each) for each in found if not each.trigger.of or each.job != run.job]

    async def _records(self, run: Run) -> list[RecordView]:
        """Return what a monitor's run has recorded, as far as it is still there."""
        if not run.items_new or run.started_ms is None or run.ended_ms is None:
            return []
        before_ns = (run.ended_ms + 1) * NS_IN_MS
        found = await self.store.records.list(run.job, limit=min(run.items_new, MOST_RECORDS), before_ns=before_ns)
        return [view_record(record) for record in found if record.created_ms >= run.started_ms]


def located(job: LiveJob, run: Run) -> tuple[list[TraceFrame], SourceView | None]:
    """Return the frames of a run's traceback, and the source around the line that its error names."""
    file_of = job.code.chunk_shown_as
    place = error_place(run.reason, run.traceback, file_of)
    source = dict(job.code.files).get(place[0]) if place and run.generation in (0, job.code.generation) else None
    return frames_of(run.traceback, file_of), excerpt(place[0], source, place[1]) if place and source else None
