"""Whoever goes by the words of a cron expression comes to its due times, and to no others."""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import UTC, date, datetime, timedelta
from itertools import islice, takewhile, zip_longest

from hypothesis import assume, example, given
from hypothesis import strategies as st

from spyweb.schedules.cron import cron_after
from spyweb.schedules.words import DAYS, MONTHS, cron_words

DAY_S = 86_400
DAYS_AHEAD = 9 * 366


def field(low: int, high: int) -> st.SearchStrategy[str]:
    number = st.integers(low, high)
    span = st.tuples(number, number).map(lambda ends: f"{min(ends)}-{max(ends)}")
    listed = st.lists(number, min_size=1, max_size=4, unique=True).map(lambda many: ",".join(map(str, many)))
    step = st.sampled_from([2, 3, 4, 5, 6, 10, 12, 15, 30]).map(lambda step: f"*/{step}")
    return st.one_of(st.just("*"), number.map(str), span, listed, step)


EXPRESSIONS = st.one_of(
    st.tuples(field(0, 59), field(0, 23), field(1, 31), field(1, 12), field(0, 7)).map(" ".join),
    st.tuples(field(0, 59), field(0, 23), st.just("*"), st.just("*"), st.sampled_from(["*", "1-5", "0", "6,0"])).map(
        " ".join
    ),
    st.tuples(field(0, 59), st.just("* * * * *")).map(" ".join),
    st.tuples(st.just("0 0"), st.sampled_from(["L", "1", "15,31"]), field(1, 12), st.just("*")).map(" ".join),
)


def said_times(words: str) -> set[int]:
    """Return the seconds of a day that the words name."""
    first, last = 0, DAY_S
    if span := re.search(r" from (\d\d):(\d\d) to (\d\d):(\d\d)", words):
        first = (int(span[1]) * 60 + int(span[2])) * 60
        last = (int(span[3]) * 60 + int(span[4])) * 60 + 1
    if step := re.match(r"every (?:(\d+) )?(second|minute|hour)s?\b", words):
        length = int(step[1] or 1) * {"second": 1, "minute": 60, "hour": 3600}[step[2]]
        return {at for at in range(0, DAY_S, length) if first <= at < last}
    if "every hour" in words:
        minutes = [int(minute) for minute in re.findall(r"(?<!\d):(\d\d)", words.partition(" every hour")[0])]
        return {(hour * 60 + minute) * 60 for hour in range(24) for minute in minutes} & set(range(first, last))
    return {(int(hour) * 60 + int(minute)) * 60 for hour, minute in re.findall(r"(\d\d):(\d\d)", words)}


def says_day(words: str, day: date) -> bool:
    weekday = DAYS[(day.weekday() + 1) % 7]
    months = [month for month in MONTHS if month in words]
    if months and MONTHS[day.month - 1] not in months:
        return False
    if span := re.search(r"(\w+day) to (\w+day)", words):
        from_monday = [*DAYS[1:], DAYS[0]]
        first, last = from_monday.index(span[1]), from_monday.index(span[2])
        return first <= from_monday.index(weekday) <= last
    if any(f"{name}s" in words for name in DAYS):
        return f"{weekday}s" in words
    if "last day" in words:
        return (day + timedelta(days=1)).day == 1
    numbers = [int(number) for number in re.findall(r"(\d+)(?:st|nd|rd|th)\b", words)]
    return not numbers or day.day in numbers


def said(words: str, start: date) -> Iterator[int]:
    times = sorted(said_times(words))
    for ahead in range(DAYS_AHEAD):
        day = start + timedelta(days=ahead)
        if says_day(words, day):
            midnight = int(datetime(day.year, day.month, day.day, tzinfo=UTC).timestamp())
            yield from ((midnight + second) * 1000 for second in times)


def due(expression: str, after_ms: int) -> Iterator[int]:
    moment: int | None = after_ms
    while moment is not None and (moment := cron_after(expression, "UTC", moment)) is not None:
        yield moment


def words_or_none(expression: str) -> str | None:
    try:
        return cron_words(expression)
    except ValueError:  # no such day
        return None


@given(EXPRESSIONS)
@example("0 0 19 */3 0-6")
def test_the_words_of_an_expression_name_its_due_times_and_no_others(expression: str) -> None:
    words = words_or_none(expression)
    assume(words is not None)
    assert words is not None
    start = date(2026, 1, 1)
    begin_ms = int(datetime(2026, 1, 1, tzinfo=UTC).timestamp()) * 1000
    count = min(400, 3 * len(said_times(words)) + 40)
    end_ms = begin_ms + DAYS_AHEAD * DAY_S * 1000
    found = list(takewhile(lambda due_ms: due_ms < end_ms, islice(due(expression, begin_ms - 1), count)))
    in_words = list(islice(said(words, start), count))
    apart = next((pair for pair in zip_longest(found, in_words) if pair[0] != pair[1]), None)
    assert apart is None, words  # not the lists: pytest would take a minute to show how they differ
