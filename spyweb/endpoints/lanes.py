"""Which worker a request goes to: the first, for as long as it keeps up.

Each further worker that is awake takes a processor from the daemon and from the first one, and finds the caches full of
theirs: of bare aiohttp's requests a second, two workers on two processors served a fourth and one alone three tenths.
Where handlers take long enough to fill a worker, the next one helps.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

from spyweb.clock import Clock
from spyweb.lua.session import Code
from spyweb.model import JobId, RunId

LATE_S = 0.025  # a worker with a request this old has enough to do; 64 short ones are answered in 10 ms


class Lanes:
    def __init__(self, clock: Clock) -> None:
        self._monotonic = clock.monotonic
        self._begun: defaultdict[JobId, dict[RunId, float]] = defaultdict(dict)  # the oldest first

    def enter(self, codes: Sequence[Code], run: RunId) -> Code:
        """The code, one for each worker, that a new request is answered with."""
        now = self._monotonic()
        code = self._choose(codes, now)
        self._begun[code.job][run] = now
        return code

    def leave(self, job: JobId, run: RunId) -> None:
        begun = self._begun[job]
        del begun[run]
        if not begun:
            del self._begun[job]

    def _choose(self, codes: Sequence[Code], now: float) -> Code:
        for code in codes:
            begun = self._begun.get(code.job)
            if begun is None or now - next(iter(begun.values())) < LATE_S:
                return code
        return min(codes, key=lambda code: len(self._begun[code.job]))
