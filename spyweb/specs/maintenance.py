"""Read `[[maintenance]]` of config.toml: times in which failing jobs notify nobody."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from fnmatch import fnmatchcase
from functools import partial
from heapq import merge
from itertools import islice, takewhile
from typing import NamedTuple

from spyweb.errors import Problem
from spyweb.model import JobId
from spyweb.schedules.cron import cron_after, cron_until
from spyweb.settings.reading import NOT_BLANK, Names, Reading, Schema, asked_of, list_of, nearest, read_whole, shaped
from spyweb.settings.tables import TomlTable
from spyweb.settings.units import DAY_MS, MINUTE_MS, format_duration
from spyweb.settings.values import duration, line, one_line, texts, timezone
from spyweb.specs.parse import epoch_ms, job_id, read_cron, read_moment

MOST_JOINED = 1_000  # windows that follow one another without a gap, before they are taken for one without end
LONGEST_MS = 100 * DAY_MS  # of such windows together
MOST_EXCUSED = 10_000  # windows since the result before


class Once(NamedTuple):
    start_ms: int
    end_ms: int


class Recurring(NamedTuple):
    cron: str
    timezone: str
    duration_ms: int  # elapsed time, also over a change of local time


class MaintenanceRule(NamedTuple):
    window: Once | Recurring
    jobs: tuple[str, ...] = ()  # ids or patterns; with no tags either: all, and spyweb itself
    text: str = ""
    tags: tuple[str, ...] = ()  # of a window that was begun at runtime ...
    tagged: frozenset[str] = frozenset()  # ... with the ids of the jobs that have them now
    id: int | None = None
    by: str = ""

    def covers(self, job: str | None) -> bool:
        """Tell whether it is about a job; None stands for spyweb itself and its notification channels."""
        if not self.jobs and not self.tags:
            return True
        return job is not None and (job in self.tagged or any(fnmatchcase(job, pattern) for pattern in self.jobs))


class PlannedWindow(NamedTuple):
    """A window of a rule; windows of one rule that overlap, or follow at once, are one."""

    start_ms: int
    end_ms: int
    rule: int  # its place among the rules


class MaintenanceCalendar:
    """The rules; the active ones are remembered until another one begins or ends."""

    def __init__(self, rules: Sequence[MaintenanceRule] = ()) -> None:
        self.rules = tuple(rules)
        self._from_ms = self._before_ms = 0  # the moments between which `_active` is true
        self._active: list[MaintenanceRule] = []
        self._ends: dict[tuple[int, ...], int | None] = {}  # by the places of the rules that cover a job

    def until(self, job: str | None, now_ms: int) -> int | None:
        """Return when a job's maintenance ends, over windows that overlap or follow at once; None where it has none."""
        if not self.rules:
            return None
        if not self._from_ms <= now_ms < self._before_ms:
            self._look(now_ms)
        if not any(rule.covers(job) for rule in self._active):
            return None
        covering = tuple(place for place, rule in enumerate(self.rules) if rule.covers(job))
        if covering not in self._ends:
            self._ends[covering] = _end_of_all([self.rules[place].window for place in covering], now_ms)
        return self._ends[covering]

    def excused(self, job: str, since_ms: int, until_ms: int) -> list[tuple[int, int]]:
        """Return when a job had maintenance between two moments; any thread may ask."""
        found: list[tuple[int, int]] = []
        windows = planned_windows([rule for rule in self.rules if rule.covers(job)], since_ms, until_ms)
        for start_ms, end_ms, _ in islice(windows, MOST_EXCUSED):
            if found and start_ms <= found[-1][1]:
                (start_ms, before_ms) = found.pop()
                end_ms = max(end_ms, before_ms)
            found.append((max(start_ms, since_ms), min(end_ms, until_ms)))
        return found

    def _look(self, now_ms: int) -> None:
        spans = [(rule, _span_at(rule.window, now_ms)) for rule in self.rules]
        self._active = [rule for rule, span in spans if span]
        changes = [span.end_ms if span else next_start(rule.window, now_ms) for rule, span in spans]
        self._ends.clear()
        self._from_ms = now_ms
        self._before_ms = min((each for each in changes if each is not None), default=now_ms + DAY_MS)


def is_endless(window: Recurring) -> bool:
    """Tell whether one window begins before another ends, and so on for longer than anybody means."""
    start_ms = cron_after(window.cron, "UTC", 0)
    end_ms = None if start_ms is None else _end_of_all([window._replace(timezone="UTC")], start_ms, MOST_JOINED)
    if start_ms is None or end_ms is None:
        return False
    return end_ms - start_ms > LONGEST_MS or bool(_span_at(window._replace(timezone="UTC"), end_ms))


def planned_windows(rules: Sequence[MaintenanceRule], from_ms: int, until_ms: int) -> Iterator[PlannedWindow]:
    """Yield the windows that are not over at one moment and begin before another, the earliest first."""
    each = (_windows(rule.window, number, from_ms) for number, rule in enumerate(rules))
    yield from merge(*(takewhile(lambda window: window.start_ms < until_ms, windows) for windows in each))


def next_start(window: Once | Recurring, moment_ms: int) -> int | None:
    if isinstance(window, Once):
        return window.start_ms if moment_ms < window.start_ms else None
    return cron_after(window.cron, window.timezone, moment_ms)


