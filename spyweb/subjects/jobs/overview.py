"""The overview: the state of all jobs in words, and a row of each job with a strip of its newest runs.

The words hold no times of day: the moments stand in fields beside them, and the page shows them in the reader's zone.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from enum import StrEnum
from typing import NamedTuple

from msgspec import Struct, structs

from spyweb.cooperative import Steps, run_at_once
from spyweb.model import JobId, JobSpec, Outcome, Run, RunId
from spyweb.runs.live import LiveJobs
from spyweb.runs.records import NOT_AS_EXPECTED
from spyweb.store.model.runs import Change, FailingSeries, RunFilter, RunStrip, StripWish
from spyweb.store.sqlite.past_runs import PastRuns
from spyweb.store.sqlite.store import Store
from spyweb.subjects.health.views import Restriction
from spyweb.views.jobs import JobState, JobView, is_failing
from spyweb.views.runs import (
    DECISIVE,
    FAILING,
    LastRun,
    describe_end,
    describe_storage_errors,
    late_after,
    median_ms,
    success_rate,
)
from spyweb.words import counted, first_line


class Standing(StrEnum):
    """The state of a job, the worst first."""

    FAILING = "failing"
    BROKEN = "broken"  # its file does not load, and no version runs
    OUTDATED = "outdated"  # its file does not load, and an earlier version runs on
    DOUBTFUL = "doubtful"  # its last run succeeded with a warning: a write was refused, or a monitor found too little
    RUNNING = "running"
    WAITING = "waiting"
    WELL = "well"
    SKIPPED = "skipped"  # each of its runs was skipped
    NEW = "new"  # it has not run yet
    PAUSED = "paused"
    DISABLED = "disabled"


WORDS = {Standing.WELL: "healthy"}  # that pages say for a value of the API
ATTENTION = frozenset({Standing.FAILING, Standing.BROKEN, Standing.OUTDATED, Standing.DOUBTFUL})


class Failing(Struct, frozen=True, kw_only=True):
    """The failures in a row of a job's latest runs."""

    since_ms: int
    count: int  # retries are not counted
    first: RunId
    words: str  # "7 runs in a row"


class OverviewRow(Struct, frozen=True, kw_only=True):
    """One job in the list of all."""

    job: JobView
    standing: Standing
    strip: str = ""  # a RunMark for each of the newest runs, oldest first
    newest: RunId | None = None  # of the strip
    result: str = ""  # the last result or error in one line
    success_rate: float | None = None  # of the strip
    median_ms: int | None = None  # of the strip
    failing: Failing | None = None
    running_since_ms: int | None = None
    held_up: Sequence[str] = ()  # jobs that start after a success of this one
    restriction: Restriction | None = None
    uptime: Mapping[str, float | None] = {}  # of 24h and 30d: the share of the time that is known


class OverviewVerdict(Struct, frozen=True, kw_only=True):
    """The state of all jobs and of the daemon, in one line."""

    is_well: bool
    words: str  # "2 of 42 jobs failing"
    more: str  # "37 healthy, 1 running"
    failing: int
    jobs: int
    problems: Sequence[str] = ()  # of the daemon's health
    warnings: Sequence[str] = ()
    since_ms: int | None = None  # of the first failure that has not ended
    next_due_ms: int | None = None


class Overview(Struct, frozen=True, kw_only=True):
    verdict: OverviewVerdict
    rows: Sequence[OverviewRow]  # the worst first, then by name
    states: dict[str, int]  # how many rows of each standing, without those that have none
    tags: Sequence[str]
    at_ms: int


def view_row(
    job: JobView,
    *,
    strip: RunStrip | None = None,
    series: FailingSeries | None = None,
    running_since_ms: int | None = None,
    held_up: Sequence[str] = (),
    restriction: Restriction | None = None,
) -> OverviewRow:
    if strip is None:  # not known: only the last run says whether the job fails
        strip, fails = RunStrip(), is_failing(job)
    else:
        fails = series is not None
    standing, failing = standing_of(job, is_failing=fails), None
    if series:
        words = f"{counted(series.count, 'run')} in a row" if series.count > 1 else "1 run"
        failing = Failing(since_ms=series.since_ms, count=series.count, first=series.first, words=words)
    return OverviewRow(
        job=job,
        standing=standing,
        strip=strip.marks,
        newest=RunId(max(strip.ids)) if strip.ids else None,
        result=result_of(job, standing),
        success_rate=success_rate(strip.marks),
        median_ms=median_ms(strip.took_ms),
        failing=failing,
        running_since_ms=running_since_ms,
        held_up=held_up if series else (),
        restriction=restriction,
    )


