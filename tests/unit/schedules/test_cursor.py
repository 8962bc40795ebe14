from __future__ import annotations

import pytest
from msgspec import structs

from spyweb.model import At, Cron, Cursor, Every, JobId, Outcome, Pings, Schedule
from spyweb.schedules.cursor import AWAY, REPEATED_MS, activate, deactivated
from spyweb.schedules.due import UNARMED, next_due, schedule_text
from tests.fakes.harness import make_spec

NOW = 1_767_225_600_000
MINUTE = 60_000


def cursor(due_ms: int = NOW, **fields: object) -> Cursor:
    spec = make_spec()
    known = Cursor(
        job=JobId("prices"), due_ms=due_ms, schedule=schedule_text(spec.schedule), active_since_ms=NOW - 60 * MINUTE
    )
    return structs.replace(known, **fields)


def test_a_job_first_seen_alone_is_due_at_once() -> None:
    seen = activate(make_spec(), None, NOW, 0)
    assert next_due(make_spec().schedule, seen.cursor.due_ms) == NOW


def test_an_at_in_the_past_is_recorded() -> None:
    seen = activate(make_spec(schedule=At(at_ms=NOW - 5)), None, NOW, 0)
    assert [(skipped.outcome, skipped.count) for skipped in seen.skipped] == [(Outcome.MISSED, 1)]
    assert seen.cursor.due_ms == NOW - 5


def test_a_restart_leaves_the_cursor_alone() -> None:
    known = cursor(NOW - 10 * MINUTE)
    assert activate(make_spec(), known, NOW, 0).cursor == known


@pytest.mark.parametrize(
    ("schedule", "ahead", "is_taken_back"),
    [
        (Every(period_ms=MINUTE), 1, True),
        (Cron(expression="* * * * *", timezone="UTC"), REPEATED_MS, False),
        (Cron(expression="* * * * *", timezone="UTC"), REPEATED_MS + 1, True),
        (At(at_ms=NOW + 60 * MINUTE), 60 * MINUTE, False),
    ],
)
def test_a_cursor_in_the_future_is_taken_back_to_now_unless_its_times_have_names_and_are_near(
    schedule: Schedule, ahead: int, is_taken_back: bool
) -> None:
    known = cursor(NOW + ahead, schedule=schedule_text(schedule))
    assert activate(make_spec(schedule=schedule), known, NOW, 0).cursor.due_ms == NOW + ahead * (not is_taken_back)


def test_a_job_that_was_away_while_the_clock_was_set_back_goes_on_from_now() -> None:
    back = activate(make_spec(), cursor(NOW + 60 * MINUTE, idle_since_ms=NOW + 61 * MINUTE), NOW, 0)
    assert (back.cursor.due_ms, back.cursor.idle_since_ms, back.skipped) == (NOW, None, ())


def test_a_disabled_job_is_idle_from_the_first_time_it_is_seen_so() -> None:
    idle = activate(make_spec(enabled=False), cursor(), NOW, 0).cursor
    assert idle.idle_since_ms == NOW
    assert activate(make_spec(enabled=False), idle, NOW + MINUTE, 0).cursor == idle


def test_the_due_times_of_an_absence_are_one_paused_stretch() -> None:
    back = activate(make_spec(), cursor(idle_since_ms=NOW), NOW + 5 * MINUTE + 1, 0)
    assert [(s.outcome, s.first_due_ms, s.last_due_ms, s.count) for s in back.skipped] == [
        (Outcome.PAUSED, NOW + MINUTE, NOW + 5 * MINUTE, 5)
    ]
    assert (back.cursor.due_ms, back.cursor.idle_since_ms) == (NOW + 5 * MINUTE, None)


def test_the_due_times_of_an_absence_with_an_edit_are_on_record_too() -> None:
    edited = make_spec(schedule=Every(period_ms=2 * MINUTE))
    back = activate(edited, cursor(idle_since_ms=NOW), NOW + 10 * MINUTE, 0)
    assert [(s.outcome, s.first_due_ms, s.last_due_ms, s.count, s.reason) for s in back.skipped] == [
        (Outcome.PAUSED, NOW + MINUTE, NOW + 9 * MINUTE, 9, AWAY),
        (Outcome.PAUSED, NOW + 10 * MINUTE, NOW + 10 * MINUTE, 1, AWAY),
    ]
    assert (back.cursor.due_ms, back.cursor.idle_since_ms) == (NOW + 10 * MINUTE, None)


def test_an_edit_while_nothing_ran_records_what_the_earlier_schedule_missed() -> None:
    edited = make_spec(schedule=Cron(expression="0 * * * *", timezone="UTC"))
    found = activate(edited, cursor(), NOW + 3 * MINUTE + 1, 0)
    assert [(s.outcome, s.count) for s in found.skipped] == [(Outcome.MISSED, 3)]
    assert next_due(edited.schedule, found.cursor.due_ms) == NOW + 60 * MINUTE


