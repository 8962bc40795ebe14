from __future__ import annotations

from datetime import datetime
from itertools import pairwise
from zoneinfo import ZoneInfo

import pytest

from spyweb.schedules.cron import ALIASES, cron_after, cron_count, cron_until, parse_cron, spans
from spyweb.settings.units import DAY_MS

BERLIN, NEW_YORK, LORD_HOWE = "Europe/Berlin", "America/New_York", "Australia/Lord_Howe"


def at(text: str, zone: str = "UTC") -> int:
    moment = datetime.fromisoformat(text)
    return round((moment if moment.tzinfo else moment.replace(tzinfo=ZoneInfo(zone))).timestamp() * 1000)


def story(expression: str, zone: str, start: str, count: int) -> str:
    """The next due times as the zone's clock shows them, with the offset."""
    moment, found = at(start, zone), []
    for _ in range(count):
        due = cron_after(expression, zone, moment)
        assert due is not None
        assert due > moment
        moment = due
        found.append(datetime.fromtimestamp(due / 1000, ZoneInfo(zone)).strftime("%d %H:%M %z"))
    return ", ".join(found)


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        ("*/5 * * * *", "2026-01-01T00:05"),
        ("30 2 * * *", "2026-01-01T02:30"),
        ("0 0 * * 0", "2026-01-04T00:00"),
        ("0 0 * * 7", "2026-01-04T00:00"),
        ("0 0 * * SUN", "2026-01-04T00:00"),
        ("0 9 * * mon-fri", "2026-01-01T09:00"),
        ("0 0 1 FEB *", "2026-02-01T00:00"),
        ("0 0 29 2 *", "2028-02-29T00:00"),
        ("0 0 L * *", "2026-01-31T00:00"),
        ("0 0 * * 5#2", "2026-01-09T00:00"),
        ("0 0 13 * FRI", "2026-01-02T00:00"),
        ("*/20 * * * * *", "2026-01-01T00:00:20"),
        ("30 15 4 * * *", "2026-01-01T04:15:30"),
        ("3-3/4 * * * *", "2026-01-01T00:03"),
        ("50,3-03/4 * * * *", "2026-01-01T00:03"),
        ("0 0 * * wed-WED/2", "2026-01-07T00:00"),
        ("@daily", "2026-01-02T00:00"),
        ("@Hourly", "2026-01-01T01:00"),
        ("@weekly", "2026-01-04T00:00"),
        ("@yearly", "2027-01-01T00:00"),
    ],
)
def test_the_next_due_time_is_the_first_later_than_the_moment(expression: str, expected: str) -> None:
    assert cron_after(expression, "UTC", at("2026-01-01T00:00")) == at(expected)


