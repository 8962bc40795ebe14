"""Measure a running daemon for a monitoring system, in slices: nothing else of the daemon is late for it."""

from __future__ import annotations

from asyncio import Lock
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field

from spyweb.alerts.channels import ChannelTally
from spyweb.clock import Clock
from spyweb.cooperative import Steps, run_in_slices
from spyweb.errors import STORE_REFUSED
from spyweb.histogram import Histogram
from spyweb.incidents.policy import Level
from spyweb.model import JobId
from spyweb.ops.world import Metrics
from spyweb.runs.counters import RunCounters
from spyweb.runs.live import LiveJob, LiveJobs
from spyweb.service.incidents import MOST_OPEN
from spyweb.store.model.messages import Backlog
from spyweb.store.sqlite.store import Store
from spyweb.views.health import Health, Vitals
from spyweb.views.metrics import OTHERS, ChannelMeters, JobMeters, Meters, OpMeters, is_failing


@dataclass(slots=True, kw_only=True)
class MetricsService:
    """Takes the measurements of each scrape."""

    live: LiveJobs
    counters: RunCounters
    op_times: Mapping[str, Histogram]
    op_counts: Metrics
    store: Store
    clock: Clock
    vitals: Callable[[], Vitals]
    tallies: Callable[[], Mapping[str, ChannelTally]]  # of the alert channels of the settings
    one_at_a_time: Lock = field(default_factory=Lock, init=False)  # a scrape's text may have some megabytes
    _succeeded: dict[JobId, int] | None = field(default=None, init=False)  # as the store had it at the first scrape

    async def measure(self, health: Health) -> Meters:
        """Take all measurements; those that the store refuses are left out."""
        backlog = await self._ask_the_store()
        incidents = await self._count_incidents()
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
            ops=list(self._ops()),
            commit_sizes=self.store.commit_sizes().copy(),
            backlog=backlog,
            incidents=incidents,
            channels=[
                ChannelMeters(channel=name, sent=tally.sent, failed=tally.failed)
                for name, tally in self.tallies().items()
            ],
        )

    async def _count_incidents(self) -> Mapping[Level, int] | None:
        try:
            found = Counter(each.level for each in await self.store.incidents.all_open(MOST_OPEN))
        except STORE_REFUSED:
            return None
        return {level: found[level] for level in Level}

    async def _ask_the_store(self) -> Backlog | None:
        try:
            if self._succeeded is None:
                self._succeeded = await self.store.runs.succeeded()
            return await self.store.outbox.backlog()
        except STORE_REFUSED:
            return None

    def _jobs(self) -> Steps[list[JobMeters]]:
        found = []
        for job in self.live:
            yield
            if self.counters.of(job.id) is not self.counters.others:
                found.append(self._job(job))
        others = self.counters.others
        if others.ended or others.started or others.due:
            found.append(JobMeters(job=OTHERS, due=others.due, started=others.started, ended=dict(others.ended)))
        return found

    def _job(self, job: LiveJob) -> JobMeters:
        counts = self.counters.of(job.id)
        known_ms = (self._succeeded or {}).get(job.id)
        return JobMeters(
            job=job.id,
            due=counts.due,
            started=counts.started,
            ended=dict(counts.ended),
            succeeded_ms=known_ms if counts.succeeded_ms is None else counts.succeeded_ms,
            is_failing=is_failing(job.last),
        )

    def _ops(self) -> Iterator[OpMeters]:
        counts, times = self.op_counts, {op: each for op, each in self.op_times.items() if each.count}
        for op in sorted({*counts.calls, *times}):
            histogram = times.get(op)
            yield OpMeters(
                op=op,
                calls=counts.calls[op],
                errors=counts.errors[op],
                storage_errors=counts.storage_errors[op],
                times=histogram.copy() if histogram else None,
            )
