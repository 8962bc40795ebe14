"""The runs that follow the end of a run: a retry, a second start after a loss, runs of jobs `after` it.  Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from msgspec import structs

from spyweb.model import Backoff, Ending, Failure, JobSpec, Outcome, Retry, Run, RunId, RunState, Trigger, TriggerType
from spyweb.runs.live import LiveJob
from spyweb.runs.records import first_of, is_finding, payload_of, skip_of
from spyweb.store.model.runs import Change, NewRun, SkippedRange

# Fields of a trigger that all attempts share.
SENT = (
    "hook", "incident", "payload", "payload_stored", "headers", "query", "traceparent", "depth", "resumable", "values",
    "retry_of",
)  # fmt: skip
_MOST_DOUBLINGS = 64  # beyond this every delay exceeds its maximum


def tries(run: Run) -> int:
    """Return the number of this attempt, not counting attempts lost without fault or cut short."""
    return run.attempt - run.trigger.lost - run.trigger.cut_short


def may_retry(run: Run, retry: Retry) -> bool:
    return tries(run) <= retry.retries


def next_attempt(run: Run, ending: Ending, retry: Retry, now_ms: int, random: Callable[[], float]) -> NewRun | None:
    """Return the attempt that follows, if one does.

    A run that was lost without fault starts again once, at once; a failure is retried after its delay; a run that the
    end of the daemon interrupted may begin again.
    """
    is_lost = ending.outcome is Outcome.LOST
    if ending.outcome is Outcome.STOPPED:
        return begin_again(run)
    if is_lost and not ending.guilty and not run.trigger.lost:
        return _next_attempt(run, lost=1)
    is_failure = ending.guilty if is_lost else ending.outcome is Outcome.FAILED
    if is_failure and ending.failure is not Failure.CANCELLED and may_retry(run, retry):
        return _next_attempt(run, now_ms + retry_delay_ms(retry, tries(run), random))
    return None


def follow_up(spec: JobSpec, run: Run, ending: Ending, now_ms: int, random: Callable[[], float]) -> NewRun | None:
    """Return the next run of a job after this one: its next attempt, or the run that resumes its tasks."""
    is_cut_short = ending.outcome in (Outcome.LOST, Outcome.STOPPED)
    if not (spec.resume and is_cut_short) or run.trigger.incident:
        return next_attempt(run, ending, spec.retry, now_ms, random)
    if not ending.guilty:
        return resume(run)
    delay_ms = retry_delay_ms(spec.retry, run.trigger.cut_short + 1, random)
    return resume(run, now_ms + delay_ms)


def after_loss(
    spec: JobSpec | None, run: Run, ending: Ending, now_ms: int, random: Callable[[], float], *, may_be_back: bool
) -> NewRun | None:
    """Return the run that follows one that an earlier daemon did not end.

    Without a spec the job is unknown; `may_be_back` says that its file may be one that can't be loaded now.
    """
    if is_finding(run) or (spec is not None and not spec.enabled):
        return None
    if spec is None:
        would_resume = run.trigger.resumes is not None or run.trigger.resumable
        again = resume(run) if would_resume else begin_again(run)
        return again if may_be_back else None
    if run.trigger.is_owed and (run.trigger.incident or not spec.resume):
        return begin_again(run)
    return resume(run) if spec.resume else next_attempt(run, ending, spec.retry, now_ms, random)


def resume(run: Run, start_after_ms: int | None = None) -> NewRun:
    """Return the run that continues the tasks of an interrupted run; it uses up no retry."""
    return _next_attempt(run, start_after_ms, cut_short=1, resumes=run.trigger.resumes or run.id)


def retry_delay_ms(retry: Retry, attempt: int, random: Callable[[], float]) -> int:
    """Return the delay after the failed attempt (1, 2, …).

    With jitter the delay is random between zero and its full length, so that jobs which failed together retry apart.
    """
    doubled = 1 << min(attempt - 1, _MOST_DOUBLINGS)
    factor = {Backoff.CONSTANT: 1, Backoff.LINEAR: attempt, Backoff.EXPONENTIAL: doubled}[retry.backoff]
    delay_ms = min(retry.delay_ms * factor, retry.max_delay_ms)
    return int(random() * (delay_ms + 1)) if retry.jitter else delay_ms


def begin_again(run: Run) -> NewRun | None:
    """Return the attempt after one that the end of the daemon interrupted: only for a change or an incident."""
    return _next_attempt(run, cut_short=1) if run.trigger.is_owed else None


def _next_attempt(
    run: Run, start_after_ms: int | None = None, *, lost: int = 0, cut_short: int = 0, resumes: RunId | None = None
) -> NewRun:
    trigger = Trigger(
        type=TriggerType.RETRY,
        of=first_of(run),
        lost=run.trigger.lost + lost,
        cut_short=run.trigger.cut_short + cut_short,
        cause=run.trigger.change,
        resumes=resumes,
        **{name: getattr(run.trigger, name) for name in SENT},
    )
    return NewRun(
        job=run.job,
        state=RunState.WAITING,
        trigger=trigger,
        attempt=run.attempt + 1,
        due_ms=run.due_ms,
        start_after_ms=start_after_ms,
        follows=run.id,
        of_payload=payload_of(run),
    )


def what_follows(run: Run, ending: Ending, jobs: Iterable[LiveJob], now_ms: int) -> Change:
    """Return the starts of the jobs `after` this one, or, where such a job is paused, the records that say so."""
    if run.trigger.incident or ending.declined:
        return Change()
    outcome, depth = ending.outcome.value, run.trigger.depth
    trigger = Trigger(type=TriggerType.AFTER, job=run.job, run_id=run.id, outcome=outcome, depth=depth)
    starts: list[NewRun] = []
    passed_over: list[SkippedRange] = []
    for job in jobs:
        if not any(after.job == run.job and ending.outcome in after.outcomes for after in job.spec.after):
            continue
        started_by = structs.replace(trigger, resumable=job.spec.resume)
        new = NewRun(job=job.id, state=RunState.WAITING, trigger=started_by, follows=run.id)
        if job.cursor.paused:
            reason = f"{run.job} ended while the job was paused"
            passed_over.append(skip_of(new, now_ms, reason, Outcome.PAUSED))
        else:
            starts.append(new)
    return Change(new=starts, skipped=passed_over)
