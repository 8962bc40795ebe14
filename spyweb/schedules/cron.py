"""Compute when a cron expression is due.  Pure: a function of the expression, the zone and a moment.

cronsim parses the expression and knows its calendar (day of month against day of week, `L`, `#`); the clock is ours,
because cronsim's own walk loses minutes where the clock moves by half an hour (Lord Howe), invents one where it jumps
over midnight (Beirut), and gives expressions with seconds no daylight-saving rule at all.

Daylight saving as in Debian's cron: an expression whose minute and hour fields are both free of a leading `*` runs once
for every local time; those that the clock jumps over run when it lands, those that it shows twice run the first time.
Any other expression follows the local clock, with its gaps and repetitions.

For one UTC day at a time, runs of due minutes are slices of one shared tuple, so that counting takes a few slices per
day and not a step per due time.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator
from datetime import UTC, date, datetime, timedelta
from functools import lru_cache
from zoneinfo import ZoneInfo

from cronsim import CronSim, CronSimError
from msgspec import Struct

from spyweb.settings.units import DAY_MS, MINUTE_MS, SECOND_MS

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class Span(Struct, frozen=True):
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
        found.append(Span(start_ms + offset_ms, end_ms + offset_ms, offset_ms, shown_ms))
        shown_ms = max(shown_ms, end_ms + offset_ms)
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


DAYS_AHEAD = 50 * 366  # 29 February on a given weekday comes within 40 years
DAYS_COUNTED = 5 * 366  # older missed times are not counted one by one, which would take too long
LONGEST_TEXT = 200

ALIASES = {
    "@hourly": "0 * * * *",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@weekly": "0 0 * * 0",
    "@monthly": "0 0 1 * *",
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
}
_EXPECTED = {
    "second": "0-59",
    "minute": "0-59",
    "hour": "0-23",
    "day-of-month": "1-31",
    "month": "1-12 or JAN-DEC",
    "day-of-week": "0-7 or SUN-SAT",
}
_EPOCH_ORDINAL = date(1970, 1, 1).toordinal()
LAST_DAY = date(9998, 1, 1).toordinal() - _EPOCH_ORDINAL  # days after the epoch; Python's calendar ends soon after


class Rule(Struct, frozen=True, eq=False):
    seconds: tuple[int, ...]  # of a minute
    minutes: tuple[int, ...]  # of a day
    by_the_clock: bool  # runs whenever the clock shows the time: skipped with a gap, repeated when set back
    calendar: CronSim

    def matches(self, day: int) -> bool:
        """Return whether the local date `day` days after the epoch is one of its dates."""
        when = date.fromordinal(_EPOCH_ORDINAL + day)
        return when.month in self.calendar.months and bool(self.calendar.match_day(when))


class Slice(Struct, frozen=True):
    """A run of due minutes, `base_ms + minutes[i] * MINUTE_MS` for i from `start` to `end`, each with its seconds."""

    base_ms: int
    minutes: tuple[int, ...]
    start: int
    end: int

    def after(self, moment_ms: int, seconds: tuple[int, ...]) -> int | None:
        """Return the first due time later than the moment."""
        index, second = self._place(moment_ms, seconds)
        if second < len(seconds) and index < self.end:
            return self._time(index, seconds[second])
        return self._time(index + 1, seconds[0]) if index + 1 < self.end else None

    def until(self, moment_ms: int, seconds: tuple[int, ...]) -> int | None:
        """Return the last due time not later than the moment."""
        index, second = self._place(moment_ms, seconds)
        if second > 0 and index < self.end:
            return self._time(index, seconds[second - 1])
        return self._time(index - 1, seconds[-1]) if index > self.start else None

    def count_until(self, moment_ms: int, seconds: tuple[int, ...]) -> int:
        """Count the due times that are not later than the moment."""
        index, second = self._place(moment_ms, seconds)
        return (index - self.start) * len(seconds) + second

    def _place(self, moment_ms: int, seconds: tuple[int, ...]) -> tuple[int, int]:
        """Return the index of the first minute not over at the moment, and how many of its seconds have passed."""
        minute, rest_ms = divmod(moment_ms - self.base_ms, MINUTE_MS)
        index = bisect_left(self.minutes, minute, self.start, self.end)
        if index == self.end or self.minutes[index] > minute:
            return index, 0
        return index, bisect_right(seconds, rest_ms // SECOND_MS)

    def _time(self, index: int, second: int) -> int:
        return self.base_ms + self.minutes[index] * MINUTE_MS + second * SECOND_MS


@lru_cache(maxsize=4096)
def parse_cron(expression: str) -> Rule:
    """Parse a cron expression.  Raises ValueError with the wrong field and its valid values."""
    fields = _fields(expression)
    for name, text in zip(_EXPECTED, fields, strict=True):
        alone = [text if field == name else "*" for field in _EXPECTED]
        try:
            CronSim(" ".join(alone), datetime(2000, 1, 1, tzinfo=UTC))
        except CronSimError as error:  # it does not name the wrong field
            raise ValueError(f"bad {name} {text!r} in the cron expression; expected {_EXPECTED[name]}") from error
    try:
        sim = CronSim(" ".join(fields), datetime(2000, 1, 1, tzinfo=UTC))
    except CronSimError as error:
        raise ValueError(f"{expression!r} is never due: no such day in these months") from error
    return Rule(
        seconds=tuple(sorted(sim.seconds)),
        minutes=tuple(hour * 60 + minute for hour in sorted(sim.hours) for minute in sorted(sim.minutes)),
        by_the_clock=fields[1].startswith("*") or fields[2].startswith("*"),
        calendar=sim,
    )


def cron_after(expression: str, zone: str, moment_ms: int) -> int | None:
    """Return the first due time later than the moment; None when there is none for fifty years."""
    rule = parse_cron(expression)
    first_day = moment_ms // DAY_MS
    last_day = min(first_day + DAYS_AHEAD, LAST_DAY)
    for day in _candidate_days(rule, range(first_day, last_day)):
        for piece in slices(rule, zone, day):
            due_ms = piece.after(moment_ms, rule.seconds)
            if due_ms is not None:
                return due_ms
    return None


def cron_until(expression: str, zone: str, moment_ms: int) -> int | None:
    """Return the last due time not later than the moment."""
    rule = parse_cron(expression)
    last_day = moment_ms // DAY_MS
    for day in _candidate_days(rule, range(last_day, last_day - DAYS_AHEAD, -1)):
        for piece in reversed(slices(rule, zone, day)):
            due_ms = piece.until(moment_ms, rule.seconds)
            if due_ms is not None:
                return due_ms
    return None


def cron_count(expression: str, zone: str, after_ms: int, until_ms: int) -> int:
    """Count the due times later than one moment and not later than another, of the last five years."""
    rule = parse_cron(expression)
    last_day = until_ms // DAY_MS
    first_day = max(after_ms // DAY_MS, last_day - DAYS_COUNTED)
    return sum(
        piece.count_until(until_ms, rule.seconds) - piece.count_until(after_ms, rule.seconds)
        for day in _candidate_days(rule, range(first_day, last_day + 1))
        for piece in slices(rule, zone, day)
    )


@lru_cache(maxsize=4096)
def slices(rule: Rule, zone: str, day: int) -> tuple[Slice, ...]:
    """Return the runs of due minutes of one UTC day, in order."""
    return tuple(piece for span in spans(zone, day) for piece in _slices_of_span(rule, span))


def _slices_of_span(rule: Rule, span: Span) -> Iterator[Slice]:
    local_start_ms = span.local_start_ms if rule.by_the_clock else max(span.local_start_ms, span.shown_ms)
    if not rule.by_the_clock and _falls_into_gap(rule, span):
        yield Slice(span.local_start_ms - span.offset_ms, (0,), 0, 1)
    for base_ms, start, end in _local(rule, local_start_ms, span.local_end_ms):
        yield Slice(base_ms - span.offset_ms, rule.minutes, start, end)


def _falls_into_gap(rule: Rule, span: Span) -> bool:
    """Return whether a skipped local time was due and the minute after the gap is not due anyway."""
    landed_ms = span.local_start_ms
    return any(_local(rule, span.shown_ms, landed_ms)) and not any(_local(rule, landed_ms, landed_ms + MINUTE_MS))


def _local(rule: Rule, local_start_ms: int, local_end_ms: int) -> Iterator[tuple[int, int, int]]:
    """Yield (midnight, start, end) of the due minutes of each local date between two local times."""
    for day in range(local_start_ms // DAY_MS, -(-local_end_ms // DAY_MS)):
        midnight_ms = day * DAY_MS
        start = bisect_left(rule.minutes, -(-(local_start_ms - midnight_ms) // MINUTE_MS))
        end = bisect_left(rule.minutes, -(-(local_end_ms - midnight_ms) // MINUTE_MS))
        if start < end and rule.matches(day):
            yield midnight_ms, start, end


def _candidate_days(rule: Rule, days: range) -> Iterator[int]:
    """Yield the UTC days that touch a matching local date: their own, or the one before or after."""
    if not days:
        return
    behind, here = rule.matches(days[0] - days.step), rule.matches(days[0])
    for day in days:
        ahead = rule.matches(day + days.step)
        if behind or here or ahead:
            yield day
        behind, here = here, ahead


def _fields(expression: str) -> list[str]:
    if len(expression) > LONGEST_TEXT:
        raise ValueError(f"a cron expression has at most {LONGEST_TEXT} characters")
    fields = ALIASES.get(expression.strip().lower(), expression).split()
    if fields and fields[0].startswith("@"):
        raise ValueError(f"unknown alias {fields[0]!r}; there are {', '.join(ALIASES)}")
    if len(fields) not in (5, 6):
        raise ValueError(
            f"a cron expression has 5 fields (minute hour day-of-month month day-of-week), or 6 with the second first; "
            f"{expression!r} has {len(fields)}"
        )
    whole = fields if len(fields) == 6 else ["0", *fields]
    return [",".join(map(_without_lone_range, field.split(","))) for field in whole]


def _without_lone_range(term: str) -> str:
    """Replace a range of one value with a step: `3-3/4` is 3, which cronsim would take for the start of a range."""
    first, _, rest = term.partition("-")
    last, _, step = rest.partition("/")
    is_one = first.lstrip("0").upper() == last.lstrip("0").upper() and first and last
    return first if is_one and step.isdecimal() and step.strip("0") else term
