"""Convert a script's values to Values of the model, and back.

A Value comes back as it was written, except that a float that is integral within 64 bits becomes the integer.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import NamedTuple

from spyweb.lua import wire
from spyweb.lua.wire import Ext, Foreign
from spyweb.model import NULL, Null, Value, ValueKey
from spyweb.ops.arguments import INTEGER_LIMIT
from spyweb.store.model.entries import Entry

SHOWN = 80  # characters of a key in an error
_AS_THEY_ARE = frozenset({bytes, bool, int, Null})  # in Lua and in the store
_TEXT = frozenset({bytes})
_NEVER_STORED = {Ext.CYCLE: "a table that contains itself can't be stored", Ext.DEEP: "it is nested too deep"}
ALIKE = frozenset({0, 1})  # and false, and true
SCALAR_BYTES = 9  # what anything but a text or a table takes


class Unstorable(Exception):
    """A value can't be stored.  The text is the reason; `path` says where in the value."""

    def __init__(self, reason: str, path: str = "") -> None:
        super().__init__(f"{reason} (at {path})" if path else reason)
        self.reason = reason
        self.path = path

    def inside(self, key: object) -> Unstorable:
        """Return the same error with the path as seen from the table around the value."""
        step = f".{shown(key)}" if isinstance(key, bytes) else f"[{repr(key).lower()}]"
        return Unstorable(self.reason, step + self.path)


def shown(text: bytes) -> str:
    """Return a text in a form for people."""
    decoded = text.decode("utf-8", "backslashreplace")
    return decoded if len(decoded) <= SHOWN else f"{decoded[:SHOWN]}..."


def value_from_lua(given: object) -> Value:
    """Convert a script's value to one that can be stored.

    Raises Unstorable.  A table may be returned as it is: the caller must not change it any more.
    """
    kind = type(given)
    if kind in _AS_THEY_ARE:
        return given  # type: ignore[return-value]
    if kind is list:
        return _list_from_lua(given)  # type: ignore[arg-type]
    if kind is dict:
        return _table_from_lua(given)  # type: ignore[arg-type]
    if isinstance(given, Foreign):
        is_named = given.kind is Ext.FOREIGN
        raise Unstorable(f"a {given.name} can't be stored" if is_named else _NEVER_STORED[given.kind])
    if isinstance(given, Prepared):
        if given.problem is not None:
            raise given.problem
        return given.value
    if kind is float:
        return _number(given)  # type: ignore[arg-type]
    raise Unstorable("nil can't be stored")


class Prepared(NamedTuple):
    """A table that was converted in another thread, or the reason why it can't be stored."""

    value: Value = None
    problem: Unstorable | None = None


def prepared(given: object) -> object:
    """Convert a table in advance, so that `value_from_lua` takes no time for it."""
    if not isinstance(given, list | dict):
        return given
    try:
        return Prepared(value_from_lua(given))
    except Unstorable as problem:
        return Prepared(problem=problem)


def _list_from_lua(given: list[object]) -> list[Value]:
    """Convert a list; if nothing needs converting, a long one is not gone through item by item."""
    if _AS_THEY_ARE.issuperset(map(type, given)):
        return given  # type: ignore[return-value]
    made: list[Value] = []
    try:
        for item in given:
            made.append(value_from_lua(item))  # noqa: PERF401 - its length says where the problem is
    except Unstorable as problem:
        raise problem.inside(len(made) + 1) from None
    return made


def _table_from_lua(given: dict[object, object]) -> dict[ValueKey, Value]:
    if _TEXT.issuperset(map(type, given)) and _AS_THEY_ARE.issuperset(map(type, given.values())):
        return given  # type: ignore[return-value]
    made: dict[ValueKey, Value] = {}
    for key, item in given.items():
        if type(key) is not bytes and not isinstance(key, int | float):
            kind = key.name if isinstance(key, Foreign) else type(key).__name__
            raise Unstorable(f"a {kind} can't be a key of what is stored")
        try:
            made[key] = item if type(item) in _AS_THEY_ARE else value_from_lua(item)  # type: ignore[assignment]
        except Unstorable as problem:
            raise problem.inside(key) from None
    return made


