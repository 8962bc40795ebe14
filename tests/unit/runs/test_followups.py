from __future__ import annotations

import random

import pytest
from msgspec import structs, to_builtins

from spyweb.model import After, Backoff, Ending, Failure, JobId, Outcome, Retry, Run, RunId, RunState, Trigger
from spyweb.runs.followups import (
    after_loss,
    begin_again,
    follow_up,
    may_retry,
    next_attempt,
    resume,
    retry_delay_ms,
    what_follows,
)
from tests.fakes.harness import make_job, make_spec
from tests.fakes.pool import FAILED, GUILTY, LOST, SUCCESS

NOW = 1_000_000
RUN = Run(id=RunId(7), job=JobId("prices"), state=RunState.RUNNING, due_ms=5, trigger=Trigger(type="schedule"))
TWICE = Retry(retries=2, delay_ms=10_000, jitter=False)


def follow(run: Run, ending: Ending, retry: Retry = TWICE) -> object:
    new = next_attempt(run, ending, retry, NOW, lambda: 0.5)
    return new and (new.attempt, new.start_after_ms, to_builtins(new.trigger))


def test_a_failure_is_retried_after_its_delay_with_the_payload_of_the_first_attempt_until_the_last() -> None:
    assert follow(RUN, FAILED) == (2, NOW + 10_000, {"type": "retry", "of": 7})
    sent = structs.replace(RUN, trigger=Trigger(type="manual", payload=0))
    assert follow(sent, FAILED) == (2, NOW + 10_000, {"type": "retry", "of": 7, "payload": 0})
    assert follow(structs.replace(RUN, attempt=3), FAILED) is None


def test_a_retry_of_a_retry_names_the_first_attempt_and_keeps_its_due_time() -> None:
    second = structs.replace(RUN, id=RunId(8), attempt=2, trigger=Trigger(type="retry", of=RunId(7)))
    new = next_attempt(second, FAILED, TWICE, NOW, lambda: 0.5)
    assert new
    assert (new.attempt, new.due_ms, new.trigger.of) == (3, 5, 7)


def test_success_cancellation_and_a_planned_stop_are_not_retried() -> None:
    cancelled = structs.replace(FAILED, failure=Failure.CANCELLED)
    for ending in (SUCCESS, cancelled, Ending(outcome=Outcome.STOPPED)):
        assert follow(RUN, ending) is None


def test_an_innocent_loss_starts_again_once_and_does_not_use_up_a_retry() -> None:
    assert follow(RUN, LOST, Retry()) == (2, None, {"type": "retry", "of": 7, "lost": 1})
    again = structs.replace(RUN, attempt=2, trigger=Trigger(type="retry", of=RunId(7), lost=1))
    assert follow(again, LOST, Retry()) is None
    assert may_retry(structs.replace(again, attempt=3), TWICE)
    assert not may_retry(structs.replace(again, attempt=4), TWICE)


def test_a_guilty_loss_counts_as_a_failure() -> None:
    assert follow(RUN, GUILTY, Retry()) is None
    assert follow(RUN, GUILTY) == (2, NOW + 10_000, {"type": "retry", "of": 7})


def test_only_jobs_that_ask_for_this_outcome_follow() -> None:
    on_success = make_job("report", after=(After(job=JobId("prices")),))
    on_failure = make_job("alarm", after=(After(job=JobId("prices"), outcomes=frozenset({Outcome.FAILED})),))
    assert [new.job for new in what_follows(RUN, SUCCESS, [on_success, on_failure], 0).new] == ["report"]
    resuming = make_job("report", after=on_success.spec.after, resume=True)
    assert [what_follows(RUN, SUCCESS, [job], 0).new[0].trigger.resumable for job in (on_success, resuming)] == [0, 1]
    assert [new.job for new in what_follows(RUN, FAILED, [on_success, on_failure], 0).new] == ["alarm"]


# Runs that go on with the tasks of another

STOPPED = Ending(outcome=Outcome.STOPPED)
RESUMING = make_job("prices", resume=True, retry=TWICE).spec


def resumption(run: Run, ending: Ending) -> object:
    new = follow_up(RESUMING, run, ending, NOW, lambda: 0.5)
    return new and (new.attempt, new.start_after_ms, to_builtins(new.trigger))


@pytest.mark.parametrize("ending", [LOST, STOPPED])
def test_a_run_that_was_cut_short_is_resumed_at_once(ending: Ending) -> None:
    assert resumption(RUN, ending) == (2, None, {"type": "retry", "of": 7, "cut_short": 1, "resumes": 7})


def test_one_that_took_its_worker_with_it_is_resumed_later_each_time() -> None:
    resumed = Trigger(type="retry", of=RunId(7), cut_short=1, resumes=RunId(7))
    second = structs.replace(RUN, id=RunId(8), attempt=2, trigger=resumed)
    assert resumption(RUN, GUILTY) == (2, NOW + 10_000, {"type": "retry", "of": 7, "cut_short": 1, "resumes": 7})
    assert resumption(second, GUILTY) == (3, NOW + 20_000, {"type": "retry", "of": 7, "cut_short": 2, "resumes": 7})


