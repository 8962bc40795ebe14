"""Words of the pages of jobs: a row of the overview, the heading of a job, its charts.  Pure."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import NamedTuple

from msgspec import Struct

from spyweb.model import RunMark
from spyweb.subjects.jobs.overview import ATTENTION, OverviewRow, Standing
from spyweb.subjects.jobs.views import Tie
from spyweb.subjects.runs.views import TimeSpan
from spyweb.views.runs import check_result
from spyweb.web.pages.charts import KINDS, Strip, strip


class StandingWords(NamedTuple):
    """The words and the mark of a job's state."""

    mark: str
    word: str
    heading: str  # behind the name of a job on its page


STANDINGS: Mapping[Standing, StandingWords] = {
    Standing.FAILING: StandingWords("bad", "failing", "failing"),
    Standing.BROKEN: StandingWords("bad", "broken file", "the file does not load"),
    Standing.OUTDATED: StandingWords("warn", "old version runs", "saved with an error"),
    Standing.DOUBTFUL: StandingWords("warn", "warning", "has a warning"),
    Standing.RUNNING: StandingWords("run", "running", "running"),
    Standing.WAITING: StandingWords("wait", "waiting", "waiting"),
    Standing.WELL: StandingWords("ok", "healthy", "healthy"),
    Standing.SKIPPED: StandingWords("none", "skipped", "all runs skipped so far"),
    Standing.NEW: StandingWords("none", "new", "no run yet"),
    Standing.PAUSED: StandingWords("off", "paused", "paused"),
    Standing.DISABLED: StandingWords("none", "disabled", "disabled"),
}
CHECK_STANDINGS: Mapping[Standing, StandingWords] = {
    **STANDINGS,
    Standing.FAILING: StandingWords("bad", "down", "down"),
    Standing.WELL: StandingWords("ok", "up", "up"),
}
SPAN_WORDS: Mapping[TimeSpan, str] = {TimeSpan.DAY: "24 h", TimeSpan.WEEK: "7 d", TimeSpan.MONTH: "30 d"}

# Each order of the list: its words, and its sort key.  Rows come with the worst first.
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
            and any(word in text.casefold() for text in (job.name, job.id, job.schedule, job.description, row.result))
        )


class ShownJob(Struct, frozen=True, kw_only=True):
    """One row as it is drawn."""

    row: OverviewRow
    how: str  # when the job runs, in words
    mark: str
    word: str  # its state
    tone: str
    strip: Strip
    what: str  # the last result, or the state where a list above has the reason


def words_of_row(row: OverviewRow) -> StandingWords:
    return (CHECK_STANDINGS if row.job.check else STANDINGS)[row.standing]


def draw_row(row: OverviewRow, how: str = "", *, is_above: bool = False) -> ShownJob:
    """Return a row as it is drawn; `how` is the schedule in words."""
    mark, word, _ = words_of_row(row)
    checked = check_result(row.job.last) if row.job.check else None
    return ShownJob(
        row=row,
        how=how or row.job.schedule,
        mark=mark,
        word=word,
        tone=mark if mark in ("bad", "warn") else checked.tone if checked else "",
        strip=strip(row.strip),
        what=word if is_above else row.result,
    )


def state_of(standings: Collection[Standing], problems: Sequence[object], warnings: Sequence[object]) -> str:
    """Return the state for the icon of every page."""
    if problems or Standing.FAILING in standings or Standing.BROKEN in standings:
        return "bad"
    return "ok" if ATTENTION.isdisjoint(standings) and not warnings else "warn"


def after_words(tie: Tie) -> str:
    """Return the outcomes of a job after which another one starts, in words."""
    words = [KINDS[RunMark[outcome.name]][1] for outcome in tie.outcomes]
    return " or ".join(dict.fromkeys(words)) or "any end"
