"""Answer what runs when: the next 24 hours of all jobs, what did not run in the past, and what maintenance is."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from spyweb.clock import Clock
from spyweb.cooperative import run_in_slices
from spyweb.model import JobId, Outcome, Run, RunId
from spyweb.runs.live import LiveJobs
from spyweb.store.model.runs import RunFilter
from spyweb.subjects.runs.service import PastRunsService
from spyweb.subjects.runs.views import brief
from spyweb.subjects.when.views import DayAhead, Gap, GapPage, day_ahead, view_gap
from spyweb.views.jobs import MaySee, anything

NOT_RUN: Final = (Outcome.MISSED, Outcome.SKIPPED, Outcome.PAUSED, Outcome.LOST)


@dataclass(frozen=True, slots=True, kw_only=True)
class CalendarService:
    live: LiveJobs
    past: PastRunsService
    clock: Clock

    async def day_ahead(self, may_see: MaySee = anything) -> DayAhead:
        """Count the due times of the next 24 hours of all jobs that somebody may see."""
        jobs = (job for job in self.live if job.scheduled and may_see(job.id))
        return await run_in_slices(self.clock, day_ahead(jobs, self.clock.now_ms()))

    async def gaps(
        self,
        job: JobId | None = None,
        *,
        since_ms: int | None = None,
        limit: int = 50,
        before: RunId | None = None,
        may_see: MaySee = anything,
    ) -> GapPage:
        """Return due times that did not run, and runs that were lost, newest first, each with what followed.

        A page holds fewer where there are some that may not be seen.
        """
        wanted = RunFilter(job=job, outcomes=NOT_RUN, began_skipped=False, since_ms=since_ms)
        page = await self.past.search(wanted, limit=limit, before=before)
        gaps = [await self._gap(run) for run in page.runs if may_see(run.job)]
        return GapPage(gaps=gaps, count=sum(gap.count for gap in gaps), before=page.before)

    async def _gap(self, run: Run) -> Gap:
        job = self.live.find(run.job)
        _, after = await self.past.store.past_runs.neighbours(run.job, run.id)
        following = await self.past.find(after) if after is not None else None
        return view_gap(run, job.spec.name if job else run.job, brief(following) if following else None)