def _windows(window: Once | Recurring, number: int, from_ms: int) -> Iterator[PlannedWindow]:
    span = _span_at(window, from_ms)
    start_ms = _first_start(window, span.start_ms) if span else next_start(window, from_ms)
    while start_ms is not None:
        end_ms = _end_of_all([window], max(start_ms, from_ms))
        if end_ms is None:  # no window is shorter than a moment
            return
        yield PlannedWindow(start_ms, end_ms, number)
        start_ms = next_start(window, end_ms)


def _first_start(window: Once | Recurring, start_ms: int) -> int:
    """Return when the windows began of which one, that began at `start_ms`, is the last."""
    for _ in range(MOST_JOINED):
        before = _span_at(window, start_ms - 1)
        if before is None:
            break
        start_ms = before.start_ms
    return start_ms


def _end_of_all(windows: Sequence[Once | Recurring], now_ms: int, most: int = MOST_JOINED) -> int | None:
    end_ms: int | None = None
    for _ in range(most):
        moment_ms = now_ms if end_ms is None else end_ms
        ends = [span.end_ms for window in windows if (span := _span_at(window, moment_ms))]
        if not ends:
            break
        end_ms = max(ends)
    return end_ms


def _span_at(window: Once | Recurring, moment_ms: int) -> Once | None:
    """Return the window that this moment is in."""
    if isinstance(window, Once):
        span = window
    else:
        start_ms = cron_until(window.cron, window.timezone, moment_ms)
        if start_ms is None:
            return None
        span = Once(start_ms, start_ms + window.duration_ms)
    return span if span.start_ms <= moment_ms < span.end_ms else None


MOST_RULES = 100
RECURRING, ONCE = ("cron", "duration"), ("start", "end")

DURATION = duration(MINUTE_MS, 7 * DAY_MS)
_JOBS = shaped(list_of(NOT_BLANK), list)(lambda value: tuple(dict.fromkeys(map(job_pattern, texts(value)))))
_OTHER = re.compile(r"[^\w*?]")  # what stands as _ in an id
_WILD = frozenset("*?[")


def take_maintenance(
    tables: Sequence[TomlTable], zone: str, problems: list[Problem]
) -> list[tuple[MaintenanceRule, TomlTable]]:
    """Return the rules that are right, each with its table."""
    rules: list[tuple[MaintenanceRule, TomlTable]] = []
    if len(tables) > MOST_RULES:
        problems.append(tables[MOST_RULES].problem(f"there are more than {MOST_RULES} of them"))
    for table in tables[:MOST_RULES]:
        rule = read_whole(table, partial(_take_rule, zone), problems)
        if rule is not None:
            rules.append((rule, table))
    return rules


def maintenance_keys() -> Mapping[str, Schema]:
    return asked_of(partial(_take_rule, "UTC")).schema()


def doubts_of_maintenance(
    rules: Iterable[tuple[MaintenanceRule, TomlTable]], jobs: Collection[JobId]
) -> Iterator[Problem]:
    """Yield a warning for each name or pattern that no job has."""
    names = Names(jobs)
    for rule, table in rules:
        for problem in filter(None, (missing_job(pattern, jobs, names) for pattern in rule.jobs)):
            yield table.problem(problem, "jobs")


def missing_job(pattern: str, jobs: Collection[JobId], names: Names) -> str:
    """Return the problem of a name or pattern that no job has; "" where one has it."""
    if any(fnmatchcase(job, pattern) for job in jobs):
        return ""
    named = "matches" if is_pattern(pattern) else "is called"
    return f'no job {named} "{pattern}"{"" if is_pattern(pattern) else nearest(pattern, names)}'


def is_pattern(text: str) -> bool:
    return not _WILD.isdisjoint(text)


def _take_rule(zone: str, read: Reading) -> MaintenanceRule | None:
    zone = read.take("timezone", timezone, zone)
    cron = read.take("cron", read_cron, None)
    duration_ms = read.take("duration", DURATION, None)
    start, end = read.take("start", read_moment, None), read.take("end", read_moment, None)
    jobs: tuple[str, ...] = read.take("jobs", _JOBS, ())
    text = read.take("text", line(200), "")
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
        return None  # the problem is reported already
    once = Once(epoch_ms(start, zone), epoch_ms(end, zone))
    if once.end_ms <= once.start_ms:
        read.refuse("must be after start", "end")
    elif once.end_ms - once.start_ms > LONGEST_MS:
        read.refuse(f"is more than {format_duration(LONGEST_MS)} after start", "end")
    return MaintenanceRule(once, jobs, text)


def _has_one_window(read: Reading) -> bool:
    """Tell whether a rule has its times, in one of the two forms; report missing and excess keys."""
    given = [pair for pair in (RECURRING, ONCE) if any(map(read.has, pair))]
    if len(given) != 1:
        other = next(filter(read.has, ONCE), RECURRING[0])
        read.refuse("expected either cron and duration, or start and end", other)
        return False
    missing = next((key for key in given[0] if not read.has(key)), None)
    if missing:
        read.refuse("is required", missing)
    return missing is None


def job_pattern(given: str) -> str:
    """Return the id or pattern of jobs that a text means.  Raises ValueError."""
    text = one_line(given).strip()
    if is_pattern(text):
        return text.lower() if "[" in text else _OTHER.sub("_", text.lower())
    found = job_id(text)
    if not found:
        raise ValueError(f"{text[:80]!r} is no job's name")
    return found


def pattern_of(given: str) -> str:
    """Return the same; "" where a text is no job's name."""
    with suppress(ValueError):
        return job_pattern(given)
    return ""
