"""Read settings from several sources, the strongest first, and collect every problem instead of stopping at one.

Each reader of a value comes with the JSON Schema of the values that it accepts: `spyweb schema` and the parser use the
same shapes, so that both know the same keys.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import time
from difflib import get_close_matches
from typing import Generic, Protocol, TypeVar

from msgspec import Struct
from msgspec.structs import replace

from spyweb.errors import Problem
from spyweb.settings.tables import TomlTable

T = TypeVar("T")
D = TypeVar("D")

Schema = Mapping[str, object]
Read = Callable[[object], T]

TEXT: Schema = {"type": "string"}
NOT_BLANK: Schema = {"type": "string", "pattern": r"\S"}

_TOML_NAMES = {list: "a list", dict: "a table", time: "a time"}
LONGEST = 40  # characters that are compared
NEIGHBOURS = 50  # names before and after, by beginning and by end
LIKENESS = 0.6  # difflib's own

# Names that people know from other programs, too different from the right name for a spelling guess.
_OTHER_NAMES = {
    "interval": "every",
    "schedule": "cron",
    "tz": "timezone",
    "zone": "timezone",
    "api_key": "SPYWEB_API_KEY",
}


class Shape(Struct, Generic[T], frozen=True, eq=False):
    """Converts a value from a file to spyweb's own terms, or raises ValueError."""

    read: Read[T]
    schema: Schema
    show: Callable[..., object] | None = None  # converts a value back to how a file writes it, if that differs
    none: object = None  # how a file writes None, if it can

    def __call__(self, value: object) -> T:
        return self.read(value)


class Shaping(Protocol):
    def __call__(self, read: Read[T]) -> Shape[T]: ...


def shaped(schema: Schema, show: Callable[..., object] | None = None, none: object = None) -> Shaping:
    """Attach to a reader the schema of its values."""
    return lambda read: Shape(read, schema, show, none)


def told(shape: Shape[T], words: str) -> Shape[T]:
    """Return the shape of a key with a line about it, for editors that show it."""
    return replace(shape, schema={**shape.schema, "description": words})


def list_of(items: Schema, **more: object) -> Schema:
    return {"type": "array", "items": items, **more}


def one_or_many(items: Schema) -> Schema:
    return {"anyOf": [items, list_of(items)]}


def table_of(properties: Mapping[str, Schema], *required: str) -> Schema:
    """Return the schema of a table that has no other keys."""
    shape: dict[str, object] = {"type": "object", "properties": dict(properties), "additionalProperties": False}
    return shape | {"required": list(required)} if required else shape


def wrong(expected: str, value: object) -> ValueError:
    shown = repr(value) if isinstance(value, float | str) else _TOML_NAMES.get(type(value), "a date")
    if isinstance(value, int):
        shown = str(value).lower() if value.bit_length() <= 64 else "a number of more than 64 bits"
    return ValueError(f"expected {expected}, not {shown if len(shown) <= 80 else shown[:77] + '...'}")


Asked = tuple[object, object]  # the reader of a key, and its value when no source has it


