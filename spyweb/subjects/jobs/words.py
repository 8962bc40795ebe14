"""Words of the pages of jobs: a row of the overview, the heading of a job, its charts.  Pure."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import NamedTuple

from msgspec import Struct

from spyweb.model import RunMark
from spyweb.subjects.jobs.overview import ATTENTION, OverviewRow, Standing
from spyweb.subjects.jobs.views import Tie
from spyweb.subjects.runs.views import TimeSpan
from spyweb.web.pages.charts import KINDS, Strip, strip


class StandingWords(NamedTuple):
    """How the standing of a job is shown."""

    mark: str
    word: str
    heading: str  # behind the name of a job on its page


STANDINGS: Mapping[Standing, StandingWords] = {
    Standing.FAILING: StandingWords("bad", "failing", "failing"),
    Standing.BROKEN: StandingWords("bad", "broken file", "its file does not load"),
    Standing.OUTDATED: StandingWords("warn", "old version runs", "saved with an error"),
    Standing.DOUBTFUL: StandingWords("warn", "to look at", "something to look at"),
    Standing.RUNNING: StandingWords("run", "running", "running"),
    Standing.WAITING: StandingWords("wait", "waiting", "waiting for its turn"),
    Standing.WELL: StandingWords("ok", "well", "well"),
    Standing.NEW: StandingWords("none", "never ran", "has not run yet"),
    Standing.PAUSED: StandingWords("off", "paused", "paused"),
    Standing.DISABLED: StandingWords("none", "disabled", "disabled"),
}
SPAN_WORDS: Mapping[TimeSpan, str] = {TimeSpan.DAY: "24 h", TimeSpan.WEEK: "7 d", TimeSpan.MONTH: "30 d"}

# Each order of the list in words, and what it sorts the rows of an overview by, which come with the worst first.
ORDERS: Mapping[str, tuple[str, Callable[[OverviewRow], tuple[object, ...]]]] = {
    "worst": ("Worst first", lambda _row: ()),
    "next": ("Next run", lambda row: (row.job.next_due_ms is None, row.job.next_due_ms or 0)),
    "name": ("Name", lambda row: (row.job.name.casefold(), row.job.id)),
    "slowest": ("Slowest", lambda row: (-(row.median_ms or -1),)),
}


class JobFilter(Struct, frozen=True, kw_only=True):
    """A choice of rows; empty stands for all."""

    q: str = ""
    tag: str = ""
    state: str = ""
    sort: str = "worst"

    def takes(self, row: OverviewRow) -> bool:
        job, word = row.job, self.q.casefold()
        return (
            self.state in ("", row.standing)
            and (not self.tag or self.tag in job.tags)
            and (not word or any(word in text.casefold() for text in (job.name, job.id, job.schedule, row.result)))
        )


class ShownJob(Struct, frozen=True, kw_only=True):
    """One row as it is drawn."""

    row: OverviewRow
    how: str  # what starts it
    mark: str
    word: str  # its standing
    tone: str
    strip: Strip


def draw_row(row: OverviewRow, how: str = "") -> ShownJob:
    """Return a row as it is drawn; `how` says in words what starts the job."""
    mark, word, _ = STANDINGS[row.standing]
    return ShownJob(
        row=row,
        how=how or row.job.schedule,
        mark=mark,
        word=word,
        tone=mark if mark in ("bad", "warn") else "",
        strip=strip(row.strip),
    )


def state_of(standings: Collection[Standing], problems: Sequence[object], warnings: Sequence[object]) -> str:
    """Return the state that the icon of every page shows."""
    if problems or Standing.FAILING in standings or Standing.BROKEN in standings:
        return "bad"
    return "ok" if ATTENTION.isdisjoint(standings) and not warnings else "warn"


def after_words(tie: Tie) -> str:
    """Say after which outcomes of a job another one starts."""
    words = [KINDS[RunMark[outcome.name]][1] for outcome in tie.outcomes]
    return " or ".join(dict.fromkeys(words)) or "any end"
