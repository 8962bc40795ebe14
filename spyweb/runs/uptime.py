"""The result of a job that the end of a run is.  Pure."""

from __future__ import annotations

from collections.abc import Mapping

from spyweb.model import Ending, Failure, JobSpec, Outcome, Pings, Run
from spyweb.runs.followups import tries
from spyweb.runs.live import LiveJob
from spyweb.runs.records import is_finding
from spyweb.schedules.due import next_due
from spyweb.store.model.uptime import KEPT_MS, bucket_of

RESULTS = (Outcome.SUCCESS, Outcome.FAILED, Outcome.LOST)


def stale_of(job: LiveJob, run: Run, ending: Ending, now_ms: int) -> int | None:
    """Return until when a run that is not retried may hold as its job's result; None: it says nothing about it."""
    stands = ending.outcome is Outcome.SKIPPED and tries(run) > 1  # the failure that it was to retry
    is_result = (stands or ending.outcome in RESULTS) and ending.failure is not Failure.CANCELLED
    if not is_result or run.trigger.is_aside or is_finding(run):
        return None
    return now_ms if job.cursor.idle_since_ms is not None else stale_after(job.spec, now_ms)


def stale_after(spec: JobSpec, now_ms: int) -> int:
    """Return until when a result may hold: two due times later, and as long as a run may take."""
    pings = spec.schedule if isinstance(spec.schedule, Pings) else None
    schedule, grace_ms = (pings.schedule, pings.grace_ms) if pings else (spec.schedule, 0)
    first_ms = next_due(schedule, now_ms)
    second_ms = None if first_ms is None else next_due(schedule, first_ms)
    return now_ms + KEPT_MS["hour"] if second_ms is None else second_ms + spec.timeout_ms + grace_ms


def latency_of(run: Run, ending: Ending, now_ms: int) -> int | None:
    """Return the bucket of the `latency` in a result, or of how long the run has taken; None where it has failed."""
    if ending.outcome is not Outcome.SUCCESS:
        return None
    result = ending.result if isinstance(ending.result, Mapping) else {}
    found = result.get("latency", result.get(b"latency"))
    return bucket_of(found if isinstance(found, int | float) else now_ms - (run.started_ms or now_ms))
