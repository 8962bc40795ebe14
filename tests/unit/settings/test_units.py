from __future__ import annotations

from collections.abc import Callable

import pytest

from spyweb.settings.units import format_duration, format_size, parse_duration, parse_size

DURATIONS = [
    (30, 30_000), (0.1, 100), (0.001, 1), (1e3, 1_000_000), ("30", 30_000), ("1.5", 1_500), ("250ms", 250),
    ("1h30m", 5_400_000), (" 1h 30m ", 5_400_000), ("0.1s", 100), ("1.5h", 5_400_000), ("30 days", 2_592_000_000),
    ("2w", 1_209_600_000), ("10 Minutes", 600_000), (0, 0), ("0s", 0),
]  # fmt: skip


@pytest.mark.parametrize(("value", "ms"), DURATIONS)
def test_a_duration_is_a_number_of_seconds_or_numbers_with_units(value: object, ms: int) -> None:
    assert parse_duration(value) == ms


NO_DURATIONS = ["", "abc", "5x", "1h1h", "h", "1h30", "5 5m", "1e3s", "٣s", "1m" * 40, True, None, [], {}, "∞"]
NO_SIZES = ["", "MB", "64XB", "1.2.3MB", "64MB5", True, None, []]


@pytest.mark.parametrize(
    ("parse", "value", "reason"),
    [
        *((parse_duration, each, 'expected a number of seconds, or text such as "1h30m"') for each in NO_DURATIONS),
        (parse_duration, -1, "can't be negative"),
        (parse_duration, "-5s", "can't be negative"),
        (parse_duration, float("nan"), "expected a number"),
        (parse_duration, float("inf"), "expected a number"),
        (parse_duration, 1e300, "longer than a century"),
        pytest.param(parse_duration, 1 << 1_024, "expected a number of seconds", id="larger than a float"),
        (parse_duration, "99999999999999d", "longer than a century"),
        (parse_duration, "0.5ms", "finer than a millisecond"),
        (parse_duration, 0.00001, "finer than a millisecond"),
        *((parse_size, each, 'expected a number of bytes, or text such as "64MB"') for each in NO_SIZES),
        (parse_size, 1.5, "whole number of bytes"),
        (parse_size, -1, "negative"),
        (parse_size, "-1MB", "negative"),
    ],
)
def test_what_is_none_or_out_of_reach_says_why(parse: Callable[[object], int], value: object, reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        parse(value)


SHOWN_DURATIONS = [
    (0, "0s"), (250, "250ms"), (1_000, "1s"), (1_500, "1.5s"), (90_500, "1m30.5s"), (5_400_000, "1h30m"),
    (86_400_000, "1d"), (2_592_000_000, "30d"), (60_001, "1m0.001s"),
]  # fmt: skip


@pytest.mark.parametrize(("ms", "text"), SHOWN_DURATIONS)
def test_a_duration_is_shown_as_a_person_would_type_it(ms: int, text: str) -> None:
    assert format_duration(ms) == text


SIZES = [
    (512, 512), ("512", 512), ("512B", 512), ("64MB", 64 << 20), ("64 mb", 64 << 20), ("64MiB", 64 << 20),
    ("64M", 64 << 20), ("1.5GB", 3 << 29), ("1KB", 1024), (0, 0),
]  # fmt: skip


@pytest.mark.parametrize(("value", "size"), SIZES)
def test_a_size_is_a_number_of_bytes_or_a_number_with_a_unit(value: object, size: int) -> None:
    assert parse_size(value) == size


SHOWN_SIZES = [
    (0, "0B"), (512, "512B"), (1000, "1000B"), (1536, "1.5KB"), (64 << 20, "64MB"), (3 << 29, "1.5GB"),
    (1025, "1025B"),
]  # fmt: skip


@pytest.mark.parametrize(("size", "text"), SHOWN_SIZES)
def test_a_size_is_shown_in_the_largest_unit_that_is_exact(size: int, text: str) -> None:
    assert format_size(size) == text
