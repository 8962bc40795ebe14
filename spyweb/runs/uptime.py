"""The result of a job that the end of a run is.  Pure."""

from __future__ import annotations

from collections.abc import Mapping

from spyweb.model import Ending, Failure, JobSpec, Outcome, Pings, Run
from spyweb.runs.followups import tries
from spyweb.runs.live import LiveJob
from spyweb.runs.records import is_finding
from spyweb.schedules.due import next_due
from spyweb.store.model.uptime import HOURS_KEPT_MS, Excuses, Sample

RESULTS = {Outcome.SUCCESS: True, Outcome.FAILED: False, Outcome.LOST: False}


def sample_of(job: LiveJob, run: Run, ending: Ending, now_ms: int, excuses: Excuses) -> Sample | None:
    """Return the result of a run that is not retried; None where it says nothing about its job."""
    up = RESULTS.get(ending.outcome)
    if ending.outcome is Outcome.SKIPPED and tries(run) > 1:  # the failure that it was to retry stands
        up = False
    if up is None or run.trigger.is_aside or is_finding(run) or ending.failure is Failure.CANCELLED:
        return None
    stale_ms = now_ms if job.cursor.idle_since_ms is not None else stale_after(job.spec, now_ms)
    latency_ms, free_ms = latency_of(run, ending, now_ms), excuses.free_since(job.id, now_ms)
    return Sample(job=job.id, at_ms=now_ms, up=up, stale_ms=stale_ms, latency_ms=latency_ms, free_ms=free_ms)


def stale_after(spec: JobSpec, now_ms: int) -> int:
    """Return until when a result may hold: two due times later, and as long as a run may take."""
    pings = spec.schedule if isinstance(spec.schedule, Pings) else None
    schedule, grace_ms = (pings.schedule, pings.grace_ms) if pings else (spec.schedule, 0)
    first_ms = next_due(schedule, now_ms)
    second_ms = None if first_ms is None else next_due(schedule, first_ms)
    return now_ms + HOURS_KEPT_MS if second_ms is None else second_ms + spec.timeout_ms + grace_ms


def latency_of(run: Run, ending: Ending, now_ms: int) -> float:
    """Return the `latency` in the table that a script has returned, or how long its run has taken."""
    result = ending.result if isinstance(ending.result, Mapping) else {}
    found = result.get("latency", result.get(b"latency"))
    return max(0.0, found if isinstance(found, int | float) else now_ms - (run.started_ms or now_ms))
