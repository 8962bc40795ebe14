"""When it is quiet, most of all around the changes of the clock: as a walk minute by minute finds it."""

from __future__ import annotations

from datetime import UTC, datetime, time
from zoneinfo import ZoneInfo

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from spyweb.alerts.quiet import quiet_until
from spyweb.incidents.policy import QuietHours

MIN = 60_000
ZONES = (
    "Europe/Berlin",
    "America/New_York",
    "Australia/Lord_Howe",
    "Africa/Casablanca",
    "Asia/Tehran",
    "UTC",
    "Pacific/Apia",
)
# Days on which the clock changes in one of the zones.
CHANGES = [(2026, 3, 29), (2026, 10, 25), (2026, 3, 8), (2026, 11, 1), (2026, 4, 5), (2026, 10, 4), (2026, 2, 15)]
NIGHT = QuietHours(time(22), time(7), "Europe/Berlin")


def at(text: str, timezone: str = "Europe/Berlin") -> int:
    return round(datetime.fromisoformat(text).replace(tzinfo=ZoneInfo(timezone)).timestamp() * 1000)


def is_quiet(hours: QuietHours, moment_ms: int) -> bool:
    wall = datetime.fromtimestamp(moment_ms / 1000, tz=ZoneInfo(hours.timezone)).time()
    return hours.start <= wall < hours.end if hours.start < hours.end else not hours.end <= wall < hours.start


@pytest.mark.parametrize(
    ("now", "end"),
    [
        ("2026-06-01T21:59", None),
        ("2026-06-01T22:00", "2026-06-02T07:00"),
        ("2026-06-02T03:00", "2026-06-02T07:00"),
        ("2026-06-02T06:59", "2026-06-02T07:00"),
        ("2026-06-02T07:00", None),
    ],
)
def test_a_night_begins_in_the_evening_and_ends_in_the_morning(now: str, end: str | None) -> None:
    assert quiet_until(NIGHT, at(now)) == (end and at(end))


def test_an_hour_that_comes_twice_is_quiet_twice() -> None:
    hours = QuietHours(time(2), time(2, 30), "Europe/Berlin")
    first = round(datetime(2026, 10, 25, 0, 10, tzinfo=UTC).timestamp() * 1000)
    assert quiet_until(hours, first) == first + 20 * MIN
    assert quiet_until(hours, first + 60 * MIN) == first + 80 * MIN


def test_an_hour_that_is_left_out_ends_it_at_once() -> None:
    hours = QuietHours(time(1), time(2, 30), "Europe/Berlin")
    assert quiet_until(hours, at("2026-03-29T01:59")) == at("2026-03-29T03:00")


@given(
    st.sampled_from(ZONES),
    st.sampled_from(CHANGES),
    st.integers(-30 * 60, 30 * 60),
    st.tuples(st.integers(0, 23), st.sampled_from([0, 15, 30])),
    st.tuples(st.integers(0, 23), st.sampled_from([0, 15, 30])),
)
def test_it_ends_where_a_walk_minute_by_minute_ends(
    zone: str, day: tuple[int, int, int], minutes: int, start: tuple[int, int], end: tuple[int, int]
) -> None:
    assume(start != end)
    hours = QuietHours(time(*start), time(*end), zone)
    now_ms = round(datetime(*day, tzinfo=UTC).timestamp() * 1000) + minutes * MIN
    walked = now_ms
    while is_quiet(hours, walked):
        walked += MIN
    assert quiet_until(hours, now_ms) == (None if walked == now_ms else walked)
