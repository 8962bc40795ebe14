"""Windows of maintenance as config.toml says them, and what is said about wrong ones."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import pytest

from spyweb.schedules.maintenance import MaintenanceRule, Once, Recurring
from spyweb.settings.load import examine_settings
from spyweb.settings.units import HOUR_MS
from spyweb.specs.discover import Scan, scan
from spyweb.specs.maintenance import MOST_RULES

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
        (
            "start = 2026-12-24T18:00:00Z\nend = 2026-12-24T18:00:00Z",
            "3: maintenance[1].end: must be after start",
        ),
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