def test_an_edited_every_counts_from_the_cursor() -> None:
    edited = make_spec(schedule=Every(period_ms=10 * MINUTE))
    found = activate(edited, cursor(), NOW + 1, 0)
    assert next_due(edited.schedule, found.cursor.due_ms) == NOW + 10 * MINUTE


@pytest.mark.parametrize("idle_since_ms", [None, NOW])
def test_an_edit_to_an_at_that_is_past_is_recorded(idle_since_ms: int | None) -> None:
    """By the time that somebody has saved the file."""
    edited = make_spec(schedule=At(at_ms=NOW + 1_000))
    found = activate(edited, cursor(idle_since_ms=idle_since_ms), NOW + 1_001, 0)
    assert [(s.outcome, s.first_due_ms) for s in found.skipped] == [(Outcome.MISSED, NOW + 1_000)]
    assert next_due(edited.schedule, found.cursor.due_ms) is None
    assert activate(edited, found.cursor, NOW + 2 * MINUTE, 0).skipped == ()


@pytest.mark.parametrize("idle_since_ms", [None, NOW])
@pytest.mark.parametrize("unknown", ["cron Nowhere/Gone 0 9 * * *", "cron UTC 0 9", "every day", ""])
def test_an_edit_of_a_schedule_that_nobody_can_read_any_more_begins_now(
    unknown: str, idle_since_ms: int | None
) -> None:
    """A time zone that this machine's data does not have, say."""
    known = cursor(schedule=unknown, idle_since_ms=idle_since_ms)
    found = activate(make_spec(schedule=Cron(expression="* * * * *", timezone="UTC")), known, NOW + MINUTE + 1, 0)
    assert (found.cursor.due_ms, found.skipped) == (NOW + MINUTE, ())


def test_no_due_time_is_accounted_for_under_both_schedules() -> None:
    edited = make_spec(schedule=Every(period_ms=2 * MINUTE))
    found = activate(edited, cursor(), NOW + 3 * MINUTE, 0)
    assert next_due(edited.schedule, found.cursor.due_ms) == NOW + 3 * MINUTE
    assert [(s.first_due_ms, s.last_due_ms) for s in found.skipped] == [(NOW + MINUTE, NOW + 2 * MINUTE)]


def test_a_paused_job_stays_where_it_is() -> None:
    known = cursor(paused=True, idle_since_ms=NOW)
    assert activate(make_spec(), known, NOW + MINUTE, 0).cursor == known
    assert deactivated(known, NOW + MINUTE) == known


def test_a_job_is_active_since_it_was_added_put_on_its_schedule_or_came_back() -> None:
    spec, later = make_spec(), NOW + 5 * MINUTE
    assert activate(spec, None, NOW, 0).cursor.active_since_ms == NOW
    assert activate(spec, cursor(), later, 0).cursor.active_since_ms == NOW - 60 * MINUTE, "a restart changes nothing"
    assert activate(spec, cursor(idle_since_ms=NOW), later, 0).cursor.active_since_ms == later
    edited = make_spec(schedule=Every(period_ms=2 * MINUTE))
    assert activate(edited, cursor(), later, 0).cursor.active_since_ms == later
    assert activate(spec, cursor(active_since_ms=None), later, 0).cursor.active_since_ms == later


DAILY = make_spec(schedule=Pings(schedule=Every(period_ms=86_400_000)))


def test_a_job_that_expects_pings_begins_unarmed_and_its_cursor_is_moved_by_pings_alone() -> None:
    first = activate(DAILY, None, NOW, 0)
    assert (first.cursor.due_ms, first.cursor.schedule, first.skipped) == (UNARMED, "pings every 86400000", ())
    armed = structs.replace(first.cursor, due_ms=NOW)
    assert activate(DAILY, armed, NOW + 5 * 86_400_000, 0).cursor == armed


@pytest.mark.parametrize("due_ms", [UNARMED, NOW])
def test_after_an_absence_a_ping_is_expected_from_then_on_if_one_has_ever_come(due_ms: int) -> None:
    known = cursor(due_ms=due_ms, schedule="pings every 86400000", idle_since_ms=NOW)
    found = activate(DAILY, known, NOW + 5 * 86_400_000, 0)
    assert (found.cursor.due_ms, found.skipped) == (due_ms and NOW + 5 * 86_400_000, ())


def test_an_edit_of_when_pings_come_forgets_none_and_a_job_that_ran_here_is_new() -> None:
    armed = cursor(schedule="pings cron UTC 0 3 * * *")
    assert activate(DAILY, armed, NOW + MINUTE, 0).cursor.due_ms == armed.due_ms
    assert activate(DAILY, cursor(), NOW, 0).cursor.due_ms == UNARMED


def test_a_clock_that_is_set_back_does_not_put_off_when_a_ping_is_expected() -> None:
    armed = cursor(due_ms=NOW, schedule="pings every 86400000")
    assert activate(DAILY, armed, NOW - MINUTE, 0).cursor.due_ms == NOW - MINUTE
