from __future__ import annotations

from collections.abc import Iterator
from itertools import count, islice
from typing import Literal

import pytest
from msgspec import structs
from msgspec.structs import replace

from spyweb.cooperative import run_at_once
from spyweb.model import (
    At,
    Cron,
    Cursor,
    Every,
    JobId,
    JobSpec,
    Misfire,
    MisfirePolicy,
    Never,
    Outcome,
    Pings,
    Schedule,
    Start,
)
from spyweb.schedules.due import (
    AWAY,
    REPEATED_MS,
    UNARMED,
    DueDecision,
    Missed,
    activate,
    after_edit,
    deactivated,
    decide_due,
    earliest,
    expected_ping,
    first_cursor,
    first_due_after,
    jittered,
    missed_until,
    next_due,
    parse_schedule_text,
    schedule_text,
    upcoming,
)
from spyweb.settings.units import LONGEST_MS
from spyweb.words import describe_moment
from tests.fakes.harness import make_spec

NOW = 1_790_000_000_000
MINUTE = 60_000
EVERY_MINUTE = Every(period_ms=MINUTE)
EACH_MINUTE = Cron(expression="* * * * *", timezone="UTC")
MINUTE_MARK = NOW // MINUTE * MINUTE


def job(
    schedule: Schedule = EVERY_MINUTE, *, name: str = "prices", jitter_ms: int = 0, misfire: Misfire | None = None
) -> JobSpec:
    return JobSpec(
        id=JobId(name),
        name=name,
        path=f"jobs/{name}.lua",
        folder=f"jobs/{name}",
        schedule=schedule,
        jitter_ms=jitter_ms,
        misfire=misfire or Misfire(),
    )


@pytest.mark.parametrize(
    ("schedule", "cursor", "missed"),
    [
        (EVERY_MINUTE, NOW, None),
        (EVERY_MINUTE, NOW - MINUTE + 1, None),
        (EVERY_MINUTE, NOW - MINUTE, Missed(first_ms=NOW, last_ms=NOW, count=1)),
        (EVERY_MINUTE, NOW - 10 * MINUTE - 5, Missed(first_ms=NOW - 9 * MINUTE - 5, last_ms=NOW - 5, count=10)),
        (
            EACH_MINUTE,
            MINUTE_MARK - 3 * MINUTE,
            Missed(first_ms=MINUTE_MARK - 2 * MINUTE, last_ms=MINUTE_MARK, count=3),
        ),
        (At(at_ms=NOW - 5), NOW - 9, Missed(first_ms=NOW - 5, last_ms=NOW - 5, count=1)),
        (At(at_ms=NOW - 5), NOW - 5, None),
        (Never(), 0, None),
    ],
)
def test_a_missed_range_holds_every_due_time_up_to_now(schedule: Schedule, cursor: int, missed: Missed | None) -> None:
    assert missed_until(schedule, cursor, NOW) == missed


def test_a_stretch_of_centuries_still_ends_and_names_its_first_and_last() -> None:
    missed = missed_until(EACH_MINUTE, 0, MINUTE_MARK)
    assert missed is not None
    assert (missed.first_ms, missed.last_ms) == (MINUTE, MINUTE_MARK)
    assert missed.count > 5 * 365 * 1_440


def test_upcoming_lists_the_next_due_times_and_no_more_than_there_are() -> None:
    assert list(islice(upcoming(job(), NOW), 3)) == [NOW + MINUTE, NOW + 2 * MINUTE, NOW + 3 * MINUTE]
    assert list(upcoming(job(At(at_ms=NOW + 5)), NOW)) == [NOW + 5]
    assert list(upcoming(job(Never()), NOW)) == []


def test_upcoming_ends_where_the_calendar_does() -> None:
    found = list(upcoming(job(Every(period_ms=LONGEST_MS)), NOW))
    assert len(found) == 79
    assert describe_moment(found[-1], "Pacific/Kiritimati")


