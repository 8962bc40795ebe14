"""Record how long ops take, as percentiles since start, in little memory."""

from __future__ import annotations

import math

STEPS_PER_DOUBLING = 8  # buckets between a duration and its double: the precision of a percentile
_SHORTEST = 1e-6  # seconds


class Times:
    """Counts durations in buckets that grow by a constant factor."""

    def __init__(self) -> None:
        self._counts: dict[int, int] = {}
        self.count = 0

    def note(self, seconds: float) -> None:
        step = math.ceil(math.log2(max(seconds, _SHORTEST) / _SHORTEST) * STEPS_PER_DOUBLING)
        self._counts[step] = self._counts.get(step, 0) + 1
        self.count += 1

    def percentile(self, percent: float) -> float:
        """Return the seconds that this percentage did not exceed; 0 before the first."""
        wanted = self.count * percent / 100
        seen = 0
        for step, count in sorted(self._counts.items()):
            seen += count
            if seen >= wanted:
                return _SHORTEST * 2 ** (step / STEPS_PER_DOUBLING)
        return 0.0
