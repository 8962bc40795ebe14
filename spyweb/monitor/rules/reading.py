"""Reads the tables that hooks return, field by field.  What is wrong raises a Mismatch that names the field."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import TypeVar, cast

from spyweb.lua.wire import Ext, Foreign
from spyweb.ops.arguments import Mismatch, read_number, read_table, read_text, type_name

T = TypeVar("T")

Table = Mapping[object, object]


def value_in(table: Table, name: str, read: Callable[[object], T]) -> T | None:
    """Read a field with `read`; None where it is missing."""
    given = table.get(name.encode())
    if given is None:
        return None
    try:
        return read(given)
    except Mismatch as mismatch:
        raise Mismatch(f"field '{name}': {mismatch}") from None


def text_in(table: Table, name: str) -> bytes | None:
    return value_in(table, name, read_text)


def positive_in(table: Table, name: str) -> int | float | None:
    return value_in(table, name, _positive)


def _positive(value: object) -> int | float:
    number = read_number(value)
    if not 0 < number < math.inf:
        raise Mismatch("a positive number expected")
    return number


def table_in(table: Table, name: str) -> Table | None:
    return value_in(table, name, read_table)


def texts_in(table: Table, name: str) -> dict[bytes, bytes] | None:
    """Read a field that is a table of texts by their names."""
    return value_in(table, name, _texts)


def _texts(value: object) -> dict[bytes, bytes]:
    return {read_text(key): read_text(text) for key, text in read_table(value).items()}


def sequence(value: object) -> list[object]:
    """Read an array; of one with holes, the values between them."""
    if isinstance(value, list):
        return value
    if isinstance(value, Foreign) and value.kind is Ext.EMPTY_ARRAY:
        return []
    if isinstance(value, dict) and all(type(key) is int for key in value):
        return [value[key] for key in sorted(cast("dict[int, object]", value))]
    found = "a table with names in it" if isinstance(value, dict) else type_name(value)
    raise Mismatch(f"array expected, got {found}")
