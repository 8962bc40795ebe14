"""The health of the daemon, its readiness, and its measurements."""

from __future__ import annotations

from asyncio import Lock
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field

from msgspec import Struct
from msgspec.structs import asdict, replace

from spyweb.alerts.channels import ChannelTally
from spyweb.clock import Clock
from spyweb.cooperative import Steps, run_in_slices, within
from spyweb.errors import STORE_REFUSED
from spyweb.histogram import Histogram
from spyweb.incidents.policy import Level
from spyweb.model import JobId, Outcome, Run
from spyweb.monitor.expectations import is_short
from spyweb.ops.world import Metrics
from spyweb.runs.counters import JobCounts, RunCounters
from spyweb.runs.live import LiveJobs
from spyweb.runs.records import is_drifting
from spyweb.settings.sections import Settings
from spyweb.store.model.messages import Backlog
from spyweb.store.model.runs import CheckResult
from spyweb.store.sqlite.store import Store
from spyweb.subjects.health import views
from spyweb.subjects.incidents.service import MOST_OPEN
from spyweb.views.jobs import JobState
from spyweb.views.runs import check_result
from spyweb.web.api.services import STARTING


@dataclass(frozen=True, slots=True, kw_only=True)
class HealthService:
    live: LiveJobs
    states: Callable[[], Iterable[JobState]]  # of all jobs
    vitals: Callable[[], views.Vitals]
    settings: Callable[[], Settings]

    def health(self) -> views.Health:
        return views.view_health(self.vitals(), self.states(), *_count_short_and_drifting(self.live))

    def troubles(self) -> tuple[Sequence[views.HealthProblem], Sequence[views.HealthProblem]]:
        """Return the problems and the warnings of the daemon now."""
        measured = self.vitals()
        return views.find_all_problems(measured), views.find_warnings(measured, *_count_short_and_drifting(self.live))

    def restrictions(self) -> Mapping[str, views.Restriction]:
        """Return the jobs that are quarantined or held back."""
        vitals = self.vitals()
        found = {str(job): views.Restriction("quarantined", why) for job, why in vitals.pool.quarantined.items()}
        return found | {job: views.Restriction("held back", why) for job, why in vitals.held_back.items()}


def _count_short_and_drifting(live: LiveJobs) -> tuple[int, int]:
    """Count the monitors that find less than expected, and the jobs whose files were changed by others."""
    drifting = sum(job.spec.enabled and is_drifting(job.last) for job in live)
    short = (
        is_short(job.last) and job.spec.monitor is not None and job.spec.enabled and not job.cursor.paused
        for job in live
    )
    return sum(short), drifting


OTHERS = "_other"  # stands for the jobs without their own series; no job has such an id


class JobMeters(JobCounts, kw_only=True, eq=False):
    """The counts of one job, or of the others together."""

    job: str
    is_failing: bool | None = None  # None: it has not run, or these are several jobs
    check: str = ""  # the kind of check
    result: CheckResult | None = None  # of its latest run, if that has succeeded


class Meters(Struct, frozen=True, kw_only=True):
    """All measurements of one scrape, for another thread: they do not change."""

    vitals: views.Vitals
    health: views.Health
    jobs: Sequence[JobMeters]
    lateness: Histogram
    duration: Histogram
    in_flight: int
    waiting: int
    ops: Metrics
    op_times: Mapping[str, Histogram]  # of the ops that were called
    commit_sizes: Histogram
    backlog: Backlog | None  # of the outbox; None: the store did not answer
    incidents: Mapping[Level, int] | None = None  # that are open, by level; None: the store did not answer
    channels: Mapping[str, ChannelTally] = {}  # of the settings


