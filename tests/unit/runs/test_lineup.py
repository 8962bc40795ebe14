"""Whose turn it is."""

from __future__ import annotations

from spyweb.model import JobId, Overlap, Run, RunId, RunState
from spyweb.runs.lineup import CAUSED_LIMIT, line_up, may_start_at_once, queued, room_for_caused, take_next
from spyweb.runs.live import Delay, LiveJob
from tests.fakes.clock import FakeClock
from tests.fakes.town import make_job


def by_change(event: int, key: str = "k", run: int | None = None) -> Run:
    trigger = {"type": "state", "scope": "orders", "key": key, "event": event}
    return Run(id=RunId(run or event), job=JobId("prices"), state=RunState.WAITING, trigger=trigger)


def by_hand(run: int = 100) -> Run:
    return Run(id=RunId(run), job=JobId("prices"), state=RunState.WAITING, trigger={"type": "manual"})


def waiting(*runs: Run, overlap: Overlap = Overlap.SKIP) -> LiveJob:
    job = make_job(overlap=overlap)
    for run in runs:
        line_up(job, run)
    return job


def delay(job: LiveJob, run: Run) -> None:
    job.delayed[run.id] = Delay(run, FakeClock().call_later(1, lambda: None))


def all_taken(job: LiveJob) -> list[int]:
    taken = []
    while run := take_next(job):
        taken.append(int(run.id))
    return taken


def test_runs_of_changes_stand_in_the_order_of_the_changes_and_others_as_they_came() -> None:
    job = waiting(by_change(2), by_hand(), by_change(5), by_change(1, run=9), by_change(4))

    assert all_taken(job) == [9, 2, 100, 4, 5]


def test_a_busy_job_starts_nothing_unless_its_runs_may_overlap() -> None:
    job = waiting(by_hand(), by_change(1))
    job.claiming = 1
    assert take_next(job) is None
    job = waiting(by_hand(), by_change(1), overlap=Overlap.ALLOW)
    job.claiming = 1

    assert all_taken(job) == [100, 1]


def test_while_a_change_is_served_the_next_waits_even_where_runs_may_overlap() -> None:
    job = waiting(by_change(2), by_hand(), overlap=Overlap.ALLOW)
    job.claiming, job.serving = 1, True

    assert all_taken(job) == [100]


def test_a_delayed_retry_holds_its_key_and_no_other() -> None:
    job = waiting(by_change(2, "a"), by_change(3, "b"))
    delay(job, by_change(1, "a"))

    assert all_taken(job) == [3]


def test_a_newcomer_starts_at_once_only_where_nothing_is_before_it() -> None:
    assert may_start_at_once(waiting(), by_change(1))
    assert not may_start_at_once(waiting(by_change(1, "a")), by_change(2, "b"))
    job = waiting()
    delay(job, by_change(1, "a"))
    assert may_start_at_once(job, by_change(2, "b"))
    assert not may_start_at_once(job, by_change(2, "a"))
    job.claiming = 1
    assert not may_start_at_once(job, by_change(2, "b"))


def test_room_is_counted_for_changes_alone_with_those_that_are_delayed() -> None:
    job = waiting(by_change(1), by_change(2), by_hand())
    delay(job, by_change(3))

    assert (room_for_caused(job), queued(job)) == (CAUSED_LIMIT - 3, 1)
