"""Describe a cron expression in words, where short ones exist.  Pure."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from functools import lru_cache

from cronsim import CronSim

from spyweb.schedules.cron import Rule, parse_cron

DAYS = ("Sunday", "Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday")
MONTHS = (
    "January", "February", "March", "April", "May", "June",
    "July", "August", "September", "October", "November", "December",
)  # fmt: skip
LISTED = 4  # times, days or months that are named one by one

_EVERY_DAY = "every day"


@lru_cache(maxsize=512)
def cron_words(expression: str) -> str | None:
    """Return `at 03:00, Monday to Friday`; None where no short words exist.  Raises ValueError for bad syntax."""
    rule = parse_cron(expression)
    times, dates = _times(rule), _dates(rule.calendar)
    if times is None or dates is None:
        return None
    if dates != _EVERY_DAY:
        return f"{times}, {dates}"
    return f"{times} {_EVERY_DAY}" if times.startswith("at ") and not times.endswith("every hour") else times


def _times(rule: Rule) -> str | None:
    hours = sorted({minute // 60 for minute in rule.minutes})
    minutes = sorted({minute % 60 for minute in rule.minutes})
    if rule.seconds != (0,):
        return _every(rule.seconds, "second") if len(rule.minutes) == 24 * 60 else None
    if len(hours) == 24:
        return _within_hours(minutes)
    if len(rule.minutes) <= LISTED:
        return f"at {_listed(f'{minute // 60:02}:{minute % 60:02}' for minute in rule.minutes)}"
    if minutes == [0] and hours[0] == 0 and (step := _step(hours, 24)):
        return f"every {step} hours"
    if len(hours) > 1 and hours[-1] - hours[0] == len(hours) - 1 and (within := _within_hours(minutes)):
        return f"{within} from {hours[0]:02}:{minutes[0]:02} to {hours[-1]:02}:{minutes[-1]:02}"
    return None


def _every(values: Sequence[int], unit: str) -> str | None:
    if len(values) == 60:
        return f"every {unit}"
    step = _step(values, 60) if values[0] == 0 else None
    return f"every {step} {unit}s" if step else None


def _within_hours(minutes: Sequence[int]) -> str | None:
    """Describe the minutes of each hour."""
    if minutes == [0]:
        return "every hour"
    found = _every(minutes, "minute")
    if found or len(minutes) > LISTED:
        return found
    return f"at {_listed(f':{minute:02}' for minute in minutes)} every hour"


def _step(values: Sequence[int], whole: int) -> int | None:
    """Return the step of values that are evenly spread over the whole, from the first one on."""
    if len(values) < 2:
        return None
    step = values[1] - values[0]
    is_even = len(values) * step == whole and all(value == values[0] + step * at for at, value in enumerate(values))
    return step if is_even else None


def _dates(calendar: CronSim) -> str | None:
    all_days, all_weekdays = len(calendar.days) >= 31, {0, 1, 2, 3, 4, 5, 6} <= set(calendar.weekdays)
    if LISTED < len(calendar.months) < 12:
        return None
    months = "" if len(calendar.months) == 12 else _listed(MONTHS[month - 1] for month in sorted(calendar.months))
    is_every_day = (all_days and all_weekdays) if calendar.day_and else (all_days or all_weekdays)
    if is_every_day:
        return f"every day in {months}" if months else _EVERY_DAY
    if not all_days and not all_weekdays:
        return None
    dates = _weekdays(calendar.weekdays) if all_days else _days_of_month(calendar.days)
    if dates is None:
        return None
    if months:
        return f"{dates} in {months}" if all_days else f"{dates} of {months}"
    return dates if all_days else f"{dates} of every month"


def _weekdays(weekdays: Collection[object]) -> str | None:
    if not all(isinstance(day, int) for day in weekdays):  # the second Friday, the last Monday
        return None
    numbers = sorted({int(str(day)) % 7 for day in weekdays}, key=lambda day: (day - 1) % 7)  # from Monday on
    if len(numbers) == 1:
        return f"on {DAYS[numbers[0]]}s"
    places = [(day - 1) % 7 for day in numbers]
    if len(numbers) > 2 and places[-1] - places[0] == len(places) - 1:
        return f"{DAYS[numbers[0]]} to {DAYS[numbers[-1]]}"
    return f"on {_listed(f'{DAYS[day]}s' for day in numbers)}"


def _days_of_month(days: Collection[int]) -> str | None:
    if set(days) == {CronSim.LAST}:
        return "on the last day"
    numbers = sorted(days)
    if numbers[0] < 1 or len(numbers) > LISTED:
        return None
    return f"on the {_listed(map(_ordinal, numbers))}"


def _ordinal(number: int) -> str:
    ending = "th" if 11 <= number <= 13 else {1: "st", 2: "nd", 3: "rd"}.get(number % 10, "th")
    return f"{number}{ending}"


def _listed(words: Iterable[str]) -> str:
    *others, last = words
    return f"{', '.join(others)} and {last}" if others else last