def row_seen_by(row: OverviewRow, may_see: Callable[[str], bool]) -> OverviewRow:
    """Return a row without the other jobs that somebody may not see."""
    seen = [job for job in row.held_up if may_see(job)]
    return row if len(seen) == len(row.held_up) else structs.replace(row, held_up=seen)


def overview_seen_by(overview: Overview, may_see: Callable[[str], bool]) -> Overview:
    """Return the overview without the jobs that a caller may not see; then without problems of the daemon, too."""
    if may_see(""):
        return overview
    rows = [row_seen_by(row, may_see) for row in overview.rows if may_see(row.job.id)]
    return run_at_once(make_overview(rows, problems=(), warnings=(), now_ms=overview.at_ms))


def standing_of(job: JobView, *, is_failing: bool) -> Standing:
    """Return the state of a job: a state that needs attention comes before a passing one."""
    if job.state is JobState.BROKEN:
        return Standing.BROKEN
    if not job.enabled:
        return Standing.RUNNING if job.state is JobState.RUNNING else Standing.DISABLED
    if is_failing:
        return Standing.FAILING
    if job.error:
        return Standing.OUTDATED
    if job.state in (JobState.RUNNING, JobState.PAUSED, JobState.WAITING):
        return Standing(job.state.value)
    if job.last is None:
        return Standing.NEW
    if job.last.outcome is Outcome.SKIPPED:  # then it has no other run
        return Standing.SKIPPED
    return Standing.DOUBTFUL if is_doubtful(job.last) else Standing.WELL


def is_doubtful(last: LastRun | Run) -> bool:
    return bool(last.storage_errors) or last.note.startswith(NOT_AS_EXPECTED)


def result_of(job: JobView, standing: Standing) -> str:
    """Describe the last result in one line: the error, the returned value, or that there was no run."""
    if standing in (Standing.BROKEN, Standing.OUTDATED):
        return first_line(job.error)
    if job.last is None:
        return "no run yet"
    details = describe_end(job.last, is_check=bool(job.check))
    plain = "succeeded" if job.last.outcome is Outcome.SUCCESS else job.last.outcome.value
    return first_line("; ".join(filter(None, (details or plain, describe_storage_errors(job.last.storage_errors)))))


def make_verdict(
    rows: Sequence[OverviewRow], *, problems: Sequence[str] = (), warnings: Sequence[str] = ()
) -> OverviewVerdict:
    failing = [row for row in rows if row.standing is Standing.FAILING]
    troubled = [row for row in rows if row.standing in ATTENTION]
    due = [row.job.next_due_ms for row in rows if row.job.next_due_ms is not None]
    since = [row.failing.since_ms for row in failing if row.failing]
    counts = Counter(row.standing for row in rows)
    others = () if counts.keys() == {Standing.WELL} else counts.keys() - ATTENTION  # `words` says that all are healthy
    return OverviewVerdict(
        is_well=not troubled and not problems,
        words=words_of(counts, problems),
        more=", ".join(f"{counts[each]:,} {WORDS.get(each, each.value)}" for each in Standing if each in others),
        failing=len(failing),
        jobs=len(rows),
        problems=problems,
        warnings=warnings,
        since_ms=min(since, default=None),
        next_due_ms=min(due, default=None),
    )


def words_of(counts: Counter[Standing], problems: Sequence[str]) -> str:
    """Return the state in one line: problems of the daemon come first, then those of jobs."""
    total, parts = counts.total(), []
    if problems:
        parts.append(problems[0] if len(problems) == 1 else f"{problems[0]}, and {len(problems) - 1} more")
    if counts[Standing.FAILING]:
        parts.append(f"{counts[Standing.FAILING]:,} of {counted(total, 'job')} failing")
    if unloaded := counts[Standing.BROKEN] + counts[Standing.OUTDATED]:
        parts.append(f"{counted(unloaded, 'file does', 'files do')} not load")
    if counts[Standing.DOUBTFUL] and not parts:
        parts.append(f"{counts[Standing.DOUBTFUL]:,} of {counted(total, 'job')} with warnings")
    if parts:
        return "; ".join(parts)
    return {0: "No jobs yet", 1: "The one job is healthy"}.get(total, f"All {total:,} jobs healthy")


