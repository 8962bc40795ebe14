"""Check the jobs that ask for it (`drift = "1h"`) for drift, one after another.

The time of the last check is not stored: a daemon checks each job within a minute of its start, then at the job's
interval.  A job that is running, or about to run, is checked after its run.
"""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from dataclasses import dataclass, field

import structlog
from msgspec import Struct, to_builtins

from spyweb.clock import Clock
from spyweb.errors import STORE_REFUSED
from spyweb.logs.output import tell_refusal
from spyweb.model import JobId, Outcome, Trigger, TriggerType
from spyweb.runs.live import LiveJob, LiveJobs
from spyweb.runs.records import is_drifting
from spyweb.runs.runner import Runner, RunRequest
from spyweb.subjects.drift.service import DriftService
from spyweb.subjects.drift.views import DriftView, describe_drift

log = structlog.get_logger()

SPREAD_S = 60.0  # over which the first checks after a start are spread


class NextCheck(Struct):
    """The time of a job's next check, by the monotonic clock, and the interval from which it was computed."""

    interval_ms: int
    at: float


@dataclass(kw_only=True, eq=False)
class DriftChecks:
    """Checks each job at its interval."""

    live: LiveJobs
    runner: Runner
    drift: DriftService
    clock: Clock
    _next: dict[JobId, NextCheck] = field(init=False, default_factory=dict)

    async def check_due(self) -> None:
        """Check every job whose time has come."""
        jobs = {job.id: job for job in self.live if job.spec.drift_ms is not None}
        self._next = {job: check for job, check in self._next.items() if job in jobs}
        for job in jobs.values():
            if self._is_due(job) and _is_at_rest(job):
                try:
                    await self._check(job)
                except STORE_REFUSED as error:
                    tell_refusal("a job could not be checked for drift", error, job=job.id)

    def _is_due(self, job: LiveJob) -> bool:
        interval_ms, now = job.spec.drift_ms or 0, self.clock.monotonic()
        known = self._next.get(job.id)
        if known is None:
            share = zlib.crc32(job.id.encode()) / (1 << 32)
            self._next[job.id] = NextCheck(interval_ms, now + share * min(interval_ms / 1000, SPREAD_S))
        elif known.interval_ms != interval_ms:  # its settings were edited
            self._next[job.id] = NextCheck(interval_ms, min(known.at, now + interval_ms / 1000))
        return self._next[job.id].at <= now

    async def _check(self, job: LiveJob) -> None:
        report = await self.drift.check(job.id)
        job = self.live.current(job)
        if not _is_at_rest(job):
            return  # a run's own changes would count as a difference: checked again after the run
        request = request_for(job, report.differences)
        if request is not None:
            log.warning("drift", job=job.id, **to_builtins(request.trigger)) if report.differences else None
            await self.runner.start(job, [request])
        interval_ms = job.spec.drift_ms or 0
        self._next[job.id] = NextCheck(interval_ms, self.clock.monotonic() + interval_ms / 1000)


def _is_at_rest(job: LiveJob) -> bool:
    """Return whether a job can be checked now: it is live, not paused, and no run is under way."""
    is_kept = job.mine and not job.gone and not job.is_new and job.spec.enabled and not job.cursor.paused
    return is_kept and not job.queue.is_busy and not job.queue.waiting


def request_for(job: LiveJob, differences: Sequence[DriftView]) -> RunRequest | None:
    """Return the run that follows a check, if any.

    A difference that a repair did not remove starts no second repair: a finding reports it instead.
    """
    last = job.last
    if not differences:
        return _request(finding="") if is_drifting(last) else None
    reason = describe_drift(differences)
    if not job.spec.drift_repair:
        return _request(finding=reason)
    if last is not None and last.trigger.repairs and last.outcome is Outcome.SUCCESS:
        left = [each for each in differences if (each.run or 0) < last.id]
        if left:
            return _request(finding=f"run {last.id} has not repaired it: {describe_drift(left)}")
    return _request(repairs=reason)


def _request(*, finding: str | None = None, repairs: str = "") -> RunRequest:
    return RunRequest(trigger=Trigger(type=TriggerType.DRIFT, finding=finding, repairs=repairs))
