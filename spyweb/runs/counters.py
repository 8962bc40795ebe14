"""Count due times and runs since the start of the daemon, by job.

At most MOST_JOBS jobs have counters of their own; the other jobs, and deleted ones, share one set.  So a sum over all
never decreases.
"""

from __future__ import annotations

from collections.abc import Iterable

from msgspec import Struct

from spyweb.histogram import SECONDS, Histogram
from spyweb.model import JobId, Outcome, Run, TriggerType
from spyweb.store.model.runs import SkippedRange

MOST_JOBS = 1_000  # that have their own counters


class JobCounts(Struct, eq=False):
    """The counters of one job, or the shared counters of several."""

    due: int = 0  # due times that have come: run, or recorded with a reason
    started: int = 0
    ended: dict[Outcome, int] = {}  # of runs, and of due times that did not run
    succeeded_ms: int | None = None  # when a run last ended as a success; None: not since the start

    def end(self, outcome: Outcome, count: int = 1) -> None:
        self.ended[outcome] = self.ended.get(outcome, 0) + count

    def add(self, other: JobCounts) -> None:
        self.due += other.due
        self.started += other.started
        for outcome, count in other.ended.items():
            self.end(outcome, count)


class RunCounters:
    """Counts the starts, ends and skips of runs, by job."""

    def __init__(self, most_jobs: int = MOST_JOBS) -> None:
        self.jobs: dict[JobId, JobCounts] = {}
        self.others = JobCounts()
        self.lateness = Histogram(SECONDS)
        self.duration = Histogram(SECONDS)
        self._most_jobs = most_jobs

    def of(self, job: JobId) -> JobCounts:
        """Return the counters of a job; beyond MOST_JOBS jobs they are shared."""
        counts = self.jobs.get(job)
        if counts is None:
            if len(self.jobs) >= self._most_jobs:
                return self.others
            counts = self.jobs[job] = JobCounts()
        return counts

    def passed_over(self, skipped: Iterable[SkippedRange]) -> None:
        """Count due times that did not run, and refused starts."""
        for each in skipped:
            counts = self.of(each.job)
            counts.end(each.outcome, each.count)
            if each.trigger is TriggerType.SCHEDULE:
                counts.due += each.count

    def started(self, run: Run, late_ms: int | None) -> None:
        """Count the start of a run; dry runs, debug runs and alert hooks are never counted."""
        if run.trigger.is_aside:
            return
        self.of(run.job).started += 1
        if late_ms is not None:
            self.lateness.observe(max(late_ms, 0) / 1000)

    def ended(self, run: Run, *, has_lasted: bool) -> None:
        """Count the end of a run, and its duration where that is known."""
        if run.trigger.is_aside:
            return
        counts = self.of(run.job)
        if run.outcome is not None:
            counts.end(run.outcome)
        if run.outcome is Outcome.SUCCESS:
            counts.succeeded_ms = run.ended_ms
        if has_lasted and run.started_ms is not None and run.ended_ms is not None:
            self.duration.observe(max(run.ended_ms - run.started_ms, 0) / 1000)

    def forget(self, job: JobId) -> None:
        """Add the counters of a deleted job to the shared ones."""
        counts = self.jobs.pop(job, None)
        if counts is not None:
            self.others.add(counts)
