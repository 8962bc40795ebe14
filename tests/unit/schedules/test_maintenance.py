"""When a job is in maintenance: the union of all windows, as a walk minute by minute finds it."""

from __future__ import annotations

from datetime import UTC, datetime

from hypothesis import given, settings
from hypothesis import strategies as st

from spyweb.schedules.maintenance import MOST_JOINED, MaintenanceRule, Once, Recurring, maintenance_until
from spyweb.schedules.cron import cron_after

MIN, DAY = 60_000, 86_400_000
SUNDAYS = MaintenanceRule(Recurring("0 3 * * sun", "UTC", 120 * MIN), jobs=("backup-*",))


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


days = st.sampled_from([(2026, 3, 28), (2026, 10, 24), (2026, 4, 4), (2026, 10, 3), (2026, 3, 7), (2026, 10, 31)])
zones = st.sampled_from(["Europe/Berlin", "Australia/Lord_Howe", "America/New_York"])
crons = st.tuples(st.sampled_from([0, 15, 30, 45]), st.integers(0, 5), st.sampled_from(["*", "sun", "sat,sun"])).map(
    lambda each: "{} {} * * {}".format(*each)
)


@settings(max_examples=60)
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
