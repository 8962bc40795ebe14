from __future__ import annotations

from collections.abc import Iterator
from itertools import count, islice

import pytest
from msgspec.structs import replace

from spyweb.cooperative import run_at_once
from spyweb.model import At, Cron, Every, JobId, JobSpec, Misfire, MisfirePolicy, Never, Pings, Schedule, Start
from spyweb.schedules.due import (
    UNARMED,
    DueDecision,
    Missed,
    after_edit,
    already_past,
    decide_due,
    earliest,
    expected_ping,
    first_cursor,
    first_due_after,
    jittered,
    last_due,
    missed_until,
    newest_until,
    next_due,
    parse_schedule_text,
    schedule_text,
    upcoming,
)
from spyweb.settings.units import LONGEST_MS
from spyweb.views.jobs import describe_moment

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


def test_every_is_due_one_period_after_the_cursor() -> None:
    assert next_due(EVERY_MINUTE, NOW) == NOW + MINUTE


def test_at_is_due_once() -> None:
    assert next_due(At(at_ms=NOW), NOW - 1) == NOW
    assert next_due(At(at_ms=NOW), NOW) is None


def test_never_is_never_due() -> None:
    assert next_due(Never(), 0) is None
    assert last_due(Never(), 0, NOW) is None


def test_a_cron_minute_is_due_at_the_next_mark() -> None:
    assert next_due(EACH_MINUTE, MINUTE_MARK) == MINUTE_MARK + MINUTE


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


def test_a_stretch_of_a_cron_over_a_month_of_seconds_is_exact() -> None:
    each_second = Cron(expression="* * * * * *", timezone="America/New_York")
    missed = missed_until(each_second, NOW - 30 * 86_400_000, NOW)

    assert missed == Missed(first_ms=NOW - 30 * 86_400_000 + 1_000, last_ms=NOW, count=30 * 86_400)


def test_a_stretch_of_centuries_still_ends_and_names_its_first_and_last() -> None:
    missed = missed_until(EACH_MINUTE, 0, MINUTE_MARK)

    assert missed is not None
    assert (missed.first_ms, missed.last_ms) == (MINUTE, MINUTE_MARK)
    assert missed.count > 5 * 365 * 1_440


def test_the_newest_due_times_come_oldest_first() -> None:
    assert newest_until(EVERY_MINUTE, NOW - 10 * MINUTE, NOW, 2) == [NOW - MINUTE, NOW]
    assert newest_until(EVERY_MINUTE, NOW - MINUTE, NOW, 5) == [NOW]
    assert newest_until(EVERY_MINUTE, NOW, NOW, 5) == []


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
    assert (asked.count("never"), asked.count("slow")) == (1, 2)


def test_a_new_job_is_due_now_and_at_most_its_share_of_the_spread_later() -> None:
    firsts = {next_due(EVERY_MINUTE, first_cursor(job(name=f"j{n}"), NOW)) for n in range(300)}

    assert all(first is not None and NOW <= first < NOW + 10_000 for first in firsts)
    assert len(firsts) > 250


def test_a_single_new_job_need_not_wait() -> None:
    assert next_due(EVERY_MINUTE, first_cursor(job(), NOW, 0)) == NOW


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


def test_an_at_that_is_past_when_first_seen_is_recorded_and_not_run() -> None:
    past = At(at_ms=NOW - 5)

    assert next_due(past, first_cursor(job(past), NOW)) is None
    assert already_past(past, NOW) == Missed(
        first_ms=NOW - 5, last_ms=NOW - 5, count=1, reason="already past when it was first seen"
    )
    assert already_past(At(at_ms=NOW), NOW) is None
    assert already_past(EVERY_MINUTE, NOW) is None


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


def test_an_unchanged_schedule_keeps_its_cursor() -> None:
    assert after_edit(EVERY_MINUTE, Every(period_ms=MINUTE), NOW - 99 * MINUTE, NOW) == NOW - 99 * MINUTE


def test_an_edited_cron_begins_now_and_does_not_make_up_for_times_it_never_had() -> None:
    cursor = after_edit(EVERY_MINUTE, EACH_MINUTE, NOW - 99 * MINUTE, NOW)

    assert next_due(EACH_MINUTE, cursor) == MINUTE_MARK + MINUTE


