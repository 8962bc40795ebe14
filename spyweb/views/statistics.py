"""How a job has done over a span of time: figures, and the points of its chart.  Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from enum import StrEnum

from msgspec import Struct

from spyweb.model import JobId
from spyweb.settings.units import DAY_MS
from spyweb.store.model.runs import RunPoint
from spyweb.views.strips import FAILING, SUCCEEDED

MOST_POINTS = 500  # of a chart
OF_SLOT = 3  # points that stand for all runs of a slot, where there are more


class TimeSpan(StrEnum):
    DAY = "24h"
    WEEK = "7d"
    MONTH = "30d"

    @property
    def ms(self) -> int:
        return {TimeSpan.DAY: DAY_MS, TimeSpan.WEEK: 7 * DAY_MS, TimeSpan.MONTH: 30 * DAY_MS}[self]


class Percentiles(Struct, frozen=True, kw_only=True):
    """The values that so many of 100 do not exceed."""

    p50: int
    p95: int
    p99: int
    most: int


class JobStatistics(Struct, frozen=True, kw_only=True):
    job: JobId
    span: TimeSpan
    since_ms: int
    until_ms: int
    runs: int
    succeeded: int
    failed: int  # lost ones too
    success_rate: float | None = None
    uptime: float | None = None  # the share of the time since the first of these runs in which the latest had succeeded
    took_ms: Percentiles | None = None
    late_ms: Percentiles | None = None
    points: Sequence[RunPoint] = ()  # oldest first, at most MOST_POINTS
    is_thinned: bool = False  # the points are the shortest, the middle and the longest runs of each slot of time
    is_partial: bool = False  # there are older runs in this span, too many to look at


def make_statistics(
    job: JobId, span: TimeSpan, points: Sequence[RunPoint], now_ms: int, *, is_partial: bool = False
) -> JobStatistics:
    """Reckon with the runs of a job, oldest first."""
    good = sum(point.mark in SUCCEEDED for point in points)
    bad = sum(point.mark in FAILING for point in points)
    since_ms = now_ms - span.ms
    thinned = thin(points, since_ms, now_ms)
    return JobStatistics(
        job=job,
        span=span,
        since_ms=since_ms,
        until_ms=now_ms,
        runs=len(points),
        succeeded=good,
        failed=bad,
        success_rate=good / (good + bad) if good + bad else None,
        uptime=uptime_of(points, now_ms),
        took_ms=percentiles([point.took_ms for point in points]),
        late_ms=percentiles([point.late_ms for point in points]),
        points=thinned,
        is_thinned=len(thinned) < len(points),
        is_partial=is_partial,
    )


def percentiles(values: Sequence[int]) -> Percentiles | None:
    if not values:
        return None
    ranked = sorted(values)
    p50, p95, p99 = (ranked[-(-len(ranked) * part // 100) - 1] for part in (50, 95, 99))
    return Percentiles(p50=p50, p95=p95, p99=p99, most=ranked[-1])


def uptime_of(points: Sequence[RunPoint], now_ms: int) -> float | None:
    """Return the share of the time from the end of the first run on in which the latest to end had succeeded."""
    ends = sorted((point.at_ms + point.took_ms, point.mark in SUCCEEDED) for point in points if _counts(point))
    if not ends or now_ms <= ends[0][0]:
        return float(ends[-1][1]) if ends else None
    up_ms = 0
    for (ended_ms, is_up), (following_ms, _) in zip(ends, [*ends[1:], (now_ms, True)], strict=True):
        up_ms += (min(following_ms, now_ms) - min(ended_ms, now_ms)) * is_up
    return up_ms / (now_ms - ends[0][0])


def _counts(point: RunPoint) -> bool:
    return point.mark in SUCCEEDED or point.mark in FAILING


def thin(points: Sequence[RunPoint], since_ms: int, until_ms: int, most: int = MOST_POINTS) -> list[RunPoint]:
    """Return at most so many points: of each slot of time the shortest run, a middle one and the longest.

    Where a slot has a failure, one of its points is a failure.
    """
    if len(points) <= most:
        return list(points)
    slots = max(1, most // OF_SLOT)
    width = max(1, -(-(until_ms - since_ms + 1) // slots))
    chosen: list[RunPoint] = []
    for slot in _slots(points, since_ms, width, slots):
        chosen.extend(_of_slot(slot))
    return chosen


def _slots(points: Sequence[RunPoint], since_ms: int, width: int, count: int) -> Iterator[list[RunPoint]]:
    slots: dict[int, list[RunPoint]] = {}
    for point in points:
        slots.setdefault(min(max(0, point.at_ms - since_ms) // width, count - 1), []).append(point)
    return (slots[number] for number in sorted(slots))


def _of_slot(slot: Sequence[RunPoint]) -> list[RunPoint]:
    if len(slot) <= OF_SLOT:
        return list(slot)
    ranked = sorted(slot, key=lambda point: (point.took_ms, point.run))
    shortest, middle, longest = ranked[0], ranked[len(ranked) // 2], ranked[-1]
    if not any(point.mark in FAILING for point in (shortest, middle, longest)):
        middle = next((point for point in ranked[1:-1] if point.mark in FAILING), middle)
    return sorted((shortest, middle, longest), key=lambda point: (point.at_ms, point.run))