class Reading:
    """One pass over the sources; a wrong value in any is a problem, even if a stronger one has a right one."""

    def __init__(
        self, sources: Sequence[TomlTable], problems: list[Problem], warnings: list[Problem] | None = None
    ) -> None:
        self._sources = sources
        self._problems = problems
        self._warnings = problems if warnings is None else warnings
        self._given = {key for source in sources for key in source.values}
        self._below: list[Reading] = []
        self.asked: dict[str, Asked | Reading] = {}  # in their order; a table's keys have a reading of their own
        self.required: list[str] = []

    def take(self, key: str, read: Callable[[object], T], default: T) -> T:
        """Return the strongest source's value, or the default."""
        self.asked[key] = (read, default)
        if key not in self._given:
            return default
        found = self.take_all(key, read, default)
        return found[0] if found else default

    def take_all(self, key: str, read: Callable[[object], T], default: T) -> list[T]:
        """Return the value of each source that has one, the strongest first."""
        self.asked[key] = (read, default)
        found: list[T] = []
        for source in self._sources:
            try:
                found += [read(source.values[key])] if key in source.values else []
            except ValueError as error:
                self._problems.append(source.problem(str(error), key))
        return found

    def tables(self, key: str, how: Tables[T], default: D) -> tuple[T, ...] | D:
        """Return the values of the tables under a key, all from the strongest source that is right."""
        self.asked[key] = (how, default)
        found = [how.read(source, key, self._problems) for source in self._sources if key in source.values]
        return next((each for each in found if each is not None), default)

    def require(self, *keys: str) -> None:
        self.required += keys
        for key in keys:
            if not self.has(key):
                self.refuse("is required", key)

    def has(self, key: str) -> bool:
        """Return whether any source has the key, with a valid value or not."""
        return key in self._given

    def below(self, key: str) -> Reading:
        """Return a reading of the table under a key; the strongest source's value of each of its keys counts."""
        self._check_tables(key)
        inner = Reading([source.table(key) for source in self._sources], self._problems, self._warnings)
        self.asked[key] = inner
        self._below.append(inner)
        return inner

    def apart(self, key: str) -> list[Reading]:
        """Return a reading of the table under a key for each source: no source hides another, and none forgives."""
        self._check_tables(key)
        inner = [Reading([source.table(key)], self._problems) for source in self._sources]
        self.asked[key] = inner[0]
        self._below.extend(inner)
        return inner

    def _check_tables(self, key: str) -> None:
        for source in self._sources:
            if not isinstance(source.values.get(key, {}), Mapping):
                self._problems.append(source.problem(f"expected a table, [{key}]", key))

    @property
    def is_empty(self) -> bool:
        return not self._given

    def raw(self, key: str) -> object:
        """Return the unparsed value of the strongest source; None when no source has the key."""
        return next((source.values[key] for source in self._sources if key in source.values), None)

    def refuse(self, reason: str, key: str, *inner: str) -> None:
        """Report a problem with a key, or one inside it, that depends on the values of others."""
        self._problems.append(self._teller(key).problem(reason, key, *inner))

    def problem(self, reason: str, key: str) -> Problem:
        """Return a problem with the key in the strongest source that has it."""
        return self._teller(key).problem(reason, key)

    def doubt(self, reason: str, key: str) -> None:
        """Report a warning if the source forgives unknown keys, otherwise a problem."""
        source = self._teller(key)
        (self._warnings if source.forgiving else self._problems).append(source.problem(reason, key))

    def _teller(self, key: str) -> TomlTable:
        """Return the source to name in a problem with the key: the one that has it, otherwise the job's own file."""
        having = (source for source in self._sources if key.partition("[")[0] in source.values)
        own = (source for source in self._sources if source.forgiving)
        return next(having, None) or next(own, None) or self._sources[0]

    def finish(self, *others: str) -> None:
        """Report every key that was not read, with a similar one that was, or one of these others."""
        for inner in self._below:
            inner.finish()
        if self._given <= self.asked.keys():
            return
        for source in self._sources:
            problems = self._warnings if source.forgiving else self._problems
            unasked = (key for key in source.values if key not in self.asked)
            problems.extend(
                source.problem(f"unknown key{nearest(key, [*self.asked, *others])}", key) for key in unasked
            )

    def schema(self) -> Mapping[str, Schema]:
        return {key: _schema_of(asked, key in self.required) for key, asked in self.asked.items()}


def read_whole(source: TomlTable, take: Callable[[Reading], T], problems: list[Problem]) -> T | None:
    """Return the values of a table; None, with the problems noted, when one is wrong."""
    before, reading = len(problems), Reading([source], problems)
    found = take(reading)
    reading.finish()
    return found if len(problems) == before else None


def asked_of(take: Callable[[Reading], object], sources: int = 1) -> Reading:
    """Return a reading without values, which has been asked for every key that `take` reads."""
    reading = Reading([TomlTable()] * sources, [])
    take(reading)
    return reading


