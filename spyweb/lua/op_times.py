"""How long the ops of scripts take, from the arrival of the question to its answer."""

from __future__ import annotations

from collections.abc import Iterable

from spyweb.histogram import SHORT_SECONDS, Histogram


class OpTimes:
    """Counts the time of each op by its name.

    A worker may ask for any name: one that is no op's is not counted.
    """

    def __init__(self, names: Iterable[str] = ()) -> None:
        self._names = frozenset(names)
        self.histograms: dict[str, Histogram] = {}

    def note(self, name: str, seconds: float) -> None:
        histogram = self.histograms.get(name)
        if histogram is None:
            if name not in self._names:
                return
            histogram = self.histograms[name] = Histogram(SHORT_SECONDS)
        histogram.observe(seconds)
