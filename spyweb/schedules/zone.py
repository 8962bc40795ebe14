"""Describe how a time zone's clock moves, as spans of constant offset, one UTC day at a time.  Pure.

`zoneinfo` gives the offset at a moment but not the moments at which it changes: those are found by bisection.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from zoneinfo import ZoneInfo

from msgspec import Struct

SECOND_MS = 1_000
DAY_MS = 86_400 * SECOND_MS

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class Span(Struct, frozen=True, kw_only=True):
    """A span of constant offset within one UTC day.  Local times are milliseconds since a local 1 January 1970.

    `shown_ms` is the local time that the clock had reached before the span began.  It is earlier than the span's start
    when the clock jumped over a gap, and later when the clock was set back.
    """

    local_start_ms: int
    local_end_ms: int
    offset_ms: int  # local time - UTC
    shown_ms: int


@lru_cache(maxsize=4096)
def spans(zone: str, day: int) -> tuple[Span, ...]:
    """Return the spans of the UTC day that begins `day` days after the epoch, in order."""
    shown_ms = max(end_ms + offset_ms for _, end_ms, offset_ms in _pieces(zone, day - 1))
    found = []
    for start_ms, end_ms, offset_ms in _pieces(zone, day):
        local_end_ms = end_ms + offset_ms
        found.append(
            Span(
                local_start_ms=start_ms + offset_ms,
                local_end_ms=local_end_ms,
                offset_ms=offset_ms,
                shown_ms=shown_ms,
            )
        )
        shown_ms = max(shown_ms, local_end_ms)
    return tuple(found)


def _pieces(zone: str, day: int) -> Iterator[tuple[int, int, int]]:
    """Yield (start, end, offset), the first two in UTC.  No zone has changed its clock and back within one UTC day."""
    start_ms, day_end_ms = day * DAY_MS, (day + 1) * DAY_MS
    while start_ms < day_end_ms:
        offset_ms = _offset_ms(zone, start_ms)
        end_ms = _next_change(zone, start_ms, day_end_ms)
        yield start_ms, end_ms, offset_ms
        start_ms = end_ms


def _next_change(zone: str, start_ms: int, end_ms: int) -> int:
    offset_ms = _offset_ms(zone, start_ms)
    if _offset_ms(zone, end_ms) == offset_ms:
        return end_ms
    same, changed = start_ms // SECOND_MS, end_ms // SECOND_MS
    while changed - same > 1:
        middle = (same + changed) // 2
        if _offset_ms(zone, middle * SECOND_MS) == offset_ms:
            same = middle
        else:
            changed = middle
    return changed * SECOND_MS


def _offset_ms(zone: str, moment_ms: int) -> int:
    local = (_EPOCH + timedelta(milliseconds=moment_ms)).astimezone(ZoneInfo(zone))
    offset = local.utcoffset() or timedelta()
    return offset // timedelta(milliseconds=1)
