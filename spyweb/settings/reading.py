"""Read settings out of several sources, the strongest first, and gather every problem instead of stopping at one."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from typing import TypeVar

from spyweb.errors import Problem
from spyweb.settings.tables import Table

T = TypeVar("T")

# What people coming from other programs type, and too far from the right name for a spelling guess.
_OTHER_NAMES = {
    "interval": "every",
    "schedule": "cron",
    "tz": "timezone",
    "zone": "timezone",
    "api_key": "SPYWEB_API_KEY",
}


@dataclass(frozen=True, slots=True)
class Source:
    """Where values come from, and how a problem with one of them is told."""

    values: Mapping[str, object]
    problem: Callable[[str, str], Problem]  # of (reason, key)

    @staticmethod
    def of(table: Table) -> Source:
        return Source(table.values, table.problem)


class Reading:
    """One pass over the sources.  A value that is wrong in any source is a problem, even where a stronger one wins."""

    def __init__(self, sources: Sequence[Source], problems: list[Problem]) -> None:
        self._sources = sources
        self._problems = problems
        self._known: set[str] = set()
        self._given = {key for source in sources for key in source.values}

    def take(self, key: str, read: Callable[[object], T], default: T) -> T:
        """The strongest source's value, or the default."""
        self._known.add(key)
        if key not in self._given:
            return default
        found: list[T] = []
        for source in self._sources:
            if key in source.values:
                self._try(source, key, read, found)
        return found[0] if found else default

    def _try(self, source: Source, key: str, read: Callable[[object], T], found: list[T]) -> None:
        try:
            found.append(read(source.values[key]))
        except ValueError as error:
            self._problems.append(source.problem(str(error), key))

    def finish(self, kind: str = "key") -> None:
        """Report every key that nobody took."""
        if self._given <= self._known:
            return
        for source in self._sources:
            for key in source.values:
                if key not in self._known:
                    self._problems.append(source.problem(unknown(kind, key, self._known), key))


def unknown(kind: str, name: str, known: Collection[str]) -> str:
    return f"unknown {kind}{nearest(name, known)}"


def nearest(name: object, known: Collection[str]) -> str:
    """`; did you mean "timeout"?`, or nothing."""
    if not isinstance(name, str):
        return ""
    lowered = {candidate.lower(): candidate for candidate in known}
    close = get_close_matches(name[:80].lower(), lowered, n=1)
    guess = _OTHER_NAMES.get(name.lower()) or (lowered[close[0]] if close else None)
    return f'; did you mean "{guess}"?' if guess else ""
