"""When a job is in maintenance: the union of all windows, as a walk minute by minute finds it."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spyweb.schedules.cron import cron_after
from spyweb.schedules.maintenance import (
    MOST_JOINED,
    MaintenanceCalendar,
    MaintenanceRule,
    Once,
    Recurring,
    is_endless,
    planned_windows,
)

MIN, DAY = 60_000, 86_400_000
SUNDAYS = MaintenanceRule(Recurring("0 3 * * sun", "UTC", 120 * MIN), jobs=("backup-*",))


def maintenance_until(rules: Iterable[MaintenanceRule], job: str | None, now_ms: int) -> int | None:
    """Ask a calendar that remembers nothing."""
    return MaintenanceCalendar(tuple(rules)).until(job, now_ms)


def at(*moment: int) -> int:
    return round(datetime(*moment, tzinfo=UTC).timestamp() * 1000)  # type: ignore[misc, arg-type]


def test_a_window_holds_for_its_jobs_from_its_start_to_its_end() -> None:
    begin = at(2026, 11, 22, 3)
    assert maintenance_until([SUNDAYS], "backup-db", begin - 1) is None
    assert maintenance_until([SUNDAYS], "backup-db", begin) == begin + 120 * MIN
    assert maintenance_until([SUNDAYS], "backup-db", begin + 120 * MIN) is None
    assert maintenance_until([SUNDAYS], "check-api", begin) is None


def test_a_rule_without_jobs_holds_for_all() -> None:
    assert maintenance_until([MaintenanceRule(Once(100, 200))], "any", 150) == 200


def test_windows_that_overlap_or_follow_at_once_are_one() -> None:
    rules = [MaintenanceRule(Once(*span)) for span in ((100, 200), (150, 300), (300, 400), (500, 600))]
    assert maintenance_until(rules, "any", 120) == 400


def test_a_rule_without_end_does_not_hang() -> None:
    always = MaintenanceRule(Recurring("* * * * *", "UTC", 2 * MIN))
    end = maintenance_until([always], "any", at(2026, 6, 1))
    assert end is not None
    assert end >= at(2026, 6, 1) + MOST_JOINED * MIN


def test_windows_of_the_next_days_come_in_order_also_the_one_that_is_under_way() -> None:
    now = at(2026, 11, 22, 4)
    rules = [SUNDAYS, MaintenanceRule(Once(now + DAY, now + 2 * DAY)), MaintenanceRule(Once(now - DAY, now))]
    found = [*planned_windows(rules, now, now + 8 * DAY)]
    begin = at(2026, 11, 22, 3)
    assert found == [
        (begin, begin + 120 * MIN, 0),
        (now + DAY, now + 2 * DAY, 1),
        (begin + 7 * DAY, begin + 7 * DAY + 120 * MIN, 0),
    ]


def test_windows_of_one_rule_that_overlap_are_shown_as_one() -> None:
    rule = MaintenanceRule(Recurring("0 1,2,3 * * *", "UTC", 90 * MIN))
    found = [*planned_windows([rule], at(2026, 6, 1, 3), at(2026, 6, 2, 12))]
    assert found == [
        (at(2026, 6, 1, 1), at(2026, 6, 1, 4, 30), 0),
        (at(2026, 6, 2, 1), at(2026, 6, 2, 4, 30), 0),
    ]


@pytest.mark.parametrize(
    ("cron", "minutes", "endless"),
    [
        ("* * * * *", 2, True),
        ("* * * * *", 1, True),
        ("0 0 * * *", 24 * 60, True),
        ("0 0 * * *", 24 * 60 - 1, False),
        ("0 0 * * mon-fri", 24 * 60, False),
        ("0 0 * 7 *", 24 * 60, False),
        ("*/5 8-17 * * *", 5, False),
        ("0 3 * * sun", 7 * 24 * 60, True),
        ("0 3 1 * *", 7 * 24 * 60, False),
        ("0 0 * 1-6 *", 24 * 60, True),
    ],
)
def test_a_rule_whose_windows_follow_one_another_never_ends(cron: str, minutes: int, endless: bool) -> None:
    assert is_endless(Recurring(cron, "Europe/Berlin", minutes * MIN)) is endless


days = st.sampled_from([(2026, 3, 28), (2026, 10, 24), (2026, 4, 4), (2026, 10, 3), (2026, 3, 7), (2026, 10, 31)])
zones = st.sampled_from(["Europe/Berlin", "Australia/Lord_Howe", "America/New_York"])
hours = st.one_of(st.integers(0, 5), st.sampled_from(["1,2", "0,3,4", "1-3"]))
crons = st.tuples(st.sampled_from([0, 15, 30, 45]), hours, st.sampled_from(["*", "sun", "sat,sun"])).map(
    lambda each: "{} {} * * {}".format(*each)
)


mixed_windows = st.one_of(
    st.builds(Recurring, crons, zones, st.integers(1, 400).map(lambda minutes: minutes * MIN)),
    st.tuples(st.integers(-600, 3_000), st.integers(1, 900)).map(
        lambda each: Once(each[0] * MIN, (each[0] + each[1]) * MIN)  # since midnight
    ),
)
mixed_rules = st.tuples(mixed_windows, st.sampled_from([(), ("backup",), ("back*", "web"), ("web",)]))


@given(days, st.lists(mixed_rules, min_size=1, max_size=5), st.lists(st.integers(0, 48 * 60), min_size=1, max_size=8))
def test_rules_of_several_zones_that_overlap_while_clocks_change_are_as_a_walk_finds_them(
    day: tuple[int, int, int], given_rules: list[tuple[Once | Recurring, tuple[str, ...]]], moments: list[int]
) -> None:
    midnight = at(*day)
    rules = [
        MaintenanceRule(
            window if isinstance(window, Recurring) else Once(window.start_ms + midnight, window.end_ms + midnight),
            jobs,
        )
        for window, jobs in given_rules
    ]
    calendar, until_ms = MaintenanceCalendar(rules), midnight + 3 * DAY
    for job in ("backup", "web", None):
        covering = [rule for rule in rules if rule.covers(job)]
        spans = [span for rule in covering for span in walked_spans(rule, midnight - 3 * DAY, until_ms + DAY)]
        for moment in moments:
            now_ms = walked = midnight + moment * MIN
            while any(start <= walked < end for start, end in spans):
                walked += MIN
            assert calendar.until(job, now_ms) == (None if walked == now_ms else walked)
        shown = [(start, end) for start, end, _ in planned_windows(covering, midnight, until_ms)]
        for minute in range(0, 3 * 24 * 60, 5):
            now_ms = midnight + minute * MIN
            assert is_within(shown, now_ms) == is_within(spans, now_ms)


def walked_spans(rule: MaintenanceRule, from_ms: int, until_ms: int) -> list[tuple[int, int]]:
    if isinstance(rule.window, Once):
        return [(rule.window.start_ms, rule.window.end_ms)]
    found, start = [], cron_after(rule.window.cron, rule.window.timezone, from_ms)
    while start is not None and start < until_ms:
        found.append((start, start + rule.window.duration_ms))
        start = cron_after(rule.window.cron, rule.window.timezone, start)
    return found


def is_within(spans: list[tuple[int, int]], moment_ms: int) -> bool:
    return any(start <= moment_ms < end for start, end in spans)


@given(days, zones, st.lists(st.tuples(crons, st.integers(1, 400)), min_size=1, max_size=3), st.integers(0, 48 * 60))
def test_the_end_is_where_a_walk_minute_by_minute_ends(
    day: tuple[int, int, int], zone: str, windows: list[tuple[str, int]], minutes: int
) -> None:
    rules = [MaintenanceRule(Recurring(cron, zone, length * MIN)) for cron, length in windows]
    midnight = at(*day)
    spans = []
    for cron, length in windows:
        start: int | None = midnight - 3 * DAY
        while start is not None and (start := cron_after(cron, zone, start)) is not None and start < midnight + 4 * DAY:
            spans.append((start, start + length * MIN))
    now_ms = walked = midnight + minutes * MIN
    while any(start <= walked < end for start, end in spans):
        walked += MIN
    assert maintenance_until(rules, "any", now_ms) == (None if walked == now_ms else walked)
