"""The values that scripts see in their global `values`: tables of TOML, laid over each other, as JSON text."""

from __future__ import annotations

import tomllib
from collections.abc import Iterable, Mapping
from contextlib import suppress
from functools import reduce

import msgspec

from spyweb.limits import SCRIPT_VALUES, too_large
from spyweb.settings.reading import shaped

NO_VALUES = ""  # as text

_MOST_DEPTH = 60  # of tables


@shaped({"type": "object"})
def values_table(value: object) -> Mapping[str, object]:
    """Read a table of values.  Raises ValueError for anything else, and for one that is too deep."""
    if not isinstance(value, Mapping):
        raise ValueError('expected a table, such as { host = "web1" }')
    if _depth(value) > _MOST_DEPTH:
        raise ValueError(f"is nested deeper than {_MOST_DEPTH} tables")
    return value


def to_text(values: Mapping[str, object]) -> str:
    """Return values as they are stored.  Raises ValueError when they are too many."""
    if not values:
        return NO_VALUES
    text = msgspec.json.encode(values).decode()
    if len(text) > SCRIPT_VALUES:
        raise ValueError(too_large("values", len(text), SCRIPT_VALUES))
    return text


def from_text(text: str) -> dict[str, object]:
    return msgspec.json.decode(text, type=dict[str, object]) if text else {}


def parse_variable(text: str) -> Mapping[str, object]:
    """Return the table that `a.b=1` stands for; a value that is not TOML is a text.  Raises ValueError."""
    path, sign, given = text.partition("=")
    names = [name.strip() for name in path.split(".")]
    if not sign or not all(names) or len(names) > _MOST_DEPTH:
        raise ValueError(f"--var {text}: expected NAME=VALUE, or A.B=VALUE")
    value: object = given
    if "\n" not in given:
        with suppress(tomllib.TOMLDecodeError, RecursionError):
            value = tomllib.loads(f"value = {given}")["value"]
    for name in reversed(names):
        value = {name: value}
    return values_table(value)


def merge(tables: Iterable[Mapping[str, object]]) -> dict[str, object]:
    """Merge tables, the strongest first; tables with the same name are merged too."""
    return reduce(_over, tables, {})


def _over(strong: Mapping[str, object], weak: Mapping[str, object]) -> dict[str, object]:
    merged = {**weak, **strong}
    for key in strong.keys() & weak.keys():
        upper, lower = strong[key], weak[key]
        if isinstance(upper, Mapping) and isinstance(lower, Mapping):
            merged[key] = _over(upper, lower)
    return merged


def _depth(value: object) -> int:
    if isinstance(value, Mapping):
        return 1 + max(map(_depth, value.values()), default=0)
    if isinstance(value, list):
        return 1 + max(map(_depth, value), default=0)
    return 0
