"""Words of the pages of jobs: a row of the overview, the heading of a job, its charts.  Pure."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from enum import StrEnum

from msgspec import Struct

from spyweb.model import RunMark
from spyweb.specs.origins import OriginKind, ResolvedSetting
from spyweb.subjects.jobs.overview import ATTENTION, Overview, OverviewRow, Standing
from spyweb.subjects.jobs.views import JobDetail, Tie
from spyweb.subjects.runs.views import JobStatistics, TimeSpan
from spyweb.web.pages.charts import KINDS, Chart, Strip, chart, strip

ATTENTION_SHOWN = 8  # jobs in trouble above the list; all are in it as well

MARKS = {
    Standing.FAILING: "bad",
    Standing.BROKEN: "bad",
    Standing.OUTDATED: "warn",
    Standing.DOUBTFUL: "warn",
    Standing.RUNNING: "run",
    Standing.WAITING: "wait",
    Standing.WELL: "ok",
    Standing.NEW: "none",
    Standing.PAUSED: "off",
    Standing.DISABLED: "none",
}

WORDS = {
    Standing.BROKEN: "broken file",
    Standing.OUTDATED: "old version runs",
    Standing.DOUBTFUL: "to look at",
    Standing.NEW: "never ran",
}


class JobOrder(StrEnum):
    """An order of the list."""

    WORST = "worst"
    NEXT = "next"
    NAME = "name"
    SLOWEST = "slowest"


ORDER_WORDS = {
    JobOrder.WORST: "Worst first",
    JobOrder.NEXT: "Next run",
    JobOrder.NAME: "Name",
    JobOrder.SLOWEST: "Slowest",
}


class JobFilter(Struct, frozen=True, kw_only=True):
    """A choice of rows; empty stands for all."""

    q: str = ""
    tag: str = ""
    state: str = ""
    sort: str = JobOrder.WORST.value

    def takes(self, row: OverviewRow) -> bool:
        job = row.job
        if self.state and row.standing != self.state:
            return False
        if self.tag and self.tag not in job.tags:
            return False
        word = self.q.casefold()
        return not word or any(word in text.casefold() for text in (job.name, job.id, job.schedule, row.result))


class ShownJob(Struct, frozen=True, kw_only=True):
    """One row as it is drawn."""

    row: OverviewRow
    how: str  # what starts it
    mark: str
    word: str  # its standing
    tone: str
    strip: Strip


def show_job(row: OverviewRow, how: str = "") -> ShownJob:
    """Return a row as it is drawn; `how` says in words what starts the job."""
    mark = MARKS[row.standing]
    return ShownJob(
        row=row,
        how=how or row.job.schedule,
        mark=mark,
        word=word_of(row.standing),
        tone=mark if mark in ("bad", "warn") else "",
        strip=strip(row.strip),
    )


def word_of(standing: Standing) -> str:
    return WORDS.get(standing, standing.value)


def sort_rows(rows: Iterable[OverviewRow], order: str) -> list[OverviewRow]:
    """Sort the rows of an overview, which come with the worst first."""
    match order:
        case JobOrder.NEXT:
            return sorted(rows, key=lambda row: (row.job.next_due_ms is None, row.job.next_due_ms or 0))
        case JobOrder.NAME:
            return sorted(rows, key=lambda row: (row.job.name.casefold(), row.job.id))
        case JobOrder.SLOWEST:
            return sorted(rows, key=lambda row: -(row.median_ms or -1))
        case _:
            return list(rows)


def in_trouble(rows: Iterable[OverviewRow]) -> list[OverviewRow]:
    return [row for row in rows if row.standing in ATTENTION]


def state_of(standings: Collection[Standing], problems: Sequence[object], warnings: Sequence[object]) -> str:
    """Return the state that the icon of every page shows."""
    if problems or Standing.FAILING in standings or Standing.BROKEN in standings:
        return "bad"
    return "ok" if ATTENTION.isdisjoint(standings) and not warnings else "warn"


def title_of(overview: Overview) -> str:
    """Return the title of the tab, which has room for a few words."""
    verdict = overview.verdict
    return f"{verdict.failing:,} failing" if verdict.failing else verdict.words


# What stands behind the name of a job in the heading of its page; of a failing one also since when.
HEADINGS: Mapping[Standing, str] = {
    Standing.FAILING: "failing",
    Standing.BROKEN: "its file does not load",
    Standing.OUTDATED: "saved with an error",
    Standing.DOUBTFUL: "something to look at",
    Standing.RUNNING: "running",
    Standing.WAITING: "waiting for its turn",
    Standing.WELL: "well",
    Standing.NEW: "has not run yet",
    Standing.PAUSED: "paused",
    Standing.DISABLED: "disabled",
}

SPAN_WORDS: Mapping[TimeSpan, str] = {TimeSpan.DAY: "24 h", TimeSpan.WEEK: "7 d", TimeSpan.MONTH: "30 d"}


def heading_of(row: OverviewRow) -> tuple[str, str]:
    """Return the mark of a job and what stands behind its name."""
    return MARKS[row.standing], HEADINGS[row.standing]


def draw_statistics(statistics: JobStatistics, limit_ms: int | None = None) -> Chart:
    """Draw the runs of a span."""
    return chart(statistics.points, start_ms=statistics.since_ms, end_ms=statistics.until_ms, limit_ms=limit_ms)


def after_words(tie: Tie) -> str:
    """Say after which outcomes of a job another one starts."""
    words = [KINDS[RunMark[outcome.name]][1] for outcome in tie.outcomes]
    return " or ".join(dict.fromkeys(words)) or "any end"


def split_settings(detail: JobDetail) -> tuple[list[ResolvedSetting], list[ResolvedSetting]]:
    """Return the settings that somebody has written, and those that are built in."""
    written = [each for each in detail.settings if each.origin is not OriginKind.BUILT_IN]
    return written, [each for each in detail.settings if each.origin is OriginKind.BUILT_IN]


def tab_title(row: OverviewRow) -> str:
    """Return the title of the tab: the name first, as it is what tells tabs apart."""
    return f"{row.job.name}: {HEADINGS[row.standing]}"


def ticks(statistics: JobStatistics, count: int = 5) -> list[int]:
    """Return moments evenly spread over a span."""
    return [statistics.since_ms + statistics.span.ms * number // (count - 1) for number in range(count)]