def test_of_several_jobs_the_earliest_due_times_come_first_in_short_steps() -> None:
    asked: list[str] = []

    def times(name: str, period: int) -> Iterator[int]:
        for number in count(1):
            asked.append(name)
            yield number * period

    due = [(JobId(name), times(name, period)) for name, period in (("slow", 100), ("quick", 30), ("never", 10**9))]
    steps = earliest([*due, (JobId("over"), iter([45]))], 5)

    assert len(list(steps)) == 4 + 5
    assert run_at_once(earliest([(JobId("a"), iter([30, 60])), (JobId("b"), iter([45, 60]))], 5)) == [
        (30, "a"), (45, "b"), (60, "a"), (60, "b"),
    ]  # fmt: skip
    assert (asked.count("never"), asked.count("slow")) == (1, 1)


def test_a_new_job_is_due_now_and_at_most_its_share_of_the_spread_later() -> None:
    firsts = {next_due(EVERY_MINUTE, first_cursor(job(name=f"j{n}"), NOW)) for n in range(300)}
    assert all(first is not None and NOW <= first < NOW + 10_000 for first in firsts)
    assert len(firsts) > 250


def test_the_spread_stays_within_a_short_period() -> None:
    for n in range(100):
        assert NOW <= first_cursor(job(Every(period_ms=50), name=f"j{n}"), NOW) + 50 < NOW + 50


def test_a_job_that_starts_with_its_interval_is_due_one_period_later() -> None:
    spec = replace(job(), start=Start.INTERVAL)
    assert next_due(spec.schedule, first_cursor(spec, NOW, 0)) == NOW + MINUTE


@pytest.mark.parametrize("schedule", [EACH_MINUTE, At(at_ms=MINUTE_MARK), At(at_ms=MINUTE_MARK + 5)])
def test_a_new_cron_or_at_may_be_due_this_very_moment_but_not_before(schedule: Schedule) -> None:
    due = next_due(schedule, first_cursor(job(schedule), MINUTE_MARK))
    assert due is not None
    assert due >= MINUTE_MARK


