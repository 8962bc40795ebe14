"""Maintenance, as people and machines are shown it: what it is now, and what comes next."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from itertools import islice

from msgspec import Struct

from spyweb.clock import Clock
from spyweb.cooperative import Steps, run_in_slices
from spyweb.model import JobId
from spyweb.runs.live import LiveJobs
from spyweb.settings.units import DAY_MS
from spyweb.specs.maintenance import MaintenanceCalendar, MaintenanceRule, Recurring, planned_windows
from spyweb.views.jobs import MaySee, anything

USUAL_DAYS, MOST_DAYS = 7, 366  # of the maintenance that is shown


@dataclass(frozen=True, slots=True, kw_only=True)
class MaintenanceService:
    live: LiveJobs
    windows: Callable[[], MaintenanceCalendar]
    clock: Clock

    def until(self, job: JobId) -> int | None:
        """Return when the maintenance ends in which a job is now."""
        return self.windows().until(job, self.clock.now_ms())

    async def view(self, days: int = USUAL_DAYS, may_see: MaySee = anything) -> MaintenanceView:
        """Show the windows that have begun, and those that begin in so many days, as far as somebody may see them."""
        now_ms = self.clock.now_ms()
        jobs = [job.id for job in self.live]
        steps = view_maintenance(self.windows().rules, jobs, now_ms, now_ms + days * DAY_MS, may_see)
        return await run_in_slices(self.clock, steps)


MOST_WINDOWS = 200


class MaintenanceWindow(Struct, frozen=True, kw_only=True):
    """A time in which jobs may fail without anybody being told."""

    start_ms: int
    end_ms: int
    jobs: Sequence[str]  # ids or patterns; none: all, and spyweb itself
    job_count: int  # how many jobs these are now
    text: str
    cron: str  # "" where it comes once
    timezone: str


class MaintenanceView(Struct, frozen=True, kw_only=True):
    """The windows that have begun, and those that begin in the next days, the earliest first."""

    now: list[MaintenanceWindow]
    next: list[MaintenanceWindow]
    until_ms: int  # up to when it was looked
    is_cut: bool  # there are more


def view_maintenance(
    rules: Sequence[MaintenanceRule],
    jobs: Collection[str],
    now_ms: int,
    until_ms: int,
    may_see: Callable[[str], bool],
) -> Steps[MaintenanceView]:
    """Show windows to somebody; who may see some jobs only is shown those that are about one of these."""
    sees_all = may_see("")
    counted = []
    for rule in rules:
        seen = []
        for job in jobs:
            if rule.covers(job) and may_see(job):
                seen.append(job)
            yield
        if seen or sees_all:
            shown = rule if sees_all else rule._replace(jobs=_naming(rule.jobs, seen))
            counted.append((shown, len(seen)))
    found: list[MaintenanceWindow] = []
    for start_ms, end_ms, place in islice(
        planned_windows([rule for rule, _ in counted], now_ms, until_ms), MOST_WINDOWS + 1
    ):
        found.append(_view(*counted[place], start_ms, end_ms))
        yield
    return MaintenanceView(
        now=[each for each in found[:MOST_WINDOWS] if each.start_ms <= now_ms],
        next=[each for each in found[:MOST_WINDOWS] if each.start_ms > now_ms],
        until_ms=until_ms,
        is_cut=len(found) > MOST_WINDOWS,
    )


def _naming(patterns: Sequence[str], jobs: Sequence[str]) -> tuple[str, ...]:
    """Return the patterns that say nothing of jobs other than these."""
    return tuple(pattern for pattern in patterns if any(fnmatchcase(job, pattern) for job in jobs))


def _view(rule: MaintenanceRule, job_count: int, start_ms: int, end_ms: int) -> MaintenanceWindow:
    recurring = rule.window if isinstance(rule.window, Recurring) else None
    return MaintenanceWindow(
        start_ms=start_ms,
        end_ms=end_ms,
        jobs=rule.jobs,
        job_count=job_count,
        text=rule.text,
        cron=recurring.cron if recurring else "",
        timezone=recurring.timezone if recurring else "",
    )
