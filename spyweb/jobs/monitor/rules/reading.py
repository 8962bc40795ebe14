"""Tables that hooks return, read field by field.  What is wrong raises a Mismatch that names the field."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import cast

from spyweb.lua.wire import Ext, Foreign
from spyweb.ops.arguments import Mismatch, read_number, read_table, read_text, type_name

Table = Mapping[object, object]


def text_in(table: Table, name: str) -> bytes | None:
    given = table.get(name.encode())
    if given is None:
        return None
    try:
        return read_text(given)
    except Mismatch as mismatch:
        raise _named(name, mismatch) from None


def positive_in(table: Table, name: str) -> int | float | None:
    given = table.get(name.encode())
    if given is None:
        return None
    try:
        number = read_number(given)
    except Mismatch as mismatch:
        raise _named(name, mismatch) from None
    if not 0 < number < math.inf:
        raise _named(name, Mismatch("a positive number expected"))
    return number


def table_in(table: Table, name: str) -> Table | None:
    given = table.get(name.encode())
    if given is None:
        return None
    try:
        return read_table(given)
    except Mismatch as mismatch:
        raise _named(name, mismatch) from None


def texts_in(table: Table, name: str) -> dict[bytes, bytes] | None:
    """A table of texts by their names."""
    inner = table_in(table, name)
    if inner is None:
        return None
    try:
        return {read_text(key): read_text(value) for key, value in inner.items()}
    except Mismatch as mismatch:
        raise _named(name, mismatch) from None


def sequence(value: object) -> list[object]:
    """An array; where it has holes, what is between them."""
    if isinstance(value, list):
        return value
    if isinstance(value, Foreign) and value.kind is Ext.EMPTY_ARRAY:
        return []
    if isinstance(value, dict) and all(type(key) is int for key in value):
        return [value[key] for key in sorted(cast("dict[int, object]", value))]
    found = "a table with names in it" if isinstance(value, dict) else type_name(value)
    raise Mismatch(f"array expected, got {found}")


def _named(name: str, mismatch: Mismatch) -> Mismatch:
    return Mismatch(f"field '{name}': {mismatch}")
