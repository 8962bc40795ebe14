from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spyweb.histogram import FINE_SECONDS, Histogram

INFINITY = float("inf")


def test_a_measurement_is_counted_up_to_and_including_the_bound_of_its_bucket() -> None:
    histogram = Histogram((1.0, 2.0))
    for value in (0.5, 1.0, 1.5, 2.5):
        histogram.observe(value)
    assert list(histogram.cumulative()) == [(1.0, 2), (2.0, 3), (INFINITY, 4)]
    assert (histogram.count, histogram.sum) == (4, 5.5)


def test_a_copy_stays_as_it_was() -> None:
    histogram = Histogram((1.0,))
    histogram.observe(1)
    copied = histogram.copy()
    histogram.observe(1)
    assert (copied.count, copied.sum, histogram.count) == (1, 1, 2)


@given(st.lists(st.integers(-10, 100)))
def test_the_counts_are_those_of_a_plain_comparison(values: list[int]) -> None:
    histogram = Histogram((0.0, 10.0, 50.0))
    for value in values:
        histogram.observe(value)
    assert list(histogram.cumulative()) == [
        (bound, sum(value <= bound for value in values)) for bound in (0.0, 10.0, 50.0, INFINITY)
    ]


def test_there_is_nothing_to_tell_before_the_first() -> None:
    assert Histogram(FINE_SECONDS).percentile(50) == 0


@pytest.mark.parametrize("percent", [1, 50, 90, 99, 100])
def test_a_percentile_is_right_to_a_tenth(percent: float) -> None:
    times = Histogram(FINE_SECONDS)
    for number in range(1, 1001):
        times.observe(number / 1000)
    exact = percent / 100
    assert exact <= times.percentile(percent) <= exact * 1.1


def test_nothing_is_too_short() -> None:
    times = Histogram(FINE_SECONDS)
    times.observe(0)
    times.observe(-1)
    assert times.percentile(100) == 1e-6