def test_a_failure_is_retried_from_the_start_and_has_all_its_retries() -> None:
    second = resume(RUN)
    run = structs.replace(RUN, id=RunId(8), attempt=second.attempt, trigger=second.trigger)
    assert resumption(run, FAILED) == (3, NOW + 10_000, {"type": "retry", "of": 7, "cut_short": 1})


def test_the_run_after_a_retry_goes_on_with_that_retry_alone() -> None:
    third = structs.replace(RUN, id=RunId(9), attempt=3, trigger=Trigger(type="retry", of=RunId(7), cut_short=1))
    again = resume(third)
    assert again.trigger.resumes == 9
    assert (again.attempt, again.due_ms, again.follows) == (4, 5, 9)


@pytest.mark.parametrize("ending", [SUCCESS, structs.replace(FAILED, failure=Failure.CANCELLED)])
def test_what_has_ended_is_not_resumed(ending: Ending) -> None:
    assert resumption(RUN, ending) is None


TOLD = structs.replace(RUN, trigger=Trigger(type="alert", hook="on_down", incident={"id": 1}))


def test_a_run_that_tells_of_an_incident_begins_again_where_it_was_cut_short_and_is_never_resumed() -> None:
    cut = {"type": "retry", "of": 7, "hook": "on_down", "incident": {"id": 1}, "cut_short": 1}
    for resume_wanted in (False, True):
        spec = make_spec(resume=resume_wanted)
        new = follow_up(spec, TOLD, Ending(outcome=Outcome.STOPPED), NOW, lambda: 0.5)
        assert new
        assert to_builtins(new.trigger) == cut
    again = begin_again(TOLD)
    assert again
    assert to_builtins(again.trigger) == cut
    assert begin_again(RUN) is None


def test_no_job_follows_what_tells_of_an_incident() -> None:
    after = make_job("next", after=(After(job=TOLD.job, outcomes=frozenset(Outcome)),))
    assert what_follows(RUN, SUCCESS, [after], NOW).new
    assert not what_follows(TOLD, SUCCESS, [after], NOW).new


def test_after_a_run_that_its_script_skipped_only_jobs_for_any_outcome_start_and_nothing_is_retried() -> None:
    skipped = Ending(outcome=Outcome.SKIPPED, reason="open: not asking")
    any_outcome = frozenset({*Outcome})
    jobs = [
        make_job("each", after=(After(job=JobId("prices"), outcomes=any_outcome),)),
        make_job("plain", after=(After(job=JobId("prices")),)),
    ]
    assert [new.job for new in what_follows(RUN, skipped, jobs, NOW).new] == ["each"]
    assert not what_follows(RUN, structs.replace(skipped, declined=True), jobs, NOW).new, "as if it had not begun"
    assert follow(RUN, skipped) is None


@pytest.mark.parametrize(
    ("retry", "delays"),
    [
        (Retry(backoff=Backoff.CONSTANT), [100, 100, 100, 100]),
        (Retry(backoff=Backoff.LINEAR), [100, 200, 300, 400]),
        (Retry(backoff=Backoff.EXPONENTIAL), [100, 200, 400, 800]),
        (Retry(max_delay_ms=250), [100, 200, 250, 250]),
    ],
)
def test_each_backoff_grows_in_its_own_way_up_to_the_longest_delay(retry: Retry, delays: list[int]) -> None:
    retry = structs.replace(retry, delay_ms=100, jitter=False)

    assert [retry_delay_ms(retry, attempt, random.random) for attempt in (1, 2, 3, 4)] == delays
    assert retry_delay_ms(retry, 1_000_000, random.random) <= retry.max_delay_ms


def test_full_jitter_draws_evenly_from_nothing_to_the_whole_delay() -> None:
    retry = Retry(delay_ms=1_000)

    assert retry_delay_ms(retry, 1, lambda: 0.0) == 0
    assert retry_delay_ms(retry, 1, lambda: 0.5) == 500
    assert retry_delay_ms(retry, 1, lambda: 0.9999999) == 1_000


@pytest.mark.parametrize(
    ("is_known", "may_be_back", "follows"), [(False, True, True), (False, False, False), (True, True, False)]
)
def test_of_a_lost_run_whose_job_is_disabled_or_gone_for_good_nothing_follows(
    is_known: bool, may_be_back: bool, follows: bool
) -> None:
    spec = make_spec(enabled=False) if is_known else None
    run = structs.replace(RUN, trigger=Trigger(type="schedule", resumable=True))
    found = after_loss(spec, run, LOST, NOW, lambda: 0.5, may_be_back=may_be_back)
    assert (found is not None) is follows
