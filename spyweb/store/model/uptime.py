"""For how long a job was up and down, as the ends of its runs say."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import log2
from typing import Any, Protocol

from msgspec import Struct

from spyweb.model import JobId
from spyweb.settings.units import DAY_MS

HOURS_KEPT_MS = 32 * DAY_MS
DAYS_KEPT_MS = 400 * DAY_MS
SPANS: Mapping[str, int] = {"24h": DAY_MS, "7d": 7 * DAY_MS, "30d": 30 * DAY_MS, "365d": 365 * DAY_MS}
LATENCIES = 81  # buckets of factor 2^(1/4), from 1 ms to 17 minutes: those of any spans are added without loss

Windows = Sequence[tuple[int, int]]  # from one moment until another, in their order, with time between them


class Excuses(Protocol):
    """Knows the maintenance of each job."""

    def free_since(self, job: str, moment_ms: int) -> int:
        """Return a moment since which a job has had no maintenance until this one; a later one where it has now."""

    def excused(self, job: str, since_ms: int, until_ms: int) -> Windows:
        """Return when a job had maintenance between two moments; asked in other threads, too."""


class Sample(Struct, frozen=True, kw_only=True):
    """The end of a run, or of what was known of a job: its result from this moment on."""

    job: JobId
    at_ms: int
    up: bool | None  # None: nothing is known from here on (it is paused, disabled or absent)
    stale_ms: int = 0  # when it no longer says anything
    latency_ms: float | None = None
    free_ms: int = 0  # since when the job has had no maintenance; later than `at_ms` where it has


class StandingResult(Struct, frozen=True, kw_only=True):
    """The result that holds now."""

    up: bool | None
    since_ms: int
    stale_ms: int

    def is_up(self, now_ms: int) -> bool | None:
        """Return whether the job is up at this moment; None where nothing is known."""
        return self.up if now_ms < self.stale_ms else None


class UptimeSpan(Struct, frozen=True, kw_only=True):
    """A span of time in milliseconds, and the results in it; what is left of the span is unknown."""

    up_ms: int = 0
    down_ms: int = 0
    excused_ms: int = 0  # maintenance: not counted
    ok: int = 0
    failed: int = 0
    latency: Mapping[int, int] = {}  # of successes: the number of a bucket, and how many are in it

    @property
    def uptime(self) -> float | None:
        """Return the share of the known time that the job was up, 0 to 1; None where none is known."""
        known_ms = self.up_ms + self.down_ms
        return self.up_ms / known_ms if known_ms else None

    def percentile(self, percent: float) -> float | None:
        """Return the latency in ms that so many percent did not exceed, right to 9.1 %; None where none is known."""
        wanted = sum(self.latency.values()) * percent / 100
        total = 0
        for bucket, count in sorted(self.latency.items()):
            total += count
            if total >= wanted:
                return float(2 ** (bucket / 4))
        return None

    def __add__(self, other: UptimeSpan) -> UptimeSpan:
        sums: dict[str, Any] = {name: getattr(self, name) + getattr(other, name) for name in COUNTED}
        buckets = self.latency.keys() | other.latency.keys()
        latency = {bucket: self.latency.get(bucket, 0) + other.latency.get(bucket, 0) for bucket in buckets}
        return UptimeSpan(latency=latency, **sums)


COUNTED = UptimeSpan.__struct_fields__[:-1]
NO_SPAN = UptimeSpan()


class UptimeDay(Struct, frozen=True, kw_only=True):
    """A day of UTC."""

    start_ms: int
    span: UptimeSpan = NO_SPAN


class JobUptime(Struct, frozen=True, kw_only=True):
    """The result that holds, and spans up to now; each begins at a full hour, that of 365 days at a full day."""

    standing: StandingResult | None = None  # None: the job has never had one
    spans: Mapping[str, UptimeSpan] = {}  # by the names of SPANS


def bucket_of(latency_ms: float) -> int:
    """Return the number of a latency's bucket."""
    return max(0, min(LATENCIES - 1, round(4 * log2(max(latency_ms, 1)))))
