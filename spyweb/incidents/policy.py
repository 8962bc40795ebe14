"""The settings of alerts for `advance` and `plan`.  All durations are milliseconds."""

from __future__ import annotations

from datetime import datetime, time
from enum import StrEnum
from typing import NamedTuple
from zoneinfo import ZoneInfo

from msgspec import Struct

MINUTE_MS, HOUR_MS = 60_000, 3_600_000


class Level(StrEnum):
    """How much an incident matters."""

    INFO = "info"
    WARNING = "warning"
    CRITICAL = "critical"  # passes quiet hours

    @property
    def rank(self) -> int:
        return RANKS[self]


RANKS = {level: rank for rank, level in enumerate(Level)}


class Flapping(NamedTuple):
    """An incident that opens for the `openings`-th time within `within_ms` stays open until it is stable that long."""

    openings: int
    within_ms: int


class QuietHours(NamedTuple):
    """Begin and end of quiet hours; past midnight where the end is the earlier time."""

    start: time
    end: time
    timezone: str


class Escalation(NamedTuple):
    after_ms: int  # from the opening on, unless acknowledged
    to: tuple[str, ...]


class AlertPolicy(Struct, frozen=True, kw_only=True):
    """The settings that say when one subject has an incident, and which channels are notified."""

    to: tuple[str, ...] = ()  # names of notification channels; empty: nobody is notified
    level: Level = Level.WARNING
    after_failures: int = 3  # in a row
    after_successes: int = 1
    recovered: bool = True  # its end is notified
    remind_ms: int | None = 4 * HOUR_MS
    flapping: Flapping | None = None
    pause_after: int | None = None  # failures in a row
    late_after_ms: int | None = None  # after a due time for which no run has started
    no_success_ms: int | None = None  # after the last success
    depends_on: tuple[str, ...] = ()  # subjects: while one of them has an open incident, messages are held
    escalations: tuple[Escalation, ...] = ()
    quiet: QuietHours | None = None  # of channels without quiet hours of their own

    def notifies(self, channel: str) -> int | None:
        """Return how long after its opening an incident notifies this channel; None for never."""
        wait_ms = PARENT_FIRST_MS if self.depends_on else 0
        waits = [wait_ms] if channel in self.to else []
        return min(waits + [each.after_ms for each in self.escalations if channel in each.to], default=None)

    @property
    def channels(self) -> frozenset[str]:
        return frozenset(self.to).union(*(each.to for each in self.escalations))


NOBODY = AlertPolicy()  # incidents are recorded and shown, and nobody is notified
PARENT_FIRST_MS = 30_000  # so long, the jobs on which a job depends may be found failing first


def quiet_until(hours: QuietHours, now_ms: int) -> int | None:
    """Return the first moment after the quiet hours, in local time; None where it is not quiet now.

    Each minute is tested in local time: an hour that comes twice in autumn is quiet twice, and quiet hours that end in
    the hour left out in spring end at once.
    """
    zone = ZoneInfo(hours.timezone)
    if not _is_quiet(hours, zone, now_ms):
        return None
    moment_ms = now_ms - now_ms % MINUTE_MS  # both times, and changes of the offset, are at whole minutes
    while _is_quiet(hours, zone, moment_ms):
        moment_ms += MINUTE_MS
    return moment_ms


def _is_quiet(hours: QuietHours, zone: ZoneInfo, moment_ms: int) -> bool:
    wall = datetime.fromtimestamp(moment_ms / 1000, zone).time()
    if hours.start < hours.end:
        return hours.start <= wall < hours.end
    return wall >= hours.start or wall < hours.end