@pytest.mark.parametrize(
    ("new_period", "cursor", "due"),
    [
        (2 * MINUTE, NOW - MINUTE, NOW + MINUTE),  # longer: from the cursor
        (MINUTE // 2, NOW - MINUTE, NOW),  # shorter and already over: now, not in the past
        (MINUTE // 2, NOW - 5, NOW - 5 + MINUTE // 2),
        (MINUTE, NOW + 3_600_000, NOW + MINUTE),  # the clock was set back meanwhile
    ],
)
def test_an_edited_every_counts_from_the_cursor_and_is_due_now_at_the_earliest(
    new_period: int, cursor: int, due: int
) -> None:
    new = Every(period_ms=new_period)
    assert next_due(new, after_edit(Every(period_ms=7), new, cursor, NOW)) == due


@pytest.mark.parametrize(
    ("old", "cursor", "now"),
    [
        (EVERY_MINUTE, NOW - 99 * MINUTE, NOW),
        (Cron(expression="*/2 * * * *", timezone="UTC"), MINUTE_MARK, MINUTE_MARK),
    ],
)
def test_an_edited_cron_begins_now_and_neither_makes_up_for_times_it_never_had_nor_runs_one_again(
    old: Schedule, cursor: int, now: int
) -> None:
    assert next_due(EACH_MINUTE, after_edit(old, EACH_MINUTE, cursor, now)) == MINUTE_MARK + MINUTE


def test_jitter_is_the_same_for_the_same_due_time_and_spreads_over_others() -> None:
    spec = job(jitter_ms=30_000)
    starts = [jittered(spec, NOW + n * MINUTE) - (NOW + n * MINUTE) for n in range(200)]
    assert starts == [jittered(spec, NOW + n * MINUTE) - (NOW + n * MINUTE) for n in range(200)]
    assert min(starts) < 1_500
    assert 28_500 < max(starts) <= 30_000


@pytest.mark.parametrize("text", ["", "often", "every", "every x", "at", "pings", "pings never", "pings pings every 1"])
def test_what_is_no_schedule_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"not a schedule|invalid literal"):
        parse_schedule_text(text)


ONCE, SKIP, ALL = (Misfire(policy=policy) for policy in (MisfirePolicy.ONCE, MisfirePolicy.SKIP, MisfirePolicy.ALL))
REPLACED, TOO_LATE, PASSED = (
    "a later due time ran in its place",
    "later than its misfire_grace",
    "passed while nothing could run",
)


@pytest.mark.parametrize(
    ("misfire", "periods", "late_ms", "runs", "missed"),
    [
        *((misfire, 1, 20, 1, 0) for misfire in (ONCE, SKIP, ALL)),
        (ONCE, 10, 0, 1, (9, REPLACED)),
        (ONCE, 1, 59_000, 1, 0),  # however late
        (replace(ONCE, grace_ms=5_000), 3, 5_001, 0, (3, TOO_LATE)),
        (ALL, 4, 0, 4, 0),
        (replace(ALL, limit=3), 10, 0, 3, (7, None)),
        (replace(ALL, grace_ms=2 * MINUTE), 10, 0, 3, (7, None)),
    ],
)
def test_what_was_due_several_times_runs_or_is_one_stretch_on_record_as_misfire_says(
    misfire: Misfire, periods: int, late_ms: int, runs: int, missed: tuple[int, str | None] | Literal[0]
) -> None:
    """The job was due `periods` times, the last of them `late_ms` ago; the newest run."""
    last_ms = NOW - late_ms
    decision = decide_due(job(misfire=misfire), last_ms - periods * MINUTE, NOW)

    assert decision.cursor_ms == last_ms
    assert decision.runs == [last_ms - each * MINUTE for each in reversed(range(runs))]
    found = [(each.first_ms, each.last_ms, each.count) for each in decision.missed]
    if missed:
        count, reason = missed
        assert found == [(last_ms - (periods - 1) * MINUTE, last_ms - runs * MINUTE, count)]
        assert reason in (None, decision.missed[0].reason)
    else:
        assert found == []


@pytest.mark.parametrize(
    ("spec", "cursor_ms", "runs"),
    [
        (job(), NOW - 5, []),
        (job(), NOW + 3_600_000, []),  # ahead of the clock
        (job(At(at_ms=NOW - 3_600_000)), NOW - 7_200_000, [NOW - 3_600_000]),
    ],
)
def test_what_is_not_due_waits_and_an_at_that_passed_runs_late(spec: JobSpec, cursor_ms: int, runs: list[int]) -> None:
    decision = decide_due(spec, cursor_ms, NOW)
    assert (decision.cursor_ms, [*decision.runs], [*decision.missed]) == (runs[0] if runs else cursor_ms, runs, [])


@pytest.mark.parametrize("late_ms", [1, 20_000])
def test_skip_runs_nothing_that_was_due_while_no_daemon_kept_the_schedule(late_ms: int) -> None:
    decision = decide_due(job(misfire=SKIP), NOW - late_ms - 3 * MINUTE, NOW, kept_since_ms=NOW)
    (missed,) = decision.missed
    assert (decision.runs, missed.count, missed.last_ms, missed.reason) == ([], 3, NOW - late_ms, PASSED)


DAILY = job(Every(period_ms=86_400_000), misfire=SKIP)
HELD_BACK = job(jitter_ms=50_000, misfire=SKIP)
START = jittered(HELD_BACK, NOW)
WITH_GRACE = job(misfire=replace(SKIP, grace_ms=20_000))


@pytest.mark.parametrize(
    ("spec", "due_ms", "now_ms", "kept_since_ms", "runs"),
    [
        (DAILY, NOW - 5_000, NOW, NOW - 5_000, True),  # a daemon is only a little late
        (DAILY, NOW - 5_001, NOW, NOW - 9_000, False),
        (HELD_BACK, NOW, START, START, True),  # by jitter, until the daemon was there
        (HELD_BACK, NOW, START + 1, START + 1, False),
        (WITH_GRACE, NOW - 20_000, NOW, NOW, True),
        (WITH_GRACE, NOW - 20_001, NOW, NOW, False),
    ],
)
def test_skip_runs_what_is_no_later_than_a_daemon_ever_is_or_than_its_grace(
    spec: JobSpec, due_ms: int, now_ms: int, kept_since_ms: int, runs: bool
) -> None:
    assert isinstance(spec.schedule, Every)
    decision = decide_due(spec, due_ms - spec.schedule.period_ms, now_ms, kept_since_ms=kept_since_ms)
    assert decision.runs == [due_ms] * runs


def test_a_due_time_that_jitter_holds_back_is_left_for_later() -> None:
    spec = job(jitter_ms=50_000)
    start = jittered(spec, NOW)
    assert start > NOW

    early = decide_due(spec, NOW - 2 * MINUTE, start - 1)
    assert (early.cursor_ms, early.runs) == (NOW - MINUTE, [NOW - MINUTE])
    assert decide_due(spec, early.cursor_ms, start) == DueDecision(cursor_ms=NOW, runs=[NOW], missed=[])


def test_jitter_does_not_use_up_the_grace() -> None:
    spec = job(jitter_ms=50_000, misfire=Misfire(grace_ms=10))
    assert decide_due(spec, NOW - MINUTE, jittered(spec, NOW)).runs == [NOW]


def test_a_ping_is_expected_from_the_last_one_on() -> None:
    pings = Pings(schedule=EVERY_MINUTE)
    assert expected_ping(pings, UNARMED) is None
    assert expected_ping(pings, NOW) == NOW + MINUTE
    assert expected_ping(Pings(schedule=EACH_MINUTE), MINUTE_MARK + 1) == MINUTE_MARK + MINUTE
    assert next_due(pings, NOW) is None, "nothing is started"
    assert parse_schedule_text(schedule_text(pings)) == pings


@pytest.mark.parametrize(
    ("schedule", "cursor_ms", "moment_ms", "expected"),
    [
        (Every(period_ms=100), 1_030, 400, 430),
        (Every(period_ms=100), 1_030, 430, 530),
        (Every(period_ms=100), 1_030, 9_999, 10_030),
        (EACH_MINUTE, 999_999, 60_000, 120_000),
        (At(at_ms=500), 999, 400, 500),
        (At(at_ms=500), 0, 500, None),
        (Never(), 0, 0, None),
    ],
)
def test_the_first_due_time_after_a_moment_may_be_one_that_was_dealt_with(
    schedule: Schedule, cursor_ms: int, moment_ms: int, expected: int | None
) -> None:
    assert first_due_after(schedule, cursor_ms, moment_ms) == expected


NEW_YEAR = 1_767_225_600_000


def cursor(due_ms: int = NEW_YEAR, **fields: object) -> Cursor:
    spec = make_spec()
    known = Cursor(
        job=JobId("prices"),
        due_ms=due_ms,
        schedule=schedule_text(spec.schedule),
        active_since_ms=NEW_YEAR - 60 * MINUTE,
    )
    return structs.replace(known, **fields)


def test_an_at_in_the_past_is_recorded() -> None:
    seen = activate(make_spec(schedule=At(at_ms=NEW_YEAR - 5)), None, NEW_YEAR, 0)
    assert [(skipped.outcome, skipped.count) for skipped in seen.skipped] == [(Outcome.MISSED, 1)]
    assert seen.cursor.due_ms == NEW_YEAR - 5


def test_a_restart_leaves_the_cursor_alone() -> None:
    known = cursor(NEW_YEAR - 10 * MINUTE)
    assert activate(make_spec(), known, NEW_YEAR, 0).cursor == known


@pytest.mark.parametrize(
    ("schedule", "ahead", "is_taken_back"),
    [
        (EVERY_MINUTE, 1, True),
        (EACH_MINUTE, REPEATED_MS, False),
        (EACH_MINUTE, REPEATED_MS + 1, True),
        (At(at_ms=NEW_YEAR + 60 * MINUTE), 60 * MINUTE, False),
    ],
)
def test_a_cursor_in_the_future_is_taken_back_to_now_unless_its_times_have_names_and_are_near(
    schedule: Schedule, ahead: int, is_taken_back: bool
) -> None:
    known = cursor(NEW_YEAR + ahead, schedule=schedule_text(schedule))
    assert activate(make_spec(schedule=schedule), known, NEW_YEAR, 0).cursor.due_ms == NEW_YEAR + ahead * (
        not is_taken_back
    )


def test_a_job_that_was_away_while_the_clock_was_set_back_goes_on_from_now() -> None:
    back = activate(make_spec(), cursor(NEW_YEAR + 60 * MINUTE, idle_since_ms=NEW_YEAR + 61 * MINUTE), NEW_YEAR, 0)
    assert (back.cursor.due_ms, back.cursor.idle_since_ms, back.skipped) == (NEW_YEAR, None, ())


def test_a_disabled_job_is_idle_from_the_first_time_it_is_seen_so() -> None:
    idle = activate(make_spec(enabled=False), cursor(), NEW_YEAR, 0).cursor
    assert idle.idle_since_ms == NEW_YEAR
    assert activate(make_spec(enabled=False), idle, NEW_YEAR + MINUTE, 0).cursor == idle


def test_the_due_times_of_an_absence_are_one_paused_stretch() -> None:
    back = activate(make_spec(), cursor(idle_since_ms=NEW_YEAR), NEW_YEAR + 5 * MINUTE + 1, 0)
    assert [(s.outcome, s.first_due_ms, s.last_due_ms, s.count) for s in back.skipped] == [
        (Outcome.PAUSED, NEW_YEAR + MINUTE, NEW_YEAR + 5 * MINUTE, 5)
    ]
    assert (back.cursor.due_ms, back.cursor.idle_since_ms) == (NEW_YEAR + 5 * MINUTE, None)


def test_the_due_times_of_an_absence_with_an_edit_are_on_record_too() -> None:
    edited = make_spec(schedule=Every(period_ms=2 * MINUTE))
    back = activate(edited, cursor(idle_since_ms=NEW_YEAR), NEW_YEAR + 10 * MINUTE, 0)
    assert [(s.outcome, s.first_due_ms, s.last_due_ms, s.count, s.reason) for s in back.skipped] == [
        (Outcome.PAUSED, NEW_YEAR + MINUTE, NEW_YEAR + 9 * MINUTE, 9, AWAY),
        (Outcome.PAUSED, NEW_YEAR + 10 * MINUTE, NEW_YEAR + 10 * MINUTE, 1, AWAY),
    ]
    assert (back.cursor.due_ms, back.cursor.idle_since_ms) == (NEW_YEAR + 10 * MINUTE, None)


def test_an_edit_while_nothing_ran_records_what_the_earlier_schedule_missed() -> None:
    edited = make_spec(schedule=Cron(expression="0 * * * *", timezone="UTC"))
    found = activate(edited, cursor(), NEW_YEAR + 3 * MINUTE + 1, 0)
    assert [(s.outcome, s.count) for s in found.skipped] == [(Outcome.MISSED, 3)]
    assert next_due(edited.schedule, found.cursor.due_ms) == NEW_YEAR + 60 * MINUTE


@pytest.mark.parametrize("idle_since_ms", [None, NEW_YEAR])
def test_an_edit_to_an_at_that_is_past_is_recorded(idle_since_ms: int | None) -> None:
    """By the time that somebody has saved the file."""
    edited = make_spec(schedule=At(at_ms=NEW_YEAR + 1_000))
    found = activate(edited, cursor(idle_since_ms=idle_since_ms), NEW_YEAR + 1_001, 0)
    assert [(s.outcome, s.first_due_ms) for s in found.skipped] == [(Outcome.MISSED, NEW_YEAR + 1_000)]
    assert next_due(edited.schedule, found.cursor.due_ms) is None
    assert activate(edited, found.cursor, NEW_YEAR + 2 * MINUTE, 0).skipped == ()


@pytest.mark.parametrize("idle_since_ms", [None, NEW_YEAR])
@pytest.mark.parametrize("unknown", ["cron Nowhere/Gone 0 9 * * *", "cron UTC 0 9", "every day", ""])
def test_an_edit_of_a_schedule_that_nobody_can_read_any_more_begins_now(
    unknown: str, idle_since_ms: int | None
) -> None:
    """A time zone that this machine's data does not have, say."""
    known = cursor(schedule=unknown, idle_since_ms=idle_since_ms)
    found = activate(make_spec(schedule=EACH_MINUTE), known, NEW_YEAR + MINUTE + 1, 0)
    assert (found.cursor.due_ms, found.skipped) == (NEW_YEAR + MINUTE, ())


def test_no_due_time_is_accounted_for_under_both_schedules() -> None:
    edited = make_spec(schedule=Every(period_ms=2 * MINUTE))
    found = activate(edited, cursor(), NEW_YEAR + 3 * MINUTE, 0)
    assert next_due(edited.schedule, found.cursor.due_ms) == NEW_YEAR + 3 * MINUTE
    assert [(s.first_due_ms, s.last_due_ms) for s in found.skipped] == [(NEW_YEAR + MINUTE, NEW_YEAR + 2 * MINUTE)]


def test_a_paused_job_stays_where_it_is() -> None:
    known = cursor(paused=True, idle_since_ms=NEW_YEAR)
    assert activate(make_spec(), known, NEW_YEAR + MINUTE, 0).cursor == known
    assert deactivated(known, NEW_YEAR + MINUTE) == known


def test_a_job_is_active_since_it_was_added_put_on_its_schedule_or_came_back() -> None:
    spec, later = make_spec(), NEW_YEAR + 5 * MINUTE
    assert activate(spec, None, NEW_YEAR, 0).cursor.active_since_ms == NEW_YEAR
    assert activate(spec, cursor(), later, 0).cursor.active_since_ms == NEW_YEAR - 60 * MINUTE, (
        "a restart changes nothing"
    )
    assert activate(spec, cursor(idle_since_ms=NEW_YEAR), later, 0).cursor.active_since_ms == later
    edited = make_spec(schedule=Every(period_ms=2 * MINUTE))
    assert activate(edited, cursor(), later, 0).cursor.active_since_ms == later
    assert activate(spec, cursor(active_since_ms=None), later, 0).cursor.active_since_ms == later


DAILY_PINGS = make_spec(schedule=Pings(schedule=Every(period_ms=86_400_000)))


def test_a_job_that_expects_pings_begins_unarmed_and_its_cursor_is_moved_by_pings_alone() -> None:
    first = activate(DAILY_PINGS, None, NEW_YEAR, 0)
    assert (first.cursor.due_ms, first.cursor.schedule, first.skipped) == (UNARMED, "pings every 86400000", ())
    armed = structs.replace(first.cursor, due_ms=NEW_YEAR)
    assert activate(DAILY_PINGS, armed, NEW_YEAR + 5 * 86_400_000, 0).cursor == armed


@pytest.mark.parametrize("due_ms", [UNARMED, NEW_YEAR])
def test_after_an_absence_a_ping_is_expected_from_then_on_if_one_has_ever_come(due_ms: int) -> None:
    known = cursor(due_ms=due_ms, schedule="pings every 86400000", idle_since_ms=NEW_YEAR)
    found = activate(DAILY_PINGS, known, NEW_YEAR + 5 * 86_400_000, 0)
    assert (found.cursor.due_ms, found.skipped) == (due_ms and NEW_YEAR + 5 * 86_400_000, ())


def test_an_edit_of_when_pings_come_forgets_none_and_a_job_that_ran_here_is_new() -> None:
    armed = cursor(schedule="pings cron UTC 0 3 * * *")
    assert activate(DAILY_PINGS, armed, NEW_YEAR + MINUTE, 0).cursor.due_ms == armed.due_ms
    assert activate(DAILY_PINGS, cursor(), NEW_YEAR, 0).cursor.due_ms == UNARMED


def test_a_clock_that_is_set_back_does_not_put_off_when_a_ping_is_expected() -> None:
    armed = cursor(due_ms=NEW_YEAR, schedule="pings every 86400000")
    assert activate(DAILY_PINGS, armed, NEW_YEAR - MINUTE, 0).cursor.due_ms == NEW_YEAR - MINUTE
