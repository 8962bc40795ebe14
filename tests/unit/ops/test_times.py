from __future__ import annotations

import pytest

from spyweb.ops.times import Times


def test_there_is_nothing_to_tell_before_the_first() -> None:
    assert Times().percentile(50) == 0


@pytest.mark.parametrize("percent", [1, 50, 90, 99, 100])
def test_a_percentile_is_right_to_a_tenth(percent: float) -> None:
    times = Times()
    for number in range(1, 1001):
        times.note(number / 1000)
    exact = percent / 100
    assert exact <= times.percentile(percent) <= exact * 1.1


def test_nothing_is_too_short() -> None:
    times = Times()
    times.note(0)
    times.note(-1)
    assert times.percentile(100) == 1e-6
