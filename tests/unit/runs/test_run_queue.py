"""Which runs of a job are admitted, how they are counted, and whose turn it is."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from spyweb.model import JobId, Overlap, Run, RunId, RunState, Trigger
from spyweb.runs.live import LiveJob
from spyweb.runs.records import run_of
from spyweb.runs.run_queue import CAUSED_LIMIT, QUEUE_LIMIT, Admission, admit
from spyweb.store.model.runs import NewRun
from tests.fakes.clock import FakeClock
from tests.fakes.harness import make_job


def by_change(event: int, key: str = "k", run: int | None = None) -> Run:
    trigger = Trigger(type="state", scope="orders", key=key, event=event)
    return Run(id=RunId(run or event), job=JobId("prices"), state=RunState.WAITING, trigger=trigger)


def by_hand(run: int = 100) -> Run:
    return Run(id=RunId(run), job=JobId("prices"), state=RunState.WAITING, trigger=Trigger(type="manual"))


def of_incident(run: int, hook: str = "on_down") -> Run:
    trigger = Trigger(type="alert", hook=hook, incident={"id": 1})
    return Run(id=RunId(run), job=JobId("prices"), state=RunState.WAITING, trigger=trigger)


def waiting(*runs: Run, overlap: Overlap = Overlap.SKIP) -> LiveJob:
    job = make_job(overlap=overlap)
    for run in runs:
        job.queue.line_up(run)
    return job


def delay(job: LiveJob, run: Run) -> None:
    job.queue.delayed[run.id] = (run, FakeClock().call_later(1, lambda: None))


def all_taken(job: LiveJob) -> list[int]:
    """Start as many as may start, each ending at once."""
    taken = []
    while run := job.queue.start_next(job.spec, 1_000):
        taken.append(int(run.id))
        job.queue.leave(run)
    return taken


def claim_of_change(job: LiveJob, run: Run) -> Admission:
    return job.queue.claim_for_change(job.spec, run.trigger)


def test_runs_of_changes_stand_in_the_order_of_the_changes_and_others_as_they_came() -> None:
    job = waiting(by_change(2), by_hand(), by_change(5), by_change(1, run=9), by_change(4))

    assert all_taken(job) == [9, 2, 100, 4, 5]


@pytest.mark.parametrize(
    "aside", [Trigger(type="manual", dry_run=True), Trigger(type="manual", debug=True), of_incident(1).trigger]
)
def test_a_due_time_waits_for_a_run_that_changes_nothing_or_tells_of_an_incident(aside: Trigger) -> None:
    job = waiting(replace(by_hand(1), trigger=aside))
    job.queue.start_next(job.spec, 1_000)
    assert [job.queue.claim(job.spec) for _ in range(2)] == [Admission.WAIT, Admission.SKIP]
    true_run = waiting(by_hand(1))
    true_run.queue.start_next(true_run.spec, 1_000)
    assert true_run.queue.claim(true_run.spec) is Admission.SKIP


def test_a_busy_job_starts_nothing_unless_its_runs_may_overlap() -> None:
    job = waiting(by_hand(), by_change(1))
    job.queue.claim(job.spec)
    assert all_taken(job) == []
    job = waiting(by_hand(), by_change(1), overlap=Overlap.ALLOW)
    job.queue.claim(job.spec)

    assert all_taken(job) == [100, 1]


def test_while_a_change_is_served_the_next_waits_even_where_runs_may_overlap() -> None:
    job = waiting(overlap=Overlap.ALLOW)
    assert claim_of_change(job, by_change(1)) is Admission.START
    job.queue.line_up(by_change(2))
    job.queue.line_up(by_hand())

    assert all_taken(job) == [100]


def test_a_run_that_starts_is_in_flight_since_then_until_it_leaves() -> None:
    job = waiting(by_hand(7))
    run = job.queue.start_next(job.spec, 1_000)
    assert run is not None
    assert (run.state, run.started_ms, list(job.queue.in_flight)) == (RunState.RUNNING, 1_000, [7])
    job.queue.leave(run)
    assert not job.queue.is_busy


def test_a_delayed_retry_holds_its_key_and_no_other() -> None:
    job = waiting(by_change(2, "a"), by_change(3, "b"))
    delay(job, by_change(1, "a"))

    assert all_taken(job) == [3]


def test_a_change_starts_a_run_at_once_only_where_nothing_is_before_it() -> None:
    assert claim_of_change(waiting(), by_change(1)) is Admission.START
    assert claim_of_change(waiting(by_change(1, "a")), by_change(2, "b")) is Admission.WAIT
    job = waiting()
    delay(job, by_change(1, "a"))
    assert claim_of_change(job, by_change(2, "a")) is Admission.WAIT
    assert claim_of_change(job, by_change(2, "b")) is Admission.START
    assert claim_of_change(job, by_change(3, "b")) is Admission.WAIT


@pytest.mark.parametrize("is_recorded", [False, True])
def test_a_claim_of_a_change_that_did_not_become_a_run_holds_up_no_later_one(is_recorded: bool) -> None:
    job = waiting(overlap=Overlap.ALLOW)
    change = by_change(1)
    claim_of_change(job, change)
    new = NewRun(job=job.id, state=RunState.RUNNING, trigger=change.trigger)
    job.queue.end_claim(new, run_of(RunId(1), new) if is_recorded else None)

    assert job.queue.is_busy is is_recorded
    assert claim_of_change(job, by_change(2)) is (Admission.WAIT if is_recorded else Admission.START)


def test_room_is_counted_for_changes_alone_with_those_that_are_delayed() -> None:
    job = waiting(by_change(1), by_change(2), by_hand())
    delay(job, by_change(3))

    assert (job.queue.room_for_caused, job.queue.waiting_count) == (CAUSED_LIMIT - 3, 4)


def test_runs_of_changes_take_no_place_in_a_queue_of_others() -> None:
    job = waiting(*map(by_change, range(1, QUEUE_LIMIT + 1)), overlap=Overlap.QUEUE)
    assert job.queue.claim(job.spec) is Admission.START
    assert job.queue.claim(job.spec) is Admission.WAIT


@pytest.mark.parametrize("other", [by_change(1), of_incident(1)])
def test_neither_what_changes_have_started_nor_what_tells_of_incidents_makes_way(other: Run) -> None:
    job = waiting(by_hand(), other, overlap=Overlap.REPLACE)
    assert [run.id for run in job.queue.make_way()] == [100]
    assert all_taken(job) == [1]


@pytest.mark.parametrize(
    ("overlap", "busy", "waiting", "made_up_for", "verdict"),
    [
        *((overlap, False, 0, 0, Admission.START) for overlap in Overlap),
        (Overlap.SKIP, True, 0, 0, Admission.SKIP),
        (Overlap.QUEUE, True, 0, 0, Admission.WAIT),
        (Overlap.REPLACE, True, 0, 0, Admission.REPLACE),
        (Overlap.ALLOW, True, 0, 0, Admission.START),
        (Overlap.QUEUE, True, QUEUE_LIMIT, 0, Admission.SKIP),
        *((overlap, True, 0, 1, Admission.WAIT) for overlap in (Overlap.SKIP, Overlap.REPLACE, Overlap.QUEUE)),
        (Overlap.SKIP, True, QUEUE_LIMIT, 1, Admission.SKIP),
        (Overlap.SKIP, True, QUEUE_LIMIT, QUEUE_LIMIT + 1, Admission.WAIT),
    ],
)
def test_a_run_is_admitted_as_overlap_says_and_waits_where_it_is_made_up_for(
    overlap: Overlap, busy: bool, waiting: int, made_up_for: int, verdict: Admission
) -> None:
    assert admit(overlap, busy=busy, waiting=waiting, made_up_for=made_up_for) is verdict


def test_runs_that_tell_of_incidents_come_first_and_in_their_order() -> None:
    job = waiting(by_hand(), by_change(2), of_incident(7), of_incident(8, "on_up"))
    assert all_taken(job) == [7, 8, 100, 2]


def test_they_go_one_at_a_time_even_where_runs_may_overlap() -> None:
    job = waiting(of_incident(7), of_incident(8, "on_up"), by_hand(), overlap=Overlap.ALLOW)
    down = job.queue.start_next(job.spec, 1_000)
    manual = job.queue.start_next(job.spec, 1_000)
    assert down
    assert manual
    assert (down.id, manual.id, job.queue.start_next(job.spec, 1_000)) == (7, 100, None)
    job.queue.leave(down)
    up = job.queue.start_next(job.spec, 1_000)
    assert up
    assert up.id == 8


def test_an_end_waits_until_its_beginning_was_tried_again() -> None:
    job = waiting(of_incident(8, "on_up"))
    again = of_incident(9)
    again = replace(again, attempt=2, trigger=replace(again.trigger, type="retry", of=RunId(7)))
    delay(job, again)
    assert job.queue.start_next(job.spec, 1_000) is None
    job.queue.line_up(job.queue.delayed.pop(again.id)[0])
    assert all_taken(job) == [9, 8]


def test_a_claim_in_turn_counts_until_it_is_settled() -> None:
    job = make_job(overlap=Overlap.SKIP)
    assert job.queue.claim_in_turn() is Admission.WAIT
    run = of_incident(7)
    new = NewRun(job=job.id, state=RunState.WAITING, trigger=run.trigger)
    job.queue.end_claim(new, run)
    job.queue.line_up(run)
    assert all_taken(job) == [7]
    assert job.queue.claim(job.spec) is Admission.START
