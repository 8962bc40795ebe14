"""Windows of maintenance as config.toml says them, and what is said about wrong ones."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spyweb.schedules.cron import cron_after
from spyweb.settings.load import examine_settings
from spyweb.settings.units import HOUR_MS
from spyweb.specs.discover import Scan, scan
from spyweb.specs.maintenance import (
    MOST_JOINED,
    MOST_RULES,
    MaintenanceCalendar,
    MaintenanceRule,
    Once,
    Recurring,
    is_endless,
    planned_windows,
)

SUNDAY = '[[maintenance]]\ncron = "0 3 * * sun"\nduration = "2h"\n'
DAILY = '[[maintenance]]\ncron = "0 3 * * *"\nduration = "2h"\n'


def scanned(root: Path, config: str) -> Scan:
    (root / "jobs").mkdir(exist_ok=True)
    for name in ("backup-db", "prices"):
        (root / f"jobs/{name}.lua").write_text("x = 1")
    (root / "config.toml").write_text(config)
    settings, problems = examine_settings(root, environ={}, flags={})
    assert not problems
    return scan(root, settings)


def test_a_window_comes_again_or_once(tmp_path: Path) -> None:
    found = scanned(
        tmp_path,
        f"""{SUNDAY}timezone = "Europe/Berlin"
