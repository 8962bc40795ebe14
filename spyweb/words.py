"""Counts, cut texts, durations, sizes and moments in words, the same in messages, on pages and in commands.  Pure."""

from __future__ import annotations

from datetime import UTC, datetime
from zoneinfo import ZoneInfo

SECOND_MS, MINUTE_MS, HOUR_MS, DAY_MS = 1_000, 60_000, 3_600_000, 86_400_000
_SIZES = ("B", "KB", "MB", "GB", "TB", "PB")
_UNITS = (("d", DAY_MS), ("h", HOUR_MS), ("m", MINUTE_MS), ("s", SECOND_MS))


def counted(number: int, noun: str, plural: str = "") -> str:
    """Return a number with its noun: `1 job`, `1,000 jobs`, `2 entries`."""
    return f"{number:,} {noun if number == 1 else plural or f'{noun}s'}"


def cut(text: str, most: int) -> str:
    """Return a text of at most so many characters; where something is missing, it ends with an ellipsis."""
    return text if len(text) <= most else text[: most - 1] + "…"


def first_line(text: str, most: int = 200) -> str:
    return cut(text.strip().partition("\n")[0].rstrip(), most)


def round_duration(ms: float, space: str = " ") -> str:
    """Return a duration in at most two units: `340 ms`, `1.2 s`, `1 m 53 s`, `6 d 14 h`."""
    if ms < 0:
        return f"\N{MINUS SIGN}{round_duration(-ms, space)}"
    if ms < SECOND_MS:
        return f"{round(ms)}{space}ms" if round(ms) < SECOND_MS else f"1{space}s"
    if ms < MINUTE_MS - 50:
        return f"{ms / SECOND_MS:.1f}".removesuffix(".0") + f"{space}s"
    return _two_units(ms, space)


def _two_units(ms: float, space: str) -> str:
    """Return the largest unit and the one below it; the rest is rounded off."""
    position = next(i for i, (_, size) in enumerate(_UNITS) if ms >= size - 50)
    unit, size = _UNITS[position]
    smaller, smaller_size = _UNITS[position + 1]
    whole, rest = divmod(round(ms / smaller_size), size // smaller_size)
    if position and whole * size >= _UNITS[position - 1][1]:  # rounded up to the unit above
        return _two_units(whole * size, space)
    return f"{whole:,}{space}{unit}" + (f" {rest}{space}{smaller}" if rest else "")


def round_size(size: int, space: str = " ") -> str:
    """Return a number of bytes in the largest unit that fits: `74 MB`, `1.2 GB`."""
    value, unit = float(size), 0
    while round(value) >= 1000 and unit < len(_SIZES) - 1:
        value, unit = value / 1024, unit + 1
    shown = f"{value:.1f}".removesuffix(".0") if value < 10 and unit else f"{value:.0f}"
    return f"{shown}{space}{_SIZES[unit]}"


def describe_moment(ms: int, timezone: str) -> str:
    """Return weekday, date, time and zone: `Sun 2026-03-29 03:00:00 CEST`."""
    whole, rest = divmod(ms, 1000)
    try:
        local = datetime.fromtimestamp(whole, tz=UTC).astimezone(ZoneInfo(timezone))
    except (ValueError, OverflowError):  # before the year 1 or after 9999, as an import may have it
        return f"{ms} ms since 1970"
    fraction = f".{rest:03d}" if rest else ""
    return f"{local:%a %Y-%m-%d %H:%M:%S}{fraction} {local:%Z}"


def describe_briefly(ms: int, timezone: str, now_ms: int) -> str:
    """Return the time of a moment in a known time zone, with the date unless it is today: `03-29 03:00:00`."""
    try:
        local, today = (datetime.fromtimestamp(each // 1000, tz=ZoneInfo(timezone)) for each in (ms, now_ms))
    except (ValueError, OverflowError):
        return describe_moment(ms, timezone)
    if local.date() == today.date():
        return f"{local:%H:%M:%S}"
    return f"{local:%m-%d %H:%M:%S}" if local.year == today.year else f"{local:%Y-%m-%d %H:%M:%S}"
