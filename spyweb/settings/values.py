"""Read the values of settings: each reader returns one in spyweb's own terms, or raises ValueError saying why not."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from enum import StrEnum
from functools import cache, lru_cache
from typing import ParamSpec, TypeVar, cast
from urllib.parse import urlsplit
from zoneinfo import ZoneInfo, available_timezones

from spyweb.model import HistoryRule
from spyweb.settings.reading import NOT_BLANK, TEXT, Schema, Shape, list_of, nearest, one_or_many, shaped, wrong
from spyweb.settings.units import (
    DURATION_EXPECTED,
    LONGEST_MS,
    SECOND_MS,
    SIZE_EXPECTED,
    format_duration,
    format_size,
    parse_duration,
    parse_size,
)

E = TypeVar("E", bound=StrEnum)
T = TypeVar("T")
P = ParamSpec("P")

_DURATION_TEXT: Schema = {"type": "string", "pattern": r"^\s*[0-9.]+\s*([A-Za-z]+\s*([0-9.]+\s*[A-Za-z]+\s*)*)?$"}
_HISTORY: Schema = {"anyOf": [{"type": "integer", "minimum": 1}, _DURATION_TEXT]}
NODE = r"^([A-Za-z0-9][A-Za-z0-9._-]{0,62})?$"
MOST_LABELS = 16
NAMESPACE = r"^(state|global|scope:[\s\S]*|(state@|job:)[\s\S]+)$"  # a scope may have any name, even an empty one
_SIZE_TEXT: Schema = {"type": "string", "pattern": r"^\s*[0-9.]+\s*[KkMmGgTt]?[Ii]?[Bb]?\s*$"}

_HEADER_NAME = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_HOST_NAME = re.compile(r"^[A-Za-z0-9]([A-Za-z0-9.-]{0,251}[A-Za-z0-9])?$")
_HEADERS: Schema = {"type": "object", "additionalProperties": TEXT}

LONGEST_ZONE = 100  # characters of a name; real ones are shorter


@shaped({"type": "boolean"})
def boolean(value: object) -> bool:
    if not isinstance(value, bool):
        raise wrong("true or false", value)
    return value


@shaped(TEXT)
def text(value: object) -> str:
    if not isinstance(value, str):
        raise wrong("text", value)
    return value


@shaped(NOT_BLANK)
def one_line(value: object) -> str:
    """Read a text that is not blank and has only one line."""
    line = text(value)
    if not line.strip():
        raise ValueError("can't be blank")
    if not line.isprintable():
        raise ValueError("can't hold line breaks or control characters")
    return line


def remembered(make: Callable[P, T]) -> Callable[P, T]:
    """Make the shape of each limit once: many jobs are read in one go."""
    return cast("Callable[P, T]", cache(make))


@remembered
def line(most: int) -> Shape[str]:
    @shaped({**NOT_BLANK, "maxLength": most})
    def read(value: object) -> str:
        found = one_line(value).strip()
        if len(found) > most:
            raise ValueError(f"must have at most {most} characters")
        return found

    return read


@shaped(_HEADERS, dict)
def headers(value: object) -> tuple[tuple[str, str], ...]:
    if not isinstance(value, Mapping):
        raise wrong('a table such as { "User-Agent" = "text" }', value)
    for name, given in value.items():
        if not isinstance(name, str) or not _HEADER_NAME.fullmatch(name):
            raise ValueError(f"{name!r} is not a valid header name")
        if not isinstance(given, str):
            raise wrong(f"text for {name}", given)
        if any(ord(character) < 32 and character != "\t" for character in given):
            raise ValueError(f"the header {name} can't hold line breaks or control characters")
    return tuple(value.items())


@shaped(list_of(TEXT), list)
def texts(value: object) -> tuple[str, ...]:
    if not isinstance(value, list):
        raise wrong("a list of texts", value)
    return tuple(map(text, value))


@shaped(list_of({"type": "string", "pattern": _HOST_NAME.pattern}), list)
def host_names(value: object) -> tuple[str, ...]:
    """Read names of hosts, without a port, as lower case."""
    names = texts(value)
    if wrong_name := next((name for name in names if not _HOST_NAME.fullmatch(name)), None):
        raise ValueError(f'{wrong_name[:80]!r} is not a host name: expected one such as "spyweb.example.org"')
    return tuple(name.lower() for name in names)


@shaped({"type": "string", "pattern": "^(https?://.+)?$"})
def public_url(value: object) -> str:
    """Read the address of a site, without a slash at its end."""
    given = text(value).strip()
    if not given:
        return ""
    try:
        parts = urlsplit(given)
        port = parts.port
    except ValueError:
        parts, port = urlsplit(""), None
    is_site = parts.scheme in ("http", "https") and parts.hostname and port != 0
    if not is_site or not given.isascii() or not given.isprintable() or any(each in given for each in " <>\"'\\"):
        raise wrong('an address such as "https://spyweb.example.org"', given)
    if parts.username is not None or parts.query or parts.fragment or "?" in given or "#" in given:
        raise ValueError("expected an address without user name, password, ? or #")
    return given.rstrip("/")


@shaped({"type": "string", "pattern": NODE})
def node_name(value: object) -> str:
    """Read the name of a node, or a label, as lower case; "" is none."""
    name = text(value).strip()
    if not re.fullmatch(NODE, name):
        raise ValueError(f"{name[:80]!r} is no name of a node or label: expected letters, digits, '.', '_' and '-'")
    return name.lower()


@shaped(list_of({"type": "string", "pattern": NODE}, maxItems=MOST_LABELS), list)
def labels(value: object) -> tuple[str, ...]:
    names = tuple(sorted({node_name(name) for name in texts(value)} - {""}))
    if len(names) > MOST_LABELS:
        raise ValueError(f"expected at most {MOST_LABELS}")
    return names


@remembered
def whole(least: int, most: int) -> Shape[int]:
    @shaped({"type": "integer", "minimum": least, "maximum": most})
    def read(value: object) -> int:
        if isinstance(value, bool) or not isinstance(value, int):
            raise wrong("a whole number", value)
        return _within(value, least, most, str)

    return read


@remembered
def duration(least_ms: int = 0, most_ms: int = LONGEST_MS) -> Shape[int]:
    seconds = {"type": "number", "minimum": least_ms / SECOND_MS, "maximum": most_ms / SECOND_MS}

    @shaped({"anyOf": [seconds, _DURATION_TEXT]}, format_duration)
    def read(value: object) -> int:
        if isinstance(value, bool) or not isinstance(value, int | float | str):
            raise wrong(DURATION_EXPECTED.removeprefix("expected "), value)
        return _within(parse_duration(value), least_ms, most_ms, format_duration)

    return read


@remembered
def size(least: int, most: int) -> Shape[int]:
    @shaped({"anyOf": [{"type": "integer", "minimum": least, "maximum": most}, _SIZE_TEXT]}, format_size)
    def read(value: object) -> int:
        if isinstance(value, bool) or not isinstance(value, int | float | str):
            raise wrong(SIZE_EXPECTED.removeprefix("expected "), value)
        return _within(parse_size(value), least, most, format_size)

    return read


@remembered
def one_of(kind: type[E], *without: E) -> Shape[E]:
    names = [member.value for member in kind if member not in without]

    @shaped({"enum": names}, str)
    def read(value: object) -> E:
        if not isinstance(value, str) or value not in names:
            raise ValueError(f"{wrong(choice(names), value)}{nearest(value, names)}")
        return kind(value)

    return read


@remembered
def or_word(word: str, shape: Shape[T]) -> Shape[T | None]:
    """Return a shape that reads this word as None, and everything else as the given shape."""

    @shaped({"anyOf": [{"const": word}, shape.schema]}, shape.show, none=word)
    def read(value: object) -> T | None:
        return None if value == word else shape(value)

    return read


def some_of(what: str, kinds: Mapping[str, frozenset[T]]) -> Shape[frozenset[T]]:
    """Return a shape that reads one of these names, or a list of them, as the set of their values."""

    def show(chosen: frozenset[T]) -> list[str]:
        return [name for name, kind in kinds.items() if kind <= chosen]

    @shaped(one_or_many({"enum": [*kinds]}), show)
    def read(value: object) -> frozenset[T]:
        names = value if isinstance(value, list) else [value]
        if not names:
            raise ValueError("can't be an empty list")
        return frozenset().union(*map(each, names))

    def each(name: object) -> frozenset[T]:
        if not isinstance(name, str) or name not in kinds:
            raise ValueError(f"{wrong(f'{what}: {choice([*kinds])}, or a list of them', name)}{nearest(name, kinds)}")
        return kinds[name]

    return read


def choice(names: list[str]) -> str:
    quoted = [f'"{name}"' for name in names]
    return " or ".join([", ".join(quoted[:-1]), quoted[-1]] if len(quoted) > 1 else quoted)


@shaped({"type": "object", "propertyNames": {"pattern": NAMESPACE}, "additionalProperties": _HISTORY}, dict)
def history(value: object) -> Mapping[str, HistoryRule]:
    """Read `[state.history]`: for each namespace how many past versions of a key are kept, or for how long."""
    if not isinstance(value, dict):
        raise wrong("a table of namespaces", value)
    rules: dict[str, HistoryRule] = {}
    problems: list[str] = []
    for namespace, rule in value.items():
        try:
            rules[_namespace(str(namespace))] = history_rule(rule)
        except ValueError as error:
            problems.append(f"{namespace}: {error}")
    if problems:
        raise ValueError("; also ".join(problems))
    return rules


def _namespace(name: str) -> str:
    """Check a namespace: nothing is ever stored under another name, so its history would silently stay empty."""
    if re.fullmatch(NAMESPACE, name) is None:
        raise ValueError('no namespace: expected "state", "state@AGENT", "scope:NAME", "job:ID" or "global"')
    if name == "state@local":
        raise ValueError('the agent "local" is the one of "state"')
    return name


@shaped(_HISTORY)
def history_rule(value: object) -> HistoryRule:
    try:
        if isinstance(value, str):
            return HistoryRule(age_ms=duration(1000)(value))
        return HistoryRule(versions=whole(1, 1_000_000)(value))
    except ValueError as error:
        raise ValueError(f'{error}; a number of versions or a time like "7d"') from error


@shaped(TEXT)
def timezone(value: object) -> str:
    name = text(value)
    if is_timezone(name):
        return name
    known = sorted(available_timezones())
    lowered = name.strip().lower().replace(" ", "_")
    same = [zone for zone in known if lowered in (zone.lower(), zone.rpartition("/")[2].lower())]
    guess = nearest(name, known) if "/" in name else ""  # an abbreviation such as CEST has no similar zone
    hint = f'; did you mean "{same[-1]}"?' if same else guess or '; expected a name such as "Europe/Berlin"'
    raise ValueError(f"no time zone {name[:80]!r}{hint}")


def is_timezone(name: str) -> bool:
    return len(name) <= LONGEST_ZONE and _has_zone(name)


@lru_cache(maxsize=1024)
def _has_zone(name: str) -> bool:
    try:
        ZoneInfo(name)
    except (KeyError, ValueError, OSError):  # unknown, no relative path, a folder of zones
        return False
    return True


def _within(value: int, least: int, most: int, show: Callable[[int], str]) -> int:
    if value < least:
        raise ValueError(f"must be at least {show(least)}, not {show(value)}")
    if value > most:
        raise ValueError(f"must be at most {show(most)}, not {show(value)}")
    return value