@pytest.mark.parametrize(
    ("expression", "reason"),
    [
        ("", "5 fields .* has 0"),
        ("* * * *", "5 fields .* has 4"),
        ("* * * * * * *", "has 7"),
        ("61 * * * *", "bad minute '61' in the cron expression; expected 0-59"),
        ("99 * * * * *", "bad second '99'"),
        ("* 24 * * *", "bad hour '24'"),
        ("* * 0 * *", "bad day-of-month '0'"),
        ("* * * FOO *", "bad month 'FOO'"),
        ("* * * * 8", "bad day-of-week '8'"),
        ("* * * * FRI-MON", "bad day-of-week 'FRI-MON'"),
        ("*/0 * * * *", "bad minute"),
        ("@reboot", "unknown alias '@reboot'; there are @hourly"),
        ("0 0 31 2 *", "never due"),
        ("9" * 5000 + " * * * *", "at most 200 characters"),
        ("1,,2 * * * *", "bad minute"),
    ],
)
def test_a_bad_expression_names_the_field_and_what_it_may_hold(expression: str, reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        parse_cron(expression)


def test_every_alias_is_an_expression() -> None:
    for alias, expression in ALIASES.items():
        assert parse_cron(alias).minutes == parse_cron(expression).minutes


@pytest.mark.parametrize(
    ("expression", "zone", "start", "expected"),
    [
        # dates are those of the zone and not of UTC
        ("30 0 * * MON", "Asia/Tokyo", "2026-01-01T00:00", "05 00:30 +0900, 12 00:30 +0900"),
        ("30 23 * * SUN", NEW_YORK, "2026-01-01T00:00", "04 23:30 -0500, 11 23:30 -0500"),
        # a fixed time that the clock jumps over runs when it lands, and several run once
        ("30 2 * * *", BERLIN, "2026-03-28T00:00", "28 02:30 +0100, 29 03:00 +0200, 30 02:30 +0200"),
        ("30 2 * * *", NEW_YORK, "2026-03-07T12:00", "08 03:00 -0400, 09 02:30 -0400"),
        ("15 2 * * *", LORD_HOWE, "2026-10-03T12:00", "04 02:30 +1100, 05 02:15 +1100"),
        ("0,20,40 2,3 * * *", BERLIN, "2026-03-29T01:59", "29 03:00 +0200, 29 03:20 +0200, 29 03:40 +0200"),
        ("0 0 * * *", "Asia/Beirut", "2026-03-28T12:00", "29 01:00 +0300, 30 00:00 +0300"),
        ("0 12 * * *", "Pacific/Apia", "2011-12-29T11:00", "29 12:00 -1000, 31 00:00 +1400, 31 12:00 +1400"),
        # one that the clock shows twice runs the first time
        ("30 2 * * *", BERLIN, "2026-10-24T12:00", "25 02:30 +0200, 26 02:30 +0100"),
        ("30 1 * * *", NEW_YORK, "2026-10-31T12:00", "01 01:30 -0400, 02 01:30 -0500"),
        ("45 1 * * *", LORD_HOWE, "2026-04-04T12:00", "05 01:45 +1100, 06 01:45 +1030"),
        ("30 2 * * *", BERLIN, "2026-10-25T02:15:00+01:00", "26 02:30 +0100"),  # asked in the repeated hour
        # a frequent expression runs on through the repeated hour, and does not make up for a gap
        ("*/30 * * * *", BERLIN, "2026-10-25T02:00", "25 02:30 +0200, 25 02:00 +0100, 25 02:30 +0100, 25 03:00 +0100"),
        ("*/30 2 * * *", BERLIN, "2026-03-28T12:00", "30 02:00 +0200, 30 02:30 +0200"),
        ("* 0 * * *", "Asia/Beirut", "2026-03-28T12:00", "30 00:00 +0300"),
    ],
)
def test_clocks_that_are_moved_leave_each_due_time_once(expression: str, zone: str, start: str, expected: str) -> None:
    assert story(expression, zone, start, expected.count(",") + 1) == expected


def test_an_expression_that_no_calendar_satisfies_is_never_due() -> None:
    assert cron_after("0 0 */8 * MON#5", "UTC", 0) is None
    assert cron_until("0 0 */8 * MON#5", "UTC", at("2026-01-01")) is None


def test_the_last_due_time_is_not_later_than_the_moment() -> None:
    moment = at("2026-03-01T00:00:30")
    assert cron_until("30 23 * * SUN", NEW_YORK, at("2026-01-07T00:00")) == at("2026-01-04T23:30", NEW_YORK)
    assert cron_until("0 0 1 * *", "UTC", moment) == at("2026-03-01")
    assert cron_until("*/20 * * * * *", "UTC", moment) == at("2026-03-01T00:00:20")
    assert cron_until("0 0 29 2 *", "UTC", moment) == at("2024-02-29")


def test_a_month_of_seconds_is_counted_exactly() -> None:
    now = at("2026-06-01T12:34:56")
    assert cron_count("* * * * * *", BERLIN, now - 30 * DAY_MS, now) == 30 * 86_400


def test_a_count_is_what_stepping_would_find() -> None:
    start, end = at("2026-10-24T00:00", BERLIN), at("2026-10-26T06:00", BERLIN)
    steps = [start]
    while (due := cron_after("*/7 1-3 * * *", BERLIN, steps[-1])) and due <= end:
        steps.append(due)
    assert cron_count("*/7 1-3 * * *", BERLIN, start, end) == len(steps) - 1
    assert all(earlier < later for earlier, later in pairwise(steps))


def test_moments_before_the_epoch_and_far_ahead_do_not_fail() -> None:
    assert cron_after("0 0 1 1 *", BERLIN, at("1960-06-01")) == at("1961-01-01", BERLIN)
    assert cron_after("0 0 1 1 *", "UTC", at("9990-01-01")) == at("9991-01-01")
    assert cron_after("* * * * *", "UTC", at("9999-06-01")) is None


def day(text: str) -> int:
    return at(text) // DAY_MS


def test_a_change_at_the_very_start_of_a_day_is_seen_against_the_day_before() -> None:
    (span,) = spans("Atlantic/Azores", day("1983-09-25"))[:1]
    assert span.local_end_ms > span.local_start_ms
    for number in range(day("2011-12-28"), day("2012-01-02")):
        ends = [span.local_end_ms - span.offset_ms for span in spans("Pacific/Apia", number)]
        assert ends[-1] == (number + 1) * DAY_MS