jobs = ["backup-*", "Prices"]
text = "weekly reboot"
[[maintenance]]
start = 2026-12-24T18:00:00
end = "2026-12-24T20:00:00Z"
timezone = "Europe/Berlin"
""",
    )
    assert not found.problems
    assert not found.warnings
    five_pm = round(datetime(2026, 12, 24, 17, tzinfo=UTC).timestamp() * 1000)
    assert found.maintenance == (
        MaintenanceRule(
            Recurring("0 3 * * sun", "Europe/Berlin", 2 * HOUR_MS), ("backup_*", "prices"), "weekly reboot"
        ),
        MaintenanceRule(Once(five_pm, five_pm + 3 * HOUR_MS)),
    )


def test_the_zone_is_the_daemon_s_where_none_is_said(tmp_path: Path) -> None:
    found = scanned(tmp_path, f'[daemon]\ntimezone = "Asia/Tokyo"\n{SUNDAY}')
    assert found.maintenance == (MaintenanceRule(Recurring("0 3 * * sun", "Asia/Tokyo", 2 * HOUR_MS)),)


EITHER = "expected either cron and duration, or start and end"


@pytest.mark.parametrize(
    ("lines", "expected"),
    [
        ('cron = "0 25 * * *"\nduration = "2h"', "2: maintenance[1].cron: bad hour '25' in the cron expression"),
        ('cron = "0 0 30 2 *"\nduration = "2h"', "2: maintenance[1].cron: '0 0 30 2 *' is never due"),
        ('cron = "0 3 * * *"\nduration = "2x"', "3: maintenance[1].duration: expected a number of seconds, or text"),
        ('cron = "0 3 * * *"\nduration = "8d"', "3: maintenance[1].duration: must be at most 7d, not 8d"),
        ('cron = "0 3 * * *"\nduration = 10', "3: maintenance[1].duration: must be at least 1m, not 10s"),
        ('cron = "0 3 * * *"\nduration = "24h"', "3: maintenance[1].duration: these windows never end: one of 1d has"),
        ('cron = "* * * * *"\nduration = "2m"', "3: maintenance[1].duration: these windows never end: one of 2m has"),
        ('cron = "0 3 * * *"', "1: maintenance[1].duration: is required"),
        ('duration = "2h"', "1: maintenance[1].cron: is required"),
        ('text = "x"', f"1: maintenance[1].cron: {EITHER}"),
        ('cron = "0 3 * * *"\nduration = "2h"\nend = 2026-12-24T18:00:00Z', f"4: maintenance[1].end: {EITHER}"),
        ("start = 2026-12-24T18:00:00Z", "1: maintenance[1].end: is required"),
        ("start = 2026-12-24\nend = 2026-12-25T00:00:00Z", "2: maintenance[1].start: expected a moment such as"),
        ("start = 2026-12-24T18:00:00Z\nend = 2026-12-24T18:00:00Z", "3: maintenance[1].end: must be after start"),
        (
            "start = 2026-12-24T18:00:00Z\nend = 2036-12-24T18:00:00Z",
            "3: maintenance[1].end: is more than 100d after start",
        ),
        (f'{DAILY[16:]}timezone = "CEST"', "4: maintenance[1].timezone: no time zone 'CEST'; expected a name"),
        (f'{DAILY[16:]}jobs = "prices"', "4: maintenance[1].jobs: expected a list of texts, not 'prices'"),
        (f'{DAILY[16:]}jobs = ["!"]', "4: maintenance[1].jobs: '!' is no job's name"),
        (f'{DAILY[16:]}text = "a\\nb"', "4: maintenance[1].text: can't hold line breaks or control characters"),
        (f'{DAILY[16:]}job = ["prices"]', '4: maintenance[1].job: unknown key; did you mean "jobs"?'),
    ],
)
def test_what_is_wrong_is_said_with_its_line_and_key(tmp_path: Path, lines: str, expected: str) -> None:
    found = scanned(tmp_path, f"[[maintenance]]\n{lines}\n")
    (problem,) = found.problems
    assert str(problem).startswith(f"config.toml:{expected}")
    assert not problem.is_warning
    assert found.maintenance == ()
    assert not found.maintenance_is_whole


def test_a_wrong_rule_does_not_hinder_the_others(tmp_path: Path) -> None:
    found = scanned(
        tmp_path, f'[daemon]\ntimezone = "UTC"\n{SUNDAY}duration = 3\n'.replace('duration = "2h"\n', "") + DAILY
    )
    assert [str(problem) for problem in found.problems] == [
        "config.toml:5: maintenance[1].duration: must be at least 1m, not 3s"
    ]
    assert found.maintenance == (MaintenanceRule(Recurring("0 3 * * *", "UTC", 2 * HOUR_MS)),)


def test_a_pattern_that_meets_no_job_is_a_warning(tmp_path: Path) -> None:
    found = scanned(tmp_path, f'{DAILY}jobs = ["back*", "price", "web-*"]\n')
    assert not found.problems
    assert [str(warning) for warning in found.warnings] == [
        'config.toml:4: maintenance[1].jobs: no job is called "price"; did you mean "prices"?',
        'config.toml:4: maintenance[1].jobs: no job matches "web_*"',
    ]
    assert all(warning.is_warning for warning in found.warnings)
    assert len(found.maintenance) == 1


def test_there_are_not_too_many(tmp_path: Path) -> None:
    found = scanned(tmp_path, DAILY * (MOST_RULES + 1))
    (problem,) = found.problems
    assert str(problem) == "config.toml:301: maintenance[101]: there are more than 100 of them"


@pytest.mark.parametrize("text", ["[maintenance]\n", 'maintenance = "sun"\n', "maintenance = [1]\n"])
def test_it_is_tables(tmp_path: Path, text: str) -> None:
    (tmp_path / "config.toml").write_text(text)
    (problem,) = examine_settings(tmp_path, environ={}, flags={})[1]
    assert str(problem) == "config.toml:1: maintenance: expected tables, each headed [[maintenance]]"


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
    assert found == [(at(2026, 6, 1, 1), at(2026, 6, 1, 4, 30), 0), (at(2026, 6, 2, 1), at(2026, 6, 2, 4, 30), 0)]


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


def test_windows_that_overlap_or_follow_at_once_excuse_a_job_as_one() -> None:
    windows = [Once(5, 10), Once(10, 20), Once(12, 15), Once(30, 40), Once(90, 95)]
    calendar = MaintenanceCalendar(
        [*(MaintenanceRule(each, ("web",)) for each in windows), MaintenanceRule(Once(0, 99), ("db",))]
    )
    assert calendar.excused("web", 7, 35) == [(7, 20), (30, 35)]
    assert (calendar.excused("web", 20, 30), calendar.excused("mail", 0, 99)) == ([], [])


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