@dataclass(slots=True, kw_only=True)
class MetricsService:
    """Takes the measurements of each scrape."""

    live: LiveJobs
    counters: RunCounters
    op_times: Mapping[str, Histogram]
    op_counts: Metrics
    store: Store
    clock: Clock
    vitals: Callable[[], views.Vitals]
    tallies: Callable[[], Mapping[str, ChannelTally]]  # of the notification channels of the settings
    one_at_a_time: Lock = field(default_factory=Lock, init=False)  # a scrape's text may have some megabytes
    _succeeded: dict[JobId, int] | None = field(default=None, init=False)  # as the store had it at the first scrape

    async def measure(self, health: views.Health) -> Meters:
        """Take all measurements; the ones that the store refuses are left out."""
        backlog, incidents = None, None
        with suppress(*STORE_REFUSED):
            if self._succeeded is None:
                self._succeeded = await self.store.runs.succeeded()
            backlog = await self.store.outbox.backlog()
        with suppress(*STORE_REFUSED):
            found = Counter(each.level for each in await self.store.incidents.all_open(MOST_OPEN))
            incidents = {level: found[level] for level in Level}
        jobs = await run_in_slices(self.clock, self._jobs())
        busy = [(len(job.queue.in_flight), job.queue.waiting_count) for job in self.live]
        return Meters(
            vitals=self.vitals(),
            health=health,
            jobs=jobs,
            lateness=self.counters.lateness.copy(),
            duration=self.counters.duration.copy(),
            in_flight=sum(in_flight for in_flight, _ in busy),
            waiting=sum(waiting for _, waiting in busy),
            ops=replace(
                self.op_counts,
                calls=Counter(self.op_counts.calls),
                errors=Counter(self.op_counts.errors),
                storage_errors=Counter(self.op_counts.storage_errors),
            ),
            op_times={op: each.copy() for op, each in self.op_times.items() if each.count},
            commit_sizes=self.store.commit_sizes().copy(),
            backlog=backlog,
            incidents=incidents,
            channels={name: replace(tally) for name, tally in self.tallies().items()},
        )

    def _jobs(self) -> Steps[list[JobMeters]]:
        found = []
        for job in self.live:
            yield
            if self.counters.of(job.id) is not self.counters.others:
                meters = _meters_of(job.id, self.counters.of(job.id))
                if meters.succeeded_ms is None:
                    meters.succeeded_ms = (self._succeeded or {}).get(job.id)
                meters.is_failing = is_failing(job.last)
                if job.spec.check:
                    meters.check, meters.result = job.spec.check, check_result(job.last)
                found.append(meters)
        others = self.counters.others
        if others.ended or others.started or others.due:
            together = _meters_of(OTHERS, others)
            together.succeeded_ms = None  # meaningless for several jobs
            found.append(together)
        return found


def _meters_of(job: str, counts: JobCounts) -> JobMeters:
    return JobMeters(**{**asdict(counts), "ended": dict(counts.ended)}, job=job)


def is_failing(last: Run | None) -> bool | None:
    return None if last is None or last.outcome is None else last.outcome in (Outcome.FAILED, Outcome.LOST)


KEPT_S = 1.0  # how long an answer holds
PATIENCE_S = 2.0  # for the writer: less than any prober waits

STOPPING = "the daemon is stopping"


@dataclass(slots=True, kw_only=True)
class ReadinessService:
    """Finds out whether the daemon is ready, by a check that each part makes progress.

    The writer commits an empty batch after its other work.  That happens at most once a second: concurrent requests
    share the answer.
    """

    store: Store
    clock: Clock
    vitals: Callable[[], views.Vitals]
    stage: str = STARTING  # why the daemon is not ready, in any state of its parts
    _lock: Lock = field(default_factory=Lock)
    _seen: tuple[float, views.Vitals, str] | None = None  # when, and the error of the probe

    async def look(self) -> views.Readiness:
        async with self._lock:
            if self._seen is None or self.clock.monotonic() - self._seen[0] >= KEPT_S:
                probe, wrong = self.store.probe(), ""
                if not await within(self.clock, PATIENCE_S, probe):
                    probe.cancel()
                    wrong = f"the writer has not answered within {PATIENCE_S:.0f} s"
                elif error := probe.exception():
                    wrong = f"nothing is stored: {type(error).__name__}"
                self._seen = self.clock.monotonic(), self.vitals(), wrong
            _, vitals, wrong = self._seen
        return views.view_readiness(vitals, stage=self.stage, probe=wrong)
