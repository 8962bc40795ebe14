from __future__ import annotations

from contextlib import suppress

from hypothesis import given
from hypothesis import strategies as st

from spyweb.settings.units import LONGEST_MS, format_duration, format_size, parse_duration, parse_size


@given(st.integers(0, LONGEST_MS))
def test_a_duration_that_is_shown_reads_back_as_itself(ms: int) -> None:
    assert parse_duration(format_duration(ms)) == ms


@given(st.integers(0, 1 << 50))
def test_a_size_that_is_shown_reads_back_as_itself(size: int) -> None:
    assert parse_size(format_size(size)) == size


@given(st.text() | st.integers() | st.floats() | st.none() | st.booleans() | st.lists(st.integers()))
def test_any_value_is_a_duration_and_a_size_or_a_value_error(value: object) -> None:
    for parse in (parse_duration, parse_size):
        with suppress(ValueError):
            assert parse(value) >= 0
