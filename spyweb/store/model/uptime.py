"""For how long a job was up and down, as the ends of its runs say."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping, Sequence
from typing import Any

from msgspec import Struct

from spyweb.model import JobId

HOUR_MS, DAY_MS = 3_600_000, 86_400_000
HOURS_KEPT_MS = 32 * DAY_MS
DAYS_KEPT_MS = 400 * DAY_MS
# Bounds of the buckets of latencies, in ms: factor 2^(1/4), up to 17 minutes.  Counts of buckets are added without loss.
LATENCIES = tuple(2 ** (step / 4 - 1 / 8) for step in range(1, 81))
SPANS: Mapping[str, int] = {"24h": DAY_MS, "7d": 7 * DAY_MS, "30d": 30 * DAY_MS, "365d": 365 * DAY_MS}

Windows = Sequence[tuple[int, int]]  # from one moment until another, in their order, none touching another


class Sample(Struct, frozen=True, kw_only=True):
    """The end of a run, or of what was known of a job: its result from this moment on."""

    job: JobId
    at_ms: int
    up: bool | None  # None: nothing is known from here on (it is paused, disabled, or was removed)
    stale_ms: int = 0  # when it no longer says anything
    latency_ms: float | None = None
    excused: Windows = ()  # its maintenance, as far back as its former result may reach


class StandingResult(Struct, frozen=True, kw_only=True):
    """The result that holds now."""

    up: bool | None
    since_ms: int  # up to here the time before is written down
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
    latency: Mapping[int, int] = {}  # of successes: the place of a bucket among LATENCIES, and how many

    @property
    def uptime(self) -> float | None:
        """Return the share of the known time that the job was up, 0 to 1; None where none is known."""
        known_ms = self.up_ms + self.down_ms
        return self.up_ms / known_ms if known_ms else None

    def percentile(self, percent: float) -> float | None:
        """Return the latency in ms that so many percent did not exceed, right to 9.1 %; None where none is known."""
        wanted = sum(self.latency.values()) * percent / 100
        total = 0
        for place, count in sorted(self.latency.items()):
            total += count
            if total >= wanted:
                return float(2 ** (place / 4))
        return None

    def __add__(self, other: UptimeSpan) -> UptimeSpan:
        places = self.latency.keys() | other.latency.keys()
        sums: dict[str, Any] = {name: getattr(self, name) + getattr(other, name) for name in COUNTED}
        latency = {place: self.latency.get(place, 0) + other.latency.get(place, 0) for place in places}
        return UptimeSpan(latency=latency, **sums)


COUNTED = UptimeSpan.__struct_fields__[:-1]


class UptimeDay(Struct, frozen=True, kw_only=True):
    """A day of UTC."""

    start_ms: int
    span: UptimeSpan = UptimeSpan()


class JobUptime(Struct, frozen=True, kw_only=True):
    """The result that holds, and the spans of SPANS up to now; each begins at a full hour (365d: at a full day)."""

    standing: StandingResult | None = None  # None: the job has never had one
    spans: Mapping[str, UptimeSpan] = {}  # by the names of SPANS


NO_UPTIME = JobUptime(spans=dict.fromkeys(SPANS, UptimeSpan()))


def bucket_of(latency_ms: float) -> int:
    """Return the place of a latency's bucket among LATENCIES."""
    return bisect_left(LATENCIES, latency_ms)