def test_an_edited_cron_does_not_run_a_due_time_again_in_the_same_moment() -> None:
    cursor = after_edit(Cron(expression="*/2 * * * *", timezone="UTC"), EACH_MINUTE, MINUTE_MARK, MINUTE_MARK)

    assert next_due(EACH_MINUTE, cursor) == MINUTE_MARK + MINUTE


def test_jitter_is_the_same_for_the_same_due_time_and_spreads_over_others() -> None:
    spec = job(jitter_ms=30_000)
    starts = [jittered(spec, NOW + n * MINUTE) - (NOW + n * MINUTE) for n in range(200)]

    assert starts == [jittered(spec, NOW + n * MINUTE) - (NOW + n * MINUTE) for n in range(200)]
    assert min(starts) < 1_500
    assert 28_500 < max(starts) <= 30_000


def test_jitter_never_reaches_the_next_due_time() -> None:
    spec = job(Every(period_ms=10), jitter_ms=30_000)

    assert all(jittered(spec, NOW + n) < NOW + n + 10 for n in range(200))


def test_without_jitter_a_run_starts_when_it_is_due() -> None:
    assert jittered(job(), NOW) == NOW


@pytest.mark.parametrize(
    "schedule",
    [EVERY_MINUTE, Cron(expression="0 */5 * * MON-FRI", timezone="Europe/Berlin"), At(at_ms=-5), Never()],
)
def test_a_schedule_survives_being_written_down(schedule: Schedule) -> None:
    assert parse_schedule_text(schedule_text(schedule)) == schedule


@pytest.mark.parametrize("text", ["", "often", "every", "every x", "at", "pings", "pings never", "pings pings every 1"])
def test_what_is_no_schedule_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"not a schedule|invalid literal"):
        parse_schedule_text(text)


# decide_due


def decided(misfire: Misfire, *, periods: int, late_ms: int = 0) -> DueDecision:
    """The job was due `periods` times, the last of them `late_ms` ago."""
    return decide_due(job(misfire=misfire), NOW - late_ms - periods * MINUTE, NOW)


ONCE = Misfire()
SKIP = Misfire(policy=MisfirePolicy.SKIP)
ALL = Misfire(policy=MisfirePolicy.ALL)


def test_nothing_due_leaves_the_cursor() -> None:
    assert decide_due(job(), NOW - 5, NOW) == DueDecision(cursor_ms=NOW - 5)


@pytest.mark.parametrize("misfire", [ONCE, SKIP, ALL])
def test_one_due_time_on_time_runs_under_every_policy(misfire: Misfire) -> None:
    assert decided(misfire, periods=1, late_ms=20) == DueDecision(cursor_ms=NOW - 20, runs=[NOW - 20], missed=[])


def test_once_runs_the_newest_and_records_the_rest_as_one_stretch() -> None:
    decision = decided(ONCE, periods=10)

    assert decision.runs == [NOW]
    assert decision.cursor_ms == NOW
    (missed,) = decision.missed
    assert (missed.first_ms, missed.last_ms, missed.count) == (NOW - 9 * MINUTE, NOW - MINUTE, 9)
    assert missed.reason == "a later due time ran in its place"


def test_once_runs_however_late_unless_there_is_a_grace() -> None:
    assert decided(ONCE, periods=1, late_ms=59_000).runs == [NOW - 59_000]

    decision = decided(Misfire(grace_ms=5_000), periods=3, late_ms=5_001)
    assert decision.runs == []
    (missed,) = decision.missed
    assert (missed.count, missed.last_ms) == (3, NOW - 5_001)
    assert missed.reason == "later than its misfire_grace"


@pytest.mark.parametrize("late_ms", [1, 20_000])
def test_skip_runs_nothing_that_was_due_while_no_daemon_kept_the_schedule(late_ms: int) -> None:
    decision = decide_due(job(misfire=SKIP), NOW - late_ms - 3 * MINUTE, NOW, kept_since_ms=NOW)

    assert decision.runs == []
    (missed,) = decision.missed
    assert (missed.count, missed.last_ms, missed.reason) == (3, NOW - late_ms, "passed while nothing could run")