def make_overview(
    rows: Sequence[OverviewRow], *, problems: Sequence[str], warnings: Sequence[str], now_ms: int
) -> Steps[Overview]:
    """Put the rows in order, in steps, and sum up their states."""
    order = {standing: number for number, standing in enumerate(Standing) if standing in ATTENTION}
    keys = []
    for place, row in enumerate(rows):
        keys.append((order.get(row.standing, len(order)), row.job.name.casefold(), row.job.id, place))
        yield
    keys.sort()
    yield
    counts = Counter(row.standing for row in rows)
    yield
    return Overview(
        verdict=make_verdict(rows, problems=problems, warnings=warnings),
        rows=[rows[key[-1]] for key in keys],
        states={each.value: counts[each] for each in Standing if each in counts},
        tags=sorted({tag for row in rows for tag in row.job.tags}),
        at_ms=now_ms,
    )


SHOWN_RUNS = 40  # of each job
UPTIMES = ("24h", "30d")
COMPARED = 50  # failures whose reasons are compared


class JobStrip(NamedTuple):
    """The newest runs of one job, after so many changes of them."""

    strip: RunStrip
    series: FailingSeries | None
    changes: int
    uptime: Mapping[str, float | None] = {}


class Strips:
    """The strips that are kept, by job; a strip is read again once the job's runs have changed."""

    def __init__(self, live: LiveJobs) -> None:
        self.live = live
        self.of_job: dict[JobId, JobStrip] = {}
        self.changes = Counter[JobId]()  # of the runs of each job, since the first request
        self._open: dict[RunId, JobId] = {run.id: run.job for job in live for run in job.queue.open_runs()}

    def missing(self) -> list[JobId]:
        """Return the live jobs whose strips must be read; forget the strips of jobs that no longer exist."""
        live = {job.id for job in self.live}
        for job in self.of_job.keys() - live:
            del self.of_job[job]
        stale = {job for job, kept in self.of_job.items() if kept.changes != self.changes.get(job, 0)}
        return sorted(live - self.of_job.keys() | stale)

    def hear(self, change: Change, ids: Sequence[RunId | None] | None) -> None:
        """Count the changes of each job's runs: a strip that was read before a change must be read again."""
        for new, run in zip(change.new, ids or (), strict=False):
            if run is not None:
                self._open[run] = new.job
        jobs = {new.job for new in change.new} | {skipped.job for skipped in change.skipped}
        jobs.update(self._open[begin.run] for begin in change.begin if begin.run in self._open)
        jobs.update(self._open.pop(end.run) for end in change.end if end.run in self._open)
        self.changes.update(jobs)


async def read_strips(
    store: Store, specs: Iterable[JobSpec]
) -> tuple[Mapping[JobId, RunStrip], Mapping[JobId, FailingSeries]]:
    """Return the newest runs of these jobs, and the series of failures of failing ones."""
    found = await store.past_runs.strips([StripWish(spec.id, late_after(spec)) for spec in specs], SHOWN_RUNS)
    failing = [job for job, strip in found.items() if may_be_failing(strip.marks)]
    return found, await store.past_runs.failing(failing) if failing else {}


async def failed_runs(past_runs: PastRuns, job: JobId, in_a_row: int) -> Sequence[Run]:
    """Return the failures of a job that fails, newest first; of very many the newest."""
    wanted = RunFilter(job=job, outcomes=[Outcome.FAILED, Outcome.LOST])
    return (await past_runs.search(wanted, limit=min(in_a_row, COMPARED))).runs if in_a_row else ()


def may_be_failing(marks: str) -> bool:
    """Return whether the latest run that succeeded or failed has failed; True as well where none has done either."""
    latest = next((mark for mark in reversed(marks) if mark in DECISIVE), None)
    return latest in FAILING if latest else bool(marks)