class Tables(Struct, Generic[T], frozen=True, kw_only=True):
    """Reads the tables under a key, key by key, so that all their problems are reported at once."""

    take: Callable[[Reading], T]
    expected: str
    instead: Shape[T] | None = None  # reads a value in place of a table
    alone: bool = False  # one may stand without a list
    most: int = 0  # 1: it is never a list
    none: object = None  # how a file writes None, if it can

    def read(self, source: TomlTable, key: str, problems: list[Problem]) -> tuple[T, ...] | None:
        """Return the tables' values; None, with the problems noted, when one is wrong."""
        before, value = len(problems), source.values[key]
        is_list = isinstance(value, list) and self.most != 1
        if not is_list and not self.alone:
            problems.append(source.problem(str(wrong(self.expected, value)), key))
            return None
        items = value if is_list and isinstance(value, list) else [value]
        paths = [f"{key}[{number}]" for number in range(1, len(items) + 1)] if is_list else [key]
        if self.most and len(items) > self.most:
            problems.append(source.problem(f"there are at most {self.most} of them", paths[self.most]))
        each = zip(items[: self.most or None], paths, strict=False)
        found = [self._read_one(source, item, path, problems) for item, path in each]
        return tuple(item for item in found if item is not None) if len(problems) == before else None

    def _read_one(self, source: TomlTable, item: object, path: str, problems: list[Problem]) -> T | None:
        if isinstance(item, Mapping) and (item or self.instead is None):
            return read_whole(source.inside(item, path), self.take, problems)
        try:
            if self.instead is None:
                raise wrong(self.expected, item)
            return self.instead(item)
        except ValueError as error:
            problems.append(source.problem(str(error), path))
            return None

    @property
    def schema(self) -> Schema:
        reading = asked_of(self.take)
        one = table_of(reading.schema(), *reading.required)
        kinds = [self.instead.schema, one] if self.instead else [one]
        if self.most == 1:
            return {"anyOf": kinds} if self.instead else one
        several = list_of({"anyOf": kinds} if self.instead else one, **({"maxItems": self.most} if self.most else {}))
        return {"anyOf": [*kinds, several]} if self.alone else several


def _schema_of(asked: Asked | Reading, is_required: bool) -> Schema:
    if isinstance(asked, Reading):
        return table_of(asked.schema())
    read, default = asked
    schema: Schema = getattr(read, "schema", {})
    show: Callable[[object], object] | None = getattr(read, "show", None)
    if default is None:
        shown = getattr(read, "none", None)  # as a file would write it, if it can
    elif default == ():
        shown = {} if schema.get("type") == "object" else []
    else:
        shown = show(default) if show else default
    return schema if shown is None or not schema or is_required else {**schema, "default": shown}


def nearest(name: object, known: Iterable[str] | Names) -> str:
    """Return `; did you mean "timeout"?` with the most similar name, or an empty text."""
    if not isinstance(name, str):
        return ""
    names = known if isinstance(known, Names) else Names(known)
    guess = _OTHER_NAMES.get(name[:LONGEST].lower()) or names.nearest(name)
    return f'; did you mean "{guess}"?' if guess else ""


class Names:
    """Names to search for similar ones, ignoring case; of thousands, only neighbours in the alphabet are compared."""

    def __init__(self, known: Iterable[str]) -> None:
        self._known = {name[:LONGEST].lower(): name for name in known}
        self._is_small = len(self._known) <= 4 * NEIGHBOURS
        self._by_beginning = [] if self._is_small else sorted(self._known)
        self._by_end = [] if self._is_small else sorted(name[::-1] for name in self._known)

    def nearest(self, name: str, likeness: float = LIKENESS) -> str | None:
        """Return the most similar name, or None if none is similar enough."""
        sought = name[:LONGEST].lower()
        by_end = _around(self._by_end, sought[::-1])
        near = dict.fromkeys([*_around(self._by_beginning, sought), *(name[::-1] for name in by_end)])
        close = get_close_matches(sought, self._known if self._is_small else near, n=1, cutoff=likeness)
        return self._known[close[0]] if close else None


def _around(names: Sequence[str], sought: str) -> Sequence[str]:
    at = bisect_left(names, sought)
    return names[max(0, at - NEIGHBOURS) : at + NEIGHBOURS]
