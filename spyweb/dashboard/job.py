"""Show one job: what it says of itself in words, and its charts.  Pure."""

from __future__ import annotations

from collections.abc import Mapping

from spyweb.dashboard.charts import KINDS, Chart, chart
from spyweb.dashboard.overview import MARKS
from spyweb.model import RunMark
from spyweb.specs.origins import OriginKind, ResolvedSetting
from spyweb.views.job_detail import JobDetail, Tie
from spyweb.views.overview import OverviewRow, Standing
from spyweb.views.statistics import JobStatistics, TimeSpan

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
