"""Strips of the newest runs of all jobs, in few bytes, kept up to date by each change that is committed."""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from msgspec.structs import replace

from spyweb.model import JobId, Outcome, Run, RunId, RunMark, RunState, TriggerType
from spyweb.runs.live import LiveJob, LiveJobs
from spyweb.runs.records import ended_run, run_of
from spyweb.store.model.runs import NO_TIME, Begin, Change, End, FailingSeries, RunStrip, SkippedRange
from spyweb.views.strips import DECISIVE, FAILING, LATE_MS, SUCCEEDED, mark_of, moment_of, took_of

SHOWN_RUNS = 40  # of each job
UNKNOWN = RunId(0)  # the id of a row that only the store knows


class RangeKind(NamedTuple):
    """The key by which neighbouring ranges of due times share a row."""

    outcome: Outcome
    reason: str
    trigger: TriggerType


class JobStrip:
    """The newest runs of one job."""

    __slots__ = ("_ids", "_latest_range", "_marks", "_took_ms", "changes", "series")

    def __init__(self, strip: RunStrip, series: FailingSeries | None) -> None:
        self._ids = array("q", strip.ids)
        self._marks = bytearray(strip.marks, "ascii")
        self._took_ms = array("q", strip.took_ms)
        self._latest_range: RangeKind | None = None  # of the newest, where that is one and is known
        self.series = series
        self.changes = 0  # so far

    def show(self) -> RunStrip:
        return RunStrip(ids=self._ids, marks=self._marks.decode("ascii"), took_ms=self._took_ms)

    def add(self, run: RunId, mark: RunMark) -> None:
        self.changes += 1
        self._ids.append(run)
        self._marks += mark.encode()
        self._took_ms.append(NO_TIME)
        self._latest_range = None
        if len(self._ids) > SHOWN_RUNS:
            del self._ids[0], self._marks[0], self._took_ms[0]

    def add_range(self, skipped: SkippedRange, mark: RunMark) -> bool:
        """Add due times that did not run, unless they extend the newest row; return False where nobody knows that."""
        kind = RangeKind(skipped.outcome, skipped.reason, skipped.trigger)
        if self._latest_range is None and self._marks[-1:] == mark.encode():
            return False
        if kind != self._latest_range:
            self.add(UNKNOWN, mark)
            self._latest_range = kind
        return True

    def change(self, run: RunId, mark: RunMark, took_ms: int = NO_TIME) -> int:
        """Change the mark of a run; return its place, or -1 if it is in the strip no more."""
        self.changes += 1
        for place in range(len(self._ids) - 1, -1, -1):
            if self._ids[place] == run:
                self._marks[place], self._took_ms[place] = ord(mark), took_ms
                return place
        return -1

    def note_end(self, run: Run, mark: RunMark) -> bool:
        """Show how a run ended; return False where a later one has decided already whether the job fails."""
        took_ms = took_of(run)
        place = self.change(run.id, mark, NO_TIME if took_ms is None else took_ms)
        if mark not in SUCCEEDED and mark not in FAILING:
            return True
        later = self._marks[place + 1 :].decode("ascii")
        if place < 0 or not DECISIVE.isdisjoint(later):
            return False
        if mark in SUCCEEDED:
            self.series = None
        elif self.series is None:
            self.series = FailingSeries(since_ms=moment_of(run) or 0, count=1, first=run.id)
        elif run.attempt == 1:
            self.series = replace(self.series, count=self.series.count + 1)
        return True


class Strips:
    """The strips that are kept, by job, and those that are to be read again."""

    def __init__(self, live: LiveJobs) -> None:
        self.live = live
        self.of_job: dict[JobId, JobStrip] = {}
        self._reading: set[JobId] = set()
        self._changed: set[JobId] = set()  # while they were read
        self._open: dict[RunId, Run] = {run.id: run for job in live for run in job.queue.open_runs()}

    def missing(self) -> list[JobId]:
        """Return the live jobs whose strips are to be read; let go of those of jobs that are gone."""
        live = {job.id for job in self.live}
        for job in self.of_job.keys() - live:
            del self.of_job[job]
        return sorted(live - self.of_job.keys())

    def begin_reading(self, jobs: Iterable[JobId]) -> None:
        self._reading = set(jobs)
        self._changed = set()

    def keep(self, job: JobId, strip: JobStrip) -> None:
        """Keep what was read, unless the job has changed meanwhile: then it is to be read once more."""
        if job not in self._changed:
            self.of_job[job] = strip

    def hear(self, change: Change, ids: Sequence[RunId | None] | None) -> None:
        """Take in a change, in the order in which the store applies it."""
        for end in change.end:
            self._end(end)
        for begin in change.begin:
            self._begin(begin)
        for skipped in change.skipped:
            self._skip(skipped)
        if ids is None:  # nobody waited for them: these jobs are to be read again
            ids = [None] * len(change.new)
            for new in change.new:
                self._touch(new.job)
                self.of_job.pop(new.job, None)
        for new, run_id in zip(change.new, ids, strict=True):
            if run_id is not None:
                self._add(run_of(run_id, new))

    def _skip(self, skipped: SkippedRange) -> None:
        self._touch(skipped.job)
        strip = self.of_job.get(skipped.job)
        if strip and not strip.add_range(skipped, RunMark[skipped.outcome.name]):
            del self.of_job[skipped.job]  # to be read again

    def _add(self, run: Run) -> None:
        self._open[run.id] = run
        self._touch(run.job)
        if strip := self.of_job.get(run.job):
            strip.add(run.id, mark_of(run))

    def _begin(self, begin: Begin) -> None:
        run = self._open.get(begin.run)
        if run is None or run.state is not RunState.WAITING:
            return
        self._open[run.id] = run = replace(run, state=RunState.RUNNING, started_ms=begin.started_ms)
        self._touch(run.job)
        if strip := self.of_job.get(run.job):
            strip.change(run.id, RunMark.RUNNING)

    def _end(self, end: End) -> None:
        run = self._open.pop(end.run, None)
        if run is None:
            return
        self._touch(run.job)
        if strip := self.of_job.get(run.job):
            ended = ended_run(run, end)
            if not strip.note_end(ended, mark_of(ended, self.late_ms(run.job))):
                del self.of_job[run.job]  # to be read again

    def late_ms(self, job: JobId) -> int:
        """Return from when on a start of this job is late: jitter makes it later by intent."""
        return late_after(self.live.find(job))

    def _touch(self, job: JobId) -> None:
        if job in self._reading:
            self._changed.add(job)


def late_after(job: LiveJob | None) -> int:
    """Return from when on after its due time a start of this job is late."""
    return LATE_MS + (job.spec.jitter_ms if job else 0)
