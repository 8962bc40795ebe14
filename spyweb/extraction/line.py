"""What waits for an extractor process: selectors to be checked first, then pages, in turns between their jobs.

A job has at most half of the processes that take pages, and never the last one beside another that it has: whoever
watches slow pages holds up no other job.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterator

from spyweb.extraction.process import Errand
from spyweb.model import JobId

MOST = 4  # pages in hand
MOST_OF_ONE = MOST // 2  # of one job


class Line:
    def __init__(self) -> None:
        self._checks: deque[Errand] = deque()
        self._pages: dict[JobId, deque[Errand]] = {}  # whose turn is next comes first

    def add(self, errand: Errand) -> None:
        if errand.job is None:
            self._checks.append(errand)
        else:
            self._pages.setdefault(errand.job, deque()).append(errand)

    def find_next(self, in_hand: Counter[JobId]) -> Errand | None:
        """`in_hand`: the pages of each job that are being taken apart.  A job with none comes before one with some."""
        if self._checks:
            return self._checks[0]
        other = None
        for job in self._allowed(in_hand):
            if not in_hand[job]:
                return self._pages[job][0]
            other = other or self._pages[job][0]
        return other

    def count(self, in_hand: Counter[JobId]) -> int:
        """How many could be taken on at once, at the least."""
        return len(self._checks) + sum(1 for _ in self._allowed(in_hand))

    def remove(self, errand: Errand) -> None:
        """The next one.  Its job's turn is over."""
        if errand.job is None:
            self._checks.popleft()
            return
        pages = self._pages.pop(errand.job)
        pages.popleft()
        if pages:
            self._pages[errand.job] = pages

    def take_all(self) -> list[Errand]:
        errands = [*self._checks, *(errand for pages in self._pages.values() for errand in pages)]
        self._checks.clear()
        self._pages.clear()
        return errands

    def _allowed(self, in_hand: Counter[JobId]) -> Iterator[JobId]:
        free = MOST - in_hand.total()
        if free > 0:
            yield from (job for job in self._pages if _may_have_more(in_hand[job], free))


def _may_have_more(in_hand: int, free: int) -> bool:
    return not in_hand or (in_hand < MOST_OF_ONE and free > 1)
