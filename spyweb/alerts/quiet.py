"""Quiet hours: from one time of day to another, as the clock on the wall of a time zone shows them.

No arithmetic decides whether it is quiet: an hour that comes twice in autumn is quiet twice, and one that is left out
in spring ends it at once.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

from spyweb.incidents.policy import QuietHours

HOUR_MS = 3_600_000
LOOKED_AHEAD = 49  # hours in which quiet hours have ended, whatever the zone does


def quiet_until(hours: QuietHours, now_ms: int) -> int | None:
    """Return the first moment that is not quiet; None where it is not quiet now."""
    zone = ZoneInfo(hours.timezone)
    if not _is_quiet(hours, zone, now_ms):
        return None
    moments = (
        moment for moment in _ends(hours, zone, now_ms) if moment > now_ms and not _is_quiet(hours, zone, moment)
    )
    return min(moments)


def _is_quiet(hours: QuietHours, zone: ZoneInfo, moment_ms: int) -> bool:
    wall = _local(zone, moment_ms).time()
    if hours.start < hours.end:
        return hours.start <= wall < hours.end
    return wall >= hours.start or wall < hours.end


def _ends(hours: QuietHours, zone: ZoneInfo, now_ms: int) -> Iterator[int]:
    """Yield the moments at which it may end: its end on the next days, read both ways, and changes of the offset."""
    today = _local(zone, now_ms).date()
    for days in range(-1, 3):
        for fold in (0, 1):
            end = datetime.combine(today + timedelta(days), hours.end, zone).replace(fold=fold)
            yield round(end.timestamp() * 1000)
    yield from _changes_of_offset(zone, now_ms)


def _changes_of_offset(zone: ZoneInfo, now_ms: int) -> Iterator[int]:
    for begin_ms in range(now_ms, now_ms + LOOKED_AHEAD * HOUR_MS, HOUR_MS):
        before, after = begin_ms, begin_ms + HOUR_MS
        if _offset(zone, before) == _offset(zone, after):
            continue
        while after - before > 1:
            middle = (before + after) // 2
            before, after = (middle, after) if _offset(zone, middle) == _offset(zone, before) else (before, middle)
        yield after


def _offset(zone: ZoneInfo, moment_ms: int) -> timedelta | None:
    return _local(zone, moment_ms).utcoffset()


def _local(zone: ZoneInfo, moment_ms: int) -> datetime:
    return datetime.fromtimestamp(moment_ms / 1000, tz=UTC).astimezone(zone)
