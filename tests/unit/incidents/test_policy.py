"""Who is told of an incident, and how soon."""

from __future__ import annotations

from datetime import UTC, datetime, time
from zoneinfo import ZoneInfo

import pytest

from spyweb.incidents.policy import PARENT_FIRST_MS, AlertPolicy, Escalation, Level, QuietHours, quiet_until


def test_levels_have_an_order() -> None:
    assert [level.rank for level in (Level.INFO, Level.WARNING, Level.CRITICAL)] == [0, 1, 2]


def test_a_channel_is_told_at_once_after_a_while_or_never() -> None:
    policy = AlertPolicy(to=("phone",), escalations=(Escalation(60_000, ("boss",)), Escalation(90_000, ("boss",))))
    assert [policy.notifies(channel) for channel in ("phone", "boss", "ops")] == [0, 60_000, None]
    assert policy.channels == {"phone", "boss"}


def test_what_it_depends_on_has_time_to_fail_first() -> None:
    policy = AlertPolicy(to=("phone",), depends_on=("job:router",), escalations=(Escalation(60_000, ("boss",)),))
    assert [policy.notifies(channel) for channel in ("phone", "boss")] == [PARENT_FIRST_MS, 60_000]


MIN = 60_000
NIGHT = QuietHours(time(22), time(7), "Europe/Berlin")


def at(text: str, timezone: str = "Europe/Berlin") -> int:
    return round(datetime.fromisoformat(text).replace(tzinfo=ZoneInfo(timezone)).timestamp() * 1000)


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
