"""Count measurements by size, for later percentiles."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Sequence

SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0, 1_800.0)
SHORT_SECONDS = (0.0001, 0.00025, 0.001, 0.0025, 0.01, 0.025, 0.1, 0.25, 1.0, 2.5, 10.0)
FINE_SECONDS = tuple(1e-6 * 2 ** (step / 8) for step in range(257))  # a percentile is right to a tenth
SIZES = (1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0, 128.0, 256.0, 512.0)


class Histogram:
    """Counts measurements in buckets, each up to and including its bound, and those beyond the last bound."""

    __slots__ = ("bounds", "counts", "sum")

    def __init__(self, bounds: Sequence[float]) -> None:
        self.bounds = bounds
        self.counts = [0] * (len(bounds) + 1)
        self.sum = 0.0

    def observe(self, value: float) -> None:
        self.counts[bisect_left(self.bounds, value)] += 1
        self.sum += value

    @property
    def count(self) -> int:
        return sum(self.counts)

    def copy(self) -> Histogram:
        """Return it as it is now: the copy is for another thread."""
        copied = Histogram(self.bounds)
        copied.counts, copied.sum = list(self.counts), self.sum
        return copied

    def percentile(self, percent: float) -> float:
        """Return the bound that this percentage of the measurements did not exceed; 0 before the first."""
        wanted = self.count * percent / 100
        return next(bound for bound, total in self.cumulative() if total >= wanted) if wanted else 0.0

    def cumulative(self) -> Iterator[tuple[float, int]]:
        """Yield each bound, infinity last, with how many measurements were at most that."""
        total = 0
        for bound, count in zip((*self.bounds, float("inf")), self.counts, strict=True):
            total += count
            yield bound, total
