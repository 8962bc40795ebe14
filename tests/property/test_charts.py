"""A chart has at most 500 points, and hides neither the extremes nor that something failed."""

from __future__ import annotations

from collections.abc import Sequence

from hypothesis import given
from hypothesis import strategies as st

from spyweb.model import RunMark
from spyweb.store.model.runs import RunPoint
from spyweb.subjects.runs.views import OF_SLOT, percentiles, thin, uptime_of

SPAN_MS = 10_000
RUNS = st.lists(
    st.tuples(
        st.integers(0, SPAN_MS), st.integers(0, 50), st.sampled_from([RunMark.SUCCESS, RunMark.FAILED, RunMark.LATE])
    ),
    max_size=200,
)


def points(runs: Sequence[tuple[int, int, RunMark]]) -> list[RunPoint]:
    return [RunPoint(number, at, took, 0, mark) for number, (at, took, mark) in enumerate(sorted(runs))]


@given(RUNS, st.integers(6, 60))
def test_a_chart_has_no_more_points_than_it_may_and_keeps_the_extremes(
    runs: Sequence[tuple[int, int, RunMark]], most: int
) -> None:
    given_points = points(runs)
    shown = thin(given_points, 0, SPAN_MS, most)

    assert len(shown) <= max(most, OF_SLOT)
    assert set(shown) <= set(given_points)
    assert [point.at_ms for point in shown] == sorted(point.at_ms for point in shown)
    if given_points:
        for extreme in (min, max):
            assert extreme(p.took_ms for p in shown) == extreme(p.took_ms for p in given_points)
        assert {p.mark is RunMark.FAILED for p in shown} >= {True} & {p.mark is RunMark.FAILED for p in given_points}
    if len(given_points) <= most:
        assert shown == given_points


@given(st.lists(st.integers(0, 1_000), min_size=1, max_size=300))
def test_percentiles_have_so_many_values_at_or_below_them(values: list[int]) -> None:
    found = percentiles(values)
    assert found is not None
    for part, value in ((50, found.p50), (95, found.p95), (99, found.p99)):
        assert value in values
        assert sum(each <= value for each in values) * 100 >= part * len(values)
        assert sum(each < value for each in values) * 100 < part * len(values)
    assert found.most == max(values)


@given(RUNS, st.integers(0, 3 * SPAN_MS))
def test_uptime_is_a_share(runs: Sequence[tuple[int, int, RunMark]], now_ms: int) -> None:
    found = uptime_of(points(runs), now_ms)
    assert (found is None) == (not runs)
    assert found is None or 0 <= found <= 1
