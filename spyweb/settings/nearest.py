"""Guess which of many names a misspelt name stands for.

Comparing two names takes time proportional to the product of their lengths, and a project may have thousands of jobs:
so a name is compared only with those near it in the alphabet, by their beginning or by their end.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Sequence
from difflib import get_close_matches

LONGEST = 40  # characters that are looked at
NEIGHBOURS = 50  # names before and after, by beginning and by end
LIKENESS = 0.6  # difflib's own


class Names:
    """Names to search for similar ones, ignoring case."""

    def __init__(self, known: Iterable[str]) -> None:
        self._known = {name[:LONGEST].lower(): name for name in known}
        self._is_small = len(self._known) <= 4 * NEIGHBOURS
        self._by_beginning = [] if self._is_small else sorted(self._known)
        self._by_end = [] if self._is_small else sorted(name[::-1] for name in self._known)

    def nearest(self, name: str, likeness: float = LIKENESS) -> str | None:
        """Return the most similar name, or None if none is similar enough."""
        sought = name[:LONGEST].lower()
        close = get_close_matches(sought, self._near(sought), n=1, cutoff=likeness)
        return self._known[close[0]] if close else None

    def _near(self, sought: str) -> Iterable[str]:
        if self._is_small:
            return self._known
        by_end = _around(self._by_end, sought[::-1])
        return dict.fromkeys([*_around(self._by_beginning, sought), *(name[::-1] for name in by_end)])


def _around(names: Sequence[str], sought: str) -> Sequence[str]:
    at = bisect_left(names, sought)
    return names[max(0, at - NEIGHBOURS) : at + NEIGHBOURS]


def nearest_name(name: str, known: Iterable[str], likeness: float = LIKENESS) -> str | None:
    return Names(known).nearest(name, likeness)
