"""The figures of a job; tests/property/test_charts.py holds the laws of its points."""

from __future__ import annotations

import pytest

from spyweb.model import RunMark
from spyweb.store.model.runs import RunPoint
from spyweb.subjects.runs.views import MOST_POINTS, TimeSpan, make_statistics, percentiles, uptime_of
from tests.fakes.daemon_service import NOW_MS, PRICES

DAY_MS = TimeSpan.DAY.ms


def point(at: int, mark: RunMark = RunMark.SUCCESS, *, took: int = 10, late: int = 0) -> RunPoint:
    return RunPoint(at, at, took, late, mark)


def test_figures_count_what_came_to_an_end_of_its_own() -> None:
    since = NOW_MS - DAY_MS
    marks = [RunMark.SUCCESS, RunMark.LATE, RunMark.FAILED, RunMark.CANCELLED, RunMark.LOST]
    runs = [point(since + at, mark, took=at, late=at * 2) for at, mark in enumerate(marks)]
    found = make_statistics(PRICES, TimeSpan.DAY, runs, NOW_MS)

    assert (found.runs, found.succeeded, found.failed, found.success_rate) == (5, 2, 2, 0.5)
    assert found.took_ms is not None
    assert (found.took_ms.p50, found.took_ms.most) == (2, 4)
    assert found.late_ms is not None
    assert found.late_ms.p99 == 8
    assert (found.since_ms, found.until_ms, found.is_thinned, list(found.points)) == (since, NOW_MS, False, runs)


def test_a_job_without_runs_has_no_figures() -> None:
    found = make_statistics(PRICES, TimeSpan.MONTH, [], NOW_MS)
    assert (found.success_rate, found.uptime, found.took_ms, found.late_ms) == (None, None, None, None)
    assert percentiles([]) is None


@pytest.mark.parametrize(
    ("marks", "uptime"),
    [
        ([RunMark.SUCCESS], 1.0),
        ([RunMark.FAILED], 0.0),
        ([RunMark.SUCCESS, RunMark.FAILED], 0.1),  # up from 10 to 110, down to 1,010
        ([RunMark.SUCCESS, RunMark.CANCELLED], 1.0),
        ([RunMark.CANCELLED], None),
    ],
)
def test_uptime_is_the_time_in_which_the_latest_run_had_succeeded(marks: list[RunMark], uptime: float | None) -> None:
    assert uptime_of([point(at * 100, mark) for at, mark in enumerate(marks)], 1_010) == uptime


def test_a_clock_that_was_set_back_makes_no_negative_uptime() -> None:
    assert uptime_of([point(5_000), point(9_000, RunMark.FAILED)], 1_000) == 0.0


def test_of_many_runs_a_chart_has_some() -> None:
    since = NOW_MS - DAY_MS
    found = make_statistics(PRICES, TimeSpan.DAY, [point(since + at * 10_000) for at in range(8_640)], NOW_MS)
    assert found.is_thinned
    assert MOST_POINTS - 10 <= len(found.points) <= MOST_POINTS
