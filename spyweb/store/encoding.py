"""Convert values to columns and back without loss: scalars to SQLite's own types, tables to JSON text if that is exact.

A table goes as msgpack when it holds a string that is not UTF-8, a key that is not a string, or an infinite number.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection
from enum import StrEnum
from typing import NamedTuple, cast

import msgspec

from spyweb.errors import StoreError
from spyweb.limits import NUMBER_KEYS
from spyweb.model import NULL, Null, Value, ValueKey

MAX_DEPTH = 200  # of tables in tables
OVER_NUMBER_KEYS = f"a table over the limit of {NUMBER_KEYS} number keys in all"
SMALLEST, LARGEST = -(1 << 63), (1 << 63) - 1

Column = bytes | str | int | float | None
Plain = object  # what msgspec reads and writes: None for NULL; in JSON text for bytes


class Type(StrEnum):
    """The column `type`, which says how `value` is to be read."""

    STRING = "s"
    INTEGER = "i"
    FLOAT = "f"
    BOOLEAN = "b"
    NULL = "n"
    JSON = "j"
    MSGPACK = "m"


NUMBERS = frozenset({int, float, bool})
SCALARS = NUMBERS | {bytes}
KINDS = {bytes: Type.STRING, bool: Type.BOOLEAN, int: Type.INTEGER, float: Type.FLOAT, type(None): Type.NULL}
AS_THEY_ARE = {Type.STRING.value: bytes, Type.INTEGER.value: int, Type.FLOAT.value: float}


class Cell(NamedTuple):
    """The columns `type` and `value`."""

    type: str
    column: Column


class NotJson(Exception):
    """A value can't be written as JSON without losing something."""


def encode(value: Value) -> Cell:
    if isinstance(value, list | dict):
        return encode_table(value)
    plain = scalar(value)
    return Cell(KINDS[type(plain)].value, int(plain) if isinstance(plain, bool) else plain)


def decode(kind: str, column: Column) -> Value:
    """Return the value of a column.  Raises StoreError if it is damaged, which a failing disk may cause."""
    if type(column) is AS_THEY_ARE.get(kind):
        return cast("bytes | int | float", column)
    try:
        match kind:
            case Type.BOOLEAN:
                return bool(column)
            case Type.NULL:
                return NULL
            case Type.JSON if isinstance(column, str):
                return from_plain(msgspec.json.decode(column))
            case Type.MSGPACK if isinstance(column, bytes):
                return from_plain(msgspec.msgpack.decode(column, strict=False))
    except (msgspec.MsgspecError, UnicodeError, RecursionError) as error:
        raise StoreError(f"an entry of the type {kind!r} is damaged: {error}") from error
    raise StoreError(f"an entry of the type {kind!r} can't be read")


def encode_table(value: Value) -> Cell:
    try:
        return Cell(Type.JSON.value, msgspec.json.encode(to_plain(value, json_scalar, text_of, MAX_DEPTH)).decode())
    except NotJson:
        pass
    return Cell(Type.MSGPACK.value, msgspec.msgpack.encode(to_plain(value, scalar, scalar, MAX_DEPTH)))


def to_plain(value: Value, item_of: Callable[[Value], Plain], key_of: Callable[[ValueKey], Plain], depth: int) -> Plain:
    if isinstance(value, dict):
        inside = less(depth)
        return {key_of(key): to_plain(item, item_of, key_of, inside) for key, item in value.items()}
    if isinstance(value, list):
        inside = less(depth)
        return value if are_numbers(value) else [to_plain(item, item_of, key_of, inside) for item in value]
    return item_of(value)


def json_scalar(value: Value) -> Plain:
    if isinstance(value, bytes):
        return text_of(value)
    if isinstance(value, float) and math.isinf(value):
        raise NotJson
    return scalar(value)


def are_numbers(values: list[Value]) -> bool:
    """Return whether all values are finite 64-bit numbers or booleans, which need no conversion."""
    if not values or not NUMBERS.issuperset(map(type, values)):
        return False
    numbers = cast("list[float]", values)
    return min(numbers) >= SMALLEST and max(numbers) <= LARGEST and all(map(math.isfinite, numbers))


def text_of(value: ValueKey) -> str:
    try:
        if isinstance(value, bytes):
            return value.decode()
    except UnicodeDecodeError:
        pass
    raise NotJson


def from_plain(plain: Plain) -> Value:
    match plain:
        case str():
            return plain.encode()
        case dict():
            return {key.encode() if isinstance(key, str) else key: from_plain(item) for key, item in plain.items()}
        case list():
            return plain if SCALARS.issuperset(map(type, plain)) else [from_plain(item) for item in plain]
        case bytes() | bool() | int() | float():
            return plain
    return NULL


def number_keys(keys: Collection[ValueKey]) -> int:
    """Count the keys that are no texts.  Their hash is known, so a script can choose such that collide in a dict."""
    return len(keys) - list(map(type, keys)).count(bytes)


def count_number_keys(value: Value) -> int:
    """Count the number keys of all tables of a value; a stored value may have more than NUMBER_KEYS."""
    if isinstance(value, dict):
        return number_keys(value) + sum(map(count_number_keys, value.values()))
    if isinstance(value, list) and not SCALARS.issuperset(map(type, value)):
        return sum(map(count_number_keys, value))
    return 0


def less(depth: int) -> int:
    if depth == 0:
        raise StoreError(f"the value is nested deeper than {MAX_DEPTH} tables, or inside itself")
    return depth - 1


def scalar(value: Value) -> bytes | float | None:
    """Return what stands for a value that is no table.  Raises StoreError for what can't be stored."""
    match value:
        case bytes() | bool():
            return value
        case int():
            if SMALLEST <= value <= LARGEST:
                return value
            raise StoreError(f"the number {value} does not fit into 64 bits")
        case float():
            if not math.isnan(value):
                return value
            raise StoreError("NaN can't be stored")
        case Null():
            return None
    raise StoreError(f"{'nil' if value is None else f'a value of the type {type(value).__name__}'} can't be stored")


def as_text(value: Value) -> bytes:
    """Return a typed value as store_get shows it."""
    match value:
        case bytes():
            return value
        case bool():
            return b"true" if value else b"false"
        case int() | float():
            return str(value).encode()
        case Null():
            return b"null"
    column = encode_table(value).column
    return column.encode() if isinstance(column, str) else msgspec.msgpack.encode(column)
