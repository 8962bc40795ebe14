"""What an event changes of what is wrong with a subject."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from spyweb.incidents.policy import AlertPolicy, Flapping
from spyweb.incidents.truth import (
    Decision,
    Edited,
    Event,
    Failed,
    Paused,
    Removed,
    Sign,
    SignGone,
    SignSeen,
    SubjectState,
    Succeeded,
    TimePassed,
    advance,
    signs_ended_by,
)

WELL = SubjectState(name="job:backup")
THREE = AlertPolicy(after_failures=3)
ONE = AlertPolicy(after_failures=1)
ON_AND_OFF: list[Event] = [Failed(""), Succeeded()] * 3
FLAPS = AlertPolicy(after_failures=1, flapping=Flapping(3, 1_000))


def led(*events: Event, policy: AlertPolicy = THREE, subject: SubjectState = WELL, every_ms: int = 100) -> Decision:
    """Lead a subject through events, one each 100 ms from 0 on; return the last decision."""
    decision = Decision(subject=subject)
    for number, event in enumerate(events):
        decision = advance(decision.subject, event, policy, number * every_ms, in_maintenance=False)
    return decision


def test_the_third_failure_in_a_row_opens_an_incident_that_began_with_the_first() -> None:
    assert not led(Failed("a"), Failed("b")).opens

    third = led(Failed("a"), Failed("b"), Failed("c"))
    assert third.opens
    assert third.subject.signs == {"failing": Sign(0, "c")}
    assert third.subject.opened_ms == 200


def test_a_success_in_between_begins_the_count_anew() -> None:
    assert not led(Failed(""), Failed(""), Succeeded(), Failed(""), Failed("")).opens


def test_more_failures_keep_it_open_and_tell_the_newest_reason() -> None:
    fourth = led(Failed("a"), Failed("b"), Failed("c"), Failed("d"))
    assert not fourth.opens
    assert fourth.subject.signs == {"failing": Sign(0, "d")}


def test_a_success_closes_it_and_leaves_nothing() -> None:
    after = led(Failed(""), Failed(""), Failed(""), Succeeded())
    assert after.closes
    assert after.subject.is_blank


def test_it_closes_after_as_many_successes_as_are_asked_for() -> None:
    patient = replace(ONE, after_successes=2)
    assert not led(Failed(""), Succeeded(), policy=patient).closes
    assert not led(Failed(""), Succeeded(), Failed(""), Succeeded(), policy=patient).closes
    assert led(Failed(""), Succeeded(), Succeeded(), policy=patient).closes


def test_one_incident_has_all_signs_and_closes_with_the_last() -> None:
    second = led(Failed("a"), SignSeen("empty", "nothing is found"), policy=ONE)
    assert not second.opens
    assert second.notes == ("empty: nothing is found",)

    third = led(Failed("a"), SignSeen("late", ""), Succeeded(), policy=ONE)
    assert not third.closes
    assert third.notes == ("failing: ended",)
    assert led(Failed("a"), SignSeen("late", ""), Succeeded(), SignGone("late"), policy=ONE).closes


def test_the_end_of_a_run_shows_signs_and_a_success_without_them_ends_them() -> None:
    short = led(Succeeded({"empty": "no items", "storage": "1 storage error"}))
    assert short.opens
    assert short.notes == ("storage: 1 storage error",), "the incident is named after the other"
    assert led(Succeeded({"empty": "no items"}), Failed("")).subject.signs == {"empty": Sign(0, "no items")}
    assert led(Succeeded({"empty": "no items"}), Succeeded()).closes
    both = led(Failed("x", {"storage": "1 storage error"}), policy=ONE)
    assert both.subject.signs.keys() == {"failing", "storage"}
    assert led(Failed("x"), Succeeded({"empty": "no items"}), policy=ONE).notes == (
        "empty: no items",
        "failing: ended",
    ), "it goes on, for another reason"


def test_what_a_success_shows_in_maintenance_is_ignored_and_does_not_end_what_was_there() -> None:
    short = Succeeded({"empty": "no items"})
    assert advance(WELL, short, ONE, 0, in_maintenance=True) == Decision(subject=WELL)
    before = led(short).subject
    assert advance(before, short, ONE, 100, in_maintenance=True).subject.signs == before.signs


def test_a_sign_may_be_older_than_the_moment_at_which_it_is_seen() -> None:
    seen = led(TimePassed(), SignSeen("late", "", since_ms=40))
    assert seen.subject.signs == {"late": Sign(40, "")}
    assert seen.subject.opened_ms == 100


def test_a_success_does_not_end_what_is_late_a_run_that_began_before_says_nothing_of_it() -> None:
    assert not led(SignSeen("late", ""), Succeeded()).closes


def test_a_sign_seen_again_is_no_news() -> None:
    again = led(SignSeen("drift", "one file"), SignSeen("drift", "two files"))
    assert again.notes == ()
    assert again.subject.signs == {"drift": Sign(0, "two files")}


def test_what_is_silent_ends_with_a_success_and_what_is_late_once_that_is_seen() -> None:
    assert led(SignSeen("late", ""), SignGone("late")).closes
    assert led(SignSeen("silent", ""), Succeeded()).closes


def test_in_maintenance_failures_and_signs_are_ignored_and_successes_count() -> None:
    for event in (Failed(""), SignSeen("empty", "")):
        assert advance(WELL, event, ONE, 0, in_maintenance=True) == Decision(subject=WELL)
    open_one = led(Failed(""), policy=ONE).subject
    assert advance(open_one, Succeeded(), ONE, 100, in_maintenance=True).closes


def test_some_events_say_that_signs_are_gone_whatever_was_before() -> None:
    events = (Succeeded({"empty": ""}), SignGone("drift"), Failed(""), TimePassed())
    found = [sorted(signs_ended_by(event) or ()) for event in events]
    assert found == [["drift", "silent", "storage"], ["drift"], [], []]
    assert signs_ended_by(Removed()) is None


def test_an_edit_of_the_file_counts_failures_anew() -> None:
    assert led(Failed(""), Failed(""), Edited()).subject.is_blank
    assert not led(Failed(""), Failed(""), Edited(), Failed("")).opens


@pytest.mark.parametrize("before", [(), (Failed(""),), (Failed(""), Failed(""), Failed(""))])
def test_a_subject_that_is_gone_leaves_nothing(before: tuple[Event, ...]) -> None:
    gone = led(*before, Removed())
    assert gone.subject.is_blank
    assert gone.closes == (len(before) == 3)


def test_a_job_is_to_be_paused_from_the_failure_on_that_its_settings_name() -> None:
    policy = replace(THREE, pause_after=4)
    pausing = [led(*[Failed("")] * count, policy=policy).subject.is_pausing for count in range(1, 6)]
    assert pausing == [False, False, False, True, True]


@pytest.mark.parametrize(
    ("event", "notes"), [(Paused("4 failures in a row"), ("paused: 4 failures in a row",)), (Paused(), ())]
)
def test_once_it_is_paused_its_history_says_so(event: Paused, notes: tuple[str, ...]) -> None:
    policy = replace(THREE, pause_after=4)
    failing = led(*[Failed("")] * 4, policy=policy).subject
    paused = advance(failing, event, policy, 500, in_maintenance=False)
    assert (paused.subject.is_pausing, paused.notes, paused.closes) == (False, notes, False)
    assert led(Failed(""), policy=policy, subject=paused.subject).subject.is_pausing, "it was resumed, and fails again"
    assert led(Succeeded(), policy=policy, subject=paused.subject).closes


@pytest.mark.parametrize("event", [Succeeded(), Edited(), Removed()])
def test_a_job_that_was_to_be_paused_is_not_once_it_is_well_or_another(event: Event) -> None:
    policy = replace(THREE, pause_after=3)
    assert not led(*[Failed("")] * 3, event, policy=policy).subject.is_pausing


def test_what_fails_in_maintenance_pauses_nothing() -> None:
    policy = replace(THREE, pause_after=4)
    failing = led(*[Failed("")] * 3, policy=policy).subject
    assert not advance(failing, Failed(""), policy, 500, in_maintenance=True).subject.is_pausing


def test_the_third_opening_within_the_window_stays_open_until_it_was_calm_that_long() -> None:
    held = led(*ON_AND_OFF, policy=FLAPS)
    assert held.subject.is_flapping
    assert not held.closes
    assert held.wake_ms == 400 + 1_000

    assert not advance(held.subject, TimePassed(), FLAPS, 1_399, in_maintenance=False).closes
    calm = advance(held.subject, TimePassed(), FLAPS, 1_400, in_maintenance=False)
    assert calm.closes
    assert calm.subject.openings == ()


def test_what_fails_in_maintenance_keeps_a_flapping_incident_open_no_longer() -> None:
    held = led(*ON_AND_OFF, policy=FLAPS)
    ignored = advance(held.subject, Failed(""), FLAPS, 1_000, in_maintenance=True)
    assert (ignored.subject, ignored.wake_ms) == (held.subject, held.wake_ms)
    assert advance(held.subject, Failed(""), FLAPS, 1_400, in_maintenance=True).closes


def test_a_clock_that_is_set_back_does_not_hold_a_flapping_incident_for_longer() -> None:
    held = led(*ON_AND_OFF, policy=FLAPS, every_ms=150)
    assert advance(held.subject, TimePassed(), FLAPS, -5_000, in_maintenance=False).closes


def test_openings_that_are_long_past_count_no_more_and_are_forgotten() -> None:
    assert led(*ON_AND_OFF, policy=FLAPS, every_ms=600).closes
    assert led(*ON_AND_OFF, TimePassed(), TimePassed(), policy=FLAPS, every_ms=600).subject.is_blank
