"""Turn the values that a script passes into the arguments that an op expects, or into Lua's error text.

An op names its parameters' types with the aliases below; `reader_of` turns such an annotation into a Reader, once.
Values of scripts are bytes, int, float, bool, None, NULL, list, dict and wire.Foreign; they are converted as Lua's own
C functions would: a number is accepted for a string, a numeric string for a number.
"""

from __future__ import annotations

import math
import re
import types
from collections.abc import Callable, Mapping
from itertools import islice
from typing import Annotated, TypeVar, Union, get_args, get_origin

from msgspec import Struct

from spyweb import limits
from spyweb.lua.wire import Ext, Foreign
from spyweb.model import Null
from spyweb.settings.reading import nearest

T = TypeVar("T")
Read = Callable[[object], object]

INTEGER_LIMIT = 1 << 63
MOST_NAMED = 20  # options that are checked: a table may have any number
NO_INTEGER = "number has no integer representation"
_SPACE = b" \t\n\v\f\r"
_DECIMAL_INTEGER = re.compile(rb"[+-]?[0-9]+")
DECIMAL = re.compile(rb"[+-]?(?:[0-9]++\.?[0-9]*+|\.[0-9]++)(?:[eE][+-]?[0-9]++)?")
_HEX_INTEGER = re.compile(rb"[+-]?0[xX][0-9a-fA-F]+")
HEX = re.compile(rb"[+-]?0[xX](?:[0-9a-fA-F]++\.?[0-9a-fA-F]*+|\.[0-9a-fA-F]++)(?:[pP][+-]?[0-9]++)?")
_LONGEST_INTEGER = 20  # digits and a sign; int() is slow for long texts, float() is not


_TYPE_NAMES = {types.NoneType: "nil", bool: "boolean", int: "number", float: "number", bytes: "string", Null: "null"}


class Mismatch(Exception):
    """A value that the parameter does not accept; the text is for the parentheses of Lua's message."""


class ArgumentReader(Struct, frozen=True):
    """One kind of argument."""

    kind: str  # for the reference
    expected: str  # for error texts, in Lua's own words
    read: Read


def type_name(value: object) -> str:
    """Return what Lua's `type` returns for a value."""
    if isinstance(value, Foreign) and value.kind is Ext.FOREIGN:
        return value.name
    return _TYPE_NAMES.get(type(value), "table")


def _mismatch(expected: str, value: object) -> Mismatch:
    return Mismatch(f"{expected} expected, got {type_name(value)}")


def read_text(value: object) -> bytes:
    """Read a string, or a number as its text (`3.0` → `3`)."""
    if isinstance(value, bytes):
        return value
    if not isinstance(value, int | float) or isinstance(value, bool):
        raise _mismatch("string", value)
    is_whole = isinstance(value, int) or (value.is_integer() and -INTEGER_LIMIT <= value < INTEGER_LIMIT)
    return b"%d" % value if is_whole else b"%.14g" % value


def read_kept_text(value: object) -> bytes:
    """Read a text to keep: a number as the shortest text that reads back the same, where Lua's own has 14 digits."""
    text = read_text(value)
    is_cut = isinstance(value, float) and math.isfinite(value) and float(text) != value
    return repr(value).encode() if is_cut else text


def read_whole(value: object) -> int:
    """Read an integer; a fraction is refused."""
    if isinstance(number := read_number(value), float) and not number.is_integer():
        raise Mismatch(NO_INTEGER)
    return read_integer(number)


def read_integer(value: object) -> int:
    """Read an integer; a fraction is cut off, a numeric string is converted."""
    number = read_number(value)
    if isinstance(number, float):
        if not math.isfinite(number):
            raise Mismatch(NO_INTEGER)
        number = math.trunc(number)
    if not -INTEGER_LIMIT <= number < INTEGER_LIMIT:
        raise Mismatch("number out of range")
    return number


def read_number(value: object) -> int | float:
    """Read a number; a numeric string is converted."""
    if isinstance(value, int | float) and not isinstance(value, bool):
        return value
    if isinstance(value, bytes) and len(value) > limits.NUMBER_TEXT:
        raise Mismatch(limits.too_large("the text of a number", len(value), limits.NUMBER_TEXT))
    number = parse_number(value) if isinstance(value, bytes) else None
    if number is None:
        raise _mismatch("number", value)
    return number


