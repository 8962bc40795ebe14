"""For how long a job was up and down, as the ends of its runs say."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import log2

from msgspec import Struct

from spyweb.model import JobId
from spyweb.settings.units import DAY_MS, HOUR_MS

HOURS_KEPT_MS = 32 * DAY_MS
DAYS_KEPT_MS = 400 * DAY_MS
SPANS: Mapping[str, int] = {"24h": DAY_MS, "7d": 7 * DAY_MS, "30d": 30 * DAY_MS, "365d": 365 * DAY_MS}
READ_AT_ONCE = 25  # jobs in one question to the store, so that others get their turn
LATENCIES = 81  # buckets of factor 2^(1/4), from 1 ms to 17 minutes: those of any spans are added without loss

Windows = Sequence[tuple[int, int]]  # from one moment until another, in their order, with time between them


class Excuses:
    """Knows the maintenance of each job: here none."""

    def free_since(self, job: str, moment_ms: int) -> int:
        """Return a moment since which a job has had no maintenance; one after `moment_ms` where it has then."""
        return 0

    def excused(self, job: str, since_ms: int, until_ms: int) -> Windows:
        """Return when a job had maintenance between two moments; any thread may ask."""
        return ()


class Sample(Struct, frozen=True, kw_only=True):
    """The result of a job from this moment on."""

    job: JobId
    at_ms: int
    up: bool | None  # None: nothing is known from here on (it is paused, disabled or absent)
    stale_ms: int = 0  # when it no longer says anything
    latency_ms: float | None = None
    free_ms: int = 0  # since when the job has had no maintenance; later than `at_ms` where it has


class UptimeSpan(Struct, frozen=True):
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


UptimeDays = dict[int, UptimeSpan]  # by when each begins, today last


class JobUptime(Struct, frozen=True, kw_only=True):
    up: bool | None = None  # now; None: nothing is known
    since_ms: int | None = None  # of the latest result; None: the job has never had one
    until_ms: int | None = None  # so long it holds, without another
    spans: Mapping[str, UptimeSpan] = {}  # up to now, by the names of SPANS


def begin_of(span: str, now_ms: int) -> int:
    """Return when a span up to now begins: at a full hour, or day of UTC where hours are not kept that long."""
    unit_ms = HOUR_MS if SPANS[span] < HOURS_KEPT_MS else DAY_MS
    return (now_ms - SPANS[span]) // unit_ms * unit_ms


def bucket_of(latency_ms: float) -> int:
    """Return the number of a latency's bucket."""
    return min(LATENCIES - 1, round(4 * log2(min(max(1.0, latency_ms), 1e9))))
