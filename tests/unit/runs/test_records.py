from __future__ import annotations

from msgspec.structs import replace

from spyweb.model import JobId, Outcome, RunId, RunState, Trigger
from spyweb.runs.records import ctx_of, end_of, ended_run, run_of, skip_of, unbegun
from spyweb.store.model.runs import NewRun
from tests.fakes.pool import FAILED

NEW = NewRun(
    job=JobId("prices"), state=RunState.RUNNING, trigger=Trigger(type="schedule"), due_ms=61_500, started_ms=61_520
)


def test_ctx_gives_epoch_seconds() -> None:
    ctx = ctx_of(run_of(RunId(3), NEW))
    assert ctx == {
        "job": "prices",
        "run_id": 3,
        "attempt": 1,
        "scheduled_at": 61.5,
        "started_at": 61.52,
        "trigger": {"type": "schedule"},
    }


def test_a_run_by_hand_was_scheduled_when_it_started() -> None:
    by_hand = NewRun(job=JobId("prices"), state=RunState.RUNNING, trigger=Trigger(type="manual"), started_ms=1_000)
    assert ctx_of(run_of(RunId(3), by_hand))["scheduled_at"] == 1.0


def test_an_ended_run_reads_as_it_is_recorded() -> None:
    ending = replace(FAILED, storage_errors=2, result=[b"a", 1], http_status=404, items_found=3, items_new=1, note="!")
    before = run_of(RunId(3), NEW)
    run = ended_run(before, end_of(before, ending, 70_000))
    assert run == replace(
        before,
        state=RunState.ENDED,
        ended_ms=70_000,
        outcome=Outcome.FAILED,
        failure=FAILED.failure,
        reason=FAILED.reason,
        traceback=FAILED.traceback,
        cpu_ms=FAILED.cpu_ms,
        storage_errors=2,
        result='["a",1]',
        http_status=404,
        items_found=3,
        items_new=1,
        note="!",
    )


def test_what_is_skipped_names_its_due_time_or_the_moment() -> None:
    assert skip_of(NEW, 99, "busy").first_due_ms == 61_500
    by_hand = NewRun(job=JobId("prices"), state=RunState.WAITING, trigger=Trigger(type="after"))
    assert skip_of(by_hand, 99, "busy").last_due_ms == 99
    assert (skip_of(NEW, 99, "busy").trigger, skip_of(by_hand, 99, "busy").trigger) == ("schedule", "after")
    assert unbegun("gone").outcome is Outcome.SKIPPED