def test_skip_runs_what_a_daemon_is_only_a_little_late_for() -> None:
    daily = job(Every(period_ms=86_400_000), misfire=SKIP)

    assert decide_due(daily, NOW - 86_400_000 - 5_000, NOW, kept_since_ms=NOW - 5_000).runs == [NOW - 5_000]
    assert decide_due(daily, NOW - 86_400_000 - 5_001, NOW, kept_since_ms=NOW - 9_000).runs == []


def test_skip_runs_what_jitter_held_back_until_the_daemon_was_there() -> None:
    spec = job(jitter_ms=50_000, misfire=SKIP)
    start = jittered(spec, NOW)

    assert decide_due(spec, NOW - MINUTE, start, kept_since_ms=start).runs == [NOW]
    assert decide_due(spec, NOW - MINUTE, start + 1, kept_since_ms=start + 1).runs == []


def test_skip_with_a_grace_runs_what_is_no_later_than_that() -> None:
    spec = job(misfire=Misfire(policy=MisfirePolicy.SKIP, grace_ms=20_000))

    assert decide_due(spec, NOW - MINUTE - 20_000, NOW, kept_since_ms=NOW).runs == [NOW - 20_000]
    assert decide_due(spec, NOW - MINUTE - 20_001, NOW, kept_since_ms=NOW).runs == []


def test_all_runs_every_due_time_in_order() -> None:
    decision = decided(ALL, periods=4)

    assert decision.runs == [NOW - 3 * MINUTE, NOW - 2 * MINUTE, NOW - MINUTE, NOW]
    assert decision.missed == []


def test_all_beyond_its_limit_runs_the_newest_and_records_the_oldest() -> None:
    decision = decided(Misfire(policy=MisfirePolicy.ALL, limit=3), periods=10)

    assert decision.runs == [NOW - 2 * MINUTE, NOW - MINUTE, NOW]
    (missed,) = decision.missed
    assert (missed.first_ms, missed.last_ms, missed.count) == (NOW - 9 * MINUTE, NOW - 3 * MINUTE, 7)


def test_all_with_a_grace_leaves_out_what_is_too_late() -> None:
    decision = decided(Misfire(policy=MisfirePolicy.ALL, grace_ms=2 * MINUTE), periods=10)

    assert decision.runs == [NOW - 2 * MINUTE, NOW - MINUTE, NOW]
    assert decision.missed[0].count == 7


def test_a_due_time_that_jitter_holds_back_is_left_for_later() -> None:
    spec = job(jitter_ms=50_000)
    due = NOW
    start = jittered(spec, due)
    assert start > due

    early = decide_due(spec, due - 2 * MINUTE, start - 1)
    assert early.cursor_ms == due - MINUTE
    assert early.runs == [due - MINUTE]

    assert decide_due(spec, early.cursor_ms, start) == DueDecision(cursor_ms=due, runs=[due], missed=[])


def test_a_job_alone_in_its_jitter_is_not_due_yet() -> None:
    spec = job(jitter_ms=50_000)

    assert decide_due(spec, NOW - MINUTE, jittered(spec, NOW) - 1) == DueDecision(cursor_ms=NOW - MINUTE)


def test_jitter_does_not_use_up_the_grace() -> None:
    spec = job(jitter_ms=50_000, misfire=Misfire(grace_ms=10))

    assert decide_due(spec, NOW - MINUTE, jittered(spec, NOW)).runs == [NOW]


def test_an_at_that_passed_while_nothing_ran_runs_late() -> None:
    assert decide_due(job(At(at_ms=NOW - 3_600_000)), NOW - 7_200_000, NOW).runs == [NOW - 3_600_000]


def test_a_cursor_ahead_of_the_clock_waits() -> None:
    assert decide_due(job(), NOW + 3_600_000, NOW) == DueDecision(cursor_ms=NOW + 3_600_000)


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
        (Cron(expression="* * * * *", timezone="UTC"), 999_999, 60_000, 120_000),
        (At(at_ms=500), 999, 400, 500),
        (At(at_ms=500), 0, 500, None),
        (Never(), 0, 0, None),
    ],
)
def test_the_first_due_time_after_a_moment_may_be_one_that_was_dealt_with(
    schedule: Schedule, cursor_ms: int, moment_ms: int, expected: int | None
) -> None:
    assert first_due_after(schedule, cursor_ms, moment_ms) == expected
