"""Convert durations in milliseconds, and sizes in bytes, from text and back.  ValueError names the expected form."""

from __future__ import annotations

import math
import re
from fractions import Fraction
from functools import lru_cache

SECOND_MS = 1_000
MINUTE_MS = 60 * SECOND_MS
HOUR_MS = 60 * MINUTE_MS
DAY_MS = 24 * HOUR_MS

LONGEST_MS = 36_500 * DAY_MS  # a century: dates stay far from the year 9999
LONGEST_TEXT = 64  # characters: keeps hostile numbers cheap

DURATION_EXPECTED = 'expected a number of seconds, or text such as "1h30m" or "250ms"'
SIZE_EXPECTED = 'expected a number of bytes, or text such as "64MB"'

_DURATION_UNITS = {"w": 7 * DAY_MS, "d": DAY_MS, "h": HOUR_MS, "m": MINUTE_MS, "s": SECOND_MS, "ms": 1}
_UNIT_NAMES = {
    **{unit: unit for unit in _DURATION_UNITS},
    **dict.fromkeys(("week", "weeks"), "w"),
    **dict.fromkeys(("day", "days"), "d"),
    **dict.fromkeys(("hour", "hours"), "h"),
    **dict.fromkeys(("min", "minute", "minutes"), "m"),
    **dict.fromkeys(("sec", "second", "seconds"), "s"),
}
_SIZES = {"B": 1, "KB": 1 << 10, "MB": 1 << 20, "GB": 1 << 30, "TB": 1 << 40}

_NUMBER = r"(?:[0-9]+(?:\.[0-9]+)?|\.[0-9]+)"
_PART = re.compile(rf"({_NUMBER})\s*([A-Za-z]+)\s*")
_PLAIN = re.compile(_NUMBER)
_SIZE = re.compile(rf"({_NUMBER})\s*([kmgt]?)i?b?", re.IGNORECASE)


def parse_duration(value: object) -> int:
    seconds = _plain_number(value, DURATION_EXPECTED)
    exact = seconds * SECOND_MS if seconds is not None else _sum_of_parts(str(value).strip())
    if exact > LONGEST_MS:
        raise ValueError("is longer than a century")
    if exact.denominator != 1:
        raise ValueError(f"{value!r} is finer than a millisecond")
    return exact.numerator


def parse_size(value: object) -> int:
    exact = _plain_number(value, SIZE_EXPECTED)
    if exact is None:
        match = _SIZE.fullmatch(text := str(value).strip())
        if match is None:
            raise ValueError(f"{SIZE_EXPECTED}, not {text!r}")
        exact = Fraction(match[1]) * _SIZES[match[2].upper() + "B"]
    if exact.denominator != 1:
        raise ValueError(f"{value!r} is not a whole number of bytes")
    return exact.numerator


def format_duration(ms: int) -> str:
    """Write a duration as a person would: `1h30m`, `250ms`, `1m30.5s`.  Weeks are written in days."""
    if 0 < ms < SECOND_MS:
        return f"{ms}ms"
    days, rest = divmod(ms, DAY_MS)
    hours, rest = divmod(rest, HOUR_MS)
    minutes, rest = divmod(rest, MINUTE_MS)
    seconds = f"{rest // SECOND_MS}.{rest % SECOND_MS:03}".rstrip("0").rstrip(".")
    parts = ((f"{days}", "d"), (f"{hours}", "h"), (f"{minutes}", "m"), (seconds, "s"))
    return "".join(number + unit for number, unit in parts if number != "0") or "0s"


def format_size(size: int) -> str:
    """Write a size in the largest unit that is exact with at most two decimals: `64MB`, `1.5GB`, `1000B`."""
    for unit, scale in reversed(_SIZES.items()):
        hundredths, rest = divmod(size * 100, scale)
        if size >= scale and rest == 0:
            return f"{hundredths // 100}.{hundredths % 100:02}".rstrip("0").rstrip(".") + unit
    return f"{size}B"


def _plain_number(value: object, expected: str) -> Fraction | None:
    """Return the number if it has no unit; None for text that must be parsed."""
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        raise ValueError(expected)
    if isinstance(value, float) and not math.isfinite(value):
        raise ValueError(f"{expected}, not {value}")
    text = str(value).strip()  # of a number as it was typed: 0.1 is a tenth
    if not text or len(text) > LONGEST_TEXT or not text.isascii():
        raise ValueError(expected)
    if text.startswith("-"):
        raise ValueError("can't be negative")
    return Fraction(text) if not isinstance(value, str) or _PLAIN.fullmatch(text) else None


@lru_cache(maxsize=512)
def _sum_of_parts(text: str) -> Fraction:
    total, position, seen = Fraction(0), 0, set()
    while position < len(text):
        part = _PART.match(text, position)
        unit = _UNIT_NAMES.get(part[2].lower()) if part else None
        if part is None or unit is None or unit in seen:
            raise ValueError(f"{DURATION_EXPECTED}, not {text!r}")
        total += Fraction(part[1]) * _DURATION_UNITS[unit]
        position = part.end()
        seen.add(unit)
    return total
