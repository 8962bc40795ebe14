"""A chart has at most 500 points, hides neither the extremes nor that something failed, and draws inside its frame."""

from __future__ import annotations

import re
from collections.abc import Sequence
from zoneinfo import ZoneInfo

from hypothesis import given
from hypothesis import strategies as st

from spyweb.model import RunMark
from spyweb.store.model.runs import RunPoint
from spyweb.subjects.runs.views import OF_SLOT, percentiles, thin
from spyweb.web.pages import charts
from spyweb.web.pages.charts import BARS, CHART_HEIGHT, CHART_WIDTH, KINDS, STEP, chart, heat, herd, span, strip

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


letters = st.text(st.sampled_from("".join(KINDS)), max_size=60)
moments = st.integers(0, 10**12)
durations = st.integers(0, 10**9)
some_points = st.lists(
    st.builds(RunPoint, st.just(1), moments, durations, durations, st.sampled_from(RunMark)), max_size=60
)
counts = st.lists(st.integers(0, 10_000), max_size=96)


@given(letters)
def test_a_strip_draws_each_run_once(text: str) -> None:
    drawn = strip(text)
    bars = 0
    for letter, path in drawn.paths:
        stretches = [(int(x), int(length)) for x, length in re.findall(r"M(\d+) \d+h(\d+)", path)]
        assert all(x % STEP == 0 and x + length <= BARS * STEP for x, length in stretches)
        bars += sum((length + 2) // STEP for _, length in stretches) // len(KINDS[letter][0])
    assert bars == min(len(text), BARS)


@given(some_points)
def test_every_dot_is_inside_its_chart(points: list[RunPoint]) -> None:
    drawn = chart(points, 0, 10**12, ZoneInfo("UTC"), limit_ms=300_000)
    dots = [dot for _, path in drawn.paths for dot in re.findall(r"M([\d.e+-]+) ([\d.e+-]+)h", path)]
    assert len(dots) == len(points)
    assert all(0 <= float(x) <= CHART_WIDTH and 0 <= float(y) <= CHART_HEIGHT for x, y in dots)
    heights = [height for height, _ in drawn.lines]
    assert heights == sorted(set(heights))
    assert (heights[0], heights[-1]) == (0, CHART_HEIGHT)


@given(counts)
def test_a_heat_map_draws_every_slot_with_runs_and_no_other(numbers: list[int]) -> None:
    bounds = charts.bounds_of(max(numbers, default=0))
    drawn = {int(slot): level for level, path in heat(numbers, bounds) for slot in re.findall(r"M(\d+) ", path)}
    assert sorted(drawn) == [slot for slot, number in enumerate(numbers) if number]
    by_count = sorted((number, drawn[slot]) for slot, number in enumerate(numbers) if number)
    assert [level for _, level in by_count] == sorted(drawn.values()), "more runs are never paler"
    assert len(bounds) <= charts.LEVELS


@given(moments, st.integers(1, 40 * 86_400_000), st.sampled_from(["UTC", "Europe/Berlin", "Asia/Kolkata"]))
def test_an_axis_has_a_few_round_times_in_order(start_ms: int, span_ms: int, zone: str) -> None:
    ticks = charts.time_ticks(start_ms, start_ms + span_ms, ZoneInfo(zone))
    assert (0 if span_ms < 60_000 else 1) <= len(ticks) <= charts.TICKS
    places = [0, *(tick.x for tick in ticks), charts.LAST_TICK]
    assert places == sorted(places)


def test_the_chart_of_a_new_job_begins_with_its_first_run_and_its_ticks_are_whole_minutes() -> None:
    runs = [RunPoint(number, 86_000_000 + number * 30_000, 5, 0, RunMark.SUCCESS) for number in range(10)]
    drawn = chart(runs, 0, 86_300_000, ZoneInfo("UTC"))
    ((letter, path),) = drawn.paths
    assert letter == RunMark.SUCCESS.value
    assert float(path[1:].split()[0]) < CHART_WIDTH / 10
    assert [(tick.at_ms % 60_000, tick.unit) for tick in drawn.ticks] == [(0, "minute")] * len(drawn.ticks)


@given(counts)
def test_no_bar_of_all_jobs_is_taller_than_the_peak(numbers: list[int]) -> None:
    drawn = herd(numbers)
    heights = [float(height) for height in re.findall(r"v-([\d.e+-]+)", drawn.bars + drawn.peak)]
    assert all(0 < height <= 64 for height in heights)
    assert len(heights) == sum(1 for number in numbers if number)


@given(st.floats(0, 1e12), st.floats(0, 1e12), st.floats(0, 1e12))
def test_a_span_stays_in_its_run(start: float, took: float, whole: float) -> None:
    drawn = span(start, took, whole)
    assert drawn.x >= 0
    assert 0 < drawn.width <= 1
    assert drawn.x + drawn.width <= 1.0001
