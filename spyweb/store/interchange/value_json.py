"""Convert values to JSON for people and programs, and back, without loss.

JSON has no byte strings, no keys other than text, and no infinity.  These are objects with one key:

- `{"$base64": "/w=="}` is a string that is not UTF-8;
- `{"$table": [[1, "a"], ["n", true]]}` is a table by its pairs, where a key is not UTF-8 text;
- `{"$number": "inf"}` and `"-inf"` are the infinite numbers.

A table that would read as one of these, because its one key is one of these names, is written as `$table` too.  null is
JSON null, `[]` the empty array, `{}` the empty table.  Whole numbers beyond 64 bits are floats, as in Lua.
"""

from __future__ import annotations

import base64
import binascii
import math
import re
from enum import StrEnum
from typing import Final

import msgspec

from spyweb.limits import NUMBER_KEYS
from spyweb.model import NULL, Null, Value, ValueKey
from spyweb.store.encoding import LARGEST, OVER_NUMBER_KEYS, SMALLEST, count_number_keys, number_keys

BASE64, TABLE, NUMBER = "$base64", "$table", "$number"
FORMS: Final = frozenset({BASE64, TABLE, NUMBER})
INFINITE: Final = {"inf": math.inf, "-inf": -math.inf}
MAX_DEPTH = 100  # of tables in tables: more than a script can build by appending deep values at a deep path

Plain = object  # what JSON holds, as Python sees it


class TypeName(StrEnum):
    """The type of a value, as people are shown it."""

    STRING = "string"
    NUMBER = "number"
    BOOLEAN = "boolean"
    LIST = "list"
    TABLE = "table"
    NULL = "null"


TYPES: Final = {
    bytes: TypeName.STRING,
    bool: TypeName.BOOLEAN,
    int: TypeName.NUMBER,
    float: TypeName.NUMBER,
    list: TypeName.LIST,
    dict: TypeName.TABLE,
}


def type_of(value: Value) -> TypeName:
    return TYPES.get(type(value), TypeName.NULL)


def encode_value(value: Value) -> bytes:
    """Return the value as one line of JSON."""
    return msgspec.json.encode(to_plain(value))


def decode_value(text: bytes, most: int | None = None) -> Value:
    """Read a value.  Raises ValueError with the reason for invalid JSON, no value, or more than `most` values."""
    value = from_plain(decode_json(text, most))
    if count_number_keys(value) > NUMBER_KEYS:
        raise ValueError(f"has {OVER_NUMBER_KEYS}")
    return value


def decode_json(text: bytes, most: int | None = None) -> Plain:
    """Read JSON.  Raises ValueError with a reason that fits on a line.

    A value takes far more memory than text, so when the text comes from elsewhere its values are counted first.
    """
    if most is not None and holds_more_than(most, text):
        raise ValueError(f"holds more than {most} values")
    try:
        return msgspec.json.decode(text)
    except UnicodeDecodeError as error:
        raise ValueError("is not UTF-8") from error
    except msgspec.MsgspecError as error:
        raise ValueError(f"is not JSON: {error}") from error
    except RecursionError as error:
        raise ValueError(f"is nested deeper than {MAX_DEPTH} tables") from error


_IN_STRING = re.compile(rb'(?:[^"\\]++|\\.)*+', re.DOTALL)
_STEP = 1 << 16  # bytes searched at once: a search holds the interpreter's lock


def holds_more_than(most: int, text: bytes) -> bool:
    """Return whether a text, if it is JSON, holds more than `most` values, in time linear in its length."""
    if sum(map(text.count, (b",", b"[", b"{"))) < most:
        return False
    count = at = 0
    while at < len(text):
        quote = text.find(b'"', at)
        end = quote if quote >= 0 else len(text)
        count += sum(text.count(mark, at, end) for mark in (b",", b"[", b"{"))
        if count >= most:
            return True
        at = _end_of_string(text, end + 1)
    return False


def _end_of_string(text: bytes, at: int) -> int:
    """Return the position after the closing quote, or the end of the text."""
    while at < len(text):
        found = _IN_STRING.match(text, at, at + _STEP)
        end = found.end() if found else at
        if end < len(text) and text[end : end + 1] == b'"':
            return end + 1
        if end == at:  # a lone backslash at the very end
            return len(text)
        at = end
    return at


