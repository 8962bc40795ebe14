"""A wish that a job run, and the claim that it becomes: admitted by `overlap`, and counted with its job until the store
has answered."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from msgspec import Struct

from spyweb.model import Cursor, Overlap, Run, RunId, RunState, TriggerType
from spyweb.runs.attempt import DEBUG, Observer
from spyweb.runs.lineup import may_start_at_once, queued
from spyweb.runs.live import LiveJob
from spyweb.runs.overlap import QUEUE_LIMIT, Admission, admit
from spyweb.runs.records import skip_of
from spyweb.runs.state_trigger import event_of
from spyweb.store.protocol import NewRun, SkippedRange


class RunRequest(Struct, frozen=True, kw_only=True):
    """A wish that a job run."""

    trigger: Mapping[str, object]
    due_ms: int | None = None
    patient: bool = False  # made up for: waits where another would be skipped
    observer: Observer | None = None  # a watched run (`spyweb run`) is one attempt, and starts no other job


def by_hand(observer: Observer, *, debug: bool) -> RunRequest:
    """A person's wish to see the job run; with `debug`, what a monitor job finds, and nothing of it kept."""
    trigger: dict[str, object] = {"type": TriggerType.MANUAL.value}
    return RunRequest(trigger={**trigger, DEBUG: True} if debug else trigger, observer=observer)


@dataclass(slots=True, kw_only=True, eq=False)
class DueRuns:
    """What has come due of one job."""

    job: LiveJob
    starts: Sequence[RunRequest]
    cursor: Cursor | None = None  # where it moves
    expects: Cursor | None = None  # where it is on record
    skipped: Sequence[SkippedRange] = ()  # what will not run


class ClaimedRun(Struct, frozen=True, kw_only=True):
    """A start on its way to the store."""

    job: LiveJob
    new: NewRun
    observer: Observer | None = None
    replaces: bool = False  # once it is claimed, what runs and what waits makes way


def admit_due(due: DueRuns, now_ms: int, claims: list[ClaimedRun], skipped: list[SkippedRange]) -> None:
    """Add each start to what is claimed or to what is skipped."""
    job, waiting = due.job, queued(due.job)
    for wish in due.starts:
        made_up_for = job.spec.misfire.limit if wish.patient else 0
        verdict = admit(job.spec.overlap, busy=job.busy, waiting=waiting, made_up_for=made_up_for)
        claim = _claim(job, wish, verdict, now_ms)
        if verdict is Admission.SKIP:
            skipped.append(skip_of(claim.new, now_ms, busy_with(job)))
            continue
        waits = verdict is not Admission.START
        job.claiming += not waits
        job.queueing += waits
        waiting += waits
        claims.append(claim)


def claim_for_event(job: LiveJob, trigger: Mapping[str, object], now_ms: int, *, may_start: bool) -> ClaimedRun:
    """What a change of state starts waits for its turn where it can't start at once, whatever `overlap` says."""
    candidate = Run(id=RunId(0), job=job.id, state=RunState.WAITING, trigger=trigger)
    starting = may_start and may_start_at_once(job, candidate)
    job.claiming += starting
    job.serving |= starting
    return _claim(job, RunRequest(trigger=trigger), Admission.START if starting else Admission.WAIT, now_ms)


def _claim(job: LiveJob, wish: RunRequest, verdict: Admission, now_ms: int) -> ClaimedRun:
    starting = verdict is Admission.START
    new = NewRun(
        job=job.id,
        state=RunState.RUNNING if starting else RunState.WAITING,
        trigger=wish.trigger,
        due_ms=wish.due_ms,
        started_ms=now_ms if starting else None,
        generation=job.code.generation,
        event=event_of(wish.trigger),
    )
    return ClaimedRun(job=job, new=new, observer=wish.observer, replaces=verdict is Admission.REPLACE)


def answered(claim: ClaimedRun, *, refused: bool) -> None:
    """It is on its way no longer."""
    job, is_caused_by_change = claim.job, claim.new.event is not None
    if claim.new.state is RunState.RUNNING:
        job.claiming -= 1
        job.serving &= not (refused and is_caused_by_change)
    elif not is_caused_by_change:
        job.queueing -= 1


def busy_with(job: LiveJob) -> str:
    if job.spec.overlap is Overlap.QUEUE:
        return f"overlap: {QUEUE_LIMIT} runs are waiting already"
    running = ", ".join(str(run) for run in job.in_flight) or "about to start"
    return f"overlap: the job is busy (run {running})"
