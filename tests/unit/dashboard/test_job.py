"""One job in words and charts."""

from __future__ import annotations

from spyweb.dashboard.charts import KINDS
from spyweb.dashboard.job import (
    HEADINGS,
    SPAN_WORDS,
    after_words,
    draw_statistics,
    heading_of,
    show_run,
    split_settings,
    tab_title,
    ticks,
)
from spyweb.model import JobId, Outcome, RunMark
from spyweb.store.model.runs import RunPoint
from spyweb.views.job_detail import Tie
from spyweb.views.overview import Standing
from spyweb.views.statistics import TimeSpan, make_statistics
from tests.fakes.daemon_service import NOW_MS, make_run
from tests.fakes.dashboard import make_detail, three_rows


def point(number: int, mark: RunMark = RunMark.SUCCESS, **changes: int) -> RunPoint:
    known = {"run": number, "at_ms": NOW_MS - number, "took_ms": 100 * number, "late_ms": number}
    return RunPoint(mark=mark, **{**known, **changes})


def test_every_standing_outcome_and_span_has_words() -> None:
    assert set(HEADINGS) == set(Standing)
    assert set(KINDS) == set(RunMark)
    assert set(SPAN_WORDS) == set(TimeSpan)


def test_the_heading_and_the_tab_begin_with_what_matters() -> None:
    backup, prices, _ = three_rows()
    assert heading_of(backup) == ("bad", "failing")
    assert tab_title(prices) == "prices: well"


def test_a_run_is_shown_with_how_late_it_was_where_that_is_known() -> None:
    shown = show_run(make_run(1), 1_000)
    assert (shown.word, shown.tone, shown.mark, shown.took_ms, shown.late_ms) == ("succeeded", "ok", "ok", 1_234, 0)
    missed = show_run(make_run(3, started_ms=None, outcome=Outcome.MISSED, count=7), 1_000)
    assert (missed.word, missed.tone, missed.took_ms, missed.late_ms) == ("missed 7 times", "warn", None, None)
    assert show_run(make_run(2, attempt=2), 1_000).late_ms is None


def test_a_chart_shows_the_runs_of_its_span() -> None:
    points = [point(number) for number in range(99, 0, -1)]
    drawn = draw_statistics(make_statistics(JobId("prices"), TimeSpan.DAY, points, NOW_MS))
    assert drawn.label.endswith("99 succeeded")
    assert draw_statistics(make_statistics(JobId("prices"), TimeSpan.WEEK, [], NOW_MS)).paths == ()


def test_a_tie_says_after_which_ends() -> None:
    tie = Tie(job=JobId("report"), name="report", outcomes=[Outcome.FAILED, Outcome.LOST])
    assert after_words(tie) == "failed or lost"


def test_settings_that_somebody_has_written_stand_apart() -> None:
    written, built_in = split_settings(make_detail(three_rows()[0]))
    assert ([each.key for each in written], [each.key for each in built_in]) == (["every"], ["timeout"])


def test_ticks_are_evenly_spread() -> None:
    statistics = make_statistics(JobId("prices"), TimeSpan.DAY, [], NOW_MS)
    assert [NOW_MS - ms for ms in ticks(statistics)] == [86_400_000, 64_800_000, 43_200_000, 21_600_000, 0]
