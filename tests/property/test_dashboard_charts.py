"""Laws of the charts, whatever the runs were."""

from __future__ import annotations

import re

from hypothesis import given
from hypothesis import strategies as st

from spyweb.model import RunMark
from spyweb.store.model.runs import RunPoint
from spyweb.web.pages.charts import (
    BARS,
    CHART_HEIGHT,
    CHART_WIDTH,
    KINDS,
    STEP,
    chart,
    heat,
    herd,
    span,
    strip,
)

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
    drawn = chart(points, start_ms=0, end_ms=10**12, limit_ms=300_000)
    dots = [dot for _, path in drawn.paths for dot in re.findall(r"M([\d.e+-]+) ([\d.e+-]+)h", path)]
    assert len(dots) == len(points)
    assert all(0 <= float(x) <= CHART_WIDTH and 0 <= float(y) <= CHART_HEIGHT for x, y in dots)
    heights = [height for height, _ in drawn.lines]
    assert heights == sorted(set(heights))
    assert (heights[0], heights[-1]) == (0, CHART_HEIGHT)


@given(counts)
def test_a_heat_map_draws_every_slot_with_runs_and_no_other(numbers: list[int]) -> None:
    drawn = [int(slot) for _, path in heat(numbers) for slot in re.findall(r"M(\d+) ", path)]
    assert sorted(drawn) == [slot for slot, number in enumerate(numbers) if number]


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
