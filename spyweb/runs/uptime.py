"""What the end of a run says about its job's uptime.  Pure."""

from __future__ import annotations

import math
from collections.abc import Mapping

from spyweb.model import Ending, Failure, JobSpec, Outcome, Pings, Run
from spyweb.runs.followups import tries
from spyweb.runs.live import LiveJob
from spyweb.runs.records import is_finding
from spyweb.schedules.due import next_due
from spyweb.store.model.uptime import HOURS_KEPT_MS, Excuses, Sample

LATENCY = "latency"  # in the table that a script returns, in ms
MOST_LATENCY_MS = 86_400_000.0


def sample_of(job: LiveJob, run: Run, ending: Ending, ended_ms: int, excuses: Excuses) -> Sample | None:
    """Return the result of a run that is not retried; None where it says nothing about its job."""
    up = is_up(run, ending)
    if up is None:
        return None
    return Sample(
        job=job.id,
        at_ms=ended_ms,
        up=up,
        stale_ms=ended_ms if job.cursor.idle_since_ms is not None else stale_of(job.spec, ended_ms),
        latency_ms=latency_of(run, ending, ended_ms) if up else None,
        free_ms=excuses.free_since(job.id, ended_ms),
    )


def is_up(run: Run, ending: Ending) -> bool | None:
    if run.trigger.is_aside or is_finding(run) or ending.failure is Failure.CANCELLED:
        return None
    if ending.outcome is Outcome.SKIPPED and tries(run) > 1:  # the failure that it was to retry stands
        return False
    return {Outcome.SUCCESS: True, Outcome.FAILED: False, Outcome.LOST: False}.get(ending.outcome)


def stale_of(spec: JobSpec, ended_ms: int) -> int:
    """Return until when a result may hold: two due times later, and as long as a run may take."""
    pings = spec.schedule if isinstance(spec.schedule, Pings) else None
    schedule, grace_ms = (pings.schedule, pings.grace_ms) if pings else (spec.schedule, 0)
    first_ms = next_due(schedule, ended_ms)
    second_ms = None if first_ms is None else next_due(schedule, first_ms)
    return ended_ms + HOURS_KEPT_MS if second_ms is None else second_ms + spec.timeout_ms + grace_ms


def latency_of(run: Run, ending: Ending, ended_ms: int) -> float:
    """Return the latency that a script has returned, or how long its run has taken."""
    result = ending.result
    if isinstance(result, Mapping):
        found = result.get(LATENCY, result.get(LATENCY.encode()))
        if isinstance(found, int | float) and math.isfinite(found) and found >= 0:
            return min(float(found), MOST_LATENCY_MS)
    return float(max(0, ended_ms - (run.started_ms or ended_ms)))
