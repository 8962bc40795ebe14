"""The schedule never goes back, never repeats, and is what an independent, minute-by-minute reckoning says."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest
from cronsim import CronSim
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from spyweb.model import At, Cron, Every, JobId, JobSpec, Misfire, MisfirePolicy, Never, Schedule
from spyweb.schedules.due import (
    after_edit,
    decide_due,
    first_cursor,
    jittered,
    last_due,
    missed_until,
    next_due,
    parse_schedule_text,
    schedule_text,
)

MINUTE = timedelta(minutes=1)
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)

# Moments around which clocks move: (zone, moment in UTC).
TRANSITIONS = [
    ("Europe/Berlin", "2026-03-29T01:00"),
    ("Europe/Berlin", "2026-10-25T01:00"),
    ("America/New_York", "2026-03-08T07:00"),
    ("America/New_York", "2026-11-01T06:00"),
    ("Australia/Lord_Howe", "2026-04-04T15:00"),
    ("Australia/Lord_Howe", "2026-10-03T15:30"),
    ("Asia/Beirut", "2026-03-28T22:00"),
    ("Asia/Beirut", "2026-10-24T21:00"),
    ("America/St_Johns", "2010-11-07T02:31"),
    ("America/St_Johns", "2010-03-14T03:31"),
    ("Antarctica/Troll", "2026-03-29T01:00"),
    ("Antarctica/Troll", "2026-10-25T01:00"),
    ("Pacific/Apia", "2011-12-30T10:00"),
    ("America/Havana", "2026-11-01T05:00"),
    ("Asia/Gaza", "2024-10-25T23:00"),
    ("UTC", "2026-01-01T00:00"),
]


@dataclass(frozen=True)
class Rule:
    minutes: frozenset[int]
    hours: frozenset[int]
    weekdays: frozenset[int]  # 0 = Sunday
    by_the_clock: bool  # minute or hour begins with a star
    text: str

    def shows(self, local: datetime) -> bool:
        on_this_day = local.isoweekday() % 7 in self.weekdays
        return on_this_day and local.minute in self.minutes and local.hour in self.hours


def field(limit: int) -> st.SearchStrategy[tuple[str, frozenset[int]]]:
    stars = st.integers(1, limit - 1).map(lambda step: (f"*/{step}", frozenset(range(0, limit, step))))
    lists = st.frozensets(st.integers(0, limit - 1), min_size=1, max_size=4).map(
        lambda values: (",".join(map(str, sorted(values))), values)
    )
    return st.one_of(st.just(("*", frozenset(range(limit)))), stars, lists)


EVERY_DAY = frozenset(range(7))
WEEKDAYS = st.frozensets(st.integers(0, 6), min_size=1, max_size=4).map(
    lambda days: (",".join(map(str, sorted(days))), days)
)


@st.composite
def rules(draw: st.DrawFn) -> Rule:
    minute, minutes = draw(field(60))
    near_midnight_and_night = st.frozensets(st.sampled_from([0, 1, 2, 3, 22, 23]), min_size=1, max_size=3)
    night = near_midnight_and_night.map(lambda hours: (",".join(map(str, sorted(hours))), hours))
    hour, hours = draw(st.one_of(field(24), night))
    weekday, weekdays = draw(st.one_of(st.just(("*", EVERY_DAY)), WEEKDAYS))
    return Rule(
        minutes=minutes,
        hours=hours,
        weekdays=weekdays,
        by_the_clock=minute.startswith("*") or hour.startswith("*"),
        text=f"{minute} {hour} * * {weekday}",
    )


def oracle(rule: Rule, zone: str, start: datetime, end: datetime) -> list[datetime]:
    """Walk real minutes, looking at the clock on the wall.

    A frequent rule goes by what the clock shows.  A fixed one remembers the latest local time that it has seen: what
    the clock skips on the way to a later one is due at once, and what it shows again is not.
    """
    found = []
    moment = start - timedelta(hours=48)
    latest = local_at(moment, zone)
    while moment < end:
        moment += MINUTE
        local = local_at(moment, zone)
        if rule.by_the_clock:
            due = rule.shows(local)
        else:
            due = False
            while latest < local:
                latest += MINUTE
                due = due or rule.shows(latest)
        if due and start < moment <= end:
            found.append(moment)
    return found


def local_at(moment: datetime, zone: str) -> datetime:
    return moment.astimezone(ZoneInfo(zone)).replace(tzinfo=None)


def ms(moment: datetime) -> int:
    return (moment - EPOCH) // timedelta(milliseconds=1)


def walk(schedule: Schedule, start_ms: int, end_ms: int) -> list[int]:
    found: list[int] = []
    due_ms = next_due(schedule, start_ms)
    while due_ms is not None and due_ms <= end_ms:
        assert due_ms > (found[-1] if found else start_ms)
        found.append(due_ms)
        due_ms = next_due(schedule, due_ms)
    return found


@pytest.mark.slow
@given(rules(), st.sampled_from(TRANSITIONS), st.integers(-600, 600))
def test_a_cron_over_a_change_of_clocks_is_what_a_minute_by_minute_walk_finds(
    rule: Rule, transition: tuple[str, str], shift: int
) -> None:
    zone, text = transition
    start = datetime.fromisoformat(text).replace(tzinfo=UTC) + timedelta(minutes=shift, hours=-12)
    end = start + timedelta(hours=30)
    schedule = Cron(expression=rule.text, timezone=zone)

    found = walk(schedule, ms(start), ms(end))

    assert found == [ms(moment) for moment in oracle(rule, zone, start, end)]
    missed = missed_until(schedule, ms(start), ms(end))
    assert (missed.first_ms, missed.last_ms, missed.count) == (found[0], found[-1], len(found)) if missed else not found


DAYS = st.sampled_from(
    ["* * *", "1 * *", "*/3 * MON", "13 * FRI", "L * *", "* 2,6 *", "* * 1-5", "* * 0#2", "29 2 *", "LW * *"]
)


@pytest.mark.slow
@given(field(60), field(24), DAYS, st.integers(1_500_000_000, 1_900_000_000))
def test_dates_are_those_of_cronsim_itself(
    minute: tuple[str, frozenset[int]], hour: tuple[str, frozenset[int]], days: str, start_s: int
) -> None:
    expression = f"{minute[0]} {hour[0]} {days}"
    theirs = CronSim(expression, EPOCH + timedelta(seconds=start_s))
    cursor_ms = start_s * 1_000
    for _ in range(5):
        due_ms = next_due(Cron(expression=expression, timezone="UTC"), cursor_ms)
        assert due_ms == ms(next(theirs))
        cursor_ms = due_ms


SECONDS = st.frozensets(st.integers(0, 59), min_size=1, max_size=3)
ZONES = st.sampled_from(sorted({zone for zone, _ in TRANSITIONS}))
CRONS = st.builds(
    lambda second, rule, zone: Cron(expression=f"{','.join(map(str, sorted(second)))} {rule.text}", timezone=zone),
    SECONDS,
    rules(),
    ZONES,
)
NOWS = st.integers(1_600_000_000_000, 1_900_000_000_000)
SCHEDULES: st.SearchStrategy[Schedule] = st.one_of(
    st.builds(lambda period: Every(period_ms=period), st.integers(10, 10**9)),
    CRONS,
    st.builds(lambda at: At(at_ms=at), NOWS),
    st.just(Never()),
)


def job(schedule: Schedule, misfire: Misfire | None = None, jitter_ms: int = 0) -> JobSpec:
    return JobSpec(
        id=JobId("a"),
        name="a",
        path="jobs/a.lua",
        folder="jobs/a",
        schedule=schedule,
        jitter_ms=jitter_ms,
        misfire=misfire or Misfire(),
    )


@given(SCHEDULES)
def test_a_schedule_written_down_reads_back_as_itself(schedule: Schedule) -> None:
    assert parse_schedule_text(schedule_text(schedule)) == schedule


@pytest.mark.slow
@given(SCHEDULES, NOWS, st.integers(0, 10**9))
def test_the_first_and_the_last_due_time_of_a_span_agree(schedule: Schedule, start_ms: int, length_ms: int) -> None:
    first, last = next_due(schedule, start_ms), last_due(schedule, start_ms, start_ms + length_ms)

    assert (last is None) == (first is None or first > start_ms + length_ms)
    if first is not None and last is not None:
        assert start_ms < first <= last <= start_ms + length_ms
        following = next_due(schedule, last)
        assert following is None or following > start_ms + length_ms


@pytest.mark.slow
@given(SCHEDULES, NOWS, st.integers(0, 10**8))
def test_jitter_stays_between_its_due_time_and_the_next(schedule: Schedule, now_ms: int, jitter_ms: int) -> None:
    spec = job(schedule, jitter_ms=jitter_ms)
    due_ms = next_due(schedule, now_ms)
    if due_ms is not None:
        following = next_due(schedule, due_ms)
        assert due_ms <= jittered(spec, due_ms) <= due_ms + jitter_ms
        assert following is None or jittered(spec, due_ms) < following


MISFIRES = st.builds(
    lambda policy, grace, limit: Misfire(policy=policy, grace_ms=grace, limit=limit),
    st.sampled_from(list(MisfirePolicy)),
    st.none() | st.integers(0, 10**7),
    st.integers(1, 20),
)


@pytest.mark.slow
@given(
    st.integers(1_000, 600_000).map(lambda period: Every(period_ms=period)) | CRONS,
    MISFIRES,
    st.integers(0, 30_000),
    NOWS,
    st.lists(st.integers(0, 3_600_000), min_size=1, max_size=6),
)
def test_every_due_time_runs_once_or_is_recorded_once_and_none_is_lost(
    schedule: Schedule, misfire: Misfire, jitter_ms: int, start_ms: int, sleeps: list[int]
) -> None:
    spec = job(schedule, misfire, jitter_ms)
    runs: list[int] = []
    cursor_ms, now_ms, recorded = start_ms, start_ms, 0
    for sleep in sleeps:
        now_ms += sleep
        decision = decide_due(spec, cursor_ms, now_ms)
        assert decision.cursor_ms >= cursor_ms
        assert len(decision.missed) <= 1
        runs += decision.runs
        recorded += sum(missed.count for missed in decision.missed)
        for missed in decision.missed:
            assert cursor_ms < missed.first_ms <= missed.last_ms < min([*decision.runs, decision.cursor_ms + 1])
        cursor_ms = decision.cursor_ms

    assert runs == sorted(set(runs))
    assert all(jittered(spec, due_ms) <= now_ms for due_ms in runs)
    dealt_with = missed_until(schedule, start_ms, cursor_ms)
    assert len(runs) + recorded == (dealt_with.count if dealt_with else 0)
    waiting = next_due(schedule, cursor_ms)
    assert waiting is None or jittered(spec, waiting) > now_ms


@given(SCHEDULES, SCHEDULES, NOWS, st.integers(-(10**9), 10**9))
def test_after_an_edit_nothing_is_due_before_now(old: Schedule, new: Schedule, now_ms: int, shift: int) -> None:
    due_ms = next_due(new, after_edit(old, new, now_ms + shift, now_ms)) if old != new else None

    assert due_ms is None or due_ms >= now_ms


@given(SCHEDULES, NOWS, st.integers(0, 20_000))
def test_a_new_job_is_never_due_before_now(schedule: Schedule, now_ms: int, spread_ms: int) -> None:
    spec = replace(job(schedule), id=JobId(str(spread_ms)))
    due_ms = next_due(schedule, first_cursor(spec, now_ms, spread_ms))

    assert due_ms is None or due_ms >= now_ms
