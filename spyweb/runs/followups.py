"""The runs that follow the end of a run: a retry, a second start after a loss, those of jobs `after` it.  Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import assert_never

from msgspec import structs

from spyweb.model import Backoff, Ending, Failure, JobSpec, Outcome, Retry, Run, RunState, TriggerType
from spyweb.runs.live import LiveJob
from spyweb.runs.records import SENT, first_of, is_owed, payload_of, tells_of_incident
from spyweb.runs.state_trigger import cause_of, depth_of, event_of
from spyweb.store.protocol import Change, NewRun, SkippedRange
from spyweb.store.tasks_protocol import RESUMES

RESUMABLE = "resumable"  # in a trigger: its job had `resume` when the run was claimed
_MOST_DOUBLINGS = 64  # beyond this every delay is over its maximum anyway


def tries(run: Run) -> int:
    """Return the number of this attempt, not counting attempts lost without fault or cut short."""
    return run.attempt - _count(run, "lost") - _count(run, "cut_short")


def _count(run: Run, name: str) -> int:
    """Count the earlier attempts that were `lost` without fault, or `cut_short` by the end of their daemon."""
    count = run.trigger.get(name, 0)
    return count if isinstance(count, int) else 0


def may_retry(run: Run, retry: Retry) -> bool:
    return tries(run) <= retry.retries


def next_attempt(run: Run, ending: Ending, retry: Retry, now_ms: int, random: Callable[[], float]) -> NewRun | None:
    """Return the attempt that follows, if one does.

    An innocent loss starts again once, at once; a failure is retried after its delay; what the end of the daemon has
    cut short may begin again.
    """
    is_lost = ending.outcome is Outcome.LOST
    if ending.outcome is Outcome.STOPPED:
        return begin_again(run)
    if is_lost and not ending.guilty and not _count(run, "lost"):
        return _next_attempt(run, lost=1)
    is_failure = ending.guilty if is_lost else ending.outcome is Outcome.FAILED
    if is_failure and ending.failure is not Failure.CANCELLED and may_retry(run, retry):
        return _next_attempt(run, now_ms + retry_delay_ms(retry, tries(run), random))
    return None


def follow_up(spec: JobSpec, run: Run, ending: Ending, now_ms: int, random: Callable[[], float]) -> NewRun | None:
    """Return the run that follows one of a job: its next attempt, or the one that goes on with its tasks."""
    is_cut_short = ending.outcome in (Outcome.LOST, Outcome.STOPPED)
    if not (spec.resume and is_cut_short) or tells_of_incident(run.trigger):
        return next_attempt(run, ending, spec.retry, now_ms, random)
    if not ending.guilty:
        return resume(run)
    delay_ms = retry_delay_ms(spec.retry, _count(run, "cut_short") + 1, random)
    return resume(run, now_ms + delay_ms)


def resume(run: Run, start_after_ms: int | None = None) -> NewRun:
    """Return the run that goes on with the tasks of one that was cut short; it uses up no retry."""
    new = _next_attempt(run, start_after_ms, cut_short=1)
    return structs.replace(new, trigger={**new.trigger, RESUMES: run.trigger.get(RESUMES, run.id)})


def resumes(run: Run) -> bool:
    return RESUMES in run.trigger


def is_resumable(run: Run) -> bool:
    """Tell whether its job would resume a run, of a job that can't be loaded any more."""
    return resumes(run) or run.trigger.get(RESUMABLE) is True


def retry_delay_ms(retry: Retry, attempt: int, random: Callable[[], float]) -> int:
    """Return the delay after the failed attempt (1, 2, …).

    With jitter it is drawn evenly from zero to the whole delay, so that jobs that failed together do not come back
    together.  `random` gives a number from 0 up to 1.
    """
    delay_ms = min(_full_delay_ms(retry, attempt), retry.max_delay_ms)
    return int(random() * (delay_ms + 1)) if retry.jitter else delay_ms


def _full_delay_ms(retry: Retry, attempt: int) -> int:
    match retry.backoff:
        case Backoff.CONSTANT:
            return retry.delay_ms
        case Backoff.LINEAR:
            return retry.delay_ms * attempt
        case Backoff.EXPONENTIAL:
            return retry.delay_ms << min(attempt - 1, _MOST_DOUBLINGS)
        case _:
            assert_never(retry.backoff)


def begin_again(run: Run) -> NewRun | None:
    """Return the attempt that follows one that the end of its daemon cut short, planned or not.

    A change of state comes only once, and so does an incident: a run of it begins again however often that happens.
    """
    return _next_attempt(run, cut_short=1) if is_owed(run) else None


def _next_attempt(run: Run, start_after_ms: int | None = None, *, lost: int = 0, cut_short: int = 0) -> NewRun:
    carried = {
        "lost": _count(run, "lost") + lost,
        "cut_short": _count(run, "cut_short") + cut_short,
        "depth": depth_of(run.trigger),
        "cause": cause_of(run.trigger),
        RESUMABLE: run.trigger.get(RESUMABLE),
    }
    sent = {name: run.trigger[name] for name in SENT if name in run.trigger}
    trigger = {"type": TriggerType.RETRY.value, "of": first_of(run), **sent}
    return NewRun(
        job=run.job,
        state=RunState.WAITING,
        trigger={**trigger, **{name: value for name, value in carried.items() if value}},
        attempt=run.attempt + 1,
        due_ms=run.due_ms,
        start_after_ms=start_after_ms,
        event=event_of(run.trigger),
        follows=run.id,
        of_payload=payload_of(run),
    )


def what_follows(run: Run, ending: Ending, jobs: Iterable[LiveJob], now_ms: int) -> Change:
    """Return what to record for the jobs `after` this one: their starts, or that they were paused."""
    if tells_of_incident(run.trigger) or ending.declined:
        return Change()
    trigger: dict[str, object] = {
        "type": TriggerType.AFTER.value,
        "job": str(run.job),
        "run_id": int(run.id),
        "outcome": ending.outcome.value,
    }
    if depth_of(run.trigger):
        trigger["depth"] = depth_of(run.trigger)
    starts: list[NewRun] = []
    passed_over: list[SkippedRange] = []
    for job in jobs:
        if not any(after.job == run.job and ending.outcome in after.outcomes for after in job.spec.after):
            continue
        if not job.cursor.paused:
            starts.append(NewRun(job=job.id, state=RunState.WAITING, trigger=trigger, follows=run.id))
            continue
        paused = SkippedRange(
            job=job.id,
            outcome=Outcome.PAUSED,
            first_due_ms=now_ms,
            last_due_ms=now_ms,
            count=1,
            reason=f"{run.job} ended while the job was paused",
            at_ms=now_ms,
            trigger=TriggerType.AFTER,
            follows=run.id,
        )
        passed_over.append(paused)
    return Change(new=starts, skipped=passed_over)