# -- out


def to_plain(value: Value) -> Plain:
    match value:
        case bytes():
            return _plain_string(value)
        case float() if math.isinf(value):
            return {NUMBER: "inf" if value > 0 else "-inf"}
        case list():
            return [to_plain(item) for item in value]
        case dict():
            return _plain_table(value)
        case Null():
            return None
        case _:
            return value


def _plain_string(value: bytes) -> Plain:
    try:
        return value.decode()
    except UnicodeDecodeError:
        return {BASE64: base64.b64encode(value).decode()}


def _plain_table(table: dict[ValueKey, Value]) -> Plain:
    names = [_name(key) for key in table]
    if None in names or (len(names) == 1 and names[0] in FORMS):
        return {TABLE: [[to_plain(key), to_plain(item)] for key, item in table.items()]}
    return {name: to_plain(item) for name, item in zip(names, table.values(), strict=True)}


def _name(key: ValueKey) -> str | None:
    """Return the key as text for a JSON object, or None if it is not text."""
    try:
        return key.decode() if isinstance(key, bytes) else None
    except UnicodeDecodeError:
        return None


# -- in


def from_plain(plain: Plain, depth: int = MAX_DEPTH) -> Value:
    """Return the value that this JSON stands for.  Raises ValueError with the reason if it stands for none."""
    match plain:
        case None:
            return NULL
        case bool():
            return plain
        case str():
            return plain.encode()
        case int() | float():
            return number_of(plain)
        case list():
            inside = _less(depth)
            return [from_plain(item, inside) for item in plain]
        case dict():
            return _table(plain, _less(depth))
    raise ValueError(f"can't hold a {type(plain).__name__}")


def _table(plain: dict[str, Plain], depth: int) -> Value:
    if len(plain) == 1:
        ((name, content),) = plain.items()
        if name in FORMS:
            return _special(name, content, depth)
    return {name.encode(): from_plain(item, depth) for name, item in plain.items()}


def _special(name: str, content: Plain, depth: int) -> Value:
    if name == BASE64 and isinstance(content, str):
        try:
            return base64.b64decode(content, validate=True)
        except (binascii.Error, ValueError) as error:
            raise ValueError(f"has a {BASE64} that is not base64: {content[:40]!r}") from error
    if name == TABLE and isinstance(content, list):
        return _from_pairs(content, depth)
    if name == NUMBER and isinstance(content, str) and content in INFINITE:
        return INFINITE[content]
    raise ValueError(f"has an invalid {name}: {msgspec.json.encode(content).decode()[:40]}")


def _from_pairs(pairs: list[list[Plain]], depth: int) -> Value:
    if not all(isinstance(pair, list) and len(pair) == 2 for pair in pairs):
        raise ValueError(f"has a {TABLE} that is not a list of pairs")
    keys = list[ValueKey]()
    for plain, _ in pairs:
        key = from_plain(plain)
        if not isinstance(key, bytes | bool | int | float):
            raise ValueError(f"has a {TABLE} with a key that is neither text nor number nor boolean")
        keys.append(key)
    if number_keys(keys) > NUMBER_KEYS:
        raise ValueError(f"has {OVER_NUMBER_KEYS}")
    table: dict[ValueKey, Value] = {}
    for key, (plain, item) in zip(keys, pairs, strict=True):
        if key in table:
            raise ValueError(f"has a {TABLE} with the same key twice: {msgspec.json.encode(plain).decode()[:40]}")
        table[key] = from_plain(item, depth)
    numbers = range(1, len(table) + 1)  # with these keys it is an array
    is_array = table and all(type(key) is int and key in numbers for key in table)
    return [table[number] for number in numbers] if is_array else table


def number_of(value: int | float) -> int | float:
    """Return a whole number within 64 bits as an integer, any other as a float, as Lua does.  Raises ValueError."""
    if isinstance(value, float):
        return int(value) if value.is_integer() and SMALLEST <= value <= LARGEST else value
    try:
        return value if SMALLEST <= value <= LARGEST else float(value)
    except OverflowError as error:
        raise ValueError("has a number that is out of range") from error


def _less(depth: int) -> int:
    if depth == 0:
        raise ValueError(f"is nested deeper than {MAX_DEPTH} tables")
    return depth - 1
