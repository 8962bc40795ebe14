"""Compute the charts of pages: paths and rectangles in the units of their SVG, without any markup.

A chart has one path for each kind of run, not an element for each run: a page of a thousand jobs stays small and fast.
The style sheet gives paths their colours and dashes; a letter is both the kind of a run and the class of its path.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timedelta, tzinfo
from functools import lru_cache
from itertools import groupby

from msgspec import Struct

from spyweb.model import RunMark
from spyweb.settings.units import DAY_MS, HOUR_MS, MINUTE_MS, SECOND_MS
from spyweb.store.model.runs import RunPoint
from spyweb.web.pages.words import show_duration
from spyweb.words import counted

BARS = 40  # of a strip
STEP, BAR = 6, 4  # units from one bar to the next, and its width
CHART_WIDTH, CHART_HEIGHT, LATE_HEIGHT = 1000, 100, 40
KNOWN_STRIPS = 1_000  # that are not drawn anew: most jobs have had the same runs as many others
GOOD = 0.99  # the uptime of a day that had a short outage
HEAT_GAP = 0.9  # of a slot that is filled
SUM_HEIGHT = 64
THINNEST = 0.005  # of a waterfall's width, or a short operation is not seen

# letter → the heights of the middle of its bar in a strip of 24, and its word
KINDS: Mapping[str, tuple[tuple[int, ...], str]] = {
    "s": ((19,), "succeeded"),
    "t": ((16,), "succeeded late"),
    "f": ((12,), "failed"),
    "c": ((19,), "cancelled"),
    "l": ((3, 21), "lost"),
    "x": ((19,), "stopped"),
    "k": ((22,), "skipped"),
    "m": ((12,), "missed"),
    "p": ((22,), "paused"),
    "r": ((19,), "running"),
    "w": ((22,), "waiting"),
}
OTHER = "k"  # stands for a letter of a later version

STEPS = ((SECOND_MS, (1, 5, 15, 30)), (MINUTE_MS, (1, 5, 15, 30)), (HOUR_MS, (1, 3, 6, 12)), (DAY_MS, (1, 7)))
TICKS, LAST_TICK = 9, 88  # at most so many on an axis, and the share of its width at which the last label has room
LEVELS = 5  # of a heat map
DURATIONS_MS = (1, 10, 100, SECOND_MS, 10 * SECOND_MS, MINUTE_MS, 10 * MINUTE_MS, HOUR_MS, 10 * HOUR_MS, DAY_MS)


class Strip(Struct, frozen=True):
    """The last runs of a job, newest at the right."""

    paths: tuple[tuple[str, str], ...]  # letter and path
    label: str  # the same in words


class Tick(Struct, frozen=True):
    """A round time on an axis, in percent of its width."""

    x: float
    at_ms: int
    unit: str  # the smallest one that its label needs: "second", "minute" or "day"


class Chart(Struct, frozen=True, kw_only=True):
    """Durations over time, on a logarithmic scale, and under them how late the runs began."""

    ticks: tuple[Tick, ...]
    paths: tuple[tuple[str, str], ...]  # letter and path: a dot for each run
    lines: tuple[tuple[float, str], ...]  # height and words of each line of the grid, topmost first
    late: str  # a path: a bar for each run
    label: str
    latest: str  # the longest lateness
    limit: float | None = None  # the height of the longest that a run may take, if that is in the picture


class Herd(Struct, frozen=True, kw_only=True):
    """How many runs of all jobs begin in each slot."""

    bars: str
    peak: str  # the one that is marked
    peak_slot: int | None  # None: nothing runs
    most: int


class WaterfallBar(Struct, frozen=True, kw_only=True):
    """A bar of a waterfall, in shares of the whole width."""

    x: float
    width: float


@lru_cache(KNOWN_STRIPS)
def strip(letters: str) -> Strip:
    """Draw the last runs as bars: a path for each kind, and in it a line for each stretch of that kind."""
    shown = [letter if letter in KINDS else OTHER for letter in letters[-BARS:]]
    return Strip(bars(shown, BARS), describe(shown))


def bars(shown: Sequence[str], most: int) -> tuple[tuple[str, str], ...]:
    """Return the paths of bars that end at the right of so many places; each is a letter of KINDS."""
    paths: dict[str, list[str]] = {}
    at = most - len(shown)
    for letter, group in groupby(shown):
        length = sum(1 for _ in group)
        for y in KINDS[letter][0]:
            paths.setdefault(letter, []).append(f"M{at * STEP} {y}h{length * STEP - (STEP - BAR)}")
        at += length
    return tuple((letter, "".join(parts)) for letter, parts in paths.items())


def draw_days(shares: Sequence[float | None]) -> Strip:
    """Draw the uptime of each day: high bars are bad ones, so that their colour is not needed."""
    shown = ["p" if share is None else "f" if share < GOOD else "t" if share < 1 else "s" for share in shares]
    down, known = sum(each in "ft" for each in shown), sum(each != "p" for each in shown)
    return Strip(bars(shown, len(shown)), f"{counted(known, 'day')} known, {counted(down, 'day')} with outages")


def describe(letters: Iterable[str]) -> str:
    """Return how many of each kind there are, in the order of KINDS: `39 succeeded, 1 failed`."""
    counts = Counter(letters)
    return ", ".join(f"{counts[letter]} {word}" for letter, (_, word) in KINDS.items() if counts[letter]) or "no runs"


def chart(
    points: Iterable[RunPoint],
    start_ms: int,
    end_ms: int,
    zone: tzinfo,
    limit_ms: int | None = None,
    shown: str = "Durations",
) -> Chart:
    """Draw durations from `start_ms`, or a little before the first run, to `end_ms`; points outside are left out."""
    seen = sorted((p for p in points if start_ms <= p.at_ms <= end_ms), key=lambda point: point.at_ms)
    if seen:
        start_ms = max(start_ms, seen[0].at_ms - max((end_ms - seen[0].at_ms) // 50, SECOND_MS))
    took = [point.took_ms for point in [p for p in seen if p.mark is not RunMark.SKIPPED] or seen] or [100, SECOND_MS]
    shortest, longest = min(took), max(took)
    low, high = _bounds(shortest, longest)
    grid = sorted({high, *(ms for ms in DURATIONS_MS if low <= ms <= high)}, reverse=True)
    paths: dict[str, list[str]] = {}
    for point in seen:
        x, y = _across(point.at_ms, start_ms, end_ms), _height(point.took_ms, low, high)
        paths.setdefault(point.mark.value, []).append(f"M{x:g} {y:g}h.01")
    latest = max((point.late_ms for point in seen), default=0)
    late = "".join(
        f"M{_across(point.at_ms, start_ms, end_ms):g} {LATE_HEIGHT}v-{point.late_ms / latest * LATE_HEIGHT:.3g}"
        for point in seen
        if latest and point.late_ms > 0
    )
    label = f"{shown} from {show_duration(shortest)} to {show_duration(longest)}: {describe(p.mark for p in seen)}"
    return Chart(
        paths=tuple((letter, "".join(paths[letter])) for letter in KINDS if letter in paths),
        lines=tuple((_height(ms, low, high), show_duration(ms)) for ms in grid),
        late=late,
        label=label if seen else f"{shown}: no runs",
        latest=show_duration(latest),
        ticks=time_ticks(start_ms, end_ms, zone),
        limit=_height(limit_ms, low, high) if limit_ms is not None and low <= limit_ms <= high else None,
    )


def _bounds(shortest: int, longest: int) -> tuple[int, int]:
    """Return the nearest round durations around both, at least a decade apart."""
    low = max((ms for ms in DURATIONS_MS[:-1] if ms <= shortest), default=DURATIONS_MS[0])
    return low, min((ms for ms in DURATIONS_MS if ms >= longest and ms > low), default=longest)


def _height(ms: int, low: int, high: int) -> float:
    share = (math.log(max(ms, 1)) - math.log(low)) / (math.log(high) - math.log(low))
    return round(CHART_HEIGHT * (1 - min(1.0, max(0.0, share))), 1)


def _across(at_ms: int, start_ms: int, end_ms: int) -> float:
    return round(CHART_WIDTH * (at_ms - start_ms) / max(1, end_ms - start_ms), 1)


def time_ticks(start_ms: int, end_ms: int, zone: tzinfo) -> tuple[Tick, ...]:
    """Return round times of a zone, at most TICKS of them."""
    span_ms = max(end_ms - start_ms, 1)
    step_ms = next((n * unit for unit, ns in STEPS for n in ns if span_ms <= TICKS * n * unit), span_ms // TICKS)
    offset = datetime.fromtimestamp(start_ms / 1000, zone).utcoffset() or timedelta()
    shift_ms = int(offset.total_seconds() * 1000) % step_ms
    first_ms = start_ms + -(start_ms + shift_ms) % step_ms
    unit = "day" if step_ms >= DAY_MS else "minute" if step_ms >= MINUTE_MS else "second"
    ticks = (Tick(round((at - start_ms) * 100 / span_ms, 2), at, unit) for at in range(first_ms, end_ms, step_ms))
    return tuple(tick for tick in ticks if tick.x <= LAST_TICK)


def bounds_of(most: int) -> list[int]:
    """Return the highest counts of at most LEVELS levels, each as many times the one before."""
    return sorted({round(most ** (level / LEVELS)) for level in range(1, LEVELS + 1)}) if most else []


def heat(counts: Sequence[int], bounds: Sequence[int]) -> tuple[tuple[str, str], ...]:
    """Draw one row of a heat map: a path for each level, whose class is a letter and its number."""
    paths: dict[str, list[str]] = {}
    for slot, count in enumerate(counts):
        if count > 0:
            paths.setdefault(level_class(bisect_left(bounds, count), bounds), []).append(f"M{slot} .5h{HEAT_GAP}")
    return tuple((level, "".join(paths[level])) for level in sorted(paths))


def level_class(level: int, bounds: Sequence[int]) -> str:
    """Return the class of a level: few levels are as far apart as possible, one alone is in the middle."""
    return f"h{1 + round(level * (LEVELS - 1) / (len(bounds) - 1))}" if len(bounds) > 1 else f"h{1 + LEVELS // 2}"


def herd(counts: Sequence[int]) -> Herd:
    """Draw the sum over all jobs, with the tallest bar apart."""
    most = max(counts, default=0)
    if most == 0:
        return Herd(bars="", peak="", peak_slot=None, most=0)
    peak_slot = counts.index(most)
    bars = [f"M{slot + 0.5} {SUM_HEIGHT}v-{count / most * SUM_HEIGHT:.3g}" for slot, count in enumerate(counts)]
    others = "".join(bar for slot, bar in enumerate(bars) if slot != peak_slot and counts[slot])
    return Herd(bars=others, peak=bars[peak_slot], peak_slot=peak_slot, most=most)


def span(start_ms: float, took_ms: float, whole_ms: float) -> WaterfallBar:
    """Place one operation in its run: never outside, and never too thin to be seen."""
    whole = max(whole_ms, 1)
    width = min(1.0, max(THINNEST, took_ms / whole))
    return WaterfallBar(x=round(min(max(0.0, start_ms / whole), 1 - width), 4), width=round(width, 4))
