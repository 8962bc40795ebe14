"""The first page: how all jobs stand, in words, and a row of each.  Pure.

Words hold no times of day: who shows them knows the reader's zone, and finds the moments beside the words.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from enum import StrEnum

from msgspec import Struct, structs

from spyweb.cooperative import Steps, run_at_once
from spyweb.model import Outcome, Run, RunId
from spyweb.runs.records import NOT_AS_EXPECTED
from spyweb.store.model.runs import FailingSeries, RunStrip
from spyweb.views.jobs import JobState, JobView
from spyweb.views.runs import LastRun, describe_details, describe_storage_errors
from spyweb.views.strips import median_ms, success_rate
from spyweb.words import counted, first_line


class Standing(StrEnum):
    """How a job stands, the worst first."""

    FAILING = "failing"
    BROKEN = "broken"  # its file does not load, and no version runs
    OUTDATED = "outdated"  # its file does not load, and an earlier version runs on
    DOUBTFUL = "doubtful"  # it succeeds, but something was refused or not found
    RUNNING = "running"
    WAITING = "waiting"
    WELL = "well"
    NEW = "new"  # it has not run yet
    PAUSED = "paused"
    DISABLED = "disabled"


ATTENTION = frozenset({Standing.FAILING, Standing.BROKEN, Standing.OUTDATED, Standing.DOUBTFUL})


class Failing(Struct, frozen=True, kw_only=True):
    """The failures in a row with which a job's runs end."""

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


class OverviewVerdict(Struct, frozen=True, kw_only=True):
    """How it stands, in one line."""

    is_well: bool
    words: str  # "2 of 42 jobs failing"
    more: str  # "37 well, 1 running"
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
) -> OverviewRow:
    if strip is None:  # not known: the last run alone tells whether the job fails
        strip, is_failing = RunStrip(), job.last is not None and job.last.outcome in (Outcome.FAILED, Outcome.LOST)
    else:
        is_failing = series is not None
    standing = standing_of(job, is_failing=is_failing)
    return OverviewRow(
        job=job,
        standing=standing,
        strip=strip.marks,
        newest=RunId(max(strip.ids)) if strip.ids else None,
        result=result_of(job, standing),
        success_rate=success_rate(strip.marks),
        median_ms=median_ms(strip.took_ms),
        failing=view_series(series) if series else None,
        running_since_ms=running_since_ms,
        held_up=held_up if series else (),
    )


def row_seen_by(row: OverviewRow, may_see: Callable[[str], bool]) -> OverviewRow:
    """Return a row without the other jobs that somebody may not see."""
    seen = [job for job in row.held_up if may_see(job)]
    return row if len(seen) == len(row.held_up) else structs.replace(row, held_up=seen)


def overview_seen_by(overview: Overview, may_see: Callable[[str], bool]) -> Overview:
    """Return what somebody may see of it; who may not see all jobs is not told of the daemon's own problems either."""
    if may_see(""):
        return overview
    rows = [row_seen_by(row, may_see) for row in overview.rows if may_see(row.job.id)]
    return run_at_once(make_overview(rows, problems=(), warnings=(), now_ms=overview.at_ms))


def view_series(series: FailingSeries) -> Failing:
    words = f"{counted(series.count, 'run')} in a row" if series.count > 1 else "1 run"
    return Failing(since_ms=series.since_ms, count=series.count, first=series.first, words=words)


def standing_of(job: JobView, *, is_failing: bool) -> Standing:
    """Return how a job stands: what needs somebody is stronger than what goes on."""
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
    return Standing.DOUBTFUL if is_doubtful(job.last) else Standing.WELL


def is_doubtful(last: LastRun | Run) -> bool:
    return bool(last.storage_errors) or last.note.startswith(NOT_AS_EXPECTED)


def result_of(job: JobView, standing: Standing) -> str:
    """Describe the last result in one line: the error, what was returned, or that it never ran."""
    if standing in (Standing.BROKEN, Standing.OUTDATED):
        return first_line(job.error)
    if job.last is None:
        return "never ran"
    details = describe_details(job.last)
    plain = "succeeded" if job.last.outcome is Outcome.SUCCESS else job.last.outcome.value
    return first_line("; ".join(filter(None, (details or plain, describe_storage_errors(job.last.storage_errors)))))


def make_verdict(
    rows: Sequence[OverviewRow], *, problems: Sequence[str] = (), warnings: Sequence[str] = ()
) -> OverviewVerdict:
    failing = [row for row in rows if row.standing is Standing.FAILING]
    troubled = [row for row in rows if row.standing in ATTENTION]
    due = [row.job.next_due_ms for row in rows if row.job.next_due_ms is not None]
    since = [row.failing.since_ms for row in failing if row.failing]
    return OverviewVerdict(
        is_well=not troubled and not problems,
        words=words_of(rows, problems),
        more=describe_standings(rows),
        failing=len(failing),
        jobs=len(rows),
        problems=problems,
        warnings=warnings,
        since_ms=min(since, default=None),
        next_due_ms=min(due, default=None),
    )


def words_of(rows: Sequence[OverviewRow], problems: Sequence[str]) -> str:
    """Say in one line how it stands: first what is wrong with the daemon, then with the jobs."""
    counts = count_standings(rows)
    total, parts = len(rows), []
    if problems:
        parts.append(problems[0] if len(problems) == 1 else f"{problems[0]}, and {len(problems) - 1} more")
    if counts.get(Standing.FAILING):
        parts.append(f"{counts[Standing.FAILING]:,} of {counted(total, 'job')} failing")
    unloaded = counts.get(Standing.BROKEN, 0) + counts.get(Standing.OUTDATED, 0)
    if unloaded:
        parts.append(f"{counted(unloaded, 'file does', 'files do')} not load")
    if counts.get(Standing.DOUBTFUL) and not parts:
        parts.append(f"{counts[Standing.DOUBTFUL]:,} of {counted(total, 'job')} to look at")
    if parts:
        return "; ".join(parts)
    if not total:
        return "No jobs yet"
    if total == 1:
        return "The one job is well"
    return f"All {total:,} jobs well"


def describe_standings(rows: Sequence[OverviewRow]) -> str:
    """Return `37 well, 1 running`: of all that needs nobody, how many there are."""
    counts = count_standings(rows)
    quiet = [each for each in Standing if each not in ATTENTION and counts.get(each)]
    return ", ".join(f"{counts[each]:,} {each.value}" for each in quiet)


def count_standings(rows: Iterable[OverviewRow]) -> dict[Standing, int]:
    counts: dict[Standing, int] = {}
    for row in rows:
        counts[row.standing] = counts.get(row.standing, 0) + 1
    return counts


def make_overview(
    rows: Sequence[OverviewRow], *, problems: Sequence[str], warnings: Sequence[str], now_ms: int
) -> Steps[Overview]:
    """Put the rows in order, in steps, and say how it stands."""
    order = {standing: number for number, standing in enumerate(Standing) if standing in ATTENTION}
    keys = []
    for place, row in enumerate(rows):
        keys.append((order.get(row.standing, len(order)), row.job.name.casefold(), row.job.id, place))
        yield
    keys.sort()
    yield
    counts = count_standings(rows)
    yield
    return Overview(
        verdict=make_verdict(rows, problems=problems, warnings=warnings),
        rows=[rows[key[-1]] for key in keys],
        states={each.value: counts[each] for each in Standing if each in counts},
        tags=sorted({tag for row in rows for tag in row.job.tags}),
        at_ms=now_ms,
    )