def _number(number: float) -> int | float:
    if not math.isfinite(number):
        raise Unstorable("NaN can't be stored" if math.isnan(number) else "an infinite number can't be stored")
    return integral(number)


def integral(number: int | float) -> int | float:
    """Return the number as an integer, if it is one within 64 bits."""
    if isinstance(number, float) and number.is_integer() and fits(number):
        return int(number)
    return number


def fits(number: int | float) -> bool:
    """Return whether a number is within the range of Lua's integers."""
    return -INTEGER_LIMIT <= number < INTEGER_LIMIT


def added(number: int | float, delta: int | float) -> int | float | None:
    """Return the sum; None if integers leave 64 bits, or floats become infinite."""
    try:
        total = number + delta
    except OverflowError:
        return None
    if isinstance(total, float):
        return integral(total) if math.isfinite(total) else None
    return total if fits(total) else None


def result_of(value: Value) -> object:
    """Return a value as functions return it: JSON's null becomes nil."""
    return None if value is NULL else value


def size_of(value: Value) -> int:
    """Return the size in bytes: of a text its length, of a table that of its msgpack."""
    if isinstance(value, bytes):
        return len(value)
    return len(wire.pack(value)) if isinstance(value, list | dict) else SCALAR_BYTES


def are_equal(left: Value, right: Value) -> bool:
    """Compare deeply, as Lua does: 1 is 1.0 and not true, and an empty array is an empty table."""
    if isinstance(left, bool) or isinstance(right, bool):
        return left is right
    if isinstance(left, list) and isinstance(right, list):
        return len(left) == len(right) and all(map(are_equal, left, right))
    if isinstance(left, dict) and isinstance(right, dict):
        return len(left) == len(right) and all(
            has_key(right, key) and are_equal(item, right[key]) for key, item in left.items()
        )
    if isinstance(left, list | dict) and isinstance(right, list | dict):
        return not left and not right
    return left == right


def has_key(table: Mapping[ValueKey, Value], key: ValueKey) -> bool:
    """Return whether there is a key of that very type: to Python 1 and true are one key, to Lua they are not."""
    if key not in table or key not in ALIKE:
        return key in table
    probe = _Probe(key)  # going through all keys would make an update of many ops on a large table slow
    return probe in table and type(probe.found) is type(key)


class _Probe:
    """Equals the wanted key, and remembers it when a dict compares the two."""

    __slots__ = ("found", "sought")

    def __init__(self, sought: ValueKey) -> None:
        self.sought = sought
        self.found: ValueKey = sought

    def __hash__(self) -> int:
        return hash(self.sought)

    def __eq__(self, known: object) -> bool:
        if known != self.sought:
            return False
        self.found = known
        return True


def kind_of(value: Value) -> str:
    """Return the name of a value's type for error texts."""
    match value:
        case None:
            return "nothing"
        case Null():
            return "null"
        case bool():
            return "a boolean"
        case int() | float():
            return "a number"
        case bytes():
            return "a string"
        case list():
            return "a list"
        case dict():
            return "a table"


# When an entry expires: scripts give seconds, entries have epoch milliseconds

NO_EXPIRY, NO_KEY = -1, -2
_LONGEST_S = 1e12  # longer is for ever


def expiry_of(ttl: int | float | None, now_ms: int) -> int | None:
    """Return the expiry, None for never: no ttl, or one beyond any calendar.  Raises Unstorable."""
    if ttl is None:
        return None
    if math.isnan(ttl):
        raise Unstorable("the ttl is NaN")
    return now_ms + math.ceil(max(ttl, 0) * 1000) if ttl < _LONGEST_S else None


def remaining(entry: Entry | None, now_ms: int) -> int:
    """Return the remaining seconds, rounded up so that a live entry never has none."""
    if entry is None:
        return NO_KEY
    if entry.expires_ms is None:
        return NO_EXPIRY
    return max(1, math.ceil((entry.expires_ms - now_ms) / 1000))
