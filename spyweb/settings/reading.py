"""Read settings out of several sources, the strongest first, and gather every problem instead of stopping at one."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Protocol, TypeVar

from spyweb.errors import Problem
from spyweb.settings.nearest import LONGEST, Names
from spyweb.settings.shapes import Schema
from spyweb.settings.tables import TomlTable

T = TypeVar("T")

# What people coming from other programs type, and too far from the right name for a spelling guess.
_OTHER_NAMES = {
    "interval": "every",
    "schedule": "cron",
    "tz": "timezone",
    "zone": "timezone",
    "api_key": "SPYWEB_API_KEY",
}


class Tell(Protocol):
    """Makes a problem with the value that these keys lead to."""

    def __call__(self, reason: str, *keys: str) -> Problem: ...


@dataclass(frozen=True, slots=True)
class SettingsSource:
    """A table that values come from, and how a problem with one of them is told."""

    values: Mapping[str, object]
    problem: Tell
    forgiving: bool = False  # a key that nobody knows is a warning here, not an error

    @staticmethod
    def of(table: TomlTable, *, forgiving: bool = False) -> SettingsSource:
        return SettingsSource(table.values, table.problem, forgiving)

    def below(self, key: str) -> SettingsSource:
        """The table under a key; an empty one where there is none."""
        values = self.values.get(key)
        return SettingsSource(
            values if isinstance(values, Mapping) else {}, partial(_tell_below, self, key), self.forgiving
        )


def _tell_below(source: SettingsSource, key: str, reason: str, *keys: str) -> Problem:
    return source.problem(reason, key, *keys)


Asked = tuple[Callable[[object], object], object]  # how a key was read, and what it is when no source has it


class Reading:
    """One pass over the sources.  A value that is wrong in any source is a problem, even where a stronger one wins."""

    def __init__(
        self, sources: Sequence[SettingsSource], problems: list[Problem], warnings: list[Problem] | None = None
    ) -> None:
        self._sources = sources
        self._problems = problems
        self._warnings = problems if warnings is None else warnings
        self._given = {key for source in sources for key in source.values}
        self._below: list[Reading] = []
        self.asked: dict[str, Asked | Reading] = {}  # in their order; a table's keys have a reading of their own

    def take(self, key: str, read: Callable[[object], T], default: T) -> T:
        """Return the strongest source's value, or the default."""
        self.asked[key] = (read, default)
        if key not in self._given:
            return default
        found: list[T] = []
        for source in self._sources:
            if key in source.values:
                self._try(source, key, read, found)
        return found[0] if found else default

    def _try(self, source: SettingsSource, key: str, read: Callable[[object], T], found: list[T]) -> None:
        try:
            found.append(read(source.values[key]))
        except ValueError as error:
            self._problems.append(source.problem(str(error), key))

    def has(self, key: str) -> bool:
        """Return whether any source has the key, right or wrong."""
        return key in self._given

    def below(self, key: str) -> Reading:
        """Reads the table under a key; of each of its keys the strongest source's value counts."""
        for source in self._sources:
            if not isinstance(source.values.get(key, {}), Mapping):
                self.refuse(f"expected a table, [{key}]", key)
        inner = Reading([source.below(key) for source in self._sources], self._problems, self._warnings)
        self.asked[key] = inner
        self._below.append(inner)
        return inner

    def raw(self, key: str) -> object:
        """Return the value of the strongest source as it stands there; None when no source has the key."""
        return next((source.values[key] for source in self._sources if key in source.values), None)

    def refuse(self, reason: str, key: str) -> None:
        """Report a problem with a key that only shows when others are known."""
        self._problems.append(self.problem(reason, key))

    def problem(self, reason: str, key: str) -> Problem:
        """Return a problem of the strongest source that has the key."""
        return self._teller(key).problem(reason, key)

    def doubt(self, reason: str, key: str) -> None:
        """Report a warning where the source forgives what it does not know, else a problem."""
        source = self._teller(key)
        (self._warnings if source.forgiving else self._problems).append(source.problem(reason, key))

    def _teller(self, key: str) -> SettingsSource:
        """Return who tells of a problem with the key: the source that has it, else the job's own file."""
        having = (source for source in self._sources if key in source.values)
        own = (source for source in self._sources if source.forgiving)
        return next(having, None) or next(own, None) or self._sources[0]

    def finish(self, kind: str = "key") -> None:
        """Report every key that nobody took."""
        for inner in self._below:
            inner.finish(kind)
        if self._given <= self.asked.keys():
            return
        for source in self._sources:
            told = self._warnings if source.forgiving else self._problems
            unasked = (key for key in source.values if key not in self.asked)
            told.extend(source.problem(unknown(kind, key, self.asked), key) for key in unasked)

    def schema(self) -> Mapping[str, Schema]:
        """Return the JSON schema of every key that was asked for."""
        return {key: _schema_of(asked) for key, asked in self.asked.items()}


def _schema_of(asked: Asked | Reading) -> Schema:
    if isinstance(asked, Reading):
        return {"type": "object", "properties": asked.schema(), "additionalProperties": False}
    read, default = asked
    schema: Schema = getattr(read, "schema", {})
    shown = _shown_default(schema, getattr(read, "show", None), default)
    return schema if shown is None or not schema else {**schema, "default": shown}


def _shown_default(schema: Schema, show: Callable[[object], object] | None, default: object) -> object:
    """As a file would say it; None: there is none, or none that a file could say."""
    if default is None:
        accepted = schema.get("anyOf", ())
        return "none" if isinstance(accepted, Sequence) and {"const": "none"} in accepted else None
    if default == ():
        return {} if schema.get("type") == "object" else []
    return show(default) if show else default


def unknown(kind: str, name: str, known: Collection[str]) -> str:
    return f"unknown {kind}{nearest(name, known)}"


def nearest(name: object, known: Iterable[str] | Names) -> str:
    """Return `; did you mean "timeout"?`, or nothing."""
    if not isinstance(name, str):
        return ""
    names = known if isinstance(known, Names) else Names(known)
    guess = _OTHER_NAMES.get(name[:LONGEST].lower()) or names.nearest(name)
    return f'; did you mean "{guess}"?' if guess else ""
