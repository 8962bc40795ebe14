"""Read `[[maintenance]]` of config.toml: when jobs may fail without anybody being told."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from fnmatch import fnmatchcase

from msgspec import Struct

from spyweb.errors import Problem
from spyweb.model import JobId
from spyweb.schedules.maintenance import LONGEST_MS, MaintenanceRule, Once, Recurring, is_endless
from spyweb.settings.nearest import Names
from spyweb.settings.reading import Reading, SettingsSource, nearest
from spyweb.settings.shapes import NOT_BLANK, Schema, list_of, shaped
from spyweb.settings.tables import TomlTable
from spyweb.settings.units import DAY_MS, MINUTE_MS, format_duration
from spyweb.settings.values import duration, line, one_line, texts, timezone
from spyweb.specs.parse import epoch_ms, job_id, read_cron, read_moment

MOST_RULES = 100
LONGEST_WINDOW_MS = 7 * DAY_MS
LONGEST_TEXT = 200
RECURRING, ONCE = ("cron", "duration"), ("start", "end")

ALL_JOBS: tuple[str, ...] = ()
_DURATION = duration(MINUTE_MS, LONGEST_WINDOW_MS)
_TEXT = line(LONGEST_TEXT)
_OTHER = re.compile(r"[^\w*?]")  # what stands as _ in an id
_WILD = frozenset("*?[")


class MaintenanceFound(Struct, frozen=True, kw_only=True):
    """The rules that are right, and what is wrong with the others."""

    rules: tuple[MaintenanceRule, ...]
    problems: list[Problem]
    tables: tuple[TomlTable, ...] = ()  # of each of the rules


def take_maintenance(tables: Sequence[TomlTable], zone: str) -> MaintenanceFound:
    problems: list[Problem] = []
    rules: list[tuple[MaintenanceRule, TomlTable]] = []
    if len(tables) > MOST_RULES:
        problems.append(tables[MOST_RULES].problem(f"there are more than {MOST_RULES} of them"))
    for table in tables[:MOST_RULES]:
        before = len(problems)
        read = Reading([SettingsSource.of(table)], problems)
        rule = _take_rule(read, zone)
        read.finish()
        if rule is not None and len(problems) == before:
            rules.append((rule, table))
    return MaintenanceFound(
        rules=tuple(rule for rule, _ in rules), problems=problems, tables=tuple(table for _, table in rules)
    )


def maintenance_keys() -> Mapping[str, Schema]:
    """Return the JSON schema of every key of a rule."""
    read = Reading([SettingsSource.of(TomlTable())], [])
    _take_rule(read, "UTC")
    return read.schema()


def doubts_of_maintenance(found: MaintenanceFound, jobs: Collection[JobId]) -> Iterator[Problem]:
    """Yield a warning for each name or pattern that no job has."""
    names = Names(jobs)
    for rule, table in zip(found.rules, found.tables, strict=True):
        for pattern in rule.jobs:
            if not any(fnmatchcase(job, pattern) for job in jobs):
                what = "matches" if is_pattern(pattern) else "is called"
                guess = "" if is_pattern(pattern) else nearest(pattern, names)
                yield table.problem(f'no job {what} "{pattern}"{guess}', "jobs")


def is_pattern(text: str) -> bool:
    return not _WILD.isdisjoint(text)


def _take_rule(read: Reading, zone: str) -> MaintenanceRule | None:
    zone = read.take("timezone", timezone, zone)
    cron = read.take("cron", read_cron, None)
    duration_ms = read.take("duration", _DURATION, None)
    start, end = read.take("start", read_moment, None), read.take("end", read_moment, None)
    jobs = read.take("jobs", _jobs, ALL_JOBS)
    text = read.take("text", _TEXT, "")
    if not _has_one_window(read):
        return None
    if cron is not None and duration_ms is not None:
        window = Recurring(cron, zone, duration_ms)
        if is_endless(window):
            read.refuse(
                f"these windows never end: one of {format_duration(duration_ms)} has not ended when the next begins",
                "duration",
            )
        return MaintenanceRule(window, jobs, text)
    if start is None or end is None:
        return None  # what is wrong is said already
    once = Once(epoch_ms(start, zone), epoch_ms(end, zone))
    if once.end_ms <= once.start_ms:
        read.refuse("must be after start", "end")
    elif once.end_ms - once.start_ms > LONGEST_MS:
        read.refuse(f"is more than {format_duration(LONGEST_MS)} after start", "end")
    return MaintenanceRule(once, jobs, text)


def _has_one_window(read: Reading) -> bool:
    """Tell whether a rule says when, in one of the two ways; say what is missing, or too much."""
    given = [pair for pair in (RECURRING, ONCE) if any(map(read.has, pair))]
    if len(given) != 1:
        other = next(filter(read.has, ONCE), RECURRING[0])
        read.refuse("expected either cron and duration, or start and end", other)
        return False
    missing = next((key for key in given[0] if not read.has(key)), None)
    if missing:
        read.refuse("is required", missing)
    return missing is None


@shaped(list_of(NOT_BLANK), list)
def _jobs(value: object) -> tuple[str, ...]:
    """Read ids, names and patterns of ids."""
    return tuple(dict.fromkeys(_job(each) for each in texts(value)))


def _job(given: str) -> str:
    text = one_line(given).strip()
    if is_pattern(text):
        return text.lower() if "[" in text else _OTHER.sub("_", text.lower())
    found = job_id(text)
    if not found:
        raise ValueError(f"{text[:80]!r} is no job's name")
    return found
