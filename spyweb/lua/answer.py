"""Encode the results of an op as messages to a worker, on the daemon's hottest path.

Scalars cross one by one, anything else as one packed list.  Lua has 64-bit integers, so a larger one becomes a float.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import count
from typing import Any

from spyweb.errors import OpError
from spyweb.lua import wire
from spyweb.lua.wire import Form, ResumeRun

_PLAIN = int(Form.PLAIN)
_PACKED = int(Form.PACKED)
_RAISE = int(Form.RAISE)
_RAISE_PACKED = int(Form.RAISE_PACKED)

WALKED = 20_000  # values of an answer that are looked at one by one: more would hold up the loop
_LARGEST = (1 << 63) - 1
_AS_THEY_ARE = frozenset({bytes, bool, float, type(None)})


def resume(run: int, number: int, results: Sequence[object]) -> tuple[ResumeRun, int]:
    """Return the message that answers an op, and about how many bytes it takes."""
    values: list[Any] = []
    size = 0
    for value in results:
        kind = type(value)
        if kind is bytes:
            size += len(value)  # type: ignore[arg-type]
        elif kind is int:
            value = as_lua_integer(value)  # type: ignore[arg-type]
        elif kind is str:
            value = as_bytes(value)  # type: ignore[arg-type]
            size += len(value)
        elif kind not in _AS_THEY_ARE:
            packed = pack(results)
            return ResumeRun(run, number, _PACKED, [packed]), len(packed)
        values.append(value)
    return ResumeRun(run, number, _PLAIN, values), size


def resume_with_error(run: int, number: int, text: str) -> tuple[ResumeRun, int]:
    data = as_bytes(text)
    return ResumeRun(run, number, _RAISE, [data]), len(data)


def resume_with_error_value(run: int, number: int, value: object) -> tuple[ResumeRun, int]:
    packed = pack([value])
    return ResumeRun(run, number, _RAISE_PACKED, [packed]), len(packed)


def as_lua_integer(value: int) -> int | float:
    if -_LARGEST - 1 <= value <= _LARGEST:
        return value
    return _as_float(value)


def as_bytes(text: str) -> bytes:
    """Encode a text as UTF-8; surrogates, which stand for bytes that are not UTF-8, become those bytes again."""
    return text.encode("utf-8", "surrogateescape")


def pack(values: Sequence[object]) -> bytes:
    """Pack a list of values; only when that fails are they looked at one by one.

    Integers from 2**63 to 2**64 - 1 cross as they are: the codec in Lua makes floats of them.
    """
    try:
        return wire.pack(values)
    except (OverflowError, UnicodeEncodeError):
        return wire.pack(_as_packable(values, count(1)))


def _as_packable(value: object, counted: Iterator[int]) -> object:
    if next(counted) > WALKED:
        raise OpError(f"an answer with text that is not UTF-8 has more than {WALKED} values")
    match value:
        case bool():
            return value
        case int():
            return as_lua_integer(value)
        case str():
            return value if value.isascii() else as_bytes(value)
        case Mapping():
            return {_as_packable(key, counted): _as_packable(item, counted) for key, item in value.items()}
        case list() | tuple():
            return [_as_packable(item, counted) for item in value]
        case _:
            return value


def _as_float(value: int) -> float:
    try:
        return float(value)
    except OverflowError:
        return float("inf") if value > 0 else float("-inf")
