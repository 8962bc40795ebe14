"""For how long a job was up and down, as the ends of its runs say."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from math import log2

from msgspec import Struct

from spyweb.model import JobId
from spyweb.settings.units import DAY_MS, HOUR_MS

KEPT_MS: Mapping[str, int] = {"hour": 32 * DAY_MS, "day": 400 * DAY_MS}
SPANS: Mapping[str, int] = {"24h": DAY_MS, "7d": 7 * DAY_MS, "30d": 30 * DAY_MS, "365d": 365 * DAY_MS}
READ_AT_ONCE = 25  # jobs in one question to the store, so that others get their turn
LATENCIES = 81  # buckets of factor 2^(1/4), from 1 ms to 17 minutes: those of any spans are added without loss

Windows = Sequence[tuple[int, int]]  # from one moment until another, in their order, with time between them
Excused = Callable[[JobId, int, int], Windows]  # the maintenance of a job between two moments; any thread may ask


class UptimeSpan(Struct):
    """A span of time in milliseconds, and the results in it; what is left of the span is unknown."""

    up_ms: int = 0
    down_ms: int = 0
    excused_ms: int = 0  # maintenance: not counted
    ok: int = 0
    failed: int = 0
    latency: dict[int, int] = {}  # of successes: the number of a bucket, and how many are in it

    def add(self, other: UptimeSpan) -> None:
        self.up_ms += other.up_ms
        self.down_ms += other.down_ms
        self.excused_ms += other.excused_ms
        self.ok += other.ok
        self.failed += other.failed
        for bucket, count in other.latency.items():
            self.latency[bucket] = self.latency.get(bucket, 0) + count

    @property
    def uptime(self) -> float | None:
        """Return the share of the known time that the job was up, 0 to 1; None where none is known.

        It is cut to 0.001 %: 1 only where nothing was down.
        """
        known_ms = self.up_ms + self.down_ms
        return self.up_ms * 100_000 // known_ms / 100_000 if known_ms else None

    def percentile(self, percent: float) -> float | None:
        """Return the latency in ms that so many percent did not exceed, right to 9.1 %; None where none is known."""
        wanted = sum(self.latency.values()) * percent / 100
        total = 0
        for bucket, count in sorted(self.latency.items()):
            total += count
            if total >= wanted:
                return float(2 ** (bucket / 4))
        return None


class JobUptime(Struct, frozen=True):
    up: bool | None = None  # now; None: nothing is known
    since_ms: int | None = None  # of the latest result; None: the job has never had one
    until_ms: int | None = None  # so long it holds, without another
    spans: Mapping[str, UptimeSpan] = {}  # up to now, by the names of SPANS
    days: Mapping[int, UptimeSpan] = {}  # of UTC, by when each begins, today last


def add_up(spans: Iterable[UptimeSpan]) -> UptimeSpan:
    found = UptimeSpan()
    for span in spans:
        found.add(span)
    return found


def begin_of(span: str, now_ms: int) -> int:
    """Return when a span up to now begins: at a full hour, or day of UTC where hours are not kept that long."""
    unit_ms = HOUR_MS if SPANS[span] < KEPT_MS["hour"] else DAY_MS
    return (now_ms - SPANS[span]) // unit_ms * unit_ms


def bucket_of(latency_ms: float) -> int:
    """Return the number of a latency's bucket."""
    return min(LATENCIES - 1, round(4 * log2(min(max(1.0, latency_ms), 1e9))))