def parse_number(text: bytes) -> int | float | None:
    """Return the number that Lua reads in a text: decimal or hexadecimal, spaces around it, no `inf` or `nan`.

    None for anything else, and for a text of more than `NUMBER_TEXT` bytes.
    """
    if len(text) > limits.NUMBER_TEXT:
        return None
    text = text.strip(_SPACE)
    if len(text) <= _LONGEST_INTEGER and _DECIMAL_INTEGER.fullmatch(text):
        number = int(text)
        return number if -INTEGER_LIMIT <= number < INTEGER_LIMIT else float(text)
    if DECIMAL.fullmatch(text):
        return float(text)
    if _HEX_INTEGER.fullmatch(text):
        number = int(text[-16:].lower().rpartition(b"x")[2], 16)  # the rest falls out of 64 bits, as in Lua
        number = -number if text.startswith(b"-") else number
        return (number + INTEGER_LIMIT) % (2 * INTEGER_LIMIT) - INTEGER_LIMIT
    try:
        return float.fromhex(text.decode("ascii")) if HEX.fullmatch(text) else None
    except OverflowError:
        return -math.inf if text.startswith(b"-") else math.inf


def read_table(value: object) -> dict[object, object]:
    """Read a table; a sequence becomes a dict with keys from 1."""
    if isinstance(value, dict):
        return value
    if isinstance(value, list):
        return dict(enumerate(value, 1))
    raise _mismatch("table", value)


def value_in(table: Mapping[object, object], name: str, read: Callable[[object], T]) -> T | None:
    """Read a field with `read`; None where it is missing."""
    given = table.get(name.encode())
    return None if given is None else read_as(f"field '{name}'", read, given)


def needed_text_in(table: Mapping[object, object], name: str) -> bytes:
    return read_as(f"field '{name}'", read_text, table.get(name.encode()))


def read_as(what: str, read: Callable[[object], T], given: object) -> T:
    """Read a part of a value; a Mismatch says which part it is about."""
    try:
        return read(given)
    except Mismatch as mismatch:
        raise Mismatch(f"{what}: {mismatch}") from None


def text_in(table: Mapping[object, object], name: str) -> bytes | None:
    return value_in(table, name, read_text)


def positive_in(table: Mapping[object, object], name: str) -> int | float | None:
    return value_in(table, name, read_positive)


def read_positive(value: object) -> int | float:
    number = read_number(value)
    if not 0 < number < math.inf:
        raise Mismatch("a positive number expected")
    return number


def table_in(table: Mapping[object, object], name: str) -> dict[object, object] | None:
    return value_in(table, name, read_table)


def texts_in(table: Mapping[object, object], name: str) -> dict[bytes, bytes] | None:
    """Read a field that is a table of texts by their names."""
    return value_in(
        table, name, lambda given: {read_text(key): read_text(text) for key, text in read_table(given).items()}
    )


def read_flag(value: object) -> bool:
    if not isinstance(value, bool):
        raise _mismatch("boolean", value)
    return value


def options_of(**known: Read) -> ArgumentReader:
    """Return the reader of a table of options, each with its own reader."""

    def read(value: object) -> dict[str, object]:
        table = read_table(value)
        for key in islice(table, MOST_NAMED):
            name = key[:80].decode("utf-8", "replace") if isinstance(key, bytes) else str(key)
            if name not in known:
                raise Mismatch(f"there is no option '{name}'{nearest(name, known)}")
        return {name: value_in(table, name, each) for name, each in known.items() if name.encode() in table}

    return ArgumentReader("table", "table", read)


Text = Annotated[bytes, ArgumentReader("string", "string", read_text)]
KeptText = Annotated[bytes, ArgumentReader("string", "string", read_kept_text)]
Whole = Annotated[int, ArgumentReader("integer", "number", read_whole)]
Int = Annotated[int, ArgumentReader("integer", "number", read_integer)]
Number = Annotated[int | float, ArgumentReader("number", "number", read_number)]
Table = Annotated[dict[object, object], ArgumentReader("table", "table", read_table)]
Value = Annotated[object, ArgumentReader("value", "value", lambda value: value)]


def reader_of(annotation: object) -> ArgumentReader:
    """Return the reader for one of the aliases above, or for `Alias | None`."""
    if get_origin(annotation) in (Union, types.UnionType):
        alternatives = [part for part in get_args(annotation) if part is not types.NoneType]
        if len(alternatives) == 1:
            return reader_of(alternatives[0])
    if get_origin(annotation) is Annotated:
        for extra in get_args(annotation)[1:]:
            if isinstance(extra, ArgumentReader):
                return extra
    raise TypeError(f"an op's parameter can't be a {annotation}")
