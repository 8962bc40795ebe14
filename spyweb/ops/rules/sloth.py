"""The rules of positional state.* for one entry: each returns a Transform, whose `result` the script gets.

A rule never raises because of the stored value: it returns the function's failure value and a reason, and leaves the
entry alone.
"""

from __future__ import annotations

import math
from typing import NamedTuple

from spyweb.limits import NUMBER_KEYS
from spyweb.model import Value
from spyweb.ops.arguments import parse_number
from spyweb.ops.rules.values import SCALAR_BYTES, are_equal, fits, integral, kind_of, shown, size_of
from spyweb.store.encoding import OVER_NUMBER_KEYS, count_number_keys
from spyweb.store.model.entries import KEEP, Addition, Drop, Entry, Leave, Put, Replacement, Transform

Results = tuple[object, ...]


class Subject(NamedTuple):
    """The function and the key of a call, which an error names."""

    function: str
    key: bytes
    failure: object  # the function's failure value
    largest: int  # bytes of a value

    def refusal(self, reason: str) -> Results:
        return (self.failure, f"{self.function}: key '{shown(self.key)}': {reason}")

    def excess(self, value: Value) -> str | None:
        """Return why a value is too large, or None."""
        size = size_of(value)
        return f"the value of {size} bytes is over the limit of {self.largest}" if size > self.largest else None

    def put(self, value: Value, *results: object) -> Put | Leave:
        """Write the value and keep the expiry."""
        excess = self.excess(value)
        return Leave(self.refusal(excess)) if excess else Put(value, KEEP, results)


def put(subject: Subject, value: Value, expires_ms: int | None) -> Transform:
    """Write the value and replace the expiry."""
    return Replacement(lambda: _put(subject, value, expires_ms))


def _put(subject: Subject, value: Value, expires_ms: int | None) -> Put | Leave:
    excess = subject.excess(value)
    return Leave(subject.refusal(excess)) if excess else Put(value, expires_ms, (True,))


def delete() -> Transform:
    """Delete the entry; the result is true even if there was none."""
    return Replacement(lambda: Drop((True,)))


def compare_swap(subject: Subject, old: Value, new: Value) -> Transform:
    """Swap a value for another; None stands for a missing key."""

    def change(entry: Entry | None) -> Put | Leave:
        if not are_equal(entry.value if entry else None, old):
            return Leave((False,))
        return _put(subject, new, None)

    return change


def increment(subject: Subject, delta: int | float) -> Transform:
    """Add to a number; a missing key counts as 0, a numeric string as its number."""
    delta = integral(delta)

    def change(entry: Entry | None) -> Put | Leave:
        number = _number_in(entry)
        if number is None:
            return Leave(subject.refusal(f"it holds {kind_of(entry.value if entry else None)}, not a number"))
        total = added(number, delta)
        if total is None:
            return Leave(subject.refusal(f"{number} + {delta} leaves the range of numbers"))
        return subject.put(total, total)

    if isinstance(delta, float) or subject.largest < SCALAR_BYTES:
        return change
    return Addition(delta, one, change)


def one(result: object) -> Results:
    return (result,)


def _number_in(entry: Entry | None) -> int | float | None:
    value = entry.value if entry else 0
    if isinstance(value, bytes):
        number = parse_number(value)
        return None if number is None else integral(number)
    return value if isinstance(value, int | float) and not isinstance(value, bool) else None


def added(number: int | float, delta: int | float) -> int | float | None:
    """Return the sum; None if integers leave 64 bits, or floats become infinite."""
    try:
        total = number + delta
    except OverflowError:
        return None
    if isinstance(total, float):
        return integral(total) if math.isfinite(total) else None
    return total if fits(total) else None


def append(subject: Subject, text: bytes) -> Transform:
    """Append to a text; the result is its length in bytes."""

    def change(entry: Entry | None) -> Put | Leave:
        value = entry.value if entry else b""
        if not isinstance(value, bytes):
            return Leave(subject.refusal(f"it holds {kind_of(value)}, not a string"))
        return subject.put(value + text, len(value) + len(text))

    return change


def list_push(subject: Subject, item: Value) -> Transform:
    """Append to a list; the result is its length."""

    def change(entry: Entry | None) -> Put | Leave:
        items = list_in(entry)
        if items is None:
            return Leave(_no_list(subject, entry))
        new = count_number_keys(item)
        if new and new + count_number_keys(items) > NUMBER_KEYS:
            return Leave(subject.refusal(f"{OVER_NUMBER_KEYS} can't be stored"))
        return subject.put([*items, item], len(items) + 1)

    return change


def list_pop(subject: Subject) -> Transform:
    """Remove the last item of a list; the result is the item, nil if there is none."""

    def change(entry: Entry | None) -> Put | Leave:
        items = list_in(entry)
        if items is None:
            return Leave(_no_list(subject, entry))
        return Put(items[:-1], KEEP, (items[-1],)) if items else Leave((None,))

    return change


def list_length(subject: Subject, entry: Entry | None) -> Results:
    items = list_in(entry)
    return _no_list(subject, entry) if items is None else (len(items),)


def list_in(entry: Entry | None) -> list[Value] | None:
    """Return the list that an entry holds; a missing entry and `{}` are empty lists."""
    value = entry.value if entry else []
    if isinstance(value, dict) and not value:
        return []
    return value if isinstance(value, list) else None


def _no_list(subject: Subject, entry: Entry | None) -> Results:
    return subject.refusal(f"it holds {kind_of(entry.value if entry else None)}, not a list")
