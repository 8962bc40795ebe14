"""Figures of one job over a span of time, reckoned from its runs on record."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

from spyweb.clock import Clock
from spyweb.model import JobId, RunId
from spyweb.store.model.runs import RunPoint
from spyweb.store.sqlite.past_runs import PastRuns
from spyweb.views.statistics import JobStatistics, TimeSpan, make_statistics

PAGE = 5_000  # runs that are read at a time
MOST_RUNS = 100_000  # that are reckoned with
FEW = 1_000  # are reckoned with on the loop; more in a thread


@dataclass(frozen=True, slots=True, kw_only=True)
class StatisticsService:
    past_runs: PastRuns
    clock: Clock

    async def of(self, job: JobId, span: TimeSpan) -> JobStatistics:
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
            page = await self.past_runs.points(job, since_ms=since_ms, limit=PAGE, before=before)
            found += page
            if len(page) < PAGE:
                return found[::-1], False
            before = RunId(page[-1].run)
        return found[::-1], True
