"""Maintenance: windows of time in which a job may fail without anybody being told."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from fnmatch import fnmatchcase
from typing import NamedTuple

from spyweb.schedules.cron import cron_until

MOST_JOINED = 1_000  # windows that follow one another without a gap, before they are taken for one without end


class Once(NamedTuple):
    start_ms: int
    end_ms: int


class Recurring(NamedTuple):
    cron: str
    timezone: str
    duration_ms: int  # elapsed time, whatever the clock on the wall does


class MaintenanceRule(NamedTuple):
    window: Once | Recurring
    jobs: tuple[str, ...] = ()  # ids or patterns; empty: all
    text: str = ""

    def covers(self, job: str) -> bool:
        return not self.jobs or any(fnmatchcase(job, pattern) for pattern in self.jobs)


def maintenance_until(rules: Iterable[MaintenanceRule], job: str, now_ms: int) -> int | None:
    """Return when the maintenance ends in which a job is now; None where it is in none.

    Windows that overlap, or follow at once, are one.
    """
    windows = [rule.window for rule in rules if rule.covers(job)]
    end_ms: int | None = None
    for _ in range(MOST_JOINED):
        ends = _ends(windows, now_ms if end_ms is None else end_ms)
        if not ends:
            break
        end_ms = max(ends)
    return end_ms


def _ends(windows: Sequence[Once | Recurring], moment_ms: int) -> list[int]:
    """Return the ends of the windows that this moment is in."""
    spans = (_latest(window, moment_ms) for window in windows)
    return [span.end_ms for span in spans if span and span.start_ms <= moment_ms < span.end_ms]


def _latest(window: Once | Recurring, moment_ms: int) -> Once | None:
    if isinstance(window, Once):
        return window
    start_ms = cron_until(window.cron, window.timezone, moment_ms)
    return None if start_ms is None else Once(start_ms, start_ms + window.duration_ms)
